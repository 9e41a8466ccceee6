"""What is shown of jobs and nodes: who may see what, and how many questions it takes."""

from collections.abc import Sequence
from typing import Any

import pytest

from oar.lib.access.records import User
from oar.lib.db.database import Database
from oar.lib.db.transaction import Transaction
from oar.lib.history.event_types import EventType
from oar.lib.history.gantt import gantt
from oar.lib.jobs import output_names
from oar.lib.jobs.formats import JobRecords
from oar.lib.jobs.privacy import Privacy
from oar.lib.jobs.records import Group, Job, Level
from oar.lib.jobs.states import JobState, JobType, Reservation
from oar.lib.jobs.views import job_columns, job_views
from oar.lib.nodes.views import jobs_on_nodes, resource_views
from oar.lib.submission.sql_new_jobs import NewAlternative
from tests.builders import add_job, add_resources

ALICE = User("alice", 1000)
BOB = User("bob", 1001)
ROOT = User("root", 0)


class Counting(Transaction):
    """A transaction that counts what it is asked."""

    questions = 0

    def rows(self, sql: str, parameters: Sequence[Any] | dict[str, Any] = ()) -> list[tuple[Any, ...]]:
        """Run a query."""
        self.questions += 1
        return super().rows(sql, parameters)


def counted(database: Database, number: int) -> int:
    """Return how many questions it takes to show all details of some jobs and resources."""
    resources = add_resources(database, nodes=1, cores=1)
    for _ in range(number):
        add_job(database, JobState.RUNNING, on=resources, types=["timesharing"])
        add_job(database, reservation=Reservation.SCHEDULED)
    connection = database.connection()
    tx = Counting(connection, 0)
    job_views(tx, tx.jobs.live(), Privacy(None))
    jobs_on_nodes(tx, resource_views(tx))
    gantt(tx, 1, 2**31, Privacy(None))
    connection.close()
    return tx.questions


CORE = (Group("", (Level("resource_id", 1),)),)


def test_the_number_of_questions_does_not_depend_on_the_number_of_jobs(database: Database) -> None:
    assert counted(database, 1) == counted(database, 10)


@pytest.fixture
def job(database: Database) -> Job:
    """A job of alice's."""
    job_id = add_job(database, command="secret command", initial_request="oarsub secret")
    with database.snapshot() as tx:
        return tx.jobs.get(job_id)


@pytest.mark.parametrize(
    ("privacy", "sees_command", "sees_request"),
    [
        (Privacy(ALICE), True, True),
        (Privacy(ROOT), True, True),
        (Privacy(BOB), True, False),
        (Privacy(BOB, shows_requests=True), True, True),
        (Privacy(BOB, hides_commands=True), False, False),
        (Privacy(BOB, shows_requests=True, hides_commands=True), False, False),
        (Privacy(ALICE, hides_commands=True), True, True),
        (Privacy(ROOT, hides_commands=True), True, True),
        (Privacy(None), False, False),
        (Privacy(None, shows_requests=True), False, False),
    ],
    ids=str,
)
def test_who_sees_the_command_and_the_request(
    job: Job, privacy: Privacy, sees_command: bool, sees_request: bool
) -> None:
    of_bob = job._replace(user="bob")
    command = "secret command" if sees_command else ""
    request = "oarsub secret" if sees_request else ""
    assert privacy.command(job) == command
    assert privacy.initial_request(job) == request
    jobs = [job._replace(notify="mail:eve"), of_bob._replace(notify="mail:bob"), job]
    commands, requests, notifications = privacy.texts(jobs)
    assert notifications == list(map(privacy.notify, jobs))
    assert commands == [command, privacy.command(of_bob), command]
    assert requests == [request, privacy.initial_request(of_bob), request]


def test_records_of_a_page_are_those_of_single_jobs(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    resources = add_resources(database, nodes=1, cores=2)
    for state in (JobState.RUNNING, JobState.WAITING, JobState.TERMINATED, JobState.ERROR):
        add_job(database, state, on=resources if state is JobState.RUNNING else [], types=["timesharing", "a=b"])
        add_job(database, state, reservation=Reservation.SCHEDULED, stdout_file="%jobid%.%user%", name="50%")
        add_job(database, state, job_type=JobType.INTERACTIVE, stdout_file=None)
        requests = [CORE, CORE, (*CORE, Group("a > 1", CORE[0].levels))]
        add_job(database, state, alternatives=[NewAlternative(60 * n, asked) for n, asked in enumerate(requests)])
        add_job(database, state, properties=None, after=[1, 2])
    with database.begin() as tx:
        ids = [job_id for (job_id,) in tx.rows("SELECT job_id FROM jobs ORDER BY job_id")]
        tx.events.add(EventType.FRAG_JOB_REQUEST, ids[0], "somebody")
        moldables = tx.new_jobs.moldables_of_jobs(ids)
        for job_id in ids[2:4]:
            tx.execute("INSERT INTO gantt_jobs_predictions_visu VALUES (%s, %s)", (moldables[job_id][0].id, tx.now))
    with database.snapshot() as tx:
        records = JobRecords(job_columns(tx, tx.jobs.select(ids), Privacy(ALICE)))
    alone = {job_id: records[job_id] for job_id in records}
    assert sum("reserved_resources" in record for record in alone.values()) == 1
    for size in (1, 3, 100):
        monkeypatch.setattr("oar.lib.jobs.formats.PAGE", size)
        assert dict(records.items()) == alone
        assert [list(record) for _, record in records.items()] == [list(record) for record in alone.values()]


@pytest.mark.parametrize(
    "groups",
    [
        (),
        (Group("", ()),),
        CORE,
        (Group("a > 1", CORE[0].levels),),
        (*CORE, Group("", ())),
        (Group("", CORE[0].levels * 2),),
    ],
    ids=str,
)
def test_a_request_is_read_as_it_was_stored(database: Database, groups: tuple[Group, ...]) -> None:
    job_id = add_job(database, alternatives=[NewAlternative(100, groups), NewAlternative(200, CORE)])
    with database.snapshot() as tx:
        assert [each.groups for each in tx.new_jobs.moldables_of_jobs([job_id])[job_id]] == [groups, CORE]


def test_the_walltime_is_that_of_the_alternative_that_was_chosen(database: Database) -> None:
    job_id = add_job(database, alternatives=[NewAlternative(seconds, CORE) for seconds in (100, 200)])

    def walltime() -> int | None:
        with database.snapshot() as tx:
            return job_views(tx, tx.jobs.select([job_id]), Privacy(None))[0].walltime

    assert walltime() == 100
    with database.begin() as tx:
        second = tx.new_jobs.moldables_of_jobs([job_id])[job_id][1]
        tx.execute("INSERT INTO gantt_jobs_predictions_visu VALUES (%s, %s)", (second.id, tx.now))
    assert walltime() == 200
    with database.begin() as tx:
        tx.jobs.update(job_id, assigned_moldable_job=tx.new_jobs.moldables_of_jobs([job_id])[job_id][0].id)
    assert walltime() == 100


def test_the_patterns_of_an_output_file_are_replaced(job: Job) -> None:
    named = job._replace(id=7, array_id=5, array_index=3, name="a/b")
    pattern = "%jobid%-%jobname%-%arrayid%-%arrayindex%-%user%-%host%"
    assert output_names.expand(pattern, named, "node-1") == "7-a_b-5-3-alice-node-1"
    assert output_names.expand(pattern, named, None) == "7-a_b-5-3-alice-%host%"
    assert output_names.expand("100%", job._replace(name=None), None) == "100%"


@pytest.mark.parametrize(
    "patterns", [["%jobid%.%host%.out"] * 3, ["100%%"] * 3, ["out"] * 3, ["%jobname%", "", "%%jobid%"], []], ids=str
)
def test_output_files_of_many_jobs_are_named_as_those_of_one(job: Job, patterns: list[str]) -> None:
    jobs = [job._replace(id=number, name=f"{number}%") for number in range(len(patterns))]
    hosts = [None, "node-1", "node-2"][: len(patterns)]
    alone = list(map(output_names.expand, patterns, jobs, hosts))
    assert output_names.expand_all(patterns, jobs, hosts) == alone


def test_a_job_that_never_ran_has_no_start(job: Job) -> None:
    reservation = job._replace(start_time=2000, assigned_moldable=9)
    assert reservation.started == 0
    assert reservation._replace(state=JobState.ERROR, stop_time=1000).started == 0
    assert reservation._replace(state=JobState.ERROR, stop_time=2000).started == 2000
    assert reservation._replace(state=JobState.ERROR, stop_time=3000, assigned_moldable=0).started == 0
    assert reservation._replace(state=JobState.RUNNING).started == 2000
