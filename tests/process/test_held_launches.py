"""A fault of oar.conf holds launches and ends: no job ends, no node is blamed, and repair is enough."""

import errno
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import pytest

from oar.kao.rounds.meta_sched import run
from oar.lib.facts.messages import Mail
from oar.lib.facts.states import HOLDS_OF_LAUNCHES, EventType, JobState, Phase, Reservation, ResourceState
from oar.lib.jobs import launch_holds
from oar.lib.runtime import Runtime
from oar.modules import node_change_state
from oar.modules.runner.actions import finish, signals
from oar.modules.runner.actions.context import RetryAfter
from oar.modules.runner.actions.launch import launch_job
from oar.modules.runner.actions.launch_needs import find_fault
from tests.builders import state_of
from tests.process.world import World


def configure(world: World, **keys: object) -> None:
    """Change the configuration of the server."""
    world.context = replace(world.context, config=world.context.config.replace(**keys))


def open_holds(world: World) -> list[str]:
    """Return what the open holds say."""
    with world.database.begin() as tx:
        return [event.description for event in tx.events.open(HOLDS_OF_LAUNCHES)]


def mails(world: World) -> list[str]:
    return [effect.text for effect in world.told if isinstance(effect, Mail)]


def states(world: World) -> set[ResourceState]:
    with world.database.begin() as tx:
        return {resource.state for resource in tx.resources.select(world.resources)}


def assigned(world: World, job_id: int) -> int:
    with world.database.begin() as tx:
        return len(tx.jobs.assigned([job_id], current=True).get(job_id, ()))


def resume(world: World) -> bool:
    """Let the hold be old enough, and release it."""
    with world.database.begin() as tx:
        tx.execute("UPDATE event_logs SET date = date - 60 WHERE to_check = 'YES'")
        return launch_holds.release(tx)


#: Keys that make every launch fail, and the beginning of what is said.
FAULTS = [
    ({"job_resource_manager_file": "/no/manager.pl"}, "JOB_RESOURCE_MANAGER_FILE: /no/manager.pl: it cannot be read. "),
    ({"pingchecker_generic_command": "/no/check"}, "PINGCHECKER_GENERIC_COMMAND: /no/check: no such program on "),
    ({"server_prologue_exec_file": "/no/prologue"}, "SERVER_PROLOGUE_EXEC_FILE: /no/prologue: no such program "),
    ({"server_epilogue_exec_file": "/etc/passwd"}, "SERVER_EPILOGUE_EXEC_FILE: /etc/passwd: it is not executable. "),
    (
        {"openssh_cmd": "/no/ssh -p 6667 -J gateway"},
        "OPENSSH_CMD: /no/ssh: no such program on this machine. Install it, or remove the key.",
    ),
]


@pytest.mark.parametrize(("keys", "text"), FAULTS)
def test_jobs_go_back_to_the_queue_and_the_fault_is_told_once(world: World, keys: dict[str, object], text: str) -> None:
    good = world.context.config
    configure(world, **keys)
    jobs = [world.job("true"), world.job("true")]
    for job_id in jobs:
        assert isinstance(launch_job(world.context, job_id), RetryAfter)
        assert launch_job(world.context, job_id) is None or state_of(world.database, job_id) is JobState.WAITING
    (description,) = open_holds(world)
    assert description.startswith(f"[Runner] {text}")
    (mail,) = mails(world)
    assert mail.startswith(text)
    for job_id in jobs:
        row = world.row(job_id)
        assert (row.state, row.start_time, assigned(world, job_id)) == (JobState.WAITING, 0, 0)
        assert world.events(job_id) == []
    node_change_state.run(Runtime(good, world.database))
    assert open_holds(world) == [description]
    assert states(world) == {ResourceState.ALIVE}


def test_rounds_start_no_job_while_launches_are_held_and_say_why(world: World) -> None:
    with world.database.begin() as tx:
        launch_holds.hold(tx, "TAKTUK_CMD: /no/taktuk: no such program")
    job_id = world.job("true", JobState.WAITING)
    run(Runtime(world.context.config, world.database))
    assert state_of(world.database, job_id) is JobState.WAITING
    with world.database.begin() as tx:
        reason = tx.job_waits.reasons([job_id])[job_id]
    assert reason.text == "no job is started now: TAKTUK_CMD: /no/taktuk: no such program"


def test_a_repaired_configuration_is_enough(world: World) -> None:
    good = world.context.config
    configure(world, pingchecker_generic_command="/no/check")
    job_id = world.job("true")
    launch_job(world.context, job_id)
    world.context = replace(world.context, config=good)
    assert find_fault(good, world.context.oardir) == ""
    assert resume(world)
    assert open_holds(world) == []
    run(Runtime(good, world.database))
    assert launch_job(world.context, job_id) is None
    world.take_report(job_id)
    assert finish.finish(world.context, job_id) is None
    cause = world.cause(job_id)
    assert cause is not None
    assert cause.code == "SUCCESS"


def test_a_hold_does_not_end_at_once_and_another_fault_replaces_it(world: World) -> None:
    with world.database.begin() as tx:
        launch_holds.hold(tx, "first")
        assert not launch_holds.release(tx)
        launch_holds.hold(tx, "second")
    assert open_holds(world) == ["[Runner] second"]


def test_a_reservation_keeps_its_resources_and_starts_late(world: World) -> None:
    good = world.context.config
    configure(world, pingchecker_generic_command="/no/check")
    job_id = world.job("true", reservation=str(Reservation.SCHEDULED))
    assert isinstance(launch_job(world.context, job_id), RetryAfter)
    assert (state_of(world.database, job_id), assigned(world, job_id)) == (JobState.TO_LAUNCH, 1)
    world.context = replace(world.context, config=good)
    assert launch_job(world.context, job_id) is None
    assert world.phase(job_id) in (Phase.GO, Phase.STARTED)


def test_a_launch_of_which_the_node_may_know_goes_on(world: World) -> None:
    job_id = world.job("sleep 1000")
    launch_job(world.context, job_id)
    with world.database.begin() as tx:
        tx.job_runs.update(job_id, phase=Phase.GO)
    configure(world, pingchecker_generic_command="/no/check")
    launch_job(world.context, job_id)
    assert (state_of(world.database, job_id), world.phase(job_id)) == (JobState.RUNNING, Phase.STARTED)


def test_a_checker_that_only_its_run_shows_to_be_broken_ends_no_job(world: World, tmp_path: Path) -> None:
    program = tmp_path / "check"
    program.write_bytes(b"\x00 no program")
    program.chmod(0o755)
    configure(world, pingchecker_generic_command=str(program))
    job_id = world.job("true")
    for _ in range(6):
        assert isinstance(launch_job(world.context, job_id), RetryAfter)
    assert (state_of(world.database, job_id), world.events(job_id)) == (JobState.LAUNCHING, [])
    assert open_holds(world) == [f"[Runner] the ping checker {program} cannot be run: Exec format error"]
    program.write_text("#!/bin/sh\n")
    assert launch_job(world.context, job_id) is None
    assert state_of(world.database, job_id) is JobState.RUNNING


def test_an_end_waits_for_the_manager_of_the_site_and_blames_no_node(world: World) -> None:
    good = world.context.config
    job_id = world.job("sleep 1000")
    launch_job(world.context, job_id)
    configure(world, job_resource_manager_file="/no/manager")
    world.ask_kill(job_id)
    signals.kill(world.context, job_id)
    world.take_report(job_id)
    assert isinstance(finish.finish(world.context, job_id), RetryAfter)
    assert state_of(world.database, job_id) is JobState.FINISHING
    assert EventType.CPUSET_CLEAN_ERROR not in world.events(job_id)
    world.context = replace(world.context, config=good)
    assert finish.finish(world.context, job_id) is None
    assert world.phase(job_id) is Phase.CLEANED


def test_a_checker_that_is_not_there_at_the_end_of_a_job_suspects_no_node(world: World) -> None:
    job_id = world.job("true")
    launch_job(world.context, job_id)
    world.take_report(job_id)
    configure(world, pingchecker_generic_command="/no/check", activate_pingchecker_at_job_end=True)
    assert finish.finish(world.context, job_id) is None
    assert world.events(job_id) == [EventType.SWITCH_INTO_TERMINATE_STATE]


def begin_broken_launch(world: World, tmp_path: Path) -> int:
    """Begin the launch of a job with a checker that only its run shows to be broken; return the job."""
    program = tmp_path / "check"
    program.write_bytes(b"\x00 no program")
    program.chmod(0o755)
    configure(world, pingchecker_generic_command=str(program))
    job_id = world.job("true")
    assert isinstance(launch_job(world.context, job_id), RetryAfter)
    assert (state_of(world.database, job_id), world.phase(job_id)) == (JobState.LAUNCHING, Phase.CLAIMED)
    return job_id


@pytest.mark.parametrize("checker", ["", "/no/check"])
def test_a_held_job_that_is_deleted_ends_while_the_fault_lasts(world: World, tmp_path: Path, checker: str) -> None:
    job_id = begin_broken_launch(world, tmp_path)
    if checker:
        configure(world, pingchecker_generic_command=checker)
    world.ask_kill(job_id)
    assert launch_job(world.context, job_id) is None
    assert world.phase(job_id) is Phase.REPORTED
    assert finish.finish(world.context, job_id) is None
    assert (state_of(world.database, job_id), world.phase(job_id)) == (JobState.FINISHING, Phase.CLEANED)


def test_a_fault_that_comes_again_is_mailed_once_a_day(world: World) -> None:
    for fault in ("first", "first", "second", "first"):
        with world.database.begin() as tx:
            launch_holds.hold(tx, fault)
        assert resume(world)
    assert [mail.partition("\n")[0] for mail in mails(world)] == ["first", "second"]
    with world.database.begin() as tx:
        tx.execute("UPDATE event_logs SET date = date - 86400")
        launch_holds.hold(tx, "first")
    assert len(mails(world)) == 3


def test_a_checker_that_cannot_be_started_for_now_holds_nothing(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    configure(world, pingchecker_generic_command="/bin/true")
    job_id = world.job("true")
    with monkeypatch.context() as patch:
        patch.setattr("oar.lib.io.ping_checker.subprocess.run", Mock(side_effect=OSError(errno.EAGAIN, "no process")))
        assert isinstance(launch_job(world.context, job_id), RetryAfter)
    assert (open_holds(world), mails(world)) == ([], [])
    assert launch_job(world.context, job_id) is None
    assert state_of(world.database, job_id) is JobState.RUNNING
