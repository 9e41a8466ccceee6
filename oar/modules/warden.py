"""The warden: hold the server lock, which decides that this server is the active one.

Almighty starts it first, and starts everything else only when it reports ``Active``. It is small: it keeps one
connection, and reports to Almighty with a frame for each line of its standard output.

See docs/design/availability.rst, "The warden".
"""

import logging
import math
import os
import select
import sys
import time
from collections.abc import Callable

from oar.lib import logs, runtime
from oar.lib.base import processes
from oar.lib.base.errors import ConfigError, DatabaseRefused, DatabaseUnavailable
from oar.lib.base.hourly_limit import HourlyLimit
from oar.lib.base.processes import ChildProcess
from oar.lib.base.version import VERSION, explain_schema_mismatch
from oar.lib.bus import frames
from oar.lib.bus.exit_codes import ServerCode
from oar.lib.bus.frames import Active, Alive, Away, Frame, Lost, Standby
from oar.lib.bus.servers import config_digest, own_server
from oar.lib.db.lock_keys import SERVER_LOCK
from oar.lib.db.locks import Locks
from oar.lib.db.servers import Generation, ServerReport
from oar.lib.db.statements import psycopg2
from oar.lib.db.transaction import Transaction
from oar.lib.history.event_types import EventType
from oar.lib.jobs.states import ServerRole
from oar.lib.monitoring.seen_servers import write_seen
from oar.lib.runtime import Runtime

log = logging.getLogger("warden")

#: Seconds between two looks at the lock while this server waits for it, and while it holds it.
STANDBY_SECONDS, ACTIVE_SECONDS = 0.5, 2.0
#: Seconds between two reports of this server in the table ``servers``.
REPORT_SECONDS = 10.0
#: With several servers, a holder that was silent for this time, in seconds, loses the lock. It must be longer than the
#: time after which a server without an answer has ended (``almighty.SILENCE_SECONDS`` and ``almighty.KILL_SECONDS``).
SILENT_HOLDER_SECONDS = 10
#: Sessions of a former server that need longer to end are logged; the pause between two looks at them, in seconds.
SLOW_END_SECONDS, _ENDING_PAUSE = 5.0, 0.02
#: A session that delays the change of the generation for this time, in milliseconds, is ended.
_BLOCKED_MILLISECONDS = 1000
#: Counts the nodes that a standby reaches.
_COUNT_ARGV = (sys.executable, "-I", "-m", "oar.modules.reachability")
#: Seconds after the end of Almighty after which this process ends, even in the middle of a statement.
LONGEST_ORPHAN = 5.0


class Mismatch(ConfigError):
    """The schema of the database has another version than this program."""


def take_over(tx: Transaction, server_name: str = "") -> int:
    """Begin a generation; return its number when no session of a former one is left.

    The order matters. A transaction of a former server that begins after the first step is refused. One that began
    before has been checked, and the second step ends its session, or waits for its commit.
    """
    generation = _next_generation(tx, server_name)
    warning = time.monotonic() + SLOW_END_SECONDS
    while left := tx.servers.end_former_sessions(generation):
        if time.monotonic() > warning:
            log.warning("the take-over waits for the end of %d sessions of a former server in PostgreSQL", left)
            warning = math.inf
        time.sleep(_ENDING_PAUSE)
    return generation


def _next_generation(tx: Transaction, server_name: str) -> int:
    """Begin a generation. End the sessions that block this for long: that of a stopped former server may be one."""
    with tx.servers.lock_patience(_BLOCKED_MILLISECONDS):
        while True:
            try:
                return tx.servers.next_generation(server_name)
            except psycopg2.errors.LockNotAvailable:
                count = tx.servers.end_generation_blockers()
                log.warning("the take-over was blocked by %d sessions in PostgreSQL, which are ended", count)


class NodeCount:
    """The process that counts the nodes that a standby reaches, at the request of the active server."""

    def __init__(self) -> None:
        self._lifeline = processes.Lifeline()
        self._child: ChildProcess | None = None
        self._requested_at = 0

    def follow(self, generation: Generation) -> None:
        """Start the process for a new request. Reap the former one if it has ended."""
        if self._child is not None and self._child.poll() is not None:
            self.stop()
        if self._child is None and generation.is_count_requested and generation.count_requested_at > self._requested_at:
            self._requested_at = generation.count_requested_at
            self._start()

    def _start(self) -> None:
        try:
            self._child = ChildProcess(_COUNT_ARGV, environment=os.environ, lifeline=self._lifeline, is_quiet=True)
        except OSError as error:
            log.error("the nodes are not counted: %s cannot be started: %s", _COUNT_ARGV[0], error.strerror)

    def stop(self) -> None:
        """Kill the process if it is running."""
        if self._child is not None:
            self._child.close()
        self._child = None


class Warden:
    """The session that holds the lock, or waits for it."""

    def __init__(self, opened: Runtime, tell: Callable[[Frame], None]) -> None:
        self._runtime = opened
        self._tell = tell
        self._name = own_server(opened.config)
        self._are_several = len(opened.config.server_hostnames) > 1
        self._locks: Locks | None = None
        self._is_holder = False
        self._generation: int | None = None  #: of this server once it is active
        self._standby: Standby | None = None  #: what was reported last
        self._next_report = 0.0
        self._digest = config_digest(opened.config)
        self._failures = HourlyLimit(1)
        self._count = NodeCount()

    def turn(self) -> float:
        """Take or check the lock, and report the result. Return the time in seconds until the next turn.

        Raises DatabaseUnavailable and Mismatch, while the server is not active, if this process cannot help it.
        """
        sent = time.monotonic()
        try:
            locks = self._locks or self._connect()
            former = locks.look(_generation) if self._generation is None else None
            self._is_holder = self._is_holder or self._may_acquire(locks, former)
            if self._generation is None:
                self._wait(locks)
                if former is not None and not self._is_holder:
                    self._count.follow(former)
            else:
                self._guard(locks, self._generation, sent)
            self._report(locks)
        except DatabaseUnavailable as error:
            if self._generation is None and (isinstance(error, DatabaseRefused) or self._runtime.changed_config()):
                raise  # the next warden uses the new configuration
            self._disconnect()
            self._tell(Away(str(error)))
        return ACTIVE_SECONDS if self._is_holder else STANDBY_SECONDS

    def close(self) -> None:
        """Release the lock."""
        self._count.stop()
        if self._locks is not None:
            self._next_report = 0.0
            self._report(self._locks, ServerRole.STOPPED)
        self._disconnect()

    def follow_configuration(self) -> None:
        """Reload oar.conf if it has changed. The names of the servers need a restart."""
        config = self._runtime.changed_config()
        if config is not None:
            self._runtime.config = config
        self._digest = config_digest(self._runtime.config)
        self._next_report = 0.0

    def _connect(self) -> Locks:
        self._locks = self._runtime.database.locks()
        _check_schema(self._locks)
        return self._locks

    def _disconnect(self) -> None:
        if self._locks is not None:
            self._locks.close()
        self._locks, self._is_holder = None, False

    def _may_acquire(self, locks: Locks, former: Generation | None) -> bool:
        """Try to take the lock, unless another server must have it."""
        if former is not None and former.wants_other_than(self._name):
            return False
        if locks.acquire(SERVER_LOCK) or locks.take_from_dead(SERVER_LOCK):
            return True
        if self._are_several and locks.look(lambda tx: tx.servers.end_silent_holder(SILENT_HOLDER_SECONDS)):
            log.warning("the active server has been silent for %d s: its session is ended", SILENT_HOLDER_SECONDS)
        return False

    def _wait(self, locks: Locks) -> None:
        """Become active if the lock is held, else report who holds it."""
        if self._is_holder:
            self._count.stop()
            _check_schema(locks)  # it may have been upgraded since this server waits
            former = locks.look(_generation)
            number = locks.look(lambda tx: take_over(tx, self._name))
            active = self._announce(locks, number, former)
            self._generation, self._next_report = number, 0.0
            self._tell(active)
            return
        holder = locks.look(lambda tx: tx.system.lock_holder(SERVER_LOCK))
        if self._standby is None or self._standby.holder != holder:
            self._standby = Standby(holder, int(time.time()) if self._standby is None else self._standby.since)
            self._tell(self._standby)

    def _announce(self, locks: Locks, number: int, former: Generation) -> Active:
        """Return the report of a take-over. Store an event if another server was active before."""
        self._inform(locks, lambda tx: tx.servers.fence_others(self._name))
        name = former.server_name
        if name in ("", self._name):
            return Active(number)
        reason = f"{name} no longer holds the server lock"
        if former.wanted == self._name:
            reason = former.wanted_reason or "an administrator asked for it"
        text = f"{self._name} has taken over from {name}: {reason}"
        self._inform(locks, lambda tx: tx.events.add(EventType.SERVER_TAKE_OVER, 0, text))
        return Active(number, name, reason)

    def _guard(self, locks: Locks, generation: int, sent: float) -> None:
        """Check that this server is still the active one."""
        current = locks.look(_generation)
        if current.number != generation:
            self._tell(Lost("another server has taken over"))
        elif current.wants_other_than(self._name):
            self._tell(Lost(f"hand-over to {current.wanted}"))
        elif self._is_holder:
            self._tell(Alive(int(sent * 1000)))

    def _report(self, locks: Locks, role: ServerRole | None = None) -> None:
        """Store in the table ``servers`` that this server lives."""
        if time.monotonic() < self._next_report:
            return
        self._next_report = time.monotonic() + REPORT_SECONDS
        port, host = self._runtime.config.server_port, os.uname().nodename
        role = role or (ServerRole.STANDBY if self._generation is None else ServerRole.ACTIVE)
        report = ServerReport(self._name, host, port, role, VERSION, self._digest)
        self._inform(locks, lambda tx: tx.servers.report(report))
        if self._are_several:
            self._inform(locks, lambda tx: write_seen(self._runtime.config, tx.servers.all(), tx.now))
        if role is ServerRole.STANDBY and self._are_several:
            self._inform(locks, self._note_newest_job)

    def _note_newest_job(self, tx: Transaction) -> None:
        """Store the largest job id in OAR_RUN_DIR, so that this server recognizes a restored database."""
        from oar.lib.jobs.recovery import read_newest_job, write_newest_job  # on an active server, Chronicle does this

        directory, newest = self._runtime.config.oar_run_dir, tx.system.newest_job()
        if newest > read_newest_job(directory):
            write_newest_job(directory, newest)

    def _inform(self, locks: Locks, work: Callable[[Transaction], object]) -> None:
        """Store what only informs others. A failure is logged; it must not release the lock."""
        failure = locks.try_to_store(work)
        if failure and self._failures.allows(failure, time.monotonic()):
            log.warning("what this server reports of itself is not stored: %s", failure)


def _check_schema(locks: Locks) -> None:
    """Raise Mismatch if the schema has another version than this program."""
    mismatch = explain_schema_mismatch(locks.look(lambda tx: tx.system.schema_version()))
    if mismatch:
        raise Mismatch(mismatch)


def _generation(tx: Transaction) -> Generation:
    return tx.servers.generation()


def _tell(frame: Frame) -> None:
    """Report to Almighty. If it has ended, this process ends too."""
    os.write(1, frames.encode(frame) + b"\n")


def watch(opened: Runtime) -> int:
    """Hold or await the lock until a signal, or the end of Almighty. Return the exit code."""
    with processes.signals() as signals:
        parent = processes.watch_parent(os.environ)
        if parent:
            parent.limit_life(LONGEST_ORPHAN)
        poll = select.poll()
        for source in (signals, parent) if parent else (signals,):
            poll.register(source, select.POLLIN)
        warden = Warden(opened, _tell)
        try:
            while not (signals.stop or (parent and parent.is_gone())):
                poll.poll(warden.turn() * 1000)
                signals.clear()
                if signals.reload:
                    signals.reload = False
                    warden.follow_configuration()
        finally:
            warden.close()
    return 0


def main() -> int:
    opened = runtime.open_runtime("warden", patience=0)
    with logs.logging_to(opened.config, "Warden"):
        try:
            return watch(opened)
        except DatabaseRefused as error:
            log.error("the database does not let %s in (DB_* in oar.conf): %s", opened.database.settings.user, error)
            return ServerCode.REFUSED
        except DatabaseUnavailable as error:
            log.error("the database cannot be reached: %s", error)
            return ServerCode.DATABASE
        except ConfigError as error:
            log.error("%s", error)
            return ServerCode.CONFIGURATION
        except BrokenPipeError:  # Almighty has ended
            return 0


if __name__ == "__main__":
    sys.exit(main())
