"""Leads a user from the account oar into one of his jobs on this node; run as root by ``oarsh_shell``.

Arguments are ``name=value``: what the client sent and nobody has checked yet (``user job_id cpuset session cpus devices
term display xauthority with_command command``), and what the node's oar.conf says (``runtime cpuset_path manager bypass
hook exec_system``).

``session`` is empty for oarsh, ``main`` for the shell of an interactive job, whose end ends the job, ``connect`` for a
further one.  These two exit with 0 once the user has had his shell, whatever it returned, unless ``:status`` is
appended; another exit code is a refusal, of which the reason has been written.

See docs/design/nodes.rst, "oarsh".
"""

import contextlib
import os
import re
import select
import signal
import time

import node_base
import node_cgroups
import node_devices
import node_kernel
from node_base import JobFiles, NodeError
from node_protocol import OarexecPhase

TYPE_CHECKING = False
if TYPE_CHECKING:
    import pwd
    from collections.abc import Mapping
    from typing import NoReturn

    from node_cgroups import Confinement
    from node_faults import Fault

FIRST_USER_UID = 1000
NO_CPUSET = (
    "OAR_CPUSET variable is empty; Is your sshd right configured with 'AcceptEnv OAR_CPUSET OAR_JOB_USER' on all "
    "computing nodes?"
)
NO_KEY = "The OAR_KEY environment variable is not defined and this seems to be a oar user connection."
LIVING = (OarexecPhase.STARTED, OarexecPhase.RUNNING)
#: Bytes of the fault that a shell which cannot be executed may make, at most.
LONGEST_FAULT = 1 << 16
#: How long the end of a job waits for the client to hear how its shell ended.
PARTING_SECONDS = 2.0
#: What the terminal of a session may send to those who wait beside its shell.
TERMINAL_SIGNALS = (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGTERM)


class SessionExit:
    """Exit codes of a session that is refused."""

    NO_DIRECTORY = 2  #: the working directory is not there
    NOT_FOUND = 61  #: there is no such job of this user here
    NOT_ENTERED = 62  #: the job cannot be entered
    NO_CPUSET = 63  #: the client did not name the group of the job
    NO_KEY = 65  #: the client did not name the user
    SHELL = 66  #: the shell cannot be executed
    ACCOUNT = 67  #: the user is not known here


class NoShell(NodeError):
    """The user has no shell, for a reason that his job shall tell (``node_faults``)."""

    def __init__(self, code: int, text: str, fault: "Fault") -> None:
        NodeError.__init__(self, code, text)
        self.fault = fault


def main(arguments: "list[str]") -> int:
    """Become the user inside his job; return only the exit code of a refusal or of a session that was waited for."""
    request = dict(argument.partition("=")[::2] for argument in arguments)
    try:
        return UserSession(request).run()
    except NodeError as error:
        complain(error)
        return error.code


def complain(error: NodeError) -> None:
    """Write why there is no session."""
    node_base.complain(str(error) if error.code == SessionExit.NO_DIRECTORY else "oarsh: %s" % error)


class UserSession:
    """One session of a user in one of his jobs; ``request``: the arguments of the program."""

    account: "pwd.struct_passwd"
    files: JobFiles

    def __init__(self, request: "Mapping[str, str]") -> None:
        self.request = request
        self.cpuset = request["cpuset"]
        self.kind, _, self.tells = request["session"].partition(":")
        self.sshd = session_daemon()
        self.confinement: "Confinement | None" = None
        self.leaf = ""  #: where the processes of the session are
        self.variables: "dict[str, str]" = {}

    def run(self) -> int:
        """Check the request, enter the job, run the shell; return the exit code if there is anything to return to."""
        if not self.request["user"]:
            raise NodeError(SessionExit.NO_KEY, NO_KEY)
        self.account = self.check_account()
        if self.cpuset == "undef":
            if self.request["bypass"] in ("", "0", "no"):
                raise self.not_found()
            self.become_shell()
        runtime, user = self.request["runtime"], self.request["user"]
        with node_base.job_locked(runtime, user, self.job_id(), SessionExit.NOT_ENTERED):
            confinement = self.check_job()
            if confinement is not None:
                self.add_process_to_cpuset(confinement)
        self.hand_over_terminal()
        if not self.kind:
            self.become_shell()
        return self.run_interactive()

    # -- whose job, and is it here --

    def not_found(self) -> NodeError:
        return NodeError(SessionExit.NOT_FOUND, "Cannot find cpuset file %s" % node_base.escaped(self.cpuset))

    def check_account(self) -> "pwd.struct_passwd":
        """Return the account of the user; raise NodeError if it may not have sessions."""
        account = node_base.account_of(self.request["user"])
        if account is None:
            raise NodeError(SessionExit.ACCOUNT, node_base.why_no_account(self.request["user"]))
        if account.pw_uid < FIRST_USER_UID:
            raise self.not_found()
        return account

    def job_id(self) -> int:
        """Return the job that is to be entered; raise NodeError if the request names none."""
        job_id = self.request["job_id"] or self.cpuset.rpartition("_")[2]
        if not re.match(r"[0-9]{1,18}\Z", job_id):
            raise self.not_found()
        return int(job_id)

    def check_job(self) -> "Confinement | None":
        """Return the job's confinement; None where jobs have none.

        Raises NodeError unless the job is this user's, and says so here.
        """
        self.files = JobFiles(self.request["runtime"], self.job_id())
        if not self.cpuset:
            if not self.kind:
                raise NodeError(SessionExit.NO_CPUSET, NO_CPUSET)
            self.check_state()
            return None
        self.read_environment()
        path, _, name = self.cpuset.rpartition("/")
        if self.variables.get("OAR_CPUSET") != self.cpuset or path != self.request["cpuset_path"]:
            raise self.not_found()
        options = {"cgroup_manager": self.request["manager"]}
        groups = node_cgroups.groups_of({"cpuset_path": path, "options": options})
        confinement = node_cgroups.Confinement(groups, name, self.account.pw_name, self.files.job_id)
        if groups is not None and not confinement.exists():
            raise self.not_found()
        return confinement

    def check_state(self) -> None:
        """On a host without control groups: the state file tells whose job it is and that it runs."""
        state = node_base.read_state(self.files)
        if state is None or state.get("user") != self.account.pw_name or state["phase"] not in LIVING:
            raise self.not_found()
        if state.get("cpuset"):  # it has a group here: nobody comes in beside it
            raise NodeError(SessionExit.NO_CPUSET, NO_CPUSET)
        self.read_environment()

    def read_environment(self) -> None:
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
            self.variables.update(node_base.exported(file))
        content = node_base.read_file(self.files.user_variables(self.account.pw_name))
        if content:
            import json

            self.variables.update(node_base.possible_variables(json.loads(content.decode("ascii"))))

    # -- into the job --

    def add_process_to_cpuset(self, confinement: "Confinement") -> None:
        """Move this process and the sshd above it into a group of its own below the job's payload.

        Sites that confine jobs in another way change this function.
        """
        try:
            self.leaf = confinement.enter_session(os.getpid())
            confinement.move(self.leaf, os.getpid())
            self.confinement = confinement
            if not self.kind:
                self.take_sshd_along()
        except OSError as error:
            raise NodeError(SessionExit.NOT_ENTERED, "cannot enter the job: %s" % error) from None
        self.narrow(confinement)

    def take_sshd_along(self) -> None:
        """Move the sshd above us into the session; a shell that has a parent here does not wait for that."""
        if self.sshd is not None and self.confinement is not None:
            self.confinement.move(self.leaf, self.sshd)

    def narrow(self, confinement: "Confinement") -> None:
        """Keep the session to the part of the job that the user asks for; warn if there is no such part."""
        text = "Warning: Failed to set user %s as requested by %s=%s, use the default one"
        cpus, devices = self.request["cpus"], self.request["devices"]
        if cpus and not self.narrow_cpus(numbers_in(cpus)):
            node_base.complain(text % ("cpuset", "OAR_USER_CPUSET", node_base.escaped(cpus)))
        if devices and not self.narrow_devices(confinement, numbers_in(devices)):
            node_base.complain(text % ("devices", "OAR_USER_GPUDEVICE", node_base.escaped(devices)))

    @staticmethod
    def narrow_cpus(cpus: "set[int] | None") -> bool:
        """Bind the session to processors; return False if they are none of the job's."""
        if not cpus or not cpus <= os.sched_getaffinity(0):
            return False
        os.sched_setaffinity(0, cpus)
        return True

    def gpus_here(self) -> "set[int] | None":
        """Return the numbers of the job's GPUs on this node; None where its resources do not tell them."""
        values = node_base.values_here(self.files, "gpudevice")
        words = [word for value in values for word in node_devices.words_of(value)]
        return {number for number in map(node_devices.number_of, words) if number is not None} or None

    def narrow_devices(self, confinement: "Confinement", devices: "set[int] | None") -> bool:
        """Refuse the session all other devices; return False if that cannot be."""
        own = self.gpus_here()
        if devices is None or confinement.groups is None or (own is not None and not devices <= own):
            return False
        try:
            node_devices.restrict(confinement.groups, self.leaf, [str(device) for device in devices])
        except (OSError, NodeError):
            return False
        if re.match(r"[0-9,]*\Z", self.variables.get(node_devices.CUDA, "")):  # what has a name keeps it
            here = node_devices.gpu_variables(map(str, devices), True, node_devices.has_amd())
            self.variables.update(here)
        return True

    def hand_over_terminal(self) -> None:
        if os.isatty(0):
            import grp

            with contextlib.suppress(OSError, KeyError):
                os.chown(os.ttyname(0), self.account.pw_uid, grp.getgrnam("tty").gr_gid)
                os.chmod(os.ttyname(0), 0o620)

    # -- the user's shell --

    def environment(self) -> "dict[bytes, bytes]":
        """Return the environment of the shell."""
        account = self.account
        variables = {
            "HOME": account.pw_dir,
            "USER": account.pw_name,
            "LOGNAME": account.pw_name,
            "SHELL": account.pw_shell or "/bin/sh",
            "PATH": node_base.DEFAULT_PATH,
            "TERM": self.request["term"] or ("xterm" if self.kind else "unknown"),
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
        if self.request["display"]:
            variables["DISPLAY"] = self.request["display"]
        return {node_base.encode(name): node_base.encode(value) for name, value in variables.items()}

    def become_shell(self, directory: "str | None" = None) -> "NoReturn":
        """Become the user and run his shell in a directory, None: in his home; raise NodeError if that fails."""
        environment = self.environment()
        shell = self.account.pw_shell or "/bin/sh"
        if self.request["exec_system"] == "systemd-run" and self.kind and not self.cpuset:
            argv, environment = self.by_systemd(directory, shell, environment)
        else:
            argv = [shell, "-c", self.request["command"]]
            if self.request["with_command"] != "yes":
                argv = ["-" + os.path.basename(shell)]
            self.become_user(directory, environment)
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGPIPE, signal.SIGCHLD, *TERMINAL_SIGNALS):
            signal.signal(number, signal.SIG_DFL)
        program = argv[0] if argv[0] == "systemd-run" else shell
        try:
            os.execvpe(program, [node_base.encode(word) for word in argv], environment)
        except OSError as error:
            import node_faults

            text = "cannot execute %s: %s" % (program, error.strerror)
            raise NoShell(SessionExit.SHELL, text, node_faults.of_shell(error, program)) from None

    def become_user(self, directory: "str | None", environment: "Mapping[bytes, bytes]") -> None:
        """Be the user for good, in a directory."""
        cookie = self.display_cookie()
        os.initgroups(self.account.pw_name, self.account.pw_gid)
        os.setgid(self.account.pw_gid)
        os.setuid(self.account.pw_uid)
        self.change_directory(directory)
        if cookie:
            give_cookie(cookie, environment)

    def by_systemd(
        self, directory: "str | None", shell: str, environment: "Mapping[bytes, bytes]"
    ) -> "tuple[list[str], dict[bytes, bytes]]":
        """Return (words, environment) of a shell that systemd keeps track of, on a frontend: it is root who asks it."""
        os.initgroups(self.account.pw_name, self.account.pw_gid)
        with node_base.acting_as(self.account):
            self.change_directory(directory)
        return node_base.by_systemd(self.account, [shell, "-l"], environment)

    def change_directory(self, directory: "str | None") -> None:
        """Go into a directory, None: into the home, or / if there is none; raise NodeError if that fails."""
        if directory is None:
            with contextlib.suppress(OSError):
                os.chdir(self.account.pw_dir)
                return
            os.chdir("/")
            return
        try:
            os.chdir(node_base.encode(directory))
        except OSError as error:
            import node_faults

            text = "# Error: cannot go into working directory: %s." % node_base.escaped(directory)
            fault = node_faults.of_directory(error, directory, self.account)
            raise NoShell(SessionExit.NO_DIRECTORY, text, fault) from None

    def display_cookie(self) -> bytes:
        """Return the X11 cookie that sshd gave to oar, to be handed to the user; empty if there is none."""
        if not self.request["display"]:
            return b""
        import subprocess

        oar = node_base.oar_account()
        environment = {"HOME": oar.pw_dir, "PATH": node_base.DEFAULT_PATH}
        if self.request["xauthority"]:
            environment["XAUTHORITY"] = self.request["xauthority"]
        try:
            command = ["setpriv", "--reuid", str(oar.pw_uid), "--regid", str(oar.pw_gid), "--clear-groups"]
            command += ["xauth", "-q", "extract", "-", self.request["display"]]
            return subprocess.check_output(command, env=environment, stderr=subprocess.DEVNULL, timeout=10)
        except (OSError, subprocess.SubprocessError):
            return b""

    # -- sessions of interactive jobs --

    def run_interactive(self) -> int:
        """Run the shell of an interactive job, known to its oarexec; return the exit code.

        The end of the main one is the job's end.
        """
        lock = self.claim_job() if self.kind == "main" else None
        refusal_read, refusal_write = os.pipe()
        watch = ShellWatch(refusal_read)
        pid = os.fork()
        if pid == 0:
            self.user_side(refusal_write)
        os.close(refusal_write)
        with contextlib.suppress(OSError):  # the job has ended meanwhile
            self.take_sshd_along()
        self.record(pid)
        status = watch.wait(pid)
        if lock is not None:
            if watch.fault:
                os.write(lock, watch.fault + b"\n")
            self.end_job()
        if watch.refusal:
            return watch.refusal
        return shell_code(status) if self.tells else 0

    def claim_job(self) -> int:
        """Take the lock that tells oarexec that the main session lives, and write there that it has begun."""
        lock = node_base.take_lock(self.files.main_session, SessionExit.NOT_ENTERED, 5.0)
        if os.fstat(lock).st_size:
            raise NodeError(SessionExit.NOT_ENTERED, "the job %d has had its session" % self.files.job_id)
        oar = node_base.oar_account()
        os.fchown(lock, oar.pw_uid, oar.pw_gid)
        os.write(lock, b"%d\n" % os.getpid())
        return lock

    def user_side(self, refusal_write: int) -> "NoReturn":
        """In the child: the hook, then the shell; what stands in its way is written and sent to the parent."""
        try:
            try:
                self.run_hook()
                self.become_shell(self.variables.get("OAR_WORKING_DIRECTORY") or self.account.pw_dir)
            except OSError as error:
                raise NodeError(SessionExit.SHELL, "cannot start the shell: %s" % error) from None
        except NodeError as error:
            complain(error)
            os.write(refusal_write, refusal(error))
        finally:
            os._exit(1)

    def run_hook(self) -> None:
        """Run the site's hook, as root, before the user's shell."""
        hook = self.request["hook"]
        if not hook or not os.access(hook, os.X_OK):
            return
        import subprocess

        pids = "%d,%d" % (os.getpid(), os.getppid())
        names = ("OAR_JOB_NAME", "OAR_PROJECT_NAME", "OAR_JOB_WALLTIME_SECONDS")
        fields = [pids, self.account.pw_name, str(self.files.job_id)] + [self.variables.get(name, "") for name in names]
        subprocess.call([hook, node_base.encode(":".join(fields))], stdin=subprocess.DEVNULL)

    def record(self, pid: int) -> None:
        """Note the shell where oarexec looks for sessions to end."""
        line = "%d %d\n" % (pid, node_base.start_time(pid) or 0)
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        with node_base.acting_as(node_base.oar_account()):
            fd = os.open(self.files.connections, flags, 0o644)
            os.write(fd, line.encode("ascii"))
            os.close(fd)

    def end_job(self) -> None:
        """Tell oarexec that the session is over, once the client has heard how it ended: the end kills its way."""
        if os.fork():
            return
        os.setsid()
        nowhere = os.open("/dev/null", os.O_RDWR)
        for descriptor in range(3):
            os.dup2(nowhere, descriptor)
        self.await_client()
        with node_base.acting_as(node_base.oar_account()):
            pid = node_base.live_oarexec(self.files)
        if pid is not None:
            os.kill(pid, signal.SIGUSR1)
        os._exit(0)

    def await_client(self) -> None:
        """Wait a little for the end of the connection."""
        if self.sshd is None:
            return
        start = node_base.start_time(self.sshd)
        limit = time.monotonic() + PARTING_SECONDS
        while start and node_base.start_time(self.sshd) == start and time.monotonic() < limit:
            time.sleep(0.002)


class ShellWatch:
    """Waits beside the user's shell for its end, or for the loss of the connection, which the shell may not notice."""

    def __init__(self, refusal_read: int) -> None:
        self.refusal_read = refusal_read
        self.refusal = 0  #: exit code, if there was no shell
        self.fault = b""  #: what stood in its way, as JSON
        self.wake, wake_write = os.pipe()
        os.set_blocking(wake_write, False)
        signal.set_wakeup_fd(wake_write)
        for number in (signal.SIGCHLD, *TERMINAL_SIGNALS):
            signal.signal(number, lambda *_: None)
        #: Nothing is read from it: the kernel says by itself when its other end is gone.
        self.line = 0 if os.isatty(0) else 2

    def wait(self, pid: int) -> int:
        """Return how the shell ended, as a raw wait status; one that nobody is connected to any more is hung up."""
        poll = select.poll()
        poll.register(self.wake, select.POLLIN)
        poll.register(self.line, 0)
        while True:
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                code, _, self.fault = os.read(self.refusal_read, LONGEST_FAULT).partition(b" ")
                self.refusal = int(code or 0)
                return status
            ready = dict(poll.poll())
            if self.wake in ready:
                os.read(self.wake, 512)
            if self.line in ready:
                os.kill(pid, signal.SIGHUP)
                return signal.SIGHUP


def numbers_in(text: str) -> "set[int] | None":
    """Return the numbers between ``,`` ``+`` ``.`` and ``:``; None for any other text."""
    if not re.match(r"[0-9,+.:]+\Z", text):
        return None
    return {int(word) for word in re.split(r"[,+.:]+", text) if word}


def refusal(error: NodeError) -> bytes:
    """Return what the parent of a shell that could not begin reads: the exit code, and the fault if it is known."""
    if not isinstance(error, NoShell):
        return b"%d " % error.code
    import json

    return b"%d %s" % (error.code, json.dumps(error.fault).encode("ascii"))


def shell_code(status: int) -> int:
    """Return the exit code that a shell would tell of a raw wait status."""
    return os.WEXITSTATUS(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status)


def session_daemon() -> "int | None":
    """Return the pid of the sshd process that serves this session as oar; None if there is none above us."""
    oar = node_base.oar_account().pw_uid
    pid = os.getppid()
    while pid > 1:
        content = node_base.read_process(pid, "stat")
        if content is None:
            return None
        name = content[content.index(b"(") + 1 : content.rindex(b")")]
        if name.startswith(b"sshd"):
            return pid if node_kernel.owner_of(pid) == oar else None
        pid = int(content[content.rindex(b")") + 2 :].split()[1])
    return None


def give_cookie(cookie: bytes, environment: "Mapping[bytes, bytes]") -> None:
    """As the user: take the cookie into his authority file."""
    import subprocess

    with contextlib.suppress(OSError, subprocess.SubprocessError):
        process = subprocess.Popen(["xauth", "-q", "merge", "-"], stdin=subprocess.PIPE, env=environment)
        process.communicate(cookie, timeout=10)
