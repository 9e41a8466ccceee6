"""oarstat --explain: why jobs wait, when they start, where their time went."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from oar.cli.common.command import CommandResult, invoke
from oar.cli.oarstat import main
from oar.kao.rounds.hypothetical import estimates
from oar.kao.rounds.meta_sched import MetaScheduler
from oar.lib.access.records import User
from oar.lib.base.times import format_date
from oar.lib.config.files import Config
from oar.lib.db.database import Database
from oar.lib.jobs.records import Queue
from oar.lib.jobs.states import JobPriority, JobState, QueueState, Reservation
from oar.lib.nodes.states import ResourceState
from oar.lib.runtime import Runtime
from oar.lib.submission import alteration
from oar.lib.submission.alteration import JobChanges
from tests.builders import add_resources, execute_sql, move_job
from tests.db.test_meta_sched import at, submit

NOW = 1_800_000_000
ALICE = User("alice", 1001)


class Site:
    """A cluster of one node with two resources, whose clock is moved by hand."""

    def __init__(self, database: Database, config: Config) -> None:
        self.database = at(database, NOW)
        self.runtime = Runtime(config, database)
        self.scheduler = MetaScheduler(self.runtime)
        self.resources = add_resources(database, nodes=1, cores=2)

    def round(self, date: int = NOW) -> None:
        """Make a round at a date."""
        at(self.database, date)
        self.scheduler.round()

    def move(self, job_id: int, *states: JobState) -> None:
        """Move a job through states."""
        move_job(self.database, job_id, *states)

    def explain(self, *words: object) -> CommandResult:
        """Ask oarstat."""
        arguments = ["--explain", *(str(word) for word in words)]
        return invoke(main, arguments, runtime=self.runtime, user=ALICE)

    def record(self, job_id: int, *words: str) -> Any:
        """Return what programs are told of a job."""
        return json.loads(self.explain(job_id, "-J", *words).out)[str(job_id)]


@pytest.fixture
def site(database: Database) -> Iterator[Site]:
    made = Site(database, Config(job_resource_manager_property_db_field="cpuset"))
    yield made
    made.scheduler.close()


def test_a_reservation_on_a_node_that_does_not_answer_is_not_as_agreed(site: Site) -> None:
    agreed = submit(site.database, reservation=Reservation.TO_SCHEDULE, start_time=NOW + 600)
    site.round()
    start = format_date(NOW + 600)
    assert f"    Start: {start} on node-1, as agreed\n" in site.explain(agreed).out
    with site.database.begin() as tx:
        tx.resources.move(site.resources, ResourceState.SUSPECTED, finaud=False)
    site.round(NOW + 1)
    assert f"    Start: {start} on node-1, as things are; node-1 must answer again\n" in site.explain(agreed).out


def test_behind_a_job_whose_time_is_over_no_date_is_told(site: Site) -> None:
    first, second = submit(site.database, "/resource_id=2", user="bob"), submit(site.database, "/resource_id=1")
    site.round()
    site.move(first, JobState.LAUNCHING, JobState.RUNNING)
    site.round(NOW + 4000)
    assert site.explain(second).out == (
        f"Job {second} of alice, Waiting, in the queue default since {format_date(NOW)}\n"
        f"    Why: Its resources are still held by job {first}, though their time is over.\n"
        "    Start: not foreseen\n"
        f"    In front: job {first} of bob, Running\n"
        "    Waited: 1:6:40\n"
        "          1:6:40 for resources that others used\n"
    )
    record = site.record(second)
    assert (record["start"], record["in_front"][0]["end"]) == (None, None)
    starts = invoke(main, ["--start", "-J", str(second)], runtime=site.runtime, user=ALICE)
    assert json.loads(starts.out)[str(second)]["scheduled_start"] is None


def test_explain_shows_reason_start_and_jobs_in_front(site: Site) -> None:
    first = submit(site.database, "/resource_id=2", user="bob")
    second = submit(site.database, "/resource_id=1")
    site.round()
    end = format_date(NOW + 3601)
    assert site.explain(second).out == (
        f"Job {second} of alice, Waiting, in the queue default since {format_date(NOW)}\n"
        f"    Why: Its resources are taken until {end} at the latest, by job {first}.\n"
        f"    Start: {end} on node-1, as things are; jobs of the queue admin may go before it\n"
        f"    In front: job {first} of bob, toLaunch, ends by {format_date(NOW + 3600)}\n"
    )


def test_machine_formats_hold_the_numbers_of_the_reason(site: Site) -> None:
    first, second = submit(site.database, "/resource_id=2"), submit(site.database, "/resource_id=2")
    third = submit(site.database, "/resource_id=1")
    site.round()
    record = site.record(third)
    assert (record["code"], record["since"]) == ("BUSY", NOW)
    assert record["data"] == {"date": NOW + 7202, "jobs": [second], "count": 1}
    assert record["start"]["date"] == NOW + 7202
    assert record["start"]["jobs_before"] == 1
    assert record["in_front"] == [{"job_id": second, "owner": "alice", "state": "Waiting", "end": NOW + 7201}]
    assert record["waited_for"] == {}
    assert site.record(first)["start"] is None


def test_the_smallest_change_that_would_let_it_start_is_found_on_request(site: Site) -> None:
    submit(site.database, "/resource_id=1")
    wide = submit(site.database, "/resource_id=2")
    full = submit(site.database, "/network_address=1")
    site.round()
    assert "    Would start now: with resource_id=1 instead of resource_id=2\n" in site.explain(wide, "--change").out
    assert site.record(wide, "--change")["smallest_change"] == "resource_id=1 instead of resource_id=2"
    assert site.record(full, "--change")["smallest_change"] is None
    assert "no change of one number in its request is enough" in site.explain(full, "--change").out
    assert "Would start now" not in site.explain(wide).out


def test_without_time_no_change_is_named_and_none_is_denied(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = [submit(site.database, "/resource_id=2") for _ in range(3)]
    site.round()
    monkeypatch.setattr(estimates, "_stopwatch", lambda: lambda: 31.0)
    told = "    Would start now: unknown: the search ran out of time\n"
    assert told in site.explain(jobs[2], "--change").out
    record = site.record(jobs[2], "--change")
    assert (record["smallest_change"], record["smallest_change_known"]) == (None, False)


def test_the_waiting_time_of_a_job_divides_by_what_it_waited_for(site: Site) -> None:
    first = submit(site.database, "/resource_id=2")
    second = submit(site.database, "/resource_id=1")
    site.round(NOW + 10)
    site.move(second, JobState.HOLD)
    at(site.database, NOW + 100)
    site.move(second, JobState.WAITING)
    site.round(NOW + 130)
    site.move(first, JobState.LAUNCHING, JobState.RUNNING, JobState.FINISHING, JobState.TERMINATED)
    site.round(NOW + 200)
    at(site.database, NOW + 205)
    site.move(second, JobState.LAUNCHING, JobState.RUNNING)
    at(site.database, NOW + 300)
    record = site.record(second)
    assert record["waited_for"] == {"BUSY": 100, "HOLD": 90, "NEW": 10, "STARTING": 5}
    assert record["waited"] == 205
    assert site.explain(second).out.endswith(
        f"    Started: {format_date(NOW + 200)}\n"
        "    Waited: 0:3:25\n"
        "          0:1:40 for resources that others used\n"
        "          0:1:30 on hold\n"
        "          0:0:10 until the scheduler looked at it\n"
        "           0:0:5 while its nodes were prepared\n"
    )


def test_a_job_that_was_suspended_is_told_how_it_goes_on(site: Site) -> None:
    job = submit(site.database, state=JobState.SUSPENDED, on=site.resources[:1])
    assert "    Why: It is suspended until it is resumed with oarresume.\n" in site.explain(job).out


def test_a_dependency_that_is_never_met_is_told_with_the_ways_out(site: Site) -> None:
    failed = submit(site.database, state=JobState.ERROR)
    waiting = submit(site.database, after=[failed])
    site.round()
    lines = site.explain(waiting).out.splitlines()
    assert lines[1:4] == [
        f"    Why: Dependency on job {failed} cannot be satisfied.",
        f"    Trouble: It can start only if job {failed} ends well, and job {failed} has ended: Error.",
        f"    What to do: oaralter {waiting} -a {failed}:any lets it start all the same; oarsub --resubmit {failed}"
        f" runs that one again, and this one waits for the copy; oardel {waiting} deletes it.",
    ]
    record = site.record(waiting)
    assert [f"    Trouble: {record['trouble']}", f"    What to do: {record['advice']}"] == lines[2:4]
    # What it says is so.
    user = User("alice", 1001)
    altered = JobChanges(dependencies=(f"{failed}:any",))
    alteration.alter(site.database, site.runtime.config, user, waiting, altered)
    site.round()
    assert (site.record(waiting)["trouble"], site.record(waiting)["advice"]) == (None, None)


def test_a_running_job_is_told_which_of_its_nodes_was_lost(site: Site) -> None:
    job = submit(site.database, "/resource_id=2", state=JobState.RUNNING, on=site.resources)
    assert "Trouble" not in site.explain(job).out
    at(site.database, NOW + 60)
    with site.database.begin() as tx:
        tx.resources.move(site.resources[:1], ResourceState.SUSPECTED, finaud=False)
    since = f"since {format_date(NOW + 60)}"
    assert f"    Trouble: Of its nodes, node-1 is Suspected {since}, it does not answer" in site.explain(job).out
    assert f"    What to do: If it does not go on without: oardel {job} ends it" in site.explain(job).out
    assert site.record(job)["lost_nodes"] == [{"name": "node-1", "state": "Suspected", "since": NOW + 60}]


def test_a_running_job_whose_first_node_keeps_silent_is_told_so(site: Site) -> None:
    job = submit(site.database, "/resource_id=2", state=JobState.RUNNING, on=site.resources)
    with site.database.begin() as tx:
        tx.job_runs.claim(job, "node-1")
        assert tx.job_runs.note_silence("node-1", tx.now).probes == 1
    trouble = "Of its nodes, node-1, which runs its command, did not answer the last probe."
    assert site.record(job)["trouble"] == trouble
    assert f"    Trouble: {trouble}\n    What to do: If it does not go on without" in site.explain(job).out
    with site.database.begin() as tx:
        tx.job_runs.note_answer("node-1")
    assert site.record(job)["trouble"] is None


def test_jobs_that_no_round_looks_at_have_a_reason_too(site: Site) -> None:
    on_hold = submit(site.database, "/resource_id=1", state=JobState.HOLD)
    with site.database.begin() as tx:
        tx.queues.insert(Queue("night", 1, "", QueueState.NOT_ACTIVE))
    stopped = submit(site.database, "/resource_id=1", queue="night")
    site.round()
    why = {job: site.explain(job).out.splitlines()[1] for job in (on_hold, stopped)}
    since = format_date(NOW)
    assert why[on_hold] == f"    Why: It is on hold since {since}, until it is released with oarresume."
    assert why[stopped] == "    Why: The queue night is stopped: an administrator has to enable it."
    assert site.record(on_hold)["code"] == "HOLD"
    at(site.database, NOW + 60)
    site.move(on_hold, JobState.WAITING)
    site.round(NOW + 60)
    record = site.record(on_hold)
    assert (record["code"], record["state"], record["waited_for"]) == (None, "toLaunch", {"HOLD": 60})


def test_a_reason_is_dated_by_its_first_round_and_written_once(site: Site) -> None:
    submit(site.database, "/resource_id=2")
    second = submit(site.database, "/resource_id=1")
    for date in (NOW, NOW + 10, NOW + 20):
        site.round(date)
    assert site.record(second)["since"] == NOW
    with site.database.begin() as tx:
        assert tx.rows("SELECT date, code FROM job_waits WHERE job_id = %s", (second,)) == [(NOW, "BUSY")]


def test_explain_shows_the_accuracy_of_predictions(site: Site) -> None:
    submit(site.database, "/resource_id=2")
    waiting = submit(site.database, "/resource_id=2")
    with site.database.begin() as tx:
        for number in range(2, 21):
            tx.execute(
                "INSERT INTO job_predictions (job_id, queue_name, first_date, first_start, real_start)"
                " VALUES (%s, 'default', 1, %s, %s)",
                (1000 + number, NOW - 5000, NOW - 5000 - 30 * number),
            )
    site.round()
    assert "So far:" not in site.explain(waiting).out  # 19 jobs are too few for words like "9 in 10"
    assert site.record(waiting)["start"]["half_off_by"] is None
    execute_sql(
        site.database,
        "INSERT INTO job_predictions (job_id, queue_name, first_date, first_start, real_start)"
        " VALUES (1001, 'default', 1, %s, %s)",
        NOW - 5000,
        NOW - 5000 - 30,
    )
    told = "half of the jobs in this queue started within 0:5:0 of their first predicted start, 9 in 10 within 0:9:0"
    assert f"    So far: {told}\n" in site.explain(waiting).out
    start = site.record(waiting)["start"]
    assert (start["half_off_by"], start["most_off_by"]) == (300, 540)


def test_explain_names_the_number_of_jobs_that_a_user_has_before_others(database: Database) -> None:
    site = Site(database, Config(scheduler_max_jobs_per_user=1))
    jobs = [submit(database, "/resource_id=2") for _ in range(4)]
    submit(database, "/resource_id=2", user="bob")
    site.round()
    site.scheduler.close()
    order = "    Order: its user has more than 1 waiting jobs; a scheduling pass plans 1 of each user first,"
    assert order in site.explain(jobs[-1]).out
    assert "Order:" not in site.explain(jobs[0]).out


def test_explain_shows_the_shares_with_fair_share(database: Database) -> None:
    targets = {"alice": 60.0}
    site = Site(database, Config(job_priority=JobPriority.FAIRSHARE, scheduler_fairsharing_user_targets=targets))
    with database.begin() as tx:
        for user, kind, seconds in (("alice", "USED", 250), ("alice", "ASKED", 500), ("bob", "USED", 750)):
            tx.execute(
                "INSERT INTO accounting VALUES (%s, %s, %s, 'default', 'default', %s, %s)",
                (NOW - 86400, NOW - 1, user, kind, seconds),
            )
    submit(database, "/resource_id=2"), submit(database, "/resource_id=2")
    waiting = submit(database, "/resource_id=2")
    site.round()
    site.scheduler.close()
    assert (
        "    Fair share: karma -0.300; its user used 25.0% and requested 100.0% of the total, his share is 60.0%;"
        " its project used 100.0%, its share is 21.0%\n"
    ) in site.explain(waiting).out
    assert site.record(waiting)["data"]["fairshare"]["user_used"] == 0.25


def test_several_jobs_are_explained_one_after_the_other(site: Site) -> None:
    jobs = [submit(site.database, "/resource_id=2") for _ in range(3)]
    site.round()
    out = site.explain(jobs[1], "--explain", jobs[2]).out
    assert [line.split()[1] for line in out.splitlines() if line.startswith("Job")] == [str(each) for each in jobs[1:]]
    assert "\n\nJob" in out


def starts(site: Site, *words: str) -> str:
    result = invoke(main, ["--start", *words], runtime=site.runtime, user=ALICE)
    assert (result.exit, result.err) == (0, "")
    return result.out


def test_predicted_starts_are_shown_with_what_jobs_wait_for(site: Site) -> None:
    running = submit(site.database, "/resource_id=2", user="bob")
    waiting = submit(site.database, "/resource_id=1")
    after = submit(site.database, "/resource_id=1", after=[waiting])
    never = submit(site.database, "/resource_id=3")
    on_hold = submit(site.database, "/resource_id=1", state=JobState.HOLD)
    site.round()
    new = submit(site.database, "/resource_id=1")
    lines = starts(site).splitlines()
    assert lines[0] == "Job id     User           Queue      Predicted start     Why"
    assert lines[2:] == [
        f"{running:<10} bob            default    {format_date(NOW)}",
        f"{waiting:<10} alice          default    {format_date(NOW + 3601)} (resources)",
        f"{after:<10} alice          default    {format_date(NOW + 7202)} (dependency {waiting})",
        f"{never:<10} alice          default    {'-':<19} (impossible)",
        f"{on_hold:<10} alice          default    {'-':<19} (hold)",
        f"{new:<10} alice          default    -",
    ]
    record = json.loads(starts(site, "-J", "-j", str(waiting)))[str(waiting)]
    assert (record["scheduled_start"], record["why"], record["code"]) == (NOW + 3601, "(resources)", "BUSY")
    assert starts(site, "-u", "nobody") == ""
    assert starts(site, "--no-header", "-j", str(waiting)).startswith(f"{waiting:<10} alice ")
