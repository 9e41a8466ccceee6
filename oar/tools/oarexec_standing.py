"""How the process of an oarexec leaves its job, and may serve for another one.

What costs most of a small job on a node is the process of its oarexec: the pages that a fork shares until one side
writes to them.  So a worker of the session stays, and never is anybody but root and oar.  It leaves its job completely
or ends: the group, the lock, the descriptors, the accounts, the signals, the children.

See docs/design/nodes.rst, "Standing processes".
"""

import contextlib
import fcntl
import os
import select

import node_base
import node_cgroups
import oarexec_user
from node_protocol import OarexecExit

#: So long other processes may look at jobs to signal them, before this one ends instead of serving again.
PARTING_SECONDS = 2.0


class Parting:
    """The way out of a job.  Made before the job has changed anything of this process.

    Descriptors 0 to 2 lead to the session; while a job is on its own, copies of them do.
    """

    lives: int  #: descriptor of the lock of ``node_base.lives``

    def __init__(self) -> None:
        self.groups = os.getgroups()
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
        with contextlib.suppress(OSError), oarexec_user.as_root():
            confinement.groups.leave()
            self.left = confinement

    def rejoin_group(self) -> None:
        """Be in the group again, to be ended with it: the server does not hear us, and may have the job cleaned.

        Where it is being cleaned now, or is gone, this process stays outside, and the clean-up or an answer ends it.
        """
        if self.left is not None and self.left.groups is not None and self.is_alone():
            self.join_again(self.left, self.left.groups)
            self.left = None
            self.let_others_in()

    @staticmethod
    def join_again(confinement: node_cgroups.Confinement, groups: node_cgroups.Groups) -> None:
        """Join all of the group, or nothing of it: a part would hold up its removal."""
        with oarexec_user.as_root():
            try:
                confinement.join(node_cgroups.OAREXEC)
            except OSError:
                groups.leave()

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

    def come_back(self, wakeup: oarexec_user.Wakeup) -> bool:
        """Be as before the job, and return True; False if this process cannot be, for something of the job is left.

        Only what oarexec has opened is closed: modules of the C library that look accounts up keep connections, and
        would go on to use the numbers of these, whatever they were given to meanwhile.
        """
        if not self.is_free or has_children():
            return False
        wakeup.close()
        oarexec_user.open_signals()
        os.seteuid(0)
        os.setegid(0)
        os.setgroups(self.groups)
        for target, fd in enumerate(self.standard):
            os.dup2(fd, target)
        for fd in [*self.standard, self.lives]:
            os.close(fd)
        return not is_to_be_read(0)


def has_children() -> bool:
    """Return whether this process has children, though they may have ended."""
    try:
        os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        return False
    return True


def is_to_be_read(descriptor: int) -> bool:
    """Return whether there is something to be read, be it an end."""
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(0))
