"""Idle jobs are warned, then ended, if the site has rules; who is exempt is left alone."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oar.lib.bus.exit_codes import SarkoCode
from oar.lib.bus.messages import Effect, UserMail
from oar.lib.config.idle_rules import parse_rules
from oar.lib.db.database import Database
from oar.lib.history.event_types import EventType
from oar.lib.jobs import idleness
from oar.lib.jobs.curves import PERIOD, Sample
from oar.lib.jobs.ends import EndCode
from oar.lib.jobs.sql_curves import IdleCandidate, NewPoints
from oar.lib.jobs.states import JobState, Reservation
from oar.lib.runtime import Runtime
from oar.modules import idle_jobs, sarko
from oar.modules.worker import PassOrder
from tests.builders import add_job, add_resources, execute_sql

STEPS = 240
RULES = "1 GPU below 5 % for 1h: mail, then end after 30m"


@pytest.fixture
def runtime(runtime: Runtime) -> Runtime:
    """A site with a rule about idle GPUs."""
    runtime.config = runtime.config.replace(idle_gpu_rules=parse_rules(RULES, "GPU"))
    return runtime


def add_gpus(database: Database, number: int) -> list[int]:
    """Add a node with this number of GPUs, of which each has a core."""
    with database.begin() as tx:
        tx.execute("ALTER TABLE resources ADD COLUMN IF NOT EXISTS gpudevice varchar(255)")
    resources = add_resources(database, nodes=1, cores=number)
    for place, resource in enumerate(resources):
        execute_sql(database, "UPDATE resources SET gpudevice = %s WHERE resource_id = %s", str(place), resource)
    return resources


def idle_job(
    database: Database,
    use: int = 0,
    types: Sequence[str] = (),
    state: JobState = JobState.RUNNING,
    gpus: int = 2,
) -> int:
    """Add a job that has run for two hours; its node reports so much use (per mille) of 2 GPUs."""
    job_id = add_job(database, state, on=add_gpus(database, gpus), types=types)
    seconds = STEPS * PERIOD
    execute_sql(database, "UPDATE jobs SET start_time = start_time - %s WHERE job_id = %s", seconds, job_id)
    execute_sql(database, "UPDATE job_state_logs SET date_start = date_start - %s WHERE job_id = %s", seconds, job_id)
    with database.begin() as tx:
        points = [(place, Sample(0, 0, use, 0, 2)) for place in range(STEPS)]
        tx.job_curves.append([NewPoints(job_id, "node-1", tx.now - seconds, PERIOD, points)])
    return job_id


def look(runtime: Runtime) -> None:
    watch = idle_jobs.IdleWatch()
    watch.follow(runtime)
    while watch.due() == 0:
        watch.go_on()


def events_of(database: Database, job_id: int) -> list[str]:
    with database.snapshot() as tx:
        events = tx.events.of_jobs([job_id]).get(job_id, [])
    return [event.type for event in events if event.type.startswith("IDLE")]


def test_an_idle_job_is_warned_once_then_ended(runtime: Runtime, sent: list[Effect]) -> None:
    job = idle_job(runtime.database)
    look(runtime)
    look(runtime)
    assert events_of(runtime.database, job) == [EventType.IDLE_JOB_WARNED]
    (mail,) = [effect for effect in sent if isinstance(effect, UserMail)]
    assert mail.recipients == ("alice",)
    assert mail.topic == f"job {job} is idle"
    assert "used 0 % of its 2 GPUs" in mail.text
    assert "The server will end it at" in mail.text
    assert "use less than 5 % of their GPUs for 1 hour" in mail.text
    execute_sql(runtime.database, "UPDATE event_logs SET date = date - 1900 WHERE job_id = %s", job)
    look(runtime)
    assert events_of(runtime.database, job) == [EventType.IDLE_JOB_WARNED, EventType.IDLE_JOB_ENDED]
    with runtime.database.snapshot() as tx:
        assert tx.job_requests.jobs_to_kill([job]) == {job}
        (cause,) = tx.column("SELECT frag_cause FROM frag_jobs WHERE frag_id_job = %s", (job,))
    assert cause == EndCode.IDLE


@pytest.mark.parametrize("types", [["idle_ok"], ["container=mine"], ["placeholder=mine"]])
def test_exempt_types_are_left_alone(runtime: Runtime, types: list[str]) -> None:
    job = idle_job(runtime.database, types=types)
    look(runtime)
    assert not events_of(runtime.database, job)


def test_reservations_suspended_and_busy_jobs_are_left_alone(runtime: Runtime) -> None:
    reservation = idle_job(runtime.database)
    execute_sql(
        runtime.database, "UPDATE jobs SET reservation = %s WHERE job_id = %s", str(Reservation.SCHEDULED), reservation
    )
    jobs = [reservation, idle_job(runtime.database, state=JobState.SUSPENDED), idle_job(runtime.database, use=60)]
    look(runtime)
    assert not any(events_of(runtime.database, job) for job in jobs)


def test_without_rules_nothing_is_read(runtime: Runtime) -> None:
    runtime.config = runtime.config.replace(idle_gpu_rules=())
    job = idle_job(runtime.database)
    watch = idle_jobs.IdleWatch()
    watch.follow(runtime)
    assert watch.due() is None
    assert not events_of(runtime.database, job)


def test_a_job_with_a_gpu_that_nobody_measured_is_left_alone(runtime: Runtime) -> None:
    jobs = [idle_job(runtime.database, gpus=3), idle_job(runtime.database, gpus=1)]
    look(runtime)
    assert not any(events_of(runtime.database, job) for job in jobs)


def test_after_the_clock_was_set_back_the_time_before_does_not_count(runtime: Runtime) -> None:
    job = idle_job(runtime.database)
    watch = idle_jobs.IdleWatch()
    watch.follow(runtime)
    for seconds in (3600, -3600):  # the curve ends an hour after the present time, and later now
        execute_sql(runtime.database, "UPDATE job_curves SET begin = begin + %s", seconds)
        watch._next = 0.0
        while watch.due() == 0:
            watch.go_on()
    assert not events_of(runtime.database, job)


def test_a_look_is_done_in_slices(runtime: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(idle_jobs, "_MOST_JOBS", 2)
    jobs = [idle_job(runtime.database) for _ in range(5)]
    watch = idle_jobs.IdleWatch()
    watch.follow(runtime)
    slices = 0
    while watch.due() == 0:
        watch.go_on()
        slices += 1
    assert slices == 4
    assert all(events_of(runtime.database, job) for job in jobs)


def test_a_failure_is_logged_once_and_concerns_its_slice(
    runtime: Runtime, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(idle_jobs, "_MOST_JOBS", 1)
    jobs = [idle_job(runtime.database) for _ in range(3)]

    def judge(job: Any, *rest: Any) -> Any:
        if job.job_id == jobs[1]:
            raise ArithmeticError("wrong")
        return idleness.judge(job, *rest)

    monkeypatch.setattr("oar.modules.idle_jobs.judge", judge)
    watch = idle_jobs.IdleWatch()
    watch.follow(runtime)
    for _ in range(3):
        watch._next = 0.0
        while watch.due() == 0:
            watch.go_on()
    assert [bool(events_of(runtime.database, job)) for job in jobs] == [True, False, True]
    assert [record.message for record in caplog.records] == ["cannot judge some jobs by the rules about idle jobs"]


@given(st.lists(st.integers(0, 2000), max_size=300))
def test_slices_are_bounded_and_leave_out_no_job(curves: list[int]) -> None:
    rest = [IdleCandidate(number, "alice", 0, each) for number, each in enumerate(curves)]
    seen = []
    while rest:
        part, rest = idle_jobs.split(rest)
        assert 0 < len(part) <= 100
        assert sum(each.curves for each in part[:-1]) < 200
        seen += part
    assert [each.curves for each in seen] == curves


@pytest.mark.parametrize("goes_on", [True, False])
def test_walltimes_do_not_wait_for_a_look_that_fails(
    runtime: Runtime, monkeypatch: pytest.MonkeyPatch, goes_on: bool
) -> None:
    monkeypatch.setattr("oar.modules.idle_jobs.judge", lambda *_: 1 / 0)
    job = idle_job(runtime.database)  # its walltime is an hour
    assert sarko.Watcher().run(runtime, PassOrder(goes_on=goes_on)).code == SarkoCode.KILL
    with runtime.database.snapshot() as tx:
        assert tx.job_requests.jobs_to_kill([job]) == {job}


def test_looks_are_due_between_passes(runtime: Runtime) -> None:
    job = idle_job(runtime.database)
    watcher = sarko.Watcher()
    assert watcher.due() is None
    watcher.run(runtime, PassOrder(goes_on=True))
    assert not events_of(runtime.database, job)
    for _ in range(2):
        assert watcher.due() == 0
        watcher.go_on()
    assert events_of(runtime.database, job)


def test_the_cores_and_gpus_of_a_job_are_those_of_its_resources(database: Database) -> None:
    job = idle_job(database, gpus=3)
    with database.snapshot() as tx:
        candidates = tx.job_curves.idle_candidates(tx.now)
        (with_cores,) = idle_jobs.watched_jobs(tx, candidates, "cpuset")
        (without,) = idle_jobs.watched_jobs(tx, candidates, None)
        (held,) = tx.job_curves.held_units([job], None, None)
    assert (with_cores.job_id, with_cores.cores, with_cores.gpus) == (job, 3, {"node-1": 3})
    assert (without.cores, without.gpus) == (0, {"node-1": 3})
    assert (held.gpus, held.cores) == ((), ())


def test_idle_cores_are_warned_of(runtime: Runtime) -> None:
    runtime.config = runtime.config.replace(
        idle_gpu_rules=(), idle_cpu_rules=parse_rules("2 CPU below 5 % for 1h: mail", "CPU")
    )
    jobs = [idle_job(runtime.database, gpus=number) for number in (1, 2)]
    look(runtime)
    assert [bool(events_of(runtime.database, job)) for job in jobs] == [False, True]
