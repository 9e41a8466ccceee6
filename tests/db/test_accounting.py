"""oaraccounting: every second of every job is counted once, in the window in which it was used."""

import json
from typing import Any

import pytest

from oar.cli import oaraccounting, oarstat
from oar.cli.common.command import CommandResult, invoke
from oar.lib.access.records import User
from oar.lib.config.files import Config
from oar.lib.db.database import Database
from oar.lib.db.lock_keys import ACCOUNTING_LOCK
from oar.lib.history import audit
from oar.lib.history.sql_audit import AuditFilter
from oar.lib.jobs import accounting
from oar.lib.jobs.states import JobState
from oar.lib.runtime import Runtime
from tests.builders import add_job, add_resources, execute_sql

ROOT = User("root", 0)
DAY = 86400
#: A midnight of UTC, where a window begins.
MIDNIGHT = 20_000 * DAY


class Books:
    """Jobs that have ended, and what was counted of them."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.resources = add_resources(database, nodes=2, cores=2)

    def job(self, start: int, stop: int, *, resources: int = 2, walltime: int = 7200, **columns: object) -> int:
        """Add a job, eve's unless said otherwise, that has had resources between two dates."""
        on = self.resources[:resources]
        values: dict[str, Any] = {"user": "eve", "project": "bio", **columns}
        job_id = add_job(self.database, JobState.TERMINATED, on=on, walltime=walltime, **values)
        self.execute("UPDATE jobs SET start_time = %s, stop_time = %s WHERE job_id = %s", start, stop, job_id)
        return job_id

    def execute(self, statement: str, *parameters: object) -> None:
        """Change something that no program of ours would."""
        execute_sql(self.database, statement, *parameters)

    def run(self, *arguments: str, user: User = ROOT, config: Config | None = None) -> CommandResult:
        """Run oaraccounting."""
        return invoke(oaraccounting.main, arguments, runtime=Runtime(config or Config(), self.database), user=user)

    def count(self, *arguments: str, config: Config | None = None) -> list[str]:
        """Run oaraccounting, which must succeed; return its lines."""
        result = self.run(*arguments, config=config)
        assert (result.exit, result.err) == (0, "")
        return result.out.splitlines()

    def windows(self, kind: str = "USED") -> dict[int, int]:
        """Return what was consumed in each window, by the day behind midnight."""
        with self.database.snapshot() as tx:
            rows = tx.rows(
                "SELECT window_start, sum(consumption)::bigint FROM accounting WHERE consumption_type = %s"
                " GROUP BY 1 ORDER BY 1",
                (kind,),
            )
        return {(row[0] - MIDNIGHT) // DAY: row[1] for row in rows}

    def accounted(self, job_id: int) -> str:
        """Return whether a job was counted."""
        with self.database.snapshot() as tx:
            return tx.jobs.get(job_id).accounted


@pytest.fixture
def books(database: Database) -> Books:
    return Books(database)


def test_a_job_is_counted_once_with_what_it_asked_for_and_used(books: Books) -> None:
    job = books.job(MIDNIGHT + 100, MIDNIGHT + 700)
    assert books.count() == [
        f"[ACCOUNTING] Treating job {job}",
        f"[ACCOUNTING] Create new window {MIDNIGHT} --> {MIDNIGHT + DAY - 1},"
        " project bio, user eve, queue default, type ASKED with conso = 14400 s",
        f"[ACCOUNTING] Create new window {MIDNIGHT} --> {MIDNIGHT + DAY - 1},"
        " project bio, user eve, queue default, type USED with conso = 1200 s",
    ]
    assert books.count() == []
    assert (books.windows("USED"), books.windows("ASKED")) == ({0: 1200}, {0: 14400})
    assert books.accounted(job) == "YES"


def test_a_run_with_many_jobs_prints_a_line_for_each_batch(books: Books, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first run treats all jobs of the database. A later batch with few jobs is summarized, too."""
    monkeypatch.setattr(oaraccounting, "MOST_JOBS_IN_LINES", 1)
    monkeypatch.setattr(accounting, "BATCH", 2)
    first, second, third = (books.job(MIDNIGHT + 100, MIDNIGHT + 700) for _ in range(3))
    assert books.count() == [
        f"[ACCOUNTING] Treated 2 jobs ({first} to {second}): 0 not applicable, 2 windows created, 0 updated",
        f"[ACCOUNTING] Treated 1 jobs ({third} to {third}): 0 not applicable, 0 windows created, 2 updated",
    ]
    assert books.windows("USED") == {0: 3600}


def test_another_job_adds_to_the_windows_that_are_there(books: Books) -> None:
    books.job(MIDNIGHT, MIDNIGHT + 10)
    books.count("-q")
    books.job(MIDNIGHT, MIDNIGHT + 15)
    assert books.count()[-1].startswith("[ACCOUNTING] Update the existing window")
    assert books.windows() == {0: 50}


def test_a_long_job_is_cut_on_its_windows_to_the_second(books: Books) -> None:
    books.job(MIDNIGHT + DAY - 1, MIDNIGHT + 400 * DAY + 1, resources=3, walltime=500 * DAY)
    books.count("-q")
    used = books.windows()
    assert used[0] == 3
    assert used[399] == 3 * DAY
    assert used[400] == 3
    assert sum(used.values()) == 3 * (399 * DAY + 2)
    assert sum(books.windows("ASKED").values()) == 3 * 500 * DAY


def test_a_job_that_ends_with_its_window_opens_no_other(books: Books) -> None:
    books.job(MIDNIGHT, MIDNIGHT + DAY, walltime=DAY)
    books.count("-q")
    assert books.windows() == {0: 2 * DAY}
    assert books.windows("ASKED") == {0: 2 * DAY}


def test_the_sum_over_all_windows_is_the_sum_over_all_jobs(books: Books) -> None:
    spans = [(place * 7919, place * 104729 % 200_000 + 1, 1 + place % 4) for place in range(60)]
    for place, (start, length, number) in enumerate(spans):
        user = ("eve", "bob")[place % 2]
        books.job(MIDNIGHT + start, MIDNIGHT + start + length, resources=number, user=user, walltime=1 + length // 2)
    books.count("-q", config=Config(accounting_window=3600))
    expected = sum(length * number for _, length, number in spans)
    with books.database.snapshot() as tx:
        assert tx.value("SELECT sum(consumption) FROM accounting WHERE consumption_type = 'USED'") == expected
        assert tx.value("SELECT bool_and(window_stop = window_start + 3599) FROM accounting")


def test_what_consumed_nothing_is_not_applicable(books: Books) -> None:
    never_started = add_job(books.database, JobState.ERROR)
    without_time = books.job(MIDNIGHT, MIDNIGHT)
    without_resources = books.job(MIDNIGHT, MIDNIGHT + 10, resources=0)
    inner = books.job(MIDNIGHT, MIDNIGHT + 10, types=["inner=1"])
    assert books.count() == [
        f"[ACCOUNTING] Not applicable for job {job}" for job in (never_started, without_time, without_resources, inner)
    ]
    assert {books.accounted(job) for job in (never_started, without_time, without_resources, inner)} == {"NA"}
    assert books.windows() == {}


def test_jobs_that_have_not_ended_are_left_alone(books: Books) -> None:
    running = add_job(books.database, JobState.RUNNING, on=books.resources)
    assert books.count() == []
    assert books.accounted(running) == "NO"


def test_only_what_computes_is_counted_unless_all_is_wanted(books: Books) -> None:
    books.execute("UPDATE resources SET type = 'licence' WHERE resource_id = %s", books.resources[0])
    books.job(MIDNIGHT, MIDNIGHT + 10, resources=2)
    books.count("-q")
    assert books.windows() == {0: 10}
    books.count("-q", "--reinitialize", config=Config(accounting_all_types=True))
    assert books.windows() == {0: 20}


def test_inner_jobs_count_where_they_are_wanted(books: Books) -> None:
    books.job(MIDNIGHT, MIDNIGHT + 10, types=["inner=1"])
    books.count("-q", config=Config(accounting_inner=True))
    assert books.windows() == {0: 20}


def test_time_in_suspension_may_be_taken_off(books: Books) -> None:
    job = books.job(MIDNIGHT, MIDNIGHT + 2 * DAY, resources=1, walltime=2 * DAY)
    for state, start, stop in (
        ("Suspended", MIDNIGHT + DAY - 100, MIDNIGHT + DAY + 50),
        ("Resuming", MIDNIGHT + DAY + 50, MIDNIGHT + DAY + 60),
    ):
        books.execute("INSERT INTO job_state_logs VALUES (DEFAULT, %s, %s, %s, %s)", job, state, start, stop)
    books.count("-q", config=Config(accounting_subtract_suspended=True))
    assert books.windows() == {0: DAY - 100, 1: DAY - 60}
    assert books.windows("ASKED") == {0: DAY, 1: DAY}
    books.count("-q", "--reinitialize")
    assert books.windows() == {0: DAY, 1: DAY}


def test_what_was_interrupted_goes_on_behind_the_last_batch(books: Books, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accounting, "BATCH", 2)
    for _ in range(5):
        books.job(MIDNIGHT, MIDNIGHT + 10, resources=1)
    batches = accounting.count(books.database, accounting.accounting_rules(Config()))
    next(batches)
    batches.close()
    assert books.windows() == {0: 20}
    books.count("-q")
    assert books.windows() == {0: 50}


def test_only_one_counts_at_a_time(books: Books) -> None:
    books.job(MIDNIGHT, MIDNIGHT + 10)
    with books.database.hold_lock(ACCOUNTING_LOCK):
        result = books.run()
    assert (result.exit, result.out) == (2, "")
    assert result.err.startswith("[ACCOUNTING] Another oaraccounting is running (pid ")
    assert books.windows() == {}


def test_cron_hears_nothing_while_all_is_well(books: Books) -> None:
    books.job(MIDNIGHT, MIDNIGHT + 10)
    for arguments in (["-q"], ["-q"], ["-q", "--reinitialize"], ["-q", "--delete-before", "1"]):
        assert books.run(*arguments) == CommandResult(0, "", "")
    with books.database.hold_lock(ACCOUNTING_LOCK):
        assert books.run("-q").err.startswith("[ACCOUNTING] Another oaraccounting is running")


def test_windows_of_two_widths_are_not_mixed(books: Books) -> None:
    books.job(MIDNIGHT, MIDNIGHT + 10, walltime=3600)
    books.count("-q")
    books.job(MIDNIGHT, MIDNIGHT + 10, walltime=3600)
    assert books.run(config=Config(accounting_window=3600)) == CommandResult(
        3, "", "[ACCOUNTING] The table has windows of 86400 s, ACCOUNTING_WINDOW is 3600: use --reinitialize.\n"
    )
    lines = books.count("--reinitialize", config=Config(accounting_window=3600))
    assert lines[0] == "Deleting all records from the accounting table..."
    assert books.windows() == {0: 40}


def test_readers_see_the_old_table_while_all_is_counted_anew(books: Books) -> None:
    books.job(MIDNIGHT, MIDNIGHT + 10)
    books.count("-q")
    batches = accounting.recount(books.database, accounting.accounting_rules(Config()), ROOT)
    next(batches)
    assert books.windows() == {0: 20}
    batches.close()
    assert books.windows() == {0: 20}


def test_old_windows_are_removed_and_their_jobs_not_counted_again(books: Books) -> None:
    job = books.job(MIDNIGHT, MIDNIGHT + 10)
    books.count("-q")
    assert books.count("--delete-before=3600") == ["Deleting records older than 3600 seconds ago..."]
    assert books.windows() == {}
    assert books.count() == []
    assert books.accounted(job) == "YES"


def test_deletions_and_new_counts_are_in_the_audit_log(books: Books) -> None:
    books.job(MIDNIGHT, MIDNIGHT + 10)
    books.count("-q")
    books.run("-q", "--reinitialize", user=User("root", 0, person="anna"))
    for _ in range(2):  # the second one finds nothing to delete
        books.run("-q", "--delete-before", "3600", user=User("root", 0, person="bob"))
    with books.database.snapshot() as tx:
        entries = audit.find(tx, AuditFilter(object="accounting"), 10)
    assert [(entry.person, entry.action, entry.former_value, entry.new_value) for entry in entries] == [
        ("root (bob)", "purge", "2 windows older than 3600 seconds", ""),
        ("root (anna)", "change", "", "all ended jobs counted again"),
    ]


def test_since_leaves_older_jobs_for_another_time(books: Books) -> None:
    old = books.job(MIDNIGHT, MIDNIGHT + 10)
    new = books.job(MIDNIGHT + 5 * DAY, MIDNIGHT + 5 * DAY + 10)
    books.count("-q", "--since=2024-10-07")  # MIDNIGHT is 2024-10-04
    assert (books.accounted(old), books.accounted(new)) == ("NO", "YES")


def test_no_walltime_fills_the_table(books: Books) -> None:
    books.job(MIDNIGHT, MIDNIGHT + 10, walltime=3_600_000_000_000)
    books.count("-q")
    assert books.windows() == {0: 20}
    assert len(books.windows("ASKED")) < 5000


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--reinitialize", "--since=2031-01-01"], "[ERROR] --reinitialize, --delete-before and --since are exclusive"),
        (["--since=soon"], '"soon" is not a date'),
        (["--delete-before=-1"], "--delete-before takes a number of seconds"),
        (["--delete-before=x"], 'Value "x" invalid for option delete-before (number expected)'),
    ],
)
def test_what_makes_no_sense_is_refused(books: Books, arguments: list[str], said: str) -> None:
    result = books.run(*arguments)
    assert result.exit == 1
    assert said in result.err


def test_users_see_what_was_counted(books: Books) -> None:
    books.job(MIDNIGHT, MIDNIGHT + 600)
    books.job(MIDNIGHT, MIDNIGHT + 60, user="bob")
    books.count("-q")
    runtime = Runtime(Config(), books.database)
    arguments = ["--accounting", "2024-10-01, 2024-10-31", "-J"]
    shown = invoke(oarstat.main, arguments, runtime=runtime, user=User("eve", 1001))
    record = json.loads(shown.out)
    assert {user: (each["asked"], each["used"]) for user, each in record.items()} == {
        "bob": (14400, 120),
        "eve": (14400, 1200),
    }
