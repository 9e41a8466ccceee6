"""Sessions on a frontend: what they leave in the home of oar, and how they connect."""

import array
import os
import shlex
import socket
import subprocess
import zlib
from pathlib import Path

import pytest

from oar.cli.oarsub_parts import node_shell
from oar.cli.oarsub_parts.node_shell import NodeConnection, quick_connection
from oar.lib.access.records import User
from oar.lib.config.files import Config
from oar.lib.user_files.files import UserFiles

NOBODYS_PID = 999999999


def test_only_what_processes_of_this_machine_left_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    sessions = tmp_path / ".ssh" / "sessions"
    sessions.mkdir(parents=True)
    here = f"{zlib.crc32(os.uname().nodename.encode()):08x}"
    names = [f"{here}.{NOBODYS_PID}.socket", f"{here}.1.socket", f"0.{NOBODYS_PID}.socket"]
    for name in names:
        (sessions / name).touch()
    NodeConnection(Config(), UserFiles(User("alice", os.geteuid()), ""), {}).close()
    assert sorted(os.listdir(sessions)) == sorted(names[1:])


def test_a_client_that_misses_the_signal_to_end_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_shell, "_GRACE", 0.05)
    words = ["sh", "-c", "trap '' TERM; echo; exec sleep 1000"]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as client:
        assert client.stdout is not None
        client.stdout.readline()
        node_shell._end(client.pid)
        assert not os.path.exists(f"/proc/{client.pid}")


@pytest.mark.parametrize(
    ("command", "is_ours"),
    [
        ("/usr/bin/ssh -p 6667 -e none -oProxyCommand=none", True),
        ("ssh -o 'ProxyCommand none'", True),
        ("ssh -oProxyJump=gate", False),
        ("ssh -o 'proxycommand nc %h %p'", False),
        ("ssh -Jgate", False),
        ("env LANG=C ssh", False),
    ],
)
def test_a_way_of_the_site_to_its_nodes_stays_its_way(command: str, is_ours: bool) -> None:
    assert bool(quick_connection(shlex.split(command))) is is_ours


def test_a_connection_that_keeps_no_packet_back_is_handed_over() -> None:
    *_, option = quick_connection(["ssh"])
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        ours, theirs = socket.socketpair()
        command = option.partition("=")[2].replace("%h", "localhost").replace("%p", str(port))
        subprocess.run(["/bin/sh", "-c", f"exec {command}"], stdout=theirs.fileno(), check=True)
        _, [(_, _, rights)], *_ = ours.recvmsg(1, socket.CMSG_SPACE(array.array("i").itemsize))
        with socket.socket(fileno=array.array("i", rights)[0]) as connection, server.accept()[0] as accepted:
            assert connection.getpeername()[1] == port
            assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            connection.sendall(b"x")
            assert accepted.recv(1) == b"x"
        for end in (ours, theirs):
            end.close()


def test_a_host_that_cannot_be_reached_is_named() -> None:
    *_, option = quick_connection(["ssh"])
    command = option.partition("=")[2].replace("%h", "127.0.0.1").replace("%p", "1")
    done = subprocess.run(["/bin/sh", "-c", f"exec {command}"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (255, "connect to 127.0.0.1 port 1: Connection refused\n")
