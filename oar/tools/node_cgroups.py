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
from node_base import NodeError

OAREXEC, PAYLOAD = "oarexec", "payload"
FLAT_CONTROLLERS = ("cpuset", "cpu", "cpuacct")  #: version 1: the job's group is enough
LEAF_CONTROLLERS = ("freezer", "memory", "devices", "pids")  #: version 1: the job's two leaves
SESSION_CONTROLLERS = ("freezer", "devices")  #: version 1: those of a session; the others count in the payload
WANTED_CONTROLLERS = ("cpuset", "memory", "pids", "io", "cpu")
KILL_SECONDS = 10.0
FREEZE_SECONDS = 10.0


# -- where the hierarchies are -----------------------------------------------------------------------------------------


class Mounts:
    """Where each hierarchy is mounted: ``two`` (path or None) and ``one`` (controller -> path)."""

    def __init__(self, mountinfo):
        self.two = None
        self.one = {}
        whole = {}
        for line in mountinfo.splitlines():
            left, _, right = line.partition(" - ")
            kind, _, options = right.split(" ", 2) if right.count(" ") >= 2 else ("", "", "")
            if kind not in ("cgroup", "cgroup2"):
                continue
            root, path = left.split(" ")[3:5]
            path = re.sub(r"\\([0-7]{3})", lambda found: chr(int(found.group(1), 8)), path)
            for controller in ["two"] if kind == "cgroup2" else options.split(","):
                if root == "/" or not whole.get(controller):  # a later mount hides an earlier one; a whole one wins
                    whole[controller] = root == "/"
                    self.one[controller] = path
        self.two = self.one.pop("two", None)

    @classmethod
    def here(cls):
        with open("/proc/self/mountinfo") as file:
            return cls(file.read())


def choose_manager(wanted, mounts):
    """The manager to use: ``cgroup2``, ``cgroup1`` or ``none``; error 4 if what is ``wanted`` is not here."""
    if wanted in ("auto", "", None):
        if mounts.two is not None and "cpuset" in words(mounts.two + "/cgroup.controllers"):
            return "cgroup2"
        if "cpuset" in mounts.one:
            return "cgroup1"
        return "cgroup2" if mounts.two == "/sys/fs/cgroup" else "none"
    if wanted == "cgroup2" and mounts.two is None:
        raise NodeError(4, "CGROUP_MANAGER is cgroup2 but no cgroup version 2 tree is mounted")
    if wanted == "cgroup1" and not {"cpuset", "freezer"} <= set(mounts.one):
        raise NodeError(4, "CGROUP_MANAGER is cgroup1 but its cpuset and freezer hierarchies are not both mounted")
    if wanted not in ("cgroup1", "cgroup2", "none"):
        shown = node_base.escaped(str(wanted))
        raise NodeError(4, "CGROUP_MANAGER '%s' is not supported: use auto, cgroup2, cgroup1 or none" % shown)
    return wanted


def groups_of(data, mounts=None):
    """The ``Groups`` that ``data`` asks for: by its ``cpuset_path`` and option ``cgroup_manager``."""
    mounts = mounts or Mounts.here()
    path = data.get("cpuset_path")
    if not path:
        return NoGroups()
    if not re.match(r"(/[A-Za-z0-9_.-]+)+\Z", path) or "/.." in path:
        raise NodeError(2, "CPUSET_PATH '%s' is not a path of plain names" % node_base.escaped(path))
    manager = choose_manager(data.get("options", {}).get("cgroup_manager", "auto"), mounts)
    if manager == "cgroup2":
        return GroupsTwo(mounts.two, path)
    if manager == "cgroup1":
        if "freezer" not in mounts.one:
            raise NodeError(4, "the freezer hierarchy of cgroup version 1 is not mounted")
        return GroupsOne(mounts.one, path)
    return NoGroups()


# -- small things ------------------------------------------------------------------------------------------------------


def read(path):
    try:
        with open(path) as file:
            return file.read()
    except OSError:
        return ""


def words(path):
    return read(path).split()


def number(path):
    text = read(path).strip()
    return int(text) if text.isdigit() else None


def figure(path, name):
    """The number behind a name in a file of lines ``name number``; None if it is not told."""
    for line in read(path).splitlines():
        fields = line.split()
        if len(fields) == 2 and fields[0] == name and fields[1].isdigit():
            return int(fields[1])
    return None


def limit_processes(directory, limit):
    """Bound the processes and threads of a group, where the kernel can; None: no bound of its own."""
    if os.path.exists(directory + "/pids.max"):
        write(directory + "/pids.max", "max" if limit is None else str(limit))


def write(path, text):
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, text.encode("ascii"))
    finally:
        os.close(fd)


def make(path):
    with contextlib.suppress(FileExistsError):
        os.mkdir(path)


def tree(path):
    """A group and all below it, parents first."""
    return [directory for directory, _, _ in os.walk(path)]


def pids_in(path):
    return sorted({int(pid) for directory in tree(path) for pid in words(directory + "/cgroup.procs")})


def remove_tree(path):
    """Remove a group and all below it; error 6 if the kernel still finds it busy after a second."""
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
                    raise NodeError(6, "cannot remove %s: %s" % (directory, error.strerror)) from None
                time.sleep(0.002)


def remove_empty(path):
    """Remove the groups below ``path`` that have no process."""
    for name in names_in(path):
        with contextlib.suppress(OSError):
            os.rmdir(path + "/" + name)


def waited(condition, seconds):
    """Wait until ``condition()``; False if it took longer than ``seconds``."""
    limit = time.monotonic() + seconds
    pause = 0.0005
    while not condition():
        if time.monotonic() > limit:
            return False
        time.sleep(pause)
        pause = min(0.02, pause * 1.5)
    return True


def kill_all(pids):
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def description(pid):
    """What a process is and where it hangs, for the message about one that cannot be killed."""
    stat = node_base.read_process(pid, "stat") or b"? (?) ?"
    state = stat[stat.rindex(b")") + 1 :].split()[0].decode("ascii", "replace")
    wchan = (node_base.read_process(pid, "wchan") or b"?").decode("ascii", "replace")
    command = (node_base.read_process(pid, "cmdline") or b"").replace(b"\0", b" ").decode("utf-8", "replace")
    return "pid %d state %s wchan %s command %s" % (pid, state, wchan, node_base.escaped(command.strip() or "?"))


# -- processors and memory ---------------------------------------------------------------------------------------------


def parse_cpus(values):
    """The processors that the values of the property name: numbers and ranges between ``,`` ``+`` and blanks."""
    cpus = set()
    for value in values:
        for word in re.split(r"[,+\s]+", "" if value is None else str(value)):
            found = re.match(r"([0-9]{1,5})(?:-([0-9]{1,5}))?\Z", word)
            if found:
                cpus.update(range(int(found.group(1)), int(found.group(2) or found.group(1)) + 1))
            elif word:
                raise NodeError(5, "'%s' is not a processor number" % node_base.escaped(word))
    return cpus


def cpu_list(cpus):
    return ",".join(str(cpu) for cpu in sorted(cpus))


def online_cpus():
    return parse_cpus([read("/sys/devices/system/cpu/online")])


def with_siblings(cpus):
    """Each processor with the others of its core."""
    path = "/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list"
    return set().union(cpus, *(parse_cpus([read(path % cpu)]) for cpu in cpus))


def memory_nodes_of(cpus):
    """The memory nodes that own these processors; an empty set where the machine does not tell."""
    base = "/sys/devices/system/node"
    try:
        nodes = [int(name[4:]) for name in os.listdir(base) if re.match(r"node[0-9]+\Z", name)]
    except OSError:
        return set()
    return {node for node in nodes if any(os.path.exists("%s/node%d/cpu%d" % (base, node, cpu)) for cpu in cpus)}


# -- the managers ------------------------------------------------------------------------------------------------------


class Leaves:
    """Names of a job's two leaves; with the job's id where the group is shared by several jobs."""

    def __init__(self, name, user, job_id):
        if not re.match(r"[A-Za-z0-9_][A-Za-z0-9_.$-]*\Z", name) or not name.startswith(user + "_"):
            raise NodeError(2, "'%s' is not the name of a group of user %s" % (node_base.escaped(name), user))
        self.group = name
        self.shared = name != "%s_%d" % (user, job_id)
        suffix = "_%d" % job_id if self.shared else ""
        self.oarexec = name + "/" + OAREXEC + suffix
        self.payload = name + "/" + PAYLOAD + suffix

    def of(self, part):
        return self.oarexec if part == OAREXEC else self.payload

    def both(self):
        return (self.oarexec, self.payload)


class GroupsTwo:
    """Jobs' groups in a cgroup version 2 tree."""

    manager = "cgroup2"

    def __init__(self, mount, path):
        self.mount = mount
        self.base = mount + path

    def tracker(self, group):
        """The directory that tells which processes belong to a group or leaf."""
        return self.base + "/" + group

    def prepare(self):
        """Make the common directory with the controllers that the kernel gives us."""
        self.enable(self.mount)
        directory = self.mount
        for name in self.base[len(self.mount) + 1 :].split("/"):
            directory += "/" + name
            make(directory)
            self.enable(directory)

    def enable(self, directory):
        present = words(directory + "/cgroup.subtree_control")
        for controller in words(directory + "/cgroup.controllers"):
            if controller in WANTED_CONTROLLERS and controller not in present:
                try:
                    write(directory + "/cgroup.subtree_control", "+" + controller)
                except OSError as error:
                    if controller == "cpuset":
                        raise NodeError(4, "cannot enable cpuset in %s: %s" % (directory, error.strerror)) from None

    def create(self, leaves, cpus, mems, memory, processes=None):
        """Make a job's group and leaves; ``cpus`` None: no binding; ``memory``, ``processes`` None: no limit."""
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
                raise NodeError(4, "JRM_MEMORY is set but %s has no memory controller" % self.mount)
            for name, value in (("memory.max", memory), ("memory.swap.max", 0), ("memory.oom.group", 0)):
                if os.path.exists(payload + "/" + name):
                    write(payload + "/" + name, str(value))
        limit_processes(self.tracker(leaves.payload), processes)

    def set_cpus(self, group, cpus, mems):
        directory = self.tracker(group)
        if not os.path.exists(directory + "/cpuset.cpus"):
            raise NodeError(4, "%s has no cpuset controller" % self.mount)
        write(directory + "/cpuset.cpus", cpu_list(cpus))
        if mems:
            write(directory + "/cpuset.mems", cpu_list(mems))

    def join(self, leaves, part, pid=0, inherited=False):
        self.move(leaves, leaves.of(part), pid)

    def move(self, leaves, leaf, pid):
        write(self.tracker(leaf) + "/cgroup.procs", str(pid))

    def cpus(self, group):
        return parse_cpus([read(self.tracker(group) + "/cpuset.cpus").strip()])

    def make_leaf(self, leaf):
        make(self.tracker(leaf))

    def forget_sessions(self, payload):
        remove_empty(self.tracker(payload))

    def freeze(self, group, frozen, seconds=FREEZE_SECONDS):
        """Freeze or thaw; False if not all obeyed in time."""
        directory = self.tracker(group)
        write(directory + "/cgroup.freeze", "1" if frozen else "0")
        return waited(lambda: self.is_frozen(group) == frozen, seconds)

    def is_frozen(self, group):
        return "frozen 1" in read(self.tracker(group) + "/cgroup.events").splitlines()

    def kill(self, group, seconds=KILL_SECONDS):
        """Kill everything in a group; the pids of what could not be killed."""
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

    def remove(self, group):
        if os.path.isdir(self.tracker(group)):
            remove_tree(self.tracker(group))

    def usage(self, leaves):
        """What the job has used here: microseconds of processor, bytes of memory at its peak, kills by the kernel."""
        directory, payload = self.tracker(leaves.group), self.tracker(leaves.payload)
        return {
            "cpu_us": figure(directory + "/cpu.stat", "usage_usec"),
            "memory_peak": number(payload + "/memory.peak"),
            "memory_limit": number(payload + "/memory.max"),
            "oom_kills": figure(payload + "/memory.events", "oom_kill"),
            "forks_denied": figure(payload + "/pids.events", "max"),
        }

    def names(self):
        return names_in(self.base)


class GroupsOne:
    """Jobs' groups in the hierarchies of cgroup version 1."""

    manager = "cgroup1"

    def __init__(self, mounts, path):
        self.path = path
        self.mounts = {name: mounts[name] for name in FLAT_CONTROLLERS + LEAF_CONTROLLERS if name in mounts}

    def directory(self, controller, group):
        return "%s%s/%s" % (self.mounts[controller], self.path, group)

    def tracker(self, group):
        return self.directory("freezer", group)

    def prepare(self):
        for controller, mount in self.mounts.items():
            directory = mount
            for name in self.path[1:].split("/"):
                parent, directory = directory, directory + "/" + name
                make(directory)
                if controller == "cpuset":
                    inherit_cpuset(parent, directory)

    def create(self, leaves, cpus, mems, memory, processes=None):
        for controller in self.mounts:
            make(self.directory(controller, leaves.group))
            if controller in LEAF_CONTROLLERS:
                for leaf in leaves.both():
                    make(self.directory(controller, leaf))
        if cpus is not None:
            self.set_cpus(leaves.group, cpus, mems)
        if memory is not None:
            if "memory" not in self.mounts:
                raise NodeError(4, "JRM_MEMORY is set but the memory hierarchy is not mounted")
            self.limit_memory(self.directory("memory", leaves.payload), memory)
        if "pids" in self.mounts:
            limit_processes(self.directory("pids", leaves.payload), processes)

    @staticmethod
    def limit_memory(directory, limit):
        """Set the limit of memory and of memory with swap, in the order that the kernel accepts."""
        names = ["memory.limit_in_bytes", "memory.memsw.limit_in_bytes"]
        present = number(directory + "/" + names[0])
        for name in names if present is None or limit <= present else reversed(names):
            if os.path.exists(directory + "/" + name):
                write(directory + "/" + name, str(limit))

    def set_cpus(self, group, cpus, mems):
        directory = self.directory("cpuset", group)
        inherit_cpuset(os.path.dirname(directory), directory)
        write(directory + "/cpuset.cpus", cpu_list(cpus))
        if mems:
            write(directory + "/cpuset.mems", cpu_list(mems))

    def join(self, leaves, part, pid=0, inherited=False):
        self.move(leaves, leaves.of(part), pid, LEAF_CONTROLLERS if inherited else self.mounts)

    def move(self, leaves, leaf, pid, controllers=None):
        for controller in self.mounts:
            if controllers is not None and controller not in controllers:
                continue
            group = leaf if controller in LEAF_CONTROLLERS else leaves.group
            if leaf.startswith(leaves.payload + "/") and controller not in (*SESSION_CONTROLLERS, *FLAT_CONTROLLERS):
                group = leaves.payload
            write(self.directory(controller, group) + "/cgroup.procs", str(pid))

    def cpus(self, group):
        return parse_cpus([read(self.directory("cpuset", group) + "/cpuset.cpus").strip()])

    def make_leaf(self, leaf):
        for controller in self.mounts:
            if controller in SESSION_CONTROLLERS:
                make(self.directory(controller, leaf))

    def forget_sessions(self, payload):
        for controller in self.mounts:
            if controller in SESSION_CONTROLLERS:
                remove_empty(self.directory(controller, payload))

    def freeze(self, group, frozen, seconds=FREEZE_SECONDS):
        directory = self.tracker(group)
        word = "FROZEN" if frozen else "THAWED"
        for path in [directory] if frozen else tree(directory):
            write(path + "/freezer.state", word)
        return waited(lambda: read(directory + "/freezer.state").strip() == word, seconds)

    def is_frozen(self, group):
        return read(self.tracker(group) + "/freezer.state").strip() == "FROZEN"

    def kill(self, group, seconds=KILL_SECONDS):
        """Kill everything in a group: frozen, it cannot fork away.  The pids of what could not be killed."""
        directory = self.tracker(group)
        limit = time.monotonic() + seconds
        while pids_in(directory):
            left = limit - time.monotonic()
            if left <= 0:
                return pids_in(directory)
            self.freeze(group, True, min(0.5, left))
            kill_all(pids_in(directory))
            self.freeze(group, False, min(0.5, left))
            waited(lambda: not pids_in(directory), min(0.2, left))
        return []

    def remove(self, group):
        for controller in self.mounts:
            directory = self.directory(controller, group)
            if os.path.isdir(directory):
                remove_tree(directory)

    def usage(self, leaves):
        used = number(self.directory("cpuacct", leaves.group) + "/cpuacct.usage") if "cpuacct" in self.mounts else None
        payload = self.directory("memory", leaves.payload) if "memory" in self.mounts else "/nonexistent"
        processes = self.directory("pids", leaves.payload) if "pids" in self.mounts else "/nonexistent"
        limit = number(payload + "/memory.limit_in_bytes")
        return {
            "cpu_us": None if used is None else used // 1000,
            "memory_peak": number(payload + "/memory.max_usage_in_bytes"),
            "memory_limit": limit if limit is not None and limit < 1 << 60 else None,
            "oom_kills": figure(payload + "/memory.oom_control", "oom_kill"),
            "forks_denied": figure(processes + "/pids.events", "max"),
        }

    def names(self):
        return sorted({name for controller in self.mounts for name in names_in(self.mounts[controller] + self.path)})


class NoGroups:
    """No confinement: only the directory of a job's processes is missed; they are found by their environment."""

    manager = "none"

    def prepare(self):
        pass

    def create(self, leaves, cpus, mems, memory, processes=None):
        pass

    def join(self, leaves, part, pid=0, inherited=False):
        pass

    def usage(self, leaves):
        return dict.fromkeys(("cpu_us", "memory_peak", "memory_limit", "oom_kills", "forks_denied"))

    def names(self):
        return []


def names_in(directory):
    try:
        return sorted(name for name in os.listdir(directory) if os.path.isdir(directory + "/" + name))
    except OSError:
        return []


def inherit_cpuset(parent, directory):
    """A new cpuset of version 1 is empty and takes no process: give it what its parent has."""
    for name in ("/cpuset.cpus", "/cpuset.mems"):
        if not read(directory + name).strip():
            write(directory + name, read(parent + name).strip())


def marked_processes(uid, job_id):
    """Processes of a user whose environment says that they belong to a job: for nodes without control groups."""
    mark = b"OAR_JOB_ID=%d" % job_id
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit() and owner_of(int(name)) == uid:
            environment = node_base.read_process(int(name), "environ") or b""
            if mark in environment.split(b"\0"):
                found.append(int(name))
    return found


def has_ended(pid):
    """Is it gone, or a zombie that its parent has not waited for?"""
    stat = node_base.read_process(pid, "stat")
    return not stat or stat[stat.rindex(b")") + 1 :].split()[0] == b"Z"


def owner_of(pid):
    try:
        return os.stat("/proc/%d" % pid).st_uid
    except OSError:
        return None


class Confinement:
    """One job on this node, whichever manager confines it: what the programs ask for."""

    def __init__(self, groups, name, user, job_id):
        self.groups = groups
        self.leaves = Leaves(name, user, job_id)
        self.user = user
        self.job_id = job_id

    @property
    def real(self):
        return self.groups.manager != "none"

    def exists(self):
        return self.real and os.path.isdir(self.groups.tracker(self.leaves.payload))

    def join(self, part, pid=0, inherited=False):
        """Put a process into a leaf; ``inherited``: it is in the group already, by its parent."""
        self.groups.join(self.leaves, part, pid, inherited)

    def payload(self):
        """Pids of what the user runs here."""
        if self.real:
            return pids_in(self.groups.tracker(self.leaves.payload))
        account = node_base.account_of(self.user)
        return [] if account is None else marked_processes(account.pw_uid, self.job_id)

    def kill_payload(self, seconds=KILL_SECONDS):
        """Kill all that the user runs here; the pids that remain."""
        if self.real:
            return self.groups.kill(self.leaves.payload, seconds)
        return self.kill_marked(seconds)

    def kill(self, seconds=KILL_SECONDS):
        """Kill the job's processes and its oarexec; the pids that remain."""
        if not self.real:
            return self.kill_marked(seconds)
        if not self.leaves.shared:
            return self.groups.kill(self.leaves.group, seconds)
        return [pid for leaf in self.leaves.both() for pid in self.groups.kill(leaf, seconds)]

    def kill_marked(self, seconds):
        """Stop before killing, so that none forks away between two looks."""
        limit = time.monotonic() + seconds
        pids = self.payload()
        while pids and time.monotonic() < limit:
            for number_ in (signal.SIGSTOP, signal.SIGKILL):
                for pid in pids:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, number_)
            time.sleep(0.01)
            pids = self.payload()
        return pids

    def freeze(self, frozen, seconds=FREEZE_SECONDS):
        """Stop or continue all that the user runs here; False if not all obeyed in time."""
        if self.real:
            return self.groups.freeze(self.leaves.payload, frozen, seconds)
        return waited(lambda: self.signal_marked(signal.SIGSTOP if frozen else signal.SIGCONT), seconds)

    def signal_marked(self, number_):
        """True once a look finds no process that the signal has not reached."""
        wanted = (b"T",) if number_ == signal.SIGSTOP else (b"R", b"S", b"D", b"I")
        late = [pid for pid in self.payload() if state_of(pid) not in (*wanted, None)]
        for pid in late:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number_)
        return not late

    def is_frozen(self):
        if self.real:
            return self.groups.is_frozen(self.leaves.payload)
        states = [state_of(pid) for pid in self.payload()]
        return bool(states) and all(state == b"T" for state in states)

    def cpus(self):
        """The processors of the job on this node."""
        return self.groups.cpus(self.leaves.group)

    def enter_session(self, token):
        """Make a group of its own for one session below the payload; its name.  Those of ended sessions go."""
        leaf = "%s/s%d" % (self.leaves.payload, token)
        if self.real:
            self.groups.forget_sessions(self.leaves.payload)
            self.groups.make_leaf(leaf)
        return leaf

    def move(self, leaf, pid):
        """Move a process of a session to its group."""
        if self.real:
            self.groups.move(self.leaves, leaf, pid)

    def usage(self):
        return self.groups.usage(self.leaves)


def state_of(pid):
    content = node_base.read_process(pid, "stat")
    return None if content is None else content[content.rindex(b")") + 2 :].split()[0]
