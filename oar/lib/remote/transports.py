"""Transports to a node, and their channels: paramiko, the ssh client with a control master, or a local process.

A channel is one session: bytes to and from a program on the node.

``choose`` selects paramiko unless ``OPENSSH_CMD`` or the account's ssh configuration needs a feature that only the ssh
client has.

See docs/design/nodes.rst, "Transports".
"""

import contextlib
import os
import re
import select
import socket
import subprocess
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from oar.lib.remote.requests import RemoteSettings

if TYPE_CHECKING:
    import paramiko

NODE_NAME = re.compile(r"[A-Za-z0-9_:][A-Za-z0-9._:-]*\Z", re.ASCII)
READ_SIZE = 1 << 16
STDERR_KEPT = 4096
KEEP_ALIVE_SECONDS = 30
LOST_MILLISECONDS = 60_000  #: unacknowledged data for so long: the kernel gives the connection up
KEY_FILES = ("id_ed25519", "id_ecdsa", "id_rsa")
FAST_KEX = ("curve25519-sha256", "curve25519-sha256@libssh.org")
_UNDERSTOOD_OPTIONS = frozenset(
    ["Port", "User", "IdentityFile", "StrictHostKeyChecking", "UserKnownHostsFile", "ConnectTimeout", "BatchMode"]
)
_NEEDS_CLIENT = re.compile(r"\s*(ProxyCommand|ProxyJump|Match)\b", re.IGNORECASE)


# -- channels ----------------------------------------------------------------------------------------------------------


class ChannelLost(Exception):
    """The channel is broken; the message contains the reason."""


class SessionChannel(Protocol):
    """A started session. ``read`` never blocks; it is called when ``fileno`` is readable."""

    def fileno(self) -> int:
        """Return a descriptor that is readable when data is available."""

    def read(self) -> bytes | None:
        """Return the available data, None if there is none now, ``b""`` at the end."""

    def write(self, data: bytes, seconds: float) -> None:
        """Send all data within ``seconds`` seconds. Raises ChannelLost."""

    def close(self) -> None:
        """End the session and close its descriptors."""

    def closing_report(self) -> tuple[int | None, str]:
        """Return the exit status (if known) and the end of standard error, of a session that has ended."""


class ProcessChannel:
    """A session over a child process: ``ssh`` or, in tests, the interpreter itself."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        assert process.stdin
        assert process.stdout
        assert process.stderr
        self._process = process
        self._stdin = process.stdin.fileno()
        self._stdout = process.stdout.fileno()
        self._stderr = process.stderr.fileno()
        self._stderr_tail = b""
        for descriptor in (self._stdin, self._stdout, self._stderr):
            os.set_blocking(descriptor, False)

    def fileno(self) -> int:
        return self._stdout

    def read(self) -> bytes | None:
        self._drain_stderr()
        try:
            return os.read(self._stdout, READ_SIZE)
        except BlockingIOError:
            return None
        except OSError:
            return b""

    def write(self, data: bytes, seconds: float) -> None:
        limit = time.monotonic() + seconds
        remaining_data = memoryview(data)
        while remaining_data:
            try:
                remaining_data = remaining_data[os.write(self._stdin, remaining_data) :]
            except BlockingIOError:
                if not self._wait_until_writable(limit - time.monotonic()):
                    raise ChannelLost("the node takes no data") from None
            except (OSError, ValueError) as error:
                raise ChannelLost(f"connection lost: {error}") from None

    def _wait_until_writable(self, seconds: float) -> bool:
        space = select.poll()
        space.register(self._stdin, select.POLLOUT)
        return seconds > 0 and bool(space.poll(1000 * seconds))

    def close(self) -> None:
        for stream in (self._process.stdin, self._process.stdout):
            with contextlib.suppress(OSError):
                stream.close()  # type: ignore[union-attr]
        try:
            self._process.wait(0.5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._drain_stderr()
        with contextlib.suppress(OSError):
            self._process.stderr.close()  # type: ignore[union-attr]

    def closing_report(self) -> tuple[int | None, str]:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(0.5)
        self._drain_stderr()
        return self._process.poll(), self._stderr_tail.decode("utf-8", "replace").strip()

    def _drain_stderr(self) -> None:
        with contextlib.suppress(OSError):
            while block := os.read(self._stderr, READ_SIZE):
                self._stderr_tail = (self._stderr_tail + block)[-STDERR_KEPT:]


class ParamikoChannel:
    """A session in a channel of a paramiko connection, which it owns."""

    def __init__(self, transport: "paramiko.Transport", channel: "paramiko.Channel") -> None:
        self._transport = transport
        self._channel = channel
        self._descriptor = channel.fileno()

    def fileno(self) -> int:
        return self._descriptor

    def read(self) -> bytes | None:
        if self._channel.recv_ready():
            return self._channel.recv(READ_SIZE)
        ended = self._channel.closed or self._channel.eof_received or not self._transport.is_active()
        return b"" if ended and not self._channel.recv_ready() else None

    def write(self, data: bytes, seconds: float) -> None:
        try:
            self._channel.settimeout(seconds)
            self._channel.sendall(data)
        except (OSError, EOFError) as error:
            raise ChannelLost(f"connection lost: {error or type(error).__name__}") from None

    def close(self) -> None:
        """Break the connection without waiting. Paramiko's own thread detects it, cleans up and ends."""
        with contextlib.suppress(OSError):
            self._transport.sock.shutdown(socket.SHUT_RDWR)

    def closing_report(self) -> tuple[int | None, str]:
        stderr = b""
        while self._channel.recv_stderr_ready() and len(stderr) < STDERR_KEPT:
            stderr += self._channel.recv_stderr(STDERR_KEPT)
        status = self._channel.recv_exit_status() if self._channel.status_event.wait(0.5) else None
        return status, stderr.decode("utf-8", "replace").strip()


# -- transports --------------------------------------------------------------------------------------------------------


class CannotReach(Exception):
    """No connection to the node; the message contains the reason."""


class Transport(Protocol):
    """A kind of connection to nodes."""

    name: str

    def open(self, node: str, command: str, seconds: float) -> SessionChannel:
        """Start a shell command on a node.  Raises CannotReach."""


@dataclass(frozen=True, slots=True)
class SshOptions:
    """The options of an ssh command line that paramiko supports."""

    port: int = 22
    user: str | None = None
    identities: tuple[str, ...] = ()
    known_hosts: str | None = None
    check_host_keys: bool = True
    family: int = socket.AF_UNSPEC


def choose(settings: RemoteSettings) -> Transport:
    """Return the transport for ``OAR_SSH_TRANSPORT``. For ``auto``, return paramiko if it supports all options."""
    options = read_options(settings.openssh_cmd)
    if settings.transport == "openssh" or (
        settings.transport == "auto" and (options is None or _needs_client(Path(settings.home) / ".ssh" / "config"))
    ):
        return OpensshTransport(settings)
    return ParamikoTransport(settings, options or SshOptions(port=6667))


def _needs_client(configuration: Path) -> bool:
    try:
        text = configuration.read_text(errors="replace")
    except OSError:
        return False
    return any(_NEEDS_CLIENT.match(line) for line in text.splitlines())


def read_options(argv: Sequence[str]) -> SshOptions | None:
    """Return the options of an ssh command line, None if only the ssh client supports them.

    >>> read_options(["/usr/bin/ssh", "-p", "6667", "-e", "none"]).port
    6667
    >>> read_options(["ssh", "-J", "gateway"]) is None
    True
    """
    if not argv or Path(argv[0]).name != "ssh":
        return None
    values: dict[str, list[str]] = {}
    arguments = list(argv[1:])
    while arguments:
        argument = arguments.pop(0)
        letter = argument[1:2]
        if argument in {"-4", "-6", "-q", "-x"}:
            values.setdefault(letter, []).append("")
        elif argument[:1] == "-" and letter in {"p", "l", "i", "e", "o"}:
            value = argument[2:] or (arguments.pop(0) if arguments else "")
            if letter == "o":
                letter, _, value = (part.strip() for part in value.replace(" ", "=", 1).partition("="))
                if letter not in _UNDERSTOOD_OPTIONS:
                    return None
            values.setdefault(letter, []).append(value)
        else:
            return None
    return _options(values)


def _options(values: dict[str, list[str]]) -> SshOptions | None:
    port = (values.get("p") or values.get("Port") or ["22"])[0]
    if not port.isdigit():
        return None
    return SshOptions(
        port=int(port),
        user=next(iter(values.get("l") or values.get("User") or []), None),
        identities=tuple(values.get("i", []) + values.get("IdentityFile", [])),
        known_hosts=next(iter(values.get("UserKnownHostsFile") or []), None),
        check_host_keys=values.get("StrictHostKeyChecking", ["yes"])[0] not in {"no", "off"},
        family=socket.AF_INET if "4" in values else socket.AF_INET6 if "6" in values else socket.AF_UNSPEC,
    )


def check_name(node: str) -> None:
    """Raise CannotReach if a name is not a host name: it could be interpreted as an option."""
    if not NODE_NAME.match(node):
        raise CannotReach(f"'{node[:100]!a}' is not the name of a node")


class LocalTransport:
    """Sessions on this machine, for tests and for a server that is its own node."""

    name = "local"

    def __init__(self, prefix: Sequence[str] = ()) -> None:
        self._prefix = tuple(prefix)

    def open(self, node: str, command: str, seconds: float) -> SessionChannel:
        """Start the command in a shell of this machine."""
        check_name(node)
        return start([*self._prefix, "/bin/sh", "-c", command])


class OpensshTransport:
    """The ssh client, with its own control master unless the command line specifies one."""

    name = "openssh"

    def __init__(self, settings: RemoteSettings) -> None:
        self._argv = list(settings.openssh_cmd)
        self._account = settings.account
        if "-S" not in self._argv and not any("ControlMaster" in arg or "ControlPath" in arg for arg in self._argv):
            path = f"{settings.control_directory}/cm-%C"
            self._argv += ["-oControlMaster=auto", f"-oControlPath={path}", "-oControlPersist=600"]

    def open(self, node: str, command: str, seconds: float) -> SessionChannel:
        """Start the ssh client. An unreachable node is detected when the session does not answer."""
        check_name(node)
        limit = max(1, int(seconds))
        options = ["-x", "-T", f"-oConnectTimeout={limit}", "-oBatchMode=yes", "-oServerAliveInterval=30"]
        return start([*self._argv, *options, "-l", self._account, "--", node, command])


def start(argv: Sequence[str]) -> ProcessChannel:
    """Start a process as a channel, in its own session so that signals of a terminal do not reach it."""
    try:
        process = subprocess.Popen(
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            start_new_session=True,
        )
    except OSError as error:
        raise CannotReach(f"cannot start {argv[0]}: {error.strerror}") from None
    return ProcessChannel(process)


class ParamikoTransport:
    """One authenticated paramiko connection per session, without Nagle's algorithm."""

    name = "paramiko"

    def __init__(self, settings: RemoteSettings, options: SshOptions) -> None:
        self._options = options
        self._user = options.user or settings.account
        directory = Path(settings.home) / ".ssh"
        self._identities = [_expanded(name, settings.home) for name in options.identities]
        self._identities = self._identities or [str(directory / name) for name in KEY_FILES]
        self._known_hosts = KnownHosts(_expanded(options.known_hosts or str(directory / "known_hosts"), settings.home))
        self._lock = threading.Lock()
        self._keys: list[paramiko.PKey] | None = None

    def open(self, node: str, command: str, seconds: float) -> SessionChannel:
        """Connect, check the host's key, authenticate, start the command."""
        import paramiko

        check_name(node)
        connection = self._connect(node, seconds)
        deadline = time.monotonic() + seconds
        transport = paramiko.Transport(connection)
        try:
            transport.banner_timeout = transport.handshake_timeout = transport.auth_timeout = seconds
            name = f"[{node}]:{self._options.port}"
            _prefer(transport, FAST_KEX, self._known_hosts.key_types(name))
            transport.start_client(timeout=seconds)
            if self._options.check_host_keys:
                self._known_hosts.check(name, transport.get_remote_server_key())
            self._authenticate(transport)
            transport.set_keepalive(KEEP_ALIVE_SECONDS)
            channel = transport.open_session(timeout=seconds)
            session = ParamikoChannel(transport, channel)
            channel.exec_command(command)
        except (paramiko.SSHException, OSError, EOFError) as error:
            transport.close()
            is_late = time.monotonic() >= deadline  # paramiko then reports "No existing session" or similar
            text = f"no answer within {seconds:g} s" if is_late else _ssh_trouble(error)
            is_refused = isinstance(error, paramiko.AuthenticationException) and not is_late
            raise CannotReach(self._refusal(node) if is_refused else f"ssh: {text}") from None
        except CannotReach:
            transport.close()
            raise
        return session

    def _refusal(self, node: str) -> str:
        """Return the error text for a rejected key, with the remedy."""
        keys = " and ".join(path for path in self._identities if os.path.exists(path))
        return (
            f"its sshd refuses the key {keys} for the account {self._user}: bring the public half into authorized_keys"
            f" there (oar-keys --node {node})"
        )

    def _connect(self, node: str, seconds: float) -> socket.socket:
        """Connect to the first address of a node that accepts. Each attempt gets its share of the remaining time."""
        limit = time.monotonic() + seconds
        try:
            addresses = socket.getaddrinfo(node, self._options.port, self._options.family, socket.SOCK_STREAM)
        except OSError as error:
            raise CannotReach(f"{error.strerror or error}") from None
        failures = {}
        for tried, (*kind, _, address) in enumerate(addresses):
            share = max(0.1, limit - time.monotonic()) / (len(addresses) - tried)
            try:
                return _open_socket(kind, address, share)
            except OSError as error:
                failures[address[0]] = f"{error.strerror or error}"
        if len(failures) == 1:
            raise CannotReach(f"connect: {next(iter(failures.values()))}")
        raise CannotReach(f"connect: {', '.join(f'{text} ({address})' for address, text in failures.items())}")

    def _authenticate(self, transport: "paramiko.Transport") -> None:
        import paramiko

        keys = self._own_keys()
        for key in keys[:-1]:
            with contextlib.suppress(paramiko.AuthenticationException):
                transport.auth_publickey(self._user, key)
                return
        transport.auth_publickey(self._user, keys[-1])

    def _own_keys(self) -> "list[paramiko.PKey]":
        """Return the private keys, and cache them. Raises CannotReach if none can be read."""
        with self._lock:
            if self._keys is None:
                self._keys = _private_keys(self._identities, self._user)
            return self._keys


def _ssh_trouble(error: Exception) -> str:
    """Return the error text for an administrator, for an error of paramiko."""
    text = str(error)
    if isinstance(error, EOFError) or "SSH protocol banner" in text:
        return "its sshd closes the connection (more at a time than MaxStartups in /etc/oar/sshd_config there?)"
    return text or type(error).__name__


def _private_keys(paths: Sequence[str], account: str) -> "list[paramiko.PKey]":
    """Read private keys. Missing files are skipped. Raises CannotReach if no key can be read."""
    import paramiko

    keys, troubles = [], []
    for path in paths:
        try:
            keys.append(paramiko.PKey.from_path(path))
        except FileNotFoundError:
            continue
        except (OSError, paramiko.SSHException, ValueError) as error:
            troubles.append(f"{path}: {getattr(error, 'strerror', None) or error}")
    if not keys and troubles:
        raise CannotReach(f"cannot read the key {'; '.join(troubles)}: it must belong to {account}, with mode 0600")
    if not keys:
        raise CannotReach(f"no private key among {', '.join(paths)}: a restart of the server makes one")
    return keys


def _open_socket(kind: Sequence[int], address: tuple[Any, ...], seconds: float) -> socket.socket:
    """Return a connection to an address.  Raises OSError."""
    connection = socket.socket(*kind)
    try:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, LOST_MILLISECONDS)
        connection.settimeout(seconds)
        connection.connect(address)
    except OSError:
        connection.close()
        raise
    return connection


def _expanded(path: str, home: str) -> str:
    return home + path[1:] if path.startswith("~/") else path


def _prefer(transport: "paramiko.Transport", exchanges: Sequence[str], key_types: Sequence[str]) -> None:
    """Prefer the fast key exchanges (a fifth of the processor time), and the types of the known host keys."""
    options = transport.get_security_options()
    options.kex = _first(exchanges, options.kex)
    options.key_types = _first(key_types, options.key_types)


def _first(preferred: Sequence[str], offered: Sequence[str]) -> tuple[str, ...]:
    fast = [name for name in offered if name in preferred]
    return (*fast, *(name for name in offered if name not in fast))


class KnownHosts:
    """The file of host keys. The key of a new host is stored; a changed key is rejected."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._signature: tuple[int, int, int] | None = None
        self._hosts: paramiko.HostKeys | None = None

    def key_types(self, name: str) -> tuple[str, ...]:
        """Return the types of the stored keys of a host, to request a key of one of these types."""
        with self._lock:
            return tuple(self._stored_keys(name))

    def check(self, name: str, key: "paramiko.PKey") -> None:
        """Accept the key of a host. Raises CannotReach if it has changed or cannot be stored."""
        with self._lock:
            keys = self._stored_keys(name)
            if not keys:
                self._store(name, key)
            elif keys.get(key.get_name()) != key:
                node = name.partition("]")[0].removeprefix("[")
                raise CannotReach(
                    f"the host key of {name} has changed: remove its line from {self._path} if the node was reinstalled"
                    f" (oar-keys --node {node})"
                )

    def _stored_keys(self, name: str) -> "dict[str, paramiko.PKey]":
        hosts = self._read()
        plain_name = name.partition("]")[0].removeprefix("[")
        keys = hosts.lookup(name) or (hosts.lookup(plain_name) if name.endswith("]:22") else None)
        return dict(keys.items()) if keys else {}

    def _read(self) -> "paramiko.HostKeys":
        """Return the content of the file. Reload it only if it has changed."""
        import paramiko

        try:
            information = os.stat(self._path)
            signature = (information.st_mtime_ns, information.st_ctime_ns, information.st_size)
        except OSError:
            signature = (0, 0, 0)
        if self._hosts is None or signature != self._signature:
            self._hosts, self._signature = paramiko.HostKeys(), signature
            with contextlib.suppress(OSError):
                self._hosts.load(self._path)
        return self._hosts

    def _store(self, name: str, key: "paramiko.PKey") -> None:
        line = f"{name} {key.get_name()} {key.get_base64()}\n"
        try:
            descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise CannotReach(f"cannot store the host key of {name} in {self._path}: {error.strerror}") from None
        with os.fdopen(descriptor, "ab") as file:
            file.write(line.encode("ascii"))
