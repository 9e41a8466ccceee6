"""``oarstat --me`` and ``GET /v1/me``: everything about a user's jobs at once; ``oarstat --usage`` of many jobs."""

import json
from collections.abc import Sequence

import pytest

from oar.cli import oarstat
from oar.kao.rounds import user_overview
from oar.kao.rounds.user_overview import Overview
from oar.lib.access.records import User
from oar.lib.config.files import Config
from oar.lib.db.database import Database
from oar.lib.db.transaction import Transaction
from oar.lib.jobs import explanations
from oar.lib.jobs.explanations import Outlook
from oar.lib.jobs.records import Job, NodeUsage
from oar.lib.jobs.states import JobPriority, JobState
from tests.builders import add_job, add_resources, execute_sql
from tests.db.test_user_limits import plan, quotas
from tests.frontend import ALICE, Frontend

RUNNING, ENDED = JobState.RUNNING, JobState.TERMINATED
_END = "UPDATE job_ends SET code = %s WHERE job_id = %s"


@pytest.fixture
def cores(database: Database) -> list[int]:
    return add_resources(database, nodes=2, cores=4)


def overview(database: Database, config: Config, user: User = ALICE) -> Overview:
    with database.snapshot() as tx:
        return user_overview.overview_of(tx, config, user)


def ended_job(
    database: Database, resource: int, name: str, *, ran: int, cpu: float, cores: int = 4, code: str = "SUCCESS"
) -> int:
    """Add a job that ended a moment ago, with what it used and its cause."""
    job = add_job(database, ENDED, on=[resource], user="alice", name=name, walltime=7200)
    with database.begin() as tx:
        tx.execute("UPDATE jobs SET start_time = stop_time - %s WHERE job_id = %s", (ran, job))
        tx.execute(_END, (code, job))
        tx.job_runs.add_usage([(job, NodeUsage("node-1", cores, cpu, 1 << 30))])
    return job


def test_jobs_are_shown_with_times_and_next_starts(database: Database, cores: list[int]) -> None:
    running = add_job(database, RUNNING, on=cores, user="alice", name="sim", walltime=3600)
    later = add_job(database, user="alice", name="train", walltime=60)
    held = add_job(database, JobState.HOLD, user="alice")
    add_job(database, user="bob")
    plan(database, Config())
    text = Frontend(database).type(oarstat.main, "--me").out
    lines = text.splitlines()
    assert lines[1] == "Running: 1 job"
    assert lines[2].split()[:3] == [str(running), "sim", "default"]
    assert lines[2].endswith("of 1:00:00   node-1, node-2")
    assert lines[3] == "Waiting: 2 jobs"
    assert lines[4].split()[:4] == [str(later), "train", "default", "starts"]
    assert lines[5].split()[0] == str(held)
    assert "no planned start" in lines[5]
    assert lines[5].endswith("(hold)")
    assert "bob" not in text


def test_limits_are_sentences(database: Database, cores: list[int]) -> None:
    quotas(database, quotas={"default,*,*,/": [2, -1, -1]}, waiting={"*,*,*,alice": [5, 12.5]})
    job = add_job(database, RUNNING, on=cores[:2], user="alice", walltime=3600)
    sentences = [limit.sentence for limit in overview(database, Config(quotas=True)).limits]
    assert sentences[0].startswith(
        f"2 of 2 resources of the quota for each user in queue default, used up; job {job} frees a part by "
    )
    assert sentences[1:] == [
        "0 of 5 waiting jobs of the limit for user alice",
        "0 of 12.5 resource hours of waiting jobs of the limit for user alice",
    ]


def test_a_quota_for_each_project_names_the_project(database: Database, cores: list[int]) -> None:
    quotas(database, quotas={"*,/,*,*": [6, -1, -1]})
    add_job(database, RUNNING, on=cores[:2], user="alice", project="ml", walltime=3600)
    sentences = [limit.sentence for limit in overview(database, Config(quotas=True)).limits]
    assert sentences == [
        "0 of 6 resources of the quota for all users together in project default",
        "2 of 6 resources of the quota for all users together in project ml",
    ]


def test_the_place_counts_the_users_behind(database: Database, cores: list[int]) -> None:
    config = Config(job_priority=JobPriority.FAIRSHARE)
    for user in ("alice", "bob", "carol", "dave"):
        add_job(database, user=user, project="ml")
    sql = """INSERT INTO accounting (window_start, window_stop, accounting_user, accounting_project, queue_name,
        consumption_type, consumption)
        SELECT now - 7200, now - 3600, u, 'ml', 'default', 'USED', 3600000
        FROM unnest(ARRAY['bob', 'carol']) u, (SELECT extract(epoch FROM now())::int AS now) d"""
    execute_sql(database, sql)
    place = overview(database, config).place
    assert place is not None
    assert place.sentence == "before 3 of 3 other users with waiting jobs (fair share in project ml)"
    last = overview(database, config, User("bob", 0)).place
    assert last is not None
    assert last.before < 3
    assert overview(database, Config()).place is None


def test_ended_jobs_are_grouped_by_name_with_advice(database: Database, cores: list[int]) -> None:
    for _ in range(3):
        ended_job(database, cores[0], "sim", ran=600, cpu=600)
    ended_job(database, cores[0], "post", ran=7000, cpu=27000)
    ended_job(database, cores[0], "post", ran=7200, cpu=27000, code="WALLTIME")
    ended_job(database, cores[0], "train", ran=60, cpu=1, code="OUT_OF_MEMORY")
    found = overview(database, Config())
    groups = {group.name: group for group in found.groups}
    assert [group.name for group in found.groups] == ["post", "sim", "train"]
    assert (groups["sim"].jobs, groups["sim"].efficiency, groups["sim"].core_seconds) == (3, 0.25, 7200)
    assert found.changes == [
        "Jobs post: 1 of 2 jobs reached their walltime of 2:00:00: request more.",
        "Jobs sim: they used 25 % of 4 cores: request fewer cores, or check that the program runs in parallel.",
        "Jobs sim: the longest job ran for 0:10:00 of 2:00:00: request less walltime, then jobs start sooner.",
        "Jobs train: 1 of 1 jobs ran out of memory (the peak was 1.0 GiB on a node):"
        " request more memory or more cores.",
    ]
    text = Frontend(database).type(oarstat.main, "--me").out
    assert "    sim                       3      0          2.0    25.0%     1.0 GiB\n" in text
    assert "    total                     6      2         17.8" in text
    record = json.loads(Frontend(database).type(oarstat.main, "--me", "-J").out)
    assert record["changes"] == found.changes
    assert record["groups"][1]["advice"][0]["code"] == "fewer-cores"


def test_a_user_without_anything_gets_short_lines(database: Database, cores: list[int]) -> None:
    result = Frontend(database).type(oarstat.main, "--me")
    assert result.exit == 0
    first, *lines = result.out.splitlines()
    assert first.startswith("alice, ")
    assert lines[:3] == ["Running: 0 jobs", "Waiting: 0 jobs", "Limits: none"]
    assert lines[3].startswith("Resource hours accounted since ")
    assert lines[3].endswith(": none")
    assert lines[4:] == ["Jobs that ended in the last 30 days, by name: none", "What to change: nothing"]


def test_many_waiting_jobs_hide_no_ended_ones_and_few_are_looked_at(
    database: Database, cores: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(user_overview, "MAX_GROUPED", 2)
    monkeypatch.setattr(user_overview, "MAX_JOBS", 2)
    looked_at: list[int] = []
    outlooks = explanations.outlooks

    def counted(tx: Transaction, jobs: Sequence[Job]) -> list[Outlook]:
        looked_at.append(len(jobs))
        return outlooks(tx, jobs)

    monkeypatch.setattr(explanations, "outlooks", counted)
    for _ in range(2):
        ended_job(database, cores[0], "sim", ran=600, cpu=600)
    add_job(database, ENDED, on=cores[:1], user="bob", name="sim")
    held = add_job(database, JobState.HOLD, user="alice")
    waiting = [add_job(database, user="alice", walltime=60) for _ in range(3)]
    places = (cores[:6], cores[6:7], cores[7:])
    long, *short = (add_job(database, RUNNING, on=place, user="alice", walltime=90) for place in places)
    execute_sql(
        database, "UPDATE moldable_job_descriptions SET moldable_walltime = 900 WHERE moldable_job_id = %s", long
    )
    plan(database, Config())
    found = overview(database, Config())
    assert [(group.name, group.jobs, found.is_cut) for group in found.groups] == [("sim", 2, False)]
    assert [job.job.id for job in found.waiting] == waiting[:2]
    assert [job.job.id for job in found.running] == short
    assert (found.numbers, looked_at) == ({"running": 3, "waiting": 4}, [2])
    ended_job(database, cores[0], "post", ran=600, cpu=600)
    assert overview(database, Config()).is_cut
    assert held not in [job.job.id for job in found.waiting]


def test_me_is_alone(database: Database) -> None:
    result = Frontend(database).type(oarstat.main, "--me", "-u", "bob")
    assert result.exit != 0
    assert "--me can only be combined with a machine format" in result.err


def test_usage_of_many_jobs_is_grouped(database: Database, cores: list[int]) -> None:
    frontend = Frontend(database)
    ids = [ended_job(database, cores[0], "sim", ran=600, cpu=600) for _ in range(20)]
    assert len(frontend.type(oarstat.main, "--usage", f"{ids[0]}-{ids[-1]}").out.splitlines()) == 22
    ids.append(ended_job(database, cores[0], "post", ran=600, cpu=2400))
    lines = frontend.type(oarstat.main, "--usage", f"{ids[0]}-{ids[-1]}").out.splitlines()
    assert lines[0] == "# 21 jobs, by name. Each job: oarstat --usage -f, or -J"
    assert lines[1].split() == ["User", "Name", "Jobs", "Bad", "Core", "hours", "CPU", "used", "Memory", "peak"]
    assert lines[2].split() == ["alice", "sim", "20", "0", "13.3", "25.0%", "1.0", "GiB"]
    assert lines[4].split() == ["total", "21", "0", "14.0", "28.6%", "1.0", "GiB"]
    assert lines[5].startswith("# alice sim: they used 25 % of 4 cores")
    assert len(json.loads(frontend.type(oarstat.main, "--usage", f"{ids[0]}-{ids[-1]}", "-J").out)) == 21
