"""How oarexec tells the server the end of its job (docs/design/bus.rst, "End reports")."""

import contextlib
import os
import socket
import time

import node_base
import oarexec_user
from node_protocol import EndReceipt

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from node_base import Data

#: How long the server may take to answer.
SECONDS = 15.0
CHALLENGE_REFUSED_PAUSE = 900.0
LONGEST_PAUSE = 60.0


def report(
    data: "Data",
    end: "tuple[int, str]",
    wakeup: "oarexec_user.Wakeup",
    *,
    seconds: float,
    unheard: "Callable[[], None]",
    reap: "Callable[[], None]",
) -> bool:
    """Tell the server how the job ended until it says that it knows.

    ``end``: exit code, and raw wait status of the command.  ``seconds``: how long the server may take to answer;
    ``unheard`` is called when it did not.  ``reap`` takes the ends of processes that were killed and end late: while
    nobody takes them, they count as processes of the user.

    A node that goes down does not wait for that, and False is returned: the server reads the state file later.  A
    report that is repeated says how long ago the job has ended.
    """
    line, ended = "OAREXEC_%d_%d_%s_%s" % (data["job_id"], *end, data["challenge"]), time.monotonic()
    # As bytes: a text would be encoded by a codec that is loaded on demand, which oar may not be able to read.
    address = (data["almighty_hostname"].encode("ascii"), data["almighty_port"])
    pause, ago = 1.0, ""
    while True:
        receipt = converse(address, line + ago + "\n", seconds)
        if receipt in (EndReceipt.OK, EndReceipt.GONE):
            return True
        unheard()
        node_base.flush_directory(data["tmp_directory"])  # what nobody knows yet must survive a power cut
        if not rested(wakeup, CHALLENGE_REFUSED_PAUSE if receipt == EndReceipt.KO else pause * jitter(), reap):
            return False
        pause, ago = min(LONGEST_PAUSE, pause * 2), "_%d" % (time.monotonic() - ended)


def rested(wakeup: "oarexec_user.Wakeup", seconds: float, reap: "Callable[[], None]") -> bool:
    """Wait for so long; return False as soon as the signal comes by which a node that goes down ends its processes."""
    limit = time.monotonic() + seconds
    while not oarexec_user.is_going_down():
        reap()
        remaining = limit - time.monotonic()
        if remaining <= 0:
            return True
        wakeup.wait([], remaining)
        wakeup.received()
    return False


def jitter() -> float:
    """Return a factor near 1, so that many nodes do not come back all at once."""
    return 0.8 + os.urandom(1)[0] / 640.0


def converse(address: "tuple[Any, int]", line: str, seconds: float) -> str:
    """Send the report; return the answer, empty if there was none.  ``seconds``: how long to wait for each step."""
    try:
        with contextlib.closing(socket.create_connection(address, timeout=seconds)) as connection:
            connection.sendall(line.encode("ascii"))
            answer = b""
            while b"\n" not in answer and len(answer) < 100:
                block = connection.recv(100)
                if not block:
                    break
                answer += block
            return answer.decode("ascii", "replace").strip()
    except OSError:
        return ""
