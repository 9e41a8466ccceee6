"""The test cluster itself: its machines are separate, can be harmed and healed, and leave nothing behind."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from room import client

from tests.acceptance.harness import PATIENCE, TOOL, Cluster, Person, checked, room_named, tool, wait_until

SSH = "ssh -p 6667 -o BatchMode=yes"
#: To a machine that will not answer.
SSH_IN_VAIN = f"{SSH} -o ConnectTimeout=4"


@pytest.fixture(scope="module")
def machines() -> Iterator[Cluster]:
    """Two nodes and PostgreSQL, without a server of OAR."""
    cluster = Cluster.start(f"tool-{os.getpid()}", "--nodes", "2", "--until", "postgresql", "--fast-db")
    try:
        yield cluster
    finally:
        cluster.stop()


@pytest.fixture
def healed(machines: Cluster) -> Iterator[Cluster]:
    """The same, for a test that harms node-2."""
    yield machines
    machines.node("node-2").do("reboot")


def traces_of(room: str) -> list[str]:
    """What this computer still has of a room: directories and control groups."""
    root = Path("/sys/fs/cgroup")
    groups = [*root.glob(f"oar-room-{room}-*"), *root.glob(f"*/oar-room-{room}-*")]
    directory = Path("/var/lib/oar-room", room)
    return [str(path) for path in [*groups, *([directory] if directory.exists() else [])]]


def small_room(name: str) -> Cluster:
    """One node, nothing else."""
    return Cluster.start(f"{name}-{os.getpid()}", "--nodes", "1", "--until", "nodes")


def test_every_node_is_a_computer_of_its_own(machines: Cluster) -> None:
    seen = [
        machines.as_user("oar").run(
            f"{SSH} node-{number} 'hostname; touch /tmp/mine-{number}; ls /tmp /run/sshd; ps -e | wc -l'"
        )
        for number in (1, 2)
    ]
    assert [text.split()[0] for text in seen] == ["node-1", "node-2"]
    assert "mine-1" not in seen[1]
    assert all(int(text.split()[-1]) < 15 for text in seen)


def test_nodes_share_homes_and_users(machines: Cluster) -> None:
    machines.as_user("alice").run("echo hello > shared")
    assert machines.node("node-2").as_user("alice").run("cat shared; id -un; pwd").split() == [
        "hello",
        "alice",
        "/home/alice",
    ]


def test_a_node_sees_only_its_part_of_the_control_groups(machines: Cluster) -> None:
    node = machines.node("node-1").as_user("root")
    assert all(line.endswith((":/", ":/system")) for line in node.run("cat /proc/self/cgroup").split())
    node.run("mkdir -p $(dirname $(find /sys/fs/cgroup -name cgroup.procs | head -1))/mine")
    assert "mine" not in machines.node("node-2").as_user("root").run("find /sys/fs/cgroup -name mine")


def test_users_become_oar_for_its_commands_only(machines: Cluster) -> None:
    allowed = machines.as_user("alice").run("sudo -n -l")
    assert "(oar) NOPASSWD: /usr/lib/oar/oarsub" in allowed
    assert machines.as_user("alice").attempt("sudo -n -u oar id").code == 1
    assert machines.as_user("oar").run("sudo -n id -u").strip() == "0"


def test_users_cannot_read_the_configuration_with_the_passwords(machines: Cluster) -> None:
    assert machines.as_user("alice").attempt("cat /etc/oar/oar.conf").code == 1
    assert "DB_BASE_PASSWD" in machines.as_user("oar").run("cat /etc/oar/oar.conf")
    assert "PASSWD" not in machines.node("node-1").as_user("alice").run("cat /etc/oar/oar.conf")


def test_a_crashed_node_ends_its_connections(healed: Cluster) -> None:
    with session(healed, "node-2") as remote:
        healed.node("node-2").do("crash")
        assert remote.wait(PATIENCE) == 255
    assert healed.as_user("oar").attempt(f"{SSH_IN_VAIN} node-2 true").code == 255


def test_a_node_without_power_falls_silent(healed: Cluster) -> None:
    with session(healed, "node-2") as remote:
        healed.node("node-2").do("power-off")
        assert healed.status()["machines"]["node-2"]["state"] == "down"
        assert remote.poll() is None


def test_a_rebooted_node_has_its_name_and_an_empty_tmp(healed: Cluster) -> None:
    healed.node("node-2").as_user("root").run("touch /tmp/before /run/before")
    healed.node("node-2").do("crash")
    healed.node("node-2").do("reboot")
    assert healed.as_user("oar").run(f"{SSH} node-2 'hostname; ls /tmp; ls /run | grep before || true'").split() == [
        "node-2"
    ]


def test_a_cut_node_heals(healed: Cluster) -> None:
    healed.node("node-2").do("cut")
    assert healed.as_user("oar").attempt(f"{SSH_IN_VAIN} node-2 true").code == 255
    healed.node("node-2").do("heal")
    assert healed.as_user("oar").run(f"{SSH} node-2 hostname").strip() == "node-2"


def test_a_hung_node_accepts_connections_and_says_nothing(healed: Cluster) -> None:
    healed.node("node-2").do("hang")
    assert "banner" in healed.as_user("oar").attempt(f"{SSH_IN_VAIN} node-2 true").err
    healed.node("node-2").do("resume")
    assert healed.as_user("oar").run(f"{SSH} node-2 hostname").strip() == "node-2"


def test_sessions_survive_the_stop_of_sshd(healed: Cluster) -> None:
    with session(healed, "node-2") as remote:
        healed.node("node-2").do("sshd-stop")
        assert "refused" in healed.as_user("oar").attempt(f"{SSH_IN_VAIN} node-2 true").err
        assert remote.poll() is None
        healed.node("node-2").do("sshd-start")
        assert healed.as_user("oar").run(f"{SSH} node-2 hostname").strip() == "node-2"


@contextlib.contextmanager
def session(cluster: Cluster, node: str) -> Iterator[subprocess.Popen[str]]:
    """An open ssh session on a node; it ends with the test."""
    command = [str(TOOL), "--room", cluster.room, "run", "oar", f"{SSH} {node} 'echo here; sleep 600'"]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True) as remote:
        assert remote.stdout is not None
        assert remote.stdout.readline() == "here\n"
        try:
            yield remote
        finally:
            remote.kill()


def test_a_command_sees_what_it_is_given_and_its_end_is_told(machines: Cluster) -> None:
    command = "cat; hostname; echo $WORD >&2; exit 3"
    by_keeper = machines.node("node-2").as_user("bob").attempt(command, stdin="given\n", env={"WORD": "bad"})
    by_tool = tool("run", "--on", "node-2", "--env", "WORD=bad", "bob", command, room=machines.room, stdin="given\n")
    for result in (by_keeper, by_tool):
        assert (result.code, result.out, result.err) == (3, "given\nnode-2\n", "bad\n")
    assert machines.as_user("bob").attempt("kill -KILL $$").code == 137
    absent = machines.as_user("nobody-here").attempt("true")
    assert (absent.code, "no account 'nobody-here'" in absent.err) == (1, True)


def test_a_command_for_which_nobody_waits_any_more_is_killed(machines: Cluster) -> None:
    bob = machines.as_user("bob")
    with pytest.raises(TimeoutError):
        client.run(room_named(machines.room), "server", "bob", ["exec sleep 4321"], deadline=1)
    wait_until(lambda: bob.attempt("pgrep -x sleep").code == 1, "it has ended")


def test_the_database_keeps_its_data_when_it_is_killed(machines: Cluster) -> None:
    postgres = machines.as_user("postgres")
    postgres.run("psql -qc 'CREATE TABLE kept AS SELECT 42 AS answer'")
    machines.database.do("kill")
    wait_until(lambda: postgres.attempt("psql -qc 'SELECT 1'").code, "PostgreSQL is gone")
    machines.database.do("start")
    assert postgres.run("psql -Atc 'SELECT answer FROM kept'").strip() == "42"


def _reaches_database(machines: Cluster) -> bool:
    """Return whether the server gets as far as being refused a connection without a password."""
    asked = machines.as_user("root").attempt("PGCONNECT_TIMEOUT=2 psql -w -h database -U oar oar")
    return "no password supplied" in asked.err


@pytest.mark.parametrize(("fault", "cure"), [("cut", "heal"), ("power-off", "start")])
def test_the_database_falls_silent_and_comes_back(machines: Cluster, fault: str, cure: str) -> None:
    assert _reaches_database(machines)
    machines.database.do(fault)
    assert not _reaches_database(machines)
    machines.database.do(cure)
    assert _reaches_database(machines)


def test_a_server_without_power_closes_no_connection() -> None:
    room = Cluster.start(f"power-{os.getpid()}", "--nodes", "1", "--until", "postgresql", "--fast-db")
    try:
        root = room.as_user("root")
        root.run("(setsid sleep 1000 >/dev/tcp/database/5432 &) >/dev/null 2>&1 </dev/null")
        room.server.do("power-off")
        assert root.attempt("pgrep -x sleep").code == 1
        assert root.run("nsenter --net=/run/netns/database ss -Htn state established sport 5432").strip()
        assert not root.run("ss -Htan state connected").strip()
    finally:
        room.stop()


@pytest.fixture(scope="module")
def pair() -> Iterator[Cluster]:
    """Two servers and two PostgreSQL servers, without OAR."""
    name = f"pair-{os.getpid()}"
    options = ("--nodes", "1", "--servers", "2", "--databases", "2", "--until", "database", "--fast-db")
    cluster = Cluster.start(name, *options)
    try:
        yield cluster
    finally:
        cluster.stop()


def answers(person: Person, *hosts: str) -> list[bool]:
    """Return which hosts answer a ping."""
    return [person.attempt(f"ping -c 1 -W 1 {host}").code == 0 for host in hosts]


HOSTS = ("server", "node-1", "database", "database2")


@pytest.mark.parametrize(
    ("fault", "reachable"),
    [
        ("cut", [False, False, False, False]),
        ("cut-nodes", [True, False, True, True]),
        ("cut-database", [True, True, False, False]),
    ],
)
def test_a_server_is_cut_from_some_hosts(pair: Cluster, fault: str, reachable: list[bool]) -> None:
    root, server = pair.as_user("root").on("server2"), pair.server_on("server2")
    server.do(fault)
    try:
        assert answers(root, *HOSTS) == reachable
        assert answers(pair.node("node-1").as_user("root"), "server2") == [reachable[1]]
    finally:
        server.do("heal")
    assert all(answers(root, *HOSTS))


def test_processes_of_a_server_stop_and_continue(pair: Cluster) -> None:
    root = pair.as_user("root").on("server2")
    root.run("setsid sleep 300 </dev/null >/dev/null 2>&1 &")
    for action, state in (("hang", "T"), ("resume", "S")):
        pair.server_on("server2").do(action)
        assert root.run("ps -o stat= -C sleep").strip().startswith(state)
    pair.server_on("server2").do("power-off")
    assert root.attempt("pgrep -x sleep").code == 1
    assert answers(pair.as_user("root"), "server2") == [False]
    pair.node("server2").do("reboot")
    assert answers(pair.as_user("root"), "server2") == [True]


def test_the_replica_is_promoted_and_the_former_primary_follows_it(pair: Cluster) -> None:
    pair.sql("CREATE TABLE kept AS SELECT 1 AS number")
    pair.database.do("kill")
    pair.database.do("promote")
    pair.sql("INSERT INTO kept VALUES (2)")
    pair.database.do("follow")
    pair.sql("INSERT INTO kept VALUES (3)")
    psql = "psql -X -A -t -h /run/postgresql -U postgres oar -c"
    assert pair.as_user("root").run(f"{psql} 'SELECT pg_is_in_recovery(), sum(number) FROM kept'").strip() == "t|6"


def test_two_rooms_live_side_by_side() -> None:
    one, other = small_room("one"), small_room("other")
    try:
        for room in (one, other):
            room.as_user("root").run(f"hostname > /tmp/{room.room}")
            assert room.as_user("oar").run(f"{SSH} node-1 hostname").strip() == "node-1"
        assert one.as_user("root").run("ls /tmp").split() == [one.room]
    finally:
        one.stop()
        other.stop()
    assert traces_of(one.room) == traces_of(other.room) == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_a_room_whose_keeper_ends_leaves_nothing(number: signal.Signals) -> None:
    room = small_room(f"kept-{number.name.lower()}")
    room.node("node-1").do("hang")
    server = room.status()["machines"]["server"]["pid"]
    os.kill(room.status()["keeper"], number)
    wait_until(lambda: not traces_of(room.room), "no directory of the room is left")
    wait_until(lambda: not Path(f"/proc/{server}").exists(), "the room's processes have ended")


def test_what_a_killed_room_could_not_remove_goes_at_the_next_start() -> None:
    room = small_room("swept")
    keeper = room.status()["keeper"]
    for pid in (int(Path(f"/proc/{keeper}/stat").read_text().split()[3]), keeper):
        os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not Path(f"/proc/{keeper}").exists(), "keeper and guard are dead")
    assert traces_of(room.room)
    Cluster.start(room.room, "--nodes", "1", "--until", "nodes").stop()
    assert not traces_of(room.room)


def test_cores_that_the_computer_does_not_have_share_those_it_has() -> None:
    processors = os.sched_getaffinity(0)
    cores = str(2 * len(processors) + 1)
    name = f"shared-{os.getpid()}"
    started = checked(tool("start", "--nodes", "1", "--cores", cores, "--fast-db", room=name))
    room = Cluster(name)
    try:
        assert f"The {cores} cores of each node share the processors of this computer" in started.out
        (job,) = room.as_user("alice").submit_all("-l nodes=1,walltime=0:1 'oarprint cpuset | sort -u > seen'")
        room.wait_for_state(job, "Terminated")
        assert room.as_user("alice").run("cat seen").split() == [str(number) for number in sorted(processors)]
        assert room.sql("SELECT count(*), min(state), max(state) FROM resources") == [[cores, "Alive", "Alive"]]
    finally:
        room.stop()
    assert "--cores must be between 1 and 1000" in tool("start", "--cores", "0", room=name).err


def test_a_room_ends_with_the_process_it_was_made_for() -> None:
    name = f"lent-{os.getpid()}"
    with subprocess.Popen(["sleep", "300"]) as owner:
        checked(tool("start", "--nodes", "1", "--until", "nodes", "--while", str(owner.pid), room=name))
        assert traces_of(name)
        owner.kill()
    wait_until(lambda: not traces_of(name), "the room has ended")


def test_a_room_needs_no_root() -> None:
    outer = small_room("outer")
    try:
        give_alice_a_computer(outer)
        alice = outer.as_user("alice")
        assert "Level 2" in alice.run("src/setup/cluster check")
        alice.run("src/setup/cluster start --nodes 2 --until postgresql --fast-db --show src")
        seen = alice.attempt("src/setup/cluster run --on node-2 bob 'ls ~alice/src; touch ~alice/src/mine'")
        assert "setup" in seen.out.split()
        assert "Read-only file system" in seen.err
        inside = "src/setup/cluster run oar"
        assert alice.run(f"{inside} '{SSH} node-2 \"hostname; sudo -n id -u\"'").split() == ["node-2", "0"]
        alice.run("src/setup/cluster node node-2 hang")
        assert alice.attempt(f"{inside} '{SSH_IN_VAIN} node-2 true'").code == 255
        alice.run("src/setup/cluster stop")
        shown = alice.run("src/setup/demo --nodes 2")
        assert shown.splitlines()[-1] == "The cluster works: everything went as it should."
        assert alice.run("ls .local/state/oar-room").split() == []
    finally:
        outer.stop()


def give_alice_a_computer(outer: Cluster) -> None:
    """Ids for a user namespace, the sources, and the installation (there is no network to make one)."""
    for table in ("/etc/subuid", "/etc/subgid"):
        outer.as_user("root").run(f"echo alice:100000:65536 >> {table}")
    installation = Path(outer.status()["room"]["installation"])
    sources = TOOL.parent.parent
    copy(outer, sources, "src", [name for name in product_sources() if (sources / name).exists()])
    copy(outer, installation.parent, ".cache/oar-room", [installation.name])


def product_sources() -> list[str]:
    """What an installation is made of."""
    return ["pyproject.toml", "README.md", "oar", "setup", "etc", "docs"]


def copy(room: Cluster, directory: Path, target: str, names: list[str]) -> None:
    """Copy files of this computer to alice."""
    unpack = [str(TOOL), "--room", room.room, "run", "alice", f"mkdir -p {target} && tar -x -C {target}"]
    with subprocess.Popen(["tar", "-c", "-C", str(directory), *names], stdout=subprocess.PIPE) as pack:
        subprocess.run(unpack, stdin=pack.stdout, check=True, timeout=PATIENCE)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["node", "node-9", "crash"], "no node 'node-9' in room"),
        (["run", "nobody-here", "true"], "no account 'nobody-here'"),
        (["run", "--on", "node-9", "root", "true"], "no machine 'node-9'"),
        (["run", "alice"], "which command?"),
        (["start", "--until", "nodes"], "is running"),
    ],
)
def test_a_wrong_request_is_answered_in_one_line(machines: Cluster, arguments: list[str], said: str) -> None:
    result = tool(*arguments, room=machines.room)
    assert result.code == 1
    assert said in result.err
    assert len(result.err.splitlines()) == 1


@pytest.mark.parametrize(
    ("room", "arguments", "said"),
    [
        ("absent", ["status"], "no room 'absent' is running"),
        ("../evil", ["start"], "is no name for a room"),
        ("many", ["start", "--nodes", "0"], "--nodes must be between"),
    ],
)
def test_a_room_that_cannot_be_is_refused(room: str, arguments: list[str], said: str) -> None:
    result = tool(*arguments, room=room)
    assert result.code == 1
    assert said in result.err


@pytest.mark.parametrize(
    ("place", "why"), [("/tmp", "of their own"), ("/usr/share", "of their own"), ("/no", "no such")]
)
def test_what_machines_have_of_their_own_cannot_be_shown_to_them(place: str, why: str) -> None:
    refused = tool("start", "--show", place, room=f"shown-{os.getpid()}")
    assert (refused.code, why in refused.err) == (1, True), refused
    assert traces_of(f"shown-{os.getpid()}") == []
