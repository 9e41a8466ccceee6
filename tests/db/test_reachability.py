"""Finaud of one of several servers: a network failure between the active server and the nodes suspects no node."""

import stat
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from oar.lib.base.errors import ConfigError
from oar.lib.base.processes import ChildProcess
from oar.lib.bus.exit_codes import FinaudCode
from oar.lib.bus.frames import Active, Frame, Standby
from oar.lib.bus.messages import Effect, Mail
from oar.lib.config.files import Config
from oar.lib.db.connections import DatabaseSettings
from oar.lib.db.database import Database
from oar.lib.db.lock_keys import SERVER_LOCK
from oar.lib.db.servers import WISH_SECONDS, ServerReport
from oar.lib.jobs.states import ServerRole
from oar.lib.runtime import Runtime
from oar.modules import finaud, reachability
from oar.modules.reachability import RECOUNT_SECONDS, Count, choose
from oar.modules.warden import NodeCount, Warden
from oar.modules.worker import PassOrder
from tests.builders import add_resources
from tests.process.this_machine import wait_until

NODES = [f"node-{number}" for number in range(1, 5)]


def checker_of(directory: Path, silent: list[str]) -> str:
    """Return a checker of the site that finds some nodes silent."""
    path = directory / "checker"
    path.write_text(f"#!/bin/sh\nprintf '%s\\n' {' '.join(silent)} >&2\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def report_servers(database: Database, servers: tuple[str, ...]) -> None:
    """Report the servers: the first one is active, the others are standby."""
    with database.begin() as tx:
        for name in servers:
            role = ServerRole.ACTIVE if name == servers[0] else ServerRole.STANDBY
            tx.servers.report(ServerReport(name, name, 6666, role, "3.3.0", ""))


@pytest.fixture
def opened(database: Database, tmp_path: Path) -> Callable[[list[str]], Runtime]:
    """Return a runtime of srv1, whose checker finds some nodes silent."""
    for name in NODES:
        add_resources(database, 1, 1, network_address=name)

    def open_runtime(silent: list[str], servers: tuple[str, ...] = ("srv1", "srv2")) -> Runtime:
        checker = checker_of(tmp_path, silent)
        config = Config(server_hostnames=servers, server_name=servers[0], pingchecker_generic_command=checker)
        report_servers(database, servers)
        return Runtime(config, database)

    return open_runtime


@pytest.fixture
def standby_reaches(database: Database, monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Return a function that sets the answer of srv2 to a request for its count."""
    count_nodes = reachability.count_nodes

    def answer(nodes: int) -> None:
        def count(opened: Runtime, checked: Mapping[str, bool]) -> Count:
            with database.begin() as tx:
                tx.servers.note_reached("srv2", nodes)
            return count_nodes(opened, checked)

        monkeypatch.setattr(reachability, "count_nodes", count)

    return answer


def asked_states(database: Database) -> list[str]:
    with database.begin() as tx:
        return tx.column("SELECT next_state FROM resources ORDER BY network_address")


def wanted(database: Database) -> tuple[str, str]:
    with database.begin() as tx:
        generation = tx.servers.generation()
    return generation.wanted, generation.wanted_reason


def test_a_standby_that_reaches_the_nodes_takes_over_and_no_node_is_suspected(
    database: Database, opened: Callable[[list[str]], Runtime], standby_reaches: Callable[[int], None]
) -> None:
    standby_reaches(4)
    assert finaud.run(opened(NODES[:3])) == FinaudCode.NOTHING
    assert asked_states(database) == 4 * ["UnChanged"]
    assert wanted(database) == ("srv2", "srv1 reaches 1 of 4 nodes, srv2 reaches 4")


@pytest.mark.parametrize(("silent", "reached"), [(NODES[:3], 1), (NODES[:2], 4), (NODES, 0)])
def test_nodes_are_suspected_if_they_have_failed(
    database: Database,
    opened: Callable[[list[str]], Runtime],
    standby_reaches: Callable[[int], None],
    silent: list[str],
    reached: int,
) -> None:
    """The standby does not reach them either, or they are not more than half of all."""
    standby_reaches(reached)
    assert finaud.run(opened(silent)) == FinaudCode.CHANGE
    assert asked_states(database).count("Suspected") == len(silent)
    assert wanted(database) == ("", "")


def test_a_woken_pass_changes_no_node(database: Database, opened: Callable[[list[str]], Runtime]) -> None:
    """Neither a node that answers again becomes Alive, nor a silent one Suspected."""
    runtime = opened(NODES[:2])
    with database.begin() as tx:
        tx.execute("UPDATE resources SET state = 'Suspected', finaud_decision = 'YES' WHERE network_address = 'node-4'")
    assert finaud.run(runtime, PassOrder(compare=True)) == FinaudCode.NOTHING
    assert asked_states(database) == 4 * ["UnChanged"]
    assert finaud.run(runtime, PassOrder()) == FinaudCode.CHANGE
    assert asked_states(database) == ["Suspected", "Suspected", "UnChanged", "Alive"]


def test_a_woken_pass_hands_over(
    database: Database, opened: Callable[[list[str]], Runtime], standby_reaches: Callable[[int], None]
) -> None:
    standby_reaches(4)
    assert finaud.run(opened(NODES[:3]), PassOrder(compare=True)) == FinaudCode.NOTHING
    assert wanted(database)[0] == "srv2"


def test_a_standby_without_an_answer_does_not_prevent_suspicions(
    database: Database, opened: Callable[[list[str]], Runtime], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reachability, "COUNT_SECONDS", 0.0)
    assert finaud.run(opened(NODES)) == FinaudCode.CHANGE
    assert asked_states(database) == 4 * ["Suspected"]


def test_a_wanted_server_that_does_not_take_over_is_not_wanted_again(
    database: Database,
    tmp_path: Path,
    opened: Callable[[list[str]], Runtime],
    standby_reaches: Callable[[int], None],
    sent: list[Effect],
) -> None:
    """When this server is active again, it suspects the nodes and informs the administrators."""
    standby_reaches(4)
    runtime = opened(NODES[:3])
    assert finaud.run(runtime) == FinaudCode.NOTHING
    reports: list[Frame] = []
    warden = Warden(
        Runtime(runtime.config.replace(oar_run_dir=str(tmp_path)), Database(database.settings)), reports.append
    )
    warden.turn()
    with database.begin() as tx:
        tx.execute(f"UPDATE server_generation SET wanted_at = wanted_at - {WISH_SECONDS}")
    warden.turn()
    assert [type(report) for report in reports] == [Standby, Active]
    warden.close()
    report_servers(database, ("srv1", "srv2"))
    assert finaud.run(runtime, PassOrder(compare=True)) == FinaudCode.NOTHING
    assert asked_states(database) == 4 * ["UnChanged"]
    compare_again(database)
    assert finaud.run(runtime) == FinaudCode.CHANGE
    assert asked_states(database) == [*3 * ["Suspected"], "UnChanged"]
    assert wanted(database) == ("", "")
    with database.begin() as tx:
        [text] = tx.column("SELECT description FROM event_logs WHERE type = 'HAND_OVER_FAILED'")
    assert text.startswith("[Finaud] no hand-over to srv2 (srv1 reaches 1 of 4 nodes, srv2 reaches 4): it was chosen")
    assert [effect.subject for effect in sent if isinstance(effect, Mail)] == ["Hand-over to another server failed"]


def compare_again(database: Database) -> None:
    """Let the time pass after which servers are compared again."""
    with database.begin() as tx:
        tx.execute(f"UPDATE server_generation SET count_requested_at = count_requested_at - {RECOUNT_SECONDS}")


def test_a_server_is_chosen_again_after_15_minutes(
    database: Database, opened: Callable[[list[str]], Runtime], standby_reaches: Callable[[int], None]
) -> None:
    standby_reaches(4)
    runtime = opened(NODES[:3])
    finaud.run(runtime)
    with database.begin() as tx:
        tx.servers.next_generation("srv1")
        tx.execute("UPDATE servers SET chosen_at = chosen_at - 900")
    assert finaud.run(runtime) == FinaudCode.NOTHING
    assert wanted(database)[0] == "srv2"


@pytest.mark.parametrize(
    ("recent", "chosen"), [((), ("srv2", False)), (("srv2",), ("srv3", False)), (("srv2", "srv3"), ("srv2", True))]
)
def test_another_server_is_chosen_after_a_failed_hand_over(recent: tuple[str, ...], chosen: tuple[str, bool]) -> None:
    choice = choose("srv1", Count(1, 10), {"srv2": 10, "srv3": 5, "srv4": 1}, recent)
    assert choice is not None
    assert (choice.server_name, choice.is_repeated) == chosen


@pytest.mark.parametrize(("silent", "alive"), [(1, 3), (1, 100), (2, 21)])
def test_few_silent_nodes_start_no_count(silent: int, alive: int) -> None:
    """Only idle nodes were checked: one lost node of one does not mean that the network has failed."""
    assert not reachability.have_failed(silent * [False], alive)


def test_servers_are_not_compared_again_soon(
    database: Database, opened: Callable[[list[str]], Runtime], standby_reaches: Callable[[int], None]
) -> None:
    standby_reaches(1)
    runtime, checked = opened(NODES[:3]), dict.fromkeys(NODES[:3], False)
    assert reachability.find_better_server(runtime, checked) is None
    standby_reaches(4)
    assert reachability.find_better_server(runtime, checked) is None
    compare_again(database)
    assert reachability.find_better_server(runtime, checked) is not None


@pytest.mark.parametrize(
    "change",
    [
        "config_digest = 'other'",
        "version = '3.2.9'",
        "server_name = 'elsewhere'",
        "last_seen = last_seen - 60",
        "role = 'stopped'",
    ],
)
def test_only_a_server_that_would_continue_alike_is_a_candidate(
    database: Database, opened: Callable[[list[str]], Runtime], change: str
) -> None:
    runtime = opened([])
    with database.begin() as tx:
        assert list(reachability.candidates(tx.servers.all(), runtime.config, tx.now)) == ["srv2"]
        tx.execute(f"UPDATE servers SET {change} WHERE server_name = 'srv2'")
        assert not reachability.candidates(tx.servers.all(), runtime.config, tx.now)
        tx.servers.request_count()
    assert reachability.find_better_server(runtime, dict.fromkeys(NODES, False)) is None


def test_a_failed_check_of_a_standby_is_an_answer(
    database: Database, opened: Callable[[list[str]], Runtime], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is stored as a negative number, so that the active server does not wait for it."""
    runtime = opened([])
    runtime.config = runtime.config.replace(pingchecker_generic_command="/none/checker")
    with pytest.raises(ConfigError):
        reachability.count_nodes(runtime)
    with database.begin() as tx:
        assert tx.column("SELECT sees_nodes FROM servers WHERE server_name = 'srv1'") == [-1]
    assert reachability.is_decided(Count(1, 4), ["srv2"], {"srv2": -1})
    assert choose("srv1", Count(0, 4), {"srv2": -1}) is None


def test_nodes_that_were_just_checked_are_not_checked_again(opened: Callable[[list[str]], Runtime]) -> None:
    runtime = opened([])
    assert reachability.count_nodes(runtime, dict.fromkeys(NODES[:3], False)) == Count(1, 4)
    runtime.config = runtime.config.replace(pingchecker_generic_command="/none/checker")
    assert reachability.count_nodes(runtime, dict.fromkeys(NODES, True)) == Count(4, 4)


def test_the_warden_of_a_standby_starts_one_count_for_each_request(
    database: Database, settings: DatabaseSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    marks = tmp_path / "marks"
    program = (sys.executable, "-c", f"open({str(marks)!r}, 'a').write('x')")
    monkeypatch.setattr("oar.modules.warden._COUNT_ARGV", program)
    config = Config(server_hostnames=("srv1", "srv2"), server_name="srv2", oar_run_dir=str(tmp_path))
    warden = Warden(Runtime(config, Database(settings._replace(patience=0))), lambda _: None)
    with database.hold_lock(SERVER_LOCK):
        warden.turn()
        assert not marks.exists()
        with database.begin() as tx:
            tx.servers.request_count()
        warden.turn()
        wait_until(marks.exists)
        warden.turn()
        warden.turn()
        assert marks.read_text() == "x"
        warden.close()


def test_a_standby_that_can_start_no_process_remains_a_standby(
    database: Database,
    settings: DatabaseSettings,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr("oar.modules.warden._COUNT_ARGV", ("/none/python",))
    config = Config(server_hostnames=("srv1", "srv2"), server_name="srv2", oar_run_dir=str(tmp_path))
    warden = Warden(Runtime(config, Database(settings._replace(patience=0))), lambda _: None)
    with database.hold_lock(SERVER_LOCK):
        with database.begin() as tx:
            tx.servers.request_count()
        warden.turn()
        warden.turn()
    warden.close()
    assert [record.getMessage() for record in caplog.records if record.name == "warden"] == [
        "the nodes are not counted: /none/python cannot be started: No such file or directory"
    ]


def test_the_process_that_counts_has_no_use_for_the_streams_of_the_warden(tmp_path: Path) -> None:
    """Nobody reads its output: a full pipe would stop it."""
    done = tmp_path / "done"
    program = f"print('x' * (1 << 20)); open({str(done)!r}, 'w')"
    child = ChildProcess((sys.executable, "-c", program), environment={}, is_quiet=True)
    try:
        wait_until(done.exists)
        assert child.read() == []
        assert child.is_silent
    finally:
        child.close()


def test_the_active_server_has_no_process_that_counts(
    database: Database, settings: DatabaseSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("oar.modules.warden._COUNT_ARGV", (sys.executable, "-c", "import time; time.sleep(600)"))
    config = Config(server_hostnames=("srv1", "srv2"), server_name="srv2", oar_run_dir=str(tmp_path))
    warden = Warden(Runtime(config, Database(settings._replace(patience=0))), lambda _: None)
    with database.hold_lock(SERVER_LOCK):
        with database.begin() as tx:
            tx.servers.request_count()
        warden.turn()
    assert isinstance(warden._count, NodeCount)
    assert warden._count._child is not None
    warden.turn()
    assert warden._count._child is None
    warden.close()


def test_the_reason_of_a_hand_over_is_in_its_event(
    database: Database, settings: DatabaseSettings, tmp_path: Path
) -> None:
    with database.begin() as tx:
        tx.servers.next_generation("srv1")
        tx.servers.want("srv2", "srv1 reaches 1 of 4 nodes, srv2 reaches 4")
    config = Config(server_hostnames=("srv1", "srv2"), server_name="srv2", oar_run_dir=str(tmp_path))
    warden = Warden(Runtime(config, Database(settings._replace(patience=0))), lambda _: None)
    warden.turn()
    warden.close()
    with database.begin() as tx:
        assert tx.column("SELECT description FROM event_logs WHERE type = 'SERVER_TAKE_OVER'") == [
            "srv2 has taken over from srv1: srv1 reaches 1 of 4 nodes, srv2 reaches 4"
        ]
    assert wanted(database) == ("", "")
