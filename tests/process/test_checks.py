"""Nodes check what made launches fail, on a real node: oar/modules/runner/actions/check.py, oar/tools/node_check.py."""

import fcntl
from dataclasses import replace

import pytest

from oar.lib.facts.records import LaunchHold
from oar.lib.facts.states import EventType, JobState, LaunchFault, NodeCheck, ResourceState
from oar.lib.resources import nodes
from oar.lib.resources.nodes import Suspicion
from oar.lib.runtime import Runtime
from oar.modules import node_change_state
from oar.modules.runner.actions import check, finish
from oar.modules.runner.actions.launch import launch_job
from tests.process.node_box import NODE
from tests.process.world import World


def holds(world: World) -> list[LaunchHold]:
    """Return the holds of launches."""
    with world.database.begin() as tx:
        return tx.launch_holds.all()


def test_launches_of_an_unknown_account_are_held_until_its_node_knows_it(world: World) -> None:
    job_id = world.job("true", user="late")
    launch_job(world.context, job_id)
    finish.finish(world.context, job_id)
    node_change_state.run(Runtime(world.context.config, world.database))
    check.check(world.context, NODE)
    (hold,) = holds(world)
    assert (hold.user, hold.is_confirmed, hold.next_try > 0) == ("late", True, True)
    world.box.sh("echo late:x:5321:5321::/tmp:/bin/sh >>/etc/passwd")
    check.check(world.context, NODE)  # it is not due yet
    assert holds(world) == [hold]
    with world.database.begin() as tx:
        tx.execute("UPDATE launch_holds SET next_try = 0")
    check.check(world.context, NODE)
    assert holds(world) == []


def test_a_job_of_root_blames_no_node_and_holds_the_launches_of_nobody_else(world: World) -> None:
    job_id = world.job("true", user="root")
    launch_job(world.context, job_id)
    finish.finish(world.context, job_id)
    assert world.events(job_id) == [EventType.USER_SHELL]
    node_change_state.run(Runtime(world.context.config, world.database))
    check.check(world.context, NODE)
    assert [(hold.user, hold.is_confirmed) for hold in holds(world)] == [("root", True)]
    with world.database.begin() as tx:
        assert {resource.state for resource in tx.resources.all()} == {ResourceState.ALIVE}


def test_a_node_runs_one_check_of_a_user_at_a_time(world: World) -> None:
    config = world.context.config
    lock = f"{config.oar_runtime_directory}/check_{b'alice'.hex()}.lock"
    with world.database.begin() as tx:
        tx.launch_holds.hold(LaunchFault.HOME, "alice", NODE, 0, "", is_confirmed=False)
    check.check(world.context, NODE)
    assert holds(world) == []  # and the lock is there
    with world.database.begin() as tx:
        tx.launch_holds.hold(LaunchFault.HOME, "alice", NODE, 0, "", is_confirmed=False)
    with open(lock, encoding="utf-8") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        check.check(world.context, NODE)
    (hold,) = holds(world)
    assert (hold.is_confirmed, hold.failures) == (False, 2)


def test_a_missing_home_holds_launches_until_it_is_there_again(world: World) -> None:
    home = world.box.home("alice")
    home.rename(home.with_name("away"))
    try:
        job_id = world.job("true")
        launch_job(world.context, job_id)
        finish.finish(world.context, job_id)
        assert world.events(job_id) == [EventType.HOME_MISSING]
        node_change_state.run(Runtime(world.context.config, world.database))
        check.check(world.context, NODE)
        assert [(hold.fault, hold.is_confirmed) for hold in holds(world)] == [(LaunchFault.HOME, True)]
    finally:
        home.with_name("away").rename(home)
    with world.database.begin() as tx:
        tx.execute("UPDATE launch_holds SET next_try = 0")
    check.check(world.context, NODE)
    assert holds(world) == []


@pytest.mark.parametrize("event", ["CAN_NOT_WRITE_NODE_FILE", "CPUSET_CLEAN_ERROR", "SSH_TRANSFER_TIMEOUT"])
def test_a_node_that_passes_its_check_comes_back(world: World, event: str) -> None:
    job_id = world.job("true", JobState.LAUNCHING)
    with world.database.begin() as tx:
        tx.events.add(event, job_id, "it failed", to_check=True, hosts=[NODE])
    node_change_state.run(Runtime(world.context.config, world.database))
    check.check(world.context, NODE)
    with world.database.begin() as tx:
        assert tx.resources.to_sweep() == [NODE]
        (lifted,) = tx.events.of_nodes([NODE], last=1)[NODE]
    assert "checked again" in lifted.description


def test_a_site_that_forbids_it_uses_no_node_again_after_a_check(world: World) -> None:
    config = world.context.config.replace(disable_suspected_nodes_repair=True)
    job_id = world.job("true", JobState.LAUNCHING)
    with world.database.begin() as tx:
        tx.events.add("CAN_NOT_WRITE_NODE_FILE", job_id, "it failed", to_check=True, hosts=[NODE])
    node_change_state.run(Runtime(world.context.config, world.database))
    check.check(replace(world.context, config=config), NODE)
    with world.database.begin() as tx:
        assert tx.resources.to_sweep() == []


def test_a_node_that_fails_its_check_stays_suspected(world: World) -> None:
    with world.database.begin() as tx:
        reasons = {NODE: Suspicion("USER_SHELL: gone", NodeCheck.ACCOUNT, "gone")}
        nodes.suspect(tx, [NODE], finaud=True, reasons=reasons)
    check.check(world.context, NODE)
    with world.database.begin() as tx:
        assert tx.resources.to_sweep() == []
