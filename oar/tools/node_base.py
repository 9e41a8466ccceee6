"""What the programs that run on a node share: checked data, files of the runtime directory, locks, identity, state.

Python >= 3.6, standard library only.  Loaded by name (``import node_base``) from the node session, or from the
directory of the installed programs.
"""

import contextlib
import errno
import fcntl
import json
import os
import pwd
import re
import stat
import struct
import sys
import time

#: Properties that are the system's own: not shown in the resource-properties file.
SYSTEM_PROPERTIES = frozenset(
    "resource_id state state_num next_state finaud_decision next_finaud_decision last_job_date suspended_jobs"
    " expiry_date scheduler_priority".split()
)
DEFAULT_PATH = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
ACCOUNT = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*\$?\Z")
CONTROL = re.compile("[\x00-\x1f\x7f]")
#: Lines to the session, not to the server: from now on this process is its own master; its request is over.
INDEPENDENT, DETACHED = "\0independent", "\0detached"
#: Phases of a job in its state file (node.md 4.4), in their order.
INIT, READY, STARTED, RUNNING, ENDED, ABORTED = "init", "ready", "started", "running", "ended", "aborted"


#: What a program of root starts as the user: only there does the user's environment hold.
AS_USER = """
import json, os, sys
with open(int(sys.argv[1])) as file:
    variables = {name.encode("latin-1"): value.encode("latin-1") for name, value in json.load(file)}
os.execve(sys.argv[2], sys.argv[2:], variables)
"""


class NodeError(Exception):
    """What ends a program on a node: the exit code, and the one line that says why."""

    def __init__(self, code, text):
        Exception.__init__(self, text)
        self.code = code


# -- data ------------------------------------------------------------------------------------------------------------


def require(data, kinds):
    """Refuse data (31) in which one of ``kinds`` (key -> type or tuple of types) is missing or of another type."""
    if not isinstance(data, dict):
        raise NodeError(31, "the data is not an object")
    for key, kind in kinds.items():
        if key not in data:
            raise NodeError(31, "the data lacks the key '%s'" % key)
        if not isinstance(data[key], kind) or (isinstance(data[key], bool) and kind is int):
            raise NodeError(31, "the key '%s' of the data is of type %s" % (key, type(data[key]).__name__))


def encode(text):
    """Text as the bytes that it stands for."""
    return text.encode("utf-8", "surrogateescape")


def escaped(text):
    """Foreign text for a message or a log: printable, short."""
    return "".join(c if c.isprintable() else "\\x%02x" % ord(c) for c in text[:200])


def say(text):
    """One line to the server."""
    os.write(1, encode(text) + b"\n")


def complain(text):
    os.write(2, encode(text) + b"\n")


# -- accounts --------------------------------------------------------------------------------------------------------


def oar_account():
    """The account that owns the files of ours: who became root to run this, or ``oar``."""
    uid = os.environ.get("SUDO_UID", "")
    try:
        return pwd.getpwuid(int(uid)) if uid.isdigit() and uid != "0" else pwd.getpwnam("oar")
    except KeyError:
        raise NodeError(8, "this node has no account oar") from None


def this_node():
    """Name of this node in the database, as the server called it."""
    return os.environ.get("TAKTUK_HOSTNAME") or os.uname().nodename


def account_of(name):
    """The passwd entry of a user, None if this node does not know him."""
    if not ACCOUNT.match(name):
        return None
    try:
        return pwd.getpwnam(name)
    except KeyError:
        return None


@contextlib.contextmanager
def acting_as(account):
    """Files made in here belong to ``account``; the privilege comes back afterwards."""
    if os.geteuid() != 0:
        yield
        return
    os.setegid(account.pw_gid)
    os.seteuid(account.pw_uid)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)


# -- files -----------------------------------------------------------------------------------------------------------


def runtime_directory(path, code):
    """Check the runtime directory, make it if it is missing; ``code`` if it cannot be trusted."""
    oar = oar_account()
    if not path.startswith("/"):
        raise NodeError(code, "the runtime directory '%s' is not an absolute path" % escaped(path))
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        try:
            os.makedirs(path, 0o755)
            os.chown(path, oar.pw_uid, oar.pw_gid)
        except OSError as error:
            raise NodeError(code, "cannot create the runtime directory %s: %s" % (path, error.strerror)) from None
        found = os.lstat(path)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != oar.pw_uid or found.st_mode & 0o022:
        raise NodeError(code, "%s must be a directory of %s that nobody else may write" % (path, oar.pw_name))
    return path


def write_file(path, content, mode=0o644, durable=False):
    """Write a file whole or not at all: temporary name, rename; ``durable`` also survives a power cut."""
    temporary = "%s/.%s.%d" % (os.path.dirname(path), os.path.basename(path), os.getpid())
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    fd = os.open(temporary, flags, mode)
    try:
        with os.fdopen(fd, "wb") as file:
            os.fchmod(fd, mode)
            file.write(content)
            file.flush()
            if durable:
                os.fsync(fd)
        os.rename(temporary, path)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
    if durable:
        directory = os.open(os.path.dirname(path), os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)


def hand_out(path, account):
    """Let a user read and run a file of oar (mode 0500), and nobody else: an entry in its access list.

    A file of his own he could change and fill the disk with; only where the file system has no such lists it becomes
    his all the same, since others must not read it.
    """
    nobody, read_and_run, nothing = 0xFFFFFFFF, 5, 0
    user, mask = (2, read_and_run, account.pw_uid), (16, read_and_run, nobody)
    entries = [(1, read_and_run, nobody), user, (4, nothing, nobody), mask, (32, nothing, nobody)]
    packed = struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)
    try:
        os.setxattr(path, "system.posix_acl_access", packed, follow_symlinks=False)
    except OSError as error:
        if error.errno != errno.EOPNOTSUPP:
            raise
        os.chown(path, account.pw_uid, account.pw_gid, follow_symlinks=False)


def drop_unfinished_files(directory, names=None):
    """Remove what writers that were killed have not given its name yet (of these ``names``): there may be secrets."""
    for name in os.listdir(directory):
        found = re.match(r"\.(.+)\.([0-9]+)\Z", name)
        is_asked = found and (names is None or found.group(1) in names)
        if is_asked and not os.path.exists("/proc/" + found.group(2)):
            remove_file(directory + "/" + name)


def remove_file(path):
    """True if it was there."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        return False
    return True


def read_file(path):
    """The bytes of a file, None if there is none."""
    try:
        with open(path, "rb") as file:
            return file.read()
    except FileNotFoundError:
        return None


def take_lock(path, code, seconds=60.0):
    """An exclusive lock that lives as long as its descriptor; ``code`` if another holds it for too long."""
    try:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise NodeError(code, "cannot open the lock %s: %s" % (path, error.strerror)) from None
    limit = time.monotonic() + seconds
    while not try_lock(fd):
        if time.monotonic() > limit:
            os.close(fd)
            raise NodeError(code, "another process holds the lock %s" % path)
        time.sleep(0.01)
    return fd


def try_lock(fd):
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EAGAIN, errno.EACCES):
            return False
        raise
    return True


@contextlib.contextmanager
def locked(path, code):
    fd = take_lock(path, code)
    try:
        yield
    finally:
        os.close(fd)


def user_lock_path(directory, user):
    """The lock for all that concerns one user on this node."""
    account = account_of(user)
    return "%s/user_%s.lock" % (directory, user if account is None else account.pw_uid)


def login_variables(directory, account):
    """Where pam_env finds the variables of the job that a user's logins are in."""
    return "%s/pam.%d.env" % (directory, account.pw_uid)


# -- identity of processes -------------------------------------------------------------------------------------------


def boot_id():
    with open("/proc/sys/kernel/random/boot_id") as file:
        return file.read().strip()


def start_time(pid):
    """When a process started, in ticks since boot (field 22 of its stat); None if there is no such process."""
    content = read_process(pid, "stat")
    if content is None:
        return None
    fields = content[content.rindex(b")") + 2 :].split()
    return None if fields[0] in (b"Z", b"X") else int(fields[19])


def read_process(pid, name):
    try:
        with open("/proc/%d/%s" % (pid, name), "rb") as file:
            return file.read()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return None


# -- the state file of a job -----------------------------------------------------------------------------------------


class JobFiles:
    """Names of one job's files in the runtime directory."""

    def __init__(self, directory, job_id):
        self.directory = directory
        self.job_id = job_id
        self.nodes = "%s/%d" % (directory, job_id)
        self.resources = "%s/%d_resources" % (directory, job_id)
        self.state = "%s/oarexec_%d.state" % (directory, job_id)
        self.lock = "%s/oarexec_%d.lock" % (directory, job_id)
        self.pid = "%s/pid_of_oarexec_for_jobId_%d" % (directory, job_id)
        self.signal = "%s/USER_SIGNAL_%d" % (directory, job_id)
        self.connections = "%s/oarsub_connections_%d" % (directory, job_id)
        self.main_session = "%s/main_session_%d.lock" % (directory, job_id)

    def had_session(self):
        """Has anybody come for the session of this interactive job?  Who comes writes there."""
        try:
            return os.stat(self.main_session).st_size > 0
        except OSError:
            return False

    def session_reason(self):
        """Why this interactive job had no shell, as who led its user there has written it; None if it had one."""
        lines = (read_file(self.main_session) or b"").splitlines()
        try:
            found = json.loads(lines[1].decode("ascii")) if len(lines) > 1 else None
        except ValueError:
            return None
        return found if isinstance(found, dict) else None

    def environment(self, user):
        return "%s/%s_%d.env" % (self.directory, user, self.job_id)

    def key(self, user):
        return "%s/%s_%d.jobkey" % (self.directory, user, self.job_id)

    def given(self, user):
        """Variables that the user gave to the job, as a JSON object: secrets may be among them."""
        return "%s/%s_%d.given" % (self.directory, user, self.job_id)

    def script(self, user):
        """The user's script, if the system keeps it for him."""
        return "%s/%s_%d.script" % (self.directory, user, self.job_id)

    def of_user(self, user):
        own = [self.environment(user), self.key(user), self.given(user), self.script(user)]
        return [self.nodes, self.resources, *own]

    def of_oarexec(self):
        return [self.pid, self.signal, self.connections, self.main_session, self.state, self.lock]


def given_variables(given):
    """Those of the variables that a user gave to a job that a process can have."""
    return {name: value for name, value in (given or {}).items() if NAME.match(name) and "\0" not in value}


def read_state(files):
    """The state file as a mapping; None if there is none or it says nothing."""
    content = read_file(files.state)
    if not content:
        return None
    try:
        state = json.loads(content.decode("utf-8"))
    except ValueError:
        return None
    return state if isinstance(state, dict) and isinstance(state.get("phase"), str) else None


def write_state(files, state):
    """Replace the state file, durably: what it says holds after a power cut too."""
    write_file(files.state, json.dumps(state).encode("ascii"), 0o600, durable=True)


def lock_is_held(files):
    """Is an oarexec of this job alive?  It holds its lock as long as it lives."""
    try:
        fd = os.open(files.lock, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        return not try_lock(fd)
    finally:
        os.close(fd)


def live_oarexec(files):
    """Pid of the job's oarexec, checked by its lock, start time and boot; None if there is none."""
    state = read_state(files)
    if state is None or state.get("boot_id") != boot_id() or not lock_is_held(files):
        return None
    pid = state.get("pid")
    return pid if isinstance(pid, int) and start_time(pid) == state.get("start_time") else None


# -- what a job's processes see --------------------------------------------------------------------------------------


def job_variables(data, job_name, cpuset):
    """The ``OAR_*`` variables of a job (node.md 4.3); ``cpuset`` is empty where there is no confinement."""
    files = JobFiles(
        data["oar_tmp_directory"] if "oar_tmp_directory" in data else data["tmp_directory"], data["job_id"]
    )
    variables = {"OAR_CPUSET": cpuset, "OAR_USER": data["user"], "OAR_JOB_NAME": job_name or ""}
    variables["OAR_PROJECT_NAME"] = data.get("project") or ""
    variables["OAR_RESOURCE_PROPERTIES_FILE"] = files.resources
    variables["OAR_JOB_TYPES"] = ";".join(type_text(name, value) for name, value in data.get("types", {}).items())
    variables["OAR_JOB_WALLTIME"] = data["walltime"]
    variables["OAR_JOB_WALLTIME_SECONDS"] = str(data["walltime_seconds"])
    for names, value in (
        ("OAR_JOB_ID OAR_JOBID", str(data["job_id"])),
        ("OAR_ARRAY_ID OAR_ARRAYID", str(data["array_id"])),
        ("OAR_ARRAY_INDEX OAR_ARRAYINDEX OAR_JOB_INDEX OAR_JOBINDEX", str(data["array_index"])),
        ("OAR_WORKDIR OAR_WORKING_DIRECTORY OAR_O_WORKDIR", data["launching_directory"]),
        ("OAR_NODEFILE OAR_NODE_FILE OAR_FILE_NODES OAR_RESOURCE_FILE", files.nodes),
    ):
        variables.update(dict.fromkeys(names.split(), value))
    for name, key in (("OAR_STDOUT", "stdout_file"), ("OAR_STDERR", "stderr_file")):
        if data.get(key):
            variables[name] = data[key].replace("%jobid%", str(data["job_id"]))
    return variables


def language():
    """The language that the site has set on this node; empty if none."""
    for path in ("/etc/default/locale", "/etc/locale.conf"):
        with contextlib.suppress(OSError), open(path, encoding="utf-8", errors="replace") as file:
            for line in file:
                if line.startswith("LANG="):
                    return line[5:].strip().strip("\"'")
    return ""


def type_text(name, value):
    return name if value in (1, True, "1", None) else "%s=%s" % (name, value)


def node_file(data):
    """Text of the node file: one line per distinct value among the resources of type default."""
    field = data["node_file_db_fields"]
    distinct = data["node_file_db_fields_distinct_values"]
    lines = {}
    for resource in data["resources"]:
        if resource.get("type", "default") == "default" and resource.get(field) not in (None, ""):
            lines.setdefault(str(resource.get(distinct)), str(resource[field]))
    return "".join(line + "\n" for line in sorted(lines.values()))


def resources_file(data):
    """Text of the resource-properties file: `` name = 'value' , name = 'value' `` per resource."""
    lines = []
    for resource in data["resources"]:
        shown = sorted(item for item in resource.items() if item[0] not in SYSTEM_PROPERTIES)
        parts = (" %s = '%s' " % (name, property_text(value)) for name, value in shown)
        lines.append(",".join(parts) + "\n")
    return "".join(lines)


def property_text(value):
    text = "" if value is None else str(value)
    return text.replace("\\", "\\\\").replace("'", "\\'")


# -- programs that root starts for a user ------------------------------------------------------------------------------


def by_systemd(account, argv, environment):
    """(words, environment) that let systemd start a program as the user, in a scope of the user's slice."""
    uid = account.pw_uid
    command = ["systemd-run", "-q", "--uid=%d" % uid, "--scope", "--collect", "--slice=user-%d.slice" % uid]
    command += [sys.executable, "-I", "-S", "-c", AS_USER, str(readable(environment)), *argv]
    return command, {"PATH": DEFAULT_PATH}


def readable(environment):
    """A descriptor from which the program that is executed next reads an environment."""
    import tempfile

    with tempfile.TemporaryFile() as file:
        pairs = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in environment.items()]
        file.write(json.dumps(pairs).encode("ascii"))
        file.seek(0)
        fd = os.dup(file.fileno())
    os.set_inheritable(fd, True)
    return fd
