"""Restarts of the Runner: decide when it is started again, and when the server must end without it. Pure."""

from dataclasses import dataclass
from typing import NamedTuple

from oar.modules.child_programs import DATABASE_PATIENCE

#: Pause between two starts of the Runner, in seconds; it grows up to the longest one once the Runner has been ready.
RETRY_SECONDS = 2.0
LONGEST_PAUSE = 60.0

# Exit codes of the Runner and of the server.
EXIT_CONFIGURATION = 1
EXIT_DATABASE = 3
EXIT_RUNNING = 4
#: Of the Runner alone: the database does not let it in.
EXIT_REFUSED = 5

#: Between two words about the wait for the database, in seconds.
WORD_SECONDS = 10.0


class ServerEnd(NamedTuple):
    """The exit code of the server and the reason of its end."""

    code: int
    reason: str


@dataclass(slots=True)
class RunnerRestarts:
    """The history of the Runner's starts. Times are those of a monotonic clock.

    ``orphan_patience``: time in seconds for which another Runner may hold the lock of the database.
    """

    database: str  #: where it is
    orphan_patience: float
    is_ready: bool = False  #: it has been ready once
    is_working: bool = False  #: it has been ready since its last start
    first_start: float = 0.0
    next_start: float = 0.0
    locked_out_since: float | None = None  #: since when another Runner holds the lock
    pause: float = RETRY_SECONDS
    reason: str = ""  #: why the database does not answer
    words: int = 0  #: that were said about the wait for the database

    def note_start(self, now: float) -> None:
        """Schedule the next start, in case this one fails."""
        self.next_start = now + self.pause
        self.is_working = False
        if self.is_ready:
            self.pause = min(2 * self.pause, LONGEST_PAUSE)

    def note_ready(self) -> bool:
        """Record that the Runner works. Return whether this is the first time."""
        is_first, self.is_ready, self.is_working = not self.is_ready, True, True
        self.pause = RETRY_SECONDS
        self.locked_out_since = None
        return is_first

    def next_word(self) -> float | None:
        """Return when the next message about the wait for the database is due, None once the Runner was ready."""
        return None if self.is_ready else self.first_start + (self.words + 1) * WORD_SECONDS

    def word(self, now: float) -> str:
        """Return the message about a server that is still waiting, '' if none is due."""
        due = self.next_word()
        if due is None or now < due:
            return ""
        waited = now - self.first_start
        self.words = int(waited // WORD_SECONDS)
        return f"{self.wait}, for {waited:.0f} s until now"

    @property
    def wait(self) -> str:
        """Return the text about the cause of the wait."""
        if self.locked_out_since is not None:
            return "waiting for the end of another server"
        return f"waiting for the database at {self.database}{f' ({self.reason})' if self.reason else ''}"

    def end_after(self, runner_code: int | None, now: float) -> ServerEnd | None:
        """Return how the server must end after this exit of the Runner, None if it continues."""
        is_locked_out = runner_code == EXIT_RUNNING
        self.locked_out_since = (self.locked_out_since or now) if is_locked_out else None
        if self.locked_out_since is not None and now - self.locked_out_since >= self.orphan_patience:
            return ServerEnd(EXIT_RUNNING, "an Almighty process must be already started")
        if runner_code == EXIT_CONFIGURATION and not self.is_ready:
            return ServerEnd(EXIT_CONFIGURATION, "the Runner cannot start")
        if runner_code == EXIT_REFUSED and not self.is_ready:
            return ServerEnd(EXIT_DATABASE, "the database does not let the server in (DB_* in oar.conf)")
        if not self.is_ready and now - self.first_start > DATABASE_PATIENCE:
            return ServerEnd(EXIT_DATABASE, f"the database could not be reached for {DATABASE_PATIENCE:.0f} s")
        return None
