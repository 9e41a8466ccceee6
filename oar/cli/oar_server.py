"""oar-server: start, stop and check the server, with or without systemd."""

import os
import pwd
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import IO

import click

from oar.cli.common.command import Context, oar_command
from oar.cli.common.options import ADMIN, OneOf, Stop, option
from oar.lib.access.records import User
from oar.lib.base.errors import ConfigError, DatabaseUnavailable
from oar.lib.base.processes import OWN_END, PID_FILE, PidFile, is_ending, run
from oar.lib.config.files import Parsed
from oar.lib.jobs.states import ServerRole
from oar.lib.runtime import conf_file, database_settings, read_config

UNIT = "oar-server.service"
ACCOUNT = "oar"
IS_STOPPED = 3

#: Timeouts in seconds: until the server works or waits for its database, and until it stops.
START_SECONDS = 90.0
STOP_SECONDS = 60.0
#: Timeout of a check in seconds.
CHECK_SECONDS = 10.0
_LOG_LINES = 10
#: The end of the log in which they are looked for.
_LOG_BYTES = 1 << 16
#: The variable in which systemd names the server's process to what a reload of the unit runs after its signal.
_MAIN_PID = "MAINPID"
#: How the status of a server begins that is up and cannot work yet.
_WAITING = "waiting for "
_NOT_ASKED = "only root and oar may ask the server: sudo -u oar oar-server status --check"

#: Keys that the server makes when they are not there: file, comment (docs/design/nodes.rst, "Keys").
_KEYS = (("id_ed25519", "oar server"), ("oarsh_key", "oarsh"))


_OF_SYSTEMD = ["start", "stop", "restart", "reload"]
_ACTIONS = [*_OF_SYSTEMD, "status", "prepare", "hand-over", "is-active"]


@oar_command(
    "oar-server",
    summary="Start, stop, restart or reload the OAR server, show its status, or hand over to another server.",
    examples={
        "oar-server status --check": "Print the state of the server as a monitoring plugin does.",
        "oar-server hand-over": "Let a standby server become the active one.",
        "oar-server reload": "Let the running server read oar.conf again.",
    },
    style=ADMIN,
)
@click.argument("action", type=OneOf(_ACTIONS))
@option("--check", is_flag=True, help="With status: print one line and exit like a monitoring plugin.")
@option("--json", "as_json", is_flag=True, help="With status: print the states of all servers as JSON.")
@option("--to", "wanted", metavar="NAME", help="With hand-over: the server that becomes the active one.")
def main(context: Context, action: str, *, check: bool, as_json: bool, wanted: str | None) -> int:
    """Run the command."""
    for name, is_set, needed in (("check", check, "status"), ("json", as_json, "status"), ("to", wanted, "hand-over")):
        if is_set and action != needed:
            raise click.UsageError(f"--{name} needs the action {needed}. Run: oar-server {needed} --{name}")
    if action != "status" or as_json:
        context.require_admin()
    path = conf_file(context.environment)
    if check:
        return _check(context, path)
    server = Server(read_config(path), path, context.environment)
    if action == "prepare":
        server.prepare()
        return 0
    if action == "reload" and _MAIN_PID in context.environment:
        return server.reloaded()
    if action in _OF_SYSTEMD and has_unit():
        return run_systemctl(action)
    actions: dict[str, Callable[[], int]] = {
        "start": server.start,
        "stop": server.stop,
        "restart": server.restart,
        "reload": server.reload,
        "status": partial(server.status, as_json=as_json),
        "hand-over": partial(server.hand_over, context.user, wanted),
        "is-active": server.is_active,
    }
    return actions[action]()


def _check(context: Context, path: str) -> int:
    """Print the health of the server in one line; return the exit code of a monitoring plugin."""
    from oar.cli.common.health_probes import explain_unreadable
    from oar.lib.monitoring.health import ServerHealth

    try:
        parsed = read_config(path)
    except ConfigError as error:
        if context.user.is_admin and os.path.exists(path) and not os.access(path, os.R_OK, effective_ids=True):
            click.echo(f"OAR CRITICAL: {explain_unreadable(context.user.name, path)}")
            return ServerHealth.CRITICAL
        click.echo(f"OAR UNKNOWN: {error if context.user.is_admin else _NOT_ASKED}")
        return ServerHealth.UNKNOWN
    return Server(parsed, path, context.environment).check()


# -- with systemd -----------------------------------------------------------------------------------------------------


def has_unit() -> bool:
    """Whether systemd runs this machine and knows the server."""
    return Path("/run/systemd/system").is_dir() and run(["systemctl", "cat", UNIT], timeout=30).succeeded


def run_systemctl(action: str) -> int:
    """Have systemd do it; show the last lines of the log if it fails."""
    outcome = run(["systemctl", action, UNIT], timeout=START_SECONDS + STOP_SECONDS)
    if outcome.succeeded:
        status = run(["systemctl", "show", "--property", "StatusText", "--value", UNIT], timeout=30).output.strip()
        if action in ("start", "restart") and status.startswith(_WAITING):
            click.echo(f"oar-server is started, and {status}.")
        return 0
    click.echo(outcome.output.strip() or "systemctl did not answer", err=True)
    journal = run(["journalctl", "--no-pager", "-n", str(_LOG_LINES), "-u", UNIT], timeout=30)
    click.echo(journal.output.strip(), err=True)
    return 1


# -- without ----------------------------------------------------------------------------------------------------------


class Server:
    """The server as a process in the background, known by its pid file."""

    def __init__(
        self, parsed: Parsed, path: str, environment: Mapping[str, str], account: pwd.struct_passwd | None = None
    ) -> None:
        """``parsed``: the file at ``path``; ``account``: default, oar for root, else the caller's own."""
        self._config = config = parsed.config
        self._errors = [str(error) for error in parsed.errors]
        self._account = account
        self._path = path
        self._environment = environment
        self._pid_file = PidFile(Path(config.oar_run_dir) / PID_FILE)

    def pid(self) -> int | None:
        """Return the pid of the running server."""
        try:
            return self._pid_file.holder()
        except OSError as error:
            raise Stop(f"[ERROR] cannot read the pid file in {self._config.oar_run_dir}: {error.strerror}") from None

    def status(self, *, as_json: bool = False) -> int:
        """Print whether the server runs. If there are several, of OAR or of PostgreSQL, print the states of all."""
        from oar.cli.common import servers

        pid = self.pid()
        are_several = len(self._config.server_hostnames) > 1
        if not as_json:
            click.echo("oar-server is stopped." if pid is None else f"oar-server is running (pid {pid}).")
            if not are_several and len(database_settings(self._config).addresses) == 1:
                return IS_STOPPED if pid is None else 0
        report = servers.load_report(self._config)
        if as_json:
            click.echo(servers.format_json(report, pid, self._role()))
        else:
            click.echo(servers.format_report(report, with_servers=are_several))
        if pid is None:
            return IS_STOPPED
        return DatabaseUnavailable.exit_code if report.error else 0

    def is_active(self) -> int:
        """Return 0 if the tasks of timers must run on this host: it is the active or the only server."""
        return 0 if len(self._config.server_hostnames) == 1 or self._role() == ServerRole.ACTIVE else IS_STOPPED

    def hand_over(self, user: User, wanted: str | None = None) -> int:
        """Let a standby server become the active one, as a user asks."""
        from oar.cli.common import servers

        servers.hand_over(self._config, user, wanted)
        return 0

    def _role(self) -> ServerRole:
        """Return the role of the server on this host."""
        from oar.lib.bus.control_client import ask
        from oar.lib.bus.frames import Status, StatusQuestion

        answer = ask(self._config, StatusQuestion(), Status, CHECK_SECONDS) if self.pid() is not None else None
        return ServerRole(answer.state.get("role", "stopped")) if isinstance(answer, Status) else ServerRole.STOPPED

    def check(self) -> int:
        """Print whether jobs can be submitted, started and ended; return the exit code for monitoring systems."""
        from oar.cli.common import health_probes
        from oar.lib.bus.control_client import ask
        from oar.lib.bus.frames import Status, StatusQuestion
        from oar.lib.monitoring.health import ServerHealth, judge_cluster, judge_status, judge_surroundings

        pid = self.pid()
        if pid is None:
            error = self._last_error()
            click.echo(f"OAR CRITICAL: oar-server is stopped{error and f': {error}'}")
            return ServerHealth.CRITICAL
        if not os.access(Path(self._config.oar_run_dir) / "ipc", os.X_OK):
            click.echo(f"OAR UNKNOWN: {_NOT_ASKED}")
            return ServerHealth.UNKNOWN
        answer = ask(self._config, StatusQuestion(), Status, CHECK_SECONDS)
        home = self._account.pw_dir if self._account else None
        surroundings = health_probes.probe_surroundings(self._config, self._path, self._errors, pid, home)
        report = judge_status(answer.state if isinstance(answer, Status) else None, time.time(), CHECK_SECONDS)
        if not surroundings.database:
            report = report.joined(judge_cluster(health_probes.probe_cluster(self._config), time.time()))
        report = report.joined(judge_surroundings(surroundings))
        click.echo(report.line)
        return report.health

    def start(self) -> int:
        """Start it and wait until it is up."""
        pid = self.pid()
        if pid is not None and not is_ending(pid):  # one that was killed a moment ago is awaited by the new one
            click.echo(f"oar-server is already running (pid {pid}).")
            return 0
        account = self.prepare()
        # To an abstract datagram socket the server reports readiness, as to systemd.
        with tempfile.TemporaryFile() as output, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ready:
            ready.bind(b"")
            process = self._spawn(account, output, ready.getsockname())
            if (status := self._first_status(process, ready)) is not None:
                click.echo(f"oar-server is started (pid {process.pid}){f', and {status}' if status else ''}.")
                return 0
            output.seek(0)
            error_text = output.read().decode("utf-8", "replace").strip()
        click.echo(f"[ERROR] oar-server could not start:\n{error_text}\n{self._last_log_lines()}".rstrip(), err=True)
        return 1

    def stop(self) -> int:
        """Stop it and wait until it has ended."""
        pid = self.pid()
        if pid is None:
            click.echo("oar-server is stopped.")
            return 0
        with self._process(pid) as process:
            self._signal(process, signal.SIGTERM)
            has_ended = process is None or bool(select.select([process], [], [], STOP_SECONDS)[0])
        if not has_ended:
            click.echo(f"[ERROR] oar-server (pid {pid}) has not stopped in {STOP_SECONDS:.0f} s.", err=True)
            return 1
        click.echo("oar-server has stopped.")
        return 0

    def restart(self) -> int:
        """Stop it if it runs, and start it."""
        return self.stop() or self.start()

    def reload(self) -> int:
        """Have it read its configuration again."""
        pid = self.pid()
        if pid is None:
            click.echo("[ERROR] oar-server is stopped.", err=True)
            return 1
        with self._process(pid) as process:
            self._signal(process, signal.SIGHUP)
        return self.reloaded()

    def reloaded(self) -> int:
        """Print errors of the configuration, with which the server keeps its former values; return 0 without errors."""
        from oar.cli.common.health_probes import find_unreadable_configuration

        pid = self.pid()
        unreadable = [] if pid is None else list(find_unreadable_configuration(self._path, pid))
        for error in (*unreadable, *self._errors):
            click.echo(f"[ERROR] {error}: the server uses the former values.", err=True)
        return 1 if unreadable or self._errors else 0

    def prepare(self) -> pwd.struct_passwd:
        """Create the run directory, the log files and the keys if they are missing."""
        account = self._account or _account()
        _own_directory(Path(self._config.oar_run_dir), account, 0o755)
        for path in (self._config.log_file, self._config.completion_log or ""):
            if path.startswith("/"):
                _own_file(Path(path), account)
        _make_keys(account)
        return account

    @contextmanager
    def _process(self, pid: int) -> Iterator[int | None]:
        """Hold the process of a server, whose number another one may get later; None if it has ended."""
        try:
            process = os.pidfd_open(pid)
        except ProcessLookupError:
            yield None
            return
        try:
            yield process if self.pid() == pid else None
        finally:
            os.close(process)

    def _signal(self, process: int | None, number: int) -> None:
        if process is None:
            return
        try:
            signal.pidfd_send_signal(process, number)
        except ProcessLookupError:
            return
        except PermissionError:
            raise Stop(
                f"[ERROR] cannot signal oar-server: pid {self.pid()}: another account runs it. Run the command as root."
            ) from None

    def _spawn(self, account: pwd.struct_passwd, output: IO[bytes], notify_socket: bytes) -> "subprocess.Popen[bytes]":
        environment = {name: value for name, value in self._environment.items() if name in ("PATH", "TZ", "OARDIR")}
        environment |= {
            "HOME": account.pw_dir,
            "LANG": "C.UTF-8",
            "OARCONFFILE": self._path,
            "NOTIFY_SOCKET": "@" + notify_socket.removeprefix(b"\0").decode(),
        }
        is_root = os.geteuid() == 0
        return subprocess.Popen(
            [sys.executable, "-I", "-m", "oar.modules.almighty"],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment,
            cwd="/",
            start_new_session=True,
            user=account.pw_uid if is_root else None,
            group=account.pw_gid if is_root else None,
            extra_groups=os.getgrouplist(account.pw_name, account.pw_gid) if is_root else None,
        )

    def _first_status(self, process: "subprocess.Popen[bytes]", ready: socket.socket) -> str | None:
        """Wait until the server reports readiness; return what it waits for ('': nothing), None if it has ended."""
        end, status = time.monotonic() + START_SECONDS, ""
        ready.settimeout(0.05)
        while process.poll() is None and time.monotonic() < end:
            try:
                message = ready.recv(4096).decode(errors="replace")
            except TimeoutError:
                continue
            if message == "READY=1":
                return status
            if message.startswith(f"STATUS={_WAITING}"):
                status = message.removeprefix("STATUS=")
        process.terminate()
        return None

    def _last_log_lines(self) -> str:
        try:
            with open(self._config.log_file, "rb") as file:
                file.seek(max(0, file.seek(0, os.SEEK_END) - _LOG_BYTES))
                text = file.read(_LOG_BYTES).decode("utf-8", "replace")
        except OSError:
            return ""
        return "\n".join(text.rstrip().split("\n")[-_LOG_LINES:])

    def _last_error(self) -> str:
        """Return why the server ended by itself, if the log ends with that; '' if not, or if it is not to be read."""
        level, _, module, _, message = [*self._last_log_lines().rpartition("\n")[2].split("|", 4), *[""] * 5][:5]
        is_its_end = level == "E" and module.startswith("Almighty/") and message.startswith(OWN_END)
        return message.removeprefix(OWN_END) if is_its_end else ""


def _account() -> pwd.struct_passwd:
    """Return the account of the server: oar for root, else the caller's own."""
    try:
        return pwd.getpwnam(ACCOUNT) if os.geteuid() == 0 else pwd.getpwuid(os.geteuid())
    except KeyError:
        raise Stop(f"[ERROR] there is no account {ACCOUNT} on this machine.") from None


def _own_directory(path: Path, account: pwd.struct_passwd, mode: int) -> None:
    try:
        if not path.is_dir():
            path.mkdir(mode=mode, parents=True)
            os.chown(path, account.pw_uid, account.pw_gid)
    except OSError as error:
        raise Stop(f"[ERROR] cannot make the directory {path}: {error.strerror}") from None


def _own_file(path: Path, account: pwd.struct_passwd) -> None:
    try:
        if not path.exists():
            path.touch(0o640)
            os.chown(path, account.pw_uid, account.pw_gid)
    except OSError as error:
        raise Stop(f"[ERROR] cannot make the file {path}: {error.strerror}") from None


def _make_keys(account: pwd.struct_passwd) -> None:
    """Make the server's own key and the key of oarsh, once."""
    directory = Path(account.pw_dir) / ".ssh"
    _own_directory(directory, account, 0o700)
    for name, comment in _KEYS:
        if any((directory / other).exists() for other in (name, name.replace("ed25519", "rsa"))):
            continue
        keygen = run(
            ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", str(directory / name)], timeout=60
        )
        if not keygen.succeeded:
            raise Stop(f"[ERROR] cannot make the key {directory / name}: {keygen.output.strip()}")
        click.echo(f"oar-server: {directory / name} is a new key. Install it on the nodes with oar-keys", err=True)
        for suffix in ("", ".pub"):
            os.chown(directory / f"{name}{suffix}", account.pw_uid, account.pw_gid)
    _own_file(directory / "known_hosts", account)
