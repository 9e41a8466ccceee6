"""What came of a request about each of several jobs: lines at once, or one document.

See docs/design/formats.rst, "Records".
"""

from collections.abc import Sequence
from typing import NamedTuple

import click

from oar.lib.base.formats import Format


class OutcomeRecord(NamedTuple):
    """What came of a request about one job."""

    job_id: int
    ok: bool
    message: str


class OutcomeReport:
    """Tells what comes of requests, each as it comes; with a machine format, all of them at the end."""

    def __init__(self, machine: Format | None) -> None:
        self._machine = machine
        self._outcomes: list[OutcomeRecord] = []
        self.codes: list[int] = []  #: those of the failures

    def say(self, text: str, *, end: str = "\n") -> None:
        """Print something for people."""
        if self._machine is None:
            click.echo(text + end, nl=False)

    def good(self, job_id: int, line: str) -> None:
        """Note that what was asked for a job is done."""
        self.say(line)
        self._outcomes.append(OutcomeRecord(job_id, True, line))

    def bad(self, job_id: int, code: int, line: str, *, is_error: bool = True) -> None:
        """Note why it is not; what is no error is told on standard output."""
        if self._machine is None:
            click.echo(line, err=is_error)
        self._outcomes.append(OutcomeRecord(job_id, False, line))
        self.codes.append(code)

    def complain(self, code: int, lines: Sequence[str]) -> None:
        """Print what was said that is no job."""
        for line in lines:
            click.echo(line, err=True)
            self.codes.append(code)

    def close(self) -> None:
        """Print the document, if one is asked for: a list of what came of each request."""
        if self._machine is not None:
            from oar.lib.base.formats import dump

            click.echo(dump([each._asdict() for each in self._outcomes], self._machine), nl=False)
