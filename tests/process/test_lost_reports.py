"""Ends that nobody listened to when they were reported: the node is asked, and tells all of them."""

import json

from oar.lib.jobs.ends import Cause, EndCode
from oar.modules.runner.actions import finish, probe
from oar.modules.runner.actions.launch import launch_job
from tests.process.node_box import NODE
from tests.process.world import World


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
    assert run is not None
    assert run.script_status == 127 * 256
    finish.finish(world.context, job_id)
    assert world.cause(job_id) == Cause(
        EndCode.SHELL_MISSING, {"status": 127, "node": NODE, "path": "/no/such/shell", "errno": "ENOENT"}
    )


def test_a_job_that_ended_while_nobody_listened_has_ended_when_its_node_says_so(world: World) -> None:
    job_id = world.job("true")
    launch_job(world.context, job_id)
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
