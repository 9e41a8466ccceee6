"""Why nodes get no jobs: oarnodesetting --reason, oarnodes --reasons."""

import json
from unittest.mock import Mock

import pytest

from oar.cli import oarnodes
from oar.lib.config.files import Config
from oar.lib.db.database import Database
from oar.lib.jobs.states import JobState
from oar.lib.nodes import state_changes
from oar.lib.nodes.sql_nodes import Nodes
from oar.lib.nodes.states import ResourceState
from oar.lib.runtime import Runtime
from oar.modules import finaud, node_change_state
from tests.builders import add_job, add_resources, execute_sql
from tests.db.console import EVE, Console


def test_why_nodes_are_drained_or_maintained_stands_in_the_event_and_beside_them(console: Console) -> None:
    console.nodesetting("-a", "-h", "node-1,node-2,node-3")
    console.nodesetting("-d", "on", "--reason", " a disk: changed ", "-h", "node-1,node-2")
    console.nodesetting("-d", "on", "-h", "node-3")
    assert reasons(console) == {"node-1": "a disk: changed", "node-2": "a disk: changed", "node-3": None}
    console.nodesetting("-d", "on", "--reason", "two disks", "-h", "node-1,node-3")
    console.nodesetting("-d", "off", "-h", "node-2")
    assert reasons(console) == {"node-1": "two disks", "node-2": None, "node-3": "two disks"}
    assert "no new jobs: two disks\n" in console.type(oarnodes.main, "--summary", "node-1", user=EVE).out
    console.nodesetting("-m", "on", "-n", "--reason", "moves", "-h", "node-2")
    execute_sql(console.database, "UPDATE resources SET state = 'Absent' WHERE network_address = 'node-2'")
    assert reasons(console)["node-2"] == "moves"
    with console.database.snapshot() as tx:
        assert [text for (text,) in tx.rows("SELECT description FROM event_logs ORDER BY event_id")] == [
            "User root began the drain of node-1, node-2: a disk: changed",
            "User root began the drain of node-3",
            "User root gave a reason for the drain of node-1, node-3: two disks",
            "User root ended the drain of node-2",
            "User root began the maintenance of node-2: moves",
        ]


def reasons(console: Console) -> dict[str, str | None]:
    record = json.loads(console.type(oarnodes.main, "--summary", "--json", user=EVE).out)
    return {node: each["reason"] for node, each in record.items()}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ("-d", "off", "-h", "node-1"),
            "cannot set a reason alone. Use it with a state, or with a drain or a maintenance that begins.",
        ),
        (
            ("-p", "drain=NO", "-h", "node-1"),
            "cannot set a reason alone. Use it with a state, or with a drain or a maintenance that begins.",
        ),
        (
            ("-a", "-h", "node-9"),
            "cannot set a reason for new resources. Add them without it, then drain them with it.",
        ),
    ],
)
def test_a_reason_is_that_of_a_state_a_drain_or_a_maintenance(
    console: Console, words: tuple[str, ...], said: str
) -> None:
    console.nodesetting("-a", "-h", "node-1")
    result = console.nodesetting(*words, "--reason", "why")
    assert (result.exit, said in result.err) == (1, True)
    assert console.values("network_address") == ["node-1"]


@pytest.mark.parametrize("state", ["Absent", "Dead", "Suspected"])
def test_each_change_of_a_state_by_a_person_has_a_reason_an_event_and_an_author(console: Console, state: str) -> None:
    console.nodesetting("-a", "-h", "node-1,node-2")
    console.nodesetting("-n", "-s", state, "--reason", "the fan is loud", "-h", "node-1")
    node_change_state.run(Runtime(console.config, console.database))
    (reason,) = json.loads(console.type(oarnodes.main, "--reasons", "--json", user=EVE).out)
    expected = ("node-1", state, "the fan is loud", "root")
    assert (reason["node"], reason["state"], reason["reason"], reason["author"]) == expected
    assert reason["since"] > 0
    with console.database.snapshot() as tx:
        (event,) = tx.events.of_nodes(["node-1"], last=1)["node-1"]
    assert event.type == "STATE_REQUESTED"
    assert event.description == f"User root requested the state {state} of node-1: the fan is loud"
    shown = console.type(oarnodes.main, "--reasons", user=EVE).out.splitlines()
    assert shown[0].split() == ["NODE", "STATE", "SINCE", "WHO", "REASON"]
    assert shown[1].split()[:2] == ["node-1", state]
    assert shown[1].endswith("root  the fan is loud")
    console.nodesetting("-s", "Alive", "--reason", "a new fan", "-h", "node-1")
    with console.database.begin() as tx:
        tx.events.add("NODE_SWEPT", 0, "node-1 is clean", to_check=True, hosts=["node-1"])
    node_change_state.run(Runtime(console.config, console.database))
    assert console.type(oarnodes.main, "--reasons", user=EVE).out == ""


def test_the_reasons_of_oar_drains_and_maintenances_are_listed_too(console: Console) -> None:
    console.nodesetting("-a", "-h", "node-1,node-2,node-3")
    console.nodesetting("-d", "on", "--reason", "a disk", "-h", "node-1")
    console.nodesetting("-m", "on", "-n", "-h", "node-2")
    node_change_state.run(Runtime(console.config, console.database))
    with console.database.begin() as tx:
        tx.events.add("CPUSET_CLEAN_ERROR", 0, "processes are left", to_check=True, hosts=["node-3"])
    node_change_state.run(Runtime(console.config, console.database))
    found = json.loads(console.type(oarnodes.main, "--reasons", "--json", user=EVE).out)
    assert [tuple(each[name] for name in ("node", "state", "reason", "author")) for each in found] == [
        ("node-1", "drain", "a disk", "root"),
        ("node-2", "maintenance", "", "root"),
        ("node-3", "Suspected", "CPUSET_CLEAN_ERROR: processes are left", "OAR"),
    ]
    assert reasons(console)["node-3"] == "CPUSET_CLEAN_ERROR: processes are left"


def test_a_reason_is_one_line(console: Console) -> None:
    console.nodesetting("-a", "-h", "node-1")
    line = "bad reason: it has a line break or a control character. Write one line of text."
    short = "bad reason: it has 256 characters: the limit is 255. Shorten it."
    for text, said in (("two\nlines", line), ("x" * 256, short)):
        result = console.nodesetting("-d", "on", "--reason", text, "-h", "node-1")
        assert result.err.endswith(f"{said}\n")
        assert console.values("drain") == ["NO"]


# -- what the system asks ---------------------------------------------------------------------------------------------


def look(console: Console, monkeypatch: pytest.MonkeyPatch, silent: list[str]) -> None:
    """Let Finaud test all nodes."""
    monkeypatch.setattr(finaud, "silent_hosts", lambda _config, _nodes: silent)
    finaud.run(Runtime(Config(), console.database))


def stored_reasons(database: Database) -> list[tuple[str, str]]:
    """Return author and reason of each resource that has one, by id."""
    with database.begin() as tx:
        ids = [one.id for one in tx.resources.all()]
        return [(one.author, one.reason) for one in tx.nodes.reasons_of_resources(ids)]


def lay_aside(console: Console) -> None:
    """Give node-1 two resources, one of them Absent for a reason that an administrator gave."""
    ids = add_resources(console.database, nodes=2, cores=2)
    console.nodesetting("-s", "Absent", "-r", str(ids[0]), "--reason", "a broken GPU")
    node_change_state.run(Runtime(Config(), console.database))


def test_finaud_replaces_no_reason_of_a_resource_whose_state_stays(
    console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    lay_aside(console)
    look(console, monkeypatch, ["node-1"])
    assert stored_reasons(console.database) == [("root", "a broken GPU"), ("", "does not answer")]


def test_a_halt_replaces_no_reason_of_a_resource_whose_state_stays(console: Console) -> None:
    lay_aside(console)
    with console.database.begin() as tx:
        state_changes.order_halt(tx, ["node-1"], "Greta", "idle")
    assert stored_reasons(console.database) == [("root", "a broken GPU"), ("", "halted: idle")]


def test_a_halt_that_is_given_up_leaves_what_others_ask(console: Console) -> None:
    ids = add_resources(console.database, nodes=2, cores=2)
    add_job(console.database, JobState.RUNNING, on=ids[1:2])
    with console.database.begin() as tx:
        state_changes.ask_state(tx, ids[:1], ResourceState.DEAD, "burnt", by="root")
        state_changes.order_halt(tx, ["node-1"], "Greta", "idle")
        assert [one.next_state for one in tx.resources.of_nodes(["node-1"])] == ["Dead", "UnChanged"]


def test_finaud_asks_once_which_nodes_have_checks(console: Console, monkeypatch: pytest.MonkeyPatch) -> None:
    add_resources(console.database, nodes=3, cores=1)
    with console.database.begin() as tx:
        state_changes.suspect(tx, ["node-1", "node-2", "node-3"], finaud=True)
    checks = Mock(return_value={})
    monkeypatch.setattr(Nodes, "due_checks", checks)
    look(console, monkeypatch, [])
    assert checks.call_count == 1
