"""The server's way to nodes: warm sessions over real sshds, many at once, each with its own fate."""

import signal
import socket
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from oar.lib.base.errors import NodeUnavailable
from oar.lib.remote.pool import CONNECTING_THREADS, Remote
from oar.lib.remote.requests import CommandRan, NodeCommand, NodeRequest, Outcome, RemoteSettings, TimedOut, Unreachable
from oar.lib.remote.session import Event, Lost, NodeSession, OutputLine, ProgramEnded
from oar.lib.remote.transports import (
    CannotReach,
    LocalTransport,
    OpensshTransport,
    ParamikoTransport,
    SessionChannel,
    choose,
)
from tests.process.ssh_nodes import SshNodes, ssh_nodes
from tests.process.this_machine import wait_until

PING = NodeRequest("node_probe", "ping", {})
DONE = CommandRan(0, (), "")
__all__ = ["ssh_nodes"]


def shell(script: str, stdin: str = "") -> NodeCommand:
    return NodeCommand(("sh", "-c", script), stdin, account=None)


@pytest.fixture(params=["paramiko", "openssh"])
def remote(request: pytest.FixtureRequest, ssh_nodes: SshNodes) -> Iterator[Remote]:
    with Remote(ssh_nodes.settings(request.param)) as one:
        yield one


@pytest.fixture
def local() -> Iterator[Remote]:
    with Remote(RemoteSettings(), LocalTransport()) as one:
        yield one


def test_many_nodes_answer_each_for_itself(remote: Remote, ssh_nodes: SshNodes) -> None:
    first, second = ssh_nodes.names
    outcomes = remote.run({first: shell("cat; exit 3", "in\n"), second: shell("echo out; echo bad >&2")}, 30)
    assert outcomes == {first: CommandRan(3, ("in",), ""), second: CommandRan(0, ("out",), "bad\n")}
    assert sorted(remote.warm_nodes()) == sorted(ssh_nodes.names)


@pytest.mark.usefixtures("many_descriptors")
def test_a_node_gets_more_than_a_pipe_holds_with_many_descriptors(local: Remote) -> None:
    text = "x" * 3_000_000
    assert local.run({"node": shell("wc -c", text)}, 30) == {"node": CommandRan(0, ("3000000",), "")}


def test_a_program_that_is_not_there_is_named(local: Remote) -> None:
    assert local.command("node", ("/no/such",), "", 20, account=None) == CommandRan(
        1, (), "/no/such: No such file or directory\n"
    )


def test_a_node_without_sshd_is_unreachable_and_the_others_are_not(remote: Remote, ssh_nodes: SshNodes) -> None:
    first, second = ssh_nodes.nodes
    first.crash()
    outcomes = remote.run({first.name: PING, second.name: PING}, 120)
    assert outcomes[second.name] == DONE
    unreachable = outcomes[first.name]
    assert isinstance(unreachable, Unreachable)
    assert "refused" in unreachable.error
    assert not unreachable.began
    first.start()
    assert remote.run({first.name: PING}, 120) == {first.name: DONE}


def test_a_warm_session_that_died_is_replaced_without_a_word(remote: Remote, ssh_nodes: SshNodes) -> None:
    node = ssh_nodes.nodes[0]
    assert remote.run({node.name: PING}, 120) == {node.name: DONE}
    node.crash()
    node.start()
    assert remote.run({node.name: PING}, 120) == {node.name: DONE}


def test_a_session_that_breaks_under_a_request_says_that_it_had_begun(remote: Remote, ssh_nodes: SshNodes) -> None:
    node = ssh_nodes.nodes[0]
    marker = ssh_nodes.home / "begun"
    outcomes: list[object] = []

    def ask() -> None:
        outcomes.append(remote.run({node.name: shell(f"touch {marker}; sleep 1000")}, 60)[node.name])

    asking = threading.Thread(target=ask)
    asking.start()
    wait_until(marker.exists)
    node.crash()
    asking.join(120)
    (outcome,) = outcomes
    assert isinstance(outcome, Unreachable)
    assert outcome.began


@pytest.mark.slow
def test_a_hanging_node_costs_its_own_deadline_and_no_other_s(remote: Remote, ssh_nodes: SshNodes) -> None:
    hanging, good = ssh_nodes.nodes
    assert remote.run({good.name: PING}, 120) == {good.name: DONE}
    hanging.signal(signal.SIGSTOP)
    seconds, outcomes = 6, dict[str, Outcome]()
    while outcomes.get(good.name) != DONE:  # on a busy machine it may need more
        seconds *= 2
        outcomes = remote.run({hanging.name: PING, good.name: PING}, seconds)
    assert outcomes[hanging.name] == TimedOut(seconds, began=False)


@pytest.mark.slow
def test_the_alarm_is_raised_for_a_node_that_falls_silent(ssh_nodes: SshNodes, monkeypatch: pytest.MonkeyPatch) -> None:
    hanging, good = ssh_nodes.nodes
    monkeypatch.setattr("oar.lib.remote.session.SILENT_SECONDS", 12.0)
    monkeypatch.setattr("oar.lib.remote.pool.LOOK_SECONDS", 0.1)
    alarms: list[str] = []
    with Remote(ssh_nodes.settings("paramiko"), alarm=alarms.append) as remote:
        assert remote.run({hanging.name: PING, good.name: PING}, 120) == {hanging.name: DONE, good.name: DONE}
        hanging.signal(signal.SIGSTOP)
        wait_until(lambda: alarms)
        hanging.signal(signal.SIGCONT)
        assert remote.run({hanging.name: PING}, 120) == {hanging.name: DONE}
    assert alarms == [hanging.name]


def test_a_frozen_node_is_said_not_to_answer(ssh_nodes: SshNodes) -> None:
    hanging = ssh_nodes.nodes[0]
    hanging.signal(signal.SIGSTOP)
    with pytest.raises(CannotReach, match=r"ssh: no answer within 1 s"):
        choose(ssh_nodes.settings("paramiko")).open(hanging.name, "true", 1)


@pytest.mark.slow
def test_a_request_that_takes_too_long_is_ended_on_the_node(remote: Remote, ssh_nodes: SshNodes) -> None:
    name = ssh_nodes.names[0]
    marker = ssh_nodes.home / "ended"
    assert remote.run({name: PING}, 120) == {name: DONE}
    script = f"trap 'touch {marker}; exit 1' TERM; echo on; while :; do sleep 0.1; done"
    seconds, outcome = 5, remote.run({name: PING}, 120)[name]
    while "on" not in getattr(outcome, "lines", ()):  # a busy machine does not come to its begin
        seconds *= 2
        outcome = remote.run({name: shell(script)}, seconds)[name]
    # The node's clock and ours run against each other: either the node has ended it and said so, or we gave up.
    # What the shell of the script says of the signal may come before its end.
    is_ended = isinstance(outcome, CommandRan) and (outcome.exit, outcome.lines) == (1, ("on",))
    assert is_ended or outcome == TimedOut(seconds, began=True, lines=("on",)), outcome
    wait_until(marker.exists)


def test_a_changed_host_key_is_refused(ssh_nodes: SshNodes) -> None:
    node = ssh_nodes.nodes[0]
    settings = ssh_nodes.settings("paramiko")
    with Remote(settings) as remote:
        assert remote.run({node.name: PING}, 120) == {node.name: DONE}
    node.crash()
    node.new_host_key()
    node.start()
    with Remote(settings) as remote:
        outcome = remote.run({node.name: PING}, 120)[node.name]
    assert isinstance(outcome, Unreachable)
    assert "the host key of [127.0.0.11]" in outcome.error
    assert "has changed" in outcome.error


def test_a_key_that_the_node_does_not_know_is_refused(ssh_nodes: SshNodes) -> None:
    node = ssh_nodes.nodes[0]
    (node.directory / "authorized_keys").write_text("")
    with Remote(ssh_nodes.settings("paramiko")) as remote:
        outcome = remote.run({node.name: PING}, 120)[node.name]
    assert isinstance(outcome, Unreachable)
    key = ssh_nodes.home / ".ssh" / "id_ed25519"
    assert f"its sshd refuses the key {key} for the account " in outcome.error
    assert outcome.error.endswith(f"(oar-keys --node {node.name})")


def test_a_name_that_could_be_an_option_reaches_no_ssh(remote: Remote) -> None:
    outcome = remote.run({"-oProxyCommand=touch /tmp/x": PING}, 10)["-oProxyCommand=touch /tmp/x"]
    assert isinstance(outcome, Unreachable)
    assert "not the name of a node" in outcome.error


def test_threads_share_one_session_per_node(remote: Remote, ssh_nodes: SshNodes) -> None:
    outcomes: list[object] = []

    def ask(number: int) -> None:
        outcomes.append(remote.run({ssh_nodes.names[number % 2]: shell(f"echo {number}")}, 30))

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(40)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    expected = [{ssh_nodes.names[number % 2]: CommandRan(0, (str(number),), "")} for number in range(40)]
    assert sorted(outcomes, key=str) == sorted(expected, key=str)
    assert len(remote.warm_nodes()) == 2


class Standstill:
    """Connections that do not come about until they are let; it counts how many are tried at a time."""

    name = "standstill"

    def __init__(self) -> None:
        self.lock, self.goes_on = threading.Lock(), threading.Event()
        self.now = self.most = 0

    def open(self, node: str, command: str, seconds: float) -> SessionChannel:
        with self.lock:
            self.now += 1
            self.most = max(self.most, self.now)
        self.goes_on.wait(60)
        with self.lock:
            self.now -= 1
        raise CannotReach("nobody is there")


def test_so_many_connections_are_opened_at_a_time_however_many_nodes_are_asked() -> None:
    transport, names = Standstill(), [f"node-{number}" for number in range(2000)]
    outcomes: dict[str, object] = {}
    with Remote(RemoteSettings(), transport) as remote:
        asking = threading.Thread(target=lambda: outcomes.update(remote.run(dict.fromkeys(names, PING), 60)))
        asking.start()
        wait_until(lambda: transport.now == CONNECTING_THREADS)
        transport.goes_on.set()
        asking.join(60)
    assert transport.most == CONNECTING_THREADS
    assert outcomes == dict.fromkeys(names, Unreachable("nobody is there"))


def test_each_address_of_a_node_is_tried(ssh_nodes: SshNodes, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = ssh_nodes.nodes
    found = [socket.getaddrinfo(name, ssh_nodes.port, 0, socket.SOCK_STREAM)[0] for name in ssh_nodes.names]
    monkeypatch.setattr("socket.getaddrinfo", lambda *_: found)
    first.crash()
    with Remote(ssh_nodes.settings("paramiko")) as remote:
        assert remote.run({"two-addresses": PING}, 30) == {"two-addresses": DONE}
        second.crash()
        unreachable = remote.run({"of-no-use": PING}, 30)["of-no-use"]
    refused = "Connection refused"
    assert unreachable == Unreachable(f"connect: {refused} ({first.name}), {refused} ({second.name})")


def test_idle_sessions_beyond_the_limit_are_closed_the_oldest_first(local: Remote) -> None:
    with Remote(RemoteSettings(pool_max=2), LocalTransport()) as remote:
        for name in ("a", "b", "c"):
            assert remote.run({name: PING}, 120) == {name: DONE}
        wait_until(lambda: remote.warm_nodes() == ["b", "c"])


def test_a_dialogue_is_line_by_line_and_its_end_comes_last(local: Remote) -> None:
    with local.dialogue("n", NodeRequest("node_probe", "nonsense", {}), 30) as talk:
        ended = talk.receive(20)
    assert isinstance(ended, CommandRan)
    assert ended.exit == 3
    assert "unknown action 'nonsense'" in ended.stderr


def test_a_key_that_cannot_be_read_is_named_until_it_can(ssh_nodes: SshNodes) -> None:
    node, key = ssh_nodes.names[0], ssh_nodes.home / ".ssh" / "id_ed25519"
    kept = key.rename(key.with_name("kept"))
    with Remote(ssh_nodes.settings("paramiko")) as remote:
        absent = remote.run({node: PING}, 120)[node]
        key.mkdir()
        unreadable = remote.run({node: PING}, 120)[node]
        key.rmdir()
        kept.rename(key)
        assert remote.run({node: PING}, 120) == {node: DONE}
    assert isinstance(absent, Unreachable)
    assert f"no private key among {key}, " in absent.error
    assert isinstance(unreadable, Unreachable)
    assert f"cannot read the key {key}: Is a directory: it must belong to " in unreadable.error


def take_and_close(listening: socket.socket) -> None:
    connection, _ = listening.accept()
    connection.close()


def test_an_sshd_that_takes_no_more_connections_is_named(ssh_nodes: SshNodes) -> None:
    full = ssh_nodes.names[0]
    ssh_nodes.nodes[0].crash()
    with socket.create_server((full, ssh_nodes.port)) as listening, Remote(ssh_nodes.settings("paramiko")) as remote:
        closing = threading.Thread(target=take_and_close, args=(listening,))
        closing.start()
        outcome = remote.run({full: PING}, 120)[full]
        closing.join()
    assert isinstance(outcome, Unreachable)
    assert "its sshd closes the connection (more at a time than MaxStartups" in outcome.error


def test_a_sudo_that_does_not_let_oar_is_named_with_the_way_out(ssh_nodes: SshNodes) -> None:
    refusing = ("sh", "-c", "echo 'sudo: a password is required' >&2; exit 1")
    settings = replace(ssh_nodes.settings("paramiko"), privilege_cmd=refusing)
    with Remote(settings) as remote:
        outcome = remote.run({ssh_nodes.names[0]: PING}, 120)[ssh_nodes.names[0]]
    rule = "the rule of oar in /etc/sudoers.d/oar-node there"
    assert outcome == Unreachable(f"sudo: a password is required ({rule})")


def test_a_dialogue_with_a_node_that_cannot_be_reached_is_refused(ssh_nodes: SshNodes) -> None:
    ssh_nodes.nodes[0].crash()
    with Remote(ssh_nodes.settings("paramiko")) as remote, pytest.raises(NodeUnavailable, match=r"127.0.0.11: connect"):
        remote.dialogue(ssh_nodes.names[0], PING, 10)


def test_no_interpreter_on_the_node_is_exit_code_32(tmp_path: Path) -> None:
    class Bare(LocalTransport):
        def open(self, node: str, command: str, seconds: float):  # type: ignore[no-untyped-def]
            bare = command.replace("/usr/libexec/platform-python", "/nonexistent")
            return super().open(node, f"PATH={tmp_path}; {bare}", seconds)

    with Remote(RemoteSettings(), Bare()) as remote:
        outcome = remote.run({"n": PING}, 120)["n"]
        with remote.dialogue("n", PING, 20) as talk:
            assert talk.receive(20) == outcome
    assert isinstance(outcome, CommandRan)
    assert outcome.exit == 32
    assert "no python3" in outcome.stderr


@pytest.mark.slow
def test_a_node_that_says_too_much_is_not_listened_to_any_longer(local: Remote) -> None:
    outcome = local.run({"n": shell("yes")}, 60)["n"]
    assert outcome == Unreachable("its output is too long", began=True)
    assert local.run({"n": PING}, 120) == {"n": DONE}


def test_what_a_command_of_a_user_says_is_thrown_away_but_why_it_did_not_start(local: Remote) -> None:
    say = "yes | head -c 40000000; yes | head -c 40000000 >&2; exit 3"
    assert local.command("n", ("sh", "-c", say), "", 60, account=None) == CommandRan(3, (), "")
    gone = local.command("n", ("/not/there",), "", 20, account=None)
    assert isinstance(gone, CommandRan)
    assert (gone.exit, gone.stderr) == (1, "/not/there: No such file or directory\n")


class Scripted:
    """A channel on which a node says what it likes."""

    def __init__(self, *blocks: bytes) -> None:
        self.blocks = list(blocks)

    def write(self, data: bytes, seconds: float) -> None:
        pass

    def read(self) -> bytes | None:
        return self.blocks.pop(0) if self.blocks else None

    def fileno(self) -> int:
        return -1

    def closing_report(self) -> tuple[int | None, str]:
        return None, ""

    def close(self) -> None:
        pass


@pytest.mark.parametrize("code", ["256", "-1", "1" + "0" * 30])
def test_what_a_node_says_can_be_kept_whatever_it_is(code: str) -> None:
    said = b'{"hello": 1, "boot_id": "%s"}\n{"id": 1, "line": "a\\u0000\\udc80"}\n' % (b"b" * 1000)
    end = b'{"id": 1, "exit": 3, "stderr": "%sx\\u0000"}\n' % (b"y" * 10_000)
    session = NodeSession("n", Scripted(said + end, b'{"id": 2, "exit": %s, "stderr": ""}\n' % code.encode()))
    events: list[Event] = []
    for _ in range(2):
        session.send(NodeRequest("node_probe", "ping", {}), 1, events.append)
    assert session.feed()
    assert session.boot_id == "b" * 64
    assert events[0] == OutputLine("a\\x00?")
    assert isinstance(events[1], ProgramEnded)
    assert (events[1].exit, events[1].stderr[-6:], len(events[1].stderr) < 5000) == (3, "yx\\x00", True)
    assert not session.feed()
    assert isinstance(events[2], Lost)
    assert "unexpected answer" in events[2].error


@pytest.mark.parametrize(("code", "is_trouble"), [(0, False), (3, False), (70, True), (137, True)])
def test_a_program_on_its_own_that_was_killed_is_trouble(code: int, is_trouble: bool) -> None:
    session = NodeSession("n", Scripted(b'{"beat": 1}\n{"left": 7, "exit": %d}\n' % code, b""))
    assert session.feed()
    assert session.take_trouble() is is_trouble
    assert not session.take_trouble()


def test_closing_tells_those_who_wait() -> None:
    remote = Remote(RemoteSettings(), LocalTransport())
    outcomes: list[object] = []

    def ask() -> None:
        outcomes.append(remote.run({"n": shell("sleep 1000")}, 60))

    asking = threading.Thread(target=ask)
    asking.start()
    wait_until(remote.warm_nodes)
    remote.close()
    asking.join(120)
    assert isinstance(outcomes[0], dict)
    assert isinstance(outcomes[0]["n"], Unreachable)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("/usr/bin/ssh -p 6667 -e none", ParamikoTransport),
        ("ssh -4 -x -q -i ~/.ssh/id -l oar -oPort=22 -o BatchMode=yes", ParamikoTransport),
        ("ssh -J gateway", OpensshTransport),
        ("ssh -o ProxyCommand=nc", OpensshTransport),
        ("/opt/bin/connector -p 6667", OpensshTransport),
    ],
)
def test_paramiko_is_chosen_when_it_can_do_what_is_asked(words: str, expected: type, tmp_path: Path) -> None:
    settings = RemoteSettings(openssh_cmd=tuple(words.split()), home=str(tmp_path))
    assert isinstance(choose(settings), expected)
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh" / "config").write_text("Host node*\n  ProxyJump gateway\n")
    assert isinstance(choose(settings), OpensshTransport)
