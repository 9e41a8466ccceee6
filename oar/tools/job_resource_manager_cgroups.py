"""Confines the jobs of this node: ``init`` before a job, ``clean`` after it, ``sweep`` of what should not be here.

Data (JSON).  All actions: ``oar_tmp_directory``, ``cpuset_path`` (null: keys and files only), ``options``
{``cgroup_manager``, ``memory``, ``processes``, ``devices``, ``mem_nodes``, ``clear_dirs``, ``max_uptime``,
``oardir``, ``prologue``, ``epilogue``, ``script_seconds`` (time limit of both)}, all optional.
``init`` and ``clean``: ``job_id``, ``name`` (of the group), ``user``, ``ssh_keys`` (null: none).  ``init`` also:
``nodes`` (of each the values of the property that names processors), ``nodes_property`` (the name of that property,
optional), ``compute_thread_siblings``, ``resources``, ``node_file_db_fields``,
``node_file_db_fields_distinct_values``, ``first_nodes`` (of the node file, optional), ``array_id``, ``array_index``,
``stdout_file``, ``stderr_file``, ``launching_directory``, ``job_name``, ``project``, ``walltime``,
``walltime_seconds``, ``types``, ``memory_limits`` (MiB by node, optional).  ``sweep``: ``jobs`` = [{``job_id``,
``name``}] that may be here.

``clean`` says one line ``{"job_id": n, "usage": {...}, "reason": {...}}`` with what the job used on this node, and what
oarexec found here when something of the job failed (null: nothing, see ``node_faults``); ``sweep`` one line
``{"swept": name}`` for each job that it removed.  Every action may be repeated without harm.
"""

import contextlib
import json
import os
import re
import signal
import sys
import time

import node_base
import node_cgroups
import node_devices
import node_kernel
import node_keys
import node_leftovers
import node_scripts
from node_base import JobFiles, NodeError
from node_protocol import ManagerExit, ProgramAction

TYPE_CHECKING = False
if TYPE_CHECKING:
    import pwd
    from collections.abc import Callable, Collection, Iterable

    from node_base import Data, Kinds
    from node_cgroups import Confinement, Groups, Usage

SHORT = True  #: may be run by a worker of the session
#: Seconds for an oarexec to take the answer that it was given, and to be gone when it is killed.
PARTING_SECONDS, KILL_SECONDS = 2.0, 10.0
#: Seconds in which the last job of a user gets his lock alone, and between two looks for other jobs meanwhile.
CLEAR_PATIENCE, LOOK_SECONDS = 60.0, 0.1
TEXT = (str,)
OPTIONAL_TEXT = (str, type(None))
COMMON: "Kinds" = {"oar_tmp_directory": TEXT, "cpuset_path": OPTIONAL_TEXT}
JOB: "Kinds" = dict(COMMON, job_id=int, name=TEXT, user=TEXT)
INIT: "Kinds" = dict(
    JOB,
    nodes=dict,
    resources=list,
    node_file_db_fields=TEXT,
    node_file_db_fields_distinct_values=TEXT,
    array_id=int,
    array_index=int,
    launching_directory=TEXT,
    job_name=OPTIONAL_TEXT,
    project=OPTIONAL_TEXT,
    walltime=TEXT,
    walltime_seconds=int,
    types=dict,
)
LINKS = "/dev/oar_cgroups_links"
INITIAL_PID_NAMESPACE = "pid:[4026531836]"


def main(action: str, data: "Data") -> int:
    """Carry out one action; return its exit code."""
    actions: "dict[str, Callable[[Data], object]]" = {
        ProgramAction.INIT: init,
        ProgramAction.CLEAN: clean,
        ProgramAction.SWEEP: sweep,
    }
    try:
        if action not in actions:
            raise NodeError(ManagerExit.ACTION, "unknown action '%s'" % node_base.escaped(str(action)))
        actions[action](data)
    except NodeError as error:
        complain(data, error)
        return error.code
    return ManagerExit.OK


def is_repeatable(action: str, data: "Data") -> bool:
    """Return whether a request may run twice: not with programs of the site."""
    return action == ProgramAction.CLEAN and not node_base.options_of(data).get("epilogue")


def complain(data: "Data", error: NodeError) -> None:
    """Write an error as the server shows it: with the job and the node."""
    job = data.get("job_id", "-") if isinstance(data, dict) else "-"
    node_base.complain("[job_resource_manager][%s][%s][ERROR] %s" % (job, node_base.this_node(), error))


def common_lock(data: "Data") -> "contextlib.AbstractContextManager[None]":
    return node_base.locked(data["oar_tmp_directory"] + "/job_manager_lock_file", ManagerExit.COMMON_LOCK)


def job_lock(data: "Data", files: JobFiles) -> "contextlib.AbstractContextManager[None]":
    """Return the lock for all that concerns a job on this node; for a group of several jobs, all jobs of its user."""
    is_shared = data["name"] != "%s_%d" % (data["user"], data["job_id"])
    return node_base.job_locked(files.directory, data["user"], files.job_id, ManagerExit.USER_LOCK, is_shared)


# -- init --------------------------------------------------------------------------------------------------------------


def init(data: "Data", by_oarexec: bool = False) -> "Confinement":
    """Make the job's group, files and key on this node; return what confines it.

    ``by_oarexec``: the caller is this job's oarexec; where the site has a prologue, the server has prepared this node.
    """
    node_base.require(data, INIT)
    directory = node_base.runtime_directory(data["oar_tmp_directory"], ManagerExit.RUNTIME_DIRECTORY)
    oar = node_base.oar_account()
    files = JobFiles(directory, data["job_id"])
    confinement = confinement_of(data)
    with job_lock(data, files):
        if not by_oarexec:
            forget_former_boot(files, data, oar)
        if confinement.exists() and (by_oarexec or not node_base.lock_is_held(files)):
            with node_base.lives(directory):
                survivors = confinement.kill()
            if survivors:
                raise NodeError(ManagerExit.GROUP, "a former attempt cannot be killed: %s" % described(survivors))
        if confinement.groups is not None:
            make_group(data, confinement, confinement.groups)
        with node_base.acting_as(oar):
            hides_devices = bool(node_base.options_of(data).get("devices")) and confinement.groups is not None
            write_job_files(data, files, hides_devices)
            node_keys.add(data, files, oar)
    if not by_oarexec:
        run_prologue(data, files)
    return confinement


def run_prologue(data: "Data", files: JobFiles) -> None:
    """Run the prologue of the site; if it fails, remove the job from this node and raise NodeError."""
    try:
        node_scripts.run_prologue(data, files)
    except NodeError:
        clean_job(data, files)
        raise


def confinement_of(data: "Data") -> "Confinement":
    groups = node_cgroups.groups_of(data)
    return node_cgroups.Confinement(groups, data["name"], data["user"], data["job_id"])


def forget_former_boot(files: JobFiles, data: "Data", oar: "pwd.struct_passwd") -> None:
    """Remove the files of a life of the job that is over: its state file is from before the last boot."""
    state = node_base.read_state(files)
    if state is not None and state.get("boot_id") not in (None, node_base.boot_id()):
        with node_base.acting_as(oar):
            for path in files.of_oarexec() + files.of_user(data["user"]):
                node_base.remove_file(path)


def make_group(data: "Data", confinement: "Confinement", groups: "Groups") -> None:
    """Make the group of the job with its limits; raise NodeError if it cannot be made."""
    cpus = cpus_of(data)
    try:
        with common_lock(data):
            groups.prepare()
            make_links(groups)
            if confinement.leaves.shared:
                cpus = share_cpus(data, cpus)
        mems = memory_nodes(data, cpus)
        memory = asked_memory(data, confinement, groups) or memory_limit(data, cpus)
        groups.create(confinement.leaves, cpus, mems, memory, process_limit(data, cpus))
        allowed = node_devices.allowed_devices(data) if node_base.options_of(data).get("devices") else None
        if allowed is not None:
            node_devices.restrict(groups, confinement.leaves.payload, allowed)
    except OSError as error:
        raise NodeError(ManagerExit.GROUP, "cannot make the group %s: %s" % (data["name"], error)) from None


def cpus_of(data: "Data") -> "set[int]":
    """Return the processors of the job on this node; raise NodeError if there is none or one does not exist."""
    online = node_kernel.online_cpus()
    cpus: "set[int]" = set()
    for value in data["nodes"].get(node_base.this_node(), []):
        cpus |= cpus_of_value(data, value, online)
    if not cpus:
        raise NodeError(ManagerExit.DESCRIPTION, "%s must name at least one processor" % described_property(data, ""))
    if data.get("compute_thread_siblings") in (True, 1, "yes", "1"):
        return node_kernel.with_siblings(cpus) & online
    return cpus


def cpus_of_value(data: "Data", value: object, online: "set[int]") -> "set[int]":
    """Return the processors that a value of the property names; raise NodeError if this node does not have them."""
    with contextlib.suppress(NodeError):
        cpus = node_kernel.parse_cpus([value])
        if cpus <= online:
            return cpus
    has = node_kernel.read(node_kernel.ONLINE).strip()
    text = "%s is '%s', but this node has the processors %s only"
    shown = node_base.escaped(str(value))
    raise NodeError(ManagerExit.DESCRIPTION, text % (described_property(data, value), shown, has))


def described_property(data: "Data", value: object) -> str:
    """Return the name of the property that names processors, with the resource of this node that has a value."""
    name = data.get("nodes_property") or ""
    node = node_base.this_node()
    for resource in data["resources"]:
        if resource.get("network_address") == node and str(resource.get(name) or "") == str(value or ""):
            return "the property %s of resource %s" % (name, resource.get("resource_id"))
    return "the property %s of its resources here" % (name or "of processors")


def memory_nodes(data: "Data", cpus: "set[int]") -> "set[int]":
    """Return the memory nodes of the job; an empty set: all."""
    if node_base.options_of(data).get("mem_nodes") == "all":
        return set()
    return node_kernel.memory_nodes_of(cpus)


def asked_memory(data: "Data", confinement: "Confinement", groups: "Groups") -> "int | None":
    """Return the memory that the job asked for here, in bytes; None if it asked for none, or it cannot be limited.

    Several jobs in a group of a forced name have one limit: it is not that of one of them.
    """
    mib: "int | None" = (data.get("memory_limits") or {}).get(node_base.this_node())
    return mib << 20 if mib and groups.has_memory() and not confinement.leaves.shared else None


def memory_limit(data: "Data", cpus: "set[int]") -> "int | None":
    """Return the job's share of the node's memory, in bytes; None if the site does not limit."""
    if not node_base.options_of(data).get("memory"):
        return None
    match = re.search(r"MemTotal:\s+([0-9]+) kB", node_kernel.read("/proc/meminfo"))
    total = int(match.group(1)) * 1024 if match else 0
    return total * len(cpus) // len(node_kernel.online_cpus()) // 4096 * 4096


def process_limit(data: "Data", cpus: "set[int]") -> "int | None":
    """Return how many processes and threads the job may have here; None if the site does not limit.

    A quarter of what the kernel can have stays with the system and the other jobs, whatever the site allows.
    """
    per_cpu: int = node_base.options_of(data).get("processes") or 0
    if per_cpu <= 0:
        return None
    most = node_kernel.number("/proc/sys/kernel/pid_max") or 32768
    return min(per_cpu * len(cpus), most * 3 // 4)


def make_links(groups: "Groups") -> None:
    """Make the links that scripts of sites use; only where /dev is this machine's own."""
    if not isinstance(groups, node_cgroups.GroupsV1) or os.readlink("/proc/self/ns/pid") != INITIAL_PID_NAMESPACE:
        return
    with contextlib.suppress(OSError):
        node_cgroups.make(LINKS)
        for controller, mount in groups.mounts.items():
            if not os.path.lexists("%s/%s" % (LINKS, controller)):
                os.symlink(mount, "%s/%s" % (LINKS, controller))
        if not os.path.lexists("/dev/cpuset"):
            os.symlink(groups.mounts["cpuset"], "/dev/cpuset")


# -- groups that several jobs share (forced names) ---------------------------------------------------------------------


def sharing_file(data: "Data") -> str:
    return "%s/%s.shared" % (data["oar_tmp_directory"], data["name"])


def read_sharing(data: "Data") -> "Data":
    """Return who is in the group: ``user``, and ``jobs``, job id (text) -> list of processors."""
    content = node_base.read_file(sharing_file(data))
    if not content:
        return {"user": data["user"], "jobs": {}}
    sharing: "Data" = json.loads(content.decode("ascii"))
    return sharing


def write_sharing(data: "Data", sharing: "Data") -> None:
    with node_base.acting_as(node_base.oar_account()):
        node_base.write_file(sharing_file(data), json.dumps(sharing).encode("ascii"), 0o644)


def share_cpus(data: "Data", cpus: "set[int]") -> "set[int]":
    """Add a job to a shared group; return the processors of all its jobs.  Raises NodeError for another user."""
    sharing = read_sharing(data)
    if sharing["user"] != data["user"]:
        text = "the group %s holds jobs of user %s" % (data["name"], sharing["user"])
        raise NodeError(ManagerExit.GROUP, text)
    sharing["jobs"][str(data["job_id"])] = sorted(cpus)
    write_sharing(data, sharing)
    return set().union(*sharing["jobs"].values())


def leave_sharing(data: "Data", confinement: "Confinement", groups: "Groups") -> bool:
    """Take a job out of its shared group; return whether it was the last one."""
    sharing = read_sharing(data)
    sharing["jobs"].pop(str(data["job_id"]), None)
    if not sharing["jobs"]:
        node_base.remove_file(sharing_file(data))
        return True
    write_sharing(data, sharing)
    cpus: "set[int]" = set().union(*sharing["jobs"].values())
    if os.path.isdir(groups.tracker(confinement.leaves.group)):
        groups.set_cpus(confinement.leaves.group, cpus, memory_nodes(data, cpus))
    return False


# -- files of a job ----------------------------------------------------------------------------------------------------


def write_job_files(data: "Data", files: JobFiles, hidden: bool = False) -> None:
    """Write node file, resource properties, environment: each whole or not at all.  Raises NodeError.

    ``hidden``: the job is refused the GPUs of others here.
    """
    cpuset = "%s/%s" % (data["cpuset_path"], data["name"]) if data["cpuset_path"] else ""
    variables = node_base.job_variables(data, data["job_name"], cpuset)
    allowed = node_devices.allowed_devices(data)
    if allowed is not None:
        variables.update(node_devices.gpu_variables(allowed, hidden, node_devices.has_amd()))
    contents = {
        files.nodes: node_base.node_file(data),
        files.resources: node_base.resources_file(data),
        files.environment(data["user"]): environment_text(variables),
    }
    try:
        for path, text in contents.items():
            node_base.write_file(path, node_base.encode(text))
        if data.get("job_env"):
            variables_of_user = json.dumps(data["job_env"]).encode("ascii")
            node_base.write_file(files.user_variables(data["user"]), variables_of_user, 0o600)
    except OSError as error:
        raise NodeError(ManagerExit.JOB_FILES, "cannot write the files of the job: %s" % error.strerror) from None


def environment_text(variables: "dict[str, str]") -> str:
    """Return ``export NAME='value'`` lines; a value with a control character is left out."""
    lines = []
    for name, value in sorted(variables.items()):
        if not node_base.CONTROL.search(value):
            lines.append("export %s='%s'\n" % (name, value.replace("'", "'\\''")))
    return "".join(lines)


# -- clean -------------------------------------------------------------------------------------------------------------


def clean(data: "Data") -> None:
    """Remove all of a job from this node; what it used is said to the server.  Raises NodeError if anything stays."""
    node_base.require(data, JOB)
    directory = node_base.runtime_directory(data["oar_tmp_directory"], ManagerExit.RUNTIME_DIRECTORY)
    files = JobFiles(directory, data["job_id"])
    failure = run_epilogue(data, files)
    usage, fault = clean_job(data, files)
    node_base.say(json.dumps({"job_id": data["job_id"], "usage": usage, "reason": fault}))
    reboot_if_old(data, directory)
    if failure:
        raise failure


def run_epilogue(data: "Data", files: JobFiles) -> "NodeError | None":
    """End the processes of a job that was prepared here, then run the epilogue of the site; return its failure.

    The lock of the user is free meanwhile: his other jobs do not wait.  Raises NodeError if processes cannot be killed.
    """
    if not (node_base.options_of(data).get("epilogue") and os.path.exists(files.environment(data["user"]))):
        return None
    with job_lock(data, files), node_base.lives(files.directory):
        end_processes(confinement_of(data), files, node_base.oar_account())
    try:
        node_scripts.run_epilogue(data, files)
    except NodeError as error:
        return error
    return None


def withdraw(data: "Data | None", files: JobFiles) -> None:
    """Remove what the calling oarexec, which begins nothing, has made; ``data``: what it had to do here."""
    if data:
        clean_job(data, files, by_oarexec=True)
        return
    for path in files.of_oarexec():
        node_base.remove_file(path)


def clean_job(data: "Data", files: JobFiles, by_oarexec: bool = False) -> "tuple[Usage, Data | None]":
    """Clean up after a job; return what it used here, and what oarexec found. See docs/design/nodes.rst, "Clean-up".

    ``by_oarexec``: the caller is this job's oarexec, and leaves the group before that is removed.
    """
    oar = node_base.oar_account()
    with job_lock(data, files):
        fault = (node_base.read_state(files) or {}).get("reason")
        failure = remove_key(data, files, oar)
        confinement = confinement_of(data)
        if by_oarexec and confinement.groups is not None:
            confinement.groups.leave()
        usage = remove_processes(data, files, confinement)
        listed = remove_files(data, files)
    clear_user(data, files, listed, confinement.groups)
    if failure:
        raise failure
    return usage, fault


def remove_key(data: "Data", files: JobFiles, oar: "pwd.struct_passwd") -> "Exception | None":
    """Remove the key of a job.  Return why the public half stays: without room for the others it opens nothing."""
    try:
        with node_base.acting_as(oar):
            node_keys.remove(data, files, oar)
    except (NodeError, OSError) as error:
        return error
    return None


def remove_processes(data: "Data", files: JobFiles, confinement: "Confinement") -> "Usage":
    """Kill the processes of a job, remove its group, and the file by which it counts as a job of its user here."""
    oar = node_base.oar_account()
    with node_base.lives(files.directory):  # nor does an oarexec come back into the group in here
        end_processes(confinement, files, oar)
        usage = confinement.usage()
        if confinement.groups is not None:
            remove_group(data, confinement, confinement.groups)
    with node_base.acting_as(oar):
        node_base.remove_file(files.environment(data["user"]))
    return usage


def remove_files(data: "Data", files: JobFiles) -> "list[str]":
    """Remove the files of a job; return the names in the directory when this began."""
    listed = os.listdir(files.directory)  # once: they are hundreds on a node with many jobs
    paths = files.of_user(data["user"]) + files.of_oarexec()
    with node_base.acting_as(node_base.oar_account()):
        for path in paths:
            node_base.remove_file(path)
        node_base.drop_unfinished_files(files.directory, {os.path.basename(path) for path in paths}, listed)
    return listed


def clear_user(data: "Data", files: JobFiles, listed: "list[str]", groups: "Groups | None") -> None:
    """Remove all of a user whose last job here has been removed, while none of his jobs can begin.

    The lock of the user held alone is enough: a job that has begun meanwhile is seen, then its clean-up does this.  The
    lock of the removed job is free meanwhile, because jobs of other users wait for it.

    ``listed``: the names in the directory after the end of the job.
    """
    account = node_base.account_of(data["user"])
    if account is None or not is_last_job(data, listed, groups):
        return
    lock = node_base.open_lock(node_base.user_lock_path(files.directory, data["user"]), ManagerExit.USER_LOCK)
    limit = time.monotonic() + CLEAR_PATIENCE
    try:
        while not node_base.lock_within(lock, LOOK_SECONDS):
            if not is_last_job(data, os.listdir(files.directory), groups):
                return
            if time.monotonic() > limit:
                raise NodeError(ManagerExit.USER_LOCK, "the jobs of %s here do not become settled" % data["user"])
        if is_last_job(data, os.listdir(files.directory), groups):
            node_leftovers.clear_user(account, directories_to_clear(data))
            with node_base.acting_as(node_base.oar_account()):
                node_base.remove_file(node_base.login_variables(files.directory, account))
    finally:
        os.close(lock)


def end_processes(confinement: "Confinement", files: JobFiles, oar: "pwd.struct_passwd") -> None:
    """Kill the processes of a job; raise NodeError if one cannot be killed."""
    survivors = confinement.kill()
    if confinement.groups is not None:
        survivors += end_reporter(files, oar)
    if survivors:
        raise NodeError(ManagerExit.REMOVAL, "processes of the job cannot be killed: %s" % described(survivors))


def end_reporter(files: JobFiles, oar: "pwd.struct_passwd") -> "list[int]":
    """End an oarexec that is out of the group and still tells the end of the job, which who has it cleaned knows.

    Return it if it cannot be killed.  One that has just been heard gives its lock away by itself, and serves again.
    """
    with node_base.acting_as(oar):
        pid = node_base.live_oarexec(files)
        is_other = pid is not None and pid != os.getpid()  # it may be oarexec that undoes what it has begun
        if not is_other or node_kernel.waited(lambda: not node_base.lock_is_held(files), PARTING_SECONDS):
            return []
    assert pid is not None
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    with node_base.acting_as(oar):
        return [] if node_kernel.waited(lambda: not node_base.lock_is_held(files), KILL_SECONDS) else [pid]


def described(pids: "list[int]") -> str:
    return "; ".join(node_kernel.description(pid) for pid in pids[:10])


def remove_group(data: "Data", confinement: "Confinement", groups: "Groups") -> None:
    """Remove the group of a job; of a shared one the leaves, and the group with its last job."""
    leaves = confinement.leaves
    if not leaves.shared:
        groups.remove(leaves.group)
        return
    for leaf in leaves.both():
        groups.remove(leaf)
    with common_lock(data):
        if leave_sharing(data, confinement, groups):
            groups.remove(leaves.group)


def is_last_job(data: "Data", listed: "Iterable[str]", groups: "Groups | None") -> bool:
    """Return whether the user has no other job on this node, by his environment files (``listed``) and groups."""
    job_of_user = re.compile(re.escape(data["user"]) + r"_[0-9]+(\.env)?\Z")
    environments = (name for name in listed if name.endswith(".env"))
    return not (any(map(job_of_user.match, environments)) or any(map(job_of_user.match, names_of(groups))))


def names_of(groups: "Groups | None") -> "list[str]":
    """Return the names of the groups on this node; none where jobs have none."""
    return [] if groups is None else groups.names()


def directories_to_clear(data: "Data") -> "list[str]":
    choice = node_base.options_of(data).get("clear_dirs")
    if choice is None:
        return ["/tmp", "/dev/shm", "/var/tmp"]
    return choice.split() if isinstance(choice, str) else list(choice)


def reboot_if_old(data: "Data", directory: str) -> None:
    """Reboot the node at the end of its last job, where a site wants that after so much time up."""
    limit = node_base.options_of(data).get("max_uptime") or 0
    uptime = float(node_kernel.read("/proc/uptime").split()[0])
    if limit <= 0 or uptime < limit or os.path.exists("/etc/oar/dont_reboot"):
        return
    if not any(re.search(r"_[0-9]+\.env\Z", name) for name in os.listdir(directory)):
        import subprocess

        subprocess.call(["reboot"], stdin=subprocess.DEVNULL, timeout=30)


# -- sweep -------------------------------------------------------------------------------------------------------------


def sweep(data: "Data") -> None:
    """Remove every trace of jobs that may not be here; raise NodeError if the node is not clean then, or goes down."""
    if node_kernel.is_going_down():
        raise NodeError(ManagerExit.REMOVAL, "%s goes down" % node_base.this_node())
    node_base.require(data, dict(COMMON, jobs=list))
    directory = node_base.runtime_directory(data["oar_tmp_directory"], ManagerExit.RUNTIME_DIRECTORY)
    job_ids = {job["job_id"] for job in data["jobs"]}
    names = {job["name"] for job in data["jobs"]}
    errors = []
    for job in strange_jobs(directory, node_cgroups.groups_of(data), job_ids, names):
        files = JobFiles(directory, job["job_id"])
        try:
            failure = run_epilogue(dict(data, **job), files)
            clean_job(dict(data, **job), files)
            node_base.say(json.dumps({"swept": job["name"], "job_id": job["job_id"]}))
            if failure:
                raise failure
        except NodeError as error:
            errors.append(str(error))
    node_base.drop_unfinished_files(directory)
    oar = node_base.oar_account()
    with node_base.acting_as(oar):
        node_keys.keep_only(data, oar, job_ids)
    if errors:
        raise NodeError(ManagerExit.REMOVAL, "; ".join(errors))


def strange_jobs(
    directory: str, groups: "Groups | None", job_ids: "Collection[int]", names: "Collection[str]"
) -> "list[Data]":
    """Return the jobs that have files or groups here and may not, as data for their cleaning.

    ``job_ids`` and ``names`` of groups: those that may be here.
    """
    jobs = jobs_with_files(os.listdir(directory))
    if groups is not None:
        for name in groups.names():
            for job_id, user in jobs_of_group(groups, name):
                if name not in names or job_id not in job_ids:
                    jobs[job_id] = {"user": user, "name": name}
    return [dict(job, job_id=job_id) for job_id, job in sorted(jobs.items()) if job_id not in job_ids]


def jobs_with_files(names: "Iterable[str]") -> "dict[int, Data]":
    """Return user and group of the jobs to which these files of the runtime directory belong."""
    jobs: "dict[int, Data]" = {}
    for name in names:
        match = re.match(r"(.+)_([0-9]+)\.env\Z", name)
        if match:
            jobs[int(match.group(2))] = {"user": match.group(1), "name": match.group(1) + "_" + match.group(2)}
    for name in names:
        match = re.match(r"(?:([0-9]+)(?:_resources)?|oarexec_([0-9]+)\.(?:state|lock))\Z", name)
        if match:
            job_id = int(match.group(1) or match.group(2))
            jobs.setdefault(job_id, {"user": "oar", "name": "oar_%d" % job_id})
    return jobs


def jobs_of_group(groups: "Groups", name: str) -> "list[tuple[int, str]]":
    """Return (job id, user) of each job in a group: by its name, or by its leaves if several share it."""
    user, number = name.rsplit("_", 1)[0], name.rsplit("_", 1)[-1]
    matches = [re.match(r"[a-z]+_([0-9]+)\Z", leaf) for leaf in node_cgroups.names_in(groups.tracker(name))]
    shared = sorted({int(match.group(1)) for match in matches if match})
    if shared:
        return [(job_id, user) for job_id in shared]
    return [(int(number), user)] if number.isdigit() else []


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], json.load(sys.stdin)))
