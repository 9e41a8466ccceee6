"""What oarexec does as root or as the user: starts the user's process, signals it, kills, writes notes (node.md 4.3).

oarexec acts as oar but keeps the right to come back; the user's process is its child, so that the raw wait status is
known whatever the user does.  That process is forked early and waits for its word: nothing slow stands between GO and
the command.
"""

import contextlib
import errno
import json
import os
import re
import select
import signal
import time

import node_base
import node_cgroups
import node_reasons
from node_base import NodeError

START_SECONDS = 120.0
#: A shell that is hung up has so long to end by itself.
SESSION_SECONDS = 2.0
#: A dead file server is not waited for longer, to see whether it has room.
ROOM_SECONDS = 10
#: Bytes of what is told of it: a pipe takes them at once.
LONGEST_REASON = 1 << 16
CONTROL_SIGNALS = {"TERM", "INT", "QUIT", "USR1", "USR2", "URG"}
HANDLED = [getattr(signal, "SIG" + name) for name in sorted(CONTROL_SIGNALS)]


# -- processes and signals -------------------------------------------------------------------------------------------


def guarded(body):
    """The life of a forked process: ``body``, its exit code, and never back into the caller."""
    code = 1
    try:
        code = body()
    except NodeError as error:
        node_base.complain("[oarexec] " + str(error))
        code = error.code
    except BaseException as error:  # noqa: BLE001 - the last guard of a process: say it, end
        node_base.complain("[oarexec] %s: %s" % (type(error).__name__, error))
    finally:
        os._exit(code if isinstance(code, int) else 1)


class Wakeup:
    """Signals as numbers to be read: handlers do nothing but write a byte."""

    def __init__(self):
        self.read_end, self.write_end = os.pipe()
        for fd in (self.read_end, self.write_end):
            os.set_blocking(fd, False)
        signal.set_wakeup_fd(self.write_end)

    def listen(self, numbers):
        for number in numbers:
            signal.signal(number, lambda *_: None)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, numbers)

    def taken(self):
        """Numbers of the signals that came since the last call."""
        try:
            return list(os.read(self.read_end, 4096))
        except OSError as error:
            if error.errno == errno.EAGAIN:
                return []
            raise

    def wait(self, descriptors, seconds):
        """Wait for a signal or for one of the descriptors; those that are ready."""
        poll = select.poll()
        for fd in [*descriptors, self.read_end]:
            poll.register(fd, select.POLLIN)
        ready = poll.poll(None if seconds is None else max(0, int(seconds * 1000) + 1))
        return {fd for fd, _ in ready} - {self.read_end}


def act_as(account):
    """Be an account in all that is opened and signalled, and keep the way back to root."""
    if os.getuid() == 0:
        os.seteuid(0)
        os.initgroups(account.pw_name, account.pw_gid)
        os.setegid(account.pw_gid)
        os.seteuid(account.pw_uid)


@contextlib.contextmanager
def as_root():
    """The privilege, for as long as it is needed."""
    account = (os.geteuid(), os.getegid())
    if os.getuid() == 0:
        os.seteuid(0)
        os.setegid(0)
    try:
        yield
    finally:
        if os.getuid() == 0:
            os.setegid(account[1])
            os.seteuid(account[0])


def become(account):
    """Be an account for good: groups, group, user."""
    if os.getuid() == 0:
        os.seteuid(0)
        os.initgroups(account.pw_name, account.pw_gid)
        os.setgid(account.pw_gid)
        os.setuid(account.pw_uid)


def keep_only(*descriptors):
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2 and int(name) not in descriptors:
            with contextlib.suppress(OSError):
                os.close(int(name))


def redirect_standard(path):
    """Standard input from nowhere, outputs to a file that only its owner reads."""
    fd = os.open("/dev/null", os.O_RDWR)
    os.dup2(fd, 0)
    if path != "/dev/null":
        fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    os.dup2(fd, 1)
    os.dup2(fd, 2)


def open_signals():
    """Default actions, nothing blocked: what a program expects at its start."""
    for number in [*HANDLED, signal.SIGPIPE, signal.SIGHUP, signal.SIGCHLD]:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])


def encoded(variables):
    return {node_base.encode(name): node_base.encode(value) for name, value in variables.items()}


def session_of(pid):
    try:
        return os.getsid(pid)
    except ProcessLookupError:
        return None


def set_oom_score(score):
    """How gladly the kernel ends this process when memory is short; a container may forbid to lower it."""
    with contextlib.suppress(PermissionError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("%d" % score)


def user_oom_score():
    """How gladly the kernel ends user's processes when memory is short: the site may say."""
    fields = node_cgroups.read("/etc/oar/oom.conf").split()
    found = int(fields[0]) if fields and fields[0].lstrip("-").isdigit() else 1000
    return max(-1000, min(1000, found))


def hindrance(what, error):
    """What the user reads in the events of his job."""
    return "Cannot %s on the node %s: %s" % (what, node_base.this_node(), error.strerror)


# -- the payload -----------------------------------------------------------------------------------------------------


class Payload:
    """All that runs as the user of the job, seen from oarexec."""

    def __init__(self, data, confinement, account, environment, umask):
        self.data = data
        self.confinement = confinement
        self.account = account
        self.environment = environment
        self.umask = umask
        self.pid = None
        self.status = None
        self.kill_limit = None
        self.killed = False
        self.noting = set()  #: processes that are about to end
        self.reason = None  #: what hindered the user's process, see ``node_reasons``

    def prepare(self):
        """Fork the process that will be the user's; it waits for ``start``."""
        go_read, self.go_write = os.pipe()
        self.status_read, status_write = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            guarded(lambda: UserProcess(self, go_read, status_write).run())
        os.close(go_read)
        os.close(status_write)

    def start(self):
        """Let the user's process go; None once the shell is executed, else (exit code, what failed)."""
        if not self.run_hook():
            os.close(self.go_write)
            os.waitpid(self.pid, 0)
            self.status = 255 << 8
            self.reason = node_reasons.reason("hook")
            return None
        with contextlib.suppress(OSError):
            os.write(self.go_write, b"G")
        poll = select.poll()
        poll.register(self.status_read, select.POLLIN)
        if not poll.poll(START_SECONDS * 1000):
            self.kill(1.0)
            return self.no_answer()
        with os.fdopen(self.status_read, "rb") as pipe:
            said = pipe.read()
        if not said:
            return None
        failed = json.loads(said.decode("ascii"))
        self.reason = failed["reason"]
        if not failed["code"]:
            return None
        os.waitpid(self.pid, 0)
        self.pid = None
        return failed["code"], failed["text"]

    def no_answer(self):
        """What ``start`` says of a file server that is dead."""
        directory = self.data["launching_directory"]
        error = OSError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT))
        self.reason = node_reasons.reason("directory", error, directory)
        return 10, hindrance("enter %s or open the output files" % directory, error)

    def run_hook(self):
        """The site's ``passive_job_hook``, as root, before anything of the user; True if the job may go on."""
        hook = self.data.get("passive_job_hook")
        if not hook or not os.access(hook, os.X_OK):
            return True
        name = self.data.get("job_name", self.data.get("name")) or ""
        fields = [self.pid, self.data["user"], self.data["job_id"], name, self.data.get("project") or ""]
        argument = ":".join(str(field) for field in [*fields, self.data["walltime_seconds"]])
        limit = self.data.get("pro_epi_timeout", 60)
        import subprocess

        try:
            with as_root():
                return subprocess.call([hook, node_base.encode(argument)], stdin=subprocess.DEVNULL, timeout=limit) == 0
        except (OSError, subprocess.TimeoutExpired):
            return False

    def reap(self):
        """Take the ends of the user's process and of the notes."""
        if self.pid is not None and self.status is None:
            done, status = os.waitpid(self.pid, os.WNOHANG)
            if done:
                self.status = status
        for pid in list(self.noting):
            if os.waitpid(pid, os.WNOHANG)[0]:
                self.noting.discard(pid)

    def signal(self, number):
        """Send a signal to the user's process alone."""
        if self.pid is not None and self.status is None:
            with as_root(), contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def begin_kill(self, grace):
        """Ask everything of the user to end; ``go_on_killing`` ends what does not."""
        with as_root():
            for pid in self.confinement.payload() if grace > 0 else []:
                for number in (signal.SIGCONT, signal.SIGTERM):
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, number)
        self.kill_limit = time.monotonic() + grace

    def go_on_killing(self):
        """After the grace kill what is left."""
        if self.kill_limit is None or self.killed:
            return
        with as_root():
            living = self.confinement.payload()
        if living and time.monotonic() < self.kill_limit:
            return
        self.kill()
        self.killed = True

    def kill(self, seconds=node_cgroups.KILL_SECONDS):
        with as_root():
            self.confinement.kill_payload(seconds)
            if not self.confinement.real and self.pid is not None and self.status is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(self.pid, signal.SIGKILL)

    def end_sessions(self, connections):
        """End what users who have connected to the job run, where no group of the job holds it; as root."""
        lines = (node_base.read_file(connections) or b"").decode("ascii", "replace").splitlines()
        shells = [line.split() for line in lines if re.match(r"[0-9]+ [0-9]+\Z", line)]
        leaders = {session_of(int(pid)) for pid, began in shells if node_base.start_time(int(pid)) == int(began)}

        def living():
            pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
            mine = [pid for pid in pids if node_cgroups.owner_of(pid) == self.account.pw_uid]
            return [pid for pid in mine if session_of(pid) in leaders - {None} and node_base.start_time(pid)]

        with as_root():
            for number in (signal.SIGHUP, signal.SIGKILL):
                for pid in living():
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, number)
                if node_cgroups.waited(lambda: not living(), SESSION_SECONDS):
                    return

    def look_for_room(self):
        """After a bad end: whether there is still room for what the job writes, seen as the user.

        Who looks is the user's own process, which he may stop: it is not waited for longer than it may take.
        """
        read, write = os.pipe()
        pid = os.fork()
        if pid == 0:
            guarded(lambda: self.tell_room(write))
        os.close(write)
        poll = select.poll()
        poll.register(read, select.POLLIN)
        said = os.read(read, LONGEST_REASON) if poll.poll(ROOM_SECONDS * 1000) else b""
        os.close(read)
        with as_root():
            os.kill(pid, signal.SIGKILL)
        self.noting.add(pid)
        self.reason = json.loads(said.decode("ascii")) if said else None

    def tell_room(self, write):
        become(self.account)
        signal.set_wakeup_fd(-1)
        signal.alarm(ROOM_SECONDS)
        names = [name for name in map(self.data.get, ("stdout_file", "stderr_file")) if name]
        temporary = (self.data.get("job_env") or {}).get("TMPDIR") or "/tmp"
        names = [name.replace("%jobid%", str(self.data["job_id"])) for name in names]
        found = node_reasons.of_space(self.data["launching_directory"], names, temporary)
        if found:
            os.write(write, json.dumps(found).encode("ascii"))
        return 0

    def note(self, text):
        """Append a line to the job's stderr file, as the user; a dead file server is not waited for."""
        pid = os.fork()
        if pid == 0:
            guarded(lambda: self.write_note(text))
        self.noting.add(pid)

    def write_note(self, text):
        become(self.account)
        signal.set_wakeup_fd(-1)
        signal.alarm(30)
        os.chdir(node_base.encode(self.data["launching_directory"]))
        path = node_base.encode(self.data["stderr_file"].replace("%jobid%", str(self.data["job_id"])))
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NOCTTY | os.O_CLOEXEC | os.O_NONBLOCK
        os.write(os.open(path, flags, 0o666), node_base.encode(text))
        return 0


class UserProcess:
    """From the fork to the user's shell."""

    def __init__(self, payload, go_read, status_write):
        self.payload = payload
        self.data = payload.data
        self.go_read = go_read
        self.status_write = status_write

    def run(self):
        signal.set_wakeup_fd(-1)
        keep_only(self.go_read, self.status_write)
        os.setsid()
        with as_root():
            self.payload.confinement.join(node_cgroups.PAYLOAD, inherited=True)
            set_oom_score(user_oom_score())
        systemd = self.data.get("deploy_cosystem_job_exec_system") == "systemd-run"
        (act_as if systemd else become)(self.payload.account)
        os.umask(self.payload.umask)
        open_signals()
        if not os.read(self.go_read, 1):
            return 1
        directory = self.data["launching_directory"]
        try:
            os.chdir(node_base.encode(directory))
        except OSError as error:
            found = node_reasons.of_directory(error, directory, self.payload.account)
            self.give_up(10, hindrance("enter " + directory, error), found)
        self.open_files()
        shell = self.payload.account.pw_shell or "/bin/sh"
        argv = [shell, "-c", self.data["command"] or ""]
        environment = self.payload.environment
        if systemd:
            os.seteuid(0)
            os.setegid(0)
            argv, environment = node_base.by_systemd(self.payload.account, argv, environment)
        try:
            os.execvpe(argv[0], [node_base.encode(word) for word in argv], environment)
        except OSError as error:
            self.tell(0, "", node_reasons.of_shell(error, argv[0]))
            node_base.complain("oarexec: cannot execute %s: %s" % (argv[0], error.strerror))
        return 127

    def open_files(self):
        """Open the files of the job; a pipe that nobody reads is refused, not waited for.  There is nothing to read."""
        os.dup2(os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC), 0)
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOCTTY | os.O_NONBLOCK
        for descriptor, key in ((1, "stdout_file"), (2, "stderr_file")):
            path = (self.data.get(key) or "/dev/null").replace("%jobid%", str(self.data["job_id"]))
            try:
                fd = os.open(node_base.encode(path), flags, 0o666)
            except OSError as error:
                directory = self.data["launching_directory"]
                found = node_reasons.of_output(error, path, directory, self.payload.account)
                self.give_up(20, hindrance("create " + os.path.join(directory, path), error), found)
            os.set_blocking(fd, True)
            os.dup2(fd, descriptor)
            if fd > 2:
                os.close(fd)

    def tell(self, code, text, reason):
        """Tell oarexec what hinders this process; with code 0 it goes on to its end all the same."""
        said = json.dumps({"code": code, "text": text, "reason": reason})
        with os.fdopen(os.dup(self.status_write), "wb") as pipe:
            pipe.write(said.encode("ascii"))

    def give_up(self, code, text, reason):
        self.tell(code, text, reason)
        os._exit(1)
