"""What the programs that run on a node share: checked data, files of the runtime directory, locks, identity, state.

Python >= 3.6, standard library only.  Loaded by name (``import node_base``) from the node session, or from the
directory of the installed programs.

Annotations are texts wherever they are more than a name, and what only they need is imported for mypy alone, below
``if TYPE_CHECKING``.  Python 3.6 knows neither ``X | Y`` nor ``list[X]``, and to import ``typing`` would take 4 ms more
(9 ms with Python 3.6) than the 26 (34) in which a session of a user starts.
"""

import contextlib
import errno
import fcntl
import functools
import json
import os
import pwd
import re
import stat
import struct
import sys
import time

from node_protocol import ManagerExit, OarexecExit

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
    from typing import Any

    #: A JSON object from the server; ``require`` checks its keys.
    Data = dict[str, Any]
    #: The type, or types, of each key that is required.
    Kinds = Mapping[str, type | tuple[type, ...]]

#: Properties that are the system's own: not shown in the resource-properties file.
SYSTEM_PROPERTIES = {
    *("resource_id", "state", "state_num", "next_state", "finaud_decision", "next_finaud_decision", "last_job_date"),
    *("suspended_jobs", "expiry_date", "scheduler_priority"),
}
DEFAULT_PATH = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
ACCOUNT = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*\$?\Z")
EXPORT = re.compile(r"export ([A-Za-z_][A-Za-z0-9_]*)='((?:[^']|'\\'')*)'\Z")
CONTROL = re.compile("[\x00-\x1f\x7f]")
READ_SIZE = 1 << 14  #: bytes of a file that are read at a time
#: Lines to the session, not to the server: from now on this process is its own master; its request is over.
INDEPENDENT, DETACHED = "\0independent", "\0detached"

#: What a power cut leaves of a file that was just written: anything, even an empty file; it or what was there before;
#: it.
UNSAFE, WHOLE, DURABLE = range(3)
JOB_LOCKS = 64  #: lock files of jobs, see ``job_locked``
LOCK_SECONDS = 60.0  #: longest wait for a lock
GATE_SECONDS = 30.0  #: so long who shares the lock of a user lets those go first who want it alone

#: What a program of root starts as the user: only there does the user's environment hold.
AS_USER = """
import json, os, sys
with open(int(sys.argv[1])) as file:
    variables = {name.encode("latin-1"): value.encode("latin-1") for name, value in json.load(file)}
os.execve(sys.argv[2], sys.argv[2:], variables)
"""


def sha256_of_python() -> "Callable[[bytes], Any]":
    """Return the SHA-256 of Python itself: ``hashlib`` loads OpenSSL, whose pages each fork of a session would copy."""
    for name in ("_sha256", "_sha2"):  # Python up to 3.11, and since 3.12
        with contextlib.suppress(ImportError):
            function: "Callable[[bytes], Any]" = __import__(name).sha256
            return function
    import hashlib

    return hashlib.sha256


sha256 = sha256_of_python()


class NodeError(Exception):
    """What ends a program on a node: the exit code, and the one line that says why."""

    def __init__(self, code: int, text: str) -> None:
        Exception.__init__(self, text)
        self.code = code


# -- data ------------------------------------------------------------------------------------------------------------


def require(data: "Data", kinds: "Kinds") -> None:
    """Raise NodeError if one of the keys of ``kinds`` is missing in the data, or of a type that is not its."""
    if not isinstance(data, dict):
        raise NodeError(ManagerExit.INCOMPLETE, "the data is not an object")
    for key, kind in kinds.items():
        if key not in data:
            raise NodeError(ManagerExit.INCOMPLETE, "the data lacks the key '%s'" % key)
        value = data[key]
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is int):
            text = "the key '%s' of the data is of type %s" % (key, type(value).__name__)
            raise NodeError(ManagerExit.INCOMPLETE, text)


def options_of(data: "Data") -> "Data":
    """Return how the site wants jobs to be confined: the option ``options`` of the data, empty if it is missing."""
    options: "Data" = data.get("options") or {}
    return options


def encode(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def escaped(text: str) -> str:
    """Return foreign text for a message or a log: printable, and no more than 200 characters of it."""
    return "".join(c if c.isprintable() else "\\x%02x" % ord(c) for c in text[:200])


def say(text: str) -> None:
    """Write one line to the server."""
    os.write(1, encode(text) + b"\n")


def complain(text: str) -> None:
    """Write one line to the standard error."""
    os.write(2, encode(text) + b"\n")


# -- accounts --------------------------------------------------------------------------------------------------------


def oar_account() -> pwd.struct_passwd:
    """Return the account that owns the files of OAR: who became root to run this, or ``oar``."""
    try:
        return account_of_caller(os.environ.get("SUDO_UID", ""))
    except KeyError:
        raise NodeError(OarexecExit.RUNTIME_DIRECTORY, "this node has no account oar") from None


@functools.lru_cache(maxsize=None)
def account_of_caller(uid: str) -> pwd.struct_passwd:
    """Return the account of a ``SUDO_UID``, or ``oar``; raise KeyError.  Looked up once: a job asks seven times."""
    return pwd.getpwuid(int(uid)) if uid.isdigit() and uid != "0" else pwd.getpwnam("oar")


def this_node() -> str:
    """Return the name of this node in the database, as the server called it."""
    return os.environ.get("TAKTUK_HOSTNAME") or os.uname().nodename


def account_of(user: str) -> "pwd.struct_passwd | None":
    """Return the account of a user, None if this node does not know him, or runs nothing as him."""
    account = known_account(user)
    return None if account is None or is_privileged(account) else account


def known_account(user: str) -> "pwd.struct_passwd | None":
    """Return the account of any name, None if this node does not know it."""
    if not ACCOUNT.match(user):
        return None
    try:
        return pwd.getpwnam(user)
    except KeyError:
        return None


def is_privileged(account: pwd.struct_passwd) -> bool:
    """Return whether an account has power over nodes: whoever can write jobs into the database must not get it."""
    return account.pw_uid in (0, oar_account().pw_uid)


def why_no_account(user: str) -> str:
    """Return why ``account_of`` knows no account of a user."""
    text = "'%s' is not known on %s" if known_account(user) is None else "'%s' must not run jobs on %s"
    return "user " + text % (escaped(user), this_node())


@contextlib.contextmanager
def acting_as(account: pwd.struct_passwd) -> "Iterator[None]":
    """Let files that are made in here belong to ``account``; the privilege comes back afterwards."""
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


def runtime_directory(path: str, code: int) -> str:
    """Return the path of the runtime directory, which is made if it is missing.

    Raises NodeError with ``code`` if it cannot be trusted.
    """
    oar = oar_account()
    if not path.startswith("/"):
        raise NodeError(code, "the runtime directory '%s' is not an absolute path" % escaped(path))
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        try:
            make_directory_of(path, oar)
        except OSError as error:
            raise NodeError(code, "cannot create the runtime directory %s: %s" % (path, error.strerror)) from None
        status = os.lstat(path)
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != oar.pw_uid or status.st_mode & 0o022:
        raise NodeError(code, "%s must be a directory of %s that nobody else may write" % (path, oar.pw_name))
    return path


def make_directory_of(path: str, account: pwd.struct_passwd) -> None:
    """Create a directory that belongs to ``account``; another process may create it at the same time.

    A rename creates it with its owner: no process can see it before.  It replaces an empty directory only.
    """
    parent, name = os.path.split(path.rstrip("/"))
    os.makedirs(parent, 0o755, exist_ok=True)
    temporary = "%s/.%s.%s" % (parent, name, os.urandom(8).hex())
    os.mkdir(temporary, 0o755)
    try:
        os.chown(temporary, account.pw_uid, account.pw_gid)
        os.rename(temporary, path)
    except OSError as error:
        os.rmdir(temporary)
        if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
            raise


def write_file(path: str, content: bytes, mode: int = 0o644, safety: int = UNSAFE) -> None:
    """Write a file whole or not at all: temporary name, rename.  ``safety``: what survives a power cut."""
    temporary = "%s/.%s.%d" % (os.path.dirname(path), os.path.basename(path), os.getpid())
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    fd = os.open(temporary, flags, mode)
    try:
        try:
            os.fchmod(fd, mode)
            write_all(fd, content)
            if safety >= WHOLE:
                os.fsync(fd)
        finally:
            os.close(fd)
        os.rename(temporary, path)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
    if safety >= DURABLE:
        flush_directory(os.path.dirname(path))


def write_all(fd: int, content: bytes) -> None:
    while content:
        content = content[os.write(fd, content) :]


def content_of(path: str) -> bytes:
    """Return the content of a file; raise OSError if it cannot be read.

    Without the file objects of Python, which cost three times as much: a job reads fifty small files of the kernel.
    """
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        blocks = [os.read(fd, READ_SIZE)]
        while blocks[-1]:
            blocks.append(os.read(fd, READ_SIZE))
        return b"".join(blocks)
    finally:
        os.close(fd)


def flush_directory(path: str) -> None:
    """Wait until the names in a directory are on the disk."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def hand_out(path: str, account: pwd.struct_passwd) -> None:
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


def drop_unfinished_files(
    directory: str, names: "Collection[str] | None" = None, listed: "Sequence[str] | None" = None
) -> None:
    """Remove the temporary files of writers that were killed, for there may be secrets in them.

    ``names``: only those that were to become these files.  ``listed``: the names in the directory, if they are known.
    """
    listed = os.listdir(directory) if listed is None else listed
    for name in [name for name in listed if name[0] == "."]:  # of hundreds on a node with many jobs
        match = re.match(r"\.(.+)\.([0-9]+)\Z", name)
        if match is None or (names is not None and match.group(1) not in names):
            continue
        if not os.path.exists("/proc/" + match.group(2)):
            remove_file(directory + "/" + name)


def remove_file(path: str) -> bool:
    """Remove a file; return whether it was there."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        return False
    return True


def read_file(path: str) -> "bytes | None":
    """Return the content of a file, None if it does not exist."""
    try:
        return content_of(path)
    except FileNotFoundError:
        return None


def take_lock(path: str, code: int, seconds: float = LOCK_SECONDS, shared: bool = False) -> int:
    """Return the descriptor of a locked file; the lock lives as long as the descriptor.

    ``shared``: with others who want no more.  Raises NodeError with ``code`` if another process holds the lock for
    longer than ``seconds``.
    """
    fd = open_lock(path, code)
    if not lock_within(fd, seconds, shared):
        os.close(fd)
        raise NodeError(code, "another process holds the lock %s" % path)
    return fd


def open_lock(path: str, code: int) -> int:
    """Return the descriptor of a lock file, which is made if it is missing; raise NodeError with ``code``."""
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise NodeError(code, "cannot open the lock %s: %s" % (path, error.strerror)) from None


def lock_within(fd: int, seconds: float, shared: bool = False) -> bool:
    """Lock an open file as soon as others let it go; return whether that went within ``seconds``."""
    limit = time.monotonic() + seconds
    while not try_lock(fd, shared):
        if time.monotonic() > limit:
            return False
        time.sleep(0.01)
    return True


def try_lock(fd: int, shared: bool = False) -> bool:
    """Lock an open file if nobody else holds it, or only shares it as we want to; return whether that went."""
    try:
        fcntl.flock(fd, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EAGAIN, errno.EACCES):
            return False
        raise
    return True


@contextlib.contextmanager
def locked(path: str, code: int, shared: bool = False) -> "Iterator[None]":
    """Hold a lock in here, see ``take_lock``."""
    fd = take_lock(path, code, shared=shared)
    try:
        yield
    finally:
        os.close(fd)


def lives_path(directory: str) -> str:
    """Return the path of the lock of ``lives``."""
    return directory + "/lives_of_oarexec.lock"


@contextlib.contextmanager
def lives(directory: str) -> "Iterator[None]":
    """Keep each oarexec of this node with its job in here: what is found out of its process holds for its signals.

    The process of an oarexec may serve for one job after the other.  Who signals one shares this lock from the look at
    the job to the signal; oarexec has the lock alone once when it has left a job, so that no signal is under way to it
    any more.
    """
    with acting_as(oar_account()):
        fd = take_lock(lives_path(directory), OarexecExit.PID_FILE, shared=True)
    try:
        yield
    finally:
        os.close(fd)


@contextlib.contextmanager
def job_locked(directory: str, user: str, job_id: int, code: int, alone: bool = False) -> "Iterator[None]":
    """Let nobody else prepare, enter or clean a job here; raise NodeError with ``code`` if others do so for too long.

    It takes the lock of the user, then that of the job. Jobs of several users have the same lock file, so whoever holds
    it never waits for a user.  ``alone``: no other job of the user is prepared, entered or cleaned meanwhile either.
    """
    path = "%s/jobs-%02d.lock" % (directory, job_id % JOB_LOCKS)  # it stays: a file that is removed protects nothing
    with user_locked(user_lock_path(directory, user), code, alone), locked(path, code):
        yield


@contextlib.contextmanager
def user_locked(path: str, code: int, alone: bool) -> "Iterator[None]":
    """Share the lock of a user in here, or hold it alone; raise NodeError with ``code`` if that takes too long."""
    fd = open_lock(path, code)
    try:
        if not (lock_alone(fd, path, code) if alone else lock_shared(fd, path)):
            raise NodeError(code, "another process holds the lock %s" % path)
        yield
    finally:
        os.close(fd)


def lock_alone(fd: int, path: str, code: int) -> bool:
    """Lock an open lock of a user alone; return whether that went within LOCK_SECONDS.

    Meanwhile the gate is closed: without it, jobs that begin and end all the time could share the lock for ever.
    """
    limit = time.monotonic() + LOCK_SECONDS
    gate = open_lock(gate_path(path), code)
    try:
        return lock_within(gate, LOCK_SECONDS) and lock_within(fd, limit - time.monotonic())
    finally:
        os.close(gate)


def lock_shared(fd: int, path: str) -> bool:
    """Share an open lock of a user; return whether that went within LOCK_SECONDS.

    A gate that stays closed too long is passed: it orders those who wait, but only the lock itself protects.
    """
    limit = time.monotonic() + LOCK_SECONDS
    pass_gate(path, GATE_SECONDS)
    return lock_within(fd, limit - time.monotonic(), shared=True)


def pass_gate(path: str, seconds: float) -> bool:
    """Wait until nobody waits to have the lock of a user alone; return whether that was so within ``seconds``."""
    try:
        gate = os.open(gate_path(path), os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:  # most users never have jobs that need it
        return True
    try:
        return lock_within(gate, seconds, shared=True)
    finally:
        os.close(gate)


def gate_path(path: str) -> str:
    """Return the path of the gate of the lock of a user, which is at ``path``."""
    return path + ".gate"


def user_lock_path(directory: str, user: str) -> str:
    """Return the path of the lock for all that concerns one user on this node: who treats one of his jobs shares it."""
    account = account_of(user)
    return "%s/user_%s.lock" % (directory, user if account is None else account.pw_uid)


def login_variables(directory: str, account: pwd.struct_passwd) -> str:
    """Return the path where pam_env finds the variables of the job that a user's logins are in."""
    return "%s/pam.%d.env" % (directory, account.pw_uid)


# -- identity of processes -------------------------------------------------------------------------------------------


def boot_id() -> str:
    """Return the number that the kernel has chosen for its life."""
    return content_of("/proc/sys/kernel/random/boot_id").decode("ascii").strip()


def start_time(pid: int) -> "int | None":
    """Return when a process started, in ticks since boot (field 22 of its stat); None if it does not live."""
    content = read_process(pid, "stat")
    if content is None:
        return None
    fields = content[content.rindex(b")") + 2 :].split()
    return None if fields[0] in (b"Z", b"X") else int(fields[19])


def seconds_up() -> int:
    """Return for how long this node has been up: the age of its first process, since a container has no other."""
    ticks = start_time(1) or 0
    return int(float(content_of("/proc/uptime").split()[0]) - ticks / os.sysconf("SC_CLK_TCK"))


def read_process(pid: int, name: str) -> "bytes | None":
    """Return the content of a file in the /proc of a process; None if there is no such process or it is hidden."""
    try:
        return content_of("/proc/%d/%s" % (pid, name))
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return None


# -- the state file of a job -----------------------------------------------------------------------------------------


class JobFiles:
    """Paths of one job's files in the runtime directory."""

    def __init__(self, directory: str, job_id: int) -> None:
        self.directory = directory
        self.job_id = job_id
        self.nodes = "%s/%d" % (directory, job_id)
        self.resources = "%s/%d_resources" % (directory, job_id)
        self.scripts = "%s/node_scripts_%d.lock" % (directory, job_id)
        self.state = "%s/oarexec_%d.state" % (directory, job_id)
        self.lock = "%s/oarexec_%d.lock" % (directory, job_id)
        self.pid = "%s/pid_of_oarexec_for_jobId_%d" % (directory, job_id)
        self.signal = "%s/USER_SIGNAL_%d" % (directory, job_id)
        self.connections = "%s/oarsub_connections_%d" % (directory, job_id)
        self.main_session = "%s/main_session_%d.lock" % (directory, job_id)

    def had_session(self) -> bool:
        """Return whether anybody came for the session of this interactive job: who comes writes there."""
        try:
            return os.stat(self.main_session).st_size > 0
        except OSError:
            return False

    def session_fault(self) -> "Data | None":
        """Return why this interactive job had no shell, as its session has written it; None if it had one."""
        lines = (read_file(self.main_session) or b"").splitlines()
        try:
            fault = json.loads(lines[1].decode("ascii")) if len(lines) > 1 else None
        except ValueError:
            return None
        return fault if isinstance(fault, dict) else None

    def environment(self, user: str) -> str:
        """Return the path of the variables of the job, as lines for a shell."""
        return "%s/%s_%d.env" % (self.directory, user, self.job_id)

    def key(self, user: str) -> str:
        """Return the path of the private key of the job."""
        return "%s/%s_%d.jobkey" % (self.directory, user, self.job_id)

    def user_variables(self, user: str) -> str:
        """Return the path of the variables that the user gave to the job, a JSON object that may hold secrets."""
        return "%s/%s_%d.given" % (self.directory, user, self.job_id)

    def script(self, user: str) -> str:
        """Return the path of the user's script, if the system keeps it for him."""
        return "%s/%s_%d.script" % (self.directory, user, self.job_id)

    def of_user(self, user: str) -> "list[str]":
        """Return the paths of what the job resource manager makes for the user, and of his script."""
        private = [self.environment(user), self.key(user), self.user_variables(user), self.script(user)]
        return [self.nodes, self.resources, self.scripts, *private]

    def of_oarexec(self) -> "list[str]":
        """Return the paths of what oarexec and the sessions of the job make."""
        return [self.pid, self.signal, self.connections, self.main_session, self.state, self.lock]


def possible_variables(variables: "Mapping[str, str] | None") -> "dict[str, str]":
    """Return those of the variables that a user gave to a job that a process can have."""
    return {name: value for name, value in (variables or {}).items() if NAME.match(name) and "\0" not in value}


def read_state(files: JobFiles) -> "Data | None":
    """Return the content of the state file; None if there is none or it says nothing."""
    content = read_file(files.state)
    if not content:
        return None
    try:
        state = json.loads(content.decode("utf-8"))
    except ValueError:
        return None
    return state if isinstance(state, dict) and isinstance(state.get("phase"), str) else None


def write_state(files: JobFiles, state: "Data", safety: int = DURABLE) -> None:
    """Replace the state file; ``safety``: what survives a power cut."""
    write_file(files.state, json.dumps(state).encode("ascii"), 0o600, safety)


def lock_is_held(files: JobFiles) -> bool:
    """Return whether an oarexec of this job is alive: it holds its lock as long as it lives.

    Others who look at the same time do not pass for it.
    """
    try:
        fd = os.open(files.lock, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        return not try_lock(fd, shared=True)
    finally:
        os.close(fd)


def live_oarexec(files: JobFiles) -> "int | None":
    """Return the pid of the job's oarexec, checked by its lock, start time and boot; None if it does not live."""
    state = read_state(files)
    if state is None or state.get("boot_id") != boot_id() or not lock_is_held(files):
        return None
    pid = state.get("pid")
    return pid if isinstance(pid, int) and start_time(pid) == state.get("start_time") else None


# -- what a job's processes see --------------------------------------------------------------------------------------


def job_variables(data: "Data", job_name: "str | None", cpuset: str) -> "dict[str, str]":
    """Return the ``OAR_*`` variables of a job; ``cpuset`` is empty where there is no confinement.

    See docs/design/nodes.rst, "Environment of a job".
    """
    directory = data["oar_tmp_directory"] if "oar_tmp_directory" in data else data["tmp_directory"]
    files = JobFiles(directory, data["job_id"])
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
    if cpuset:  # without a group there is no oarsh between the nodes
        variables.update(mpi_variables(files.nodes))
    reservation = data.get("advance_reservation")
    if reservation:
        variables["OAR_AR_ID"] = str(reservation["number"])
        variables["OAR_AR_NAME"] = reservation["name"]
        variables["OAR_AR_END"] = str(reservation["end"])
    for name, key in (("OAR_STDOUT", "stdout_file"), ("OAR_STDERR", "stderr_file")):
        if data.get(key):
            variables[name] = output_name(data[key], data["job_id"])
    return variables


def mpi_variables(nodes: str) -> "dict[str, str]":
    """Return what lets the launchers of MPI reach the nodes of a job by oarsh; ``nodes``: path of the node file.

    They are those of Open MPI up to version 4, of Open MPI since version 5 (PRRTE), and of MPICH (Hydra).
    """
    agents = ("OMPI_MCA_plm_rsh_agent", "PRTE_MCA_plm_ssh_agent", "HYDRA_LAUNCHER_EXEC")
    hosts = ("OMPI_MCA_orte_default_hostfile", "PRTE_MCA_prte_default_hostfile", "HYDRA_HOST_FILE")
    return {**dict.fromkeys(agents, "oarsh"), **dict.fromkeys(hosts, nodes), "HYDRA_LAUNCHER": "ssh"}


def exported(lines: "Iterable[str]") -> "dict[str, str]":
    """Return the variables of the environment file of a job: parsed, never given to a shell."""
    matches = (EXPORT.match(line.rstrip("\n")) for line in lines)
    return {match.group(1): match.group(2).replace("'\\''", "'") for match in matches if match}


def output_name(name: str, job_id: int) -> str:
    """Return the name of an output file, in which ``%jobid%`` stands for the job."""
    return name.replace("%jobid%", str(job_id))


def language() -> str:
    """Return the language that the site has set on this node; empty if none."""
    for path in ("/etc/default/locale", "/etc/locale.conf"):
        with contextlib.suppress(OSError), open(path, encoding="utf-8", errors="replace") as file:
            for line in file:
                if line.startswith("LANG="):
                    return line[5:].strip().strip("\"'")
    return ""


def type_text(name: str, value: object) -> str:
    """Return a type of a job as it is submitted: ``name`` or ``name=value``."""
    return name if value in (1, True, "1", None) else "%s=%s" % (name, value)


def node_file(data: "Data") -> str:
    """Return the text of the node file: one line per distinct value among the resources of type default.

    The lines are sorted, those of ``first_nodes`` before the others.
    """
    field = data["node_file_db_fields"]
    distinct = data["node_file_db_fields_distinct_values"]
    lines: "dict[str, tuple[bool, str]]" = {}
    for resource in data["resources"]:
        if resource.get("type", "default") == "default" and resource.get(field) not in (None, ""):
            is_later = resource.get("network_address") not in data.get("first_nodes", ())
            lines.setdefault(str(resource.get(distinct)), (is_later, str(resource[field])))
    return "".join(line + "\n" for _, line in sorted(lines.values()))


def resources_file(data: "Data") -> str:
    """Return the text of the resource-properties file: `` name = 'value' , name = 'value' `` per resource."""
    lines = []
    for resource in data["resources"]:
        shown = sorted(item for item in resource.items() if item[0] not in SYSTEM_PROPERTIES)
        parts = (" %s = '%s' " % (name, property_text(value)) for name, value in shown)
        lines.append(",".join(parts) + "\n")
    return "".join(lines)


def values_here(files: JobFiles, name: str) -> "list[str]":
    """Return the values of a property of the job's resources on this node, as its resource-properties file says."""
    text = (read_file(files.resources) or b"").decode("utf-8", "replace")
    here = [line for line in text.splitlines() if " network_address = '%s' " % this_node() in line]
    return [value for line in here for value in re.findall(r" %s = '([^']*)' " % name, line)]


def property_text(value: object) -> str:
    """Return the value of a property as it stands between quotes in the resource-properties file."""
    text = "" if value is None else str(value)
    return text.replace("\\", "\\\\").replace("'", "\\'")


# -- programs that root starts for a user ------------------------------------------------------------------------------


def by_systemd(
    account: pwd.struct_passwd, argv: "Sequence[str]", environment: "Mapping[bytes, bytes]"
) -> "tuple[list[str], dict[bytes, bytes]]":
    """Return (words, environment) that let systemd start a program as the user, in a scope of the user's slice."""
    uid = account.pw_uid
    command = ["systemd-run", "-q", "--uid=%d" % uid, "--scope", "--collect", "--slice=user-%d.slice" % uid]
    command += [sys.executable, "-I", "-S", "-c", AS_USER, str(readable(environment)), *argv]
    return command, {b"PATH": encode(DEFAULT_PATH)}


def readable(environment: "Mapping[bytes, bytes]") -> int:
    """Return a descriptor from which the program that is executed next reads an environment."""
    import tempfile

    with tempfile.TemporaryFile() as file:
        pairs = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in environment.items()]
        file.write(json.dumps(pairs).encode("ascii"))
        file.seek(0)
        fd = os.dup(file.fileno())
    os.set_inheritable(fd, True)
    return fd
