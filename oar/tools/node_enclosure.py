"""Encloses what users run on a host that is not theirs: commands of deploy and cosystem jobs, and of notifications.

Such a command has a control group of its own, with limits but without processors of its own, which is emptied and
removed when the command is over, whatever ended it.  Where control groups cannot be had, the process that runs it is
the parent of all its orphans (``PR_SET_CHILD_SUBREAPER``), and kills its descendants.

Data (``enclosure`` of a request): ``cpuset_path`` (of these groups; null: none), ``options`` {``cgroup_manager``},
``processes`` and ``memory`` (bytes): limits, 0 = none.
"""

import contextlib
import os

import node_base
import node_cgroups
from node_base import NodeError
from node_cgroups import Confinement

TYPE_CHECKING = False
if TYPE_CHECKING:
    from node_base import Data
    from node_cgroups import Groups

PR_SET_CHILD_SUBREAPER = 36


def confinement_of(job: "Data") -> Confinement:
    """Return the confinement of the job of which this process is the oarexec; ``job``: its data."""
    user, number = job["user"], job["job_id"]
    own_name = "%s_%d" % (user, number)
    if job.get("enclosure"):
        return enclose(job["enclosure"], own_name, user, number)
    path = job["cpuset_full_path"]
    options = job.get("options") or (job.get("init") or {}).get("options") or {}
    cpuset_path, _, name = (path or "/none").rpartition("/")
    groups = node_cgroups.groups_of({"cpuset_path": cpuset_path, "options": options})
    if groups is None:
        return without_groups(name if path else own_name, user, number)
    return Confinement(groups, name, user, number)


def enclose(data: "Data", name: str, user: str, number: int) -> Confinement:
    """Return the confinement of a command that this process will run; ``name`` of its group, ``number``: of the job.

    What a former life of the same number left is killed.  A watcher removes the group when this process is gone.
    """
    confinement = Confinement(groups_for(data), name, user, number)
    if confinement.groups is None:
        return without_groups(name, user, number)
    try:
        if confinement.exists():
            confinement.groups.kill(confinement.leaves.group)
        make_group(data, confinement, confinement.groups)
    except (OSError, NodeError) as error:
        node_base.complain("no control group for %s: %s" % (name, error))
        return without_groups(name, user, number)
    watch(confinement, confinement.groups)
    return confinement


def without_groups(name: str, user: str, number: int) -> Confinement:
    """Return the confinement of a command by this process, which is the parent of all its orphans from now on."""
    adopt_orphans()
    return Confinement(None, name, user, number, has_orphans=True)


def groups_for(data: "Data") -> "Groups | None":
    """Return the control groups of this host; None if it has none that can be used."""
    try:
        return node_cgroups.groups_of(data)
    except (OSError, NodeError):
        return None


def make_group(data: "Data", confinement: Confinement, groups: "Groups") -> None:
    """Make the group with the limits that this host can set."""
    groups.prepare()
    memory = data.get("memory") or None
    if not groups.has_memory():
        memory = None
    groups.create(confinement.leaves, None, set(), memory, data.get("processes") or None)


def adopt_orphans() -> None:
    with contextlib.suppress(ImportError, OSError):
        import ctypes

        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def watch(confinement: Confinement, groups: "Groups") -> None:
    """Fork a process outside the group that empties and removes it when this one has ended, even by SIGKILL."""
    read, write = os.pipe()  # only this process has the other end: an end of file is its end
    if os.fork() == 0:
        try:
            os.setpgid(0, 0)  # a signal to the group of this process does not end the watcher
            hold_only(read)
            while os.read(read, 1):
                pass
            confinement.kill()
            groups.remove(confinement.leaves.group)
        except (OSError, NodeError):  # nobody is there to be told; the next life of the number tries again
            pass
        finally:
            os._exit(0)
    os.close(read)
    os.set_inheritable(write, False)


def hold_only(descriptor: int) -> None:
    for name in os.listdir("/proc/self/fd"):
        if int(name) != descriptor:
            with contextlib.suppress(OSError):
                os.close(int(name))
