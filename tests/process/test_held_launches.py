"""A fault of oar.conf holds launches and ends: no job ends, no node is blamed, and repair is enough."""

import errno
import threading
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import pytest

from oar.kao.rounds.meta_sched import run
from oar.lib.base.errors import ConfigError
from oar.lib.bus.messages import Mail
from oar.lib.config.files import Config
from oar.lib.history.event_types import EventType
from oar.lib.jobs import launch_holds
from oar.lib.jobs.records import LaunchHold
from oar.lib.jobs.states import JobState, LaunchFault, Phase, Reservation
from oar.lib.nodes.states import ResourceState
from oar.lib.runtime import Runtime
from oar.modules import node_change_state
from oar.modules.runner.actions import finish, job_data, launch_needs, signals
from oar.modules.runner.actions.context import RetryAfter
from oar.modules.runner.actions.launch import launch_job
from oar.modules.runner.actions.launch_needs import LaunchNeedsWatch, find_fault
from tests.builders import state_of
from tests.process.this_machine import wait_until
from tests.process.world import World


def configure(world: World, **keys: object) -> None:
    """Change the configuration of the server."""
    world.context = replace(world.context, config=world.context.config.replace(**keys))


def holds(world: World) -> list[LaunchHold]:
    """Return the holds for faults of the configuration."""
    with world.database.begin() as tx:
        return [hold for hold in tx.launch_holds.all() if hold.fault is LaunchFault.CONFIGURATION]


def open_holds(world: World) -> list[str]:
    """Return what these holds say."""
    return [hold.reason for hold in holds(world)]


def pass_time(world: World, seconds: int) -> None:
    """Let the holds have begun earlier."""
    with world.database.begin() as tx:
        tx.execute("UPDATE launch_holds SET began = began - %s, next_try = next_try - %s", (seconds, seconds))


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
    pass_time(world, 60)
    with world.database.begin() as tx:
        return launch_holds.end_repaired(tx)


#: Keys that make every launch fail, and the beginning of what is said.
FAULTS = [
    ({"job_resource_manager_file": "/no/manager.pl"}, "JOB_RESOURCE_MANAGER_FILE: /no/manager.pl: no such program "),
    ({"pingchecker_generic_command": "/no/check"}, "PINGCHECKER_GENERIC_COMMAND: /no/check: no such program on "),
    ({"server_prologue_exec_file": "/no/prologue"}, "SERVER_PROLOGUE_EXEC_FILE: /no/prologue: no such program "),
    ({"server_epilogue_exec_file": "/etc/passwd"}, "SERVER_EPILOGUE_EXEC_FILE: /etc/passwd: it is not executable. "),
    (
        {"openssh_cmd": "/no/ssh -p 6667 -J gateway"},
        "OPENSSH_CMD: /no/ssh: no such program on this machine. Install it, or remove OPENSSH_CMD from oar.conf.",
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
    assert description.startswith(text)
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
        launch_holds.hold_for_configuration(tx, "TAKTUK_CMD: /no/taktuk: no such program")
    job_id = world.job("true", JobState.WAITING)
    run(Runtime(world.context.config, world.database))
    assert state_of(world.database, job_id) is JobState.WAITING
    with world.database.begin() as tx:
        reason = tx.job_waits.reasons([job_id])[job_id]
    assert reason.text == "launches are held: TAKTUK_CMD: /no/taktuk: no such program"


def test_a_repaired_configuration_is_enough(world: World) -> None:
    good = world.context.config
    configure(world, pingchecker_generic_command="/no/check")
    job_id = world.launched("true")
    world.context = replace(world.context, config=good)
    assert find_fault(good, world.context.oardir) == ""
    assert resume(world)
    assert open_holds(world) == []
    run(Runtime(good, world.database))
    assert launch_job(world.context, job_id) is None
    world.finish(job_id)
    cause = world.cause(job_id)
    assert cause.code == "SUCCESS"


class FileServer:
    """A server of the files of the site: while it hangs only the good configuration can be checked."""

    def __init__(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        self.good = world.context.config
        self.bad = self.good.replace(pingchecker_generic_command="/no/check")
        self.answers = threading.Event()
        self._oardir = world.context.oardir
        self._watch = LaunchNeedsWatch()
        look_really = launch_needs.find_fault

        def look(config: Config, oardir: str) -> str:
            assert config is self.good or self.answers.wait(120)
            return look_really(config, oardir)

        monkeypatch.setattr(launch_needs, "find_fault", look)
        monkeypatch.setattr(launch_needs, "LOOK_SECONDS", 0.0)

    def fault(self, config: Config) -> str | None:
        """Return what the Runner finds."""
        return self._watch.find_fault(config, self._oardir)


def test_a_file_server_that_hangs_does_not_stop_the_runner(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    files = FileServer(world, monkeypatch)
    assert [files.fault(files.bad) for _ in range(3)] == [None] * 3
    files.answers.set()
    fault = wait_until(lambda: files.fault(files.bad))
    assert fault.startswith("PINGCHECKER_GENERIC_COMMAND: /no/check: no such program")


def test_files_that_do_not_answer_for_long_are_a_fault_until_the_configuration_names_others(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = FileServer(world, monkeypatch)
    monkeypatch.setattr(launch_needs, "SILENT_SECONDS", 0.0)
    fault = files.fault(files.bad)
    assert fault == (
        "cannot check the programs of oar.conf: no answer of their file system for 0 s."
        " Check the mounts of PINGCHECKER_GENERIC_COMMAND, OPENSSH_CMD."
    )
    monkeypatch.setattr(launch_needs, "LOOK_SECONDS", 120.0)
    assert files.fault(files.good) == ""
    files.answers.set()


@pytest.mark.parametrize("error", [OSError(errno.ETIMEDOUT, "timed out"), ValueError("no path")])
def test_a_look_that_breaks_off_is_told_and_made_again(
    world: World, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    watch = LaunchNeedsWatch()
    look = Mock(side_effect=[error, ""])
    monkeypatch.setattr(launch_needs, "find_fault", look)
    monkeypatch.setattr(launch_needs, "LOOK_SECONDS", 120.0)
    with pytest.raises(type(error)):
        watch.find_fault(world.context.config, world.context.oardir)
    assert watch.find_fault(world.context.config, world.context.oardir) == ""


def test_what_is_not_known_neither_begins_nor_ends_a_hold(world: World) -> None:
    def follow(fault: str | None) -> list[str]:
        with world.database.begin() as tx:
            launch_needs.follow(tx, fault)
        return open_holds(world)

    assert follow(None) == []
    assert follow("first") == ["first"]
    pass_time(world, 60)
    assert follow(None) == ["first"]
    assert follow("") == []


def test_a_hold_does_not_end_at_once_and_another_fault_replaces_it(world: World) -> None:
    with world.database.begin() as tx:
        launch_holds.hold_for_configuration(tx, "first")
        assert not launch_holds.end_repaired(tx)
        launch_holds.hold_for_configuration(tx, "second")
    assert open_holds(world) == ["second"]


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
    job_id = world.launched("sleep 1000")
    with world.database.begin() as tx:
        tx.job_runs.update(job_id, phase=Phase.GO)
    configure(world, pingchecker_generic_command="/no/check")
    launch_job(world.context, job_id)
    assert (state_of(world.database, job_id), world.phase(job_id)) == (JobState.RUNNING, Phase.STARTED)


def broken_checker(world: World, tmp_path: Path) -> Path:
    """Configure a checker that only its run shows to be broken."""
    program = tmp_path / "check"
    program.write_bytes(b"\x00 no program")
    program.chmod(0o755)
    configure(world, pingchecker_generic_command=str(program))
    return program


def test_a_checker_that_only_its_run_shows_to_be_broken_ends_no_job(world: World, tmp_path: Path) -> None:
    program = broken_checker(world, tmp_path)
    job_id = world.job("true")
    for _ in range(6):
        assert isinstance(launch_job(world.context, job_id), RetryAfter)
        pass_time(world, 600)
    assert (state_of(world.database, job_id), world.events(job_id)) == (JobState.LAUNCHING, [])
    assert open_holds(world) == [f"the ping checker {program} cannot be run: Exec format error"]
    program.write_text("#!/bin/sh\n")
    assert launch_job(world.context, job_id) is None
    assert state_of(world.database, job_id) is JobState.RUNNING


def test_an_end_waits_for_the_manager_of_the_site_and_blames_no_node(world: World) -> None:
    good = world.context.config
    job_id = world.launched("sleep 1000")
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


def test_an_end_waits_for_a_name_server_that_does_not_answer(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A frontend without a name of its own is the active server, which may have to ask for its name."""
    job_id = world.job("true", types=["cosystem"])
    world.ask_kill(job_id)
    assert launch_job(world.context, job_id) is None
    with world.database.begin() as tx:
        tx.job_runs.update(job_id, head_host="")  # as of a job that ended before its claim
    with monkeypatch.context() as patch:
        patch.setattr(job_data, "own_server", Mock(side_effect=ConfigError("this host is none of a b")))
        assert isinstance(finish.finish(world.context, job_id), RetryAfter)
    assert state_of(world.database, job_id) is JobState.FINISHING
    assert open_holds(world) == []
    assert finish.finish(world.context, job_id) is None
    assert world.phase(job_id) is Phase.CLEANED


def test_a_checker_that_is_not_there_at_the_end_of_a_job_suspects_no_node(world: World) -> None:
    job_id = world.launched("true")
    world.take_report(job_id)
    configure(world, pingchecker_generic_command="/no/check", activate_pingchecker_at_job_end=True)
    assert finish.finish(world.context, job_id) is None
    assert world.events(job_id) == [EventType.SWITCH_INTO_TERMINATE_STATE]


def begin_broken_launch(world: World, tmp_path: Path) -> int:
    """Begin the launch of a job with a checker that only its run shows to be broken; return the job."""
    broken_checker(world, tmp_path)
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
            launch_holds.hold_for_configuration(tx, fault)
        assert resume(world)
    assert [mail.partition("\n")[0] for mail in mails(world)] == ["first", "second"]
    for _ in range(25):  # it comes and goes each hour
        with world.database.begin() as tx:
            tx.execute("UPDATE event_logs SET date = date - 3600")
            launch_holds.hold_for_configuration(tx, "first")
        assert resume(world)
    assert len(mails(world)) == 3


def test_another_fault_that_a_trial_finds_is_told(world: World) -> None:
    trial = world.job("true", JobState.LAUNCHING)
    for fault in ("first", "second", "second"):
        with world.database.begin() as tx:
            launch_holds.hold_for_configuration(tx, fault, trial)
        pass_time(world, 600)
    assert [mail.partition("\n")[0] for mail in mails(world)] == ["first", "second"]
    with world.database.begin() as tx:
        told = tx.events.of_types(0, [EventType.LAUNCH_CONFIGURATION_ERROR], 0)
    assert [event.description for event in told] == ["[Runner] first", "[Runner] second"]


def test_a_checker_that_cannot_be_started_for_now_holds_nothing(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    configure(world, pingchecker_generic_command="/bin/true")
    job_id = world.job("true")
    with monkeypatch.context() as patch:
        patch.setattr(
            "oar.lib.nodes.ping_checker.subprocess.run", Mock(side_effect=OSError(errno.EAGAIN, "no process"))
        )
        assert isinstance(launch_job(world.context, job_id), RetryAfter)
    assert (open_holds(world), mails(world)) == ([], [])
    assert launch_job(world.context, job_id) is None
    assert state_of(world.database, job_id) is JobState.RUNNING


# -- faults that only a launch finds ----------------------------------------------------------------------------------


def runs(world: World) -> int:
    """Return how often the checker of ``begin_counted_launch`` was run."""
    return len((world.box.base / "runs").read_text().split())


def begin_counted_launch(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    """Begin the launch of a job whose checker cannot be run; runs are counted."""
    count = world.box.base / "runs"
    count.write_text("")

    def fail(*_args: object, **_keys: object) -> None:
        with count.open("a") as stream:
            stream.write("x ")
        raise OSError(errno.ENOEXEC, "Exec format error")

    monkeypatch.setattr("oar.lib.nodes.ping_checker.subprocess.run", fail)
    return begin_broken_launch(world, tmp_path)


def test_a_fault_that_only_launches_find_is_tried_after_growing_pauses_and_told_once(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = begin_counted_launch(world, tmp_path, monkeypatch)
    pauses = []
    for number in range(1, 9):
        launch_job(world.context, job_id)  # the pause is not over
        assert runs(world) == number
        (hold,) = holds(world)
        with world.database.begin() as tx:
            assert not launch_holds.end_repaired(tx)  # the Runner sees no fault, and does not end the hold
            pauses.append(round((hold.next_try - tx.now) / 30))
        pass_time(world, 600)
        launch_job(world.context, job_id)
    assert pauses == [1, 2, 4, 8, 16, 20, 20, 20]
    with world.database.begin() as tx:
        assert len(tx.events.of_types(0, [EventType.LAUNCH_CONFIGURATION_ERROR], 0)) == 1
        assert tx.events.of_types(0, [EventType.LAUNCHES_RESUMED], 0) == []
    assert len(mails(world)) == 1


def test_a_second_launch_waits_for_the_trial(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trial = begin_counted_launch(world, tmp_path, monkeypatch)
    other = world.job("true")
    assert isinstance(launch_job(world.context, other), RetryAfter)
    pass_time(world, 600)
    assert isinstance(launch_job(world.context, other), RetryAfter)
    assert (runs(world), [hold.trial_job for hold in holds(world)]) == (1, [trial])
    world.ask_kill(trial)
    launch_job(world.context, trial)
    finish.finish(world.context, trial)
    node_change_state.run(Runtime(world.context.config, world.database))
    assert isinstance(launch_job(world.context, other), RetryAfter)
    assert (runs(world), [hold.trial_job for hold in holds(world)]) == (2, [other])


def test_jobs_wait_until_the_trial_of_a_launch_runs(world: World, tmp_path: Path) -> None:
    trial = begin_broken_launch(world, tmp_path)
    waiting = world.job("true", JobState.WAITING)
    runtime = Runtime(world.context.config, world.database)
    run(runtime)
    assert state_of(world.database, waiting) is JobState.WAITING
    (tmp_path / "check").write_text("#!/bin/sh\n")
    pass_time(world, 600)
    assert launch_job(world.context, trial) is None
    run(runtime)
    assert holds(world) == []
    with world.database.begin() as tx:
        assert len(tx.events.of_types(0, [EventType.LAUNCHES_RESUMED], 0)) == 1
