"""Jobs that the server lost sight of: started after the dump of a restored database, given up, ended unheard."""

import json
import threading
from dataclasses import replace

from oar.lib.history.event_types import EventType
from oar.lib.jobs import lifecycle
from oar.lib.jobs.ends import Cause, EndCode
from oar.lib.jobs.states import JobState, Phase
from oar.lib.nodes import restoration, state_changes
from oar.lib.nodes.states import ResourceState
from oar.lib.remote.pool import Remote
from oar.lib.remote.requests import RemoteSettings
from oar.lib.remote.transports import SessionChannel
from oar.modules.runner.actions import finish, probe
from oar.modules.runner.actions.context import RetryAfter
from oar.modules.runner.actions.launch import launch_job
from tests.builders import add_resources, state_of
from tests.process.node_box import NODE
from tests.process.this_machine import wait_until
from tests.process.world import Nowhere, World, end, slowed


def go_back_to_before_the_start(world: World, job_id: int) -> None:
    """Let the database be the one of a dump that was made before the job was started, and restored."""
    with world.database.begin() as tx:
        tx.execute("DELETE FROM assigned_resources WHERE moldable_job_id IN (SELECT assigned_moldable_job FROM jobs)")
        tx.execute("DELETE FROM job_runs")
        tx.execute("UPDATE jobs SET state = 'Waiting', assigned_moldable_job = 0, start_time = 0")
        restoration.after_restore(tx)


def test_a_job_that_was_started_after_the_dump_is_recognised_and_goes_on(world: World) -> None:
    job_id = world.launched("echo begun >>begun; sleep 1000")
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
    job_id = world.launched("sleep 1000")
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
    job_id = world.launched("sleep 1000")
    go_back_to_before_the_start(world, job_id)
    with world.database.begin() as tx:
        tx.execute("UPDATE challenges SET challenge = 'of another job that has its number'")
    assert probe.sweep(world.context, NODE) is None
    assert state_of(world.database, job_id) is JobState.WAITING
    assert EventType.UNKNOWN_JOB_ENDED not in world.events(job_id)
    wait_until(lambda: world.box.sh("pgrep -u alice sleep || true") == "")  # who was killed waits to be buried


def test_an_event_names_a_job_without_a_row_that_was_ended(world: World) -> None:
    line = json.dumps({"swept": "alice_4242", "job_id": 4242})
    with world.database.begin() as tx:
        probe.note_unknown_jobs(tx, NODE, [line, "{}", "text", json.dumps({"swept": "x", "job_id": 2**70})])
    assert world.events(4242) == [EventType.UNKNOWN_JOB_ENDED]


def test_no_node_is_swept_before_the_others_were_asked(world: World) -> None:
    other = add_resources(world.database, nodes=1, network_address="another")
    job_id = world.launched("sleep 1000")
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


def give_up(world: World, job_id: int) -> None:
    """Do what Leon does with a job that does not obey."""
    with world.database.begin() as tx:
        lifecycle.move_all(tx, [job_id], JobState.FINISHING)
        tx.job_runs.exterminate([job_id])


def test_a_launch_whose_job_was_given_up_meanwhile_has_nothing_to_say_of_it(world: World) -> None:
    way = Nowhere(world.box.enter())
    way.is_shut = False
    job_id = world.job("true")
    with Remote(RemoteSettings(), way) as remote:
        context = replace(slowed(world, 100), remote=remote)
        launcher = threading.Thread(target=lambda: launch_job(context, job_id))
        launcher.start()
        wait_until(lambda: world.phase(job_id) is Phase.EXEC_SENT)
        give_up(world, job_id)
        way.is_shut = True
    launcher.join(60)
    assert (world.phase(job_id), world.events(job_id)) == (Phase.EXTERMINATE, [])


class Ending(Nowhere):
    """A way on which a job is given up while its node is asked."""

    def __init__(self, world: World, job_id: int) -> None:
        super().__init__()
        self.world, self.job_id = world, job_id

    def open(self, node: str, command: str, seconds: float) -> SessionChannel:
        give_up(self.world, self.job_id)
        return super().open(node, command, seconds)


def test_a_launch_that_finds_its_node_silent_does_not_hide_that_its_job_was_given_up(world: World) -> None:
    job_id = world.job("true", JobState.RUNNING)
    with world.database.begin() as tx:
        tx.job_runs.claim(job_id, NODE)
        tx.job_runs.update(job_id, phase=Phase.GO)
        tx.execute("UPDATE job_runs SET updated = 0")
    with Remote(RemoteSettings(), Ending(world, job_id)) as remote:
        assert launch_job(replace(world.context, remote=remote), job_id) is None
    assert (world.phase(job_id), world.events(job_id)) == (Phase.EXTERMINATE, [])


def test_the_reason_of_an_end_whose_report_was_lost_comes_with_the_answer(world: World) -> None:
    world.box.sh("sed -i '/^alice:/s,:[^:]*$,:/no/such/shell,' /etc/passwd")
    try:
        job_id = world.job("true")
        launch_job(world.context, job_id)
        world.port.report("")
        with world.database.begin() as tx:
            tx.job_runs.update(job_id, reason="")
        probe.probe(world.context, NODE)
    finally:
        world.box.sh("sed -i '/^alice:/s,:[^:]*$,:/bin/bash,' /etc/passwd")
    run = world.run(job_id)
    assert run.script_status == 127 * 256
    finish.finish(world.context, job_id)
    assert world.cause(job_id) == Cause(
        EndCode.SHELL_MISSING, {"status": 127, "node": NODE, "path": "/no/such/shell", "errno": "ENOENT"}
    )


def test_a_job_that_ended_while_nobody_listened_has_ended_when_its_node_says_so(world: World) -> None:
    job_id = world.launched("true")
    world.port.report("")
    state = world.box.runtime / f"oarexec_{job_id}.state"
    content = json.loads(state.read_text())
    content["times"]["ended"] -= 3600
    state.write_text(json.dumps(content))
    with world.database.begin() as tx:
        tx.jobs.update(job_id, start_time=tx.now - 7200)
    probe.probe(world.context, NODE)
    finish.finish(world.context, job_id)
    with world.database.begin() as tx:
        job = tx.jobs.find(job_id)
        assert job is not None
        assert tx.now - 3600 - 120 < job.stop_time <= tx.now - 3600
