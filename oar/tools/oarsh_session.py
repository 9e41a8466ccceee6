"""Leads a user from the account oar into one of his jobs on this node; run as root by ``oarsh_shell`` (node.md 5.2).

Arguments are ``name=value``: what the client sent and nobody has checked yet (``user job_id cpuset session cpus devices
term display xauthority with_command command``), and what the node's oar.conf says (``runtime cpuset_path manager bypass
hook exec_system``).

``session`` is empty for oarsh, ``main`` for the shell of an interactive job, whose end ends the job, ``connect`` for a
further one.  These two exit with 0 once the user has had his shell, whatever it returned, unless ``:status`` is
appended; another exit code is a refusal, of which the reason has been written.
"""

import contextlib
import functools
import os
import re
import select
import signal
import sys
import time

import node_base
import node_cgroups
import node_devices
from node_base import JobFiles, NodeError

FIRST_USER_UID = 1000
NO_CPUSET = (
    "OAR_CPUSET variable is empty; Is your sshd right configured with 'AcceptEnv OAR_CPUSET OAR_JOB_USER' on all "
    "computing nodes?"
)
NO_KEY = "The OAR_KEY environment variable is not defined and this seems to be a oar user connection."
EXPORT = re.compile(r"export ([A-Za-z_][A-Za-z0-9_]*)='((?:[^']|'\\'')*)'\Z")
LIVING = (node_base.STARTED, node_base.RUNNING)
#: Exit code of a session whose directory is not there.
NO_DIRECTORY = 2
#: What a shell that cannot be executed may make of a reason, at most.
LONGEST_REASON = 1 << 16
#: How long the end of a job waits for the client to hear how its shell ended.
PARTING_SECONDS = 2.0


class Hindered(NodeError):
    """The user has no shell, for a reason that his job shall tell (``node_reasons``)."""

    def __init__(self, code, text, reason):
        NodeError.__init__(self, code, text)
        self.reason = reason


def main(arguments):
    """Become the user inside his job; returns only the exit code of a refusal or of a session that was waited for."""
    wanted = dict(argument.partition("=")[::2] for argument in arguments)
    try:
        return Session(wanted).run()
    except NodeError as error:
        complain(error)
        return error.code


def complain(error):
    node_base.complain(str(error) if error.code == NO_DIRECTORY else "oarsh: %s" % error)


class Session:
    """One session of a user in one of his jobs."""

    def __init__(self, wanted):
        self.wanted = wanted
        self.cpuset = wanted["cpuset"]
        self.kind, _, self.tells = wanted["session"].partition(":")
        self.sshd = session_daemon()
        self.follow = None  #: moves a process to where the session is
        self.files = None
        self.account = None
        self.variables = {}

    def run(self):
        if not self.wanted["user"]:
            raise NodeError(65, NO_KEY)
        self.account = self.check_account()
        if self.cpuset == "undef":
            if self.wanted["bypass"] in ("", "0", "no"):
                raise self.not_found()
            return self.become_shell()
        with node_base.locked(node_base.user_lock_path(self.wanted["runtime"], self.wanted["user"]), 62):
            confinement = self.check_job()
            if confinement is not None:
                self.add_process_to_cpuset(confinement)
        self.hand_over_terminal()
        if self.kind:
            return self.run_interactive()
        return self.become_shell()

    # -- whose job, and is it here --

    def not_found(self):
        return NodeError(61, "Cannot find cpuset file %s" % node_base.escaped(self.cpuset))

    def check_account(self):
        account = node_base.account_of(self.wanted["user"])
        if account is None:
            raise NodeError(67, "the user %s is not known on this node" % node_base.escaped(self.wanted["user"]))
        if account.pw_uid < FIRST_USER_UID or account.pw_uid == node_base.oar_account().pw_uid:
            raise self.not_found()
        return account

    def check_job(self):
        """The job's confinement; None where jobs have none.  The job must be this user's, and say so here."""
        job_id = self.wanted["job_id"] or self.cpuset.rpartition("_")[2]
        if not re.match(r"[0-9]{1,18}\Z", job_id):
            raise self.not_found()
        self.files = JobFiles(self.wanted["runtime"], int(job_id))
        if not self.cpuset:
            if not self.kind:
                raise NodeError(63, NO_CPUSET)
            self.check_state()
            return None
        self.read_environment()
        path, _, name = self.cpuset.rpartition("/")
        if self.variables.get("OAR_CPUSET") != self.cpuset or path != self.wanted["cpuset_path"]:
            raise self.not_found()
        options = {"cgroup_manager": self.wanted["manager"]}
        groups = node_cgroups.groups_of({"cpuset_path": path, "options": options})
        confinement = node_cgroups.Confinement(groups, name, self.account.pw_name, int(job_id))
        if confinement.real and not confinement.exists():
            raise self.not_found()
        return confinement

    def check_state(self):
        """On a host without control groups the state file tells whose job it is and that it runs."""
        state = node_base.read_state(self.files)
        if state is None or state.get("user") != self.account.pw_name or state["phase"] not in LIVING:
            raise self.not_found()
        if state.get("cpuset"):  # it has a group here: nobody comes in beside it
            raise NodeError(63, NO_CPUSET)
        self.read_environment()

    def read_environment(self):
        """Read the job's variables: parsed, never given to a shell; the file must be oar's."""
        path = self.files.environment(self.account.pw_name)
        try:
            fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            if self.cpuset:
                raise self.not_found() from None
            return
        with os.fdopen(fd, encoding="utf-8", errors="surrogateescape") as file:
            if os.fstat(fd).st_uid != node_base.oar_account().pw_uid:
                raise self.not_found()
            for line in file:
                found = EXPORT.match(line.rstrip("\n"))
                if found:
                    self.variables[found.group(1)] = found.group(2).replace("'\\''", "'")
        given = node_base.read_file(self.files.given(self.account.pw_name))
        if given:
            import json

            self.variables.update(node_base.given_variables(json.loads(given.decode("ascii"))))

    # -- into the job --

    def add_process_to_cpuset(self, confinement):
        """Move this process and the sshd above it into a group of its own below the job's payload.

        Sites that confine jobs in another way change this function.
        """
        try:
            leaf = confinement.enter_session(os.getpid())
            confinement.move(leaf, os.getpid())
            self.follow = functools.partial(confinement.move, leaf)
            if not self.kind:
                self.take_sshd_along()
        except OSError as error:
            raise NodeError(62, "cannot enter the job: %s" % error) from None
        self.narrow(confinement, leaf)

    def take_sshd_along(self):
        """The sshd above us belongs to the session, too; a shell that has a parent here does not wait for that."""
        if self.sshd is not None and self.follow is not None:
            self.follow(self.sshd)

    def narrow(self, confinement, leaf):
        """A user may ask for a part of his job only."""
        for name, variable in (("cpus", "OAR_USER_CPUSET"), ("devices", "OAR_USER_GPUDEVICE")):
            value = self.wanted[name]
            if value and not self.narrow_one(confinement, leaf, name, value):
                text = "Warning: Failed to set user %s as requested by %s=%s, use the default one\n"
                what = "cpuset" if name == "cpus" else "devices"
                sys.stderr.write(text % (what, variable, node_base.escaped(value)))

    @staticmethod
    def narrow_one(confinement, leaf, name, value):
        if not re.match(r"[0-9,+.:]+\Z", value):
            return False
        numbers = {int(word) for word in re.split(r"[,+.:]+", value) if word}
        if name == "devices":
            with contextlib.suppress(OSError, NodeError):
                node_devices.restrict(confinement.groups, leaf, [str(number) for number in numbers])
                return True
            return False
        if not numbers or not numbers <= os.sched_getaffinity(0):
            return False
        os.sched_setaffinity(0, numbers)
        return True

    def hand_over_terminal(self):
        if os.isatty(0):
            import grp

            with contextlib.suppress(OSError, KeyError):
                os.chown(os.ttyname(0), self.account.pw_uid, grp.getgrnam("tty").gr_gid)
                os.chmod(os.ttyname(0), 0o620)

    # -- the user's shell --

    def environment(self):
        account = self.account
        variables = {
            "HOME": account.pw_dir,
            "USER": account.pw_name,
            "LOGNAME": account.pw_name,
            "SHELL": account.pw_shell or "/bin/sh",
            "PATH": node_base.DEFAULT_PATH,
            "TERM": self.wanted["term"] or ("xterm" if self.kind else "unknown"),
            "SUDO_COMMAND": "OAR",
            "OAR_KEY": "0",
            "OAR_JOB_USER": account.pw_name,
        }
        language = node_base.language()
        if language:
            variables["LANG"] = language
        variables.update(self.variables)
        if self.kind:
            for name in ("OAR_STDOUT", "OAR_STDERR"):
                variables.pop(name, None)
        if self.wanted["display"]:
            variables["DISPLAY"] = self.wanted["display"]
        return {node_base.encode(name): node_base.encode(value) for name, value in variables.items()}

    def become_shell(self, directory=None):
        """Become the user and run his shell; does not return."""
        environment = self.environment()
        shell = self.account.pw_shell or "/bin/sh"
        if self.wanted["exec_system"] == "systemd-run" and self.kind and not self.cpuset:
            argv, environment = self.by_systemd(directory, shell, environment)
        else:
            argv = [shell, "-c", self.wanted["command"]]
            if self.wanted["with_command"] != "yes":
                argv = ["-" + os.path.basename(shell)]
            self.become_user(directory, environment)
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGPIPE, signal.SIGCHLD, *TERMINAL_SIGNALS):
            signal.signal(number, signal.SIG_DFL)
        program = argv[0] if argv[0] == "systemd-run" else shell
        try:
            os.execvpe(program, [node_base.encode(word) for word in argv], environment)
        except OSError as error:
            import node_reasons

            text = "cannot execute %s: %s" % (program, error.strerror)
            raise Hindered(66, text, node_reasons.of_shell(error, program)) from None

    def become_user(self, directory, environment):
        cookie = self.display_cookie()
        os.initgroups(self.account.pw_name, self.account.pw_gid)
        os.setgid(self.account.pw_gid)
        os.setuid(self.account.pw_uid)
        self.change_directory(directory)
        if cookie:
            give_cookie(cookie, environment)

    def by_systemd(self, directory, shell, environment):
        """On a frontend systemd may keep track of what users run: it is root who asks it."""
        os.initgroups(self.account.pw_name, self.account.pw_gid)
        with node_base.acting_as(self.account):
            self.change_directory(directory)
        return node_base.by_systemd(self.account, [shell, "-l"], environment)

    def change_directory(self, directory):
        if directory is None:
            with contextlib.suppress(OSError):
                os.chdir(self.account.pw_dir)
                return
            os.chdir("/")
            return
        try:
            os.chdir(node_base.encode(directory))
        except OSError as error:
            import node_reasons

            text = "# Error: cannot go into working directory: %s." % node_base.escaped(directory)
            reason = node_reasons.of_directory(error, directory, self.account)
            raise Hindered(NO_DIRECTORY, text, reason) from None

    def display_cookie(self):
        """The X11 cookie that sshd gave to oar, to be handed to the user."""
        if not self.wanted["display"]:
            return b""
        import subprocess

        oar = node_base.oar_account()
        environment = {"HOME": oar.pw_dir, "PATH": node_base.DEFAULT_PATH}
        if self.wanted["xauthority"]:
            environment["XAUTHORITY"] = self.wanted["xauthority"]
        try:
            command = ["setpriv", "--reuid", str(oar.pw_uid), "--regid", str(oar.pw_gid), "--clear-groups"]
            command += ["xauth", "-q", "extract", "-", self.wanted["display"]]
            return subprocess.check_output(command, env=environment, stderr=subprocess.DEVNULL, timeout=10)
        except (OSError, subprocess.SubprocessError):
            return b""

    # -- sessions of interactive jobs --

    def run_interactive(self):
        """The shell of an interactive job: known to its oarexec; the end of the main one is the job's end."""
        lock = self.claim_job() if self.kind == "main" else None
        told_read, told_write = os.pipe()
        watch = ShellWatch(told_read)
        pid = os.fork()
        if pid == 0:
            self.user_side(told_write)
        os.close(told_write)
        with contextlib.suppress(OSError):  # the job has ended meanwhile
            self.take_sshd_along()
        self.record(pid)
        status = watch.wait(pid)
        if lock is not None:
            if watch.reason:
                os.write(lock, watch.reason + b"\n")
            self.end_job()
        if watch.refusal:
            return watch.refusal
        return shell_code(status) if self.tells else 0

    def claim_job(self):
        """Take the lock that tells oarexec that the main session lives, and write there that it has begun."""
        lock = node_base.take_lock(self.files.main_session, 62, 5.0)
        if os.fstat(lock).st_size:
            raise NodeError(62, "the job %d has had its session" % self.files.job_id)
        oar = node_base.oar_account()
        os.fchown(lock, oar.pw_uid, oar.pw_gid)
        os.write(lock, b"%d\n" % os.getpid())
        return lock

    def user_side(self, told):
        """In the child: the hook, then the shell; what stands in its way is written and told."""
        try:
            try:
                self.run_hook()
                self.become_shell(self.variables.get("OAR_WORKING_DIRECTORY") or self.account.pw_dir)
            except OSError as error:
                raise NodeError(66, "cannot start the shell: %s" % error) from None
        except NodeError as error:
            complain(error)
            os.write(told, b"%d " % error.code + written(getattr(error, "reason", None)))
        finally:
            os._exit(1)

    def run_hook(self):
        """The site's hook, as root, before the user's shell."""
        hook = self.wanted["hook"]
        if not hook or not os.access(hook, os.X_OK):
            return
        import subprocess

        pids = "%d,%d" % (os.getpid(), os.getppid())
        names = ("OAR_JOB_NAME", "OAR_PROJECT_NAME", "OAR_JOB_WALLTIME_SECONDS")
        fields = [pids, self.account.pw_name, str(self.files.job_id)] + [self.variables.get(name, "") for name in names]
        subprocess.call([hook, node_base.encode(":".join(fields))], stdin=subprocess.DEVNULL)

    def record(self, pid):
        line = "%d %d\n" % (pid, node_base.start_time(pid) or 0)
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        with node_base.acting_as(node_base.oar_account()):
            fd = os.open(self.files.connections, flags, 0o644)
            os.write(fd, line.encode("ascii"))
            os.close(fd)

    def end_job(self):
        """Tell oarexec that the session is over, once the client has heard how it ended: the end kills its way."""
        if os.fork():
            return
        os.setsid()
        nowhere = os.open("/dev/null", os.O_RDWR)
        for descriptor in range(3):
            os.dup2(nowhere, descriptor)
        began = None if self.sshd is None else node_base.start_time(self.sshd)
        limit = time.monotonic() + PARTING_SECONDS
        while began and node_base.start_time(self.sshd) == began and time.monotonic() < limit:
            time.sleep(0.002)
        with node_base.acting_as(node_base.oar_account()):
            pid = node_base.live_oarexec(self.files)
        if pid is not None:
            os.kill(pid, signal.SIGUSR1)
        os._exit(0)


#: What the terminal of a session may send to those who wait beside its shell.
TERMINAL_SIGNALS = (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGTERM)


class ShellWatch:
    """Waits beside the user's shell for its end, or for the loss of the connection, which the shell may not notice."""

    def __init__(self, told):
        self.told = told
        self.refusal, self.reason = 0, b""  #: why there was no shell: exit code, and what the job shall tell
        self.wake, wake_write = os.pipe()
        os.set_blocking(wake_write, False)
        signal.set_wakeup_fd(wake_write)
        for number in (signal.SIGCHLD, *TERMINAL_SIGNALS):
            signal.signal(number, lambda *_: None)
        #: Nothing is read from it: the kernel says by itself when its other end is gone.
        self.line = 0 if os.isatty(0) else 2

    def wait(self, pid):
        """How the shell ended; one that nobody is connected to any more is hung up."""
        poll = select.poll()
        poll.register(self.wake, select.POLLIN)
        poll.register(self.line, 0)
        while True:
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                code, _, self.reason = os.read(self.told, LONGEST_REASON).partition(b" ")
                self.refusal = int(code or 0)
                return status
            ready = dict(poll.poll())
            if self.wake in ready:
                os.read(self.wake, 512)
            if self.line in ready:
                os.kill(pid, signal.SIGHUP)
                return signal.SIGHUP


def written(reason):
    if not reason:
        return b""
    import json

    return json.dumps(reason).encode("ascii")


def shell_code(status):
    return os.WEXITSTATUS(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status)


def session_daemon():
    """Pid of the sshd process that serves this session as oar; None if there is none above us."""
    oar = node_base.oar_account().pw_uid
    pid = os.getppid()
    while pid > 1:
        content = node_base.read_process(pid, "stat")
        if content is None:
            return None
        name = content[content.index(b"(") + 1 : content.rindex(b")")]
        if name.startswith(b"sshd"):
            return pid if node_cgroups.owner_of(pid) == oar else None
        pid = int(content[content.rindex(b")") + 2 :].split()[1])
    return None


def give_cookie(cookie, environment):
    """As the user: take the cookie into his authority file."""
    import subprocess

    with contextlib.suppress(OSError, subprocess.SubprocessError):
        process = subprocess.Popen(["xauth", "-q", "merge", "-"], stdin=subprocess.PIPE, env=environment)
        process.communicate(cookie, timeout=10)
