"""oar-keys: install the SSH keys of OAR on nodes or on other servers, or print the files.

See docs/design/nodes.rst, "Keys".
"""

import os
import pwd
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import click

from oar.cli.common.administration import command_words
from oar.cli.common.command import Context, oar_command
from oar.cli.common.options import ADMIN, Stop, option
from oar.lib.base.errors import OarError
from oar.lib.base.host_names import is_host_name
from oar.lib.base.processes import run
from oar.lib.bus.servers import own_server
from oar.lib.config.files import Config
from oar.lib.db.statements import psycopg2
from oar.lib.history import audit
from oar.lib.history.audit import AuditAction, Values
from oar.lib.remote.key_installation import (
    ACCOUNT,
    SERVER_KEYS,
    KeyFiles,
    authorized_lines,
    host_keys,
    merged,
    node_script,
    port_of,
)
from oar.lib.runtime import conf_file, open_runtime, read_config

#: Seconds that a node has.
_PATIENCE = 60
#: Path of the login shell in the packages, unless this machine has another one.
_SHELL = "/usr/lib/oar/oarsh_shell"


@oar_command(
    "oar-keys",
    summary="Install the SSH keys of OAR on nodes, or on the other servers.",
    examples={
        "oar-keys --node node-1 --node node-2": "Install the keys on two nodes.",
        "oar-keys --servers": "Copy the keys of this server to the other servers.",
        "oar-keys --print": "Print the files to install by other means.",
    },
    style=ADMIN,
    admins_only=True,
)
@option("--print", "is_printing", is_flag=True, help="Print the files, to install them by other means.")
@option(
    "--node",
    "nodes",
    multiple=True,
    metavar="[LOGIN@]HOST",
    help="Install the keys on this node by ssh as root (repeatable).",
)
@option(
    "--servers",
    "for_servers",
    is_flag=True,
    help="Copy the keys and known_hosts of this server to the other servers of SERVER_HOSTNAME, by ssh as root.",
)
@option(
    "--replace-keys",
    "is_replacing",
    is_flag=True,
    help="With --servers: replace keys that another server has of its own.",
)
@option("--ssh", "ssh", default="ssh", metavar="COMMAND", help="With --node, --servers: ssh command (default: ssh).")
def main(
    context: Context, *, is_printing: bool, nodes: tuple[str, ...], for_servers: bool, is_replacing: bool, ssh: str
) -> int:
    """Run the command."""
    if is_replacing and not for_servers:
        raise click.UsageError("--replace-keys needs --servers.")
    if [is_printing, bool(nodes), for_servers].count(True) != 1:
        raise click.UsageError("Give one of: --node HOST for each node, --servers, --print.")
    for node in nodes:
        if not is_host_name(node.rpartition("@")[2]) or node.startswith("-"):
            raise Stop(f"[ERROR] {node} is not the name of a host.")
    reach = command_words("--ssh", ssh)
    account = _account()
    files = _read(account, with_private=for_servers)
    if is_printing:
        _print(account, files)
        return 0
    config = read_config(conf_file(context.environment)).config
    targets = _other_servers(config) if for_servers else nodes
    installation = Installation(account, files, reach, port_of(config.openssh_cmd), is_replacing=is_replacing)
    failed = installation.install(targets)
    if done := [node for node in targets if node not in failed]:
        _record(context, done)
    return 1 if failed else 0


def _other_servers(config: Config) -> tuple[str, ...]:
    """Return the names of the other servers.  Raises Stop, ConfigError."""
    own = own_server(config)
    others = tuple(name for name in config.server_hostnames if name != own)
    if not others:
        raise Stop(f"[ERROR] SERVER_HOSTNAME: {own} is the only server. Name the other servers there, too.")
    return others


def _record(context: Context, nodes: Sequence[str]) -> None:
    """Record in the audit log which nodes got the keys; print a warning if there is no database yet."""
    names = ", ".join(node.rpartition("@")[2] for node in nodes)
    try:
        with (
            closing(open_runtime("oar-keys", conf_file(context.environment), patience=0)) as runtime,
            runtime.database.begin() as tx,
        ):
            audit.record(tx, context.user, AuditAction.ADD, f"node {names}", Values(new="SSH keys"))
    except (OarError, psycopg2.Error) as error:
        line = str(error).partition("\n")[0]
        context.warn(f"The audit log has no row about this: {line}")


class Installation:
    """Nodes get the keys, and the server their host keys."""

    def __init__(
        self, account: pwd.struct_passwd, files: KeyFiles, ssh: Sequence[str], port: int, *, is_replacing: bool = False
    ) -> None:
        """``port``: of the sshd of OAR on the nodes. ``is_replacing``: other servers lose server keys of their own."""
        self._account = account
        self._files = files
        self._ssh = [*ssh, "-oBatchMode=yes"]
        self._port = port
        self._is_replacing = is_replacing

    def install(self, nodes: Sequence[str]) -> set[str]:
        """Install the keys and print the outcome for each node; return the nodes that did not get them."""
        replies: list[str] = []
        failed = set[str]()
        for node in nodes:
            outcome = self._run(node)
            if outcome is None:
                failed.add(node)
            else:
                replies += host_keys(outcome, node.rpartition("@")[2], self._port)
        known = merged(self._files.known_hosts, replies)
        if known != self._files.known_hosts:
            self._files = self._files._replace(known_hosts=known)
            _write(self._account, "known_hosts", known)
            failed |= {node for node in nodes if node not in failed and self._run(node) is None}
        for node in nodes:
            if node not in failed:
                click.echo(f"{node}: the keys are installed.")
        return failed

    def _run(self, node: str) -> str | None:
        """Run the script on a node; return its output, None after a printed error."""
        login = node if "@" in node else f"root@{node}"
        script = node_script(self._files, is_replacing=self._is_replacing)
        outcome = run([*self._ssh, login, "sh -s"], timeout=_PATIENCE, stdin=script.encode())
        if outcome.succeeded:
            return outcome.output
        lines = outcome.output.strip().splitlines() or ["no answer"]
        click.echo(f"[ERROR] {node}: {lines[-1]}", err=True)
        return None


def _account() -> pwd.struct_passwd:
    try:
        return pwd.getpwnam(ACCOUNT)
    except KeyError:
        raise Stop(f"[ERROR] there is no account {ACCOUNT} on this machine.") from None


@contextmanager
def _as(account: pwd.struct_passwd) -> Iterator[None]:
    """Be the account for a moment: its files are its own."""
    before = os.geteuid()
    if before != account.pw_uid:
        os.seteuid(account.pw_uid)
    try:
        yield
    finally:
        os.seteuid(before)


def _read(account: pwd.struct_passwd, *, with_private: bool = False) -> KeyFiles:
    """Return the keys of the server. ``with_private``: for another server.  Raises Stop."""
    directory = Path(account.pw_dir) / ".ssh"
    with _as(account):
        server = next((f"{name}.pub" for name in SERVER_KEYS if (directory / f"{name}.pub").exists()), "")
        try:
            public, private, session = (
                (directory / name).read_text() for name in (server, "oarsh_key", "oarsh_key.pub")
            )
            known = directory / "known_hosts"
            files = KeyFiles(public, private, session, known.read_text() if known.exists() else "")
            key = server.removesuffix(".pub")
            own = (directory / key).read_text() if with_private else ""
            return files._replace(server_private=own, server_key=key)
        except OSError:
            raise Stop(f"[ERROR] the keys are not in {directory}: run oar-server prepare, on the server.") from None


def _write(account: pwd.struct_passwd, name: str, text: str) -> None:
    path = Path(account.pw_dir) / ".ssh" / name
    with _as(account):
        new = path.with_name(f"{name}.new")
        new.write_text(text)
        new.chmod(0o600)
        new.replace(path)


def _print(account: pwd.struct_passwd, files: KeyFiles) -> None:
    shell = account.pw_shell if account.pw_shell.endswith("/oarsh_shell") else _SHELL
    directory = f"{account.pw_dir}/.ssh"
    click.echo(f"# {directory}/authorized_keys of each node (owner {ACCOUNT}, mode 0600, its directory 0700):")
    for line in authorized_lines(files, shell):
        click.echo(line)
    click.echo("# Of this machine to the same place on each node and frontend (owner and modes as above):")
    for name in ("oarsh_key", "oarsh_key.pub", "known_hosts"):
        click.echo(f"# {directory}/{name}")
