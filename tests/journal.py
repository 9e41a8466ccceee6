"""A plugin of pytest that writes down which tests begin, end, fail and are skipped.

setup/suite.py reads it: its verdict names the tests that hang and those that were skipped, and ends with the failures.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Generator
from pathlib import Path
from typing import TextIO

import pytest

#: Names the file; without it nothing is written.
VARIABLE = "OAR_TEST_JOURNAL"

#: What tells most of a failure: the line of the test that failed, what it found, and the places on the way there.
_TELLING = re.compile(r"(E  |>  |[\w./-]+:\d+: ).*")
_MOST_LINES = 40
_MOST_WIDTH = 400


class Journal:
    """Writes a line for each event, at once."""

    def __init__(self, file: TextIO) -> None:
        self._file = file

    def _write(self, event: str, test: str, text: str = "") -> None:
        self._file.write(json.dumps([event, test, text]) + "\n")
        self._file.flush()

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """A test begins, on whatever worker."""
        self._write("begun", nodeid)

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        """It has ended, with all that was cleared up after it."""
        self._write("ended", nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """One of its phases has ended."""
        if report.failed:
            self._write("failed", report.nodeid, gist(report.longreprtext))
        if report.skipped and isinstance(report.longrepr, tuple):
            self._write("skipped", report.nodeid, report.longrepr[2].removeprefix("Skipped: "))

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """A file was read, in which no test may have been found."""
        if report.failed:
            self._write("unread", report.nodeid, gist(report.longreprtext))


def gist(report: str) -> str:
    """What tells most of the report of a failure: its end, if that is long."""
    lines = report.splitlines()
    telling = [line for line in lines if _TELLING.match(line)] or lines
    return "\n".join(line[:_MOST_WIDTH] for line in telling[-_MOST_LINES:])


@pytest.hookimpl(wrapper=True)
def pytest_cmdline_main(config: pytest.Config) -> Generator[None, object, object]:
    """Keep the journal in the process that hears of all tests."""
    path = os.environ.get(VARIABLE)
    if not path or hasattr(config, "workerinput"):
        return (yield)
    with Path(path).open("a", encoding="utf-8") as file:
        config.pluginmanager.register(Journal(file), "oar-journal")
        return (yield)
