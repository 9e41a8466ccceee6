"""Confines the jobs of this node: ``init`` before a job, ``clean`` after it, ``sweep`` of what should not be here.

Data (JSON, node.md 3.1).  All actions: ``oar_tmp_directory``, ``cpuset_path`` (null: keys and files only), ``options``
{``cgroup_manager``, ``memory``, ``processes``, ``devices``, ``mem_nodes``, ``clear_dirs``, ``max_uptime``,
``oardir``}, all optional.
``init`` and ``clean``: ``job_id``, ``name`` (of the group), ``user``, ``ssh_keys`` (null: none).  ``init`` also:
``nodes``, ``compute_thread_siblings``, ``resources``, ``node_file_db_fields``, ``node_file_db_fields_distinct_values``,
``array_id``, ``array_index``, ``stdout_file``, ``stderr_file``, ``launching_directory``, ``job_name``, ``project``,
``walltime``, ``walltime_seconds``, ``types``.  ``sweep``: ``jobs`` = [{``job_id``, ``name``}] that may be here.

``clean`` says one line ``{"job_id": n, "usage": {...}, "reason": {...}}`` with what the job used on this node, and what
oarexec found here when something of the job failed (null: nothing, see ``node_reasons``); ``sweep`` one line
``{"swept": name}`` for each job that it removed.  Every action may be repeated without harm.
"""

import base64
import contextlib
import errno
import json
import os
import re
import stat
import subprocess
import sys
import time

import node_base
import node_cgroups
import node_devices
from node_base import JobFiles, NodeError

SHORT = True  #: may be run by a worker of the session
TEXT = (str,)
OPTIONAL_TEXT = (str, type(None))
COMMON = {"oar_tmp_directory": TEXT, "cpuset_path": OPTIONAL_TEXT}
JOB = dict(COMMON, job_id=int, name=TEXT, user=TEXT)
INIT = dict(
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
KEY_TYPE = re.compile(r"(ssh-ed25519|ssh-rsa|ecdsa-sha2-nistp(256|384|521)|sk-[A-Za-z0-9@.-]+)\Z")
KEY_BODY = re.compile(r"[A-Za-z0-9+/]+={0,3}\Z")
JOB_OF_KEY = re.compile(
    r'environment="OAR_CPUSET=[^"]*",environment="OAR_JOB_USER=([^"]*)",environment="OAR_JOB_ID=(\d+)"'
)
OARSH_SHELL = "oarsh_shell"
DEFAULT_KEYS_FILE = ".ssh/authorized_keys_jobs"
CLEAR_SECONDS = 60.0
DEEPEST = 200
DIRECTORY_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
FIRST_USER_UID = 1000
LINKS = "/dev/oar_cgroups_links"
INITIAL_PID_NAMESPACE = "pid:[4026531836]"


def main(action, data):
    """Carry out one action; its exit code."""
    actions = {"init": init, "clean": clean, "sweep": sweep}
    try:
        if action not in actions:
            raise NodeError(3, "unknown action '%s'" % node_base.escaped(str(action)))
        actions[action](data)
    except NodeError as error:
        complain(data, error)
        return error.code
    return 0


def complain(data, error):
    job = data.get("job_id", "-") if isinstance(data, dict) else "-"
    node_base.complain("[job_resource_manager][%s][%s][ERROR] %s" % (job, node_base.this_node(), error))


def options_of(data):
    return data.get("options") or {}


def common_lock(data):
    return node_base.locked(data["oar_tmp_directory"] + "/job_manager_lock_file", 16)


# -- init --------------------------------------------------------------------------------------------------------------


def init(data, own_oarexec=False):
    """Make the job's group, files and key on this node.  ``own_oarexec``: the caller is this job's oarexec."""
    node_base.require(data, INIT)
    directory = node_base.runtime_directory(data["oar_tmp_directory"], 13)
    oar = node_base.oar_account()
    files = JobFiles(directory, data["job_id"])
    confinement = confinement_of(data)
    with node_base.locked(node_base.user_lock_path(directory, data["user"]), 17):
        forget_former_boot(files, data, oar, own_oarexec)
        make_group(data, confinement, files, own_oarexec)
        with node_base.acting_as(oar):
            write_job_files(data, files)
            add_key(data, files, oar)


def confinement_of(data):
    groups = node_cgroups.groups_of(data)
    return node_cgroups.Confinement(groups, data["name"], data["user"], data["job_id"])


def forget_former_boot(files, data, oar, own_oarexec):
    """A state file from before the last boot belongs to a life of the job that is over."""
    state = None if own_oarexec else node_base.read_state(files)
    if state is not None and state.get("boot_id") not in (None, node_base.boot_id()):
        with node_base.acting_as(oar):
            for path in files.of_oarexec() + files.of_user(data["user"]):
                node_base.remove_file(path)


def make_group(data, confinement, files, own_oarexec):
    groups = confinement.groups
    if not confinement.real:
        return
    if confinement.exists() and (own_oarexec or not node_base.lock_is_held(files)):
        left = confinement.kill()
        if left:
            raise NodeError(5, "a former attempt cannot be killed: %s" % described(left))
    cpus = cpus_of(data)
    try:
        with common_lock(data):
            groups.prepare()
            make_links(groups)
            if confinement.leaves.shared:
                cpus = share_cpus(data, cpus)
        mems = memory_nodes(data, cpus)
        groups.create(confinement.leaves, cpus, mems, memory_limit(data, cpus), process_limit(data, cpus))
        allowed = allowed_devices(data) if options_of(data).get("devices") else None
        if allowed is not None:
            node_devices.restrict(groups, confinement.leaves.payload, allowed)
    except OSError as error:
        raise NodeError(5, "cannot make the group %s: %s" % (data["name"], error)) from None


def cpus_of(data):
    """The processors of the job on this node."""
    cpus = node_cgroups.parse_cpus(data["nodes"].get(node_base.this_node(), []))
    online = node_cgroups.online_cpus()
    if not cpus:
        raise NodeError(5, "the resources of the job on this node name no processor")
    if not cpus <= online:
        strange = node_cgroups.cpu_list(cpus - online)
        raise NodeError(5, "processor %s of the resources does not exist on this node" % strange)
    if data.get("compute_thread_siblings") in (True, 1, "yes", "1"):
        return node_cgroups.with_siblings(cpus) & online
    return cpus


def memory_nodes(data, cpus):
    if options_of(data).get("mem_nodes") == "all":
        return set()
    return node_cgroups.memory_nodes_of(cpus)


def memory_limit(data, cpus):
    """The job's share of the node's memory, in bytes; None if the site does not limit."""
    if not options_of(data).get("memory"):
        return None
    found = re.search(r"MemTotal:\s+([0-9]+) kB", node_cgroups.read("/proc/meminfo"))
    total = int(found.group(1)) * 1024 if found else 0
    return total * len(cpus) // len(node_cgroups.online_cpus()) // 4096 * 4096


def process_limit(data, cpus):
    """Processes and threads that the job may have here; None if the site does not limit.

    A quarter of what the kernel can have stays with the system and the other jobs, whatever the site allows.
    """
    per_cpu = options_of(data).get("processes") or 0
    if per_cpu <= 0:
        return None
    most = node_cgroups.number("/proc/sys/kernel/pid_max") or 32768
    return min(per_cpu * len(cpus), most * 3 // 4)


def allowed_devices(data):
    """Values of the property ``gpudevice`` of the job's resources on this node; None if it is not used here.

    ``gpu_hosts`` of the data: nodes with GPUs of which the job has none.
    """
    here = [
        r
        for r in data["resources"]
        if r.get("network_address") == node_base.this_node() and r.get("gpudevice") not in (None, "")
    ]
    if not here and node_base.this_node() not in (data.get("gpu_hosts") or []):
        return None
    return [str(resource["gpudevice"]) for resource in here]


def make_links(groups):
    """The links that scripts of sites use; only where /dev is this machine's own."""
    if groups.manager != "cgroup1" or os.readlink("/proc/self/ns/pid") != INITIAL_PID_NAMESPACE:
        return
    with contextlib.suppress(OSError):
        node_cgroups.make(LINKS)
        for controller, mount in groups.mounts.items():
            if not os.path.lexists("%s/%s" % (LINKS, controller)):
                os.symlink(mount, "%s/%s" % (LINKS, controller))
        if not os.path.lexists("/dev/cpuset"):
            os.symlink(groups.mounts["cpuset"], "/dev/cpuset")


# -- groups that several jobs share (forced names) ---------------------------------------------------------------------


def sharing_file(data):
    return "%s/%s.shared" % (data["oar_tmp_directory"], data["name"])


def read_sharing(data):
    """Who is in the group: job id (text) -> list of processors."""
    content = node_base.read_file(sharing_file(data))
    return json.loads(content.decode("ascii")) if content else {"user": data["user"], "jobs": {}}


def write_sharing(data, sharing):
    with node_base.acting_as(node_base.oar_account()):
        node_base.write_file(sharing_file(data), json.dumps(sharing).encode("ascii"), 0o644)


def share_cpus(data, cpus):
    """Add a job to a shared group; the processors of all its jobs."""
    sharing = read_sharing(data)
    if sharing["user"] != data["user"]:
        raise NodeError(5, "the group %s holds jobs of user %s" % (data["name"], sharing["user"]))
    sharing["jobs"][str(data["job_id"])] = sorted(cpus)
    write_sharing(data, sharing)
    return set().union(*sharing["jobs"].values())


def leave_sharing(data, confinement):
    """Take a job out of its shared group; True if it was the last one."""
    sharing = read_sharing(data)
    sharing["jobs"].pop(str(data["job_id"]), None)
    if not sharing["jobs"]:
        node_base.remove_file(sharing_file(data))
        return True
    write_sharing(data, sharing)
    cpus = set().union(*sharing["jobs"].values())
    if os.path.isdir(confinement.groups.tracker(confinement.leaves.group)):
        confinement.groups.set_cpus(confinement.leaves.group, cpus, memory_nodes(data, cpus))
    return False


# -- files and keys of a job -------------------------------------------------------------------------------------------


def write_job_files(data, files):
    """Node file, resource properties, environment: each whole or not at all."""
    cpuset = "%s/%s" % (data["cpuset_path"], data["name"]) if data["cpuset_path"] else ""
    variables = node_base.job_variables(data, data["job_name"], cpuset)
    contents = {
        files.nodes: node_base.node_file(data),
        files.resources: node_base.resources_file(data),
        files.environment(data["user"]): environment_text(variables),
    }
    try:
        for path, text in contents.items():
            node_base.write_file(path, node_base.encode(text))
        if data.get("job_env"):
            given = json.dumps(data["job_env"]).encode("ascii")
            node_base.write_file(files.given(data["user"]), given, 0o600)
    except OSError as error:
        raise NodeError(19, "cannot write the files of the job: %s" % error.strerror) from None


def environment_text(variables):
    """``export NAME='value'`` lines; a value with a control character is left out."""
    lines = []
    for name, value in sorted(variables.items()):
        if not node_base.CONTROL.search(value):
            lines.append("export %s='%s'\n" % (name, value.replace("'", "'\\''")))
    return "".join(lines)


def add_key(data, files, oar):
    """The job's key, if it has one: the private half for its user's programs, the public one for sshd."""
    keys = data.get("ssh_keys")
    if not keys or not keys.get("public") or not keys["public"].get("key"):
        return
    public = clean_key(keys["public"]["key"])
    if own_key(public, oar):
        raise NodeError(13, "the key of the job is the key of %s itself" % oar.pw_name)
    try:
        node_base.write_file(files.key(data["user"]), node_base.encode(keys["private"]["key"]), 0o600)
    except OSError as error:
        raise NodeError(8, "cannot write the private key of the job: %s" % error.strerror) from None
    line = key_line(data, public, oar)
    change_keys(data, oar, lambda lines: [kept for kept in living(lines, files) if kept != line] + [line])


def clean_key(text):
    """A public key as ``type base64``: what else its user wrote is thrown away."""
    fields = text.split()
    if len(fields) < 2 or not KEY_TYPE.match(fields[0]) or not KEY_BODY.match(fields[1]):
        raise NodeError(10, "the public key of the job is not one that OpenSSH takes")
    try:
        base64.b64decode(fields[1], validate=True)
    except ValueError:
        raise NodeError(10, "the public key of the job is not one that OpenSSH takes") from None
    return fields[0] + " " + fields[1]


def own_key(public, oar):
    content = (node_base.read_file(oar.pw_dir + "/.ssh/authorized_keys") or b"").decode("utf-8", "surrogateescape")
    lines = [line for line in content.splitlines() if not JOB_OF_KEY.search(line)]
    return public.split()[1] in " ".join(lines).split()


def key_line(data, public, oar):
    environment = (
        ("OAR_CPUSET", "%s/%s" % (data["cpuset_path"] or "", data["name"])),
        ("OAR_JOB_USER", data["user"]),
        ("OAR_JOB_ID", str(data["job_id"])),
    )
    fields = ['environment="%s=%s"' % item for item in environment]
    oardir = options_of(data).get("oardir")
    login_shell = oar.pw_shell if os.path.basename(oar.pw_shell) == OARSH_SHELL else "/usr/lib/oar/" + OARSH_SHELL
    shell = "%s/%s" % (oardir, OARSH_SHELL) if oardir else login_shell
    fields += ['command="%s --oarsh"' % shell, "restrict", "pty", "X11-forwarding"]
    return ",".join(fields) + " " + public


def living(lines, files):
    """The key lines whose job still has its environment file here, and those of no job, which are the site's."""
    kept = []
    for line in lines:
        found = JOB_OF_KEY.search(line)
        if not found:
            kept.append(line)
            continue
        other = JobFiles(files.directory, int(found.group(2)))
        if os.path.exists(other.environment(found.group(1))):
            kept.append(line)
    return kept


def keys_file(data, oar):
    keys = data.get("ssh_keys") or {}
    name = (keys.get("public") or {}).get("file_name") or DEFAULT_KEYS_FILE
    path = os.path.normpath(os.path.join(oar.pw_dir, name))
    if path == os.path.join(oar.pw_dir, ".ssh/authorized_keys") and not keys.get("public"):
        raise NodeError(9, "job keys need a file of their own")
    return path


def change_keys(data, oar, change):
    """Replace the file of job keys by what ``change`` makes of its lines, under its lock, never in place."""
    path = keys_file(data, oar)
    with node_base.locked(data["oar_tmp_directory"] + "/authorized_keys.lock", 18):
        content = node_base.read_file(path)
        lines = (content or b"").decode("utf-8", "surrogateescape").splitlines()
        changed = change(lines)
        if changed == lines:
            return
        try:
            os.makedirs(os.path.dirname(path), 0o700, exist_ok=True)
            text = "".join(line + "\n" for line in changed)
            node_base.write_file(path, node_base.encode(text), 0o600, durable=True)
        except OSError as error:
            raise NodeError(11, "cannot replace %s: %s" % (path, error.strerror)) from None


# -- clean -------------------------------------------------------------------------------------------------------------


def clean(data):
    """Remove all of a job from this node; what it used is said to the server."""
    node_base.require(data, JOB)
    directory = node_base.runtime_directory(data["oar_tmp_directory"], 13)
    files = JobFiles(directory, data["job_id"])
    with node_base.locked(node_base.user_lock_path(directory, data["user"]), 17):
        reason = (node_base.read_state(files) or {}).get("reason")
        usage = clean_job(data, files)
    node_base.say(json.dumps({"job_id": data["job_id"], "usage": usage, "reason": reason}))
    reboot_if_old(data, directory)


def clean_job(data, files):
    """Steps 1 to 5 of node.md 3.4, under the user's lock; what the job used here."""
    oar = node_base.oar_account()
    try:
        with node_base.acting_as(oar):
            remove_key(data, files, oar)
    finally:  # without room for the other keys this one stays, and opens nothing; all else goes
        usage = clean_rest(data, files, oar)
    return usage


def clean_rest(data, files, oar):
    confinement = confinement_of(data)
    left = confinement.kill()
    usage = confinement.usage()
    if left:
        raise NodeError(6, "processes of the job cannot be killed: %s" % described(left))
    remove_group(data, confinement)
    with node_base.acting_as(oar):
        node_base.remove_file(files.environment(data["user"]))
    account = node_base.account_of(data["user"])
    is_last = account is not None and is_last_job(data, files, confinement.groups)
    if is_last:
        clear_user(account, clear_directories(data))
    with node_base.acting_as(oar):
        paths = files.of_user(data["user"]) + files.of_oarexec()
        if is_last:
            paths.append(node_base.login_variables(files.directory, account))
        for path in paths:
            node_base.remove_file(path)
        node_base.drop_unfinished_files(files.directory, {os.path.basename(path) for path in paths})
    return usage


def described(pids):
    return "; ".join(node_cgroups.description(pid) for pid in pids[:10])


def remove_key(data, files, oar):
    node_base.remove_file(files.key(data["user"]))
    if os.path.exists(keys_file(data, oar)):
        change_keys(
            data, oar, lambda lines: [line for line in living(lines, files) if job_of_key(line) != files.job_id]
        )


def job_of_key(line):
    found = JOB_OF_KEY.search(line)
    return int(found.group(2)) if found else None


def remove_group(data, confinement):
    if not confinement.real:
        return
    groups, leaves = confinement.groups, confinement.leaves
    if not leaves.shared:
        groups.remove(leaves.group)
        return
    for leaf in leaves.both():
        groups.remove(leaf)
    with common_lock(data):
        if leave_sharing(data, confinement):
            groups.remove(leaves.group)


def is_last_job(data, files, groups):
    """Has the user no other job on this node?  His environment files and groups tell."""
    mine = re.compile(re.escape(data["user"]) + r"_[0-9]+(\.env)?\Z")
    names = [name for name in os.listdir(files.directory) if name.endswith(".env")]
    return not [name for name in names + groups.names() if mine.match(name)]


# -- what a user leaves behind -----------------------------------------------------------------------------------------


def clear_directories(data):
    wanted = options_of(data).get("clear_dirs")
    wanted = ["/tmp", "/dev/shm", "/var/tmp"] if wanted is None else wanted
    return wanted.split() if isinstance(wanted, str) else list(wanted)


def clear_user(account, directories):
    """Remove IPC objects and files of a user whose last job here has ended; never of one who is logged in."""
    if account.pw_uid < FIRST_USER_UID or has_processes(account.pw_uid):
        return
    remove_ipc(account.pw_uid)
    clearing = Clearing(account.pw_uid)
    for path in directories:
        with contextlib.suppress(OSError):
            clearing.clear(path)


def has_processes(uid):
    """Does the user run anything?  Who has ended and waits to be buried does not count."""
    pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    return any(node_cgroups.owner_of(pid) == uid and not node_cgroups.has_ended(pid) for pid in pids)


class Clearing:
    """Removes what a user owns below a directory: by descriptor, no link followed, one file system, within a time."""

    def __init__(self, uid):
        self.uid = uid
        self.limit = time.monotonic() + CLEAR_SECONDS
        self.device = None

    def clear(self, path):
        fd = os.open(path, DIRECTORY_FLAGS)
        try:
            self.device = os.fstat(fd).st_dev
            self.clear_entries(fd, 0)
        finally:
            os.close(fd)

    def clear_entries(self, directory, depth):
        for name in os.listdir(directory):
            if time.monotonic() > self.limit:
                return
            with contextlib.suppress(FileNotFoundError, NotADirectoryError, PermissionError):
                found = os.stat(name, dir_fd=directory, follow_symlinks=False)
                if stat.S_ISDIR(found.st_mode):
                    self.clear_below(directory, name, depth)
                elif found.st_uid == self.uid:
                    os.unlink(name, dir_fd=directory)

    def clear_below(self, parent, name, depth):
        try:
            fd = os.open(name, DIRECTORY_FLAGS, dir_fd=parent)
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.EACCES, errno.ENOENT, errno.ENOTDIR):
                return
            raise
        try:
            found = os.fstat(fd)
            if found.st_dev != self.device or depth > DEEPEST or not self.may_have_written(found):
                return
            self.clear_entries(fd, depth + 1)
        finally:
            os.close(fd)
        if found.st_uid == self.uid:
            with contextlib.suppress(OSError):
                os.rmdir(name, dir_fd=parent)

    def may_have_written(self, directory):
        """Others cannot hold up the clean-up by what they have in directories of theirs."""
        return directory.st_uid == self.uid or directory.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def remove_ipc(uid):
    """Remove the System V message queues, shared memory and semaphores of a user."""
    removals = {"msg": "msgctl", "shm": "shmctl", "sem": "semctl"}
    for kind, function in removals.items():
        for identifier in ipc_objects(kind, uid):
            import ctypes

            libc = ctypes.CDLL(None, use_errno=True)
            arguments = (identifier, 0, 0) if kind == "sem" else (identifier, 0, None)
            getattr(libc, function)(*arguments)  # IPC_RMID is 0


def ipc_objects(kind, uid):
    lines = node_cgroups.read("/proc/sysvipc/" + kind).splitlines()
    if not lines:
        return []
    heads = lines[0].split()
    identifier, owner = heads.index({"msg": "msqid", "shm": "shmid", "sem": "semid"}[kind]), heads.index("uid")
    rows = (line.split() for line in lines[1:])
    return [int(row[identifier]) for row in rows if int(row[owner]) == uid]


def reboot_if_old(data, directory):
    """A site may want a node rebooted at the end of its last job after so much time up."""
    limit = options_of(data).get("max_uptime") or 0
    uptime = float(node_cgroups.read("/proc/uptime").split()[0])
    if limit <= 0 or uptime < limit or os.path.exists("/etc/oar/dont_reboot"):
        return
    if not any(re.search(r"_[0-9]+\.env\Z", name) for name in os.listdir(directory)):
        subprocess.call(["reboot"], stdin=subprocess.DEVNULL, timeout=30)


# -- sweep -------------------------------------------------------------------------------------------------------------


def sweep(data):
    """Remove every trace of jobs that may not be here; exit 0 only if the node is clean then."""
    node_base.require(data, dict(COMMON, jobs=list))
    directory = node_base.runtime_directory(data["oar_tmp_directory"], 13)
    known = {job["job_id"] for job in data["jobs"]}
    names = {job["name"] for job in data["jobs"]}
    groups = node_cgroups.groups_of(data)
    errors = []
    for job in strange_jobs(directory, groups, known, names):
        try:
            with node_base.locked(node_base.user_lock_path(directory, job["user"]), 17):
                clean_job(dict(data, **job), JobFiles(directory, job["job_id"]))
            node_base.say(json.dumps({"swept": job["name"], "job_id": job["job_id"]}))
        except NodeError as error:
            errors.append(str(error))
    node_base.drop_unfinished_files(directory)
    drop_strange_keys(data, known)
    if errors:
        raise NodeError(6, "; ".join(errors))


def strange_jobs(directory, groups, known, names):
    """Jobs that have files or groups here and may not: data for their cleaning."""
    found = {}
    for name in os.listdir(directory):
        match = re.match(r"(.+)_([0-9]+)\.env\Z", name)
        if match:
            found[int(match.group(2))] = {"user": match.group(1), "name": match.group(1) + "_" + match.group(2)}
    for name in os.listdir(directory):
        match = re.match(r"(?:([0-9]+)(?:_resources)?|oarexec_([0-9]+)\.(?:state|lock))\Z", name)
        if match:
            job_id = int(match.group(1) or match.group(2))
            found.setdefault(job_id, {"user": "oar", "name": "oar_%d" % job_id})
    for name in groups.names():
        for job_id, user in jobs_of_group(groups, name):
            if name not in names or job_id not in known:
                found[job_id] = {"user": user, "name": name}
    return [dict(job, job_id=job_id) for job_id, job in sorted(found.items()) if job_id not in known]


def jobs_of_group(groups, name):
    """(job id, user) of each job in a group: by its name, or by its leaves if several share it."""
    leaves = node_cgroups.names_in(groups.tracker(name))
    shared = sorted({int(m.group(1)) for m in (re.match(r"[a-z]+_([0-9]+)\Z", leaf) for leaf in leaves) if m})
    user = name.rsplit("_", 1)[0]
    if shared:
        return [(job_id, user) for job_id in shared]
    number = name.rsplit("_", 1)[-1]
    return [(int(number), user)] if number.isdigit() else []


def drop_strange_keys(data, known):
    oar = node_base.oar_account()
    with node_base.acting_as(oar):
        path = keys_file(data, oar)
        if os.path.exists(path):
            change_keys(data, oar, lambda lines: [line for line in lines if job_of_key(line) in {None, *known}])
            node_base.drop_unfinished_files(os.path.dirname(path), {os.path.basename(path)})


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], json.load(sys.stdin)))
