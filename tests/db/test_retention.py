"""How long the past is kept: the keys RETENTION_..., oar-database --purge."""

import time
from collections.abc import Callable

import pytest

from oar.lib.base.clock_watch import ClockWatch, Look
from oar.lib.base.times import format_date
from oar.lib.config.files import Config
from oar.lib.db.database import Database
from oar.lib.db.system import ServerState
from oar.lib.history.event_types import EventType
from oar.lib.jobs import accounting, lifecycle, retention
from oar.lib.jobs.records import JobKeys
from oar.lib.jobs.retention import DAY
from oar.lib.jobs.states import JobState
from tests.builders import add_job, add_resources, execute_sql

NOW = 1_900_000_000
#: Tables that know a job by its number.
TABLES = ("jobs", "job_state_logs", "job_types", "challenges", "job_ends", "moldable_job_descriptions", "event_logs")


class Past:
    """A database whose clock the test sets."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.clock = NOW
        database._clock = lambda: self.clock
        self.clock = NOW - 1000 * DAY
        self.resources = add_resources(database)
        self.clock = NOW

    def ended(self, days: int, **columns: object) -> int:
        """Add a job that ended so many days ago."""
        self.clock = NOW - days * DAY
        job_id = add_job(self.database, JobState.TERMINATED, on=self.resources, types=["x"], **columns)  # type: ignore[arg-type]
        with self.database.begin() as tx:
            tx.events.add(EventType.WALLTIME, job_id, "", hosts=["node-1"])
        self.clock = NOW
        return job_id

    def account(self) -> None:
        """Count all jobs that have ended."""
        list(accounting.count(self.database, accounting.accounting_rules(Config())))

    def purge(self, **keys: int) -> dict[str, int]:
        """Remove what is too old; return what was removed, and check that a dry run would have told it."""
        wanted = {"retention_challenges": 0, "retention_gantt_log": 0, **keys}
        removed = {}
        for kept in retention.kept(Config(**wanted)):
            if kept.days:
                foretold = kept.foresee(self.database, kept.days)
                removed[kept.key] = sum(kept.purge(self.database, kept.days))
                assert removed[kept.key] == foretold
        return removed

    def remember(self, watch: ClockWatch) -> None:
        """Store what a watch knows, as Sarko does."""
        with self.database.begin() as tx:
            tx.system.store_state(ServerState.CLOCK, watch.memory)

    def has_been_purged(self) -> None:
        """Write what a purge leaves behind."""
        with self.database.begin() as tx:
            tx.events.add(EventType.DATABASE_PURGED, 0, "")

    def count(self, table: str, condition: str = "true") -> int:
        """Return the number of rows of a table."""
        with self.database.begin() as tx:
            number: int = tx.value(f"SELECT count(*) FROM {table} WHERE {condition}")
        return number

    def jobs(self) -> list[int]:
        """Return the jobs that are there."""
        with self.database.begin() as tx:
            return tx.column("SELECT job_id FROM jobs ORDER BY 1")

    def faults(self) -> list[str]:
        """Return what does not fit together."""
        with self.database.begin() as tx:
            return [str(each) for each in tx.invariants.violations(self.database.settings.ro_user)]


@pytest.fixture
def past(database: Database) -> Past:
    return Past(database)


def test_an_old_job_goes_with_all_its_rows(past: Past) -> None:
    past.ended(31)
    past.account()
    assert past.purge(retention_jobs=30) == {"RETENTION_JOBS": 1}
    assert {table: past.count(table) for table in TABLES} == dict.fromkeys(TABLES, 0)
    assert past.count("event_log_hostnames") == past.count("assigned_resources") == 0
    assert past.faults() == []


def test_what_is_young_or_needed_stays(past: Past, database: Database) -> None:
    old, young, not_accounted = past.ended(31), past.ended(29), past.ended(40)
    required = past.ended(50)
    add_job(database, after=[required])
    open_event = past.ended(60)
    with database.begin() as tx:
        tx.events.add(EventType.PROLOGUE_ERROR, open_event, "", to_check=True)
        tx.execute("UPDATE jobs SET accounted = 'YES' WHERE job_id <> %s", (not_accounted,))
    past.purge(retention_jobs=30)
    left = past.jobs()
    assert old not in left
    assert {young, not_accounted, required, open_event} <= set(left)


def test_jobs_are_removed_in_pieces_and_those_that_stay_are_passed(past: Past, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "JOBS", 2)
    monkeypatch.setattr(retention, "ROWS", 2)
    ids = [past.ended(40 + number) for number in range(7)]
    past.account()
    execute_sql(past.database, "UPDATE jobs SET accounted = 'NO' WHERE job_id = ANY(%s)", ids[3:6])
    assert past.purge(retention_jobs=30) == {"RETENTION_JOBS": 4}
    assert past.jobs() == ids[3:6]


def test_steps_that_take_too_long_become_smaller_and_short_ones_larger_again(
    past: Past, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(9):
        past.ended(40 + number)
    past.account()
    monkeypatch.setattr(retention, "JOBS", 4)
    monkeypatch.setattr(retention, "LONGEST", 0.0)
    (jobs,) = (each for each in retention.kept(Config(retention_jobs=30)) if each.key == "RETENTION_JOBS")
    steps = jobs.purge(past.database, 30)
    assert [next(steps) for _ in range(4)] == [4, 2, 1, 1]
    monkeypatch.setattr(retention, "LONGEST", 1e9)
    assert list(steps) == [1, 0]  # what is left, then nothing: the step has become one of two


def test_keys_of_ended_jobs_go_and_those_of_live_ones_stay(past: Past, database: Database) -> None:
    ended = past.ended(31)
    past.clock = NOW - 90 * DAY
    live = add_job(database, JobState.RUNNING, on=past.resources)
    past.clock = NOW
    execute_sql(database, "UPDATE challenges SET ssh_private_key = 'secret'")
    assert past.purge(retention_challenges=30) == {"RETENTION_CHALLENGES": 1}
    with database.begin() as tx:
        assert tx.column("SELECT job_id FROM challenges") == [live]
        assert tx.jobs.get(ended).state is JobState.TERMINATED
        assert isinstance(tx.access.find_challenge(live), JobKeys)


def test_old_events_go_but_not_those_of_live_jobs_or_to_be_treated(past: Past, database: Database) -> None:
    past.ended(31)
    past.clock = NOW - 60 * DAY
    live = add_job(database, JobState.RUNNING, on=past.resources)
    with database.begin() as tx:
        tx.events.add(EventType.CHECKPOINT, live, "")
        tx.events.add(EventType.NODE_SWEPT, 0, "", to_check=True)
        tx.events.add(EventType.LOG_SUSPECTED, 0, "", hosts=["node-1"])
    past.clock = NOW
    past.purge(retention_event_logs=30)
    with database.begin() as tx:
        left = tx.column("SELECT type FROM event_logs ORDER BY 1")
    assert left == ["CHECKPOINT", "NODE_SWEPT"]
    assert past.count("event_log_hostnames") == 0


def test_states_go_but_not_the_present_ones(past: Past, database: Database) -> None:
    past.ended(31)
    past.clock = NOW - 60 * DAY
    live = add_job(database, JobState.RUNNING, on=past.resources)
    with database.begin() as tx:
        tx.resources.log(past.resources, "state", "Absent")
        tx.resources.log(past.resources, "state", "Alive")
    past.clock = NOW
    past.account()
    before = past.count("job_state_logs", f"job_id = {live}")
    past.purge(retention_job_state_logs=30, retention_resource_logs=30)
    assert past.count("job_state_logs", f"job_id = {live}") == before
    assert past.count("job_state_logs", f"job_id <> {live} AND date_stop <> 0") == 0
    assert past.count("resource_logs") == past.count("resource_logs", "date_stop = 0") == len(past.resources)
    assert past.faults() == []


def test_former_plans_and_the_accounting_go(past: Past, database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "ROWS", 2)
    with database.begin() as tx:
        for start, stop in ((1, NOW - 366 * DAY), (2, NOW - 366 * DAY), (3, NOW - 366 * DAY), (4, NOW)):
            tx.execute("INSERT INTO accounting (window_start, window_stop) VALUES (%s, %s)", (start, stop))
            tx.execute("INSERT INTO accounting_costs VALUES (%s, %s, 'physics', 1.5)", (start, stop))
        for date in (NOW - 9 * DAY, NOW):
            for job in range(3):
                tx.execute("INSERT INTO gantt_jobs_predictions_log VALUES (%s, %s, 0)", (date, job))
                tx.execute("INSERT INTO gantt_jobs_resources_log VALUES (%s, %s, 1)", (date, job))
    removed = past.purge(retention_gantt_log=7, retention_accounting=365)
    assert removed["RETENTION_GANTT_LOG"] == 6
    assert past.count("gantt_jobs_predictions_log") == past.count("gantt_jobs_resources_log") == 3
    assert removed["RETENTION_ACCOUNTING"] == 6
    for table in ("accounting", "accounting_costs"):
        assert past.count(table) == past.count(table, "window_start = 4") == 1


def test_no_step_removes_more_accounting_than_its_share(past: Past, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "ROWS", 2)
    with past.database.begin() as tx:
        for start in range(5):
            tx.execute("INSERT INTO accounting (window_start, window_stop) VALUES (%s, %s)", (start, NOW - 9 * DAY))
    (windows,) = (each for each in retention.kept(Config()) if each.key == "RETENTION_ACCOUNTING")
    assert list(windows.purge(past.database, 7)) == [2, 2, 1, 0]  # no costs


@pytest.mark.parametrize("work", ["submit", "end", "event"])
def test_nobody_waits_for_an_open_step(past: Past, database: Database, work: str) -> None:
    """A step that stands still in the middle of its transaction holds nothing that others need."""
    old = past.ended(31)
    past.account()
    running = add_job(database, JobState.FINISHING, on=past.resources)
    deeds: dict[str, Callable[[Database], object]] = {
        "submit": add_job,
        "end": lambda other: other.run(lambda tx: lifecycle.move(tx, running, JobState.TERMINATED)),
        "event": lambda other: other.run(lambda tx: tx.events.add(EventType.LOG_SUSPECTED, 0, "")),
    }
    with database.begin() as tx:
        tx.retention.remove_jobs([old], with_former_plans=False)
        other = Database(database.settings)
        deeds[work](other)
        other.close()
    assert old not in past.jobs()


# -- the clock that says what is old ----------------------------------------------------------------------------------


def test_a_clock_that_is_far_ahead_is_not_believed(past: Past) -> None:
    for day in range(70, -1, -7):
        past.ended(day)
    assert retention.why_clock_is_doubted(past.database) == ""
    past.clock = NOW + 365 * DAY
    why = retention.why_clock_is_doubted(past.database)
    assert f"nothing has happened between {format_date(NOW)} and {format_date(past.clock)}" in why
    with past.database.begin() as tx:  # work goes on by the new date
        tx.events.add(EventType.WALLTIME, 1, "")
    assert "nothing has happened between" in retention.why_clock_is_doubted(past.database)


def test_a_date_that_was_believed_once_is_believed_again(past: Past) -> None:
    past.ended(0)
    past.clock = NOW + 365 * DAY
    assert retention.why_clock_is_doubted(past.database)
    past.has_been_purged()
    past.clock += DAY
    assert retention.why_clock_is_doubted(past.database) == ""


def test_a_date_that_a_time_service_keeps_is_believed_after_months_of_rest(past: Past) -> None:
    past.ended(0)
    past.clock = NOW + 90 * DAY
    assert retention.why_clock_is_doubted(past.database, synchronized=past.clock + 1.5) == ""
    # The synchronized clock is not that of the database.
    assert retention.why_clock_is_doubted(past.database, synchronized=NOW)


def test_nights_without_any_job_are_told_apart_from_a_clock_by_their_purges(past: Past) -> None:
    past.has_been_purged()
    for _ in range(100):
        past.clock += DAY
        assert retention.why_clock_is_doubted(past.database) == ""
        past.has_been_purged()


def test_a_clock_of_which_the_server_waits_whether_it_is_set_back_is_not_believed(past: Past) -> None:
    past.has_been_purged()
    watch = ClockWatch()
    watch.set_by(Look(NOW, time.monotonic(), time.monotonic()))
    past.remember(watch)
    assert retention.why_clock_is_doubted(past.database) == ""
    past.clock = NOW + 3600  # nobody has seen it yet
    assert retention.why_clock_is_doubted(past.database, synchronized=past.clock).startswith(
        "The clock was set ahead; the server waits until"
    )
    watch.set_by(Look(past.clock, time.monotonic(), time.monotonic()))
    past.remember(watch)
    assert retention.why_clock_is_doubted(past.database)
