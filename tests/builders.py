"""Rows for tests on the database, each written as the programs would write it.

A test says what matters to it; the rest has a value.
"""

from collections.abc import Sequence
from typing import Any

from oar.lib import lifecycle
from oar.lib.db import new_jobs
from oar.lib.db.engine import Database, Transaction
from oar.lib.db.new_jobs import Alternative, NewJob, NewJobs
from oar.lib.model import Cause, Dependency, Group, JobKeys, Level, PropertyValue
from oar.lib.states import EndCode, JobState, JobType, Reservation

#: The way of a job through its states, as far as a test may want it.
WAY = {
    JobState.WAITING: (),
    JobState.HOLD: (JobState.HOLD,),
    JobState.TO_ERROR: (JobState.TO_ERROR,),
    JobState.TO_ACK_RESERVATION: (JobState.TO_ACK_RESERVATION,),
    JobState.TO_LAUNCH: (JobState.TO_LAUNCH,),
    JobState.LAUNCHING: (JobState.TO_LAUNCH, JobState.LAUNCHING),
    JobState.RUNNING: (JobState.TO_LAUNCH, JobState.LAUNCHING, JobState.RUNNING),
    JobState.SUSPENDED: (JobState.TO_LAUNCH, JobState.LAUNCHING, JobState.RUNNING, JobState.SUSPENDED),
    JobState.RESUMING: (
        JobState.TO_LAUNCH,
        JobState.LAUNCHING,
        JobState.RUNNING,
        JobState.SUSPENDED,
        JobState.RESUMING,
    ),
    JobState.FINISHING: (JobState.TO_LAUNCH, JobState.LAUNCHING, JobState.RUNNING, JobState.FINISHING),
    JobState.TERMINATED: (
        JobState.TO_LAUNCH,
        JobState.LAUNCHING,
        JobState.RUNNING,
        JobState.FINISHING,
        JobState.TERMINATED,
    ),
    JobState.ERROR: (JobState.ERROR,),
}

PLAIN = NewJob(
    id=0,
    array_id=0,
    array_index=1,
    initial_request="oarsub true",
    name=None,
    cpuset_name="",
    job_type=JobType.PASSIVE,
    info_type="frontend",
    state=JobState.WAITING,
    reservation=Reservation.NONE,
    message="",
    user="alice",
    project="default",
    command="true",
    queue="default",
    properties="",
    launching_directory="/home/alice",
    start_time=0,
    file_id=None,
    notify=None,
    checkpoint=0,
    checkpoint_signal=12,
    stdout_file="OAR.%jobid%.stdout",
    stderr_file="OAR.%jobid%.stderr",
    resubmit_job_id=0,
    env=None,
)


def add_resources(database: Database, nodes: int = 2, cores: int = 2, **columns: str | int) -> list[int]:
    """Add ``nodes`` nodes (``node-1``...) of ``cores`` resources each; return their ids."""
    rows: list[dict[str, PropertyValue]] = [
        {"network_address": f"node-{node}", "cpuset": str(core), "state_num": 1, **columns}
        for node in range(1, nodes + 1)
        for core in range(cores)
    ]
    with database.begin() as tx:
        ids = tx.resources.insert(rows)
        tx.resources.log(ids, "state", "Alive")
    return ids


def add_job(
    database: Database,
    state: JobState = JobState.WAITING,
    *,
    on: Sequence[int] = (),
    walltime: int = 3600,
    alternatives: Sequence[Alternative] = (),
    types: Sequence[str] = (),
    after: Sequence[int] = (),
    **columns: Any,
) -> int:
    """Add a job that has come as far as ``state`` on the resources ``on``; return its id.  ``after``: dependencies."""
    default = Alternative(walltime, (Group("", (Level("resource_id", max(1, len(on))),)),))
    new = NewJobs(
        first=PLAIN._replace(**columns),
        commands=[columns.get("command", PLAIN.command)],
        number=1,
        alternatives=alternatives or [default],
        types=types,
        dependencies=[Dependency(0, required) for required in after],
    )
    with database.begin() as tx:
        (job_id,) = new_jobs.insert(tx, new, [JobKeys("4299", None, None)])
        if on:
            _assign(tx, job_id, on)
        for step in WAY[state]:
            assert lifecycle.move(tx, job_id, step)
    return job_id


def _assign(tx: Transaction, job_id: int, resources: Sequence[int]) -> None:
    moldable = tx.jobs.moldables([job_id])[job_id][0].id
    tx.jobs.update(job_id, assigned_moldable_job=moldable, start_time=tx.now)
    tx.insert_many(
        "INSERT INTO assigned_resources (moldable_job_id, resource_id) VALUES %s",
        [(moldable, resource) for resource in resources],
    )


def for_no_reason(*ids: int) -> dict[int, Cause]:
    """Return the causes of an end that is asked without a word why."""
    return dict.fromkeys(ids, Cause(EndCode.STOPPED))


def state_of(database: Database, job_id: int) -> JobState:
    """Return the state of a job."""
    with database.begin() as tx:
        return tx.jobs.get(job_id).state
