"""oar_phoenix: broken nodes are rebooted."""

import time
from pathlib import Path

import pytest

from oar.cli import oar_phoenix
from oar.lib.base.clock_watch import ClockWatch, Look
from oar.lib.bus.messages import Mail
from oar.lib.config.files import Config
from oar.lib.db.database import Database
from oar.lib.db.lock_keys import PHOENIX_LOCK
from oar.lib.db.system import ServerState
from oar.lib.jobs.states import JobState
from oar.lib.nodes import phoenix as steps
from oar.lib.nodes import state_changes
from oar.lib.nodes.phoenix import Step, Tried
from oar.lib.nodes.states import ResourceState
from tests.builders import add_job, add_resources, execute_sql
from tests.db.console import EVE, Console


@pytest.fixture
def phoenix(console: Console, tmp_path: Path) -> Console:
    """Return the console of a site with commands that write the names of nodes to files."""
    commands = {
        "phoenix_soft_rebootcmd": f"sh -c 'echo soft $0 >> {tmp_path}/done; echo bye' {{NODENAME}}",
        "phoenix_hard_rebootcmd": f"sh -c 'echo hard $0 >> {tmp_path}/done; exit 3' {{NODENAME}}",
    }
    paths = {
        "phoenix_logdir": str(tmp_path / "log"),
        "oar_run_dir": str(tmp_path),
    }
    return Console(console.database, console.config.replace(**commands, **paths))


def done(tmp_path: Path) -> list[str]:
    """Return what the commands were called for."""
    path = tmp_path / "done"
    return sorted(path.read_text().splitlines()) if path.exists() else []


def read_tried(site: Console) -> dict[str, Tried]:
    """Return the stored last step of each node."""
    with site.database.snapshot() as tx:
        return steps.parse_tried(tx.system.read_state(ServerState.PHOENIX))


def write_tried(site: Console, tried: dict[str, Tried]) -> None:
    """Store the last step of each node."""
    with site.database.begin() as tx:
        tx.system.store_state(ServerState.PHOENIX, steps.format_tried(tried))


def suspect(database: Database, ids: list[int]) -> None:
    """Let some resources be Suspected."""
    execute_sql(database, "UPDATE resources SET state = 'Suspected', state_num = 3 WHERE resource_id = ANY(%s)", ids)


def test_broken_nodes_are_rebooted_once(phoenix: Console, tmp_path: Path) -> None:
    ids = add_resources(phoenix.database, nodes=3)
    suspect(phoenix.database, ids[:4])
    result = phoenix.type(oar_phoenix.main)
    assert (result.exit, result.out, result.err) == (0, "rebooted: node-1, node-2\n", "")
    assert done(tmp_path) == ["soft node-1", "soft node-2"]
    assert phoenix.type(oar_phoenix.main).out == ""
    assert len(done(tmp_path)) == 2
    log = (tmp_path / "log" / "oar_phoenix.log").read_text()
    assert log.count(" soft_reboot node-1: exit code 0\n    bye\n") == 1


def test_who_is_well_again_is_forgotten(phoenix: Console) -> None:
    ids = add_resources(phoenix.database, nodes=2)
    suspect(phoenix.database, ids[:2])
    write_tried(phoenix, {"node-1": Tried(Step.GIVEN_UP, 5), "node-2": Tried(Step.HARD, 5)})
    assert phoenix.type(oar_phoenix.main).out == ""
    assert read_tried(phoenix) == {"node-1": Tried(Step.GIVEN_UP, 5)}


def test_jobs_and_maintenance_keep_their_nodes(phoenix: Console, tmp_path: Path) -> None:
    ids = add_resources(phoenix.database, nodes=3)
    add_job(phoenix.database, JobState.RUNNING, on=ids[:1])
    with phoenix.database.begin() as tx:
        state_changes.begin_maintenance(tx, ids[2:4], by="root")
        assert {each.state for each in tx.resources.select(ids[:2])} == {ResourceState.ALIVE}
    suspect(phoenix.database, ids)
    assert phoenix.type(oar_phoenix.main).out == "rebooted: node-3\n"
    assert done(tmp_path) == ["soft node-3"]


def test_a_hard_reboot_follows_and_then_a_mail(phoenix: Console, tmp_path: Path) -> None:
    suspect(phoenix.database, add_resources(phoenix.database, nodes=2))
    write_tried(phoenix, {"node-1": Tried(Step.SOFT, 5), "node-2": Tried(Step.HARD, 5)})
    foretold = phoenix.type(oar_phoenix.main, "-n")
    assert foretold.out == ("would be rebooted the hard way: node-1\nwould be given up after all reboots: node-2\n")
    assert (done(tmp_path), read_tried(phoenix)["node-1"]) == ([], Tried(Step.SOFT, 5))
    result = phoenix.type(oar_phoenix.main)
    assert done(tmp_path) == ["hard node-1"]
    assert result.exit == 1
    assert f"[ERROR] The command failed for node-1: see {tmp_path}/log/oar_phoenix.log." in result.err
    with phoenix.database.snapshot() as tx:
        (mail,) = tx.unsent.read(tx.unsent.ids())
    assert isinstance(mail.content, Mail)
    assert mail.content.text.startswith("node-2: still broken after all reboots.")
    assert phoenix.type(oar_phoenix.main).out == ""


def test_a_date_of_a_clock_that_was_ahead_keeps_no_node_from_its_next_step(phoenix: Console, tmp_path: Path) -> None:
    suspect(phoenix.database, add_resources(phoenix.database, nodes=1))
    begin = int(time.time())
    write_tried(phoenix, {"node-1": Tried(Step.SOFT, begin + 365 * 86400)})
    assert phoenix.type(oar_phoenix.main).out == ""
    tried = read_tried(phoenix)["node-1"]
    assert begin <= tried.date <= time.time()  # its time goes on from here
    write_tried(phoenix, {"node-1": tried._replace(date=tried.date - 301)})
    phoenix.type(oar_phoenix.main)
    assert done(tmp_path) == ["hard node-1"]


def test_a_clock_that_was_set_ahead_makes_no_step_come_early(phoenix: Console, tmp_path: Path) -> None:
    suspect(phoenix.database, add_resources(phoenix.database, nodes=1))
    watch, begin, steady = ClockWatch(), int(time.time()), time.monotonic()
    watch.set_by(Look(begin - 3600, steady, steady))  # what the server saw last
    with phoenix.database.begin() as tx:
        tx.system.store_state(ServerState.CLOCK, watch.memory)
    write_tried(phoenix, {"node-1": Tried(Step.SOFT, begin - 3600 - 100)})
    phoenix.type(oar_phoenix.main)
    assert done(tmp_path) == []
    execute_sql(phoenix.database, "DELETE FROM server_state WHERE name = 'clock'")
    phoenix.type(oar_phoenix.main)
    assert done(tmp_path) == ["hard node-1"]


def test_a_name_that_could_be_an_option_is_left_alone(phoenix: Console, tmp_path: Path) -> None:
    add_resources(phoenix.database, nodes=1, network_address="-oProxyCommand=x", state="Suspected")
    result = phoenix.type(oar_phoenix.main)
    assert "nodes are not rebooted: -oProxyCommand=x: a reboot command cannot contain these names." in result.err
    assert done(tmp_path) == []


@pytest.mark.parametrize(
    ("keys", "code", "said"),
    [
        ({"phoenix_soft_rebootcmd": "", "phoenix_hard_rebootcmd": ""}, 0, "# Nothing is done: neither PHOENIX_SOFT"),
        ({"phoenix_soft_rebootcmd": "reboot"}, 1, "PHOENIX_SOFT_REBOOTCMD must contain {NODENAME}"),
        ({"phoenix_broken_nodes": "no_such = 1"}, 1, "no_such"),
    ],
)
def test_what_is_not_configured(phoenix: Console, keys: dict[str, str], code: int, said: str) -> None:
    site = Console(phoenix.database, phoenix.config.replace(**keys))
    result = site.type(oar_phoenix.main)
    assert result.exit == code
    assert said in result.out + result.err


def test_only_one_runs_at_a_time(phoenix: Console) -> None:
    with phoenix.database.hold_lock(PHOENIX_LOCK):
        assert phoenix.type(oar_phoenix.main).out == "# Nothing is done: another oar_phoenix is running.\n"
    assert phoenix.type(oar_phoenix.main, user=EVE).exit == 77


def test_defaults_do_nothing(console: Console) -> None:
    assert not Config().phoenix_soft_rebootcmd
    assert console.type(oar_phoenix.main).exit == 0
