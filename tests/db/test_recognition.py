"""Jobs that wait in a restored database and run on a node: oar/lib/jobs/recovery.py."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import pytest

from oar.lib.bus.frames import EndReport
from oar.lib.db.database import Database
from oar.lib.history.event_types import EventType
from oar.lib.jobs.records import Group, Level
from oar.lib.jobs.recovery import FoundJob, recognise
from oar.lib.jobs.states import JobState, JobType, Phase
from oar.lib.nodes import state_changes
from oar.lib.nodes.restoration import after_restore
from oar.lib.nodes.states import ResourceState
from oar.lib.remote.protocol import ReportAnswer
from oar.lib.submission.sql_new_jobs import NewAlternative
from oar.modules.runner.actions.probe import read_job
from oar.modules.runner.end_reports import EndReports
from tests.builders import add_job, add_resources, for_no_reason, state_of

HOST = "node-1"
#: That of the jobs of tests/builders.py.
CHALLENGE = "4299"
DIGEST = hashlib.sha256(CHALLENGE.encode()).hexdigest()


def found(database: Database, job_id: int, resources: list[int]) -> FoundJob:
    """What its head tells of a job that it started a minute ago, at its second attempt."""
    with database.begin() as tx:
        alternative = tx.new_jobs.moldables_of_jobs([job_id])[job_id][-1].id
    return FoundJob(job_id, "alice", DIGEST, 2, "boot", 60, alternative, tuple(resources))


def recognised(database: Database, told: FoundJob, host: str = HOST) -> list[int]:
    with database.begin() as tx:
        state_changes.suspect(tx, {one.network_address for one in tx.resources.all()}, finaud=True)
        return recognise(tx, host, [told])


def test_a_job_of_which_all_is_known_runs_since_it_was_started(database: Database) -> None:
    resources = add_resources(database)
    job_id = add_job(database)
    with database.begin() as tx:
        tx.jobs.update(job_id, submission_time=1)
        before = tx.now
    assert recognised(database, found(database, job_id, resources)) == [job_id]
    with database.begin() as tx:
        job, run = tx.jobs.get(job_id), tx.job_runs.find(job_id)
        assert (job.state, before - 60 <= job.start_time <= tx.now - 60) == (JobState.RUNNING, True)
        assert [one.id for one in tx.jobs.assigned([job_id], current=True)[job_id]] == resources
        assert [change.state for change in tx.jobs.state_changes([job_id])[job_id]] == [
            *(JobState.WAITING, JobState.TO_LAUNCH, JobState.LAUNCHING, JobState.RUNNING)
        ]
        (event,) = tx.events.of_jobs([job_id])[job_id]
    assert run is not None
    assert (run.attempt, run.phase, run.head_host, run.boot_id) == (2, Phase.STARTED, HOST, "boot")
    assert (event.type, event.hosts) == (EventType.JOB_RECOGNISED, (HOST,))


def test_the_alternative_is_the_one_that_was_started(database: Database) -> None:
    resources = add_resources(database)
    ways = [NewAlternative(walltime, (Group("", (Level("resource_id", 1),)),)) for walltime in (60, 7200)]
    job_id = add_job(database, alternatives=ways)
    recognised(database, found(database, job_id, resources[:1]))
    with database.begin() as tx:
        assert tx.jobs.read_details([job_id])[job_id].walltime == 7200


def test_a_job_that_was_held_at_the_time_of_the_dump_runs_too(database: Database) -> None:
    resources = add_resources(database)
    job_id = add_job(database, JobState.HOLD)
    assert recognised(database, found(database, job_id, resources)) == [job_id]
    assert state_of(database, job_id) is JobState.RUNNING


@pytest.mark.parametrize(
    "changes",
    [
        {"user": "bob"},
        {"digest": hashlib.sha256(b"another secret").hexdigest()},
        {"digest": ""},
        {"alternative": 424242},
        {"resources": ()},
        {"resources": (424242,)},
    ],
)
def test_a_job_of_which_something_does_not_agree_is_none_of_ours(database: Database, changes: dict[str, Any]) -> None:
    resources = add_resources(database)
    job_id = add_job(database)
    assert recognised(database, found(database, job_id, resources)._replace(**changes)) == []
    assert state_of(database, job_id) is JobState.WAITING


def test_a_node_speaks_for_jobs_of_which_it_is_the_head(database: Database) -> None:
    resources = add_resources(database)
    job_id = add_job(database)
    assert recognised(database, found(database, job_id, resources), "node-2") == []
    assert recognised(database, found(database, job_id, resources[2:]), "node-2") == [job_id]


@pytest.mark.parametrize(
    "columns", [{"job_type": JobType.INTERACTIVE}, {"types": ("inner=1",)}, {"state": JobState.RUNNING}]
)
def test_jobs_that_are_more_than_a_command_are_not_recognised(database: Database, columns: Mapping[str, Any]) -> None:
    resources = add_resources(database)
    job_id = add_job(database, **columns)
    assert recognised(database, found(database, job_id, resources)) == []


def test_a_job_that_somebody_deletes_meanwhile_is_not_recognised(database: Database) -> None:
    resources = add_resources(database)
    job_id = add_job(database)
    with database.begin() as tx:
        tx.job_requests.request_kill(for_no_reason(job_id))
    assert recognised(database, found(database, job_id, resources)) == []


def test_unknown_jobs_are_not_recognised(database: Database) -> None:
    resources = add_resources(database)
    job_id = add_job(database)
    assert recognised(database, found(database, job_id, resources)._replace(job_id=job_id + 1)) == []


def test_the_end_of_a_job_that_waits_here_is_to_be_told_again(database: Database) -> None:
    resources = add_resources(database)
    job_id = add_job(database)
    report, lie = EndReport(-1, job_id, 0, "0", CHALLENGE, 0), EndReport(-1, job_id, 0, "0", "1", 0)
    with database.begin() as tx:
        assert EndReports().store(tx, [report, lie]) == [ReportAnswer.LATER, ReportAnswer.GONE]
    recognised(database, found(database, job_id, resources))
    with database.begin() as tx:
        assert EndReports().store(tx, [report]) == [ReportAnswer.OK]
    assert state_of(database, job_id) is JobState.FINISHING


RECORD = {"alternative": 7, "resources": [1, 2]}
PLAIN = {"job_id": 3, "user": "alice", "challenge": DIGEST, "attempt": 2, "boot_id": "boot", "ago": 60}
LINE = {**PLAIN, "record": RECORD}
NUMBERS = ("job_id", "attempt", "ago", "record")
NO_NUMBERS: tuple[object, ...] = (None, {}, -1, True, 2**70)


def test_what_a_node_tells_is_read() -> None:
    assert read_job(json.dumps(LINE)) == FoundJob(3, "alice", DIGEST, 2, "boot", 60, 7, (1, 2))


@pytest.mark.parametrize(
    "text",
    [
        *("", "x", "[]", "1", "{}"),
        *(json.dumps(LINE | {name: value}) for name in NUMBERS for value in NO_NUMBERS),
        *(json.dumps(LINE | {"record": RECORD | {name: value}}) for name in RECORD for value in NO_NUMBERS),
    ],
)
def test_what_no_node_tells_is_dropped(text: str) -> None:
    assert read_job(text) is None


def test_nodes_that_were_away_are_asked_when_they_come_back(database: Database) -> None:
    away = add_resources(database, nodes=1, network_address="node-9")
    with database.begin() as tx:
        tx.resources.move(away, ResourceState.ABSENT, finaud=False)
        assert after_restore(tx).away == ("node-9",)
        assert tx.resources.to_sweep() == []  # nobody waits for it
        assert [event.hosts for event in tx.events.open([EventType.NODE_SURVEY])] == [("node-9",)]


def test_a_job_one_of_whose_nodes_was_swept_already_is_not_recognised(database: Database) -> None:
    resources = add_resources(database)
    told = found(database, add_job(database), resources)
    with database.begin() as tx:
        state_changes.suspect(tx, [HOST], finaud=True)
        assert recognise(tx, HOST, [told]) == []


def test_nodes_that_are_not_swept_are_not_asked_either(database: Database) -> None:
    add_resources(database)
    with database.begin() as tx:
        after_restore(tx)
        assert [event.hosts for event in tx.events.open([EventType.NODE_SURVEY])] == [("node-1",), ("node-2",)]
        state_changes.apply_pending(tx, sweeps=False)
        assert tx.events.open([EventType.NODE_SURVEY]) == []
