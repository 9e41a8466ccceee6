"""oarsub waits for what the scheduler says to a reservation (commands-user.md 3.6, server.md 4.4).

The server calls back with a line, which is only a reason to look: what counts is the state in the database.  A call
that gets lost costs one period of the periodic look.
"""

import select
import socket
import time
from typing import TYPE_CHECKING, NamedTuple

from oar.lib.states import JobState, Reservation

if TYPE_CHECKING:
    from oar.lib.db.engine import Database
    from oar.lib.model import Job

GRANTED = "GOOD RESERVATION"
#: Seconds between two looks when nobody calls, and given to a caller to say his line.
PERIOD = 10.0
_CALL_SECONDS = 2.0
_LONGEST_LINE = 4096


class Answer(NamedTuple):
    """What became of a reservation."""

    is_granted: bool
    reason: str = ""


class Listener:
    """A socket on which the server may call; only the server's addresses are listened to."""

    def __init__(self, server: str) -> None:
        self._addresses = _addresses(server)
        self._socket = _listening_socket()
        self.port: int = self._socket.getsockname()[1]

    def next_line(self, seconds: float) -> str | None:
        """Return the next line that the server says, None if it says nothing for so long.

        Whoever else calls is no reason to look: he is not listened to, and the waiting goes on.
        """
        limit = time.monotonic() + seconds
        while select.select([self._socket], [], [], max(0.0, limit - time.monotonic()))[0]:
            caller, address = self._socket.accept()
            with caller:
                if address[0].removeprefix("::ffff:") in self._addresses:
                    caller.settimeout(_CALL_SECONDS)
                    return _line(caller)
            if time.monotonic() >= limit:
                break
        return None

    def close(self) -> None:
        """Stop listening."""
        self._socket.close()


def wait(database: "Database", job_id: int, listener: Listener, period: float = PERIOD) -> Answer:
    """Return the scheduler's answer to a reservation, as soon as it is known."""
    said = None
    while True:
        with database.snapshot() as tx:
            job = tx.jobs.find(job_id)
        answer = _answer(job, was_told=said == GRANTED)
        if answer is not None:
            return answer
        said = listener.next_line(period)


def _answer(job: "Job | None", *, was_told: bool) -> Answer | None:
    """Return what the state of the job says, None if nothing yet."""
    if job is None:
        return Answer(False, "the job is gone")
    if job.state in (JobState.TO_ERROR, JobState.ERROR):
        return Answer(False, job.scheduler_info or job.message)
    if job.reservation is not Reservation.SCHEDULED:
        return None
    # Whoever leaves before the server could tell him is taken for lost.
    return Answer(True) if was_told or job.state is not JobState.TO_ACK_RESERVATION else None


def _line(caller: socket.socket) -> str:
    data = b""
    try:
        while b"\n" not in data and len(data) < _LONGEST_LINE and (part := caller.recv(_LONGEST_LINE)):
            data += part
    except OSError:
        return ""
    return data.partition(b"\n")[0].decode("utf-8", "replace").strip()


def _addresses(server: str) -> frozenset[str]:
    try:
        found = socket.getaddrinfo(server, None, type=socket.SOCK_STREAM)
    except OSError:
        return frozenset()
    return frozenset(str(address[0]) for *_, address in found)


def _listening_socket() -> socket.socket:
    if socket.has_dualstack_ipv6():
        return socket.create_server(("", 0), family=socket.AF_INET6, dualstack_ipv6=True)
    return socket.create_server(("", 0))
