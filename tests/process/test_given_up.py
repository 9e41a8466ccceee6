"""A launch that learns too late that its job was given up: the end of the job is told as it was."""

import threading
from dataclasses import replace

from oar.lib.jobs import lifecycle
from oar.lib.jobs.states import JobState, Phase
from oar.lib.remote.channels import SessionChannel
from oar.lib.remote.pool import Remote
from oar.lib.remote.requests import RemoteSettings
from oar.modules.runner.actions.launch import launch_job
from tests.process.node_box import NODE
from tests.process.this_machine import wait_until
from tests.process.world import Nowhere, World, slowed


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
