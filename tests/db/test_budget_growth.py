"""Budgets and what becomes longer or larger: walltimes of running jobs, growing jobs, advance reservations, series."""

import time
from collections.abc import Iterator
from unittest.mock import create_autospec

import pytest

from oar.cli import oarwalltime, qralter, qrdel, qrsub
from oar.cli.common.command import CommandResult
from oar.lib.accounts import budgets, project_changes
from oar.lib.accounts.records import NO_END, Budget
from oar.lib.db.database import Database
from oar.lib.jobs.states import BudgetCount, JobState
from tests.builders import add_job, execute_sql
from tests.db.budget_site import CONFIG, DAY, END, NOW, ROOT, Desk, add_physics, login_without_hours, set_budget
from tests.frontend import LoginNode


@pytest.fixture
def login(database: Database) -> LoginNode:
    add_physics(database)
    return login_without_hours(database)


@pytest.fixture
def desk(login: LoginNode, request: pytest.FixtureRequest) -> Iterator[Desk]:
    counts = getattr(request, "param", BudgetCount.REQUESTS)
    keys = {"walltime_change_enabled": True, "walltime_max_increase": {"_": -1.0}, "budget_counts": counts}
    made = Desk(login, CONFIG.replace(reservation_open=True, **keys))
    yield made
    made.scheduler.close()


BY_USE = pytest.mark.parametrize("desk", [BudgetCount.USE], indirect=True)


def run_job(desk: Desk, *, project: str = "physics.cms", hours: int = 1, queue: str = "default") -> int:
    """Add a job of alice that has just begun to run on two resources."""
    database = desk.login.database
    with database.snapshot() as tx:
        now, resources = tx.now, tx.column("SELECT resource_id FROM resources ORDER BY 1 LIMIT 2")
    job = add_job(
        database, JobState.RUNNING, on=resources, walltime=hours * 3600, user="alice", project=project, queue=queue
    )
    execute_sql(database, "UPDATE jobs SET start_time = %s WHERE job_id = %s", now, job)
    return job


def walltime(desk: Desk, job: int) -> int:
    with desk.login.database.snapshot() as tx:
        text = "SELECT moldable_walltime FROM moldable_job_descriptions WHERE moldable_job_id = %s"
        return int(tx.value(text, (job,)))


def extend(desk: Desk, job: int, change: str, *options: str) -> CommandResult:
    return desk.login.type(oarwalltime.main, *options, job, change)


@BY_USE
def test_a_job_of_a_used_up_budget_gets_no_more_time(desk: Desk) -> None:
    job, besteffort = run_job(desk), run_job(desk, queue="besteffort")
    set_budget(desk.login.database, "physics", 1, mode="wait")
    result = extend(desk, job, "+1:0")
    assert 'Forbidden: The budget of the project "physics" is used up: 1.0 of 1 resource hours' in result.out
    assert "Ask a manager of the project for hours." in result.err
    assert extend(desk, besteffort, "+1:0").exit == 0
    assert extend(desk, job, "-0:10").exit == 0
    set_budget(desk.login.database, "physics", 2)
    assert extend(desk, job, "+1:0").exit == 0


def test_with_requests_additional_time_must_fit(desk: Desk) -> None:
    job = run_job(desk)
    set_budget(desk.login.database, "physics", 6)  # one hour is used, the job requests two
    assert "This request has 4.0 resource hours, but 3.0 are left" in extend(desk, job, "+2:0").out
    assert extend(desk, job, "+1:0").exit == 0
    desk.scheduler.round()
    assert walltime(desk, job) == 7200
    assert "This request has 2.0 resource hours, but 1.0 are left" in extend(desk, job, "+1:0").out


def test_additional_time_counts_in_the_period_in_which_it_lies(desk: Desk) -> None:
    database = desk.login.database
    job = run_job(desk, hours=(END - NOW) // 3600)
    set_budget(database, "physics", 10_000)
    with database.begin() as tx:
        project_changes.set_budget(tx, CONFIG, ROOT, Budget("physics", END, NO_END, 3))
    assert "but " in extend(desk, job, "+4:0").out
    assert extend(desk, job, "+1:0").exit == 0


def test_with_requests_the_factors_of_the_resources_count(desk: Desk) -> None:
    database, job = desk.login.database, run_job(desk)
    execute_sql(database, "ALTER TABLE resources ADD COLUMN cost varchar(255)")
    execute_sql(database, "UPDATE resources SET cost = '2'")
    set_budget(database, "physics", 8)  # one hour is used, the job requests four
    assert "This request has 4.0 resource hours, but 3.0 are left" in extend(desk, job, "+1:0").out


@pytest.mark.parametrize("desk", BudgetCount, indirect=True)
def test_passes_grant_what_budgets_allow(desk: Desk) -> None:
    """The request was accepted, or is that of a growing job; meanwhile others used the hours."""
    database, job = desk.login.database, run_job(desk)
    set_budget(database, "physics", 1)
    execute_sql(database, "INSERT INTO walltime_change (job_id, pending) VALUES (%s, 7200)", job)
    desk.scheduler.round()
    assert walltime(desk, job) == 3600
    set_budget(database, "physics", 4)
    desk.scheduler.round()
    is_by_use = desk.login.config.budget_counts is BudgetCount.USE
    assert walltime(desk, job) == (10800 if is_by_use else 5400)


def test_with_requests_a_whole_change_is_granted_or_nothing(desk: Desk) -> None:
    database, job = desk.login.database, run_job(desk)
    set_budget(database, "physics", 4)
    execute_sql(database, "INSERT INTO walltime_change (job_id, pending, whole) VALUES (%s, 7200, 'YES')", job)
    desk.scheduler.round()
    assert walltime(desk, job) == 3600


def ask_pass(desk: Desk, *jobs: int) -> None:
    """Let jobs request two hours, and a pass decide."""
    for job in jobs:
        execute_sql(desk.login.database, "INSERT INTO walltime_change (job_id, pending) VALUES (%s, 7200)", job)
    desk.scheduler.round()


def test_with_requests_a_pass_grants_what_fits_before_a_used_up_period(desk: Desk) -> None:
    database = desk.login.database
    job = run_job(desk, hours=(END - NOW) // 3600)
    set_budget(database, "physics", 10_000)
    with database.begin() as tx:
        project_changes.set_budget(tx, CONFIG, ROOT, Budget("physics", END, NO_END, 0))
    ask_pass(desk, job)
    with database.snapshot() as tx:
        assert tx.jobs.get(job).start_time + walltime(desk, job) == END


def test_with_requests_jobs_of_a_pass_share_what_is_left_and_budgets_are_read_once(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second, third = (run_job(desk) for _ in range(3))
    set_budget(desk.login.database, "physics", 1 + 6 + 5)  # one hour is used, the jobs request six
    reads = create_autospec(budgets.read_uses, side_effect=budgets.read_uses)
    monkeypatch.setattr(budgets, "read_uses", reads)
    ask_pass(desk, first, second, third)
    assert [walltime(desk, job) for job in (first, second, third)] == [3 * 3600, 3600 + 1800, 3600]
    assert len([each for each in reads.mock_calls if "with_waiting" not in each.kwargs]) == 1  # the others are of plans


# -- advance reservations ---------------------------------------------------------------------------------------------


def number(desk: Desk) -> int:
    with desk.login.database.snapshot() as tx:
        return int(tx.value("SELECT max(ar_id) FROM reservations"))


def alter(desk: Desk, *words: object) -> CommandResult:
    return desk.ask(qralter.main, *words, number(desk))


@pytest.mark.parametrize("desk", BudgetCount, indirect=True)
def test_a_reservation_becomes_longer_or_larger_within_the_budget(desk: Desk) -> None:
    set_budget(desk.login.database, "physics", 8)  # one hour is used
    assert desk.reserve(NOW + DAY).exit == 0  # four hours
    for words in (("-d", "4:0:0"), ("-l", "/resource_id=4")):
        assert "This request has 8.0 resource hours, but 7.0 are left" in alter(desk, *words).err
    assert alter(desk, "-d", "1:0:0", "-l", "/resource_id=4").exit == 0
    assert alter(desk, "-d", "1:30:0").exit == 0
    set_budget(desk.login.database, "physics", 1)
    assert "is used up" in alter(desk, "-d", "1:40:0").err
    assert alter(desk, "-d", "1:0:0").exit == 0


@pytest.mark.parametrize("desk", BudgetCount, indirect=True)
def test_a_granted_reservation_counts_with_the_factors_of_its_resources(desk: Desk) -> None:
    database = desk.login.database
    set_budget(database, "physics", 8)
    assert desk.reserve(NOW + DAY).exit == 0  # two resources for two hours
    desk.scheduler.round()
    execute_sql(database, "ALTER TABLE resources ADD COLUMN cost varchar(255)")
    execute_sql(database, "UPDATE resources SET cost = '2'")
    assert "This request has 9.3 resource hours, but" in alter(desk, "-d", "2:20:0").err
    assert "This request has 12.0 resource hours, but" in alter(desk, "-l", "/resource_id=4").err


def test_a_reservation_moves_to_a_period_with_hours_only(desk: Desk) -> None:
    database = desk.login.database
    set_budget(database, "physics", 8)
    with database.begin() as tx:
        project_changes.set_budget(tx, CONFIG, ROOT, Budget("physics", END, NO_END, 3))
    assert desk.reserve(NOW + DAY).exit == 0
    later = time.strftime("%Y%m%d%H%M", time.localtime(END + DAY))
    assert "This request has 4.0 resource hours, but 3.0 are left" in alter(desk, "-a", later).err


@pytest.mark.parametrize("desk", BudgetCount, indirect=True)
def test_of_a_started_reservation_only_what_is_added_counts(desk: Desk) -> None:
    set_budget(desk.login.database, "physics", 7)  # one hour is used
    now = desk.ask(qrsub.main, "-project", "physics", "-d", "2:0:0", "-l", "/resource_id=2")  # four hours
    assert now.exit == 0
    desk.scheduler.round()
    assert "This request has 4.0 resource hours, but 2.0 are left" in alter(desk, "-d", "4:0:0").err
    assert alter(desk, "-d", "3:0:0").exit == 0


@pytest.mark.parametrize("desk", BudgetCount, indirect=True)
def test_later_occurrences_of_a_series_without_hours_are_skipped(desk: Desk) -> None:
    database, start = desk.login.database, time.strftime("%Y%m%d%H%M", time.localtime(NOW + DAY))
    set_budget(database, "physics", 6)  # one hour is used; an occurrence has four
    words = ("-project", "physics", "-a", start, "-d", "2:0:0", "-l", "/resource_id=2", "-depth", "1")
    assert desk.ask(qrsub.main, *words, "-rrule", "FREQ=DAILY;COUNT=3").exit == 0
    set_budget(database, "physics", 4)
    assert desk.login.type(qrdel.main, number(desk)).exit == 0
    for _ in range(3):
        desk.scheduler.round()
    with database.snapshot() as tx:
        later = tx.rows("SELECT series_index, state, message FROM reservations WHERE series_index > 1 ORDER BY 1")
    assert [(index, state) for index, state, _ in later] == [(2, "n"), (3, "n")]
    assert all("This request has 4.0 resource hours, but 3.0 are left" in message for _, _, message in later)


def test_later_occurrences_of_a_series_count_with_the_factors_of_their_resources(desk: Desk) -> None:
    database, start = desk.login.database, time.strftime("%Y%m%d%H%M", time.localtime(NOW + DAY))
    set_budget(database, "physics", 8)  # one hour is used; an occurrence has four, with factors eight
    words = ("-project", "physics", "-a", start, "-d", "2:0:0", "-l", "/resource_id=2", "-depth", "1")
    assert desk.ask(qrsub.main, *words, "-rrule", "FREQ=DAILY;COUNT=2").exit == 0
    execute_sql(database, "ALTER TABLE resources ADD COLUMN cost varchar(255)")
    execute_sql(database, "UPDATE resources SET cost = '2'")
    assert desk.login.type(qrdel.main, number(desk)).exit == 0
    for _ in range(3):
        desk.scheduler.round()
    with database.snapshot() as tx:
        state, message = tx.row("SELECT state, message FROM reservations WHERE series_index = 2") or ("", "")
    assert state == "n"
    assert "This request has 8.0 resource hours, but " in message
