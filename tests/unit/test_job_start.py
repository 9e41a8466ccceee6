"""An oarsub -I that waits: who calls, and what counts."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from oar.cli.oarsub_parts import interactive


class Looked(Exception):
    """The database was asked."""


class SilentCallers:
    """Callers without end, each of whom says nothing for two seconds."""

    def __init__(self) -> None:
        self.heard = 0

    def next_line(self, seconds: float) -> str:
        """Wait for one of them in vain."""
        self.heard += 1
        return ""

    def now(self) -> float:
        """Return the time that this has taken."""
        return 2.0 * self.heard


def test_who_calls_and_says_nothing_keeps_nobody_from_seeing_his_job_start(monkeypatch: pytest.MonkeyPatch) -> None:
    def snapshot() -> None:
        raise Looked

    callers = SilentCallers()
    monkeypatch.setattr(interactive, "time", SimpleNamespace(monotonic=callers.now))
    wait = interactive.StartWait(cast("Any", SimpleNamespace(snapshot=snapshot)), 1, cast("Any", callers), print)
    with pytest.raises(Looked):
        wait.until_open(print)
    assert callers.heard == 1
