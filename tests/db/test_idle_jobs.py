"""Idle jobs are warned, then ended, if the site has rules; who is exempt is left alone."""

from collections.abc import Sequence

import pytest

from oar.lib.bus.messages import Effect, UserMail
from oar.lib.config.idle_rules import parse_rules
from oar.lib.db.database import Database
from oar.lib.history.event_types import EventType
from oar.lib.jobs.curves import PERIOD, Sample
from oar.lib.jobs.ends import EndCode
from oar.lib.jobs.sql_curves import NewPoints
from oar.lib.jobs.states import JobState, Reservation
from oar.lib.runtime import Runtime
from oar.modules import idle_jobs
from tests.builders import add_job, add_resources, execute_sql

STEPS = 240
RULES = "1 GPU below 5 % for 1h: mail, then end after 30m"


@pytest.fixture
def runtime(runtime: Runtime) -> Runtime:
    """A site with a rule about idle GPUs."""
    runtime.config = runtime.config.replace(idle_gpu_rules=parse_rules(RULES, "GPU"))
    return runtime


def idle_job(database: Database, use: int = 0, types: Sequence[str] = (), state: JobState = JobState.RUNNING) -> int:
    """Add a job that has run for two hours, with GPUs that it uses so much (per mille)."""
    job_id = add_job(database, state, on=add_resources(database, nodes=1, cores=1), types=types)
    seconds = STEPS * PERIOD
    execute_sql(database, "UPDATE jobs SET start_time = start_time - %s WHERE job_id = %s", seconds, job_id)
    execute_sql(database, "UPDATE job_state_logs SET date_start = date_start - %s WHERE job_id = %s", seconds, job_id)
    with database.begin() as tx:
        points = [(place, Sample(0, 0, use, 0, 2)) for place in range(STEPS)]
        tx.job_curves.append([NewPoints(job_id, "node-1", tx.now - seconds, PERIOD, points)])
    return job_id


def look(runtime: Runtime) -> None:
    idle_jobs.look(runtime, idle_jobs.rules_of(runtime.config))


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
    assert "It is ended at" in mail.text
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
    idle_jobs.IdleWatch().follow(runtime)
    assert not events_of(runtime.database, job)
