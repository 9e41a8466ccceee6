"""A job's state changes through one door, with all its traces: oar/lib/jobs/lifecycle.py."""

import itertools
import threading

import pytest

from oar.lib.bus.messages import Ask, JobAction, Notice, Tag, Wake
from oar.lib.db.connections import DatabaseSettings
from oar.lib.db.database import Database
from oar.lib.history.event_types import EventType
from oar.lib.jobs import lifecycle
from oar.lib.jobs.ends import Cause, EndCode
from oar.lib.jobs.records import NodeUsage
from oar.lib.jobs.states import FINAL, JobState, KillState
from tests.builders import WAY, add_job, add_resources, for_no_reason, state_of
from tests.process.this_machine import wait_until


@pytest.mark.parametrize("state", list(WAY), ids=str)
def test_each_state_can_be_reached_with_a_log_without_gap(database: Database, state: JobState) -> None:
    job_id = add_job(database, state, on=add_resources(database))
    with database.begin() as tx:
        changes = tx.jobs.state_changes([job_id])[job_id]
    assert [change.state for change in changes] == [JobState.WAITING, *WAY[state]]
    assert all(before.stop == after.start for before, after in itertools.pairwise(changes))
    assert (changes[-1].stop == 0) is (state not in FINAL)


def test_a_move_that_is_not_legal_changes_nothing(database: Database) -> None:
    job_id = add_job(database)
    with database.begin() as tx:
        assert not lifecycle.move(tx, job_id, JobState.RUNNING)
        assert tx.outbox == []
    assert state_of(database, job_id) is JobState.WAITING


def test_of_two_that_move_one_wins(database: Database) -> None:
    job_id = add_job(database)
    start = threading.Barrier(2, timeout=120)
    won: list[JobState] = []

    def race(to: JobState) -> None:
        with database.begin() as tx:
            start.wait()
            if lifecycle.move(tx, job_id, to):
                won.append(to)

    racers = [threading.Thread(target=race, args=(to,)) for to in (JobState.TO_LAUNCH, JobState.ERROR)]
    for racer in racers:
        racer.start()
    for racer in racers:
        racer.join(120)
    # toLaunch may still become Error, Error never becomes toLaunch
    assert won in ([JobState.TO_LAUNCH], [JobState.ERROR], [JobState.TO_LAUNCH, JobState.ERROR])
    assert state_of(database, job_id) is won[-1]


def test_a_move_that_waited_for_another_one_continues_its_log(database: Database) -> None:
    job_id = add_job(database)

    def end() -> None:
        with database.begin() as tx:
            assert lifecycle.move(tx, job_id, JobState.ERROR)

    ending = threading.Thread(target=end)
    with database.begin() as tx:
        assert lifecycle.move(tx, job_id, JobState.TO_LAUNCH)
        ending.start()
        wait_until(lambda: bool(tx.value("SELECT count(*) FROM pg_locks WHERE NOT granted")))
    ending.join(120)
    with database.begin() as tx:
        changes = tx.jobs.state_changes([job_id])[job_id]
    assert [change.state for change in changes] == [JobState.WAITING, JobState.TO_LAUNCH, JobState.ERROR]
    assert all(change.stop for change in changes)


def test_the_end_takes_everything_of_the_job_with_it(database: Database) -> None:
    resources = add_resources(database)
    job_id = add_job(database, JobState.FINISHING, on=resources, types=["besteffort"])
    with database.begin() as tx:
        tx.job_runs.claim(job_id, "node-1")
        tx.job_requests.request_kill(for_no_reason(job_id))
        moldable = tx.jobs.get(job_id).assigned_moldable
        tx.execute("INSERT INTO gantt_jobs_predictions VALUES (%s, 1)", (moldable,))
        tx.execute("INSERT INTO gantt_jobs_resources VALUES (%s, %s)", (moldable, resources[0]))
        assert lifecycle.move(tx, job_id, JobState.TERMINATED)
        end = tx.now
    with database.begin() as tx:
        job = tx.jobs.get(job_id)
        kill = tx.job_requests.find_kill(job_id)
        keys = tx.access.find_challenge(job_id)
        assert job.stop_time > 0
        assert tx.jobs.types([job_id], current=True) == {}
        assert tx.jobs.assigned([job_id], current=True) == {}
        assert [held.id for held in tx.jobs.assigned([job_id])[job_id]] == resources
        assert tx.job_runs.find(job_id) is None
        assert kill is not None
        assert kill.state is KillState.FRAGGED
        assert keys is not None
        assert keys.challenge == ""
        assert tx.value("SELECT count(*) FROM gantt_jobs_predictions WHERE moldable_job_id = %s", (moldable,)) == 0
        assert tx.value("SELECT count(*) FROM gantt_jobs_resources WHERE moldable_job_id = %s", (moldable,)) == 0
        assert {resource.properties["last_job_date"] for resource in tx.resources.all()} == {end}


def test_suspension_is_noted_on_the_resources_and_forgotten_after_it(database: Database) -> None:
    resources = add_resources(database, nodes=2, cores=1)
    job_id = add_job(database, JobState.SUSPENDED, on=resources[:1])
    with database.begin() as tx:
        assert [resource.suspended_jobs for resource in tx.resources.all()] == [True, False]
        assert lifecycle.move(tx, job_id, JobState.RESUMING)
        assert lifecycle.move(tx, job_id, JobState.RUNNING)
        assert [resource.suspended_jobs for resource in tx.resources.all()] == [False, False]
        assert tx.jobs.get(job_id).suspended
        assert Wake(Tag.VILLAINS) in tx.outbox  # its walltime goes on


@pytest.mark.parametrize("asked", [True, False])
def test_who_asked_for_a_suspension_during_the_launch_has_not_to_ask_again(database: Database, asked: bool) -> None:
    job_id = add_job(database, JobState.LAUNCHING, on=add_resources(database))
    with database.begin() as tx:
        tx.events.add(EventType.HOLD_RUNNING_JOB, job_id, "", to_check=asked)
        lifecycle.move(tx, job_id, JobState.RUNNING)
        assert (Wake(Tag.CHSTATE) in tx.outbox) is asked


def test_who_is_told_what(database: Database) -> None:
    job_id = add_job(
        database, JobState.LAUNCHING, on=add_resources(database), notify="mail:alice@example.org", name="x"
    )
    with database.begin() as tx:
        lifecycle.move(tx, job_id, JobState.RUNNING)
        tx.jobs.update(job_id, exit_code=256)
        lifecycle.move(tx, job_id, JobState.FINISHING)
        lifecycle.move(tx, job_id, JobState.TERMINATED)
        notices = [effect for effect in tx.outbox if isinstance(effect, Notice)]
        assert [notice.tag for notice in notices] == ["RUNNING", "END"]
        assert notices[1].text == "Job stopped normally.\nexit_code: 256 (1,0,0)"
        assert [notice.why for notice in notices] == ["", "Outcome: failed\nIts command ended with exit status 1."]
        assert Wake(Tag.CHSTATE) in tx.outbox


def test_who_is_told_of_the_end_is_told_what_the_job_used(settings: DatabaseSettings) -> None:
    now = 1_930_000_000
    database = Database(settings, clock=lambda: now)
    resources = add_resources(database, nodes=2, cores=2)
    jobs = [add_job(database, JobState.RUNNING, on=resources, notify=notify) for notify in ("mail:a@b.org", None)]
    now += 100
    with database.begin() as tx:
        used = [NodeUsage("node-1", 2, 90.0, 3 << 29, None, 0, 0), NodeUsage("node-2", 2, 10.0, 1 << 20, None, 0, 0)]
        tx.job_runs.add_usage([(job, one) for job in jobs for one in used])
        lifecycle.move_all(tx, jobs, JobState.FINISHING)
        lifecycle.move_all(tx, jobs, JobState.TERMINATED, because=dict.fromkeys(jobs, Cause(EndCode.SUCCESS)))
        (notice,) = [effect for effect in tx.outbox if isinstance(effect, Notice)]
    assert notice.why == "Outcome: done\nIt used 25.0% of 4 cores, and at most 1.5 GiB of memory on a node."
    database.close()


def test_a_job_that_is_to_be_launched_rings_the_runner(database: Database) -> None:
    job_id = add_job(database)
    with database.begin() as tx:
        lifecycle.move(tx, job_id, JobState.TO_LAUNCH)
        assert tx.outbox == [Ask(JobAction.RUN, job_id)]


@pytest.mark.parametrize("state", sorted(FINAL), ids=str)
def test_what_a_node_tells_of_a_job_that_has_ended_leaves_nothing(database: Database, state: JobState) -> None:
    job_id = add_job(database, state, on=add_resources(database))
    with database.begin() as tx:
        assert not tx.job_runs.report(job_id, 0, 0)
        assert tx.job_runs.find(job_id) is None
