"""The end of a job in its oarexec: the report to the server, and the way out of the job to serve for another one.

What costs most of a small job on a node is the process of its oarexec: the pages that a fork shares until one side
writes to them.  So a worker of the session stays, and never is anybody but root and oar.  It leaves its job completely
or ends: the group, the lock, the descriptors, the accounts, the signals, the children.

See docs/design/bus.rst, "End reports", and docs/design/nodes.rst, "Standing processes".
"""

import contextlib
import fcntl
import os
import select
import socket
import time

import node_base
import node_cgroups
import oarexec_command
from node_protocol import EndReceipt, OarexecExit

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from node_base import Data

#: How long the server may take to answer a report.
REPORT_SECONDS = 15.0
CHALLENGE_REFUSED_PAUSE = 900.0
LONGEST_PAUSE = 60.0
#: So long other processes may look at jobs to signal them, before this one ends instead of serving again.
PARTING_SECONDS = 2.0


# -- the report --------------------------------------------------------------------------------------------------------


def report(
    data: "Data",
    end: "tuple[int, str]",
    wakeup: "oarexec_command.Wakeup",
    *,
    seconds: float,
    unheard: "Callable[[], None]",
    reap: "Callable[[], None]",
) -> bool:
    """Report to the servers in turn how the job ended until one of them confirms it.

    ``end``: exit code, and raw wait status of the command.  ``seconds``: how long a server may take to answer;
    ``unheard`` is called when none did.  ``reap`` takes the ends of processes that were killed and end late: while
    nobody takes them, they count as processes of the user.

    A node that goes down does not wait for that, and False is returned: the server reads the state file later.  A
    report that is repeated says how long ago the job has ended.
    """
    line, ended = "OAREXEC_%d_%d_%s_%s" % (data["job_id"], *end, data["challenge"]), time.monotonic()
    # As bytes: a text would be encoded by a codec that is loaded on demand, which oar may not be able to read.
    hosts = data.get("almighty_hosts") or [data["almighty_hostname"]]  # release 3.2 sends one name
    addresses = [(host.encode("ascii"), data["almighty_port"]) for host in hosts]
    pause, ago = 1.0, ""
    while True:
        receipt = first_answer(addresses, line + ago + "\n", seconds)
        if receipt in (EndReceipt.OK, EndReceipt.GONE):
            return True
        unheard()
        node_base.flush_directory(data["tmp_directory"])  # what nobody knows yet must survive a power cut
        jitter = 0.8 + os.urandom(1)[0] / 640.0  # so that many nodes do not come back all at once
        if not rested(wakeup, CHALLENGE_REFUSED_PAUSE if receipt == EndReceipt.KO else pause * jitter, reap):
            return False
        pause, ago = min(LONGEST_PAUSE, pause * 2), "_%d" % (time.monotonic() - ended)


def rested(wakeup: "oarexec_command.Wakeup", seconds: float, reap: "Callable[[], None]") -> bool:
    """Wait for so long; return False as soon as the signal comes by which a node that goes down ends its processes."""
    limit = time.monotonic() + seconds
    while not oarexec_command.is_going_down():
        reap()
        remaining = limit - time.monotonic()
        if remaining <= 0:
            return True
        wakeup.wait([], remaining)
        wakeup.received()
    return False


def first_answer(addresses: "Sequence[tuple[Any, int]]", line: str, seconds: float) -> str:
    """Send the report to each server until one answers; return its answer, empty if there is none.

    A standby refuses the connection, and a server that cannot store the report closes it.
    """
    return next(filter(None, (converse(address, line, seconds) for address in addresses)), "")


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


# -- the way out of the job --------------------------------------------------------------------------------------------


class Parting:
    """The way out of a job.  Made before the job has changed anything of this process.

    Descriptors 0 to 2 lead to the session; while a job is on its own, copies of them do.
    """

    lives: int  #: descriptor of the lock of ``node_base.lives``

    def __init__(self) -> None:
        self.groups = os.getgroups()
        self.oom_score = oarexec_command.oom_score()
        self.standard = [os.dup(fd) for fd in range(3)]
        self.left: "node_cgroups.Confinement | None" = None  #: the group that this process is out of
        self.is_free = False  #: nothing binds this process to the job any more

    def prepare(self, directory: str) -> None:
        """Make sure that the lock is there whatever the job does, as oar: it may fill the disk."""
        self.lives = node_base.open_lock(node_base.lives_path(directory), OarexecExit.PID_FILE)

    def leave_group(self, confinement: node_cgroups.Confinement) -> None:
        """Leave the group of a job that has ended in the usual way, before the server has it cleaned."""
        if confinement.groups is None or os.getuid() != 0:
            return
        with contextlib.suppress(OSError), oarexec_command.as_root():
            confinement.groups.leave()
            self.left = confinement

    def rejoin_group(self) -> None:
        """Be in the group again, to be ended with it: the server does not hear us, and may have the job cleaned.

        Where it is being cleaned now, or is gone, this process stays outside, and the clean-up or an answer ends it.
        """
        if self.left is not None and self.left.groups is not None and self.is_alone():
            with oarexec_command.as_root():
                try:
                    self.left.join(node_cgroups.OAREXEC)
                except OSError:  # all of the group, or nothing of it: a part would hold up its removal
                    self.left.groups.leave()
            self.left = None
            self.let_others_in()

    def forget(self, lock: int) -> None:
        """Give the lock of the job away; free is who nobody is about to signal for its sake."""
        if self.left is not None:
            os.close(lock)
            self.is_free = self.is_alone()
            self.let_others_in()

    def is_alone(self) -> bool:
        """Return whether nobody else looks at the jobs of this node to signal them, nor will until we let others in."""
        return node_base.lock_within(self.lives, PARTING_SECONDS)

    def let_others_in(self) -> None:
        """Give the lock back, though a child may have its descriptor."""
        fcntl.flock(self.lives, fcntl.LOCK_UN)

    def come_back(self, wakeup: oarexec_command.Wakeup) -> bool:
        """Be as before the job, and return True; False if this process cannot be, for something of the job is left.

        Only what oarexec has opened is closed: modules of the C library that look accounts up keep connections, and
        would go on to use the numbers of these, whatever they were given to meanwhile.
        """
        if not self.is_free or has_children():
            return False
        wakeup.close()
        oarexec_command.open_signals()
        os.seteuid(0)
        os.setegid(0)
        os.setgroups(self.groups)
        if not self.restore_oom_score():
            return False
        for target, fd in enumerate(self.standard):
            os.dup2(fd, target)
        for fd in [*self.standard, self.lives]:
            os.close(fd)
        poll = select.poll()
        poll.register(0, select.POLLIN)
        return not poll.poll(0)  # nothing to be read, not even an end

    def restore_oom_score(self) -> bool:
        """Be ended as gladly as before the job when memory is short: the next program may be one of the site."""
        with contextlib.suppress(OSError):
            oarexec_command.set_oom_score(self.oom_score)
            return oarexec_command.oom_score() == self.oom_score
        return False


def has_children() -> bool:
    """Return whether this process has children, though they may have ended."""
    try:
        os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        return False
    return True
