"""The control groups of jobs on a node: version 2, version 1, or none; found in ``/proc/self/mountinfo``.

A job has one group ``<CPUSET_PATH>/<name>`` with two leaves: *oarexec* (oarexec and its root helper) and *payload*
(everything of the user), so that freezing, killing and limiting the user never touches oarexec.  A group whose name
was forced is shared by several jobs of one user; its leaves carry the job's id.

Version 1: the leaves are made in the freezer, memory and devices hierarchies; cpuset, cpu and cpuacct have the group
alone.  The freezer is what tells which processes belong to a job.
"""

import contextlib
import errno
import os
import re
import signal
import time

import node_base
import node_kernel
from node_base import NodeError
from node_kernel import cpu_list, kill_all, parse_cpus, read, waited, words, write
from node_protocol import ManagerExit

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from typing import Union

    from node_base import Data

    Groups = Union["GroupsV1", "GroupsV2"]
    #: What a job has used on this node, by the names of ``Groups.usage``; None: the kernel does not tell.
    Usage = dict[str, int | None]

OAREXEC, PAYLOAD = "oarexec", "payload"
CPUSET_FILES = ("/cpuset.cpus", "/cpuset.mems")  #: version 1: what a cpuset needs before it takes a process
FLAT_CONTROLLERS = ("cpuset", "cpu", "cpuacct")  #: version 1: the job's group is enough
LEAF_CONTROLLERS = ("freezer", "memory", "devices", "pids")  #: version 1: the job's two leaves
#: version 1: what oarexec is not counted by.  Its process may serve for many jobs, and each page of it that was touched
#: in one of them would keep the removed group of that job in the kernel's memory.
SPARED_CONTROLLER = "memory"
SESSION_CONTROLLERS = ("freezer", "devices")  #: version 1: those of a session; the others count in the payload
ENABLED_CONTROLLERS = ("cpuset", "memory", "pids", "io", "cpu")
LINKS_OF_A_LEAF = 2  #: of a directory without directories in it: its name and its own ``.``
USAGE = ("cpu_us", "memory_peak", "memory_limit", "oom_kills", "forks_denied")
KILL_SECONDS = 10.0
FREEZE_SECONDS = 20.0


# -- where the hierarchies are -----------------------------------------------------------------------------------------


class Mounts:
    """Where the hierarchies are mounted: ``v2`` (path or None) and ``v1`` (controller -> path)."""

    last: "Mounts | None" = None
    last_places: "list[tuple[int, int]] | None" = None

    def __init__(self, mountinfo: str) -> None:
        self.v2: "str | None" = None
        self.v1: "dict[str, str]" = {}
        complete: "set[str]" = set()
        for line in mountinfo.splitlines():
            mount, _, file_system = line.partition(" - ")
            kind, _, options = file_system.split(" ", 2) if file_system.count(" ") >= 2 else ("", "", "")
            if kind not in ("cgroup", "cgroup2"):
                continue
            root, path = mount.split(" ")[3:5]
            path = re.sub(r"\\([0-7]{3})", lambda match: chr(int(match.group(1), 8)), path)
            for controller in [kind] if kind == "cgroup2" else options.split(","):
                if root != "/" and controller in complete:
                    continue  # a later mount hides an earlier one, but a whole hierarchy wins over a part of it
                if root == "/":
                    complete.add(controller)
                self.v1[controller] = path
        self.v2 = self.v1.pop("cgroup2", None)

    @classmethod
    def here(cls) -> "Mounts":
        """Return the mounts that this process sees.  They are read again when others are at the places used last.

        A worker asks for each of its jobs, and on some nodes hundreds of mounts are listed.
        """
        if cls.last is None or cls.last_places is None or cls.last_places != cls.last.places():
            cls.last = cls(node_base.content_of("/proc/self/mountinfo").decode("utf-8", "surrogateescape"))
            cls.last_places = cls.last.places()
        return cls.last

    def places(self) -> "list[tuple[int, int]] | None":
        """Return what tells the mounts of this object from others at the same paths; None if it has none in use."""
        paths = [self.v2, self.v1.get("cpuset"), self.v1.get("freezer")]
        try:
            statuses = [os.stat(path) for path in paths if path is not None]
        except OSError:
            return None
        return [(status.st_dev, status.st_ino) for status in statuses] or None


def choose_manager(choice: "str | None", mounts: Mounts) -> str:
    """Return the manager to use, ``cgroup2``, ``cgroup1`` or ``none``, by the ``CGROUP_MANAGER`` of the site.

    Raises NodeError if the site wants one that is not here.
    """
    if choice in ("auto", "", None):
        if mounts.v2 is not None and "cpuset" in words(mounts.v2 + "/cgroup.controllers"):
            return "cgroup2"
        if "cpuset" in mounts.v1:
            return "cgroup1"
        return "cgroup2" if mounts.v2 == "/sys/fs/cgroup" else "none"
    if choice == "cgroup2" and mounts.v2 is None:
        raise unusable("CGROUP_MANAGER is cgroup2 but no cgroup version 2 tree is mounted")
    if choice == "cgroup1" and not {"cpuset", "freezer"} <= set(mounts.v1):
        raise unusable("CGROUP_MANAGER is cgroup1 but its cpuset and freezer hierarchies are not both mounted")
    if choice not in ("cgroup1", "cgroup2", "none"):
        shown = node_base.escaped(str(choice))
        raise unusable("CGROUP_MANAGER '%s' is not supported: use auto, cgroup2, cgroup1 or none" % shown)
    return choice


def unusable(text: str) -> NodeError:
    """Return the error for control groups that this node does not have as the site wants them."""
    return NodeError(ManagerExit.CONTROL_GROUPS, text)


def groups_of(data: "Data", mounts: "Mounts | None" = None) -> "Groups | None":
    """Return the groups that ``data`` asks for by its ``cpuset_path`` and option ``cgroup_manager``.

    None: jobs are not confined here.  Raises NodeError for a path or manager that cannot be.
    """
    mounts = mounts or Mounts.here()
    path = data.get("cpuset_path")
    if not path:
        return None
    if not re.match(r"(/[A-Za-z0-9_.-]+)+\Z", path) or "/.." in path:
        raise NodeError(
            ManagerExit.DATA,
            "CPUSET_PATH '%s' must be a path of letters, digits and . _ -, such as /oar" % node_base.escaped(path),
        )
    manager = choose_manager(node_base.options_of(data).get("cgroup_manager", "auto"), mounts)
    if manager == "cgroup2" and mounts.v2 is not None:
        return GroupsV2(mounts.v2, path)
    if manager == "cgroup1":
        if "freezer" not in mounts.v1:
            raise unusable("the freezer hierarchy of cgroup version 1 is not mounted")
        return GroupsV1(mounts.v1, path)
    return None


# -- directories that are groups ---------------------------------------------------------------------------------------


def limit_processes(directory: str, limit: "int | None") -> None:
    """Bound the processes and threads of a group, where the kernel can; None: no bound of its own."""
    if os.path.exists(directory + "/pids.max"):
        write(directory + "/pids.max", "max" if limit is None else str(limit))


def make(path: str) -> None:
    """Make a group if it is not there."""
    with contextlib.suppress(FileExistsError):
        os.mkdir(path)


def tree(path: str) -> "list[str]":
    """Return a group and all below it, parents first; nothing if it is not there."""
    try:
        links = os.stat(path).st_nlink
    except OSError:
        return []
    names = [] if links == LINKS_OF_A_LEAF else names_in(path)
    return [path, *(group for name in names for group in tree(path + "/" + name))]


def names_in(path: str) -> "list[str]":
    """Return the names of the groups in a group."""
    try:
        with os.scandir(path) as entries:  # the kernel says with the names which of them are directories
            return sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))
    except OSError:
        return []


def pids_in(path: str) -> "list[int]":
    return sorted({int(pid) for directory in tree(path) for pid in words(directory + "/cgroup.procs")})


def remove_tree(path: str) -> None:
    """Remove a group and all below it; raise NodeError if the kernel still finds it busy after a second."""
    limit = time.monotonic() + 1.0
    for directory in reversed(tree(path)):
        while True:
            try:
                os.rmdir(directory)
                break
            except FileNotFoundError:
                break
            except OSError as error:
                if error.errno != errno.EBUSY or time.monotonic() > limit:
                    text = "cannot remove %s: %s" % (directory, error.strerror)
                    raise NodeError(ManagerExit.REMOVAL, text) from None
                time.sleep(0.002)


def remove_empty(path: str) -> None:
    """Remove the groups below ``path`` that have no process."""
    for name in names_in(path):
        with contextlib.suppress(OSError):
            os.rmdir(path + "/" + name)


# -- the managers ------------------------------------------------------------------------------------------------------


class Leaves:
    """Names of a job's two leaves; with the job's id where the group is shared by several jobs."""

    def __init__(self, name: str, user: str, job_id: int) -> None:
        if not re.match(r"[A-Za-z0-9_][A-Za-z0-9_.$-]*\Z", name) or not name.startswith(user + "_"):
            text = "'%s' is not the name of a group of user %s" % (node_base.escaped(name), user)
            raise NodeError(ManagerExit.DATA, text)
        self.group = name
        self.shared = name != "%s_%d" % (user, job_id)
        suffix = "_%d" % job_id if self.shared else ""
        self.oarexec = name + "/" + OAREXEC + suffix
        self.payload = name + "/" + PAYLOAD + suffix

    def of(self, part: str) -> str:
        """Return the leaf of a part of the job, ``OAREXEC`` or ``PAYLOAD``."""
        return self.oarexec if part == OAREXEC else self.payload

    def both(self) -> "tuple[str, str]":
        """Return both leaves."""
        return (self.oarexec, self.payload)


class GroupsV2:
    """The groups of all jobs on this node in a cgroup version 2 tree.

    ``group`` and ``leaf`` are paths below their common directory.
    """

    def __init__(self, mount: str, path: str) -> None:
        self.mount = mount
        self.base = mount + path

    def tracker(self, group: str) -> str:
        """Return the directory that tells which processes belong to a group or leaf."""
        return self.base + "/" + group

    def prepare(self) -> None:
        """Make the common directory with the controllers that the kernel gives us."""
        self.enable(self.mount)
        directory = self.mount
        for name in self.base[len(self.mount) + 1 :].split("/"):
            directory += "/" + name
            make(directory)
            self.enable(directory)

    @staticmethod
    def enable(directory: str) -> None:
        """Give the groups below a directory their controllers; raise NodeError if they cannot have ``cpuset``."""
        present = words(directory + "/cgroup.subtree_control")
        for controller in words(directory + "/cgroup.controllers"):
            if controller in ENABLED_CONTROLLERS and controller not in present:
                try:
                    write(directory + "/cgroup.subtree_control", "+" + controller)
                except OSError as error:
                    if controller == "cpuset":
                        raise unusable("cannot enable cpuset in %s: %s" % (directory, error.strerror)) from None

    def create(
        self,
        leaves: Leaves,
        cpus: "set[int] | None",
        mems: "set[int]",
        memory: "int | None",
        processes: "int | None" = None,
    ) -> None:
        """Make a job's group and leaves.

        ``cpus`` None: no binding.  ``memory`` (bytes of the payload) and ``processes`` None: no limit.
        """
        group = self.tracker(leaves.group)
        make(group)
        self.enable(group)
        if cpus is not None:
            self.set_cpus(leaves.group, cpus, mems)
        for leaf in leaves.both():
            make(self.tracker(leaf))
        if memory is not None:
            payload = self.tracker(leaves.payload)
            if not os.path.exists(payload + "/memory.max"):
                raise unusable("JRM_MEMORY is set but %s has no memory controller" % self.mount)
            for name, value in (("memory.max", memory), ("memory.swap.max", 0), ("memory.oom.group", 0)):
                if os.path.exists(payload + "/" + name):
                    write(payload + "/" + name, str(value))
        limit_processes(self.tracker(leaves.payload), processes)

    def has_memory(self) -> bool:
        """Return whether the memory of a group can be limited here."""
        return "memory" in words(self.base + "/cgroup.controllers")

    def set_cpus(self, group: str, cpus: "set[int]", mems: "set[int]") -> None:
        """Bind a group to processors, and to memory nodes if there are any."""
        directory = self.tracker(group)
        if not os.path.exists(directory + "/cpuset.cpus"):
            raise unusable("%s has no cpuset controller" % self.mount)
        write(directory + "/cpuset.cpus", cpu_list(cpus))
        if mems:
            write(directory + "/cpuset.mems", cpu_list(mems))

    def join(self, leaves: Leaves, part: str, pid: int = 0, inherited: bool = False) -> None:
        """Put a process (0: this one) into a leaf; ``inherited``: it is in the group already, by its parent."""
        self.move(leaves, leaves.of(part), pid)

    def leave(self) -> None:
        """Take this process out of all groups of jobs."""
        write(self.mount + "/cgroup.procs", "0")

    def move(self, leaves: Leaves, leaf: str, pid: int) -> None:
        """Move a process to a leaf of the job, or to that of a session below it."""
        write(self.tracker(leaf) + "/cgroup.procs", str(pid))

    def cpus(self, group: str) -> "set[int]":
        """Return the processors that a group is bound to."""
        return parse_cpus([read(self.tracker(group) + "/cpuset.cpus").strip()])

    def make_leaf(self, leaf: str) -> None:
        """Make a group for a session below a leaf."""
        make(self.tracker(leaf))

    def forget_sessions(self, payload: str) -> None:
        """Remove the groups of the sessions that have ended."""
        remove_empty(self.tracker(payload))

    def freeze(self, group: str, frozen: bool, seconds: float = FREEZE_SECONDS) -> bool:
        """Freeze or thaw a group; return False if not all processes obeyed in time."""
        directory = self.tracker(group)
        write(directory + "/cgroup.freeze", "1" if frozen else "0")
        return waited(lambda: self.is_frozen(group) == frozen, seconds)

    def is_frozen(self, group: str) -> bool:
        """Return whether a group is frozen."""
        return "frozen 1" in read(self.tracker(group) + "/cgroup.events").splitlines()

    def kill(self, group: str, seconds: float = KILL_SECONDS) -> "list[int]":
        """Kill everything in a group; return the pids of what could not be killed."""
        directory = self.tracker(group)
        if not os.path.isdir(directory):
            return []
        if os.path.exists(directory + "/cgroup.kill"):
            write(directory + "/cgroup.kill", "1")
        else:
            self.freeze(group, True, 1.0)
            kill_all(pids_in(directory))
            self.freeze(group, False, 1.0)
        waited(lambda: "populated 0" in read(directory + "/cgroup.events").splitlines(), seconds)
        return pids_in(directory)

    def remove(self, group: str) -> None:
        """Remove a group and all below it, if it is there."""
        remove_tree(self.tracker(group))

    def usage(self, leaves: Leaves) -> "Usage":
        """Return what the job has used here.

        Microseconds of processor, bytes of memory at its peak and at most, kills by the kernel for want of memory,
        processes that it was refused.
        """
        directory, payload = self.tracker(leaves.group), self.tracker(leaves.payload)
        return {
            "cpu_us": node_kernel.figure(directory + "/cpu.stat", "usage_usec"),
            "memory_peak": node_kernel.number(payload + "/memory.peak"),
            "memory_limit": node_kernel.number(payload + "/memory.max"),
            "oom_kills": node_kernel.figure(payload + "/memory.events", "oom_kill"),
            "forks_denied": node_kernel.figure(payload + "/pids.events", "max"),
        }

    def live_files(self, group: str, payload: str, alone: bool) -> "tuple[str | None, str | None]":
        """Return the files that tell the processor time of a job and its memory now; ``alone``: no other has its group.

        None: the kernel does not tell this.
        """
        directory = self.tracker(payload)
        return directory + "/cpu.stat", directory + "/memory.current"

    @staticmethod
    def cpu_us(path: "str | None") -> "int | None":
        """Return the microseconds that such a file tells."""
        return None if path is None else node_kernel.figure(path, "usage_usec")

    def names(self) -> "list[str]":
        """Return the names of the groups in the common directory."""
        return names_in(self.base)


class GroupsV1:
    """The same in the hierarchies of cgroup version 1: each method of ``GroupsV2``."""

    def __init__(self, mounts: "Mapping[str, str]", path: str) -> None:
        self.path = path
        self.mounts = {name: mounts[name] for name in FLAT_CONTROLLERS + LEAF_CONTROLLERS if name in mounts}

    def directory(self, controller: str, group: str) -> str:
        """Return the directory of a group in the hierarchy of a controller."""
        return "%s%s/%s" % (self.mounts[controller], self.path, group)

    def tracker(self, group: str) -> str:
        return self.directory("freezer", group)

    def prepare(self) -> None:
        for controller, mount in self.mounts.items():
            directory = mount
            for name in self.path[1:].split("/"):
                parent, directory = directory, directory + "/" + name
                make(directory)
                if controller == "cpuset":
                    inherit_cpuset(parent, directory, *CPUSET_FILES)

    def create(
        self,
        leaves: Leaves,
        cpus: "set[int] | None",
        mems: "set[int]",
        memory: "int | None",
        processes: "int | None" = None,
    ) -> None:
        for controller in self.mounts:
            make(self.directory(controller, leaves.group))
            if controller in LEAF_CONTROLLERS:
                for leaf in (leaves.payload,) if controller == SPARED_CONTROLLER else leaves.both():
                    make(self.directory(controller, leaf))
        if cpus is not None:
            self.set_cpus(leaves.group, cpus, mems)
        elif "cpuset" in self.mounts:
            directory = self.directory("cpuset", leaves.group)
            inherit_cpuset(os.path.dirname(directory), directory, *CPUSET_FILES)
        if memory is not None:
            if "memory" not in self.mounts:
                raise unusable("JRM_MEMORY is set but the memory hierarchy is not mounted")
            self.limit_memory(self.directory("memory", leaves.payload), memory)
        if "pids" in self.mounts:
            limit_processes(self.directory("pids", leaves.payload), processes)

    def has_memory(self) -> bool:
        return "memory" in self.mounts

    @staticmethod
    def limit_memory(directory: str, limit: int) -> None:
        """Set the limit of memory and of memory with swap, in the order that the kernel accepts."""
        names = ["memory.limit_in_bytes", "memory.memsw.limit_in_bytes"]
        present = node_kernel.number(directory + "/" + names[0])
        for name in names if present is None or limit <= present else reversed(names):
            if os.path.exists(directory + "/" + name):
                write(directory + "/" + name, str(limit))

    def set_cpus(self, group: str, cpus: "set[int]", mems: "set[int]") -> None:
        directory = self.directory("cpuset", group)
        if mems:
            write(directory + "/cpuset.mems", cpu_list(mems))
        else:
            inherit_cpuset(os.path.dirname(directory), directory, "/cpuset.mems")
        write(directory + "/cpuset.cpus", cpu_list(cpus))

    def join(self, leaves: Leaves, part: str, pid: int = 0, inherited: bool = False) -> None:
        spared = {SPARED_CONTROLLER} if part == OAREXEC else set()
        controllers = set(LEAF_CONTROLLERS if inherited else self.mounts) - spared
        self.move_in(leaves, leaves.of(part), pid, controllers)

    def leave(self) -> None:
        for controller, mount in self.mounts.items():
            if controller != SPARED_CONTROLLER:
                write(mount + "/cgroup.procs", "0")

    def move(self, leaves: Leaves, leaf: str, pid: int) -> None:
        self.move_in(leaves, leaf, pid, self.mounts)

    def move_in(self, leaves: Leaves, leaf: str, pid: int, controllers: "Collection[str]") -> None:
        """Move a process in the hierarchies of some controllers."""
        for controller in self.mounts:
            if controller not in controllers:
                continue
            group = leaf if controller in LEAF_CONTROLLERS else leaves.group
            if leaf.startswith(leaves.payload + "/") and controller not in (*SESSION_CONTROLLERS, *FLAT_CONTROLLERS):
                group = leaves.payload
            write(self.directory(controller, group) + "/cgroup.procs", str(pid))

    def cpus(self, group: str) -> "set[int]":
        return parse_cpus([read(self.directory("cpuset", group) + "/cpuset.cpus").strip()])

    def make_leaf(self, leaf: str) -> None:
        for controller in self.mounts:
            if controller in SESSION_CONTROLLERS:
                make(self.directory(controller, leaf))

    def forget_sessions(self, payload: str) -> None:
        for controller in self.mounts:
            if controller in SESSION_CONTROLLERS:
                remove_empty(self.directory(controller, payload))

    def freeze(self, group: str, frozen: bool, seconds: float = FREEZE_SECONDS) -> bool:
        directory = self.tracker(group)
        state = "FROZEN" if frozen else "THAWED"
        for path in [directory] if frozen else tree(directory):
            write(path + "/freezer.state", state)
        return waited(lambda: read(directory + "/freezer.state").strip() == state, seconds)

    def is_frozen(self, group: str) -> bool:
        return read(self.tracker(group) + "/freezer.state").strip() == "FROZEN"

    def kill(self, group: str, seconds: float = KILL_SECONDS) -> "list[int]":
        """Kill everything in a group: frozen, it cannot fork away."""
        directory = self.tracker(group)
        limit = time.monotonic() + seconds
        while pids_in(directory):
            remaining = limit - time.monotonic()
            if remaining <= 0:
                return pids_in(directory)
            self.freeze(group, True, min(0.5, remaining))
            kill_all(pids_in(directory))
            self.freeze(group, False, min(0.5, remaining))
            waited(lambda: not pids_in(directory), min(0.2, remaining))
        return []

    def remove(self, group: str) -> None:
        for controller in self.mounts:
            remove_tree(self.directory(controller, group))

    def usage(self, leaves: Leaves) -> "Usage":
        group = self.directory("cpuacct", leaves.group) if "cpuacct" in self.mounts else "/nonexistent"
        payload = self.directory("memory", leaves.payload) if "memory" in self.mounts else "/nonexistent"
        processes = self.directory("pids", leaves.payload) if "pids" in self.mounts else "/nonexistent"
        nanoseconds = node_kernel.number(group + "/cpuacct.usage")
        limit = node_kernel.number(payload + "/memory.limit_in_bytes")
        return {
            "cpu_us": None if nanoseconds is None else nanoseconds // 1000,
            "memory_peak": node_kernel.number(payload + "/memory.max_usage_in_bytes"),
            "memory_limit": limit if limit is not None and limit < 1 << 60 else None,
            "oom_kills": node_kernel.figure(payload + "/memory.oom_control", "oom_kill"),
            "forks_denied": node_kernel.figure(processes + "/pids.events", "max"),
        }

    def live_files(self, group: str, payload: str, alone: bool) -> "tuple[str | None, str | None]":
        cpu = self.directory("cpuacct", group) + "/cpuacct.usage" if alone and "cpuacct" in self.mounts else None
        has_memory = "memory" in self.mounts
        return cpu, self.directory("memory", payload) + "/memory.usage_in_bytes" if has_memory else None

    @staticmethod
    def cpu_us(path: "str | None") -> "int | None":
        nanoseconds = None if path is None else node_kernel.number(path)
        return None if nanoseconds is None else nanoseconds // 1000

    def names(self) -> "list[str]":
        return sorted({name for controller in self.mounts for name in names_in(self.mounts[controller] + self.path)})


def inherit_cpuset(parent: str, directory: str, *files: str) -> None:
    """Give a new cpuset of version 1, which is empty and takes no process, what its parent has in these files."""
    for name in files:
        if not read(directory + name).strip():
            write(directory + name, read(parent + name).strip())


class Confinement:
    """One job on this node, whatever confines it: what the programs ask for.

    Where nothing does (``groups`` is None) its processes are found by their environment.  ``has_orphans``: this process
    adopts them (``node_enclosure``), so those of its descendants that are in other sessions are the job's.
    """

    def __init__(self, groups: "Groups | None", name: str, user: str, job_id: int, has_orphans: bool = False) -> None:
        self.has_orphans = has_orphans
        self.groups = groups
        self.leaves = Leaves(name, user, job_id)
        self.user = user
        self.job_id = job_id

    def exists(self) -> bool:
        """Return whether the job has a group here."""
        return self.groups is not None and os.path.isdir(self.groups.tracker(self.leaves.payload))

    def join(self, part: str, pid: int = 0, inherited: bool = False) -> None:
        """Put a process (0: this one) into a leaf; ``inherited``: it is in the group already, by its parent."""
        if self.groups is not None:
            self.groups.join(self.leaves, part, pid, inherited)

    def payload(self) -> "list[int]":
        """Return the pids of what the user runs here."""
        if self.groups is not None:
            return pids_in(self.groups.tracker(self.leaves.payload))
        account = node_base.account_of(self.user)
        marked = [] if account is None else node_kernel.marked_processes(account.pw_uid, self.job_id)
        return sorted({*marked, *(node_kernel.strays() if self.has_orphans else [])})

    def kill_payload(self, seconds: float = KILL_SECONDS) -> "list[int]":
        """Kill all that the user runs here; return the pids that remain."""
        if self.groups is not None:
            return self.groups.kill(self.leaves.payload, seconds)
        return self.kill_marked(seconds)

    def kill(self, seconds: float = KILL_SECONDS) -> "list[int]":
        """Kill the job's processes and its oarexec; return the pids that remain."""
        if self.groups is None:
            return self.kill_marked(seconds)
        if not self.leaves.shared:
            return self.groups.kill(self.leaves.group, seconds)
        return [pid for leaf in self.leaves.both() for pid in self.groups.kill(leaf, seconds)]

    def kill_marked(self, seconds: float) -> "list[int]":
        """Stop before killing, so that none forks away between two looks."""
        limit = time.monotonic() + seconds
        pids = self.payload()
        while pids and time.monotonic() < limit:
            node_kernel.signal_all(pids, signal.SIGSTOP)
            kill_all(pids)
            time.sleep(0.01)
            pids = self.payload()
        return pids

    def freeze(self, frozen: bool, seconds: float = FREEZE_SECONDS) -> bool:
        """Stop or continue all that the user runs here; return False if not all obeyed in time."""
        if self.groups is not None:
            return self.groups.freeze(self.leaves.payload, frozen, seconds)
        states, number = ((b"T",), signal.SIGSTOP) if frozen else ((b"R", b"S", b"D", b"I"), signal.SIGCONT)
        return waited(lambda: self.signal_others(states, number), seconds)

    def signal_others(self, states: "Collection[bytes]", number: int) -> bool:
        """Send a signal to the processes that are in none of these states; return whether there was none."""
        late = [pid for pid in self.payload() if node_kernel.state_of(pid) not in (*states, None)]
        node_kernel.signal_all(late, number)
        return not late

    def is_frozen(self) -> bool:
        """Return whether all that the user runs here is stopped."""
        if self.groups is not None:
            return self.groups.is_frozen(self.leaves.payload)
        states = [node_kernel.state_of(pid) for pid in self.payload()]
        return bool(states) and all(state == b"T" for state in states)

    def enter_session(self, token: int) -> str:
        """Make a group for one session below the payload; return its name.  Those of ended sessions go."""
        leaf = "%s/s%d" % (self.leaves.payload, token)
        if self.groups is not None:
            self.groups.forget_sessions(self.leaves.payload)
            self.groups.make_leaf(leaf)
        return leaf

    def move(self, leaf: str, pid: int) -> None:
        """Move a process of a session to its group."""
        if self.groups is not None:
            self.groups.move(self.leaves, leaf, pid)

    def usage(self) -> "Usage":
        """Return what the job has used here, see ``Groups.usage``."""
        return dict.fromkeys(USAGE) if self.groups is None else self.groups.usage(self.leaves)
