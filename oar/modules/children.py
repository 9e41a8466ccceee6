"""The child processes of Almighty: the start commands of the Runner and of the modules, and the restarts of the Runner.

``RunnerRestarts`` decides when the Runner is started again, and when the server must end without it. Pure.
``DatabaseOutage`` decides which mails tell of the database. Pure.
``WardenProcess`` is the child that the others need: without its report there is no active server.
"""

import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from oar.lib.base.hourly_limit import HourlyLimit
from oar.lib.base.processes import ChildProcess, Lifeline
from oar.lib.base.programs import DEFAULT_PATH
from oar.lib.base.times import format_date
from oar.lib.bus import frames
from oar.lib.bus.exit_codes import ServerCode
from oar.lib.bus.frames import Frame
from oar.lib.config.files import Config
from oar.lib.runtime import DEFAULT_OARDIR
from oar.modules.automaton import Module
from oar.modules.supervisor import ChildProgram

RUNNER = "bipbip_commander"
RUNNER_MODULE = "oar.modules.runner.bipbip_commander"
WARDEN = "warden"
#: The warden, which reports on its standard output.
WARDEN_ARGV = (sys.executable, "-I", "-m", "oar.modules.warden")
#: Time for which the Runner is restarted until it reaches the database, in seconds.
DATABASE_PATIENCE = 300.0

#: Pause between two starts of the Runner, in seconds; it grows up to the longest one once the Runner has been ready.
RETRY_SECONDS = 2.0
LONGEST_PAUSE = 60.0

#: An outage of the database that is shorter causes no mail, in seconds.
OUTAGE_SECONDS = 60.0

#: Time between two messages about the wait for the database, in seconds.
WORD_SECONDS = 10.0


def programs(config: Config, endpoint: str, oardir: str) -> list[ChildProgram]:
    """Return the programs of the children. ``oardir``: directory of a site's own meta-scheduler."""

    def worker_argv(module: str) -> tuple[str, ...]:
        return (sys.executable, "-I", "-m", module, "--worker", endpoint)

    longest = float(config.module_max_duration)
    runner = ChildProgram(RUNNER, worker_argv(RUNNER_MODULE), hello=DATABASE_PATIENCE + 60, missed_pings=12)
    modules = [
        ChildProgram(module, worker_argv(f"oar.modules.{module}"), longest_pass=longest)
        for module in Module
        if module is not Module.META_SCHED
    ]
    longest = max(longest, 10.0 * config.scheduler_timeout)
    if config.meta_sched_cmd == "kao":
        kao = ChildProgram(Module.META_SCHED, worker_argv("oar.modules.meta_sched"), longest_pass=longest)
        return [runner, *modules, kao]
    command, *arguments = shlex.split(config.meta_sched_cmd)
    one_shot = (os.path.join(oardir, command), *arguments)
    argv = (*one_shot, "--worker", endpoint)
    scheduler = ChildProgram(Module.META_SCHED, argv, hello=10.0, longest_pass=longest, one_shot=one_shot)
    return [runner, *modules, scheduler]


def child_environment(environment: Mapping[str, str], conf_file: str) -> dict[str, str]:
    """Return the environment variables of the children (docs/design/bus.rst, "Processes")."""
    result = {
        "OARDIR": environment.get("OARDIR", DEFAULT_OARDIR),
        "OARCONFFILE": conf_file,
        "OARDO_USER": "oar",
        "OARDO_UID": str(os.getuid()),
        "PATH": environment.get("PATH", DEFAULT_PATH),
        "LANG": "C.UTF-8",
    }
    return result | {name: environment[name] for name in ("HOME", "TZ") if name in environment}


class WardenProcess:
    """The process of the warden, and when PostgreSQL has confirmed the server lock."""

    def __init__(self, argv: Sequence[str], environment: Mapping[str, str]) -> None:
        self._argv, self._environment = argv, environment
        self._lifeline = Lifeline()
        self.child: ChildProcess | None = None
        self.next_start = 0.0
        self.alive = 0.0  #: when the last query was sent that PostgreSQL has answered

    def start(self, now: float) -> ChildProcess:
        """Start the process. Raises OSError."""
        self.next_start = now + RETRY_SECONDS
        self.child = ChildProcess(self._argv, environment=self._environment, lifeline=self._lifeline)
        return self.child

    def read(self) -> tuple[list[Frame], list[str]]:
        """Return the reports that have arrived, and other lines of its output."""
        reports: list[Frame] = []
        others: list[str] = []
        for line in self.child.read() if self.child else ():
            try:
                reports.append(frames.decode(line.encode()))
            except frames.BadFrame:
                others.append(line)
        return reports, others

    def send_signal(self, number: int) -> None:
        if self.child is not None:
            self.child.send_signal(number)

    def forget(self) -> None:
        """Kill the process if it is running, and reap it."""
        if self.child is not None:
            self.child.close()
        self.child = None


class ServerEnd(NamedTuple):
    """The exit code of the server and the reason of its end."""

    code: int
    reason: str


@dataclass(slots=True)
class RunnerRestarts:
    """The history of the Runner's starts. Times are those of a monotonic clock.

    ``orphan_patience``: time in seconds for which another server may hold the lock of the database, if there is only
    one server.
    """

    database: str  #: where it is
    orphan_patience: float
    are_several: bool = False  #: servers: each waits for as long as it takes, also one that was active before
    is_ready: bool = False  #: it has been ready once
    is_working: bool = False  #: it has been ready since its last start
    first_start: float = 0.0
    next_start: float = 0.0
    locked_out_since: float | None = None  #: since when another server holds the lock, if this is the only one
    is_standby: bool = False  #: another server is active
    is_away: bool = False  #: the database does not answer
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
        self.is_away = False
        self.pause = RETRY_SECONDS
        self.locked_out_since = None
        return is_first

    def next_word(self) -> float | None:
        """Return when the next message about the wait for the database is due, None once the Runner was ready."""
        return None if self.is_ready or self.is_standby else self.first_start + (self.words + 1) * WORD_SECONDS

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

    def end_after(self, name: str, code: int | None) -> ServerEnd | None:
        """Return how the server must end after this exit of the Runner or the warden, None if it continues."""
        if code == ServerCode.CONFIGURATION and not self.is_ready:
            return ServerEnd(ServerCode.CONFIGURATION, f"the {name} cannot start")
        if code == ServerCode.REFUSED and not self.is_ready:
            return ServerEnd(ServerCode.DATABASE, "the database does not let the server in (DB_* in oar.conf)")
        return None

    def end_of_wait(self, now: float) -> ServerEnd | None:
        """Return how the server must end because it waits for too long, None if it continues."""
        if self.locked_out_since is not None and now - self.locked_out_since >= self.orphan_patience:
            return ServerEnd(ServerCode.RUNNING, "an Almighty process must be already started")
        if not self.is_away or self.is_ready or self.are_several:
            return None
        if now - self.first_start > DATABASE_PATIENCE:
            return ServerEnd(ServerCode.DATABASE, f"the database could not be reached for {DATABASE_PATIENCE:.0f} s")
        return None


class OutageMail(NamedTuple):
    """Subject and text of a mail to the administrators."""

    subject: str
    text: str


@dataclass(slots=True)
class DatabaseOutage:
    """Decide which mails tell of an outage of the database: one when it has lasted for a while, one when it is over.

    Times are those of a monotonic clock.
    """

    database: str  #: where it is
    since: float | None = None  #: when the first pass failed for want of it; None: it can be used
    is_mailed: bool = False
    _mails: HourlyLimit = field(default_factory=lambda: HourlyLimit(1))

    def note_pass(self, now: float, *, is_unavailable: bool) -> OutageMail | None:
        """Record whether a pass could use the database. Return the mail that it is back, None if none is due."""
        if is_unavailable:
            self.since = now if self.since is None else self.since
            return None
        since, is_mailed = self.since, self.is_mailed
        self.since, self.is_mailed = None, False
        if since is None or not is_mailed:
            return None
        text = f"The database at {self.database} can be used again, after {now - since:.0f} s."
        return OutageMail("The database can be used again", f"{text} OAR goes on; nothing is to be done.")

    def due_mail(self, now: float, wall: float) -> OutageMail | None:
        """Return the mail about an outage that has lasted for ``OUTAGE_SECONDS``, at most one within an hour.

        ``wall``: the date of ``now``, in seconds since 1970.
        """
        if self.since is None or self.is_mailed or now - self.since < OUTAGE_SECONDS:
            return None
        if not self._mails.allows("outage", now):
            return None
        self.is_mailed = True
        since = format_date(int(wall - (now - self.since)))
        text = (
            f"The database at {self.database} cannot be used since {since}. No job can be submitted, started or ended."
        )
        advice = "Check PostgreSQL and the network to it: oar-server status --check. A mail follows when it is back."
        return OutageMail("The database cannot be used", f"{text}\n{advice}")
