"""What oarstat shows beyond its documents for programs: filters, fields, charts, and the same again and again."""

import fcntl
import json
import os
import pty
import re
import signal
import sys
from collections.abc import Collection
from pathlib import Path
from subprocess import PIPE, Popen
from typing import Any

import pytest

from oar.cli import oarstat
from oar.cli.common.command import CommandResult
from oar.cli.oarstat import WIDE_PIPE
from oar.cli.oarstat_parts import tables
from oar.lib.base.times import format_date, local_midnight
from oar.lib.db.database import Database
from oar.lib.db.statements import Parameters, Statements
from oar.lib.jobs.formats import PAGE
from oar.lib.jobs.records import Job
from oar.lib.jobs.sql_jobs import Jobs
from oar.lib.jobs.states import JobState
from tests.db.test_oarstat import NOW, Cluster, cluster

__all__ = ["cluster"]

REPOSITORY = Path(__file__).parents[2]


def shown_ids(text: str) -> list[int]:
    return [int(line.split()[0]) for line in text.splitlines()[2:]]


class TestFilters:
    def test_states_by_letter_and_by_name(self, cluster: Cluster) -> None:
        waiting, held = cluster.job(), cluster.job(JobState.HOLD)
        running = cluster.job(JobState.RUNNING, on=[1])
        assert shown_ids(cluster.shows("-t", "w,H")) == [waiting, held]
        assert shown_ids(cluster.shows("--states", "running")) == [running]
        assert cluster.shows("-t", "S") == ""

    def test_a_state_that_does_not_exist(self, cluster: Cluster) -> None:
        result = cluster.oarstat("-t", "Runing")
        assert (result.exit, result.out) == (1, "")
        assert result.err.startswith('# Error: "Runing" is not a state: use one of W H L R')
        assert result.err.endswith('# Did you mean "Running"?\n')

    def test_names_queues_and_projects(self, cluster: Cluster) -> None:
        first = cluster.job(name="fem", project="bio")
        second = cluster.job(name="fem", queue="admin")
        assert shown_ids(cluster.shows("--name", "fem")) == [first, second]
        assert shown_ids(cluster.shows("--name", "fem", "--queue", "admin")) == [second]
        assert shown_ids(cluster.shows("--project", "bio")) == [first]
        assert list(json.loads(cluster.shows("--project", "bio", "-J"))) == [str(first)]

    def test_a_queue_that_does_not_exist_is_told(self, cluster: Cluster) -> None:
        result = cluster.oarstat("--queue", "besteffrt")
        assert result == CommandResult(
            0, "", '# Warning: queue besteffrt does not exist.\n# Did you mean "besteffort"?\n'
        )
        assert cluster.oarstat("--queue", "x\n# y").err == "# Warning: queue x\\n# y does not exist.\n"
        assert cluster.oarstat("--queue", "besteffrt", "-J") == CommandResult(0, "{}\n", "")
        assert cluster.oarstat("--queue", "besteffort") == CommandResult(0, "", "")

    def test_a_user_who_does_not_exist_is_told(self, cluster: Cluster) -> None:
        said = "# Warning: user alcie does not exist.\n"
        assert cluster.oarstat("-u", "alcie") == CommandResult(0, "", said)
        assert cluster.oarstat("-u", "x\n# y").err == "# Warning: user x\\n# y does not exist.\n"
        assert cluster.oarstat("-u", "alcie", "-J") == CommandResult(0, "{}\n", "")
        assert cluster.oarstat("-u", "root") == CommandResult(0, "", "")

    def test_who_has_no_account_any_more_and_had_jobs_is_known(self, cluster: Cluster) -> None:
        cluster.job(JobState.TERMINATED, user="formerly")
        assert cluster.oarstat("-u", "formerly") == CommandResult(0, "", "")

    def test_jobs_that_ended_since_a_date(self, cluster: Cluster) -> None:
        old, new, live = cluster.job(JobState.TERMINATED), cluster.job(JobState.ERROR), cluster.job()
        others = cluster.job(JobState.TERMINATED, user="bob")
        cluster.execute("UPDATE jobs SET stop_time = stop_time - 7200 WHERE job_id = %s", old)
        assert shown_ids(cluster.shows("--since", "1h")) == [new, live, others]
        assert shown_ids(cluster.shows("-u", "--since", "1d")) == [old, new, live]
        assert shown_ids(cluster.shows("-u", "--since", "1d", "-t", "E")) == [new]
        assert shown_ids(cluster.shows("--since", "2020-01-01", "-t", "T")) == [old, others]

    def test_a_long_table_is_read_and_printed_in_parts(self, cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
        ids = [cluster.job(JobState.TERMINATED if number % 2 else JobState.WAITING) for number in range(7)]
        words = ("--since", "1d", "-t", "T,W")
        whole = cluster.shows(*words)
        read: list[int] = []
        select = Jobs.select

        def count(table: Jobs, wanted: Collection[int]) -> list[Job]:
            read.append(len(wanted))
            return select(table, wanted)

        monkeypatch.setattr(oarstat, "JOBS_IN_PART", 3)
        monkeypatch.setattr(Jobs, "select", count)
        assert cluster.shows(*words) == whole
        assert read == [3, 3, 1]
        assert shown_ids(whole) == ids

    def test_the_ids_of_a_long_table_are_read_in_parts(self, cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
        ids = [cluster.job(JobState.TERMINATED if number % 2 else JobState.WAITING) for number in range(9)]
        foreign = [cluster.job(JobState.TERMINATED, user="bob") for _ in range(5)]
        read: list[int] = []
        column = Statements.column

        def count(table: Statements, sql: str, parameters: Parameters = ()) -> list[Any]:
            values = column(table, sql, parameters)
            if "stop_time >=" in sql:
                read.append(len(values))
            return values

        monkeypatch.setattr(oarstat, "JOBS_IN_PART", 4)
        monkeypatch.setattr(Statements, "column", count)
        assert shown_ids(cluster.shows("-u", "--since", "1d")) == ids
        assert read == [3, 4, 4, 1]
        assert shown_ids(cluster.shows("--since", "1d")) == ids + foreign
        assert max(read) <= 4

    def test_nobody_looks_through_all_that_ever_ran_unasked(self, cluster: Cluster) -> None:
        done = cluster.job(JobState.TERMINATED)
        assert cluster.oarstat("-t", "T").exit == 1
        assert shown_ids(cluster.shows("-t", "T", "-j", done)) == [done]


class TestFields:
    def test_a_table_is_as_wide_as_it_needs_to_be(self, cluster: Cluster) -> None:
        first = cluster.job(name="fem", types=["idempotent", "besteffort"])
        second = cluster.job(JobState.RUNNING, on=cluster.resources[:3], name="a long name")
        width = max(len("id"), len(str(second)))
        assert cluster.shows("--fields", "id,name,state,nodes,types:kinds,walltime") == (
            f"{'id':<{width}} name        state   nodes         kinds                 walltime\n"
            f"{first:<{width}} fem         Waiting -             idempotent,besteffort 1:0:0\n"
            f"{second:<{width}} a long name Running node-1,node-2 -                     1:0:0\n"
        )

    def test_the_head_may_be_left_out(self, cluster: Cluster) -> None:
        job = cluster.job(name="a\nb")
        assert cluster.shows("--fields", "id,name", "--no-header") == f"{job} a\\nb\n"
        assert cluster.shows("--no-header").startswith(f"{job:<10} a\\nb ")

    def test_records_for_programs_have_the_same_fields(self, cluster: Cluster) -> None:
        job = cluster.job()
        assert json.loads(cluster.shows("--fields", "id,state:s", "-J")) == {str(job): {"id": job, "s": "Waiting"}}

    def test_one_that_does_not_exist(self, cluster: Cluster) -> None:
        result = cluster.oarstat("--fields", "id,staet")
        assert (result.exit, result.err) == (1, '# Error: jobs have no field "staet"\n# Did you mean "state"?\n')

    def test_what_is_not_known_within_a_field_is_empty(self) -> None:
        records = {7: {"end": {"cause": "SUCCESS", "copy": None}}}
        assert tables.fields_table(records, tables.read_fields("end"), header=False) == "cause=SUCCESS,copy=\n"

    def test_every_part_of_a_record_is_a_field(self, cluster: Cluster) -> None:
        job = cluster.job(JobState.RUNNING, on=[1])
        assert set(cluster.record(job)) <= set(tables.KEYS)


def test_an_array_folds_with_the_numbers_of_its_states(cluster: Cluster) -> None:
    first = cluster.job()
    for index, state in enumerate((JobState.HOLD, JobState.WAITING, JobState.HOLD), 2):
        cluster.job(state, array_id=first, array_index=index)
    assert re.search(rf"^4@{first} .* - default    \(2W 2H\)$", cluster.shows("-cc"), re.MULTILINE)
    assert "(" not in cluster.shows("-c")


class TestFailures:
    def ended(self, cluster: Cluster, status: int, **columns: int) -> int:
        """Add a job that has ended; return it."""
        job = cluster.job(JobState.TERMINATED, **columns)
        with cluster.database.begin() as tx:
            tx.jobs.update(job, exit_code=status)
        return job

    @pytest.mark.parametrize(("status", "mark"), [(256, " (exit 1)"), (137 << 8, " (exit 137)"), (9, " (signal 9)")])
    def test_a_command_that_failed_has_its_exit_code_at_the_end_of_the_line(
        self, cluster: Cluster, status: int, mark: str
    ) -> None:
        failed = self.ended(cluster, status)
        good = self.ended(cluster, 0)
        lines = cluster.shows("-j", failed, "-j", good, "--format", "4", "--no-header").splitlines()
        assert [line.endswith(mark) for line in lines] == [True, False]
        assert "(" not in lines[1]

    def test_programs_that_read_the_old_formats_see_none(self, cluster: Cluster) -> None:
        job = self.ended(cluster, 256)
        for words in ((), ("--format", "1"), ("--format", "2")):
            assert "exit" not in cluster.shows("-j", job, *words)

    def test_on_a_terminal_the_letter_is_red_too(self, cluster: Cluster) -> None:
        job = self.ended(cluster, 256)
        assert re.search(r" \033\[31mT\033\[0m default +\(exit 1\)$", cluster.shows("-j", job, "--color=always"), re.M)

    def test_an_array_shows_how_many_of_its_jobs_have_failed(self, cluster: Cluster) -> None:
        first = self.ended(cluster, 0)
        for index in (2, 3):
            self.ended(cluster, 256, array_id=first, array_index=index)
        shown = cluster.shows("-cc", "--array", first, "--color=always")
        assert re.search(rf"^3@{first} .* \(3T\) \(2 failed\)$", shown, re.M)


class TestColors:
    def test_they_are_never_there_unasked(self, cluster: Cluster) -> None:
        cluster.job()
        assert "\033" not in cluster.shows()
        assert "\033" not in cluster.shows("--color", "auto")  # nobody sees them

    def test_they_may_be_wanted(self, cluster: Cluster) -> None:
        cluster.job()
        assert " \033[33mW\033[0m default" in cluster.shows("--color=always")


def test_a_chart_of_letters(cluster: Cluster) -> None:
    one, two, three, four = cluster.resources
    running = cluster.job(JobState.RUNNING, on=[one, two], walltime=50, name="fem")
    coming = cluster.job(walltime=50)
    cluster.execute("UPDATE jobs SET start_time = %s WHERE job_id = %s", NOW, running)
    cluster.predict(coming, NOW + 50, [one, three])
    record = {
        "jobs": {
            running: {"resource_id": [one, two], "start_time": NOW, "stop_time": NOW + 50, "user": "eve"}
            | {"state": "Running", "job_name": "fem", "foreseen_at": None},
            coming: {"resource_id": [one, three], "start_time": NOW + 50, "stop_time": NOW + 100, "user": "eve"}
            | {"state": "Waiting", "job_name": "", "foreseen_at": None},
        },
        "resources": [
            {"resource_id": number, "network_address": node}
            for number, node in ((one, "node-1"), (two, "node-1"), (three, "node-2"), (four, "node-2"))
        ],
        "dead_resources": {four: [(NOW + 75, 0, "Absent")], three: [(NOW - 50, NOW + 25, "Dead")]},
    }
    dates = f"{format_date(NOW)} - {format_date(NOW + 100)}"
    assert tables.chart(record, NOW, NOW + 100, width=32) == (
        f"{dates}, a column is 0:0:5\n"
        "node-1      AAAAAAAAAABBBBBBBBBB\n"
        "node-1      AAAAAAAAAA..........\n"
        "node-2      xxxxx.....BBBBBBBBBB\n"
        "node-2      ...............xxxxx\n"
        f"A {running} eve Running {format_date(NOW)} - {format_date(NOW + 50)} fem\n"
        f"B {coming} eve Waiting {format_date(NOW + 50)} - {format_date(NOW + 100)}\n"
    )
    shown = cluster.shows("--gantt", f"{format_date(NOW)}, {format_date(NOW + 100)}", "--ascii")
    assert shown.splitlines()[-1].startswith(f"B {coming} eve Waiting")


@pytest.fixture
def environment(database: Database, tmp_path: Path) -> dict[str, str]:
    """What oarstat finds when it runs as a process of its own."""
    conf = tmp_path / "oar.conf"
    conf.write_text(f'DB_HOSTNAME="{database.settings.host}"\n')
    return {"OARCONFFILE": str(conf), "PATH": os.environ["PATH"], "LINES": "24", "COLUMNS": "80"}


def typed(*words: str) -> list[str]:
    """Return the command line of oarstat as a process of its own."""
    program = f"import sys; sys.path.insert(0, {str(REPOSITORY)!r}); from oar.cli.oarstat import main; main()"
    return [sys.executable, "-I", "-c", program, *words]


@pytest.mark.parametrize(
    ("jobs", "given", "becomes"),
    [
        (PAGE + 1, 64 * 1024, WIDE_PIPE),
        (PAGE + 1, 2 * WIDE_PIPE, 2 * WIDE_PIPE),
        (1, 64 * 1024, 64 * 1024),
    ],
    ids=["a long document", "through a wider one", "a short one"],
)
def test_the_pipe_that_a_document_goes_through(
    cluster: Cluster, environment: dict[str, str], jobs: int, given: int, becomes: int
) -> None:
    ids = [str(cluster.job()) for _ in range(jobs)]
    ours, theirs = os.pipe()
    fcntl.fcntl(theirs, fcntl.F_SETPIPE_SZ, given)
    with Popen(typed("-J"), env=environment, stdout=theirs), os.fdopen(ours) as document:
        os.close(theirs)
        assert list(json.load(document)) == ids
        assert fcntl.fcntl(document, fcntl.F_GETPIPE_SZ) == becomes


class TestWatch:
    def test_a_pipe_gets_the_same_again_until_an_interrupt(self, cluster: Cluster, environment: dict[str, str]) -> None:
        first = cluster.job()
        with Popen(typed("--watch=1"), env=environment, stdout=PIPE, stderr=PIPE, text=True) as running:
            assert running.stdout is not None
            assert [running.stdout.readline() for _ in range(4)][2].startswith(f"{first} ")
            second = cluster.job()
            while not running.stdout.readline().startswith(f"{second} "):
                pass
            running.send_signal(signal.SIGINT)
            out, err = running.communicate(timeout=60)
        assert (running.returncode, err, "\033" in out) == (0, "", False)

    def test_a_terminal_is_drawn_over(self, cluster: Cluster, environment: dict[str, str]) -> None:
        job = cluster.job()
        ours, theirs = pty.openpty()
        with Popen(typed("--watch=1"), env=environment, stdout=theirs, stderr=PIPE) as running:
            os.close(theirs)
            seen = b""
            while seen.count(b"\033[H") < 2:
                seen += os.read(ours, 4096)
            running.send_signal(signal.SIGINT)
            assert running.wait(60) == 0
        os.close(ours)
        assert f"{job:<10} ".encode() in seen
        assert b"\033[J" in seen


def test_a_word_that_is_no_job_id_is_named(cluster: Cluster) -> None:
    result = cluster.oarstat("-s", "-j", "abc")
    assert (result.exit, result.err) == (255, '# Error: "abc" is not a job id. The jobs of a user: oarstat -u abc\n')


@pytest.mark.parametrize("words", [["bob"], ["-f", "bob"], ["12", "bob"], ["-J", "12x"], ["-1x"], ["-u", "eve", "bob"]])
def test_a_word_that_is_no_job_id_is_refused(cluster: Cluster, words: list[str]) -> None:
    cluster.job()
    result = cluster.oarstat(*words)
    assert (result.exit, result.out) == (1, "")
    if "bob" in words:
        assert result.err == '# Error: "bob" is not a job id. The jobs of a user: oarstat -u bob\n'


def test_who_asks_as_of_another_scheduler_is_told_how_it_is_done_here(cluster: Cluster) -> None:
    assert cluster.oarstat("-s", "T").err == '# Error: "T" is not a job id. The jobs in a state: oarstat --states T\n'
    assert cluster.oarstat("--from", "monday").err == "Unknown option: from\n# Here: --since DATE\n"


def test_the_name_of_a_queue_that_nextflow_gives_changes_nothing(cluster: Cluster) -> None:
    cluster.job(queue="besteffort")
    result = cluster.oarstat("-f", "default")
    assert result.out == cluster.oarstat("-f").out != ""
    assert result.err == '# Warning: the word "default" is ignored. The jobs of a queue: oarstat --queue default\n'


@pytest.mark.parametrize(
    ("text", "start", "stop"),
    [
        ("now,+1h", NOW, NOW + 3600),
        (" now , +1:30 ", NOW, NOW + 5400),
        (f"{format_date(NOW - 60)},now", NOW - 60, NOW),
        ("now,+1d", NOW, NOW + 86400),
        ("today,now", int(local_midnight(NOW)[0].timestamp()), NOW),
        ("yesterday,now", int(local_midnight(NOW, -1)[0].timestamp()), NOW),
        (
            "yesterday, tomorrow",
            int(local_midnight(NOW, -1)[0].timestamp()),
            int(local_midnight(NOW, 1)[0].timestamp()),
        ),
        (
            "tomorrow,+1d",
            int(local_midnight(NOW, 1)[0].timestamp()),
            int(local_midnight(NOW, 1)[0].timestamp()) + 86400,
        ),
    ],
)
def test_an_interval_is_written_as_the_dates_of_a_reservation(
    cluster: Cluster, text: str, start: int, stop: int
) -> None:
    first = cluster.shows("--gantt", text, "--ascii").splitlines()[0]
    assert first.startswith(f"{format_date(start)} - {format_date(stop)},")
