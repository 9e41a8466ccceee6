"""Rounds on the real database: what they read, what they write, and that they write nothing twice."""

from typing import Any

import psycopg2.extensions
import pytest

from oar.kao.rounds.meta_sched import MetaScheduler, run
from oar.kao.rounds.reading.snapshot_reader import SnapshotReader
from oar.lib.access.records import User
from oar.lib.base.errors import Unavailable
from oar.lib.base.times import format_date
from oar.lib.bus.exit_codes import MetaSchedCode
from oar.lib.bus.messages import Ask, Effect, JobAction
from oar.lib.config.files import Config
from oar.lib.db.database import Database
from oar.lib.db.lock_keys import ROUND_LOCK
from oar.lib.db.statements import PreparingConnection
from oar.lib.jobs import lifecycle
from oar.lib.jobs.states import JobState, JobType, QueueState, Reservation
from oar.lib.runtime import Runtime
from oar.lib.submission import alteration
from oar.lib.submission.resource_request import parse_request
from oar.lib.submission.sql_new_jobs import NewAlternative
from tests.builders import add_job, add_resources, execute_sql, for_no_reason, move_job, state_of
from tests.frontend import add_rules


def submit(
    database: Database, *requests: str, types: tuple[str, ...] = (), state: JobState = JobState.WAITING, **columns: Any
) -> int:
    """Add a job as submission would."""
    asked = [parse_request(text) for text in requests or ("/resource_id=1",)]
    alternatives = [NewAlternative(one.walltime or 3600, one.groups) for one in asked]
    return add_job(database, state, alternatives=alternatives, types=types, **columns)


def ask(database: Database, question: str, *parameters: Any) -> list[tuple[Any, ...]]:
    with database.begin() as tx:
        return tx.rows(question, parameters)


def job(database: Database, job_id: int, *columns: str) -> Any:
    rows = ask(database, f"SELECT {', '.join(columns)} FROM jobs WHERE job_id = %s", job_id)
    return rows[0] if len(columns) > 1 else rows[0][0]


def held(database: Database, job_id: int) -> list[int]:
    with database.begin() as tx:
        return [each.id for each in tx.jobs.assigned([job_id], current=True).get(job_id, [])]


def tables(database: Database) -> dict[str, list[tuple[Any, ...]]]:
    names = ("predictions", "resources", "predictions_visu", "resources_visu")
    return {name: sorted(ask(database, f"SELECT * FROM gantt_jobs_{name}")) for name in names}


def at(database: Database, date: int) -> Database:
    """Let the clock of the database stand still."""
    database._clock = lambda: date
    return database


NOW = 1_800_000_000


@pytest.fixture
def clocked(database: Database) -> Database:
    return at(database, NOW)


@pytest.fixture
def scheduler(clocked: Database, runtime: Runtime) -> Any:
    made = MetaScheduler(runtime)
    yield made
    made.close()


# ------------------------------------------------------------------------------------------------------------- starting


def test_a_waiting_job_is_given_resources_and_started(
    clocked: Database, scheduler: MetaScheduler, sent: list[Effect]
) -> None:
    ids = add_resources(clocked, nodes=2, cores=2)
    number = submit(clocked, "/network_address=1")
    assert scheduler.round() == MetaSchedCode.DONE
    assert job(clocked, number, "state", "start_time") == ("toLaunch", NOW)
    assert held(clocked, number) == ids[:2]
    assert Ask(JobAction.RUN, number) in sent


def test_a_round_sends_no_message_about_jobs_that_wait_for_their_launch(
    clocked: Database, scheduler: MetaScheduler, sent: list[Effect]
) -> None:
    """A burst has hundreds of them and many rounds. The Runner looks for them itself."""
    add_resources(clocked, nodes=2, cores=1)
    started = {submit(clocked, "/resource_id=1") for _ in range(2)}
    scheduler.round()
    assert {effect.job_id for effect in sent if isinstance(effect, Ask)} == started
    sent.clear()
    submit(clocked, "/resource_id=1")
    scheduler.round()
    assert [effect for effect in sent if isinstance(effect, Ask)] == []


def test_a_round_tells_how_long_its_parts_took(clocked: Database, scheduler: MetaScheduler) -> None:
    add_resources(clocked)
    submit(clocked, "/resource_id=1")
    submit(clocked, "/resource_id=1")
    scheduler.round()
    record: Any = scheduler.phases.record
    assert (record["jobs"], record["undecided"]) == (2, 0)
    assert list(record["phases"]) == ["read", "plan", "write"]
    assert all(seconds > 0 for seconds in record["phases"].values())


def test_a_job_that_must_wait_is_told_until_when_and_why(clocked: Database, scheduler: MetaScheduler) -> None:
    add_resources(clocked, nodes=1, cores=1)
    first = submit(clocked, "/resource_id=1")
    second = submit(clocked, "/resource_id=1,walltime=2", name="n", project="p", types=("idempotent",))
    scheduler.round()
    text = f"waiting for resources until {format_date(NOW + 3601)} (jobs {first})"
    assert job(clocked, second, "message", "scheduler_info") == (
        f"R=1,W=2:0:0,J=B,N=n,P=p,T=idempotent ({text})",
        text,
    )
    ((code, reason, data),) = ask(clocked, "SELECT code, reason, data FROM job_reasons WHERE job_id = %s", second)
    assert (code, reason) == ("BUSY", text)
    assert f'"jobs": [{first}]' in data


def test_predictions_hold_all_jobs_that_have_or_will_have_resources(
    clocked: Database, scheduler: MetaScheduler
) -> None:
    ids = add_resources(clocked, nodes=1, cores=1)
    submit(clocked), submit(clocked), submit(clocked, "/resource_id=2")
    scheduler.round()
    found = tables(clocked)
    assert [start for _, start in found["predictions"]] == [NOW, NOW, NOW + 3601]
    assert [number for _, number in found["resources"]] == [ids[0], ids[0]]
    assert found["predictions"] == found["predictions_visu"]
    assert found["resources"] == found["resources_visu"]


def test_filters_choose_the_resources(clocked: Database, scheduler: MetaScheduler) -> None:
    add_resources(clocked, nodes=1, cores=2, besteffort="NO")
    wanted = add_resources(clocked, nodes=1, cores=2, network_address="other")
    number = submit(clocked, "{besteffort = 'YES'}/network_address=1", properties="network_address <> 'nowhere'")
    scheduler.round()
    assert held(clocked, number) == wanted


def test_a_filter_that_is_refused_concerns_its_job_only(clocked: Database, scheduler: MetaScheduler) -> None:
    add_resources(clocked)
    bad = submit(clocked, "{no_such_column = 1}/resource_id=1")
    gone = submit(clocked, "/no_such_property=1")
    good = submit(clocked)
    scheduler.round()
    assert state_of(clocked, good) is JobState.TO_LAUNCH
    assert "no_such_column" in job(clocked, bad, "scheduler_info")
    assert 'no property "no_such_property"' in job(clocked, gone, "scheduler_info")


def test_a_job_deleted_or_held_meanwhile_does_not_start(clocked: Database, runtime: Runtime) -> None:
    add_resources(clocked)
    deleted, kept = submit(clocked), submit(clocked)
    scheduler = MetaScheduler(runtime)
    situation = scheduler._platform.read()
    plan = scheduler._plan(situation, lambda queues: None)
    with clocked.begin() as tx:
        tx.job_requests.request_kill(for_no_reason(deleted))
    scheduler._write(situation, plan)
    scheduler.close()
    assert state_of(clocked, deleted) is JobState.WAITING
    assert state_of(clocked, kept) is JobState.TO_LAUNCH


def test_a_job_does_not_start_on_a_node_that_failed_meanwhile(clocked: Database, runtime: Runtime) -> None:
    ids = add_resources(clocked, nodes=1, cores=1)
    number = submit(clocked)
    scheduler = MetaScheduler(runtime)
    situation = scheduler._platform.read()
    plan = scheduler._plan(situation, lambda queues: None)
    execute_sql(clocked, "UPDATE resources SET next_state = 'Suspected' WHERE resource_id = %s", ids[0])
    scheduler._write(situation, plan)
    scheduler.close()
    assert state_of(clocked, number) is JobState.WAITING
    assert held(clocked, number) == []
    assert ask(clocked, "SELECT code FROM job_reasons WHERE job_id = %s", number) == [("LAUNCH",)]


def test_a_job_that_is_altered_meanwhile_starts_as_it_is_then(clocked: Database, runtime: Runtime) -> None:
    add_resources(clocked, nodes=1, cores=2)
    add_rules(clocked)
    altered, other = submit(clocked), submit(clocked)
    scheduler = MetaScheduler(runtime)
    situation = scheduler._platform.read()
    plan = scheduler._plan(situation, lambda queues: None)
    less = alteration.JobChanges(requests=("walltime=0:1",))
    alteration.alter(clocked, runtime.config, User("root", 0), altered, less)
    scheduler._write(situation, plan)
    assert (state_of(clocked, altered), state_of(clocked, other)) == (JobState.WAITING, JobState.TO_LAUNCH)
    scheduler.round()
    scheduler.close()
    assert state_of(clocked, altered) is JobState.TO_LAUNCH
    assert ask(
        clocked,
        "SELECT moldable_walltime FROM jobs JOIN moldable_job_descriptions ON moldable_id = assigned_moldable_job"
        " WHERE job_id = %s",
        altered,
    ) == [(60,)]


def test_a_node_that_is_about_to_come_back_is_not_there_yet(clocked: Database, scheduler: MetaScheduler) -> None:
    ids = add_resources(clocked, nodes=1, cores=1, state="Suspected")
    number = submit(clocked)
    execute_sql(clocked, "UPDATE resources SET next_state = 'Alive' WHERE resource_id = %s", ids[0])
    scheduler.round()
    assert ask(clocked, "SELECT code FROM job_reasons WHERE job_id = %s", number) == [("NOT_ALIVE",)]


# ------------------------------------------------------------------------------------------------------------- writing


def test_a_second_round_writes_no_row(clocked: Database, runtime: Runtime) -> None:
    add_resources(clocked, nodes=2, cores=2)
    for request in ("/network_address=2", "/resource_id=3", "/network_address=1", "/resource_id=9"):
        submit(clocked, request)
    scheduler = MetaScheduler(runtime)
    scheduler.round()
    before = fingerprint(clocked)
    scheduler.round()
    assert fingerprint(clocked) == before
    scheduler.close()
    run(runtime)  # a cold one
    assert fingerprint(clocked) == before


def fingerprint(database: Database) -> list[tuple[Any, ...]]:
    """Tell which version of each row is there."""
    names = ["jobs", "job_reasons", "job_state_logs", "assigned_resources", "event_logs", "resources", "frag_jobs"]
    names += [f"gantt_jobs_{name}" for name in ("predictions", "sets", "predictions_visu", "sets_visu")]
    return [(name, *sorted(ask(database, f"SELECT xmin::text, ctid::text FROM {name}"))) for name in names]


def test_a_plan_that_changed_is_stored_as_if_it_were_new(clocked: Database, runtime: Runtime) -> None:
    add_resources(clocked, nodes=3, cores=2)
    warm = MetaScheduler(runtime)
    numbers = [submit(clocked, "/network_address=2,walltime=1") for _ in range(6)]
    warm.round()
    with clocked.begin() as tx:
        tx.jobs.move(numbers[2:3], JobState.ERROR, list(JobState))
        tx.jobs.close(numbers[2:3])
        tx.execute("UPDATE resources SET state = 'Suspected' WHERE network_address = 'node-3'")
    submit(clocked, "/resource_id=1,walltime=3")
    at(clocked, NOW + 100)
    warm.round()
    found = tables(clocked)
    execute_sql(clocked, "DELETE FROM gantt_jobs_resources; DELETE FROM gantt_jobs_predictions")
    warm.close()
    run(runtime)
    assert tables(clocked) == found
    assert found["predictions"] == found["predictions_visu"]
    assert found["resources"] == found["resources_visu"]


def test_rows_that_nobody_foresaw_are_removed(clocked: Database, runtime: Runtime) -> None:
    ids = add_resources(clocked)
    with clocked.begin() as tx:
        tx.execute("INSERT INTO gantt_jobs_resources VALUES (999999, %s)", (ids[0],))
        tx.execute("INSERT INTO gantt_jobs_predictions_visu VALUES (999998, 5)")
    run(runtime)
    assert tables(clocked)["resources"] == []
    assert tables(clocked)["predictions_visu"] == [(0, NOW)]


def test_all_plans_are_kept_where_that_is_asked(clocked: Database) -> None:
    add_resources(clocked)
    submit(clocked)
    run(Runtime(Config(scheduler_log_decisions=True), clocked))
    assert len(ask(clocked, "SELECT * FROM gantt_jobs_predictions_log WHERE sched_date = %s", NOW)) == 2


def test_reasons_go_when_the_job_starts(clocked: Database, scheduler: MetaScheduler) -> None:
    ids = add_resources(clocked, nodes=1, cores=1)
    execute_sql(clocked, "UPDATE resources SET state = 'Suspected' WHERE resource_id = %s", ids[0])
    number = submit(clocked)
    scheduler.round()
    assert ask(clocked, "SELECT code FROM job_reasons WHERE job_id = %s", number) == [("NOT_ALIVE",)]
    execute_sql(clocked, "UPDATE resources SET state = 'Alive' WHERE resource_id = %s", ids[0])
    scheduler.round()
    assert state_of(clocked, number) is JobState.TO_LAUNCH
    assert ask(clocked, "SELECT 1 FROM job_reasons") == []
    assert job(clocked, number, "scheduler_info") == ""


class CountedDatabase(Database):
    """A database that counts the statements sent to it."""

    statements = 0

    def connection(self) -> PreparingConnection:
        made, counted = super().connection(), self

        class Cursor(psycopg2.extensions.cursor):
            def execute(self, query: Any, vars: Any = None) -> None:
                counted.statements += 1
                super().execute(query, vars)

        made.cursor_factory = Cursor
        return made


def test_the_number_of_statements_does_not_grow_with_the_jobs(clocked: Database) -> None:
    add_resources(clocked, nodes=2, cores=2)
    submit(clocked, "/network_address=2")
    counts = []
    for more in (1, 30):
        for _ in range(more):
            submit(clocked, "/network_address=1")
        counted = CountedDatabase(clocked.settings, clock=lambda: NOW)
        run(Runtime(Config(), counted))
        counts.append(counted.statements)
        counted.close()
    assert counts[1] <= counts[0]


# ------------------------------------------------------------------------------------------ besteffort, answers


def test_a_besteffort_job_in_the_way_is_asked_to_end(clocked: Database, scheduler: MetaScheduler) -> None:
    add_resources(clocked, nodes=1, cores=1)
    victim = submit(clocked, queue="besteffort", types=("besteffort",))
    assert scheduler.round() == MetaSchedCode.DONE
    with clocked.begin() as tx:
        for state in (JobState.LAUNCHING, JobState.RUNNING):
            tx.jobs.move([victim], state, list(JobState))
    wanting = submit(clocked)
    assert scheduler.round() == MetaSchedCode.KILL
    assert ask(clocked, "SELECT frag_state FROM frag_jobs WHERE frag_id_job = %s", victim) == [("LEON",)]
    assert ask(clocked, "SELECT description FROM event_logs WHERE type = 'BESTEFFORT_KILL'") == [
        (f"kill the besteffort job {victim} for job {wanting}",)
    ]
    types = ask(clocked, "SELECT type FROM event_logs WHERE job_id = %s ORDER BY event_id", victim)
    assert [each for (each,) in types if "KILL" in each or "FRAG" in each] == ["BESTEFFORT_KILL", "FRAG_JOB_REQUEST"]
    assert job(clocked, wanting, "scheduler_info") == f"waiting for besteffort job {victim} to end"
    assert scheduler.round() == MetaSchedCode.DONE


def weights(database: Database) -> list[int]:
    return [weight for (weight,) in ask(database, "SELECT scheduler_priority FROM resources ORDER BY resource_id")]


def test_jobs_keep_away_from_besteffort_jobs_as_long_as_there_is_room(
    clocked: Database, scheduler: MetaScheduler
) -> None:
    first, *_ = add_resources(clocked, nodes=2, cores=2)
    killable = submit(clocked, types=("besteffort",), queue="besteffort")
    scheduler.round()
    assert held(clocked, killable) == [first]
    ordinary = submit(clocked)
    scheduler.round()
    assert weights(clocked) == [6, 2, 0, 0]
    assert held(clocked, ordinary) == [first + 2]
    move_job(clocked, killable, JobState.ERROR)
    scheduler.round()
    assert weights(clocked) == [0, 0, 0, 0]


def test_a_job_that_can_never_run_ends_in_error_and_its_submitter_is_told(
    clocked: Database, scheduler: MetaScheduler, sent: list[Effect]
) -> None:
    add_resources(clocked)
    number = submit(clocked, types=("inner=nowhere",), job_type=JobType.INTERACTIVE)
    scheduler.round()
    message = "Inner job: container nowhere does not exist, inner job will never run, setting it to error"
    assert job(clocked, number, "state", "message") == ("Error", message)
    assert Ask(JobAction.TELL, number, (message, "BAD JOB")) in sent
    states = ask(clocked, "SELECT job_state FROM job_state_logs WHERE job_id = %s ORDER BY job_state_log_id", number)
    assert [state for (state,) in states] == ["Waiting", "toError", "Error"]


def test_a_reservation_is_accepted_kept_and_started_at_its_date(
    clocked: Database, scheduler: MetaScheduler, sent: list[Effect]
) -> None:
    ids = add_resources(clocked, nodes=2, cores=1)
    number = submit(clocked, "/resource_id=1", reservation=Reservation.TO_SCHEDULE, start_time=NOW + 600)
    assert scheduler.round() == MetaSchedCode.DONE
    assert job(clocked, number, "state", "reservation") == ("toAckReservation", "Scheduled")
    assert Ask(JobAction.TELL, number, ("GOOD RESERVATION",)) in sent
    with clocked.begin() as tx:
        tx.jobs.move([number], JobState.WAITING, list(JobState))
    late = submit(clocked, "/resource_id=2")
    scheduler.round()
    assert job(clocked, late, "state") == "Waiting"
    at(clocked, NOW + 600)
    scheduler.round()
    assert job(clocked, number, "state", "start_time") == ("toLaunch", NOW + 600)
    assert held(clocked, number) == ids[:1]


def test_a_reservation_that_starts_at_once_asks_for_another_round(clocked: Database, scheduler: MetaScheduler) -> None:
    add_resources(clocked)
    submit(clocked, reservation=Reservation.TO_SCHEDULE, start_time=NOW)
    assert scheduler.round() == MetaSchedCode.AGAIN


def test_a_reservation_that_cannot_run_is_refused(
    clocked: Database, scheduler: MetaScheduler, sent: list[Effect]
) -> None:
    add_resources(clocked, nodes=1, cores=1)
    number = submit(clocked, "/resource_id=2", reservation=Reservation.TO_SCHEDULE, start_time=NOW + 600)
    scheduler.round()
    assert job(clocked, number, "state", "reservation") == ("Error", "Scheduled")
    assert Ask(JobAction.TELL, number, ("This reservation cannot run", "BAD JOB")) in sent


def test_a_reservation_that_starts_late_is_cut(clocked: Database, scheduler: MetaScheduler) -> None:
    add_resources(clocked, nodes=1, cores=1)
    number = submit(clocked, reservation=Reservation.TO_SCHEDULE, start_time=NOW + 60)
    scheduler.round()
    with clocked.begin() as tx:
        tx.jobs.move([number], JobState.WAITING, list(JobState))
    at(clocked, NOW + 100)
    scheduler.round()
    with clocked.begin() as tx:
        (moldable,) = tx.new_jobs.moldables_of_jobs([number])[number]
    assert moldable.walltime == 3600 - 40
    assert ask(clocked, "SELECT description FROM event_logs WHERE type = 'REDUCE_RESERVATION_WALLTIME'") == [
        ("Change walltime from 1:0:0 to 0:59:20",)
    ]
    assert "W=0:59:20" in job(clocked, number, "message")


def test_an_interactive_job_hears_when_it_is_expected_to_start(
    clocked: Database, scheduler: MetaScheduler, sent: list[Effect]
) -> None:
    add_resources(clocked, nodes=1, cores=1)
    submit(clocked)
    number = submit(clocked, job_type=JobType.INTERACTIVE)
    scheduler.round()
    message = job(clocked, number, "message")
    line = f"[{format_date(NOW)}] Start prediction: {format_date(NOW + 3601)} ({message})"
    assert [effect for effect in sent if effect == Ask(JobAction.TELL, number, (line,))]
    sent.clear()
    scheduler.round()
    assert not [effect for effect in sent if isinstance(effect, Ask) and effect.action is JobAction.TELL]


def test_behind_a_job_whose_time_is_over_an_interactive_job_hears_no_date(
    clocked: Database, scheduler: MetaScheduler, sent: list[Effect]
) -> None:
    add_resources(clocked, nodes=1, cores=1)
    first, number = submit(clocked), submit(clocked, job_type=JobType.INTERACTIVE)
    scheduler.round()
    at(clocked, NOW + 4000)
    scheduler.round()
    why = f"waiting for resources that are held beyond their time (jobs {first})"
    line = f"[{format_date(NOW + 4000)}] Start prediction: undefined ({why})"
    assert [effect for effect in sent if effect == Ask(JobAction.TELL, number, (line,))]


def test_a_suspended_job_goes_on_when_its_resources_are_free(
    clocked: Database, scheduler: MetaScheduler, sent: list[Effect]
) -> None:
    add_resources(clocked, nodes=1, cores=1)
    first, second = submit(clocked), submit(clocked)
    for number in (first, second):  # the second on what the first has lent
        scheduler.round()
        with clocked.begin() as tx:
            assert lifecycle.move(tx, number, JobState.LAUNCHING)
            assert lifecycle.move(tx, number, JobState.RUNNING)
            assert lifecycle.move(tx, number, JobState.SUSPENDED)
    with clocked.begin() as tx:
        for number in (second, first):
            assert lifecycle.move(tx, number, JobState.RESUMING)
    scheduler.round()
    assert [effect for effect in sent if isinstance(effect, Ask) and effect.action is JobAction.RESUME] == [
        Ask(JobAction.RESUME, second)
    ]


# ------------------------------------------------------------------------------------------ order, limits


def test_fair_share_puts_the_user_first_who_had_less(clocked: Database, scheduler: MetaScheduler) -> None:
    add_resources(clocked, nodes=1, cores=1)
    with clocked.begin() as tx:
        tx.execute(
            "UPDATE queues SET scheduler_policy = 'oar_sched_gantt_with_timesharing_and_fairsharing'"
            " WHERE queue_name = 'default'"
        )
        tx.execute(
            "INSERT INTO accounting (window_start, window_stop, accounting_user, accounting_project, queue_name,"
            " consumption_type, consumption) VALUES (%s, %s, 'alice', 'default', 'default', 'USED', 1000)",
            (NOW - 86400, NOW - 1),
        )
    submit(clocked, user="alice")
    poor = submit(clocked, user="bob")
    scheduler.round()
    assert state_of(clocked, poor) is JobState.TO_LAUNCH
    assert job(clocked, poor, "last_karma") is not None
    assert "(Karma=" in job(clocked, poor, "message")


def test_queues_at_which_rounds_broke_off_are_stopped_first(clocked: Database, scheduler: MetaScheduler) -> None:
    add_resources(clocked)
    number = submit(clocked)
    announced: list[list[str]] = []
    scheduler.round(disable=("default",), announce=lambda queues: announced.append(list(queues)))
    assert announced == []
    assert state_of(clocked, number) is JobState.WAITING
    with clocked.begin() as tx:
        tx.queues.set_state(None, QueueState.ACTIVE)
    scheduler.round(announce=lambda queues: announced.append(list(queues)))
    assert announced == [["default"]]


def test_only_one_round_goes_on_at_a_time(clocked: Database, scheduler: MetaScheduler) -> None:
    other = clocked.locks()
    assert other.acquire(ROUND_LOCK)
    with pytest.raises(Unavailable, match="another round is going on: oar:test"):
        scheduler.round()
    other.release(ROUND_LOCK)
    assert scheduler.round() == MetaSchedCode.DONE
    other.close()


def test_a_bad_resource_order_is_replaced(clocked: Database) -> None:
    add_resources(clocked)
    number = submit(clocked)
    run(Runtime(Config(scheduler_resource_order="no_such_column ASC"), clocked))
    assert state_of(clocked, number) is JobState.TO_LAUNCH


def test_the_resource_order_decides_which_node_is_taken(clocked: Database) -> None:
    ids = add_resources(clocked, nodes=3, cores=1)
    number = submit(clocked, "/network_address=1")
    run(Runtime(Config(scheduler_resource_order="network_address DESC"), clocked))
    assert held(clocked, number) == [ids[2]]


def test_the_date_of_a_round_never_goes_back(clocked: Database, runtime: Runtime) -> None:
    add_resources(clocked)
    run(runtime)
    at(clocked, NOW - 30)
    number = submit(clocked)
    run(runtime)
    assert job(clocked, number, "start_time") == NOW


def test_jobs_pass_one_that_a_clock_which_was_set_back_has_not_started_yet(
    clocked: Database, scheduler: MetaScheduler
) -> None:
    add_resources(clocked, nodes=1, cores=2)
    running = submit(clocked, "/resource_id=1")
    scheduler.round()
    at(clocked, NOW - 3600)
    everything = submit(clocked, "/resource_id=2,walltime=0:10")
    small = submit(clocked, "/resource_id=1,walltime=0:50")
    scheduler.round()
    assert state_of(clocked, running) is JobState.TO_LAUNCH
    assert job(clocked, everything, "scheduler_info").startswith("waiting for resources until")
    assert state_of(clocked, small) is JobState.TO_LAUNCH


def test_a_snapshot_read_warm_equals_one_read_cold(clocked: Database, runtime: Runtime) -> None:
    add_resources(clocked, nodes=2, cores=2)
    submit(clocked, "{cpuset = '1'}/network_address=1")
    warm = SnapshotReader(clocked, runtime.config)
    warm.read()
    execute_sql(clocked, "UPDATE resources SET cpuset = '7' WHERE network_address = 'node-1'")
    submit(clocked, "{cpuset = '7'}/cpuset=1/network_address=1", properties="now() IS NOT NULL")
    assert warm.read().snapshot == SnapshotReader(clocked, runtime.config).read().snapshot
