"""Kill requests are carried out according to the state of the job: oar/modules/leon.py."""

import threading

import pytest

from oar.lib.bus.exit_codes import LeonCode
from oar.lib.bus.messages import Ask, Effect, JobAction, Tag, Wake
from oar.lib.db.database import Database
from oar.lib.history.event_types import EventType
from oar.lib.jobs import control, lifecycle
from oar.lib.jobs.states import JobState, JobType, KillState, Phase
from oar.lib.runtime import Runtime
from oar.modules import leon
from tests.builders import add_job, add_resources, for_no_reason, state_of


def ask_end(database: Database, *ids: int) -> None:
    """Ask for the end of jobs."""
    with database.begin() as tx:
        control.ask_end(tx, for_no_reason(*ids))


def kill_of(database: Database, job_id: int) -> KillState | None:
    """Return how far the kill request of a job is."""
    with database.begin() as tx:
        request = tx.job_requests.find_kill(job_id)
    return request.state if request else None


def give_up(database: Database, job_id: int) -> None:
    """Ask for the end of a job that Sarko wants given up."""
    with database.begin() as tx:
        tx.job_requests.request_kill(for_no_reason(job_id))
        tx.job_requests.move_kill([job_id], KillState.LEON_EXTERMINATE, [KillState.LEON])


@pytest.mark.parametrize("state", ["Waiting", "Hold", "toAckReservation", "toLaunch"])
def test_a_job_that_was_not_launched_ends_at_once(runtime: Runtime, sent: list[Effect], state: str) -> None:
    database = runtime.database
    job_id = add_job(database, JobState(state), on=add_resources(database))
    ask_end(database, job_id)
    assert leon.run(runtime) == LeonCode.SCHEDULE
    assert state_of(database, job_id) is JobState.ERROR
    assert kill_of(database, job_id) is KillState.FRAGGED
    with database.begin() as tx:
        assert tx.jobs.get(job_id).message == "Job killed by Leon directly"
        assert tx.jobs.assigned([job_id], current=True) == {}
    assert leon.run(runtime) == LeonCode.NOTHING


def test_the_oarsub_that_waits_for_a_killed_job_is_told(runtime: Runtime, sent: list[Effect]) -> None:
    database = runtime.database
    interactive = add_job(database, job_type=JobType.INTERACTIVE)
    reservation = add_job(database, JobState.TO_ACK_RESERVATION)
    passive = add_job(database)
    ask_end(database, interactive, reservation, passive)
    leon.run(runtime)
    told = [effect for effect in sent if isinstance(effect, Ask) and effect.action is JobAction.TELL]
    assert told == [Ask(JobAction.TELL, job_id, ("JOB KILLED",)) for job_id in (interactive, reservation)]
    assert passive not in [effect.job_id for effect in told]


@pytest.mark.parametrize("state", ["Running", "Suspended", "Resuming"])
def test_a_job_that_runs_is_sent_the_signal(runtime: Runtime, sent: list[Effect], state: str) -> None:
    database = runtime.database
    job_id = add_job(database, JobState(state), on=add_resources(database))
    with database.begin() as tx:
        tx.job_runs.claim(job_id, "node-1")
    ask_end(database, job_id)
    assert leon.run(runtime) == LeonCode.NOTHING
    assert state_of(database, job_id) is JobState(state)
    assert kill_of(database, job_id) is KillState.TIMER_ARMED
    assert Ask(JobAction.KILL, job_id) in sent
    with database.begin() as tx:
        events = tx.events.of_types(job_id, [EventType.SEND_KILL_JOB])
    assert [event.description for event in events] == [
        f"[Leon] Send the kill TERM signal to oarexec on node-1 for job {job_id}"
    ]
    assert not events[0].to_check


def test_the_launch_of_a_job_is_aborted_by_the_runner(runtime: Runtime, sent: list[Effect]) -> None:
    database = runtime.database
    job_id = add_job(database, JobState.LAUNCHING, on=add_resources(database))
    ask_end(database, job_id)
    assert leon.run(runtime) == LeonCode.NOTHING
    assert state_of(database, job_id) is JobState.LAUNCHING
    assert kill_of(database, job_id) is KillState.TIMER_ARMED
    assert Ask(JobAction.KILL, job_id) in sent


@pytest.mark.parametrize("state", ["Running", "Suspended", "Resuming"])
def test_a_job_of_which_nothing_runs_ends_by_the_runner(runtime: Runtime, sent: list[Effect], state: str) -> None:
    database = runtime.database
    job_id = add_job(database, JobState(state), on=add_resources(database), types=["noop"])
    ask_end(database, job_id)
    assert leon.run(runtime) == LeonCode.SCHEDULE
    assert state_of(database, job_id) is JobState.FINISHING
    assert kill_of(database, job_id) is KillState.FRAGGED
    assert Ask(JobAction.END, job_id) in sent
    with database.begin() as tx:
        run = tx.job_runs.find(job_id)
        assert run is not None
        assert (run.oarexec_code, run.phase) == (0, Phase.REPORTED)
        assert tx.jobs.get(job_id).message == "NOOP job killed by Leon"


@pytest.mark.parametrize("state", ["Finishing", "toError"])
def test_a_job_that_ends_is_left_alone(runtime: Runtime, sent: list[Effect], state: str) -> None:
    database = runtime.database
    job_id = add_job(database, JobState(state), on=add_resources(database))
    ask_end(database, job_id)
    assert leon.run(runtime) == LeonCode.NOTHING
    assert state_of(database, job_id) is JobState(state)
    assert kill_of(database, job_id) is KillState.FRAGGED


def test_a_request_for_a_job_that_is_not_there_is_closed(runtime: Runtime) -> None:
    with runtime.database.begin() as tx:
        tx.job_requests.request_kill(for_no_reason(4711))
    assert leon.run(runtime) == LeonCode.NOTHING
    assert kill_of(runtime.database, 4711) is KillState.FRAGGED


@pytest.mark.parametrize("state", ["Launching", "Running", "Suspended", "Resuming", "Finishing"])
def test_a_job_that_does_not_obey_is_given_up(runtime: Runtime, sent: list[Effect], state: str) -> None:
    database = runtime.database
    job_id = add_job(database, JobState(state), on=add_resources(database))
    give_up(database, job_id)
    leon.run(runtime)
    assert state_of(database, job_id) is JobState.FINISHING
    assert kill_of(database, job_id) is KillState.LEON_EXTERMINATE
    assert Ask(JobAction.EXTERMINATE, job_id) in sent
    with database.begin() as tx:
        run = tx.job_runs.find(job_id)
        assert run is not None
        assert run.phase is Phase.EXTERMINATE
        job = tx.jobs.get(job_id)
        assert job.stop_time > 0
        assert job.start_time > 0
        assert (job.message == "Job exterminated by Leon") is (state != "Finishing")


def test_an_extermination_that_has_begun_is_not_begun_again(runtime: Runtime, sent: list[Effect]) -> None:
    database = runtime.database
    job_id = add_job(database, JobState.RUNNING, on=add_resources(database))
    give_up(database, job_id)
    leon.run(runtime)
    with database.begin() as tx:
        tx.job_runs.update(job_id, phase=Phase.CLEANED)
    assert leon.exterminate_one(runtime, job_id) == LeonCode.NOTHING
    with database.begin() as tx:
        run = tx.job_runs.find(job_id)
    assert run is not None
    assert run.phase is Phase.CLEANED


def test_only_a_job_that_was_given_up_is_exterminated(runtime: Runtime, sent: list[Effect]) -> None:
    job_id = add_job(runtime.database, JobState.RUNNING, on=add_resources(runtime.database))
    sent.clear()
    assert leon.exterminate_one(runtime, job_id) == LeonCode.NOTHING
    assert state_of(runtime.database, job_id) is JobState.RUNNING
    assert sent == []


def test_a_job_given_up_before_it_was_launched_ends_at_once(runtime: Runtime) -> None:
    job_id = add_job(runtime.database)
    give_up(runtime.database, job_id)
    leon.run(runtime)
    assert state_of(runtime.database, job_id) is JobState.ERROR
    assert kill_of(runtime.database, job_id) is KillState.FRAGGED


def test_many_jobs_end_in_one_pass(runtime: Runtime, sent: list[Effect]) -> None:
    ids = [add_job(runtime.database) for _ in range(7)]
    ask_end(runtime.database, *ids)
    leon.run(runtime)
    assert {state_of(runtime.database, job_id) for job_id in ids} == {JobState.ERROR}
    assert sent.count(Wake(Tag.CHSTATE)) >= 1


def test_of_leon_and_a_launch_that_race_for_a_job_one_wins(runtime: Runtime) -> None:
    """The claim of a bipbip comes while Leon looks: the job ends, or its launch is aborted, never both."""
    database = runtime.database
    job_id = add_job(database, JobState.TO_LAUNCH, on=add_resources(database))
    ask_end(database, job_id)
    claimed = threading.Event()
    go_on = threading.Event()

    def claim() -> None:
        with database.begin() as tx:
            assert lifecycle.move(tx, job_id, JobState.LAUNCHING)
            claimed.set()
            assert go_on.wait(120)

    bipbip = threading.Thread(target=claim)
    bipbip.start()
    assert claimed.wait(120)
    pass_of_leon = threading.Thread(target=leon.run, args=(runtime,))
    pass_of_leon.start()
    go_on.set()
    bipbip.join(120)
    pass_of_leon.join(120)
    assert state_of(database, job_id) is JobState.LAUNCHING
    assert kill_of(database, job_id) is KillState.TIMER_ARMED
