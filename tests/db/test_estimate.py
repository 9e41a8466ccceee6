"""oarsub --estimate: what a submission would become, with nothing submitted."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import pytest
import yaml

from oar.cli import oarsub
from oar.cli.common.command import CommandResult
from oar.kao.rounds.hypothetical import estimates
from oar.kao.rounds.meta_sched import MetaScheduler
from oar.lib.base.times import format_date
from oar.lib.config.files import Config
from oar.lib.db.database import Database
from oar.lib.jobs.states import JobState, QueueState
from oar.lib.nodes import state_changes
from oar.lib.runtime import Runtime
from tests.builders import add_resources, execute_sql
from tests.db.test_meta_sched import NOW, at
from tests.frontend import Frontend, add_rules


class Site(Frontend):
    """Two nodes of two cores, where time stands still but for rounds."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.scheduler = MetaScheduler(Runtime(self.config, self.database))

    def oarsub(self, *words: object) -> CommandResult:
        """Type oarsub."""
        return self.type(oarsub.main, *words)

    def estimate(self, *words: object) -> CommandResult:
        """Type oarsub --estimate; nothing may be there afterwards that was not before."""
        tables = (
            "jobs",
            "job_types",
            "moldable_job_descriptions",
            "challenges",
            "event_logs",
            "gantt_jobs_predictions",
        )
        before = list(map(self.count, tables))
        result = self.oarsub("--estimate", *words)
        assert list(map(self.count, tables)) == before
        return result

    def record(self, *words: object) -> Any:
        """Return what programs are told."""
        return json.loads(self.estimate("-J", *words).out)

    def fill(self, walltime: str = "1") -> int:
        """Submit a job that takes everything, and start it; return its id."""
        assert self.oarsub("-l", f"nodes=2,walltime={walltime}", "true").exit == 0
        self.scheduler.round()
        return self.jobs()[-1].id


@pytest.fixture
def site(database: Database, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    monkeypatch.setattr(oarsub, "time", SimpleNamespace(time=lambda: NOW))  # by which dates are in the past
    add_resources(database, nodes=2, cores=2)
    add_rules(database)
    made = Site(at(database, NOW), Config(job_resource_manager_property_db_field="cpuset"))
    yield made
    made.scheduler.close()


def answer(result: CommandResult) -> tuple[int, list[str]]:
    """Return the exit code, and what is printed beside the words of the rules."""
    assert result.err == ""
    return result.exit, [line for line in result.out.splitlines() if not line.startswith("[ADMISSION RULE]")]


def test_an_estimate_of_a_job_that_can_start_shows_date_and_nodes(site: Site) -> None:
    now = format_date(NOW)
    assert answer(site.estimate("-l", "nodes=2,walltime=1", "true")) == (
        0,
        [f"# Job would start at {now} on node-1+node-2"],
    )


def test_an_estimate_of_a_job_that_must_wait_shows_the_reason(site: Site) -> None:
    first, end = site.fill(), format_date(NOW + 3601)
    code, lines = answer(site.estimate("-l", "resource_id=1,walltime=1", "true"))
    assert code == 0
    assert lines == [
        f"# Job would start at {end} on node-1",
        f"# Not now: Its resources are taken until {end} at the latest, by job {first}.",
    ]


def test_behind_a_job_whose_time_is_over_no_start_is_foreseen(site: Site) -> None:
    first = site.fill()
    at(site.database, NOW + 4000)
    why = f"Its resources are still held by job {first}, though their time is over."
    code, lines = answer(site.estimate("-l", "resource_id=1,walltime=1", "true"))
    assert (code, lines) == (0, [f"# Job would start not before {format_date(NOW + 4001)}: {why}"])
    record = site.record("-l", "resource_id=1,walltime=1", "true")
    assert (record["feasible"], record["start"], record["sentence"]) == (None, None, why)


def test_the_other_spellings_mean_the_same(site: Site) -> None:
    for option in ("--dry-run", "--test-only"):
        assert "# Job would start at" in site.oarsub(option, "true").out
    assert site.jobs() == []


def test_machine_formats_hold_the_estimate(site: Site) -> None:
    first = site.fill()
    record = site.record("-l", "nodes=1,walltime=2", "true")
    assert (record["feasible"], record["start"], record["walltime"]) == (True, NOW + 3601, 7200)
    assert (len(record["resources"]), record["hosts"]) == (2, ["node-1"])
    assert [(each["code"], each["data"]["jobs"]) for each in record["reasons"]] == [("BUSY", [first])]


def test_the_estimate_is_what_the_next_round_does(site: Site) -> None:
    site.fill()
    for words in (["-l", "nodes=2"], ["-l", "resource_id=1,walltime=3"], ["-t", "besteffort"], ["--array", "2"]):
        expected = site.record(*words, "true")["start"]
        site.oarsub(*words, "true")
        site.scheduler.round()
        with site.database.snapshot() as tx:
            number = tx.value(
                "SELECT p.start_time FROM gantt_jobs_predictions p JOIN moldable_job_descriptions"
                " ON moldable_id = p.moldable_job_id ORDER BY moldable_id DESC LIMIT 1"
            )
        assert number == expected, words


def test_conditions_and_properties_of_a_new_kind_count(site: Site) -> None:
    with site.database.begin() as tx:
        tx.execute("ALTER TABLE resources ADD COLUMN rack varchar(255)")
        tx.execute("UPDATE resources SET rack = network_address")
    record = site.record("-p", "network_address = 'node-2'", "-l", "rack=1", "true")
    assert record["hosts"] == ["node-2"]


def test_the_jobs_of_an_array_are_estimated_together(site: Site) -> None:
    code, lines = answer(site.estimate("--array", 3, "-l", "nodes=2,walltime=1", "true"))
    assert (code, lines) == (0, [f"# 3 jobs would start, from {format_date(NOW)} to {format_date(NOW + 7202)}"])
    assert [each["start"] for each in site.record("--array", 2, "-l", "nodes=2,walltime=1", "true")["jobs"]] == [
        NOW,
        NOW + 3601,
    ]


def test_a_limited_array_is_estimated_with_its_limit(site: Site) -> None:
    jobs = site.record("--array", "3%1", "-l", "resource_id=1,walltime=1", "true")["jobs"]
    assert [each["start"] for each in jobs] == [NOW, NOW + 3601, NOW + 7202]
    assert [each["code"] for each in jobs[2]["reasons"]] == ["ARRAY"]


def test_an_array_behind_another_is_estimated_index_by_index(site: Site) -> None:
    assert site.oarsub("--array", 2, "-l", "nodes=2,walltime=1", "true").exit == 0
    first = site.jobs()[0].id
    site.scheduler.round()
    jobs = site.record("--array", 2, "-a", f"{first}[]", "-l", "resource_id=1,walltime=1", "true")["jobs"]
    assert [each["start"] for each in jobs] == [NOW + 7202, NOW + 7202]
    assert [each["reasons"][0]["data"].get("jobs", each["reasons"][0]["data"].get("job")) for each in jobs]


def test_a_reservation_is_answered_as_it_would_be(site: Site) -> None:
    date = format_date(NOW + 600)
    assert answer(site.estimate("-r", date, "-l", "nodes=2,walltime=1")) == (0, ["# Reservation valid --> OK"])
    holder = site.fill()
    code, lines = answer(site.estimate("-r", date, "-l", "nodes=2,walltime=1"))
    why = f"This reservation could run at {format_date(NOW + 3601)} (job {holder})"
    assert (code, lines) == (10, [f"# Reservation not valid --> KO ({why})"])
    assert site.record("-r", date, "-l", "nodes=2,walltime=1")["feasible"] is False


def test_an_estimate_of_an_impossible_job_shows_the_reason(site: Site) -> None:
    with site.database.begin() as tx:
        tx.queues.set_state(["default"], QueueState.NOT_ACTIVE)
    code, lines = answer(site.estimate("true"))
    assert code == 8
    assert lines == ["# Job would not start: The queue default is stopped: an administrator has to enable it."]


def test_an_interactive_job_is_estimated_without_a_session(site: Site) -> None:
    code, lines = answer(site.estimate("-I", "-l", "nodes=1,walltime=1"))
    assert (code, lines) == (0, [f"# Job would start at {format_date(NOW)} on node-1"])


def test_what_is_refused_is_refused_as_at_a_submission(site: Site) -> None:
    wide = site.estimate("-l", "nodes=9", "true")
    assert (wide.exit, wide.err.splitlines()[-1]) == (8, "# Error: please verify your job submission syntax.")
    refused = site.estimate("-q", "nowhere", "true")
    assert refused.exit == 248
    assert site.estimate().exit == 5
    unknown = site.estimate("-a", 99, "true")
    assert (unknown.exit, unknown.err.splitlines()[0]) == (8, "# Error: dependency on unknown job 99.")
    again = site.estimate("--resubmit", 1)
    assert (again.exit, again.err.splitlines()[0][:22]) == (1, "# Error: --estimate is")


def test_a_queue_with_a_scheduler_of_its_own_cannot_be_asked(site: Site) -> None:
    execute_sql(site.database, "UPDATE queues SET scheduler_policy = 'mine' WHERE queue_name = 'default'")
    code, lines = answer(site.estimate("true"))
    text = "Cannot predict a start in the queue default: its external scheduler mine makes no predictions."
    assert (code, lines) == (0, [f"# Job would start not before {format_date(NOW)}: {text}"])
    assert site.record("true")["feasible"] is None


#: More than a round plans, with the limit as it is shipped.
MANY = Config().max_job_per_queues_group_scheduling_round + 1


def queue_up(site: Site, jobs: int = MANY) -> None:
    """Let so many jobs of an hour wait, each for the whole machine."""
    assert site.oarsub("--array", jobs, "-l", "nodes=2,walltime=1", "true").exit == 0


def in_time_for(monkeypatch: pytest.MonkeyPatch, looks: int) -> None:
    """Let the time of estimates be over after so many looks at the clock."""

    def stopwatch() -> Callable[[], float]:
        times = iter([0.0] * looks)
        return lambda: next(times, 31.0)

    monkeypatch.setattr(estimates, "_stopwatch", stopwatch)


def test_an_estimate_does_not_wait_for_a_round_nor_keep_one_waiting(site: Site) -> None:
    with site.scheduler._lock.held():
        assert site.estimate("true").exit == 0


def test_a_job_whose_turn_does_not_come_in_time_is_told_a_date(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    queue_up(site, 9)
    in_time_for(monkeypatch, 4)
    date = NOW + 4 * 3601
    text = "The time for planning was over after 4 jobs, before its turn."
    assert answer(site.estimate("-l", "nodes=1,walltime=1", "true")) == (
        0,
        [f"# Job would start not before {format_date(date)}: {text}"],
    )
    record = site.record("-l", "nodes=1,walltime=1", "true")
    assert (record["feasible"], record["start"], record["not_before"]) == (None, None, date)
    assert (record["sentence"], [each["code"] for each in record["reasons"]]) == (text, ["LIMIT"])


def test_an_array_whose_turn_does_not_come_in_time_is_told_a_date(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    queue_up(site, 9)
    in_time_for(monkeypatch, 4)
    words = ("--array", 3, "-l", "nodes=1,walltime=1", "true")
    code, lines = answer(site.estimate(*words))
    told = f"# 3 jobs would start not before {format_date(NOW + 4 * 3601)}: The time for planning was over after 4 jobs"
    assert (code, len(lines)) == (0, 1)
    assert lines[0].startswith(told)
    record = site.record(*words)
    assert [each["feasible"] for each in record["jobs"]] == [None] * 3
    assert yaml.safe_load(site.estimate("-Y", *words).out) == record
    ElementTree.fromstring(site.estimate("-X", *words).out)
    assert site.estimate("-D", *words).out.startswith("{\n")


def test_a_reservation_gets_the_answer_of_the_next_round(site: Site) -> None:
    """With the limits of that round: what stands behind them does not keep it away."""
    queue_up(site)
    date = NOW + (MANY - 1) * 3601
    words = ("-r", format_date(date), "-l", "nodes=2,walltime=1")
    assert answer(site.estimate(*words)) == (0, ["# Reservation valid --> OK"])


def test_a_file_that_is_not_there_is_told(database: Database, tmp_path: Path) -> None:
    add_resources(database)
    execute_sql(database, "UPDATE queues SET scheduler_policy = 'kamelot'")
    path = tmp_path / "quotas.json"
    config = Config(quotas=True, quotas_conf_file=str(path))
    site = Site(database, config)
    result = site.estimate("true")
    site.scheduler.close()
    assert result.exit == 0
    assert result.err.startswith(f"# Warning: cannot read the quotas: {path}: No such file or directory.")


def test_tokens_are_known_from_the_last_round(database: Database) -> None:
    add_resources(at(database, NOW))
    add_rules(database)
    site = Site(database, Config(scheduler_token_scripts={"matlab": "echo 2"}))
    assert site.record("-t", "token:matlab=3", "true")["start"] == NOW
    assert site.oarsub("-t", "token:matlab=3", "true").exit == 0
    site.scheduler.round()
    record = site.record("-t", "token:matlab=3", "true")
    assert (record["start"], record["reasons"][0]["code"]) == (None, "TOKEN")
    assert [job.state for job in site.jobs()] == [JobState.WAITING]
    site.scheduler.close()


class TestSleepingNodes:
    """One of two nodes sleeps; nodes need five minutes to boot."""

    @pytest.fixture
    def saving(self, database: Database) -> Iterator[Site]:
        add_resources(database, nodes=1, cores=2)
        add_resources(database, nodes=1, cores=2, network_address="node-2", state="Absent", available_upto=2**31 - 2)
        add_rules(database)
        config = Config(
            job_resource_manager_property_db_field="cpuset",
            scheduler_node_manager_sleep_cmd="/bin/true",
            scheduler_node_manager_wake_up_cmd="/bin/true",
            scheduler_node_manager_wakeup_time=300,
        )
        made = Site(at(database, NOW), config)
        yield made
        made.scheduler.close()

    def test_a_job_is_told_when_they_have_booted(self, saving: Site) -> None:
        booted = format_date(NOW + 300)
        assert answer(saving.estimate("-l", "nodes=2,walltime=1", "true")) == (
            0,
            [
                f"# Job would start at {booted} on node-1+node-2",
                "# Not now: Its resources are free, but node node-2 must become Alive first.",
            ],
        )
        assert answer(saving.estimate("-l", "nodes=1,walltime=1", "true")) == (
            0,
            [f"# Job would start at {format_date(NOW)} on node-1"],
        )

    def test_the_time_that_has_passed_since_they_were_woken_counts(self, saving: Site) -> None:
        with saving.database.begin() as tx:
            state_changes.order_wake(tx, ["node-2"], "a test", "somebody needs it")
        at(saving.database, NOW + 100)
        assert saving.record("-l", "nodes=2,walltime=1", "true")["start"] == NOW + 300
        at(saving.database, NOW + 301)
        assert saving.record("-l", "nodes=2,walltime=1", "true")["start"] == NOW + 601
