"""Nodes that are reached by ssh: real sshds on loopback, one address each, with keys and configuration of their own."""

import contextlib
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from oar.lib.remote.requests import RemoteSettings
from tests.process.this_machine import free_ports, wait_until

CONFIGURATION = """
Port {port}
ListenAddress {address}
HostKey {directory}/host_key
AuthorizedKeysFile {directory}/authorized_keys
PidFile none
StrictModes no
UsePAM no
PermitRootLogin yes
PasswordAuthentication no
MaxStartups 1024
UseDNS no
"""
ACCOUNT = pwd.getpwuid(os.getuid()).pw_name


class SshNode:
    """One sshd on an address of the loopback network, run by whoever runs the tests."""

    def __init__(self, directory: Path, number: int, port: int, public_key: str) -> None:
        self.name = f"127.0.0.{number}"
        self.directory = directory / self.name
        self.directory.mkdir()
        (self.directory / "authorized_keys").write_text(public_key)
        self.new_host_key()
        text = CONFIGURATION.format(port=port, address=self.name, directory=self.directory)
        (self.directory / "sshd_config").write_text(text)
        self._port = port
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    def new_host_key(self) -> None:
        """Give the node another host key, as after a new installation."""
        path = self.directory / "host_key"
        path.unlink(missing_ok=True)
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path)], check=True)

    def start(self) -> None:
        command = ["/usr/sbin/sshd", "-D", "-e", "-f", str(self.directory / "sshd_config")]
        log = (self.directory / "log").open("ab")
        self._process = subprocess.Popen(command, stderr=log, start_new_session=True)
        log.close()
        wait_until(self._listens)

    def _listens(self) -> bool:
        with contextlib.suppress(OSError), socket.create_connection((self.name, self._port), 1):
            return True
        return False

    def processes(self) -> list[int]:
        """Return the listener and the processes that serve its connections, down to the sessions."""
        assert self._process is not None
        found, new = [], [self._process.pid]
        while new:
            pid = new.pop()
            found.append(pid)
            with contextlib.suppress(OSError):
                new += [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
        return found

    def signal(self, number: int) -> None:
        """Send a signal to the node's sshd and all below it, in this order: nobody reports the end of another."""
        for pid in self.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def crash(self) -> None:
        """End everything at once."""
        self.signal(signal.SIGKILL)
        assert self._process is not None
        self._process.wait()


class SshNodes:
    """Some nodes, and the account that may enter them."""

    def __init__(self, directory: Path, count: int) -> None:
        self.home = directory / "home"
        (self.home / ".ssh").mkdir(parents=True, mode=0o700)
        key = self.home / ".ssh" / "id_ed25519"
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
        self.sockets = Path(tempfile.mkdtemp(prefix="oar-cm-"))  # a socket's path must be short
        self.port = free_ports(1, "127.0.0.11")[0]
        public = key.with_suffix(".pub").read_text()
        self.nodes = [SshNode(directory, 11 + number, self.port, public) for number in range(count)]

    @property
    def names(self) -> list[str]:
        return [node.name for node in self.nodes]

    def settings(self, transport: str) -> RemoteSettings:
        """Return how to reach them."""
        key, known = self.home / ".ssh" / "id_ed25519", self.home / ".ssh" / "known_hosts"
        command = (
            f"/usr/bin/ssh -p {self.port} -i {key} -oUserKnownHostsFile={known} -oStrictHostKeyChecking=accept-new"
        )
        words = tuple(command.split()) if transport == "openssh" else ("/usr/bin/ssh", "-p", str(self.port))
        return RemoteSettings(
            openssh_cmd=words,
            transport=transport,
            connect_seconds=20,
            privilege_cmd=(),
            control_directory=str(self.sockets),
            home=str(self.home),
            account=ACCOUNT,
        )

    def close(self) -> None:
        for node in self.nodes:
            node.signal(signal.SIGCONT)
            node.crash()
        shutil.rmtree(self.sockets, ignore_errors=True)  # control masters remove theirs as they end


@pytest.fixture
def ssh_nodes(tmp_path: Path) -> Iterator[SshNodes]:
    """Two nodes that are reached by ssh."""
    if not shutil.which("/usr/sbin/sshd"):
        pytest.skip("sshd is not installed")
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
    nodes = SshNodes(tmp_path, 2)
    yield nodes
    nodes.close()


__all__ = ["SshNode", "SshNodes", "ssh_nodes"]
