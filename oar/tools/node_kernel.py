"""What the kernel of this node tells in ``/proc``, ``/sys`` and control groups: figures, processes, processors."""

import contextlib
import os
import re
import signal
import struct
import time

import node_base
from node_base import NodeError
from node_protocol import ManagerExit

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

ONLINE = "/sys/devices/system/cpu/online"  #: the processors of this node
SHUTDOWN_PROGRAM = "systemd-shutdown"[:15]  #: the kernel keeps 15 bytes of the name of a program
SHUTDOWN_LEVELS = ("0", "6")
UTMP_RECORD = 384  #: bytes of a record of ``utmp``
UTMP_RUNLEVEL = 1  #: the kind of record that notes the runlevel, as the process that it names


# -- files of the kernel -----------------------------------------------------------------------------------------------


def read(path: str) -> str:
    """Return the text of a file; empty if it cannot be read."""
    try:
        return node_base.content_of(path).decode("utf-8", "surrogateescape")
    except OSError:
        return ""


def words(path: str) -> "list[str]":
    """Return the words of a file."""
    return read(path).split()


def number(path: str) -> "int | None":
    """Return the number that a file holds; None if it holds none."""
    text = read(path).strip()
    return int(text) if text.isdigit() else None


def figure(path: str, name: str) -> "int | None":
    """Return the number behind a name in a file of lines ``name number``; None if the name is not there."""
    for line in read(path).splitlines():
        fields = line.split()
        if len(fields) == 2 and fields[0] == name and fields[1].isdigit():
            return int(fields[1])
    return None


def write(path: str, text: str) -> None:
    """Write to a file that is there, in one piece."""
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, text.encode("ascii"))
    finally:
        os.close(fd)


def waited(condition: "Callable[[], bool]", seconds: float) -> bool:
    """Wait until ``condition()``; return False if that took longer than ``seconds``."""
    limit = time.monotonic() + seconds
    pause = 0.0005
    while not condition():
        if time.monotonic() > limit:
            return False
        time.sleep(pause)
        pause = min(0.02, pause * 1.5)
    return True


# -- the life of this node ---------------------------------------------------------------------------------------------


def is_going_down(first: str = "/proc/1/comm", log: str = "/run/utmp") -> bool:
    """Return whether this node ends its processes, because it is to halt or to boot again.

    systemd then puts another program in its place, ``first``; an init of System V notes the runlevel in ``log``.
    """
    if read(first).strip() == SHUTDOWN_PROGRAM:
        return True
    try:
        with open(log, "rb") as file:
            return runlevel(file.read()) in SHUTDOWN_LEVELS
    except OSError:
        return False


def runlevel(log: bytes) -> str:
    """Return the runlevel that a log of logins (``utmp``) notes, a letter; empty if it notes none."""
    for start in range(0, len(log) - UTMP_RECORD + 1, UTMP_RECORD):
        kind, level = struct.unpack_from("=hxxi", log, start)
        if kind == UTMP_RUNLEVEL:
            return chr(level & 0x7F)
    return ""


# -- processes ---------------------------------------------------------------------------------------------------------


def signal_all(pids: "Iterable[int]", number: int) -> None:
    """Send a signal to those of the processes that still live."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def kill_all(pids: "Iterable[int]") -> None:
    """Kill those of the processes that still live."""
    signal_all(pids, signal.SIGKILL)


def all_pids() -> "list[int]":
    """Return the pids of all processes of this node."""
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def description(pid: int) -> str:
    """Return what a process is and where in the kernel it hangs, for the message about one that cannot be killed."""
    stat = node_base.read_process(pid, "stat") or b"? (?) ?"
    state = stat[stat.rindex(b")") + 1 :].split()[0].decode("ascii", "replace")
    wchan = (node_base.read_process(pid, "wchan") or b"?").decode("ascii", "replace")
    command = (node_base.read_process(pid, "cmdline") or b"").replace(b"\0", b" ").decode("utf-8", "replace")
    return "pid %d state %s wchan %s command %s" % (pid, state, wchan, node_base.escaped(command.strip() or "?"))


def state_of(pid: int) -> "bytes | None":
    """Return the letter of a process's state; None if there is no such process."""
    stat = node_base.read_process(pid, "stat")
    return stat[stat.rindex(b")") + 2 :].split()[0] if stat else None


def has_ended(pid: int) -> bool:
    """Return whether a process is gone, or a zombie that its parent has not waited for."""
    return state_of(pid) in (None, b"Z")


def owner_of(pid: int) -> "int | None":
    """Return the uid of a process; None if there is no such process."""
    try:
        return os.stat("/proc/%d" % pid).st_uid
    except OSError:
        return None


def marked_processes(uid: int, job_id: int) -> "list[int]":
    """Return the pids of a user whose environment says that they belong to a job: for nodes without control groups."""
    mark = b"OAR_JOB_ID=%d" % job_id
    return [
        pid
        for pid in all_pids()
        if owner_of(pid) == uid and mark in (node_base.read_process(pid, "environ") or b"").split(b"\0")
    ]


def parent_and_session(pid: int) -> "tuple[int, int]":
    """Return the parent and the session of a process; (0, 0) of one that has ended."""
    stat = node_base.read_process(pid, "stat")
    fields = stat[stat.rindex(b")") + 2 :].split() if stat else []
    return (int(fields[1]), int(fields[3])) if fields and fields[0] != b"Z" else (0, 0)


def strays() -> "list[int]":
    """Return the descendants of this process that are in other sessions than this one."""
    known = {pid: parent_and_session(pid) for pid in all_pids()}
    family = {os.getpid()}
    while True:
        children = {pid for pid, (parent, _) in known.items() if parent in family} - family
        if not children:
            break
        family |= children
    return sorted(pid for pid in family - {os.getpid()} if known[pid][1] != os.getsid(0))


def bury_orphans(own: "Iterable[int]") -> None:
    """Wait for the children that have ended, up to the first of those that somebody else waits for."""
    awaited = set(own)
    while True:
        try:
            ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return
        if ended is None or ended.si_pid in awaited:
            return
        os.waitpid(ended.si_pid, 0)


# -- processors and memory ---------------------------------------------------------------------------------------------


def parse_cpus(values: "Iterable[object]") -> "set[int]":
    """Return the processors that values of the property name: numbers and ranges between ``,`` ``+`` and blanks.

    Raises NodeError for a text that is none of them.
    """
    cpus: "set[int]" = set()
    for value in values:
        for word in re.split(r"[,+\s]+", "" if value is None else str(value)):
            match = re.match(r"([0-9]{1,5})(?:-([0-9]{1,5}))?\Z", word)
            if match:
                cpus.update(range(int(match.group(1)), int(match.group(2) or match.group(1)) + 1))
            elif word:
                raise NodeError(ManagerExit.GROUP, "'%s' is not a processor number" % node_base.escaped(word))
    return cpus


def cpu_list(cpus: "Iterable[int]") -> str:
    """Return processors, or nodes of memory, as control groups take them."""
    return ",".join(str(cpu) for cpu in sorted(cpus))


def online_cpus() -> "set[int]":
    """Return the processors of this node."""
    return parse_cpus([read(ONLINE)])


def with_siblings(cpus: "set[int]") -> "set[int]":
    """Return each processor with the others of its core."""
    path = "/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list"
    return cpus.union(*(parse_cpus([read(path % cpu)]) for cpu in cpus))


def memory_nodes_of(cpus: "set[int]") -> "set[int]":
    """Return the memory nodes that own these processors; an empty set where the machine does not tell."""
    base = "/sys/devices/system/node"
    try:
        nodes = [int(name[4:]) for name in os.listdir(base) if re.match(r"node[0-9]+\Z", name)]
    except OSError:
        return set()
    return {node for node in nodes if any(os.path.exists("%s/node%d/cpu%d" % (base, node, cpu)) for cpu in cpus)}
