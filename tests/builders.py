"""Rows for tests on the database, each written as the programs would write it.

A test says what matters to it; the rest has a value.
"""

from collections.abc import Sequence
from typing import Any

from oar.lib.db.database import Database
from oar.lib.db.transaction import Transaction
from oar.lib.jobs import lifecycle
from oar.lib.jobs.ends import Cause, EndCode
from oar.lib.jobs.records import Dependency, Group, JobKeys, JobSpec, Level
from oar.lib.jobs.states import JobState, JobType
from oar.lib.nodes.records import PropertyValue
from oar.lib.submission.sql_new_jobs import JobBatch, NewAlternative, NewJob

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
    spec=JobSpec(
        user="alice",
        command="true",
        project="default",
        queue="default",
        properties="",
        launching_directory="/home/alice",
        stdout_file="OAR.%jobid%.stdout",
        stderr_file="OAR.%jobid%.stderr",
        checkpoint_signal=12,
        info_type="frontend",
        initial_request="oarsub true",
    ),
    job_type=JobType.PASSIVE,
    state=JobState.WAITING,
    message="",
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
    alternatives: Sequence[NewAlternative] = (),
    types: Sequence[str] = (),
    after: Sequence[int] = (),
    **columns: Any,
) -> int:
    """Add a job that has come as far as ``state`` on the resources ``on``; return its id.  ``after``: dependencies."""
    default = NewAlternative(walltime, (Group("", (Level("resource_id", max(1, len(on))),)),))
    of_spec = {name: value for name, value in columns.items() if name in JobSpec._fields}
    beside = {name: value for name, value in columns.items() if name not in of_spec}
    new = JobBatch(
        first=PLAIN._replace(spec=PLAIN.spec._replace(types=tuple(types), **of_spec), **beside),
        alternatives=alternatives or [default],
        dependencies=[Dependency(0, required) for required in after],
    )
    with database.begin() as tx:
        (job_id,) = tx.new_jobs.insert(new, [JobKeys("4299", None, None)])
        if on:
            _assign(tx, job_id, on)
        for step in WAY[state]:
            assert lifecycle.move(tx, job_id, step)
    return job_id


def add_array(database: Database, size: int, **columns: Any) -> list[int]:
    """Add an array of jobs that wait, each for one resource; return their ids."""
    one = NewAlternative(3600, (Group("", (Level("resource_id", 1),)),))
    new = JobBatch(PLAIN._replace(spec=PLAIN.spec._replace(array_size=size, **columns)), [one])
    with database.begin() as tx:
        return tx.new_jobs.insert(new, [JobKeys("4299", None, None)] * size)


def _assign(tx: Transaction, job_id: int, resources: Sequence[int]) -> None:
    moldable = tx.new_jobs.moldables_of_jobs([job_id])[job_id][0].id
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


def execute_sql(database: Database, statement: str, *parameters: object) -> None:
    """Execute a statement that no program of ours would."""
    with database.begin() as tx:
        tx.execute(statement, parameters)


def move_job(database: Database, job_id: int, *states: JobState) -> None:
    """Move a job through states, each of which must be allowed."""
    with database.begin() as tx:
        for state in states:
            assert lifecycle.move(tx, job_id, state)
