"""oarstat tells why jobs ended and what they used: in full, in records, with --explain and with --usage."""

import json
from collections.abc import Iterator
from xml.etree import ElementTree

import pytest
import yaml

from oar.lib.config.files import Config
from oar.lib.db.connections import DatabaseSettings
from oar.lib.db.database import Database
from oar.lib.jobs import lifecycle
from oar.lib.jobs.ends import Cause, EndCode
from oar.lib.jobs.records import NodeUsage
from oar.lib.jobs.states import JobState
from tests.builders import add_job, move_job
from tests.db import test_oarstat

NOW = 1_930_000_000
GIB = 1 << 30
WALLTIME = Cause(EndCode.WALLTIME, {"walltime": 3600, "ran": 3602})


class Cluster(test_oarstat.Cluster):
    """Two nodes of two cores whose clock is moved by hand."""

    def __init__(self, settings: DatabaseSettings) -> None:
        self.now = NOW
        super().__init__(Database(settings, clock=lambda: self.now))
        self.config = Config(job_resource_manager_property_db_field="cpuset")

    def move(self, job_id: int, *states: JobState) -> None:
        move_job(self.database, job_id, *states)

    def ended(self, cause: Cause, *used: NodeUsage, seconds: int = 100, **columns: object) -> int:
        """Add a job of eve that ran on all resources and ended."""
        job = self.job(JobState.RUNNING, on=self.resources, **columns)
        self.now += seconds
        self.move(job, JobState.FINISHING)
        with self.database.begin() as tx:
            tx.job_runs.add_usage([(job, usage) for usage in used])
            lifecycle.move_all(tx, [job], JobState.ERROR, because={job: cause})
        return job


@pytest.fixture
def cluster(settings: DatabaseSettings) -> Iterator[Cluster]:
    cluster = Cluster(settings)
    yield cluster
    cluster.database.close()


ON_1 = NodeUsage("node-1", 2, 190.0, GIB, 2 * GIB, 0, 0)
ON_2 = NodeUsage("node-2", 2, 10.0, GIB // 2, 2 * GIB, 3, 0)


def test_a_job_that_ended_says_why_in_full(cluster: Cluster) -> None:
    job = cluster.ended(WALLTIME, ON_1, ON_2)
    lines = cluster.shows("-f", "-j", job).splitlines()
    assert lines[lines.index("    resubmit_job_id = 0") + 1 : lines.index("    events = ")] == [
        "    outcome = timeout",
        "    cause = WALLTIME: It reached its walltime: it had requested 1:0:0 and ran for 1:0:2.",
        f"    advice = Request more time: oarsub -l ...,walltime=2:0:0; or, while it runs: oarwalltime {job} +H:M:S;"
        " or let it write checkpoints: oarsub --checkpoint",
        "    cpu_efficiency = 50.0%",
        "    max_rss = 1.0 GiB",
    ]


def test_programs_get_the_cause_as_data_and_in_words(cluster: Cluster) -> None:
    job = cluster.ended(Cause(EndCode.EXIT_STATUS, {"status": 3}), ON_1, ON_2, stderr_file="e.%jobid%")
    record = json.loads(cluster.shows("-J", "-j", job))[str(job)]
    assert record["end"] == {
        "cause": "EXIT_STATUS",
        "data": {"status": 3},
        "sentence": "Its command ended with exit status 3.",
        "advice": f"Its error output: /home/alice/e.{job}",
        "resubmitted_as": None,
    }
    assert (record["cpu_seconds"], record["cpu_efficiency"], record["max_rss"]) == (200.0, 0.5, GIB)
    assert yaml.safe_load(cluster.shows("-Y", "-j", job)) == {job: record}
    assert ElementTree.fromstring(cluster.shows("-X", "-j", job)).find(".//item[@key='end']") is not None


def test_a_job_that_was_submitted_again_names_its_copy_instead_of_the_command(cluster: Cluster) -> None:
    job = cluster.ended(Cause(EndCode.PROLOGUE, {"node": "node-1"}))
    copy = add_job(cluster.database, user="eve")
    with cluster.database.begin() as tx:
        tx.new_jobs.store_resubmission(job, copy)
    advice = f"OAR has submitted it again automatically: job {copy}."
    assert f"    What to do: {advice}\n" in cluster.shows("--explain", job)
    assert f"    advice = {advice}\n" in cluster.shows("-f", "-j", job)
    assert json.loads(cluster.shows("-J", "-j", job))[str(job)]["end"]["resubmitted_as"] == copy


def test_the_copies_of_a_job_make_a_chain(cluster: Cluster) -> None:
    first = cluster.ended(Cause(EndCode.EXIT_STATUS, {"status": 3}), stderr_file="e")
    earlier, later = (cluster.ended(Cause(EndCode.SUCCESS), resubmit_job_id=first) for _ in range(2))
    last = add_job(cluster.database, user="eve", resubmit_job_id=later)
    records = json.loads(cluster.shows("-J", first, earlier, later, last))
    chain = {int(number): (record["resubmit_job_id"], record["resubmitted_as"]) for number, record in records.items()}
    assert chain == {first: (0, later), earlier: (first, None), later: (first, last), last: (later, None)}
    lines = cluster.shows("-f", first, earlier).splitlines()
    assert [line for line in lines if "resubmit" in line] == [
        "    resubmit_job_id = 0",
        f"    resubmitted_as = {later}",
        f"    resubmit_job_id = {first}",
    ]
    assert cluster.shows("--fields", "id,resubmitted_as", "--no-header", first) == f"{first} {later}\n"


def test_a_job_that_has_not_ended_has_no_cause(cluster: Cluster) -> None:
    job = add_job(cluster.database, JobState.RUNNING, on=cluster.resources)
    record = json.loads(cluster.shows("-J", "-j", job))[str(job)]
    assert record["end"] is record["cpu_seconds"] is record["cpu_efficiency"] is record["max_rss"] is None
    assert "cause" not in cluster.shows("-f", "-j", job)


def test_explain_tells_of_an_ended_job_why_and_what_to_do(cluster: Cluster) -> None:
    job = cluster.ended(Cause(EndCode.OUTPUT_DENIED, {"node": "node-1", "path": "/root/\x1b[2Jo", "errno": "EACCES"}))
    out = cluster.shows("--explain", job)
    assert (
        "    Why it ended: Its user may not write its output file /root/\\x1b[2Jo on node-1. Its command was not"
        " started.\n"
    ) in out
    assert "    What to do: See who owns the file and its directory (ls -ld). Use other names" in out
    record = json.loads(cluster.shows("--explain", job, "-J"))[str(job)]
    assert record["end"]["cause"] == "OUTPUT_DENIED"


def test_usage_shows_a_line_for_each_job(cluster: Cluster) -> None:
    job = cluster.ended(WALLTIME, ON_1, ON_2)
    assert cluster.shows("--usage", job) == (
        "Job id     User           S Cores Elapsed     CPU time    CPU used Memory peak Memory limit\n"
        "---------- -------------- - ----- ----------- ----------- -------- ----------- ------------\n"
        f"{job:<10} eve            E 4     0:1:40      0:3:20      50.0%    1.0 GiB     2.0 GiB\n"
    )
    assert cluster.shows("--usage", "-f", job) == (
        f"Job_Id: {job}\n"
        "    owner = eve\n"
        "    state = Error\n"
        "    cores = 4\n"
        "    elapsed = 0:1:40\n"
        "    cpu_time = 0:3:20 of 0:6:40\n"
        "    cpu_efficiency = 50.0%\n"
        "    max_rss = 1.0 GiB\n"
        "    node-1: 2 cores, CPU time 0:3:10 (95.0%), memory peak 1.0 GiB of 2.0 GiB\n"
        "    node-2: 2 cores, CPU time 0:0:10 (5.0%), memory peak 512.0 MiB of 2.0 GiB, 3 processes killed because"
        " memory was exhausted\n"
    )


def test_a_node_that_was_lost_is_named_and_does_not_count(cluster: Cluster) -> None:
    job = cluster.ended(Cause(EndCode.NODE_LOST, {"nodes": ["node-2"]}), ON_1, NodeUsage("node-2", 2))
    row, note = cluster.shows("--usage", job).splitlines()[2:]
    assert row.split() == [str(job), "eve", "E", "4", "0:1:40", "0:3:10", "95.0%", "1.0", "GiB", "2.0", "GiB"]
    assert note == "           without node-2: not known"
    record = json.loads(cluster.shows("--usage", job, "-J"))[str(job)]
    assert (record["complete"], record["cpu_efficiency"], record["core_seconds"]) == (False, 0.95, 400)
    assert record["nodes"]["node-2"]["cpu_seconds"] is None


def test_a_job_without_any_figures_is_shown_as_unknown(cluster: Cluster) -> None:
    job = cluster.ended(WALLTIME)
    assert cluster.shows("--usage", job).splitlines()[2].split() == [str(job), "eve", "E", "-", "0:1:40", *"----"]
    assert json.loads(cluster.shows("--usage", job, "-J"))[str(job)]["complete"] is False


def test_of_a_running_job_is_shown_what_is_known(cluster: Cluster) -> None:
    job = add_job(cluster.database, JobState.RUNNING, on=cluster.resources[:3], user="eve")
    other = add_job(cluster.database, JobState.RUNNING, on=cluster.resources[3:], user="bob")
    cluster.now += 60
    with cluster.database.begin() as tx:
        tx.job_runs.add_usage([(job, NodeUsage("node-1", 2, 60.0, GIB, None, 0, 0))])
    assert f"{job:<10} eve            R 3     0:1:0       0:1:0       50.0%    1.0 GiB     -\n" in cluster.shows(
        "--usage"
    )
    record = json.loads(cluster.shows("--usage", "-J"))
    assert list(record) == [str(job), str(other)]
    assert record[str(job)]["complete"] is False
    assert list(json.loads(cluster.shows("--usage", "-u", "-J"))) == [str(job)]


def test_time_in_which_a_job_stood_still_does_not_count(cluster: Cluster) -> None:
    job = add_job(cluster.database, JobState.RUNNING, on=cluster.resources, user="eve")
    cluster.now += 50
    cluster.move(job, JobState.SUSPENDED)
    cluster.now += 1000
    cluster.move(job, JobState.RESUMING)
    cluster.now += 10
    cluster.move(job, JobState.RUNNING)
    cluster.now += 50
    assert json.loads(cluster.shows("--usage", "-J"))[str(job)]["elapsed"] == 100


def test_a_job_that_never_started_shows_no_usage(cluster: Cluster) -> None:
    waiting = add_job(cluster.database)
    never = add_job(cluster.database, JobState.ERROR)
    table = cluster.shows("--usage", "--no-header", waiting, never)
    assert [line.split()[3:] for line in table.splitlines()] == [["-"] * 6] * 2
    assert cluster.shows("--usage", "-f", waiting, never) == (
        f"Job_Id: {waiting}\n    owner = alice\n    state = Waiting\n    usage = none: it has not started\n\n"
        f"Job_Id: {never}\n    owner = alice\n    state = Error\n    usage = none: it never started\n"
    )


DELETED, EVICTED = Cause(EndCode.DELETED, {"by": "eve"}), Cause(EndCode.EVICTED, {"for_job": 7})


def test_ended_jobs_are_found_by_their_outcomes(cluster: Cluster) -> None:
    late, deleted, running = cluster.ended(WALLTIME), cluster.ended(DELETED), cluster.job(JobState.RUNNING)

    def found(states: str, *more: str) -> list[int]:
        return [int(job) for job in json.loads(cluster.shows("--states", states, *more, "-J"))]

    assert found("timeout", "--since", "1d") == [late]
    assert found("R,cancelled", "--since", "1d") == [deleted, running]
    refused = cluster.oarstat("--states", "timeout")
    assert refused.err == "# Error: ended jobs require a start date: use --since 1d, or --since DATE\n"
    assert 'Did you mean "evicted"?' in cluster.oarstat("--states", "evictd").err


def test_people_see_the_outcome_behind_a_job_and_no_red_letter_if_it_was_cancelled(cluster: Cluster) -> None:
    jobs = [cluster.ended(cause) for cause in (WALLTIME, DELETED, EVICTED, Cause(EndCode.SUCCESS))]
    lines = cluster.shows(*jobs, "--color", "always", "--no-header").splitlines()
    assert [line.partition("default")[2].strip() for line in lines] == ["(timeout)", "(cancelled)", "(evicted)", ""]
    assert ["\033[31m" in line for line in lines] == [True, False, True, True]
    assert "(" not in cluster.shows(*jobs)  # programs read the format of OAR 2.5
