"""The processes of oarexec that need the privilege: its helper, and what becomes the user's shell (node.md 4.3).

The helper starts the user's process and waits for it, so that the raw wait status is known whatever the user does; it
kills, signals and writes notes as oarexec asks, in datagrams of JSON: ``start``, ``kill`` (``grace``), ``signal``
(``number``), ``note`` (``text``).  It answers ``started`` (pid), ``failed`` (exit code, ``text``), ``status``,
``killed`` (how many are left), ``noted``.
"""

import contextlib
import errno
import json
import os
import select
import signal
import time
from functools import partial

import node_base
import node_cgroups
from node_base import NodeError

START_SECONDS = 120.0
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


def become(account, for_good=True):
    """Change to an account: groups, group, user; without ``for_good`` the way back stays open."""
    if os.geteuid() != 0:
        return
    os.initgroups(account.pw_name, account.pw_gid)
    if for_good:
        os.setgid(account.pw_gid)
        os.setuid(account.pw_uid)
    else:
        os.setegid(account.pw_gid)
        os.seteuid(account.pw_uid)


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


def set_oom_score(score):
    """How gladly the kernel ends this process when memory is short; a container may forbid to lower it."""
    with contextlib.suppress(PermissionError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("%d" % score)


def user_oom_score():
    """How gladly the kernel ends user's processes when memory is short: the site may say."""
    fields = node_cgroups.read("/etc/oar/oom.conf").split()
    found = int(fields[0]) if fields and fields[0].lstrip("-").isdigit() else 1000
    return max(-1000, min(1000, found))


# -- the helper --------------------------------------------------------------------------------------------------------


class Helper:
    """The root part: starts the user's process and waits for it, kills, signals, writes notes, as oarexec asks.

    The user's process is forked early and waits for its word, so that nothing slow stands between GO and the command.
    """

    def __init__(self, oarexec, account, channel):
        self.data = oarexec.data
        self.confinement = oarexec.confinement
        self.account = account
        self.channel = channel
        self.environment = encoded(self.user_variables(oarexec))
        self.umask = oarexec.umask
        self.start_limit = None
        self.kill_limit = None
        self.noting = set()

    def user_variables(self, oarexec):
        variables = oarexec.variables(self.account)
        for name, value in (self.data.get("job_env") or {}).items():
            if node_base.NAME.match(name) and "\0" not in value:
                variables[name] = value
        return variables

    def run(self):
        redirect_standard("/dev/null")
        self.wakeup = Wakeup()
        self.wakeup.listen([signal.SIGCHLD])
        self.pid = None
        if self.data["mode"] == "PASSIVE":
            self.fork_user()
        while True:
            descriptors = [self.channel.fileno(), *([self.status_read] if self.start_limit else [])]
            ready = self.wakeup.wait(descriptors, self.patience())
            self.wakeup.taken()
            if self.start_limit and (self.status_read in ready or time.monotonic() > self.start_limit):
                self.learn_start()
            self.reap()
            if self.channel.fileno() in ready:
                block = self.channel.recv(65536)
                if not block:
                    return 0
                self.obey(json.loads(block.decode("ascii")))
            self.go_on_killing()

    def patience(self):
        if self.kill_limit is not None:
            return 0.05
        return None if self.start_limit is None else self.start_limit - time.monotonic()

    def tell(self, **message):
        with contextlib.suppress(OSError):
            self.channel.send(json.dumps(message).encode("ascii"))

    def obey(self, message):
        what = message["do"]
        if what == "start":
            self.start()
        elif what == "signal" and self.pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, message["number"])
        elif what == "note":
            self.note(message["text"])
        elif what == "kill":
            self.begin_kill(message["grace"])

    # -- the user's process --

    def fork_user(self):
        go_read, self.go_write = os.pipe()
        self.status_read, status_write = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            guarded(lambda: UserProcess(self, go_read, status_write).run())
        os.close(go_read)
        os.close(status_write)

    def start(self):
        if not self.run_hook():
            os.close(self.go_write)
            self.tell(started=self.pid)
            self.tell(status=255 << 8)
            self.pid = None
            return
        with contextlib.suppress(OSError):
            os.write(self.go_write, b"G")
        self.start_limit = time.monotonic() + START_SECONDS

    def run_hook(self):
        """The site's ``passive_job_hook``, as root, before anything of the user; True if the job may go on."""
        hook = self.data.get("passive_job_hook")
        if not hook or not os.access(hook, os.X_OK):
            return True
        name = self.data.get("job_name", self.data.get("name")) or ""
        fields = [self.pid, self.data["user"], self.data["job_id"], name, self.data.get("project") or ""]
        argument = ":".join(str(field) for field in [*fields, self.data["walltime_seconds"]])
        import subprocess

        try:
            limit = self.data.get("pro_epi_timeout", 60)
            return subprocess.call([hook, node_base.encode(argument)], stdin=subprocess.DEVNULL, timeout=limit) == 0
        except (OSError, subprocess.TimeoutExpired):
            return False

    def learn_start(self):
        """The status pipe closes when the shell is executed; text in it says what failed before."""
        if time.monotonic() > self.start_limit:
            self.confinement.kill_payload(1.0)
            text = b"10 the launching directory or the output files do not answer"
        else:
            text = os.read(self.status_read, 4096)
        self.start_limit = None
        os.close(self.status_read)
        if not text:
            self.tell(started=self.pid)
            return
        code, _, reason = text.decode("utf-8", "replace").partition(" ")
        self.tell(failed=int(code), text=reason)

    def reap(self):
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid == self.pid:
                if self.start_limit:
                    self.learn_start()
                self.pid = None
                self.tell(status=status)
            elif pid in self.noting:
                self.noting.discard(pid)
                self.tell(noted=True)

    # -- killing and notes --

    def begin_kill(self, grace):
        for pid in self.confinement.payload() if grace > 0 else []:
            for number in (signal.SIGCONT, signal.SIGTERM):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)
        self.kill_limit = time.monotonic() + grace

    def go_on_killing(self):
        """After the grace kill what is left; then say so."""
        if self.kill_limit is None:
            return
        if self.confinement.payload() and time.monotonic() < self.kill_limit:
            return
        self.kill_limit = None
        left = self.confinement.kill_payload()
        if not self.confinement.real and self.pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)
        self.tell(killed=len(left))

    def note(self, text):
        pid = os.fork()
        if pid == 0:
            guarded(lambda: self.write_note(text))
        self.noting.add(pid)

    def write_note(self, text):
        signal.alarm(30)
        become(self.account)
        directory, name = self.data["launching_directory"], self.data["stderr_file"]
        os.chdir(node_base.encode(directory))
        path = node_base.encode(name.replace("%jobid%", str(self.data["job_id"])))
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NOCTTY | os.O_CLOEXEC
        os.write(os.open(path, flags, 0o666), node_base.encode(text))
        return 0


class UserProcess:
    """From the helper's fork to the user's shell."""

    def __init__(self, helper, go_read, status_write):
        self.helper = helper
        self.data = helper.data
        self.go_read = go_read
        self.status_write = status_write

    def run(self):
        signal.set_wakeup_fd(-1)
        keep_only(self.go_read, self.status_write)
        os.setsid()
        self.helper.confinement.join(node_cgroups.PAYLOAD)
        systemd = self.data.get("deploy_cosystem_job_exec_system") == "systemd-run"
        set_oom_score(user_oom_score())
        become(self.helper.account, for_good=not systemd)
        os.umask(self.helper.umask)
        open_signals()
        if not os.read(self.go_read, 1):
            return 1
        directory = self.data["launching_directory"]
        self.attempt(10, "cannot enter the directory %s" % directory, lambda: os.chdir(node_base.encode(directory)))
        self.open_outputs()
        shell = self.helper.account.pw_shell or "/bin/sh"
        argv = [shell, "-c", self.data["command"] or ""]
        if systemd:
            os.seteuid(0)
            uid = self.helper.account.pw_uid
            argv = ["systemd-run", "-q", "--uid=%d" % uid, "--scope", "--collect", "--slice=user-%d.slice" % uid, *argv]
        try:
            os.execvpe(argv[0], [node_base.encode(word) for word in argv], self.helper.environment)
        except OSError as error:
            node_base.complain("oarexec: cannot execute %s: %s" % (argv[0], error.strerror))
        return 127

    def open_outputs(self):
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOCTTY
        names = [(1, self.data.get("stdout_file")), (2, self.data.get("stderr_file"))]
        for descriptor, name in names:
            path = (name or "/dev/null").replace("%jobid%", str(self.data["job_id"]))
            fd = self.attempt(
                20, "cannot open the file %s" % path, partial(os.open, node_base.encode(path), flags, 0o666)
            )
            os.dup2(fd, descriptor)
            if fd > 2:
                os.close(fd)

    def attempt(self, code, text, action):
        try:
            return action()
        except OSError as error:
            os.write(self.status_write, node_base.encode("%d %s: %s" % (code, text, error.strerror)))
            os._exit(1)
