"""Jobs that stand still and go on: what the actions of the bipbips do on a real node."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from oar.lib.bus.messages import Tag, Wake
from oar.lib.history.event_types import EventType
from oar.lib.jobs import lifecycle
from oar.lib.jobs.states import JobState
from oar.modules.runner.actions import suspend
from tests.builders import state_of
from tests.process.node_box import NODE
from tests.process.this_machine import wait_until
from tests.process.world import World, end


def test_a_suspended_job_stands_still_until_it_is_resumed(world: World) -> None:
    job_id, ticks = ticking(world)
    told_to_suspend(world, job_id)
    suspend.suspend(world.context, job_id)
    assert state_of(world.database, job_id) is JobState.SUSPENDED
    size = ticks.stat().st_size
    suspend.suspend(world.context, job_id)
    assert ticks.stat().st_size == size
    told_to_resume(world, job_id)
    suspend.resume(world.context, job_id)
    assert state_of(world.database, job_id) is JobState.RUNNING
    wait_until(lambda: ticks.stat().st_size > size)
    suspend.suspend(world.context, job_id)  # an order that comes late
    assert state_of(world.database, job_id) is JobState.RUNNING
    end(world, job_id)
    ticks.unlink()


def ticking(world: World) -> tuple[int, Path]:
    """Launch a job that writes on and on; return it, and the file."""
    job_id = world.launched("while :; do echo tick >>ticks; sleep 0.05; done")
    ticks = world.box.home("alice") / "ticks"
    wait_until(ticks.exists)
    return job_id, ticks


def told_to_suspend(world: World, job_id: int) -> None:
    with world.database.begin() as tx:
        tx.events.add(EventType.HOLD_RUNNING_JOB, job_id, "", to_check=True)


def told_to_resume(world: World, job_id: int) -> None:
    with world.database.begin() as tx:
        assert lifecycle.move(tx, job_id, JobState.RESUMING)


def test_the_site_s_scripts_run_after_a_suspension_and_before_a_resumption(world: World, tmp_path: Path) -> None:
    job_id, ticks = ticking(world)
    script = tmp_path / "script"
    script.write_text(f"#!/bin/sh\necho $1 $OAR_USER $(stat -c %s {ticks}) >> {tmp_path}/called\n")
    script.chmod(0o755)
    with_scripts(world, script)
    told_to_suspend(world, job_id)
    suspend.suspend(world.context, job_id)
    size = ticks.stat().st_size
    told_to_resume(world, job_id)
    suspend.resume(world.context, job_id)
    assert (tmp_path / "called").read_text() == f"{job_id} alice {size}\n" * 2
    end(world, job_id)
    ticks.unlink()


def with_scripts(world: World, script: Path, seconds: int = 60) -> None:
    world.context = replace(
        world.context,
        config=world.context.config.replace(
            just_after_suspend_exec_file=str(script),
            just_before_resume_exec_file=str(script),
            suspend_resume_script_timeout=seconds,
        ),
    )


def test_a_script_that_fails_lets_the_job_go_on_or_ends_it(world: World, tmp_path: Path) -> None:
    job_id, ticks = ticking(world)
    with_scripts(world, tmp_path / "missing")
    told_to_suspend(world, job_id)
    suspend.suspend(world.context, job_id)
    assert state_of(world.database, job_id) is JobState.RESUMING
    assert EventType.SUSPEND_SCRIPT_ERROR in world.events(job_id)
    assert Wake(Tag.QRESUME) in world.told
    size = ticks.stat().st_size
    suspend.resume(world.context, job_id)
    assert state_of(world.database, job_id) is JobState.RESUMING
    assert world.events(job_id)[-2:] == [EventType.RESUME_SCRIPT_ERROR, EventType.FRAG_JOB_REQUEST]
    assert ticks.stat().st_size == size
    suspend.resume(world.context, job_id)  # asked again before the end is there
    assert world.events(job_id).count(EventType.RESUME_SCRIPT_ERROR) == 1
    end(world, job_id)
    ticks.unlink()


def test_a_script_that_hangs_is_broken_off(world: World, tmp_path: Path) -> None:
    job_id, ticks = ticking(world)
    script = tmp_path / "script"
    script.write_text("#!/bin/sh\nsleep 1000\n")
    script.chmod(0o755)
    with_scripts(world, script, seconds=1)
    told_to_suspend(world, job_id)
    suspend.suspend(world.context, job_id)
    assert state_of(world.database, job_id) is JobState.RESUMING
    size = ticks.stat().st_size
    suspend.resume(world.context, job_id)
    assert ticks.stat().st_size == size
    late = [EventType.SUSPEND_SCRIPT_ERROR, EventType.RESUME_SCRIPT_ERROR]
    with world.database.begin() as tx:
        texts = {event.description for event in tx.events.of_types(job_id, late)}
        assert tx.job_requests.find_kill(job_id) is not None
    assert texts == {f"[bipbip {job_id}] {script} did not end within 1 s"}
    end(world, job_id)
    ticks.unlink()


def test_without_the_site_s_program_nothing_is_suspended(world: World, tmp_path: Path) -> None:
    job_id, ticks = ticking(world)
    world.context = replace(
        world.context, config=world.context.config.replace(suspend_resume_file=str(tmp_path / "missing"))
    )
    for _ in range(2):
        told_to_suspend(world, job_id)
        suspend.suspend(world.context, job_id)
    assert state_of(world.database, job_id) is JobState.RUNNING
    assert world.events(job_id).count(EventType.SUSPEND_RESUME_MANAGER_FILE) == 1
    with world.database.begin() as tx:
        assert tx.events.pending(10) == []
    end(world, job_id)
    ticks.unlink()


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("freezer", "#!/bin/sh\necho $1 as $(id -un): $(grep -o 'alice_[0-9]*') >&2\nexit 3\n"),
        ("freezer.pl", 'print STDERR "$ARGV[0] as " . getpwuid($<) . ": " . (eval <DATA>)->{name}; exit 3;\n'),
    ],
)
def test_the_site_s_program_is_found_by_its_name_and_runs_on_the_node_as_oar(
    world: World, tmp_path: Path, name: str, source: str
) -> None:
    (tmp_path / name).write_text(source)
    config = world.context.config.replace(suspend_resume_file=name)
    world.context = replace(world.context, config=config, oardir=str(tmp_path))
    job_id = world.job("true", JobState.RUNNING)
    told_to_suspend(world, job_id)
    suspend.suspend(world.context, job_id)
    with world.database.begin() as tx:
        texts = [each.description for each in tx.events.of_jobs([job_id])[job_id]]
    assert f"[bipbip {job_id}] {NODE}: suspend as oar: alice_{job_id}" in texts


def test_a_node_that_cannot_freeze_its_part_is_suspected_and_the_job_ends(world: World) -> None:
    job_id = world.job("true", JobState.RUNNING)
    told_to_suspend(world, job_id)
    suspend.suspend(world.context, job_id)  # nothing of it is on the node
    with world.database.begin() as tx:
        (event,) = [one for one in tx.events.pending(10) if one.type == EventType.SUSPEND_ERROR]
        assert event.hosts == (NODE,)
        assert tx.job_requests.find_kill(job_id) is not None


def test_a_job_that_is_held_while_it_resumes_stands_still_again(world: World) -> None:
    job_id, ticks = ticking(world)
    told_to_suspend(world, job_id)
    suspend.suspend(world.context, job_id)
    told_to_resume(world, job_id)
    world.context = replace(world.context, remote=HoldingMeanwhile(world, job_id))  # type: ignore[arg-type]
    suspend.resume(world.context, job_id)
    assert state_of(world.database, job_id) is JobState.SUSPENDED
    size = ticks.stat().st_size
    suspend.suspend(world.context, job_id)
    assert ticks.stat().st_size == size
    end(world, job_id)
    ticks.unlink()


class HoldingMeanwhile:
    """The way to the nodes; when a job is thawed somebody holds it again."""

    def __init__(self, world: World, job_id: int) -> None:
        self._world = world
        self._job_id = job_id

    def run(self, requests: Any, seconds: float) -> Any:
        """Run, and let it happen."""
        outcome = self._world.box.remote.run(requests, seconds)
        if any(request.action == "resume" for request in requests.values()):
            with self._world.database.begin() as tx:
                assert lifecycle.move(tx, self._job_id, JobState.SUSPENDED)
        return outcome
