"""The bus with real sockets: commands, children, the line port with all kinds of clients, silent oarsubs."""

import select
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
import zmq

from oar.lib.base.allowed_networks import Networks, check_this_host
from oar.lib.base.errors import AlreadyRunning, ConfigError, NotAllowed, ServerUnavailable
from oar.lib.bus import doorbell, line_port, sockets
from oar.lib.bus.line_port import LinePort
from oar.lib.bus.messages import Ask, JobAction, Tag, Wake
from oar.lib.config.files import Config
from oar.lib.submission.oarsub_lines import tell_oarsub
from tests.process.this_machine import free_ports
from tests.silence import deaf_server

EVERYBODY = ("0.0.0.0/0", "::/0")


def test_an_address_that_is_taken_is_reported_as_a_running_server(context: "zmq.Context[zmq.Socket[bytes]]") -> None:
    with socket.create_server(("127.0.0.1", 0)) as other, pytest.raises(AlreadyRunning, match="already started"):
        sockets.Pull(context, "127.0.0.1", other.getsockname()[1])


def test_an_address_that_is_not_ours_is_a_fault_of_the_configuration(context: "zmq.Context[zmq.Socket[bytes]]") -> None:
    for host in ("192.0.2.1", "no.such.host.invalid"):
        with pytest.raises(ConfigError, match=host):
            sockets.Pull(context, host, free_ports(1)[0])


def test_a_name_that_is_loopback_on_its_own_machine_is_heard_by_others(
    context: "zmq.Context[zmq.Socket[bytes]]", monkeypatch: pytest.MonkeyPatch
) -> None:
    ask = socket.getaddrinfo
    monkeypatch.setattr(
        socket, "getaddrinfo", lambda host, *rest, **more: ask("127.0.1.1" if host == "server" else host, *rest, **more)
    )
    (port,) = free_ports(1)
    with closing(sockets.Pull(context, "server", port)), socket.create_connection(("127.0.0.1", port)):
        pass
    (port,) = free_ports(1)
    with closing(sockets.Pull(context, "127.0.1.1", port)), pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port))


# -- children ---------------------------------------------------------------------------------------------------------


def test_children_and_their_parent_speak_over_the_control_endpoint(
    context: "zmq.Context[zmq.Socket[bytes]]", tmp_path: Path
) -> None:
    endpoint = f"ipc://{tmp_path}/ipc/almighty.ipc"
    with closing(sockets.Router(context, endpoint)) as router, closing(sockets.Dealer(context, endpoint)) as dealer:
        assert (tmp_path / "ipc").stat().st_mode & 0o777 == 0o700
        assert dealer.send(b"hello")
        assert sockets.Poll(router).wait(120) == [router]
        [(sender, data)] = router.receive()
        assert data == b"hello"
        assert router.send(sender, b"run")
        assert sockets.Poll(dealer).wait(120) == [dealer]
        assert dealer.receive() == [b"run"]
        assert not router.send(b"nobody", b"run")
    assert not (tmp_path / "ipc" / "almighty.ipc").exists()


def test_a_poll_ends_when_its_time_is_over() -> None:
    reader, writer = socket.socketpair()
    with reader, writer:
        poll = sockets.Poll(reader)
        assert poll.wait(0) == []
        assert poll.wait(0.01) == []
        writer.send(b"x")
        assert poll.wait(120) == [reader]
        poll.remove(reader)
        assert poll.wait(0) == []


# -- the line port ----------------------------------------------------------------------------------------------------


class Served:
    """A line port served by a thread that answers OK to each line."""

    def __init__(self, port: LinePort) -> None:
        self.port = port
        self.lines: list[str] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        poll = sockets.Poll(self.port)
        while not self._stop.is_set():
            poll.wait(0.05)
            for line in self.port.receive(time.monotonic()):
                self.lines.append(line.text)
                self.port.answer(line.peer, "OK")

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()
        self.port.close()

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port.port), timeout=120)


@pytest.fixture
def served() -> Iterator[Served]:
    served = Served(LinePort(0, EVERYBODY))
    yield served
    served.stop()


def test_a_line_is_heard_and_answered_on_the_same_connection(served: Served) -> None:
    with served.connect() as client:
        client.sendall(b"OAREXEC_1_0_N_12\n")
        assert client.makefile("rb").read() == b"OK\n"
    assert served.lines == ["OAREXEC_1_0_N_12"]


def test_a_line_may_come_in_pieces_and_without_its_end(served: Served) -> None:
    with served.connect() as client:
        for piece in (b"Te", b"r", b"m\r", b"\n"):
            client.sendall(piece)
        assert client.makefile("rb").read() == b"OK\n"
    with served.connect() as client:
        client.sendall(b"ChState")
        client.shutdown(socket.SHUT_WR)
        assert client.makefile("rb").read() == b"OK\n"
    assert served.lines == ["Term", "ChState"]


def test_a_client_that_closes_at_once_is_heard(served: Served) -> None:
    with served.connect() as client:
        client.sendall(b"Term\n")
    with served.connect() as client:
        client.sendall(b"Qsub\n")
        assert client.makefile("rb").read() == b"OK\n"
    assert sorted(served.lines) == ["Qsub", "Term"]


def test_silent_clients_delay_nobody(served: Served) -> None:
    silent = [served.connect() for _ in range(200)]
    try:
        with served.connect() as client:
            client.sendall(b"Term\n")
            assert client.makefile("rb").read() == b"OK\n"
    finally:
        for client in silent:
            client.close()


def test_a_line_that_is_too_long_and_one_that_is_empty_close_the_connection(served: Served) -> None:
    for data in (b"x" * 256, b"\n"):
        with served.connect() as client:
            client.sendall(data)
            client.shutdown(socket.SHUT_WR)
            assert client.makefile("rb").read() in (b"", b"OK\n")
    assert [line for line in served.lines if line] == []


def wait_readable(port: LinePort) -> None:
    assert sockets.Poll(port).wait(120)


def test_a_silent_client_is_sent_away_after_its_time() -> None:
    with closing(LinePort(0, EVERYBODY)) as port, socket.create_connection(("127.0.0.1", port.port), 20) as client:
        wait_readable(port)
        assert port.receive(100.0) == []
        assert port.expire(104.9) == 105.0
        assert port.expire(105.0) is None
        assert client.recv(1) == b""


def test_a_client_that_waits_for_its_answer_has_more_time() -> None:
    with closing(LinePort(0, EVERYBODY)) as port, socket.create_connection(("127.0.0.1", port.port), 20) as client:
        wait_readable(port)
        port.receive(100.0)
        client.sendall(b"Term\n")
        wait_readable(port)
        [line] = port.receive(101.0)
        assert port.expire(110.0) == 161.0
        port.answer(line.peer, "GONE")
        assert client.makefile("rb").read() == b"GONE\n"
        port.answer(line.peer, "GONE")


def test_those_who_wait_for_an_answer_can_be_sent_away_together() -> None:
    with closing(LinePort(0, EVERYBODY)) as port:
        clients = [socket.create_connection(("127.0.0.1", port.port), 20) for _ in range(2)]
        clients[0].sendall(b"Term\n")
        lines: list[line_port.ReceivedLine] = []
        while not lines:
            wait_readable(port)
            lines += port.receive(100.0)
        port.drop_unanswered()
        assert clients[0].recv(1) == b""
        clients[1].sendall(b"Term\n")
        wait_readable(port)
        assert port.receive(100.0)
        for client in clients:
            client.close()


def test_a_client_that_does_not_wait_for_its_answer_is_forgotten() -> None:
    with closing(LinePort(0, EVERYBODY)) as port:
        with socket.create_connection(("127.0.0.1", port.port), 20) as client:
            wait_readable(port)
            port.receive(0.0)
            client.sendall(b"Term\n")
            wait_readable(port)
            [line] = port.receive(0.0)
        wait_readable(port)
        assert port.receive(0.0) == []
        assert port.expire(0.0) is None
        port.answer(line.peer, "OK")


def test_peers_from_other_networks_are_closed_at_once() -> None:
    with (
        closing(LinePort(0, ("10.0.0.0/8",))) as port,
        socket.create_connection(("127.0.0.1", port.port), 20) as client,
    ):
        wait_readable(port)
        assert port.receive(0.0) == []
        assert client.recv(1) == b""


def test_a_user_of_this_machine_has_a_part_of_the_connections_by_all_addresses_of_its_loopback() -> None:
    with closing(LinePort(0, EVERYBODY, most_open=8)) as port, ExitStack() as clients:

        def connected(address: str) -> socket.socket:
            client = clients.enter_context(socket.create_connection((address, port.port), 20))
            wait_readable(port)
            port.receive(0.0)
            return client

        open_ones = [connected(f"127.0.0.{number}") for number in (1, 2)]
        assert connected("127.0.0.3").recv(1) == b""
        for client in open_ones:
            client.sendall(b"Term\n")
            wait_readable(port)
            assert [line.text for line in port.receive(0.0)] == ["Term"]


def test_more_clients_than_allowed_are_closed_at_once() -> None:
    with closing(LinePort(0, EVERYBODY, most_open=1)) as port:
        with socket.create_connection(("127.0.0.1", port.port), 20):
            wait_readable(port)
            port.receive(0.0)
            with socket.create_connection(("127.0.0.1", port.port), 20) as second:
                wait_readable(port)
                port.receive(0.0)
                assert second.recv(1) == b""
        port.expire(line_port.SILENCE)
        with socket.create_connection(("127.0.0.1", port.port), 20) as third:
            wait_readable(port)
            port.receive(10.0)
            third.sendall(b"Term\n")
            wait_readable(port)
            assert [line.text for line in port.receive(10.0)] == ["Term"]


def heard(pull: sockets.Pull, count: int) -> list[bytes]:
    messages: list[bytes] = []
    while len(messages) < count:
        assert sockets.Poll(pull).wait(120)
        messages += pull.receive()
    return messages


def test_the_server_hears_each_effect_once(context: "zmq.Context[zmq.Socket[bytes]]") -> None:
    port = free_ports(1)[0]
    with closing(sockets.Pull(context, "localhost", port)) as pull:
        config = Config(server_hostnames=("localhost",), appendice_server_port=port)
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
    config = Config(server_hostnames=("127.0.0.1",), appendice_server_port=free_ports(1)[0])
    with pytest.raises(ServerUnavailable, match=r"127\.0\.0\.1:\d+: Connection refused"):
        doorbell.send_effects(config, [Wake(Tag.QSUB)])


def test_a_name_that_does_not_resolve_is_a_server_that_is_away() -> None:
    with pytest.raises(ServerUnavailable, match=r"no\.such\.host\.invalid:6670"):
        doorbell.send_effects(Config(server_hostnames=("no.such.host.invalid",)), [Wake(Tag.QSUB)])


def test_the_active_server_is_found_among_those_that_refuse_or_say_nothing(
    context: "zmq.Context[zmq.Socket[bytes]]", monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doorbell, "_PATIENCE", 60.0)
    port = free_ports(1)[0]
    with socket.socket() as dead, socket.socket() as first, closing(sockets.Pull(context, "127.0.0.4", port)) as pull:
        dead.bind(("127.0.0.2", port))
        dead.listen(0)
        first.connect(("127.0.0.2", port))  # its queue is full: a further connection is not answered
        names = ("no.such.host.invalid", "127.0.0.2", "127.0.0.3", "127.0.0.4")
        config = Config(server_hostnames=names, appendice_server_port=port)
        doorbell.send_effects(config, [Wake(Tag.QSUB), Wake(Tag.QSUB)])
        assert heard(pull, 1) == [b'{"cmd": "Qsub"}']


class OneAtATime:
    """A poll that reports one descriptor at a time, as if the others became ready a moment later."""

    def __init__(self, real: "select.poll") -> None:
        self._real = real
        self.register, self.unregister = real.register, real.unregister

    def poll(self, milliseconds: float) -> list[tuple[int, int]]:
        return self._real.poll(milliseconds)[:1]


def test_a_server_that_is_stopped_is_passed_over(
    context: "zmq.Context[zmq.Socket[bytes]]", monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doorbell, "_PATIENCE", 0.5)
    poll = select.poll
    monkeypatch.setattr(select, "poll", lambda: OneAtATime(poll()))
    port = free_ports(1)[0]
    with (
        socket.create_server(("127.0.0.2", port)),
        closing(sockets.Pull(context, "127.0.0.3", port)) as pull,
    ):
        config = Config(server_hostnames=("127.0.0.2", "127.0.0.3"), appendice_server_port=port)
        doorbell.send_effects(config, [Wake(Tag.QSUB)])
        assert heard(pull, 1) == [b'{"cmd": "Qsub"}']


def test_without_any_server_the_command_is_told_so() -> None:
    config = Config(server_hostnames=("127.0.0.2", "127.0.0.3"), appendice_server_port=free_ports(1)[0])
    with pytest.raises(ServerUnavailable, match=r"none of 127\.0\.0\.2, 127\.0\.0\.3 accepts connections"):
        doorbell.send_effects(config, [Wake(Tag.QSUB)])


def test_nothing_to_say_needs_no_server() -> None:
    doorbell.send_effects(Config(server_hostnames=("no.such.host.invalid",)), [])


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


@pytest.mark.parametrize(
    ("host", "is_in"),
    [("10.1.2.3", True), ("11.0.0.1", False), ("::ffff:10.1.2.3", True), ("fd00::1", True), ("fe80::1%eth0", False)],
)
def test_addresses_are_compared_in_whatever_form_the_system_tells_them(host: str, is_in: bool) -> None:
    assert Networks(["10.0.0.0/8", "fd00::/8"]).has(host) is is_in


def test_this_host_is_what_the_server_would_see_of_it() -> None:
    check_this_host(["127.0.0.0/8"], "127.0.0.1", 6666)
    with pytest.raises(NotAllowed, match=r"from this host: 127\.0\.0\.1 is not in ALLOWED_NETWORKS\.$"):
        check_this_host(["10.0.0.0/8"], "127.0.0.1", 6666)


def test_a_host_that_finds_no_server_is_not_allowed() -> None:
    with pytest.raises(NotAllowed, match=r"the server no\.where\.invalid cannot be reached: "):
        check_this_host(["10.0.0.0/8"], "no.where.invalid", 6666)


def test_a_silent_frontend_is_given_up() -> None:
    with deaf_server() as port:
        assert tell_oarsub(f"127.0.0.1:{port}", "a line", 0.2) == "timed out"
