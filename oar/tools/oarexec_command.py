"""Fork and execution of the user's command, as root or as the user: starts it, signals it, kills, writes notes.

oarexec acts as oar but keeps the right to come back; the user's process is its child, so that the raw wait status is
known whatever the user does.  That process is forked early and waits for its word: nothing slow stands between GO and
the command.  ``control`` is the action ``ctl`` of oarexec: it sends a signal of the server to the oarexec of a job.

See docs/design/nodes.rst, "oarexec".
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
import node_faults
import node_kernel
from node_base import JobFiles, NodeError
from node_protocol import FaultKind, ManagerExit, OarexecExit, OarexecPhase

TYPE_CHECKING = False
if TYPE_CHECKING:
    import pwd
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from typing import NoReturn

    from node_base import Data
    from node_faults import Fault

START_SECONDS = 120.0
NO_OAREXEC = 1  #: exit code of ``control``: there is no such oarexec here
#: A shell that is hung up has so long to end by itself.
SESSION_SECONDS = 2.0
#: A dead file server is not waited for longer, to see whether it has room.
ROOM_SECONDS = 10
#: Bytes of the fault that is found then: a pipe takes them at once.
LONGEST_FAULT = 1 << 16
CONTROL_SIGNALS = {"TERM", "INT", "QUIT", "USR1", "USR2", "URG"}
HANDLED = [getattr(signal, "SIG" + name) for name in sorted(CONTROL_SIGNALS)]


# -- processes and signals -------------------------------------------------------------------------------------------


def guarded(body: "Callable[[], int]") -> "NoReturn":
    """Lead the life of a forked process: ``body``, its exit code, and never back into the caller."""
    code = 1
    try:
        code = body()
    except NodeError as error:
        node_base.complain("[oarexec] " + str(error))
        code = error.code
    except BaseException as error:  # noqa: BLE001 - the last guard of a process: say it, end
        node_base.complain("[oarexec] %s: %s" % (type(error).__name__, error))
    finally:
        os._exit(code)


class Wakeup:
    """Signals as numbers to be read: handlers do nothing but write a byte."""

    def __init__(self) -> None:
        self.read_end, self.write_end = os.pipe()
        for fd in (self.read_end, self.write_end):
            os.set_blocking(fd, False)
        signal.set_wakeup_fd(self.write_end)

    def listen(self, numbers: "Iterable[int]") -> None:
        """Take these signals from now on."""
        for number in numbers:
            signal.signal(number, lambda *_: None)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, numbers)

    def close(self) -> None:
        """Take signals no longer in this way."""
        signal.set_wakeup_fd(-1)
        for fd in (self.read_end, self.write_end):
            os.close(fd)

    def received(self) -> "list[int]":
        """Return the numbers of the signals that came since the last call."""
        try:
            return list(os.read(self.read_end, 4096))
        except OSError as error:
            if error.errno == errno.EAGAIN:
                return []
            raise

    def wait(self, descriptors: "Iterable[int]", seconds: "float | None") -> "set[int]":
        """Wait for a signal or for one of the descriptors; return those that are ready."""
        poll = select.poll()
        for fd in [*descriptors, self.read_end]:
            poll.register(fd, select.POLLIN)
        ready = poll.poll(None if seconds is None else max(0, int(seconds * 1000) + 1))
        return {fd for fd, _ in ready} - {self.read_end}


def signal_number(text: str) -> "int | None":
    """Return a signal by its number (1 to 64) or name; None if it is neither."""
    if text.isdigit() and len(text) <= 2:
        return int(text) if 1 <= int(text) <= 64 else None
    name = text if text.startswith("SIG") else "SIG" + text
    return int(signal.Signals[name]) if name in signal.Signals.__members__ else None


def signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return str(number)


def is_hung_up(descriptor: int) -> bool:
    """Return whether nobody has the other end of a pipe any more."""
    poll = select.poll()
    poll.register(descriptor, 0)
    return any(event & select.POLLHUP for _, event in poll.poll(0))


def is_going_down() -> bool:
    """Return whether this node ends its processes; root sees that where others cannot see who does."""
    with as_root():
        return node_kernel.is_going_down()


def act_as(account: "pwd.struct_passwd", groups: "Sequence[int] | None" = None) -> None:
    """Be an account in all that is opened and signalled, and keep the way back to root.

    ``groups``: further groups than its first one; None: all that it has, which are looked up.
    """
    if os.getuid() == 0:
        os.seteuid(0)
        if groups is None:
            os.initgroups(account.pw_name, account.pw_gid)
        else:
            os.setgroups(groups)
        os.setegid(account.pw_gid)
        os.seteuid(account.pw_uid)


@contextlib.contextmanager
def as_root() -> "Iterator[None]":
    """Have the privilege in here."""
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


def become(account: "pwd.struct_passwd") -> None:
    """Be an account for good: groups, group, user."""
    if os.getuid() == 0:
        os.seteuid(0)
        os.initgroups(account.pw_name, account.pw_gid)
        os.setgid(account.pw_gid)
        os.setuid(account.pw_uid)


def keep_only(*descriptors: int) -> None:
    """Close all descriptors but the standard ones and these."""
    kept = sorted({2, *descriptors})
    highest = max(map(int, os.listdir("/proc/self/fd")))
    for fd, following in zip(kept, [*kept[1:], highest + 1]):
        os.closerange(fd + 1, following)


def redirect_standard(path: str) -> None:
    """Take standard input from nowhere, and write both outputs to a file that only its owner reads."""
    opened = [os.open("/dev/null", os.O_RDWR)]
    os.dup2(opened[0], 0)
    if path != "/dev/null":
        opened.append(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o600))
    os.dup2(opened[-1], 1)
    os.dup2(opened[-1], 2)
    for fd in opened:
        if fd > 2:
            os.close(fd)


def open_signals() -> None:
    """Give signals their default actions and block none: what a program expects at its start."""
    for number in [*HANDLED, signal.SIGPIPE, signal.SIGHUP, signal.SIGCHLD]:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])


def encoded(variables: "Mapping[str, str]") -> "dict[bytes, bytes]":
    """Return an environment as the bytes that it stands for."""
    return {node_base.encode(name): node_base.encode(value) for name, value in variables.items()}


def session_of(pid: int) -> "int | None":
    """Return the pid of the leader of a process's session; None if there is no such process."""
    try:
        return os.getsid(pid)
    except ProcessLookupError:
        return None


def set_oom_score(score: int) -> None:
    """Say how gladly the kernel ends this process when memory is short; a container may forbid to lower it."""
    with contextlib.suppress(PermissionError):
        node_kernel.write("/proc/self/oom_score_adj", "%d" % score)


def oom_score() -> int:
    """Return what ``set_oom_score`` has set, or the process has inherited."""
    return int(node_base.content_of("/proc/self/oom_score_adj"))


def user_oom_score() -> int:
    """Return how gladly the kernel ends users' processes when memory is short: the site may say."""
    fields = node_kernel.words("/etc/oar/oom.conf")
    score = int(fields[0]) if fields and fields[0].lstrip("-").isdigit() else 1000
    return max(-1000, min(1000, score))


def hindrance(deed: str, error: OSError) -> str:
    """Return what the user reads in the events of his job when ``deed`` failed."""
    return "Cannot %s on the node %s: %s" % (deed, node_base.this_node(), error.strerror)


# -- the payload -----------------------------------------------------------------------------------------------------


class StartFailure:
    """Why the user's process could not start: the exit code of oarexec, and a line for the job's events."""

    def __init__(self, code: int, text: str) -> None:
        self.code = code
        self.text = text


class Payload:
    """All that runs as the user of the job, seen from oarexec."""

    def __init__(
        self,
        data: "Data",
        confinement: "node_cgroups.Confinement",
        account: "pwd.struct_passwd",
        environment: "Mapping[bytes, bytes]",
        umask: int,
    ) -> None:
        self.data = data
        self.confinement = confinement
        self.account = account
        self.environment = environment
        self.umask = umask
        self.pid: "int | None" = None
        self.status: "int | None" = None  #: raw wait status of the user's process
        self.kill_limit: "float | None" = None
        self.killed = False
        self.noting: "set[int]" = set()  #: processes that are about to end
        self.fault: "Fault | None" = None  #: what hindered the user's process, see ``node_faults``
        self.go_write = self.status_read = -1

    def prepare(self) -> None:
        """Fork the process that will be the user's; it waits for ``start``."""
        go_read, self.go_write = os.pipe()
        self.status_read, status_write = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            guarded(lambda: UserProcess(self, go_read, status_write).run())
        os.close(go_read)
        os.close(status_write)

    def start(self) -> "StartFailure | None":
        """Let the user's process go; return None once the shell is executed."""
        if not self.run_hook():
            os.close(self.go_write)
            os.close(self.status_read)
            self.await_process()
            self.status = 255 << 8
            self.fault = node_faults.fault(FaultKind.HOOK)
            return None
        with contextlib.suppress(OSError):
            os.write(self.go_write, b"G")
        os.close(self.go_write)
        poll = select.poll()
        poll.register(self.status_read, select.POLLIN)
        if not poll.poll(START_SECONDS * 1000):
            self.kill(1.0)
            return self.no_answer()
        with os.fdopen(self.status_read, "rb") as pipe:
            message = pipe.read()
        if not message:
            return None
        failure = json.loads(message.decode("ascii"))
        self.fault = failure["fault"]
        if not failure["code"]:
            return None
        self.await_process()
        self.pid = None
        return StartFailure(failure["code"], failure["text"])

    def await_process(self) -> None:
        if self.pid is not None:
            os.waitpid(self.pid, 0)

    def no_answer(self) -> StartFailure:
        """Return the failure of a start that waits for a dead file server."""
        directory = self.data["launching_directory"]
        error = OSError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT))
        self.fault = node_faults.fault(FaultKind.DIRECTORY, error, directory)
        text = hindrance("enter %s or open the output files" % directory, error)
        return StartFailure(OarexecExit.DIRECTORY, text)

    def run_hook(self) -> bool:
        """Run the ``passive_job_hook`` as root, before anything of the user; return whether that allows the job."""
        hook = self.data.get("passive_job_hook")
        if not hook or not os.access(hook, os.X_OK):
            return True
        name = self.data.get("job_name", self.data.get("name")) or ""
        fields = [self.pid, self.data["user"], self.data["job_id"], name, self.data.get("project") or ""]
        argument = ":".join(str(field) for field in [*fields, self.data["walltime_seconds"]])
        limit = self.data.get("pro_epi_timeout", 60)
        with as_root():  # oar may not be able to read the libraries of Python
            import subprocess

        try:
            with as_root():
                return subprocess.call([hook, node_base.encode(argument)], stdin=subprocess.DEVNULL, timeout=limit) == 0
        except (OSError, subprocess.TimeoutExpired):
            return False

    def reap(self) -> None:
        """Take the ends of the user's process and of the notes."""
        if self.pid is not None and self.status is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.status = status
        for pid in list(self.noting):
            if os.waitpid(pid, os.WNOHANG)[0]:
                self.noting.discard(pid)
        self.bury_orphans()

    def signal(self, number: int) -> None:
        """Send a signal to the user's process alone."""
        if self.pid is not None and self.status is None:
            with as_root(), contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def begin_kill(self, grace: float) -> None:
        """Ask everything of the user to end; ``go_on_killing`` ends what does not within the grace, in seconds."""
        with as_root():
            for pid in self.confinement.payload() if grace > 0 else []:
                node_kernel.signal_all([pid], signal.SIGCONT)
                node_kernel.signal_all([pid], signal.SIGTERM)
        self.kill_limit = time.monotonic() + grace

    def go_on_killing(self) -> None:
        """After the grace kill what is left."""
        if self.kill_limit is None or self.killed:
            return
        with as_root():
            survivors = self.confinement.payload()
        if survivors and time.monotonic() < self.kill_limit:
            return
        self.kill()
        self.killed = True

    def kill(self, seconds: float = node_cgroups.KILL_SECONDS) -> None:
        """Kill everything of the user; what cannot be killed in this time is left."""
        with as_root():
            self.confinement.kill_payload(seconds)
            if self.confinement.groups is None and self.pid is not None and self.status is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(self.pid, signal.SIGKILL)
        self.bury_orphans()

    def bury_orphans(self) -> None:
        """Take the ends of processes of the user whose parents have gone, if they are ours then."""
        if self.confinement.has_orphans:
            running = {self.pid} if self.pid is not None and self.status is None else set()
            node_kernel.bury_orphans(self.noting | running)

    def end_sessions(self, connections: str) -> None:
        """End what users who have connected to the job run, where no group of the job holds it; as root.

        ``connections``: the path of the file with pid and start time of their shells.
        """
        lines = (node_base.read_file(connections) or b"").decode("ascii", "replace").splitlines()
        shells = [line.split() for line in lines if re.match(r"[0-9]+ [0-9]+\Z", line)]
        alive = [int(pid) for pid, start in shells if node_base.start_time(int(pid)) == int(start)]
        leaders = {session_of(pid) for pid in alive} - {None}

        def members() -> "list[int]":
            of_user = [pid for pid in node_kernel.all_pids() if node_kernel.owner_of(pid) == self.account.pw_uid]
            return [pid for pid in of_user if session_of(pid) in leaders and node_base.start_time(pid)]

        with as_root():
            for number in (signal.SIGHUP, signal.SIGKILL):
                node_kernel.signal_all(members(), number)
                if node_kernel.waited(lambda: not members(), SESSION_SECONDS):
                    return

    def look_for_room(self) -> None:
        """After a bad end: look whether there is still room for what the job writes, as the user.

        Who looks is the user's own process, which he may stop: it is not waited for longer than it may take.
        """
        read, write = os.pipe()
        pid = os.fork()
        if pid == 0:
            guarded(lambda: self.tell_room(write))
        os.close(write)
        poll = select.poll()
        poll.register(read, select.POLLIN)
        message = os.read(read, LONGEST_FAULT) if poll.poll(ROOM_SECONDS * 1000) else b""
        os.close(read)
        with as_root():
            os.kill(pid, signal.SIGKILL)
        self.noting.add(pid)
        self.fault = json.loads(message.decode("ascii")) if message else None

    def tell_room(self, write: int) -> int:
        """In the child of ``look_for_room``: write the fault, if there is one; return the exit code."""
        become(self.account)
        signal.set_wakeup_fd(-1)
        signal.alarm(ROOM_SECONDS)
        names = [self.output_name(key) for key in ("stdout_file", "stderr_file") if self.data.get(key)]
        temporary = (self.data.get("job_env") or {}).get("TMPDIR") or "/tmp"
        fault = node_faults.of_space(self.data["launching_directory"], names, temporary)
        if fault:
            os.write(write, json.dumps(fault).encode("ascii"))
        return 0

    def output_name(self, key: str) -> str:
        """Return the name of an output file of the job, of which the data has the pattern."""
        return node_base.output_name(self.data[key], self.data["job_id"])

    def note(self, text: str) -> None:
        """Append a line to the job's stderr file, as the user; a dead file server is not waited for."""
        pid = os.fork()
        if pid == 0:
            guarded(lambda: self.write_note(text))
        self.noting.add(pid)

    def write_note(self, text: str) -> int:
        """In the child of ``note``: write; return the exit code."""
        become(self.account)
        signal.set_wakeup_fd(-1)
        signal.alarm(30)
        os.chdir(node_base.encode(self.data["launching_directory"]))
        path = node_base.encode(self.output_name("stderr_file"))
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NOCTTY | os.O_CLOEXEC | os.O_NONBLOCK
        os.write(os.open(path, flags, 0o666), node_base.encode(text))
        return 0


class UserProcess:
    """From the fork to the user's shell."""

    def __init__(self, payload: Payload, go_read: int, status_write: int) -> None:
        self.payload = payload
        self.data = payload.data
        self.account = payload.account
        self.go_read = go_read
        self.status_write = status_write

    def run(self) -> int:
        """Become the user, wait for the word, execute the shell; return the exit code if that did not go."""
        by_systemd = self.data.get("deploy_cosystem_job_exec_system") == "systemd-run"
        self.become_user(by_systemd)
        if not os.read(self.go_read, 1):
            return 1
        self.enter_directory()
        self.open_files()
        shell = self.account.pw_shell or "/bin/sh"
        argv = [shell, "-c", self.data["command"] or ""]
        environment = self.payload.environment
        if by_systemd:
            os.seteuid(0)
            os.setegid(0)
            argv, environment = node_base.by_systemd(self.account, argv, environment)
        try:
            os.execvpe(argv[0], [node_base.encode(word) for word in argv], environment)
        except OSError as error:
            self.tell(OarexecExit.OK, "", node_faults.of_shell(error, argv[0]))
            node_base.complain("oarexec: cannot execute %s: %s" % (argv[0], error.strerror))
        return 127

    def become_user(self, by_systemd: bool) -> None:
        """Join the payload, then act as the user; for good, unless root must ask systemd later."""
        signal.set_wakeup_fd(-1)
        keep_only(self.go_read, self.status_write)
        os.setsid()
        with as_root():
            self.payload.confinement.join(node_cgroups.PAYLOAD, inherited=True)
            set_oom_score(user_oom_score())
        (act_as if by_systemd else become)(self.account)
        os.umask(self.payload.umask)
        open_signals()

    def enter_directory(self) -> None:
        directory = self.data["launching_directory"]
        try:
            os.chdir(node_base.encode(directory))
        except OSError as error:
            fault = node_faults.of_directory(error, directory, self.account)
            self.give_up(OarexecExit.DIRECTORY, hindrance("enter " + directory, error), fault)

    def open_files(self) -> None:
        """Open the output files of the job; a pipe that nobody reads is refused, not waited for.  No input."""
        os.dup2(os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC), 0)
        for descriptor, key in ((1, "stdout_file"), (2, "stderr_file")):
            fd = self.open_file(self.payload.output_name(key) if self.data.get(key) else "/dev/null")
            os.set_blocking(fd, True)
            os.dup2(fd, descriptor)
            if fd > 2:
                os.close(fd)

    def open_file(self, path: str) -> int:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOCTTY | os.O_NONBLOCK
        try:
            return os.open(node_base.encode(path), flags, 0o666)
        except OSError as error:
            directory = self.data["launching_directory"]
            fault = node_faults.of_output(error, path, directory, self.account)
            self.give_up(OarexecExit.OUTPUT, hindrance("create " + os.path.join(directory, path), error), fault)

    def tell(self, code: int, text: str, fault: "Fault") -> None:
        """Tell oarexec what hinders this process; with code 0 it goes on to its end all the same."""
        message = json.dumps({"code": code, "text": text, "fault": fault})
        with os.fdopen(os.dup(self.status_write), "wb") as pipe:
            pipe.write(message.encode("ascii"))

    def give_up(self, code: int, text: str, fault: "Fault") -> "NoReturn":
        """Tell oarexec what hinders this process, and end."""
        self.tell(code, text, fault)
        os._exit(1)


# -- signals of the server ---------------------------------------------------------------------------------------------


def control(data: "Data") -> int:
    """Send a signal to the job's oarexec, if it is really the one; return the exit code."""
    node_base.require(data, {"job_id": int, "tmp_directory": (str,), "signal": (str,)})
    if data["signal"] not in CONTROL_SIGNALS:
        raise NodeError(ManagerExit.DATA, "'%s' is not a signal for oarexec" % node_base.escaped(data["signal"]))
    files = JobFiles(data["tmp_directory"], data["job_id"])
    with node_base.lives(files.directory):
        with node_base.acting_as(node_base.oar_account()):
            pid = node_base.live_oarexec(files)
            state = node_base.read_state(files) or {}
            if pid is None or state.get("phase") == OarexecPhase.ENDED:  # it takes no signals, or has another job
                return NO_OAREXEC
            if data["signal"] == "URG":
                user_signal = str(data.get("user_signal", ""))
                if signal_number(user_signal) is None:
                    raise NodeError(ManagerExit.DATA, "'%s' is not a signal" % node_base.escaped(user_signal))
                node_base.write_file(files.signal, user_signal.encode("ascii"), 0o600)
        os.kill(pid, signal.SIGCONT)
        os.kill(pid, getattr(signal, "SIG" + data["signal"]))
    return OarexecExit.OK
