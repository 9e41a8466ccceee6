"""Commands ring a real ZeroMQ socket, and are never kept waiting by one that is not there."""

import socket
import threading
from contextlib import closing

import pytest
import zmq

from oar.lib.base.errors import ServerUnavailable
from oar.lib.bus import doorbell, sockets
from oar.lib.bus.messages import Ask, JobAction, Tag, Wake
from oar.lib.config.files import Config
from tests.process.this_machine import free_ports


def heard(pull: sockets.Pull, count: int) -> list[bytes]:
    messages: list[bytes] = []
    while len(messages) < count:
        assert sockets.Poll(pull).wait(120)
        messages += pull.receive()
    return messages


def test_the_server_hears_each_effect_once(context: "zmq.Context[zmq.Socket[bytes]]") -> None:
    port = free_ports(1)[0]
    with closing(sockets.Pull(context, "localhost", port)) as pull:
        config = Config(server_hostname="localhost", appendice_server_port=port)
        doorbell.send_effects(config, [Wake(Tag.QSUB), Wake(Tag.QSUB), Ask(JobAction.SIGNAL, 3)])
        assert heard(pull, 2) == [b'{"cmd": "Qsub"}', b'{"cmd": "SIGNAL", "job_id": 3}']


def test_nothing_is_lost_when_hundreds_ring_and_leave_at_once(context: "zmq.Context[zmq.Socket[bytes]]") -> None:
    port = free_ports(1)[0]
    with closing(sockets.Pull(context, "localhost", port)) as pull:
        for number in range(300):
            with doorbell.Doorbell("localhost", port) as bell:
                bell.ring(Ask(JobAction.KILL, number))
        assert len(set(heard(pull, 300))) == 300


def test_one_connection_serves_several_times(context: "zmq.Context[zmq.Socket[bytes]]") -> None:
    port = free_ports(1)[0]
    with closing(sockets.Pull(context, "localhost", port)) as pull, doorbell.Doorbell("127.0.0.1", port) as bell:
        bell.ring(Wake(Tag.TERM))
        bell.ring(Wake(Tag.QDEL))
        assert heard(pull, 2) == [b'{"cmd": "Term"}', b'{"cmd": "Qdel"}']


def test_without_a_server_the_command_is_told_so() -> None:
    config = Config(server_hostname="127.0.0.1", appendice_server_port=free_ports(1)[0])
    with pytest.raises(ServerUnavailable, match=r"127\.0\.0\.1:\d+: Connection refused"):
        doorbell.send_effects(config, [Wake(Tag.QSUB)])


def test_a_name_that_does_not_resolve_is_a_server_that_is_away() -> None:
    with pytest.raises(ServerUnavailable, match=r"no\.such\.host\.invalid:6670"):
        doorbell.send_effects(Config(server_hostname="no.such.host.invalid"), [Wake(Tag.QSUB)])


def test_nothing_to_say_needs_no_server() -> None:
    doorbell.send_effects(Config(server_hostname="no.such.host.invalid"), [])


def test_who_takes_the_connection_and_says_nothing_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doorbell, "_PATIENCE", 0.1)
    with (
        socket.create_server(("127.0.0.1", 0)) as silent,
        doorbell.Doorbell("127.0.0.1", silent.getsockname()[1]) as bell,
        pytest.raises(ServerUnavailable, match="no answer"),
    ):
        bell.ring(Wake(Tag.QSUB))


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n" + b"x" * 64, "something else answers there"),
        (b"", "it closed the connection"),
        (b"\xff\0\0\0\0\0\0\0\0\x7f\3\0NULL" + b"\0" * 48 + b"\4\6\5ERROR", "it does not take messages"),
    ],
)
def test_something_else_behind_the_port(said: bytes, reason: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            client, _ = server.accept()
            with client:
                client.recv(4096)
                client.sendall(said)

        other = threading.Thread(target=answer)
        other.start()
        bell = doorbell.Doorbell("127.0.0.1", server.getsockname()[1])
        with closing(bell), pytest.raises(ServerUnavailable, match=reason):
            bell.ring(Wake(Tag.QSUB))
        other.join()
