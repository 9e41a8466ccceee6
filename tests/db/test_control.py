"""Who may delete, hold, resume, signal, and what follows in the database: oar/lib/jobs/control.py."""

import threading

import pytest

from oar.lib.access.records import User
from oar.lib.bus.messages import Ask, Effect, JobAction, Notice, NoticeTag, Tag, Wake
from oar.lib.db.database import Database
from oar.lib.history.event_types import EventType
from oar.lib.history.records import Event
from oar.lib.jobs import control
from oar.lib.jobs.control import ControlOutcome, ControlRefusal, HoldRules, SignalRequest
from oar.lib.jobs.states import JobState, JobType, KillState
from oar.lib.planning.sql_plan import PredictionRow
from tests.builders import add_job, add_resources, execute_sql, state_of

ALICE = User("alice", 1001)
EVE = User("eve", 1002)
ROOT = User("root", 0)


def delete(database: Database, user: User, *ids: int, with_inner: bool = True) -> list[ControlRefusal | None]:
    """Ask for the end of jobs; return the refusals."""
    with database.begin() as tx:
        return [answer.refusal for answer in control.delete(tx, user, ids, with_inner=with_inner)]


def kill_of(database: Database, job_id: int) -> KillState | None:
    """Return how far the kill request of a job is."""
    with database.begin() as tx:
        request = tx.job_requests.find_kill(job_id)
    return request.state if request else None


def events_of(database: Database, job_id: int) -> list[Event]:
    """Return the events of a job."""
    with database.begin() as tx:
        return tx.events.of_jobs([job_id]).get(job_id, [])


# -- delete -----------------------------------------------------------------------------------------------------------


def test_the_owner_can_delete_a_job(database: Database, sent: list[Effect]) -> None:
    job_id = add_job(database)
    assert delete(database, ALICE, job_id) == [None]
    assert kill_of(database, job_id) is KillState.LEON
    assert [(event.type, event.description) for event in events_of(database, job_id)] == [
        ("FRAG_JOB_REQUEST", f"User alice requested to frag the job {job_id}")
    ]
    assert sent == [Wake(Tag.CHSTATE), Wake(Tag.QDEL)]
    assert state_of(database, job_id) is JobState.WAITING


def test_an_administrator_can_delete_any_job_and_another_user_cannot(database: Database, sent: list[Effect]) -> None:
    job_id = add_job(database)
    assert delete(database, EVE, job_id) == [ControlRefusal.NOT_YOURS]
    assert kill_of(database, job_id) is None
    assert events_of(database, job_id) == []
    assert sent == []
    assert delete(database, ROOT, job_id) == [None]


def test_a_second_deletion_is_rejected_and_wakes_the_server_again(database: Database, sent: list[Effect]) -> None:
    job_id = add_job(database)
    delete(database, ALICE, job_id)
    sent.clear()
    assert delete(database, ALICE, job_id) == [ControlRefusal.ALREADY_KILLED]
    assert sent == [Wake(Tag.CHSTATE), Wake(Tag.QDEL)]
    assert len(events_of(database, job_id)) == 1


def test_only_a_job_with_notices_has_an_event_to_be_checked(database: Database) -> None:
    quiet, loud = add_job(database), add_job(database, notify="mail:alice@example.org")
    delete(database, ALICE, quiet, loud)
    assert [event.to_check for event in events_of(database, quiet) + events_of(database, loud)] == [False, True]


def test_the_owner_gets_a_notice_of_a_deletion(database: Database) -> None:
    job_id = add_job(database, notify="mail:alice@example.org", name="long")
    delete(database, ROOT, job_id)
    with database.begin() as tx:
        notice = control.deletion_notice(tx.jobs.get(job_id), events_of(database, job_id)[0])
    text = f"Your job was asked to be deleted - User root requested to frag the job {job_id}"
    assert notice == Notice(job_id, "long", "alice", "mail:alice@example.org", "frontend", NoticeTag.INFO, text, job_id)


def test_deleting_a_container_deletes_its_inner_jobs(database: Database) -> None:
    container = add_job(database, types=["container"])
    inner = add_job(database, types=[f"inner={container}", "container=box"])
    innermost = add_job(database, types=["inner=box"])
    delete(database, ALICE, container)
    assert [kill_of(database, one) for one in (container, inner, innermost)] == [KillState.LEON] * 3
    assert [event.description for event in events_of(database, inner)] == [
        f"Container job {container} was fragged, frag inner job"
    ]


def test_inner_jobs_survive_if_the_site_configures_it(database: Database) -> None:
    container = add_job(database, types=["container"])
    inner = add_job(database, types=[f"inner={container}"])
    delete(database, ALICE, container, with_inner=False)
    assert kill_of(database, inner) is None


def test_the_newest_container_of_a_name_before_the_job_is_meant(database: Database) -> None:
    old = add_job(database, types=["container=box"])
    inner = add_job(database, types=["inner=box"])
    new = add_job(database, types=["container=box"])
    delete(database, ALICE, new)
    assert kill_of(database, inner) is None
    delete(database, ALICE, old)
    assert kill_of(database, inner) is KillState.LEON


def test_one_of_two_concurrent_deletions_is_rejected(database: Database) -> None:
    job_id = add_job(database)
    start = threading.Barrier(2, timeout=120)
    answers: list[ControlRefusal | None] = []

    def ask() -> None:
        with database.begin() as tx:
            start.wait()
            answers.append(control.delete(tx, ALICE, [job_id], with_inner=True)[0].refusal)

    askers = [threading.Thread(target=ask) for _ in range(2)]
    for asker in askers:
        asker.start()
    for asker in askers:
        asker.join(120)
    assert set(answers) <= {None, ControlRefusal.ALREADY_KILLED}
    assert len([event for event in events_of(database, job_id) if event.type == "FRAG_JOB_REQUEST"]) == 1


# -- forced end -------------------------------------------------------------------------------------------------------


def force(database: Database, user: User, job_id: int, least: int) -> ControlOutcome:
    """Force the end of a job."""
    with database.begin() as tx:
        return control.force_end(tx, user, [job_id], least=least)[0]


def test_only_a_job_that_is_stuck_in_its_end_is_forced(database: Database, sent: list[Effect]) -> None:
    stuck = add_job(database, JobState.FINISHING, on=add_resources(database))
    execute_sql(database, "UPDATE job_state_logs SET date_start = date_start - 600 WHERE job_id = %s", stuck)
    sent.clear()
    assert force(database, ALICE, stuck, 540).refusal is ControlRefusal.NOT_ADMIN
    assert force(database, ROOT, 4711, 540).refusal is ControlRefusal.UNKNOWN_JOB
    assert force(database, ROOT, add_job(database), 540).refusal is ControlRefusal.NOT_FINISHING
    refused = force(database, ROOT, stuck, 700)
    assert (refused.refusal, 600 <= refused.seconds < 640) == (ControlRefusal.NOT_LONG_ENOUGH, True)
    assert force(database, ROOT, stuck, 540).refusal is None
    event = events_of(database, stuck)[-1]
    assert (event.type, event.to_check) == (EventType.FORCE_TERMINATE_FINISHING_JOB, True)
    assert sent == [Wake(Tag.CHSTATE)]


# -- besteffort -------------------------------------------------------------------------------------------------------


def toggle(database: Database, user: User, job_id: int) -> ControlOutcome:
    """Change whether a job is besteffort."""
    with database.begin() as tx:
        return control.toggle_besteffort(tx, user, [job_id])[0]


def types_of(database: Database, job_id: int) -> tuple[str, ...]:
    """Return the types of a job that hold."""
    with database.begin() as tx:
        return tx.jobs.types([job_id], current=True).get(job_id, ())


def test_an_administrator_makes_a_running_job_besteffort_and_back(database: Database, sent: list[Effect]) -> None:
    job_id = add_job(database, JobState.RUNNING, on=add_resources(database), types=["timesharing"])
    sent.clear()
    assert toggle(database, ROOT, job_id) == ControlOutcome(job_id, text="Add")
    assert types_of(database, job_id) == ("timesharing", "besteffort")
    assert sent == [Wake(Tag.TERM)]
    assert toggle(database, ROOT, job_id).text == "Remove"
    assert types_of(database, job_id) == ("timesharing",)
    assert toggle(database, ROOT, job_id).text == "Add"
    with database.begin() as tx:
        assert tx.jobs.types([job_id])[job_id] == ("timesharing", "besteffort")
    assert [event.type for event in events_of(database, job_id)] == [
        "ADD_BESTEFFORT_JOB_TYPE",
        "DELETE_BESTEFFORT_JOB_TYPE",
        "ADD_BESTEFFORT_JOB_TYPE",
    ]


# -- signals ----------------------------------------------------------------------------------------------------------


def signal(database: Database, user: User, job_id: int, number: int | None = None) -> ControlOutcome | SignalRequest:
    """Ask for a signal to a job."""
    with database.begin() as tx:
        return control.request_signal(tx, user, job_id, number)


def test_a_request_for_a_signal_is_an_event_and_its_result_another(database: Database) -> None:
    job_id = add_job(database, JobState.RUNNING, on=add_resources(database))
    with database.begin() as tx:
        tx.job_runs.claim(job_id, "node-1")
        tx.events.add(EventType.SIG_SUCCESS, job_id, "of an older request")
    request = signal(database, ALICE, job_id, 10)
    assert isinstance(request, SignalRequest)
    assert request.host == "node-1"
    event = events_of(database, job_id)[-1]
    assert (event.type, event.to_check) == ("SIGNAL_10", False)
    with database.begin() as tx:
        assert control.result_of(tx, request) is None
        tx.events.add(EventType.SIG_ERROR, job_id, "")
        assert control.result_of(tx, request) is False


def test_a_checkpoint_is_asked_by_its_own_event(database: Database) -> None:
    job_id = add_job(database, JobState.RUNNING, on=add_resources(database))
    request = signal(database, ROOT, job_id)
    assert isinstance(request, SignalRequest)
    with database.begin() as tx:
        tx.events.add(EventType.CHECKPOINT_SUCCESS, job_id, "")
        assert control.result_of(tx, request) is True


# -- hold and resume --------------------------------------------------------------------------------------------------

STRICT = HoldRules()
LENIENT = HoldRules(users_may_suspend=True)


def hold(
    database: Database, user: User, job_id: int, rules: HoldRules = STRICT, *, running: bool = False
) -> ControlOutcome:
    """Ask that a job is held."""
    with database.begin() as tx:
        return control.hold(tx, user, [job_id], rules, running=running)[0]


def resume(database: Database, user: User, job_id: int, rules: HoldRules = STRICT) -> ControlRefusal | None:
    """Ask that a job goes on."""
    with database.begin() as tx:
        return control.resume(tx, user, [job_id], rules)[0].refusal


def test_a_hold_is_in_force_when_it_is_acknowledged(database: Database, sent: list[Effect]) -> None:
    job_id = add_job(database)
    assert hold(database, ALICE, job_id).refusal is None
    assert state_of(database, job_id) is JobState.HOLD
    assert [(event.type, event.to_check) for event in events_of(database, job_id)] == [("HOLD_WAITING_JOB", False)]
    assert sent == []
    assert resume(database, ALICE, job_id) is None
    assert state_of(database, job_id) is JobState.WAITING
    assert [(event.type, event.to_check) for event in events_of(database, job_id)][1:] == [("RESUME_JOB", False)]
    assert sent == [Wake(Tag.QRESUME)]


def test_a_round_gives_the_place_of_a_held_job_to_others(database: Database, sent: list[Effect]) -> None:
    job_id, unplanned = add_job(database), add_job(database)
    with database.begin() as tx:
        place = PredictionRow(tx.new_jobs.moldables_of_jobs([job_id])[job_id][0].id, tx.now + 1000, ())
        tx.plan.write([place.moldable], [place], tx.now, log=False)
    hold(database, ALICE, unplanned)
    assert sent == []
    hold(database, ALICE, job_id)
    assert sent == [Wake(Tag.TERM)]


@pytest.mark.parametrize("state", [JobState.SUSPENDED, JobState.RESUMING])
def test_requests_with_notices_are_left_to_the_server(database: Database, sent: list[Effect], state: JobState) -> None:
    job_id = add_job(database, state, on=add_resources(database), notify="mail:alice@site")
    sent.clear()
    if state is JobState.SUSPENDED:
        assert resume(database, ROOT, job_id) is None
    else:
        assert hold(database, ROOT, job_id, running=True).refusal is None
    assert state_of(database, job_id) is state
    assert [event.to_check for event in events_of(database, job_id)] == [True]
    assert sent == [Wake(Tag.CHSTATE)]


def test_a_job_that_is_about_to_go_on_is_held_at_once(database: Database, sent: list[Effect]) -> None:
    job_id = add_job(database, JobState.SUSPENDED, on=add_resources(database))
    assert resume(database, ROOT, job_id) is None
    assert state_of(database, job_id) is JobState.RESUMING
    sent.clear()
    assert hold(database, ROOT, job_id, running=True).refusal is None
    assert state_of(database, job_id) is JobState.SUSPENDED
    assert sent == [Wake(Tag.TERM)]


def test_a_waiting_oarsub_is_notified_of_a_hold(database: Database, sent: list[Effect]) -> None:
    job_id = add_job(database, job_type=JobType.INTERACTIVE, info_type="frontend:4242")
    hold(database, ALICE, job_id)
    assert sent == [Ask(JobAction.TELL, job_id)]


def test_a_running_job_is_suspended_by_the_server(database: Database, sent: list[Effect]) -> None:
    job_id = add_job(database, JobState.RUNNING, on=add_resources(database))
    sent.clear()
    assert hold(database, ROOT, job_id, running=True).refusal is None
    assert [(event.type, event.to_check) for event in events_of(database, job_id)] == [("HOLD_RUNNING_JOB", True)]
    assert sent == [Wake(Tag.CHSTATE)]


@pytest.mark.parametrize("state", list(JobState))
def test_which_jobs_may_be_held(database: Database, state: JobState) -> None:
    nodes = add_resources(database)
    plain = hold(database, ROOT, add_job(database, state, on=nodes))
    running = hold(database, ROOT, add_job(database, state, on=nodes), running=True)
    assert (plain.refusal is None) is (state in ("Waiting", "Resuming"))
    assert (running.refusal is None) is (state in ("Waiting", "Resuming", "toLaunch", "Launching", "Running"))
    assert (plain.refusal is ControlRefusal.HAS_BEGUN) is (state in ("toLaunch", "Launching", "Running"))


def test_who_may_suspend(database: Database) -> None:
    job_id = add_job(database, JobState.RUNNING, on=add_resources(database))
    assert hold(database, ALICE, job_id, running=True).refusal is ControlRefusal.ADMIN_HOLD
    assert hold(database, EVE, job_id, LENIENT, running=True).refusal is ControlRefusal.NOT_YOURS
    assert hold(database, ALICE, job_id, LENIENT, running=True).refusal is None
    assert hold(database, ROOT, job_id, running=True).refusal is None
    assert hold(database, ROOT, 4711, running=True).refusal is ControlRefusal.UNKNOWN_JOB


@pytest.mark.parametrize("state", list(JobState))
def test_which_jobs_may_be_resumed(database: Database, state: JobState) -> None:
    job_id = add_job(database, state, on=add_resources(database))
    assert (resume(database, ROOT, job_id) is None) is (state in ("Hold", "Suspended"))


def test_who_may_resume(database: Database) -> None:
    held = add_job(database, JobState.HOLD)
    suspended = add_job(database, JobState.SUSPENDED, on=add_resources(database))
    assert resume(database, EVE, held) is ControlRefusal.NOT_YOURS
    assert resume(database, ALICE, held) is None
    assert resume(database, ALICE, suspended) is ControlRefusal.ADMIN_RESUME
    assert resume(database, ALICE, suspended, LENIENT) is None
    assert resume(database, ALICE, 4711) is ControlRefusal.UNKNOWN_JOB
