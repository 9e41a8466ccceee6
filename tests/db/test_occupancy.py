"""The curve of occupancy: stored days and jobs give the same, and no job of a stored day is read."""

import pytest

from oar.lib.db.database import Database
from oar.lib.history.occupancy import DAY, DELAY, HOUR, OccupancyKeeper, occupancy_curve
from oar.lib.history.sql_gantt_days import Curve
from oar.lib.jobs import lifecycle
from oar.lib.jobs.states import JobState
from tests.builders import add_job, add_resources, execute_sql

#: Days of a curve: the day on which a job ended, its start and its end in seconds from the begin of that day.
DAYS = 5
JOBS = ((0, 1800, 7300), (0, -DAY - 7, 50), (1, 0, 3600), (3, -2 * DAY, 5 * HOUR + 1), (4, 60, 61))


@pytest.fixture
def begin(database: Database) -> int:
    """Add jobs that have ended on days that can be stored, and a resource of another type; return the first date."""
    resources = add_resources(database)
    execute_sql(database, f"UPDATE resources SET type = 'licence' WHERE resource_id = {resources[3]}")
    with database.snapshot() as tx:
        first: int = (tx.now // DAY - DELAY - DAYS + 1) * DAY
    for number, (day, start, stop) in enumerate(JOBS):
        job_id = add_job(database, JobState.TERMINATED, on=resources[number % 3 :])
        with database.begin() as tx:
            tx.jobs.update(job_id, start_time=first + day * DAY + start, stop_time=first + day * DAY + stop)
    return first


def first_resource(database: Database) -> list[int]:
    with database.snapshot() as tx:
        return [tx.value("SELECT min(resource_id) FROM resources")]


def used(database: Database, begin: int, bucket: int, number: int) -> list[float]:
    with database.snapshot() as tx:
        curve: list[float] = occupancy_curve(tx, begin, bucket, number)["used"]
    return curve


def keep_all(database: Database) -> list[int]:
    """Store the use of all days; return them."""
    keeper = OccupancyKeeper()
    while keeper.look(database):
        pass
    with database.snapshot() as tx:
        return tx.gantt_days.kept_days(0)


@pytest.mark.parametrize(("bucket", "number"), [(HOUR, 24 * DAYS), (DAY, DAYS), (5 * HOUR, 30), (1000, 400)])
def test_stored_days_and_jobs_give_the_same_curve(database: Database, begin: int, bucket: int, number: int) -> None:
    of_jobs = used(database, begin, bucket, number)
    assert sum(of_jobs) > 0
    assert keep_all(database) == [begin // DAY + day for day in range(DAYS)]
    assert used(database, begin, bucket, number) == of_jobs


def test_jobs_of_stored_days_are_not_read(database: Database, begin: int) -> None:
    keep_all(database)
    of_days = used(database, begin, DAY, DAYS)
    execute_sql(database, "DELETE FROM assigned_resources")
    assert used(database, begin, DAY, DAYS) == of_days
    assert sum(used(database, begin, 1000, 400)) == 0  # parts that are no whole hours need the jobs


def test_the_rows_of_a_curve_do_not_grow_with_the_jobs(database: Database, begin: int) -> None:
    def rows() -> int:
        with database.snapshot() as tx:
            return len(tx.gantt_days.steps(Curve(begin, DAY, DAYS), [(begin, begin + DAYS * DAY)]))

    few = rows()
    for _ in range(20):
        job_id = add_job(database, JobState.TERMINATED, on=first_resource(database))
        with database.begin() as tx:
            tx.jobs.update(job_id, start_time=begin + 60, stop_time=begin + DAY)
    assert rows() == few


def test_an_end_that_is_long_ago_is_counted(database: Database, begin: int) -> None:
    keep_all(database)
    before = used(database, begin, DAY, DAYS)
    job_id = add_job(database, JobState.FINISHING, on=first_resource(database))
    with database.begin() as tx:
        tx.jobs.update(job_id, start_time=begin + DAY, stop_time=begin + 2 * DAY - 1)
        lifecycle.move(tx, job_id, JobState.TERMINATED)
    after = used(database, begin, DAY, DAYS)
    assert [round(new - old, 2) for new, old in zip(after, before, strict=True)] == [0.0, 1.0, 0.0, 0.0, 0.0]
    keep_all(database)
    assert used(database, begin, DAY, DAYS) == after
