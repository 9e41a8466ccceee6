"""oarsub -I waits for its job to start, and shows what it is told meanwhile (commands-user.md 3.13, server.md 4.4).

A line of the server is shown, and is a reason to look; what counts is the database.  A call that gets lost costs one
period of the periodic look.
"""

import re
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import click

from oar.lib.errors import DatabaseUnavailable
from oar.lib.states import CURRENT, FINAL, JobState, Phase

if TYPE_CHECKING:
    from oar.cli.oarsub_answer import Listener
    from oar.lib.db.engine import Database
    from oar.lib.model import Job, JobRun

#: Seconds between two looks when nobody calls, and when somebody said what the database does not say yet.
PERIOD = 30.0
_SOON, _HURRY = 0.2, 20.0
#: Seconds of waiting after which the connection to the database is given back.
_SHORT = 5.0
#: Seconds for which callers are listened to before the database is asked: anybody on the host of the server may call.
_CALLS = 2.0
_GOOD, _BAD, _STARTING = "GOOD JOB", "BAD JOB", "Starting..."
_KILLED = "JOB KILLED"
_ENDS = re.compile(r"(?:BAD JOB|JOB KILLED|ERROR: .*)\Z")
_PREDICTION = re.compile(r"\[[^]]*\] (Start prediction: .*)")
_HELD = "Start prediction: undefined (Hold)"
_OVER = FINAL | {JobState.TO_ERROR, JobState.FINISHING}
_ON_ITS_WAY = frozenset({JobState.TO_LAUNCH, JobState.LAUNCHING, JobState.RUNNING})
_OPEN = CURRENT - {JobState.TO_LAUNCH, JobState.LAUNCHING, JobState.FINISHING}


class Standing(NamedTuple):
    """What the database says of a job whose shell is waited for."""

    job: "Job | None"
    run: "JobRun | None"
    is_killed: bool

    @property
    def is_open(self) -> bool:
        """Whether its shell may be opened."""
        return bool(self.job and self.job.state in _OPEN and self.run and self.run.phase is Phase.STARTED)

    @property
    def head(self) -> str:
        """The host of its shell, as soon as that is known."""
        is_known = self.job and self.job.state in _ON_ITS_WAY and self.run
        return self.run.head_host if is_known and self.run else ""

    def is_over(self, said: str) -> bool:
        """Whether there will be no shell; ``said``: the end that the server told."""
        return self.job is None or self.job.state in _OVER or (self.is_killed and said == _KILLED)


class Wait:
    """The time between the submission and the shell of one job.  ``show`` prints a comment."""

    def __init__(self, database: "Database", job_id: int, listener: "Listener", show: Callable[[str], None]) -> None:
        self._database = database
        self._job_id = job_id
        self._listener = listener
        self._show = show
        self._prediction = ""
        self._is_starting = False
        self._end = ""
        self._hurry = 0.0  #: until when the database is expected to say what the server has said

    def until_open(self, on_the_way: Callable[[str], None], period: float = PERIOD) -> Standing | None:
        """Return as soon as the shell may be opened; None if it never will be, which has been told.

        ``on_the_way`` gets the host of the shell as soon as it is known.
        """
        begun, head = time.monotonic(), ""
        while True:
            self._hear_out()
            standing = self._look()
            if standing is not None and standing.is_open:
                self._listen(_STARTING)
                return standing
            if standing is not None and standing.is_over(self._end):
                self._tell_end()
                return None
            if standing is not None and standing.head not in ("", head):
                head = standing.head
                on_the_way(head)
            now = time.monotonic()
            if now - begun > _SHORT:
                self._database.close()
            self._listen(self._listener.next_line(_SOON if now < self._hurry else period) or "")

    def _hear_out(self) -> None:
        """Listen to those who call just now, to silent ones not for ever."""
        limit = time.monotonic() + _CALLS
        while time.monotonic() < limit:
            line = self._listener.next_line(0)
            if line is None:
                return
            self._listen(line)

    def _look(self) -> Standing | None:
        """Ask the database; None while it cannot be reached: the job waits there all the same."""
        try:
            with self._database.snapshot() as tx:
                job, run = tx.jobs.find(self._job_id), tx.runs.find(self._job_id)
                standing = Standing(job, run, tx.runs.kill_request(self._job_id) is not None)
        except DatabaseUnavailable:
            return None
        if job is not None and job.state is JobState.HOLD:
            self._listen(_HELD)
        return standing

    def _listen(self, line: str) -> None:
        """Show a line; what ends the waiting is shown once the database says so, too."""
        line = "".join(each if each.isprintable() else " " for each in line)
        prediction = _PREDICTION.match(line)
        if line == _GOOD or _ENDS.match(line):
            self._hurry = time.monotonic() + _HURRY
            self._end = self._end if line in (_GOOD, _BAD) and self._end else line
        elif prediction or line == _HELD:
            text = prediction[1] if prediction else line
            if text != self._prediction:
                self._prediction = text
                self._show(line)
        elif line and (line != _STARTING or not self._is_starting):
            self._is_starting = self._is_starting or line == _STARTING
            self._show(line)

    def _tell_end(self) -> None:
        if self._end and self._end != _GOOD:
            self._show(self._end)
        else:
            click.echo(f"# Error: job {self._job_id} ended before it could be connected.", err=True)
