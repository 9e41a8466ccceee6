"""After a restore: nodes are asked for jobs that were started after the dump, and only then swept."""

from oar.lib.history.event_types import EventType
from oar.lib.jobs.states import JobState
from oar.lib.nodes import restoration, state_changes
from oar.lib.nodes.states import ResourceState
from oar.modules.runner.actions import probe
from oar.modules.runner.actions.context import RetryAfter
from oar.modules.runner.actions.launch import launch_job
from tests.builders import add_resources, state_of
from tests.process.node_box import NODE
from tests.process.this_machine import wait_until
from tests.process.world import World, end


def go_back_to_before_the_start(world: World, job_id: int) -> None:
    """Let the database be the one of a dump that was made before the job was started, and restored."""
    with world.database.begin() as tx:
        tx.execute("DELETE FROM assigned_resources WHERE moldable_job_id IN (SELECT assigned_moldable_job FROM jobs)")
        tx.execute("DELETE FROM job_runs")
        tx.execute("UPDATE jobs SET state = 'Waiting', assigned_moldable_job = 0, start_time = 0")
        restoration.after_restore(tx)


def test_a_job_that_was_started_after_the_dump_is_recognised_and_goes_on(world: World) -> None:
    job_id = world.job("echo begun >>begun; sleep 1000")
    launch_job(world.context, job_id)
    begun = world.box.home("alice") / "begun"
    wait_until(begun.exists)
    go_back_to_before_the_start(world, job_id)
    assert probe.sweep(world.context, NODE) is None
    assert state_of(world.database, job_id) is JobState.RUNNING
    assert EventType.JOB_RECOGNISED in world.events(job_id)
    probe.probe(world.context, NODE)
    assert state_of(world.database, job_id) is JobState.RUNNING
    wait_until(lambda: world.box.sh("pgrep -u alice sleep || true"))
    end(world, job_id)
    assert begun.read_text() == "begun\n"
    begun.unlink()


def test_a_node_that_was_absent_at_the_time_of_the_dump_is_asked_when_it_comes_back(world: World) -> None:
    job_id = world.job("sleep 1000")
    launch_job(world.context, job_id)
    with world.database.begin() as tx:
        ids = [one.id for one in tx.resources.all()]
        tx.resources.move(ids, ResourceState.ABSENT, finaud=False)
    go_back_to_before_the_start(world, job_id)
    with world.database.begin() as tx:
        state_changes.ask_state(tx, ids, ResourceState.ALIVE)
    assert probe.sweep(world.context, NODE) is None
    assert state_of(world.database, job_id) is JobState.RUNNING
    end(world, job_id)


def test_a_job_that_the_restored_database_does_not_know_is_ended(world: World) -> None:
    job_id = world.job("sleep 1000")
    launch_job(world.context, job_id)
    go_back_to_before_the_start(world, job_id)
    with world.database.begin() as tx:
        tx.execute("UPDATE challenges SET challenge = 'of another job that has its number'")
    assert probe.sweep(world.context, NODE) is None
    assert state_of(world.database, job_id) is JobState.WAITING
    wait_until(lambda: world.box.sh("pgrep -u alice sleep || true") == "")  # who was killed waits to be buried


def test_no_node_is_swept_before_the_others_were_asked(world: World) -> None:
    other = add_resources(world.database, nodes=1, network_address="another")
    job_id = world.job("sleep 1000")
    launch_job(world.context, job_id)
    go_back_to_before_the_start(world, job_id)
    assert probe.sweep(world.context, NODE) == RetryAfter(probe.OTHERS_SECONDS)
    assert state_of(world.database, job_id) is JobState.RUNNING  # what was asked for is known at once
    with world.database.begin() as tx:
        assert NODE in tx.resources.to_sweep()
        tx.execute("UPDATE event_logs SET date = date - %s", (probe.SURVEY_PATIENCE,))
    assert probe.sweep(world.context, NODE) is None  # nobody waits for a node that does not answer
    with world.database.begin() as tx:
        assert [event.hosts for event in tx.events.open([EventType.NODE_SURVEY])] == [("another",)]
        tx.resources.clear_asked_state(other)
    end(world, job_id)
