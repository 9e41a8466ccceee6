"""How oarsub -I waits for its job to start, and shows the lines that the server sends meanwhile.

A line of the server is shown, and is a reason to look; what counts is the database.  A call that gets lost costs one
period of the periodic look.

See docs/design/bus.rst, "Lines to oarsub".
"""

import re
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import click

from oar.cli.oarsub_parts.listener import CONNECTED_SECONDS
from oar.lib.base.errors import DatabaseUnavailable
from oar.lib.bus.messages import OarsubLine
from oar.lib.jobs import sessions
from oar.lib.jobs.states import CURRENT, FINAL, JobState, Phase

if TYPE_CHECKING:
    from oar.cli.oarsub_parts.listener import Listener
    from oar.lib.db.database import Database
    from oar.lib.jobs.records import Job, JobRun

#: Seconds between two looks when nobody calls; between two, and for how long, after a line that the database does not
#: confirm yet.
PERIOD = 30.0
_SOON, _HURRY = 0.2, 20.0
#: Seconds for which the line that says why is awaited once the database says that the job is over: it is sent after the
#: end is committed.
_WHY = 2.0
#: Seconds for which calls are answered before the database is read: anybody on the host of the server may call.
_CALLS = 2.0
_ENDS = re.compile(rf"(?:{OarsubLine.BAD_JOB}|{OarsubLine.JOB_KILLED}|ERROR: .*)\Z")
_PREDICTION = re.compile(r"\[[^]]*\] (Start prediction: .*)")
_OVER = FINAL | {JobState.TO_ERROR, JobState.FINISHING}
_ON_ITS_WAY = frozenset({JobState.TO_LAUNCH, JobState.LAUNCHING, JobState.RUNNING})
_OPEN = CURRENT - {JobState.TO_LAUNCH, JobState.LAUNCHING, JobState.FINISHING}


class LaunchStatus(NamedTuple):
    """The database's rows of a job whose shell is to be opened."""

    job: "Job | None"
    run: "JobRun | None"
    is_killed: bool

    @property
    def is_open(self) -> bool:
        """Whether its shell may be opened."""
        return bool(self.job and self.job.state in _OPEN and self.run and self.run.phase is Phase.STARTED)

    @property
    def head(self) -> str:
        """The host of its shell, '' if none is chosen yet."""
        is_known = self.job and self.job.state in _ON_ITS_WAY and self.run
        return self.run.head_host if is_known and self.run else ""

    def is_over(self, end: str) -> bool:
        """Whether there will be no shell; ``end``: the line of the server that says so, '' if none came."""
        return self.job is None or self.job.state in _OVER or (self.is_killed and end == OarsubLine.JOB_KILLED)


class StartWait:
    """The time between the submission and the shell of one job.  ``show`` prints a comment."""

    def __init__(self, database: "Database", job_id: int, listener: "Listener", show: Callable[[str], None]) -> None:
        self._database = database
        self._job_id = job_id
        self._listener = listener
        self._show = show
        self._prediction = ""
        self._is_starting = False
        self._end = ""
        self._hurry = 0.0  #: until when the database is expected to confirm a line

    def until_open(self, on_the_way: Callable[[str], None], period: float = PERIOD) -> LaunchStatus | None:
        """Return as soon as the shell may be opened; None, after a message, if it never will be.

        ``on_the_way`` gets the host of the shell as soon as it is known.
        """
        begun, head = time.monotonic(), ""
        while True:
            self._answer_calls()
            status = self._look()
            if status is not None and status.is_open:
                self._take(OarsubLine.STARTING)
                return status
            if status is not None and status.is_over(self._end):
                self._hear_why()
                self._tell_end()
                return None
            if status is not None and status.head not in ("", head):
                head = status.head
                on_the_way(head)
            now = time.monotonic()
            if now - begun > CONNECTED_SECONDS:
                self._database.close()
            self._take(self._listener.next_line(_SOON if now < self._hurry else period) or "")

    def _answer_calls(self) -> None:
        """Read the lines of those who call just now; those who send nothing do not keep us for ever."""
        limit = time.monotonic() + _CALLS
        while time.monotonic() < limit:
            line = self._listener.next_line(0)
            if line is None:
                return
            self._take(line)

    def _look(self) -> LaunchStatus | None:
        """Read the status of the job; None while the database cannot be reached."""
        try:
            with self._database.snapshot() as tx:
                job, run = tx.jobs.find(self._job_id), tx.job_runs.find(self._job_id)
                status = LaunchStatus(job, run, tx.kill_requests.find(self._job_id) is not None)
        except DatabaseUnavailable:
            return None
        if job is not None and job.state is JobState.HOLD:
            self._take(OarsubLine.HELD)
        return status

    def _take(self, line: str) -> None:
        """Show a line; one that ends the waiting is shown once the database confirms it."""
        line = "".join(character if character.isprintable() else " " for character in line)
        prediction = _PREDICTION.match(line)
        if line == OarsubLine.GOOD_JOB or _ENDS.match(line):
            self._hurry = time.monotonic() + _HURRY
            self._end = self._end if line in (OarsubLine.GOOD_JOB, OarsubLine.BAD_JOB) and self._end else line
        elif prediction or line == OarsubLine.HELD:
            text = prediction[1] if prediction else line
            if text != self._prediction:
                self._prediction = text
                self._show(line)
        elif line and (line != OarsubLine.STARTING or not self._is_starting):
            self._is_starting = self._is_starting or line == OarsubLine.STARTING
            self._show(line)

    def _hear_why(self) -> None:
        """Await the line that belongs to an end which the database has told first."""
        limit = time.monotonic() + _WHY
        while not self._is_told and (left := limit - time.monotonic()) > 0:
            self._take(self._listener.next_line(left) or "")

    @property
    def _is_told(self) -> bool:
        return self._end not in ("", OarsubLine.GOOD_JOB)

    def _tell_end(self) -> None:
        if self._is_told:
            self._show(self._end)
            return
        click.echo(f"# Error: job {self._job_id} ended before it could be connected.", err=True)
        reason = self._stored_reason()
        if reason:
            from oar.cli.common.render import visible

            click.echo(f"# {visible(reason)}", err=True)

    def _stored_reason(self) -> str | None:
        try:
            with self._database.snapshot() as tx:
                return sessions.end_reason(tx, self._job_id)
        except DatabaseUnavailable:
            return None
