"""What is told of advance reservations that are over: the queries of ARCo, the reporting file, the bills."""

import json
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from oar.cli import oaraccounting, oarstat
from oar.lib.access.records import User
from oar.lib.base.times import format_date
from oar.lib.jobs.states import JobState
from oar.lib.reservations import bills
from oar.lib.reservations.records import ReservationLog, ReservationRevision, ReservationUsage
from oar.lib.reservations.states import ReservationState as S
from tests.builders import add_job, add_resources, execute_sql
from tests.db.console import Console
from tests.db.reservation_rows import add_reservation
from tests.postgres import PostgreSQL

QUERIES = Path(__file__).parents[2] / "setup" / "database" / "arco"
GIB = 2**30
HOUR = 3600
#: Ten in the morning of a day of this month or the one before.
TEN = (int(datetime.now(UTC).timestamp()) // 86400 - 10) * 86400 + 10 * HOUR


class History(NamedTuple):
    """What has happened: reservation 12 with two jobs, which was altered, and 13, which nobody used."""

    jobs: tuple[int, int]
    outside: int


def run_job(console: Console, ids: list[int], start: int, stop: int, **columns: Any) -> int:
    """Add a job that has ended, submitted a minute before its start."""
    job = add_job(console.database, JobState.TERMINATED, on=ids, user="bob", project="bio", **columns)
    execute_sql(
        console.database,
        "UPDATE jobs SET submission_time = %s, start_time = %s, stop_time = %s, exit_code = 256 WHERE job_id = %s",
        start - 60,
        start,
        stop,
        job,
    )
    return job


@pytest.fixture
def history(console: Console) -> History:
    ids = add_resources(console.database, nodes=2, cores=1)
    for number, name in ((12, "proj:1"), (13, "")):
        add_reservation(
            console.database,
            number,
            ar_name=name,
            owner="alice",
            account="a1",
            state="x",
            submission_time=TEN - HOUR,
            start_time=TEN,
            end_time=TEN + HOUR,
            ended=TEN + HOUR,
            resources=ids,
            resource_list='[["licence", "2"], ["slots", "2"]]',
            revision=2 if number == 12 else 1,
        )
    add_reservation(console.database, 14, owner="alice", state="n", ended=TEN)
    jobs = (
        run_job(console, ids, TEN + 300, TEN + 2100),
        run_job(console, ids[:1], TEN + 2400, TEN + 3000, name="x:y\nz%"),
    )
    with console.database.begin() as tx:
        tx.reservations.add_job(12, jobs)
        tx.insert_many(
            "INSERT INTO job_usage (job_id, network_address, cpu_seconds, memory_peak, read_bytes, write_bytes)"
            " VALUES %s",
            [(jobs[0], "node-1", 100.5, 2 * GIB, GIB, 0), (jobs[0], "node-2", 50, GIB, None, GIB)],
        )
        granted = "default@node-1=1,default@node-2=1"
        for revision, end in ((1, TEN + 7200), (2, TEN + HOUR)):
            row = ReservationRevision(
                12, revision, TEN - HOUR + revision, "alice", "proj:1", "a1", TEN, end, "mpi", granted
            )
            tx.reservation_logs.add_revision(row)
        tx.reservation_logs.add_revision(
            ReservationRevision(13, 1, TEN - HOUR + 3, "alice", "", "a1", TEN, TEN + HOUR, "", granted)
        )
        for number in (12, 13):
            for date, event, state in (
                (TEN - HOUR + 1, "CREATED", S.WAITING),
                (TEN, "START TIME REACHED", S.RUNNING),
                (TEN + HOUR, "END TIME REACHED", S.EXITED),
                (TEN + HOUR, "TERMINATED", S.EXITED),
            ):
                message = "60 s\nlate" if (number, event) == (12, "START TIME REACHED") else ""
                tx.reservation_logs.log(ReservationLog(number, date, event, state, message=message))
        for event in ("REFUSED", "SKIPPED"):  # the second one for an occurrence of a series
            tx.reservation_logs.log(ReservationLog(14, TEN, event, S.REFUSED))
        for number, used in ((12, (2400, 1800)), (13, (0, 0))):
            bill = [ReservationUsage("default", f"node-{n}", 1, HOUR, used[n - 1], 100, TEN + HOUR) for n in (1, 2)]
            tx.reservation_logs.add_bill({number: bill})
    outside = run_job(console, ids[:1], TEN + HOUR, TEN + HOUR + 10)
    return History(jobs, outside)


def arco(postgres: PostgreSQL, console: Console, name: str, **values: object) -> list[list[str]]:
    """Run a query as an administrator does; return its rows."""
    settings = console.database.settings
    program: list[str | Path] = [postgres.programs / "psql", "-XAtq", "-F", "|", "-v", "ON_ERROR_STOP=1"]
    for key, value in values.items():
        program += ["-v", f"{key}={value}"]
    done = subprocess.run(
        [*program, "-h", postgres.socket, "-U", settings.user, "-d", settings.name, "-f", QUERIES / f"{name}.sql"],
        env={"PGTZ": "UTC"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return sorted(line.split("|") for line in done.stdout.splitlines())


def utc(date: int) -> str:
    """Return a date as PostgreSQL writes it."""
    return f"{datetime.fromtimestamp(date, UTC):%Y-%m-%d %H:%M:%S}"


# -- ARCo -------------------------------------------------------------------------------------------------------------


def test_the_accounting_of_each_reservation_by_month(history: History, postgres: PostgreSQL, console: Console) -> None:
    # 100.5 + 50 s; (2 + 1) GiB for 1800 s; 1 + 1 GiB.  The second job told nothing of itself.
    (row,) = arco(postgres, console, "accounting_per_ar")
    assert row[:3] == [f"{datetime.fromtimestamp(TEN, UTC):%Y-%m}-01", "12", "150.5"]
    assert [float(value) for value in row[3:]] == [5400, 2]


def test_the_attributes_are_those_of_the_newest_revision(
    history: History, postgres: PostgreSQL, console: Console
) -> None:
    expected = ["12", "alice", utc(TEN - HOUR), "proj:1", "a1", utc(TEN), utc(TEN + HOUR), "mpi"]
    assert arco(postgres, console, "attributes", ar_number=12) == [expected]
    assert arco(postgres, console, "attributes", ar_number=14) == []


def test_the_log_of_a_reservation(history: History, postgres: PostgreSQL, console: Console) -> None:
    assert arco(postgres, console, "log", ar_number=13) == [
        ["13", utc(TEN - HOUR + 1), "CREATED", "w", ""],
        ["13", utc(TEN), "START TIME REACHED", "r", ""],
        ["13", utc(TEN + HOUR), "END TIME REACHED", "x", ""],
        ["13", utc(TEN + HOUR), "TERMINATED", "x", ""],
    ]


def test_the_time_usage_of_an_unused_reservation_is_all_of_it(
    history: History, postgres: PostgreSQL, console: Console
) -> None:
    assert arco(postgres, console, "time_usage") == [
        ["12", "00:40:00", "01:00:00", "00:20:00"],
        ["13", "00:00:00", "01:00:00", "01:00:00"],
    ]


def test_of_a_number_that_was_given_again_each_reservation_has_its_own_jobs(
    history: History, postgres: PostgreSQL, console: Console
) -> None:
    later = add_reservation(
        console.database,
        12 + 9_999_999,
        owner="alice",
        state="x",
        start_time=TEN,
        end_time=TEN + HOUR,
        ended=TEN + HOUR,
    )
    with console.database.begin() as tx:
        tx.reservation_logs.add_revision(
            ReservationRevision(later, 1, TEN, "alice", "", "", TEN, TEN + HOUR, "", "default@node-1=1")
        )
        tx.reservations.add_job(later, [history.outside])
    assert sorted(arco(postgres, console, "time_usage")) == [
        ["12", "00:00:10", "01:00:00", "00:59:50"],
        ["12", "00:40:00", "01:00:00", "00:20:00"],
        ["13", "00:00:00", "01:00:00", "01:00:00"],
    ]


def test_the_reservations_of_a_user_are_those_that_were_granted(
    history: History, postgres: PostgreSQL, console: Console
) -> None:
    assert arco(postgres, console, "by_user", ar_owner="alice") == [["12", utc(TEN - HOUR)], ["13", utc(TEN - HOUR)]]
    assert arco(postgres, console, "by_user", ar_owner="o'brien") == []


def test_the_number_of_jobs_by_day(history: History, postgres: PostgreSQL, console: Console) -> None:
    assert arco(postgres, console, "jobs_completed") == [["12", utc(TEN - 10 * HOUR), "2"]]


def test_views_of_the_bill(history: History, console: Console) -> None:
    with console.database.begin() as tx:
        assert tx.rows("SELECT queue, hostname, slots FROM view_ar_usage WHERE ar_number = 12 ORDER BY 2") == [
            ("default", "node-1", 1),
            ("default", "node-2", 1),
        ]
        assert tx.rows("SELECT ar_number, variable, value FROM view_ar_resource_usage ORDER BY 1, 2") == [
            (12, "licence", "2"),
            (12, "slots", "2"),
            (13, "licence", "2"),
            (13, "slots", "2"),
        ]
        assert tx.rows("SELECT ar_id, reserved, used, unusable, unused FROM view_ar_efficiency ORDER BY 1") == [
            (12, 7200, 4200, 200, 2800),
            (13, 7200, 0, 200, 7000),
        ]
        assert tx.rows("SELECT ar_id, job_id, job_user FROM view_ar_jobs ORDER BY 2") == [
            (12, job, "bob") for job in history.jobs
        ]
        assert tx.rows("SELECT v_id, v_version FROM sge_version") == [(5, "6.2")]
        statuses = tx.column("SELECT DISTINCT ju_exit_status FROM sge_job_usage")
        assert statuses == [1]


def test_frames_are_no_jobs_of_the_model(history: History, console: Console) -> None:
    with console.database.begin() as tx:
        tx.execute("UPDATE reservations SET frame_id = %s WHERE reservation_id = 12", (history.outside,))
        assert tx.column("SELECT j_id FROM sge_job ORDER BY 1") == list(history.jobs)
        assert tx.column("SELECT ju_id FROM sge_job_usage ORDER BY 1") == list(history.jobs)


def test_a_reservation_job_that_was_deleted_before_its_date_did_not_run(history: History, console: Console) -> None:
    deleted = add_job(console.database, JobState.ERROR)
    with console.database.begin() as tx:
        tx.execute(
            "UPDATE jobs SET reservation = 'Scheduled', start_time = %s, stop_time = %s WHERE job_id = %s",
            (TEN + HOUR, TEN, deleted),
        )
        tx.reservations.add_job(13, [deleted])
        assert deleted not in tx.column("SELECT ju_id FROM sge_job_usage")
        assert tx.column("SELECT job_duration::text FROM view_ar_time_usage WHERE ar_number = 13") == ["00:00:00"]
    records = [line.split(":") for line in report(console)]
    assert str(deleted) not in [fields[7] for fields in records if fields[1] == "acct"]
    assert str(history.outside) in [fields[7] for fields in records if fields[1] == "acct"]


# -- the reporting file -----------------------------------------------------------------------------------------------


def report(console: Console, *arguments: str) -> list[str]:
    """Run oaraccounting --reporting."""
    result = console.type(oaraccounting.main, "--reporting", *arguments)
    assert (result.exit, result.err) == (0, "")
    return result.out.splitlines()


def test_the_reporting_file_is_made_from_the_tables(history: History, console: Console) -> None:
    granted = "default@node-1=1,default@node-2=1"
    asked, first, end = TEN - HOUR, TEN - HOUR + 1, TEN + HOUR
    lines = [line for line in report(console) if ":acct:" not in line]
    assert lines == [
        f"{first}:new_ar:{asked}:12:alice",
        f"{first}:new_ar:{asked}:13:alice",
        f"{first}:ar_attribute:{first}:{asked}:12:proj%3A1:a1:{TEN}:{TEN + 7200}:mpi:{granted}",
        f"{first}:ar_log:{first}:{asked}:12:w:CREATED:",
        f"{first}:ar_log:{first}:{asked}:13:w:CREATED:",
        f"{asked + 2}:ar_attribute:{asked + 2}:{asked}:12:proj%3A1:a1:{TEN}:{end}:mpi:{granted}",
        f"{asked + 3}:ar_attribute:{asked + 3}:{asked}:13::a1:{TEN}:{end}::{granted}",
        f"{TEN}:ar_log:{TEN}:{asked}:12:r:START TIME REACHED:60 s%0Alate",
        f"{TEN}:ar_log:{TEN}:{asked}:13:r:START TIME REACHED:",
        *(
            f"{end}:ar_log:{end}:{asked}:{number}:x:{event}:"
            for number in (12, 13)
            for event in ("END TIME REACHED", "TERMINATED")
        ),
        *(f"{end}:ar_acct:{end}:{asked}:{number}:default:node-{node}:1" for number in (12, 13) for node in (1, 2)),
    ]


def test_jobs_have_the_fields_of_grid_engine_and_their_reservation(history: History, console: Console) -> None:
    jobs = [line.split(":") for line in report(console) if ":acct:" in line]
    assert [len(fields) for fields in jobs] == [2 + 45] * 3
    first, second, outside = (fields[2:] for fields in jobs)
    asked, start, stop = TEN + 240, TEN + 300, TEN + 2100
    assert first[:2] == ["default", "node-1"]
    assert first[3] == "bob"
    assert first[5:14] == [*(str(value) for value in (history.jobs[0], "sge", 0, asked, start, stop, 0, 1, 1800))]
    assert first[14:31] == ["0"] * 17
    assert first[31:] == [
        *("bio", "default", "NONE", "2", "0", "150.500000", "5400.000000", "2.000000", "NONE", "0.000000", "NONE"),
        *(f"{3 * GIB}.000000", "12", str(TEN - HOUR)),
    ]
    assert (second[1], second[4], second[43:]) == ("NONE", "x%3Ay%0Az%25", ["12", str(TEN - HOUR)])
    assert outside[43:] == ["0", "0"]


def test_the_reporting_file_can_begin_at_a_date(history: History, console: Console) -> None:
    lines = report(console, "--since", format_date(TEN + HOUR))
    assert len(lines) == 4 + 4 + 1
    dates = [int(line.split(":")[0]) for line in report(console)]
    assert dates == sorted(dates)


def test_reporting_changes_nothing(history: History, console: Console) -> None:
    report(console)
    with console.database.begin() as tx:
        assert tx.value("SELECT count(*) FROM accounting") == 0
    refused = console.type(oaraccounting.main, "--reporting", "--reinitialize")
    assert (refused.exit, refused.err) == (1, "[ERROR] --reporting can only be combined with --since\n")


@pytest.mark.parametrize(("code", "status"), [(None, 0), (0, 0), (256, 1), (9, 137), (139, 139)])
def test_the_exit_status_is_that_of_a_shell(code: int | None, status: int) -> None:
    assert bills.exit_status(code) == status


# -- bills ------------------------------------------------------------------------------------------------------------

BILLS = """\
     AR owner         jobs         reserved             used         unusable           unused
                               slot seconds     slot seconds     slot seconds     slot seconds
     12 alice            2             7200             4200              200             2800
     13 alice            0             7200                0              200             7000
"""


def test_oarstat_shows_the_bills_of_a_time(history: History, console: Console) -> None:
    def bills(*arguments: object, start: int = TEN - HOUR, stop: int = TEN + HOUR) -> str:
        dates = f"{format_date(start)}, {format_date(stop)}"
        result = console.type(oarstat.main, "--accounting", dates, *arguments, user=User("bob", 1002))
        assert (result.exit, result.err) == (0, "")
        return result.out

    assert bills("--ar") == BILLS
    assert bills("--ar", 13, "--no-header") == BILLS.splitlines(keepends=True)[3]
    assert bills("--ar", "-u", "bob", "--no-header") == ""
    assert bills("--ar", "--no-header", start=TEN + HOUR, stop=TEN + 2 * HOUR) == ""
    alone = console.type(oarstat.main, "--ar")
    assert (alone.exit, alone.err) == (1, "# Error: --ar without a number or a name needs --accounting\n")
    unknown = console.type(oarstat.main, "--ar", "nosuch")
    assert (unknown.exit, unknown.err) == (1, "# Error: the advance reservation nosuch does not exist.\n")
    with console.database.begin() as tx:
        tx.reservations.update(13, ar_name="course")
    assert bills("--ar", "course", "--no-header") == bills("--ar", 13, "--no-header")
    record = json.loads(bills("--ar", "-J"))["12"]
    assert record == {
        "owner": "alice",
        "account": "a1",
        "jobs": 2,
        "reserved": 7200,
        "used": 4200,
        "unusable": 200,
        "unused": 2800,
    }
