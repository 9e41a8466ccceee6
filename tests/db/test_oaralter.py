"""What oaralter changes, and what it refuses."""

import json
from pathlib import Path

import pytest

from oar.cli import oaralter, oarsub
from oar.cli.common.command import CommandResult
from oar.kao.rounds.meta_sched import MetaScheduler
from oar.lib.access.records import User
from oar.lib.bus.messages import Tag, Wake
from oar.lib.db.database import Database
from oar.lib.history.event_types import EventType
from oar.lib.jobs import lifecycle
from oar.lib.jobs.job_lists import WAY_OUT
from oar.lib.jobs.records import Dependency, Job, Queue
from oar.lib.jobs.states import JobState, QueueState
from oar.lib.runtime import Runtime
from tests.builders import add_job, add_resources, for_no_reason
from tests.frontend import ALICE, Frontend, add_rules

BOB, ROOT = User("bob", 0), User("root", 0)
WAY = f"# W{WAY_OUT[1:]}\n"


class Site(Frontend):
    """Two nodes, with the default rules and a second queue."""

    def submit(self, *words: object) -> Job:
        """Submit a job of alice."""
        result = self.type(oarsub.main, *words, "true")
        assert result.exit == 0, result.err
        return self.jobs()[-1]

    def alter(self, *words: object, user: User = ALICE) -> CommandResult:
        """Type oaralter."""
        return self.type(oaralter.main, *words, user=user)

    def job(self, job_id: int) -> Job:
        """Return a job."""
        with self.database.snapshot() as tx:
            return tx.jobs.get(job_id)

    def request(self, job_id: int) -> list[tuple[int, object]]:
        """Return what it asks for: of each alternative the walltime and the groups."""
        with self.database.snapshot() as tx:
            return [(each.walltime, each.groups) for each in tx.new_jobs.moldables_of_jobs([job_id])[job_id]]

    def needs(self, job_id: int) -> list[Dependency]:
        """Return its dependencies."""
        with self.database.snapshot() as tx:
            return tx.jobs.dependencies([job_id]).get(job_id, [])


@pytest.fixture
def site(database: Database) -> Site:
    add_resources(database)
    add_rules(database, "if project == 'secret' and user != 'bob': reject('[ADMISSION RULE] not yours')")
    return Site(database)


def done(job: Job) -> CommandResult:
    """Return what is said of a change."""
    return CommandResult(0, f"[{job.id}] The job was altered.\n", "")


def refused(job: Job, reason: str) -> CommandResult:
    """Return what is said of one that cannot be."""
    return CommandResult(1, "", f"/!\\ Cannot alter {job.id}: {reason}\n")


def test_a_change_of_a_job_on_hold_wakes_no_round(site: Site) -> None:
    job = site.submit("--hold")
    assert site.alter("-n", "new", job.id) == done(job)
    assert site.told == []


def test_what_a_job_is_called_and_counted_for(site: Site) -> None:
    job = site.submit("-n", "old")
    assert site.alter("-n", "new", "--project", "bio", "--notify", "mail:a@example.org", job.id) == done(job)
    altered = site.job(job.id)
    assert (altered.name, altered.project, altered.notify) == ("new", "bio", "mail:a@example.org")
    assert altered.message == "R=1,W=2:0:0,J=B,N=new,P=bio"
    assert (altered.properties, altered.queue, altered.submission_time) == (
        job.properties,
        job.queue,
        job.submission_time,
    )
    assert site.told[-1] == Wake(Tag.TERM)
    with site.database.begin() as tx:
        (event,) = tx.events.of_types(job.id, [EventType.ALTER])
    assert event.description == (
        f"User alice altered the job {job.id}: name = 'new', project = 'bio', notify = 'mail:a@example.org'"
    )


def test_a_new_condition_gets_what_the_rules_add(site: Site) -> None:
    job = site.submit("-p", "cpuset = '0'")
    site.alter("-p", "cpuset = '1' OR cpuset = '0'", job.id)
    expected = site.submit("-p", "cpuset = '1' OR cpuset = '0'")
    assert site.job(job.id).properties == expected.properties
    assert site.alter("-p", "", job.id) == done(job)
    assert site.job(job.id).properties == site.submit().properties


def test_dependencies_are_replaced(site: Site) -> None:
    first, second, job = site.submit(), site.submit(), site.submit()
    site.alter("-a", first.id, "-a", f"{second.id}:any", job.id)
    assert site.needs(job.id) == [Dependency(job.id, first.id), Dependency(job.id, second.id, "any")]
    site.alter("-a", second.id, job.id)
    assert site.needs(job.id) == [Dependency(job.id, second.id)]
    site.alter("-n", "x", job.id)
    assert len(site.needs(job.id)) == 1
    site.alter("-a", "", job.id)
    assert site.needs(job.id) == []


def test_dependencies_that_close_a_cycle_are_refused(site: Site) -> None:
    first = site.submit()
    second = site.submit("-a", first.id)
    third = site.submit("-a", second.id)
    result = site.alter("-a", third.id, first.id)
    text = f"job {third.id} depends on job {first.id}: they would wait for each other. Alter job {third.id} first."
    assert result == refused(first, f"a job cannot depend on its dependants: {text}")
    assert site.needs(first.id) == []
    site.alter("-a", "", second.id)
    assert site.alter("-a", third.id, first.id) == done(first)


def test_an_ended_job_closes_no_cycle(site: Site) -> None:
    first = site.submit()
    second = site.submit("-a", first.id)
    with site.database.begin() as tx:
        lifecycle.move_all(tx, [second.id], JobState.ERROR, because=for_no_reason(second.id))
    assert site.alter("-a", second.id, first.id) == done(first)


def test_what_a_submission_would_refuse_is_refused(site: Site) -> None:
    job = site.submit()
    for words, reason in [
        (("-a", 4711), "dependency on unknown job 4711."),
        (("-a", job.id), "a job cannot depend on itself."),
        (
            ("-a", f"{job.id}[]"),
            "-a id[] is possible at submission only. Write id[*] for all jobs of the array, or the id of one job.",
        ),
        (("--project", "secret"), "[ADMISSION RULE] not yours"),
        (("-q", "besteffort"), "the rules of the site would also change its types: submit another job."),
    ]:
        assert site.alter(*words, job.id) == refused(job, reason)
    for words in [("-p", "1=1; DROP TABLE jobs"), ("-p", "cpuset = '77'"), ("-q", "none"), ("-n", "x" * 101)]:
        result = site.alter(*words, job.id)
        assert (result.exit, result.out) == (1, ""), words
    assert site.job(job.id) == job
    assert site.ask(lambda tx: tx.events.of_types(job.id, [EventType.ALTER])) == []


def test_a_queue_that_the_rules_do_not_allow_is_refused(site: Site) -> None:
    job = site.submit("-t", "besteffort")
    assert site.alter("-q", "default", job.id) == refused(
        job, "the rules of the site keep it in the queue besteffort: submit another job."
    )
    assert site.job(job.id) == job


def test_a_job_that_could_never_start_is_not_altered_but_refused(site: Site) -> None:
    site.config = site.config.replace(scheduler_token_scripts={"matlab": "echo 1"})
    job = site.submit("-t", "token:matlab=1")
    site.config = site.config.replace(scheduler_token_scripts=None)
    assert site.alter("-l", "nodes=2", job.id) == refused(
        job, 'this site has no token "matlab" (SCHEDULER_TOKEN_SCRIPTS): it has none.'
    )


def test_no_queue_is_entered_round_what_its_rules_ask_for(site: Site, database: Database) -> None:
    with database.begin() as tx:
        for name in ("short", "first", "free"):
            tx.queues.insert(Queue(name, 1, "kamelot", QueueState.ACTIVE))
    add_rules(
        database,
        "if queue == 'short': resource_request[0][1] = min(resource_request[0][1], 60)",
        "if queue == 'first': add_property(\"network_address = 'node-1'\")",
        defaults=False,
    )
    job = site.submit()
    for queue in ("short", "first"):
        reason = "the rules of the site would also change its resources: submit another job."
        assert site.alter("-q", queue, job.id) == refused(job, reason)
    assert site.alter("-q", "first", "-p", "cpuset = '0'", job.id) == done(job)
    altered = site.job(job.id)
    assert (altered.queue, "network_address = 'node-1'" in (altered.properties or "")) == ("first", True)
    other = site.submit()
    assert site.alter("-q", "free", other.id) == done(other)


def test_another_request_is_one_of_a_submission(site: Site, database: Database) -> None:
    add_rules(
        database,
        "if resource_request[0][1] > 7200 and user != 'root': reject('[ADMISSION RULE] at most two hours')",
        "if resource_request[0][1] > 3600: queue = 'admin'",
        "if resource_request[0][1] < 60: hold = True",
        defaults=False,
    )
    job = site.submit("-l", "/nodes=1,walltime=0:10")
    assert site.alter("-l", "/nodes=2/resource_id=1,walltime=1:00", job.id) == done(job)
    expected = site.submit("-l", "/nodes=2/resource_id=1,walltime=1:00")
    assert site.request(job.id) == site.request(expected.id)
    assert site.job(job.id).message == expected.message
    assert site.alter("-l", "walltime=0:20", job.id) == done(job)
    assert site.request(job.id) == site.request(site.submit("-l", "/nodes=2/resource_id=1,walltime=0:20").id)
    assert site.alter("-l", "{cpuset = '0'}/resource_id=1", "-l", "/nodes=1,walltime=1", job.id) == done(job)
    both = site.submit("-l", "{cpuset = '0'}/resource_id=1,walltime=0:20", "-l", "/nodes=1,walltime=1")
    assert site.request(job.id) == site.request(both.id)
    assert site.alter("-l", "walltime=0:5", job.id) == done(job)
    assert [each[0] for each in site.request(job.id)] == [300, 300]
    before = site.request(job.id)
    other_job = "the rules of the site would also change its {}: submit another job."
    for text, reason in [
        ("walltime=3", "[ADMISSION RULE] at most two hours"),
        ("walltime=2", other_job.format("queue")),
        ("walltime=0:0:30", other_job.format("hold")),
    ]:
        assert site.alter("-l", text, job.id) == refused(job, reason)
    for text in ("/nodes=3", "/nodes=", "walltime=0", "/nothing=1", "{1=1; DROP TABLE jobs}/resource_id=1", ""):
        result = site.alter("-l", text, job.id)
        assert (result.exit, result.out) == (1, ""), text
    assert site.request(job.id) == before
    tables = ("moldable_job_descriptions", "job_resource_groups")
    assert [site.count(table) for table in tables] == [2 * 2 + 2] * 2  # of three other jobs and this one


def test_what_can_no_longer_be_satisfied_may_ask_for_less(site: Site, database: Database) -> None:
    job = site.submit("-l", "/nodes=2")
    with database.begin() as tx:
        tx.execute("UPDATE resources SET state = 'Dead' WHERE network_address = 'node-2'")
        tx.execute("DELETE FROM resources WHERE network_address = 'node-2'")
    assert site.alter("-l", "/nodes=1", job.id) == done(job)


def test_whose_jobs_and_which(site: Site) -> None:
    job = site.submit()
    assert site.alter("-n", "x", job.id, user=BOB) == refused(
        job, f"you are not the right user for job {job.id}. This job is owned by alice."
    )
    assert site.alter("-n", "x", job.id, user=ROOT) == done(job)
    assert site.alter("-n", "x", 4711) == CommandResult(1, "", "/!\\ Cannot alter 4711: this job does not exist.\n")
    running = site.job(add_job(site.database, JobState.RUNNING, on=[1]))
    assert site.alter("-n", "x", running.id) == refused(running, "the job is not in the Waiting or Hold state.")
    assert site.alter("-n", "x", "abc") == CommandResult(2, "", f'[ERROR] "abc" is not a valid job identifier\n{WAY}')
    for words in [(), ("-n", "x"), (job.id,)]:
        assert site.alter(*words).exit == 1
        assert site.alter(*words).err.startswith("Usage: oaralter")


def test_a_reservation_stays_as_it_was_promised(site: Site) -> None:
    job = site.job(add_job(site.database, reservation="Scheduled"))
    assert site.alter("-n", "x", job.id) == refused(
        job, "a reservation cannot be altered: delete it and submit another one."
    )


def test_all_jobs_of_an_array_and_a_document(site: Site) -> None:
    last = site.submit("--array", 2, "--hold")
    told = json.loads(site.alter("-J", "-n", "part", "--array", last.array_id).out)
    assert [(each["job_id"], each["ok"]) for each in told] == [(last.array_id, True), (last.id, True)]
    assert {job.name for job in site.jobs()} == {"part"}
    assert site.alter("-l", "/nodes=2,walltime=1", "--array", last.array_id).exit == 0
    assert site.request(last.array_id) == site.request(last.id)
    assert site.request(last.id)[0][0] == 3600
    refusal = site.alter("-l", "/nodes=3", "--array", last.array_id).err
    assert refusal.count("There are not enough resources") == 2


def test_a_job_of_an_array_that_differs_is_looked_at_by_itself(site: Site, database: Database) -> None:
    add_rules(database, "if name == 'large' and resource_request[0][1] < 3600: reject('too short')", defaults=False)
    last = site.submit("--array", 2, "--hold")
    assert site.alter("-n", "large", last.id) == done(last)
    result = site.alter("-l", "walltime=0:10", "--array", last.array_id)
    assert result.out == f"[{last.array_id}] The job was altered.\n"
    assert result.err == f"/!\\ Cannot alter {last.id}: too short\n"


def test_the_next_round_plans_with_what_is_new(site: Site, tmp_path: Path) -> None:
    with site.database.snapshot() as tx:
        on_first = [each.id for each in tx.resources.all() if each.network_address == "node-1"]
    add_job(site.database, JobState.RUNNING, on=on_first)
    job = site.submit("-p", "network_address = 'node-1'")
    large = site.submit("-l", "/nodes=2")
    scheduler = MetaScheduler(Runtime(site.config.replace(oar_run_dir=str(tmp_path)), site.database))
    try:
        scheduler.round()
        assert site.job(job.id).state is JobState.WAITING
        assert site.alter("-p", "network_address = 'node-2'", job.id) == done(job)
        scheduler.round()
        assert site.job(job.id).state is JobState.TO_LAUNCH
        assert site.alter("-l", "/resource_id=1", large.id) == done(large)
        scheduler.round()
        assert site.job(large.id).state is JobState.TO_LAUNCH
        with site.database.snapshot() as tx:
            assert len(tx.jobs.assigned([large.id], current=True)[large.id]) == 1
            assert tx.invariants.violations(site.database.settings.ro_user) == []
    finally:
        scheduler.close()
