"""oarsub -I: submit a job, show the lines of the server until it starts, open its shell.

Each line of the server is shown and makes oarsub check the state in the database, which alone decides.  If a line is
lost, oarsub checks one period later.

See docs/design/bus.rst, "Lines to oarsub".
"""

import errno
import re
import select
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, NamedTuple

import click

from oar.cli.common.command import Context
from oar.cli.common.process import Hangup, ending_with_caller
from oar.cli.oarsub_parts.call import OarsubCall
from oar.cli.oarsub_parts.job_shell import JobShell
from oar.cli.oarsub_parts.submission import report, submit_jobs
from oar.lib.base.errors import ConfigError, DatabaseUnavailable
from oar.lib.bus.messages import OarsubLine
from oar.lib.jobs import sessions
from oar.lib.jobs.states import CURRENT, FINAL, JobState, Phase
from oar.lib.submission.checks import Code

if TYPE_CHECKING:
    from oar.lib.db.database import Database
    from oar.lib.jobs.records import Job, JobRun
    from oar.lib.submission.preparation import Proposal

#: Seconds of waiting after which the connection to the database is closed: connections are few, and a held job may wait
#: for days.
CONNECTED_SECONDS = 5.0
#: Seconds within which a take-over by another server is noticed.
AFTER_FAILURE = 5.0
#: Seconds that a client has to send its line.
_CALL_SECONDS = 2.0
_LONGEST_LINE = 4096


class Listener:
    """A socket on which the servers may call; lines from other addresses are not read."""

    def __init__(self, servers: Sequence[str], ports: tuple[int, int] | None = None) -> None:
        """``ports``: the first and the last one that may be used; None: any.  Raises ConfigError if none is free."""
        self._addresses = frozenset[str]().union(*map(_addresses, servers))
        #: Seconds without a line after which the database is read: a server that has failed sends no more lines.
        self.longest_silence = AFTER_FAILURE if len(servers) > 1 else float("inf")
        self._socket = _listening_socket() if ports is None else _socket_among(*ports)
        self.port: int = self._socket.getsockname()[1]

    def next_line(self, seconds: float) -> str | None:
        """Return the next line of the server, None after ``seconds`` without one, '' for an incomplete line.

        A call from another address does not end the waiting.
        """
        limit = time.monotonic() + min(seconds, self.longest_silence)
        while select.select([self._socket], [], [], max(0.0, limit - time.monotonic()))[0]:
            connection, address = self._socket.accept()
            with connection:
                if address[0].removeprefix("::ffff:") in self._addresses:
                    connection.settimeout(_CALL_SECONDS)
                    return _line(connection)
            if time.monotonic() >= limit:
                break
        return None

    def close(self) -> None:
        """Stop listening."""
        self._socket.close()


def _line(connection: socket.socket) -> str:
    data = b""
    try:
        while b"\n" not in data and len(data) < _LONGEST_LINE and (part := connection.recv(_LONGEST_LINE)):
            data += part
    except OSError:
        return ""
    return data.partition(b"\n")[0].decode("utf-8", "replace").strip()


def _addresses(server: str) -> frozenset[str]:
    try:
        addresses = socket.getaddrinfo(server, None, type=socket.SOCK_STREAM)
    except OSError:
        return frozenset()
    return frozenset(str(address[0]) for *_, address in addresses)


def _socket_among(first: int, last: int) -> socket.socket:
    for port in range(first, last + 1):
        try:
            return _listening_socket(port)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
    raise ConfigError(f"OARSUB_CALLBACK_PORTS: {first}-{last}: all ports are in use. Try again, or add ports.")


def _listening_socket(port: int = 0) -> socket.socket:
    if socket.has_dualstack_ipv6():
        return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True)
    return socket.create_server(("", port))


#: Seconds between two checks of the database; between two checks after a line that it does not confirm yet, and for how
#: long.
PERIOD = 30.0
_SHORT_PERIOD, _CONFIRMATION = 0.2, 20.0
#: Seconds to wait for the line with the reason of an end: it is sent after the end is committed.
_REASON_SECONDS = 2.0
#: Seconds for which lines are read before the database: every program on the host of the server may send some.
_READ_SECONDS = 2.0
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
        """Return whether its shell may be opened."""
        return bool(self.job and self.job.state in _OPEN and self.run and self.run.phase is Phase.STARTED)

    @property
    def head(self) -> str:
        """The host of its shell; '' if none is chosen yet."""
        is_known = self.job and self.job.state in _ON_ITS_WAY and self.run
        return self.run.head_host if is_known and self.run else ""

    def is_over(self, end: str) -> bool:
        """Return whether no shell will be opened; ``end``: the line of the server about the end, '' if none came."""
        return self.job is None or self.job.state in _OVER or (self.is_killed and end == OarsubLine.JOB_KILLED)


class StartWait:
    """Waits from the submission of a job until its shell may be opened.  ``show`` prints a comment."""

    def __init__(self, database: "Database", job_id: int, listener: "Listener", show: Callable[[str], None]) -> None:
        self._database = database
        self._job_id = job_id
        self._listener = listener
        self._show = show
        self._prediction = ""
        self._is_starting = False
        self._end = ""
        self._confirmed_by = 0.0  #: until when the database is expected to confirm a line

    def until_open(self, on_the_way: Callable[[str], None], period: float = PERIOD) -> LaunchStatus | None:
        """Return as soon as the shell may be opened; None, after a message, if it never will be.

        ``on_the_way`` is called with the host of the shell as soon as it is known.
        """
        begun, head = time.monotonic(), ""
        while True:
            limit = time.monotonic() + _READ_SECONDS
            while time.monotonic() < limit and (line := self._listener.next_line(0)) is not None:
                self._take(line)
            status = self._look()
            if status is not None and status.is_open:
                self._take(OarsubLine.STARTING)
                return status
            if status is not None and status.is_over(self._end):
                self._report_end()
                return None
            if status is not None and status.head not in ("", head):
                head = status.head
                on_the_way(head)
            now = time.monotonic()
            if now - begun > CONNECTED_SECONDS:
                self._database.close()
            self._take(self._listener.next_line(_SHORT_PERIOD if now < self._confirmed_by else period) or "")

    def _look(self) -> LaunchStatus | None:
        """Read the status of the job; None while the database cannot be reached."""
        try:
            with self._database.snapshot() as tx:
                job, run = tx.jobs.find(self._job_id), tx.job_runs.find(self._job_id)
                status = LaunchStatus(job, run, tx.job_requests.find_kill(self._job_id) is not None)
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
            self._confirmed_by = time.monotonic() + _CONFIRMATION
            self._end = self._end if line in (OarsubLine.GOOD_JOB, OarsubLine.BAD_JOB) and self._end else line
        elif prediction or line == OarsubLine.HELD:
            text = prediction[1] if prediction else line
            if text != self._prediction:
                self._prediction = text
                self._show(line)
        elif line and (line != OarsubLine.STARTING or not self._is_starting):
            self._is_starting = self._is_starting or line == OarsubLine.STARTING
            self._show(line)

    def _report_end(self) -> None:
        """Print why the job ended: the line of the server, which may still come, or the reason in the database."""
        limit = time.monotonic() + _REASON_SECONDS
        no_reason = ("", OarsubLine.GOOD_JOB)
        while self._end in no_reason and (left := limit - time.monotonic()) > 0:
            self._take(self._listener.next_line(left) or "")
        if self._end not in no_reason:
            self._show(self._end)
            return
        click.echo(f"# Error: job {self._job_id} ended before it could be connected.", err=True)
        reason = None
        with suppress(DatabaseUnavailable), self._database.snapshot() as tx:
            reason = sessions.end_reason(tx, self._job_id)
        if reason:
            from oar.cli.common.render import visible

            click.echo(f"# {visible(reason)}", err=True)


def open_interactive(call: OarsubCall, proposal: "Proposal") -> int:
    """Submit an interactive job, wait for its start, open its shell; return the exit code.

    Raises UserError, Stop, Hangup, DatabaseUnavailable.
    """
    context = call.context
    listener = Listener(context.runtime.config.server_hostnames, context.runtime.config.oarsub_callback_ports)
    address = f"{call.host}:{listener.port}"
    try:
        with ending_with_caller(), deleting_at_departure(context, address):
            submitted = submit_jobs(call, proposal, address)
            report(call, submitted)
            call.printer.comment("Interactive mode: waiting...")
            shell = JobShell(call, submitted.ids[0], is_main=True)
            wait = StartWait(context.database, submitted.ids[0], listener, call.printer.comment)
            with shell.connection() as connection:
                if wait.until_open(connection.begin) is None:
                    return Code.NO_SESSION
                return shell.run()
    finally:  # not earlier: the server may send its line after the database has the same state
        listener.close()


@contextmanager
def deleting_at_departure(context: Context, address: str) -> Iterator[None]:
    """Delete the jobs whose oarsub waits at an address if the user interrupts it or goes away."""
    try:
        yield
    except KeyboardInterrupt:
        _delete(context, address, click.echo)
        raise
    except (Hangup, BrokenPipeError):
        _delete(context, address, lambda *_, **__: None)
        raise Hangup from None


def _delete(context: Context, address: str, echo: Callable[..., None]) -> None:
    """Delete the jobs that were submitted with an address: an interrupted oarsub may not know their ids yet."""
    from oar.lib.jobs import control

    with context.database.snapshot() as tx:
        ids = [job.id for job in tx.jobs.live(context.user.name) if job.info_type == address]
    if not ids:
        return
    echo(f"# Caught Interrupt (^C), Deleting the job {ids[0]}...", err=True)
    with context.database.begin() as tx:
        control.delete(tx, context.user, ids, with_inner=True)
    echo("Job(s) deleted.", err=True)
