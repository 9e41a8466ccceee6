"""Budgets: who may set which, what is used of them, and what happens to jobs when one is used up."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from oar.cli import oaralter, oarproject, oarstat, qrsub
from oar.cli.common.command import CommandResult
from oar.kao.rounds.meta_sched import MetaScheduler
from oar.kao.rounds.reading.snapshot_reader import SnapshotReader
from oar.lib.access.records import User
from oar.lib.accounts import budgets as project_budgets
from oar.lib.accounts import project_changes, project_files
from oar.lib.accounts.budgets import NewRequest
from oar.lib.accounts.records import NO_END, Budget, Member
from oar.lib.accounts.sql_projects import Projects
from oar.lib.accounts.states import MemberRole, OnExhaustion
from oar.lib.base.errors import BadRequest, NotAllowed, UserError
from oar.lib.bus.messages import Mail, UserMail
from oar.lib.db.database import Database
from oar.lib.db.statements import Statements
from oar.lib.jobs import accounting
from oar.lib.jobs.records import JobKeys
from oar.lib.jobs.states import BudgetCount, JobState, ProjectMode
from oar.lib.runtime import Runtime
from oar.lib.submission import resubmission
from oar.lib.submission.sql_admission import SubmissionChecks, SubmissionLimits
from oar.lib.submission.sql_new_jobs import JobBatch, NewAlternative
from tests.builders import PLAIN, add_job, execute_sql, state_of
from tests.db.budget_site import (
    ALICE,
    BOB,
    CONFIG,
    DAY,
    END,
    NOW,
    REQUESTS,
    ROOT,
    START,
    Desk,
    Passes,
    Site,
    add_physics,
    login_without_hours,
    set_budget,
)
from tests.frontend import LoginNode, add_rules


@pytest.fixture
def physics(database: Database) -> Database:
    add_physics(database)
    return database


def budgets(database: Database) -> list[Budget]:
    with database.snapshot() as tx:
        return tx.budgets.all()


def test_a_budget_is_stored_replaced_and_removed(physics: Database) -> None:
    set_budget(physics, "physics", 100)
    set_budget(physics, "physics", 200.5, mode="wait")
    assert budgets(physics) == [Budget("physics", START, END, 200.5, OnExhaustion.WAIT)]
    with pytest.raises(BadRequest, match="no budget of the project"), physics.begin() as tx:
        project_changes.remove_budget(tx, ROOT, "physics", START + 1)
    with physics.begin() as tx:
        project_changes.remove_budget(tx, ROOT, "physics", START)
    assert budgets(physics) == []


@pytest.mark.parametrize("period", [(START - DAY, START + 1), (END - 1, NO_END), (START + 1, START + DAY), (0, NO_END)])
def test_overlapping_periods_are_refused(physics: Database, period: tuple[int, int]) -> None:
    set_budget(physics, "physics", 100)
    with pytest.raises(BadRequest, match="overlaps with the budget of 100 resource hours"), physics.begin() as tx:
        project_changes.set_budget(tx, CONFIG, ROOT, Budget("physics", *period, 1))


def test_periods_that_follow_each_other_are_accepted(physics: Database) -> None:
    set_budget(physics, "physics", 100)
    with physics.begin() as tx:
        project_changes.set_budget(tx, CONFIG, ROOT, Budget("physics", END, NO_END, 1))
        project_changes.set_budget(tx, CONFIG, ROOT, Budget("physics", 0, START, 1))
    assert [budget.hours for budget in budgets(physics)] == [1, 100, 1]


@pytest.mark.parametrize("budget", [(END, START, 1.0), (START, START, 1.0), (START, END, -1.0), (START, END, 1e13)])
def test_an_impossible_budget_is_refused(physics: Database, budget: tuple[int, int, float]) -> None:
    with pytest.raises(BadRequest, match="not possible"), physics.begin() as tx:
        project_changes.set_budget(tx, CONFIG, ROOT, Budget("physics", *budget))


@pytest.mark.parametrize("length", [1, 3600, DAY // 2 - 1])
def test_a_period_without_a_window_of_accounting_is_refused(physics: Database, length: int) -> None:
    """No use would ever count in it."""
    text = "it contains no whole accounting window of 86400 s"
    with pytest.raises(BadRequest, match=text), physics.begin() as tx:
        project_changes.set_budget(tx, CONFIG, ROOT, Budget("physics", START, START + length, 5))
    hours = CONFIG.replace(accounting_window=3600)
    with physics.begin() as tx:
        project_changes.set_budget(tx, hours, ROOT, Budget("physics", START, START + DAY // 2 - 1, 5))


def test_a_manager_sets_budgets_of_sub_projects_within_his_own(physics: Database) -> None:
    with pytest.raises(NotAllowed, match="no budget of your project physics contains the period"):
        set_budget(physics, "physics.cms", 10, BOB)
    set_budget(physics, "physics", 100)
    set_budget(physics, "physics.cms", 100, BOB)
    with pytest.raises(NotAllowed, match="101 resource hours exceed the budget"):
        set_budget(physics, "physics.cms", 101, BOB)
    for project in ("physics", "biology"):
        with pytest.raises(NotAllowed, match="you may not change the budget"):
            set_budget(physics, project, 10, BOB)
    with pytest.raises(NotAllowed, match="you may not change the budget"):
        set_budget(physics, "physics.cms", 10, ALICE)
    assert [(budget.project, budget.hours) for budget in budgets(physics)] == [("physics", 100), ("physics.cms", 100)]


def test_budgets_survive_export_and_import(physics: Database) -> None:
    set_budget(physics, "physics", 100.25, mode="besteffort")
    with physics.begin() as tx:
        project_changes.set_budget(tx, CONFIG, ROOT, Budget("physics", END, NO_END, 7))
        text = project_files.export_file(tx)
        before = tx.budgets.all()
        tx.budgets.remove("physics", [START, END])
        lines = project_files.import_file(tx, ROOT, project_files.parse_file(text, DAY))
        assert tx.budgets.all() == before
        assert project_files.import_file(tx, ROOT, project_files.parse_file(text, DAY)) == []
        assert project_files.export_file(tx) == text
    assert len(lines) == 2


def test_a_file_without_columns_of_budgets_is_accepted() -> None:
    content = project_files.parse_file("project,parent,user,role,shares\nphysics,,alice,,\n", DAY)
    assert (len(content.members), content.budgets) == (1, ())


@pytest.mark.parametrize(
    ("row", "text"),
    [
        ("physics,,,,,2026-01-01,2027-01-01,x,", '"x" is no number of resource hours'),
        ("physics,,,,,tomorrow,,5,", "is not a date"),
        ("physics,,,,,2027-01-01,2026-01-01,5,", "not possible"),
        ("physics,,,,,2027-01-01,,5,stop", '"stop" is not possible when a budget is used up'),
        ("physics,,alice,,,2027-01-01,,5,wait", "leave the user empty"),
        ("physics,,,,,2027-01-01 10:00:00,2027-01-01 11:00:00,5,wait", "line 2: the period .* is too short"),
        ("physics,,,,,2026-01-01,,5,wait\nphysics,,,,,2027-01-01,,5,wait", "overlaps with the budget"),
    ],
)
def test_a_wrong_row_of_a_file_is_refused(row: str, text: str) -> None:
    head = ",".join(project_files.COLUMNS + project_files.BUDGET_COLUMNS)
    with pytest.raises(BadRequest, match=text):
        project_files.parse_file(f"{head}\n{row}\n", DAY)


# -- use --------------------------------------------------------------------------------------------------------------


@pytest.fixture
def site(physics: Database) -> Site:
    set_budget(physics, "physics", 100)
    set_budget(physics, "physics.cms", 50)
    return Site(physics)


def test_use_is_accounting_and_running_jobs_of_a_project_and_those_below(site: Site) -> None:
    site.job(NOW - 5000, NOW - 4000)
    site.account()
    site.job(NOW - 900, NOW - 800, project="physics.cms")  # it is not accounted yet
    site.job(NOW - 77, resources=3)
    site.job(NOW - 500, project="biology")
    assert site.used() == 2 * 1000 + 2 * 100 + 3 * 77
    assert site.used("physics.cms") == 2 * 100
    site.account()
    assert site.used() == 2 * 1000 + 2 * 100 + 3 * 77


def test_the_end_and_the_accounting_of_a_job_do_not_change_its_use(site: Site) -> None:
    job = site.job(NOW - 3 * DAY - 5, walltime=5 * DAY)
    running = site.used()
    site.end(job, NOW)
    ended = site.used()
    site.account()
    assert running == ended == site.used() == 2 * (3 * DAY + 5)


def test_what_was_used_stays_used_when_jobs_are_purged(site: Site) -> None:
    site.job(NOW - 5000, NOW - 4000)
    site.account()
    execute_sql(site.database, "DELETE FROM jobs")
    execute_sql(site.database, "DELETE FROM assigned_resources")
    assert site.used() == 2000


def test_the_use_is_read_without_all_projects(site: Site) -> None:
    """A site may have a hundred thousand projects: only those with budgets and those below them are read."""
    site.job(NOW - 3600, NOW - 1800, project="physics.cms")
    with patch.object(Projects, "all", side_effect=AssertionError), site.database.begin() as tx:
        for counts in BudgetCount:
            config = CONFIG.replace(budget_counts=counts)
            assert project_budgets.exhaustion_of(tx, config, NewRequest("default", "physics.cms", 60)) is None
        assert site.used("physics") == site.used("physics.cms") == 3600
    with patch.object(Projects, "all", side_effect=AssertionError):
        assert SnapshotReader(site.database, CONFIG).read().snapshot.budget_stops == {}


@pytest.mark.parametrize("is_subtracted", [False, True])
def test_suspension_counts_as_in_accounting(site: Site, is_subtracted: bool) -> None:
    site.config = site.config.replace(accounting_subtract_suspended=is_subtracted)
    job = site.job(NOW - 1000, resources=1)
    execute_sql(site.database, "DELETE FROM job_state_logs")
    execute_sql(site.database, "INSERT INTO job_state_logs VALUES (DEFAULT, %s, 'Suspended', %s, 0)", job, NOW - 300)
    assert site.used() == (700 if is_subtracted else 1000)
    execute_sql(site.database, "UPDATE job_state_logs SET date_stop = %s WHERE job_state = 'Suspended'", NOW - 100)
    expected = 800 if is_subtracted else 1000
    assert site.used() == expected
    site.end(job, NOW)
    site.account()
    assert site.used() == expected


def test_a_change_of_walltime_changes_requests_only(site: Site) -> None:
    job = site.job(NOW - 1000, resources=1, walltime=3600)
    site.config = REQUESTS
    assert (site.uses()["physics"].used, site.uses()["physics"].counted) == (1000, 3600)
    execute_sql(
        site.database, "UPDATE moldable_job_descriptions SET moldable_walltime = 7200 WHERE moldable_job_id = %s", job
    )
    assert (site.uses()["physics"].used, site.uses()["physics"].counted) == (1000, 7200)
    site.end(job, NOW)
    assert site.uses()["physics"].counted == 1000


def test_besteffort_jobs_do_not_count_before_and_after_their_kill(site: Site) -> None:
    job = site.job(NOW - 1000)
    execute_sql(site.database, "UPDATE jobs SET queue_name = 'besteffort' WHERE job_id = %s", job)
    assert site.uses()["physics"].used == 0
    site.end(job, NOW)
    assert site.used() == 0
    site.account()
    assert site.used() == 0


def test_a_period_has_whole_windows_and_consecutive_periods_share_none(site: Site) -> None:
    with site.database.begin() as tx:
        project_changes.set_budget(tx, CONFIG, ROOT, Budget("physics", END, END + 5 * DAY + 7200, 1))
        project_changes.set_budget(tx, CONFIG, ROOT, Budget("physics", END + 5 * DAY + 7200, NO_END, 1))
    job = site.job(END - 3600, resources=1, walltime=10 * DAY)
    assert site.used(now=END - 1) == 3599
    assert site.used(now=END + DAY) == DAY
    late = END + 6 * DAY
    assert site.used(now=late) == DAY  # the period begins with the nearest window
    site.end(job, late)
    site.account()
    assert site.used(now=late) == DAY
    assert site.used(now=END + 2 * DAY) == 5 * DAY  # all windows of the period are accounted


def test_the_property_cost_is_a_factor_before_and_after_accounting(site: Site) -> None:
    site.job(NOW - 200, NOW - 100)
    site.account()  # before there are costs
    execute_sql(site.database, "ALTER TABLE resources ADD COLUMN cost varchar(255)")
    execute_sql(site.database, "UPDATE resources SET cost = '2.5' WHERE resource_id = %s", site.resources[0])
    execute_sql(site.database, "UPDATE resources SET cost = '0' WHERE resource_id = %s", site.resources[1])
    execute_sql(site.database, "UPDATE resources SET cost = 'much' WHERE resource_id = %s", site.resources[2])
    job = site.job(NOW - 1000, resources=4, project="physics.cms")
    assert site.used() == 200 + 1000 * (2.5 + 0 + 1 + 1)
    site.end(job, NOW)
    site.account()
    execute_sql(site.database, "UPDATE resources SET cost = '7'")
    assert site.used() == 200 + 4500
    list(accounting.recount(site.database, accounting.accounting_rules(site.config), ROOT))
    assert site.used() == 7 * 200 + 7 * 4000


class Life(NamedTuple):
    """A job: when it started, how long it held its resources, and when it was suspended, in seconds."""

    start: int
    length: int
    resources: int
    suspended: tuple[int, int]  #: offset and length
    project: str
    is_besteffort: bool

    def seconds(self, now: int, *, subtracts: bool) -> int:
        """Return the resource seconds that count until a date."""
        end = min(self.start + self.length, now)
        begin, stop = self.start + self.suspended[0], self.start + sum(self.suspended)
        pause = max(0, min(stop, end) - begin) if subtracts else 0
        return 0 if self.is_besteffort else self.resources * max(0, end - self.start - pause)


_LIVES = st.builds(
    Life,
    st.integers(START + DAY, NOW),
    st.integers(1, 4 * DAY),
    st.integers(1, 4),
    st.tuples(st.integers(0, DAY), st.integers(0, DAY)),
    st.sampled_from(("physics", "physics.cms", "biology")),
    st.booleans(),
)


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(lives=st.lists(_LIVES, max_size=6), dates=st.lists(st.integers(START + DAY, NOW), max_size=3), subtracts=...)
def test_the_use_is_right_to_the_second_whenever_jobs_are_accounted_and_purged(
    site: Site, lives: list[Life], dates: list[int], subtracts: bool
) -> None:
    for table in ("jobs", "job_state_logs", "assigned_resources", "accounting"):
        execute_sql(site.database, f"DELETE FROM {table}")
    site.config = CONFIG.replace(accounting_subtract_suspended=subtracts)
    jobs: dict[int, Life] = {}
    for now in sorted({*dates, NOW}):
        for life in lives:
            if life.start <= now and life not in jobs.values():
                jobs[_live(site, life)] = life
        for job_id, life in jobs.items():
            if life.start + life.length <= now:
                site.end(job_id, life.start + life.length)
        expected = {
            name: sum(
                life.seconds(now, subtracts=subtracts)
                for life in {*jobs.values()}
                if life.project == name or life.project.startswith(f"{name}.")
            )
            for name in ("physics", "physics.cms")
        }
        assert {name: use.used for name, use in site.uses(now).items()} == expected
        site.account()
        assert {name: use.used for name, use in site.uses(now).items()} == expected
        execute_sql(site.database, "DELETE FROM jobs WHERE accounted <> 'NO'")
        assert {name: use.used for name, use in site.uses(now).items()} == expected


def _live(site: Site, life: Life) -> int:
    """Add a running job with its suspension, past or future."""
    job_id = site.job(life.start, resources=life.resources, project=life.project)
    queue = "besteffort" if life.is_besteffort else "default"
    execute_sql(site.database, "UPDATE jobs SET queue_name = %s WHERE job_id = %s", queue, job_id)
    begin = life.start + life.suspended[0]
    stop = min(begin + life.suspended[1], life.start + life.length)
    execute_sql(site.database, "DELETE FROM job_state_logs WHERE job_id = %s", job_id)
    if begin < stop:
        sql = "INSERT INTO job_state_logs VALUES (DEFAULT, %s, 'Suspended', %s, %s)"
        execute_sql(site.database, sql, job_id, begin, stop)
    return job_id


def test_the_date_of_exhaustion_follows_the_present_rate(site: Site) -> None:
    site.job(NOW - 3600, NOW, resources=1)
    use = site.uses()["physics"]
    elapsed = NOW - START
    assert use.exhaustion_date(NOW) is None  # at this rate it lasts beyond the period
    busy = use._replace(used=90 * 3600.0, counted=90 * 3600.0)
    assert busy.exhaustion_date(NOW) == int(NOW + 10 * elapsed / 90)
    assert busy._replace(used=101 * 3600.0, counted=101 * 3600.0).exhaustion_date(NOW) is None


# -- submission -------------------------------------------------------------------------------------------------------


@pytest.fixture
def login(physics: Database) -> LoginNode:
    return login_without_hours(physics)


def _by_option(login: LoginNode, tmp_path: Path) -> CommandResult:
    return login.oarsub("--project", "physics.cms", "x")


def _by_directive(login: LoginNode, tmp_path: Path) -> CommandResult:
    script = tmp_path / "job.sh"
    script.write_text("#!/bin/sh\n#OAR --project physics\ntrue\n")
    script.chmod(0o755)
    return login.oarsub("-S", script)


def _by_array(login: LoginNode, tmp_path: Path) -> CommandResult:
    return login.oarsub("--array", 3, "--project", "physics", "x")


def _by_rule(login: LoginNode, tmp_path: Path) -> CommandResult:
    add_rules(login.database, "project = 'physics'", defaults=False)
    return login.oarsub("--project", "biology", "x")


def _by_reservation_job(login: LoginNode, tmp_path: Path) -> CommandResult:
    start = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(NOW + DAY))
    return login.oarsub("-r", start, "--project", "physics", "x")


def _by_qrsub(login: LoginNode, tmp_path: Path) -> CommandResult:
    start = time.strftime("%Y%m%d%H%M", time.localtime(NOW + DAY))
    return login.type(qrsub.main, "-a", start, "-d", "1:0:0", "-project", "physics", "-l", "nodes=1")


def _by_alteration(login: LoginNode, tmp_path: Path) -> CommandResult:
    job = login.submit("--project", "biology", "-n", "altered", "x").id
    result = login.type(oaralter.main, job, "--project", "physics")
    assert login.jobs()[-1].project == "biology"
    execute_sql(login.database, "DELETE FROM jobs")
    return result


def _by_resubmission(login: LoginNode, tmp_path: Path) -> CommandResult:
    ended = add_job(login.database, JobState.TERMINATED, user="alice", project="physics")
    result = login.oarsub("--resubmit", ended)
    execute_sql(login.database, "DELETE FROM jobs WHERE job_id = %s", ended)
    return result


@pytest.mark.parametrize(
    "way",
    [
        *(_by_option, _by_directive, _by_array, _by_rule, _by_reservation_job),
        *(_by_qrsub, _by_alteration, _by_resubmission),
    ],
)
@pytest.mark.parametrize("counts", BudgetCount)
def test_a_project_whose_budget_is_used_up_is_refused_on_each_channel(
    login: LoginNode, tmp_path: Path, way: Callable[[LoginNode, Path], CommandResult], counts: BudgetCount
) -> None:
    login.config = login.config.replace(budget_counts=counts)
    set_budget(login.database, "physics", 1)
    result = way(login, tmp_path)
    assert result.exit != 0
    assert 'The budget of the project "physics" is used up: 1.0 of 1 resource hours from ' in result.err
    assert login.jobs() == []
    assert login.count("reservations") == 0


def test_other_projects_periods_and_modes_are_not_refused(login: LoginNode) -> None:
    with login.database.begin() as tx:
        project_changes.set_budget(tx, CONFIG, ROOT, Budget("physics", END, NO_END, 0))
    assert login.oarsub("--project", "physics", "x").exit == 0  # the period begins later
    set_budget(login.database, "physics", 1)
    assert login.oarsub("--project", "biology", "x").exit == 0
    assert login.oarsub("--project", "physics", "-t", "besteffort", "x").exit == 0
    login.config = login.config.replace(projects=ProjectMode.FREE)
    assert login.oarsub("--project", "physics", "x").exit == 0


def test_a_job_becomes_besteffort_and_the_user_is_informed(login: LoginNode) -> None:
    set_budget(login.database, "physics", 1, mode="besteffort")
    result = login.oarsub("--project", "physics", "x")
    assert result.exit == 0
    assert "is used up: 1.0 of 1 resource hours" in result.err
    assert "The job becomes a besteffort job." in result.err
    job = login.jobs()[-1]
    assert (job.queue, job.project, "besteffort = 'YES'" in (job.properties or "")) == ("besteffort", "physics", True)
    with login.database.snapshot() as tx:
        assert tx.jobs.types([job.id]) == {job.id: ("besteffort",)}


def test_a_job_becomes_besteffort_without_rules_of_the_site(login: LoginNode) -> None:
    execute_sql(login.database, "DELETE FROM admission_rules")
    set_budget(login.database, "physics", 1, mode="besteffort")
    assert login.oarsub("--project", "physics", "-q", "default", "x").exit == 0
    assert login.jobs()[-1].queue == "besteffort"


def test_a_job_that_waits_for_a_budget_is_accepted_and_told_until_when(login: LoginNode) -> None:
    set_budget(login.database, "physics", 1, mode="wait")
    assert "The job waits until there is a new budget." in login.oarsub("--project", "physics", "x").err
    with login.database.begin() as tx:
        project_changes.set_budget(tx, CONFIG, ROOT, Budget("physics", END, NO_END, 5))
    until = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(END))
    result = login.oarsub("--project", "physics", "x")
    assert (result.exit, f"The job waits until {until}." in result.err) == (0, True)
    assert login.jobs()[-1].queue == "default"


def test_the_strictest_budget_that_is_used_up_decides(login: LoginNode) -> None:
    set_budget(login.database, "physics", 1, mode="refuse")
    set_budget(login.database, "physics.cms", 0, mode="besteffort")
    assert 'budget of the project "physics" is used up' in login.oarsub("--project", "physics.cms", "x").err


def test_with_requests_a_job_must_fit_into_what_is_left(login: LoginNode) -> None:
    login.config = login.config.replace(budget_counts=BudgetCount.REQUESTS)
    set_budget(login.database, "physics", 11)  # one hour is used
    words = ("--project", "physics", "-l", "/resource_id=2,walltime=2")
    assert login.oarsub(*words, "--array", 2, "x").exit == 0
    result = login.oarsub(*words, "x")
    assert result.exit == 8
    assert 'This request has 4.0 resource hours, but 2.0 are left in the budget of the project "physics"' in result.err
    assert login.oarsub("--project", "physics", "-l", "/resource_id=1,walltime=2", "x").exit == 0
    job = login.jobs()[-1].id
    assert login.type(oaralter.main, job, "-l", "/resource_id=1,walltime=3").exit != 0
    assert login.type(oaralter.main, job, "-l", "/resource_id=1,walltime=1").exit == 0


_SMALL, _LARGE = ("-l", "/resource_id=1,walltime=1"), ("-l", "/resource_id=4,walltime=2")


def test_with_requests_the_largest_alternative_counts(login: LoginNode) -> None:
    login.config = login.config.replace(budget_counts=BudgetCount.REQUESTS)
    set_budget(login.database, "physics", 6)  # one hour is used
    result = login.oarsub("--project", "physics", *_SMALL, *_LARGE, "x")
    assert "This request has 8.0 resource hours, but 5.0 are left" in result.err
    job = login.submit("--project", "physics", *_SMALL, "x").id
    assert "This request has 8.0 resource hours" in login.type(oaralter.main, job, *_SMALL, *_LARGE).err
    set_budget(login.database, "physics", 10)
    assert login.type(oaralter.main, job, *_SMALL, *_LARGE).exit == 0
    result = login.oarsub("--project", "physics", "-l", "/resource_id=2,walltime=1", "x")
    assert "This request has 2.0 resource hours, but 1.0 are left" in result.err
    assert login.oarsub("--project", "physics", *_SMALL, "x").exit == 0


def test_with_requests_a_copy_counts_its_largest_alternative(login: LoginNode) -> None:
    login.config = login.config.replace(budget_counts=BudgetCount.REQUESTS)
    set_budget(login.database, "physics", 30)  # one hour is used
    job = login.submit("--project", "physics", *_SMALL, *_LARGE, "x").id
    execute_sql(login.database, "UPDATE jobs SET state = 'Terminated', accounted = 'NA' WHERE job_id = %s", job)
    for _ in range(3):
        assert login.oarsub("--resubmit", job).exit == 0
    assert "This request has 8.0 resource hours, but 5.0 are left" in login.oarsub("--resubmit", job).err


def test_with_requests_a_pass_starts_only_jobs_whose_largest_alternative_fits(
    login: LoginNode, passes: "Passes"
) -> None:
    login.config = login.config.replace(budget_counts=BudgetCount.REQUESTS)
    passes.scheduler = MetaScheduler(Runtime(login.config, login.database))
    set_budget(login.database, "physics", 6, mode="wait")  # one hour is used
    job = login.submit("--project", "physics", *_SMALL, *_LARGE, "x").id
    assert passes.run() == {job: "BUDGET"}
    set_budget(login.database, "physics", 9, mode="wait")
    assert passes.run() == {}


@pytest.fixture
def desk(login: LoginNode, request: pytest.FixtureRequest) -> Iterator[Desk]:
    made = Desk(login, login.config.replace(budget_counts=getattr(request, "param", BudgetCount.REQUESTS)))
    yield made
    made.scheduler.close()


@pytest.mark.parametrize("desk", BudgetCount, indirect=True)
def test_accepted_reservations_count_until_their_end(desk: Desk) -> None:
    set_budget(desk.login.database, "physics", 7)  # one hour is used
    assert desk.reserve(NOW + DAY).exit == 0
    for result in (desk.reserve(NOW + 2 * DAY), desk.reserve_job(NOW + 2 * DAY)):
        assert "This request has 4.0 resource hours, but 2.0 are left" in result.err
    set_budget(desk.login.database, "physics", 11)
    desk.add_reservation_job(NOW + DAY)
    assert "This request has 4.0 resource hours, but 2.0 are left" in desk.reserve_job(NOW + 2 * DAY).err


def test_a_reservation_counts_in_the_periods_that_it_overlaps(desk: Desk) -> None:
    """Jobs without a date count in the present period."""
    login = desk.login
    set_budget(login.database, "physics", 4)  # one hour is used
    with login.database.begin() as tx:
        project_changes.set_budget(tx, CONFIG, ROOT, Budget("physics", END, NO_END, 5))
    desk.add_reservation_job(END - 3600)
    job = ("--project", "physics", "-l", "/resource_id=1,walltime=1", "x")
    assert login.oarsub(*job).exit == 0
    assert "is used up: 4.0 of 4 resource hours" in login.oarsub(*job).err
    assert "This request has 4.0 resource hours, but 3.0 are left" in desk.reserve_job(END + DAY).err
    assert "is used up: 4.0 of 4 resource hours" in desk.reserve_job(END - 3600).err


@pytest.mark.parametrize("desk", BudgetCount, indirect=True)
def test_a_job_may_not_leave_its_reservation_for_a_budget_that_is_used_up(desk: Desk) -> None:
    set_budget(desk.login.database, "physics", 7)  # one hour is used
    assert desk.reserve(NOW + DAY).exit == 0
    with desk.login.database.snapshot() as tx:
        number = tx.value("SELECT ar_id FROM reservations")
    job = desk.login.submit("--project", "physics", "--ar", number, "-l", "/resource_id=1,walltime=1", "x").id
    set_budget(desk.login.database, "physics", 1)
    assert "is used up" in desk.login.type(oaralter.main, job, "--ar", "none").err
    assert desk.login.count("reservation_jobs") == 1


def test_only_jobs_of_flexible_reservations_are_taken_for_such(login: LoginNode, passes: "Passes") -> None:
    set_budget(login.database, "physics", 1)
    types = {name: ["inner=1", f"allowed={name}"] for name in ("ar7", "arena")}
    jobs = {name: add_job(login.database, project="physics", types=each) for name, each in types.items()}
    reasons = passes.run()
    assert {name: reasons.get(job) == "BUDGET" for name, job in jobs.items()} == {"ar7": True, "arena": False}


def test_with_requests_jobs_leave_the_hours_of_reservations(desk: Desk) -> None:
    set_budget(desk.login.database, "physics", 5, mode="wait")  # one hour is used
    assert desk.reserve(NOW + DAY).exit == 0
    job = desk.login.submit("--project", "physics", "-l", "/resource_id=1,walltime=1", "x").id
    desk.scheduler.round()
    assert state_of(desk.login.database, job) is JobState.WAITING


@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(sizes=st.lists(st.integers(1, 4), min_size=2, max_size=6), hours=st.integers(1, 12))
def test_submissions_at_the_same_time_never_exceed_the_budget(login: LoginNode, sizes: list[int], hours: int) -> None:
    """A request is refused only if what was accepted before leaves too little."""
    execute_sql(login.database, "DELETE FROM jobs")
    set_budget(login.database, "physics", 1 + hours)
    together = threading.Barrier(len(sizes))

    def submit(size: int) -> bool:
        together.wait()
        with login.database.begin() as tx:
            new = NewRequest("default", "physics.cms", size * 3600)
            if project_budgets.exhaustion_of(tx, REQUESTS, new):
                return False
            spec = PLAIN.spec._replace(project="physics.cms")
            first = PLAIN._replace(spec=spec, message=f"R={size},W=1:0:0,J=B")
            tx.new_jobs.insert(JobBatch(first, [NewAlternative(3600, ())]), [JobKeys("4299", None, None)])
        return True

    with ThreadPoolExecutor(len(sizes)) as pool:
        accepted = list(pool.map(submit, sizes))
    total = sum(size for size, is_accepted in zip(sizes, accepted, strict=True) if is_accepted)
    assert total <= hours
    refused = [size for size, is_accepted in zip(sizes, accepted, strict=True) if not is_accepted]
    assert all(total + size > hours for size in refused)


def test_without_budgets_a_submission_has_no_more_statements(login: LoginNode) -> None:
    """The statement that reads the quota file also tells whether there are budgets."""

    def number() -> int:
        with patch.object(Statements, "_run", autospec=True, side_effect=Statements._run) as run:
            assert login.oarsub("--project", "biology", "x").exit == 0
        return run.call_count

    number()  # caches are filled
    without = number()
    with patch.object(SubmissionChecks, "submission_limits", return_value=SubmissionLimits(None, has_budgets=False)):
        assert without == number() + 1
    set_budget(login.database, "physics", 1)
    assert number() > without


def test_whether_there_are_budgets_is_read_with_the_quota_file(login: LoginNode) -> None:
    with login.database.begin() as tx:
        assert not tx.submission_checks.submission_limits("/quotas").has_budgets
    set_budget(login.database, "physics", 1)
    with login.database.begin() as tx:
        assert tx.submission_checks.submission_limits("/quotas").has_budgets


def test_a_copy_that_waits_is_resubmitted(login: LoginNode) -> None:
    set_budget(login.database, "physics", 1, mode="wait")
    ended = add_job(login.database, JobState.TERMINATED, user="alice", project="physics")
    with login.database.begin() as tx:
        assert resubmission.resubmit(tx, login.config, ALICE, ended)
    set_budget(login.database, "physics", 1, mode="besteffort")
    with pytest.raises(UserError, match="is used up"), login.database.begin() as tx:
        resubmission.resubmit(tx, login.config, ALICE, ended)


# -- passes -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def passes(login: LoginNode) -> Iterator[Passes]:
    made = Passes(login)
    yield made
    made.scheduler.close()


@pytest.mark.parametrize("mode", OnExhaustion)
def test_waiting_jobs_do_not_start_while_the_budget_is_used_up(login: LoginNode, passes: Passes, mode: str) -> None:
    job = add_job(login.database, project="physics.cms")
    free = add_job(login.database, project="biology")
    besteffort = add_job(login.database, project="physics", queue="besteffort", types=["besteffort"])
    set_budget(login.database, "physics", 1, mode=mode)
    assert passes.run() == {job: "BUDGET"}
    assert state_of(login.database, free) is state_of(login.database, besteffort) is JobState.TO_LAUNCH
    set_budget(login.database, "physics", 2, mode=mode)
    assert passes.run() == {}
    assert state_of(login.database, job) is JobState.TO_LAUNCH


def test_a_job_is_planned_at_the_next_period_that_has_a_budget(login: LoginNode, passes: Passes) -> None:
    job = add_job(login.database, project="physics")
    set_budget(login.database, "physics", 1, mode="wait")
    for hours, is_planned in ((0, False), (5, True)):
        with login.database.begin() as tx:
            project_changes.set_budget(tx, CONFIG, ROOT, Budget("physics", END, NO_END, hours))
        assert passes.run() == {job: "BUDGET"}
        with login.database.snapshot() as tx:
            starts = [start for alternative, start in tx.plan.starts().items() if alternative]
        assert starts == ([END] if is_planned else [])


def test_with_requests_jobs_start_in_the_order_of_submission_as_far_as_they_fit(
    login: LoginNode, passes: Passes
) -> None:
    login.config = login.config.replace(budget_counts=BudgetCount.REQUESTS)
    passes.scheduler = MetaScheduler(Runtime(login.config, login.database))
    set_budget(login.database, "physics", 100)
    for hours in (3, 2, 1):
        login.submit("--project", "physics", "-l", f"/resource_id=1,walltime={hours}", "x")
    set_budget(login.database, "physics", 5)  # one hour is used
    first, second, third = (job.id for job in login.jobs())
    assert passes.run() == {second: "BUDGET"}
    assert state_of(login.database, first) is state_of(login.database, third) is JobState.TO_LAUNCH
    assert passes.run() == {second: "BUDGET"}


def test_managers_get_a_mail_once_for_each_threshold(login: LoginNode, passes: Passes) -> None:
    set_budget(login.database, "physics", 1.25)
    set_budget(login.database, "physics.cms", 0)
    for _ in range(2):
        passes.scheduler.round()
    first, second = passes.mails()
    assert isinstance(first, UserMail)
    assert (first.recipients, first.topic) == (("bob",), "80 % of the budget of project physics is used")
    assert "1.0 of 1.25 resource hours from" in first.text
    assert isinstance(second, UserMail)  # the managers of the project above
    assert (second.recipients, second.topic) == (("bob",), "100 % of the budget of project physics.cms is used")
    set_budget(login.database, "physics", 1)
    passes.scheduler.round()
    assert [mail.topic for mail in passes.mails()[2:] if isinstance(mail, UserMail)] == [
        "100 % of the budget of project physics is used"
    ]


def test_managers_by_userset_get_the_mail(login: LoginNode, passes: Passes) -> None:
    """A userset that does not exist is as none."""
    with login.database.begin() as tx:
        tx.access.create_userset("heads")
        tx.access.add_to_userset("heads", ["carla", "dora"])
        for entry in ("@heads", "@gone"):
            tx.projects.add(Member("physics.cms", entry, MemberRole.MANAGER))
    set_budget(login.database, "physics.cms", 0)
    passes.scheduler.round()
    (mail,) = passes.mails()
    assert isinstance(mail, UserMail)
    assert mail.recipients == ("carla", "dora")


def test_the_advice_is_besteffort_only_where_that_is_possible(login: LoginNode) -> None:
    set_budget(login.database, "physics", 1)
    advice = "Submit with -t besteffort"
    assert advice in login.oarsub("--project", "physics", "x").err
    tomorrow = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(NOW + DAY))
    for words in (("-t", "container"), ("-r", tomorrow)):
        text = login.oarsub("--project", "physics", *words, "x").err
        assert "Choose another project" in text
        assert advice not in text


def test_the_use_is_not_told_to_strangers_if_consumption_is_private(login: LoginNode) -> None:
    set_budget(login.database, "physics", 1.5)
    login.config = login.config.replace(api_accounting_private=True, budget_counts=BudgetCount.REQUESTS)
    words = ("--project", "physics", "-l", "/resource_id=1,walltime=1", "x")
    told = login.oarsub(*words, user=User("eve", 0)).err
    assert 'but fewer are left in the budget of the project "physics": 1.5 resource hours from' in told
    assert "but 0.5 are left" in login.oarsub(*words, user=BOB).err


def test_the_administrator_gets_the_mail_about_a_project_without_managers(login: LoginNode, passes: Passes) -> None:
    set_budget(login.database, "biology", 0)
    passes.scheduler.round()
    (mail,) = passes.mails()
    assert isinstance(mail, Mail)


def test_a_pass_and_a_submission_need_no_more_statements_without_budgets(login: LoginNode) -> None:
    """One statement looks for budgets; it reads closed projects, or the quota file, too."""
    reader = SnapshotReader(login.database, login.config)

    def statements(work: Callable[[], object]) -> list[str]:
        with patch.object(Statements, "_run", autospec=True, side_effect=Statements._run) as run:
            work()
        return [str(call.args[1]) for call in run.call_args_list]

    for work in (reader.read, lambda: login.submit("--project", "physics", "-t", "besteffort", "x")):
        (text,) = [text for text in statements(work) if "project_budgets" in text]
        assert "projects" in text or "policy_log" in text


# -- commands ---------------------------------------------------------------------------------------------------------


def _oarproject(login: LoginNode, *words: object, user: User = ROOT) -> CommandResult:
    return login.type(oarproject.main, *words, user=user)


def test_oarproject_sets_shows_and_removes_budgets(login: LoginNode) -> None:
    words = ("--from", f"@{START}", "--to", f"@{END}", "--on-exhaustion", "wait", "physics")
    assert _oarproject(login, "--budget", "100.5", *words) == CommandResult(0, "", "")
    shown = _oarproject(login, "--show", "physics", user=BOB).out
    assert "    Budget: 100.5 resource hours from " in shown
    assert ", used 1.0, left 99.5; when used up: wait\n" in shown
    (record,) = json.loads(_oarproject(login, "--show", "physics", "-J").out)["budgets"]
    assert record == {
        "period_start": START,
        "period_end": END,
        "resource_hours": 100.5,
        "on_exhaustion": "wait",
        "used": 3600,
        "counted": 3600,
        "left": 99.5 * 3600,
        "exhausted_on": None,
    }
    more_hours = ("--budget", "200", "--from", f"@{START}", "--to", f"@{END}", "physics")
    assert _oarproject(login, *more_hours).exit == 0
    assert "Budget: 200 resource hours" in (shown := _oarproject(login, "--show", "physics").out)
    assert "when used up: wait\n" in shown  # as before
    assert _oarproject(login, "--budget", "100.5", *words).exit == 0
    projects = {row["name"]: row["budgets"] for row in json.loads(_oarproject(login, "--list", "-J").out)}
    assert projects == {"biology": [], "physics": [record], "physics.cms": []}
    assert _oarproject(login, "--remove-budget", "--from", f"@{START}", "physics").exit == 0
    assert budgets(login.database) == []
    login.config = login.config.replace(projects=ProjectMode.FREE)
    result = _oarproject(login, "--budget", "100.5", *words)
    assert (result.exit, 'budgets have no effect with PROJECTS="free"' in result.err) == (0, True)


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("--budget", "5", "--from", "@5", "--to", "@9"), "name the project"),
        (("--budget", "5", "--from", "@5", "physics"), "name the end of the period"),
        (("--budget", "5", "--to", "@5", "physics"), "name the start of the period"),
        (("--budget", "-5", "--from", "@5", "--to", "@9", "physics"), '"-5" is no number of resource hours'),
        (("--budget", "1e9", "--from", "@5", "--to", "@9", "physics"), '"1e9" is no number of resource hours'),
        (("--budget", "9999999999999", "--from", "@5", "--to", "@9", "physics"), "not possible"),
        (("--budget", "5", "--from", "soon", "--to", "@9", "physics"), '"soon" is not a date'),
        (("--budget", "5", "--from", "@9", "--to", "@5", "physics"), "its end must be after its start"),
        (("--budget", "5", "--from", "@5", "--to", "@99999999999", "physics"), "not possible"),
        (("--budget", "5", "--from", "@5", "--to", "@9", "--on-exhaustion", "kill", "physics"), "one of: refuse"),
        (("--budget", "5", "--from", "@5", "--to", "@900000", "nowhere"), 'the project "nowhere" does not exist'),
        (("--from", "@5", "physics"), "need --budget"),
        (("--remove-budget", "--from", "@5", "--to", "@9", "physics"), "--remove-budget needs --from only"),
        (("--remove-budget", "--budget", "5", "--from", "@5", "physics"), "exclusive"),
        (("--remove-budget", "--from", "@5", "physics"), "no budget of the project"),
        (("--budget", "5", "--from", "@5", "--to", "@9", "--default", "physics", "physics"), "use two commands"),
    ],
)
def test_what_oarproject_refuses_stores_no_budget(login: LoginNode, words: tuple[str, ...], text: str) -> None:
    result = _oarproject(login, *words)
    assert (result.exit != 0, text in result.err) == (True, True), result
    assert budgets(login.database) == []


def test_the_limits_of_a_user_have_the_budgets_of_his_projects(login: LoginNode) -> None:
    set_budget(login.database, "physics", 5, mode="wait")
    set_budget(login.database, "biology", 5)
    login.config = login.config.replace(projects=ProjectMode.MEMBERS)
    text = login.type(oarstat.main, "--limits").out
    assert "Budgets of projects:\n    Project physics: from " in text
    assert "        resource hours 1 of 5, 4 left\n" in text
    assert "biology" not in text
    (record,) = json.loads(login.type(oarstat.main, "--limits", "-J").out)["budgets"]
    assert (record["project"], record["left"]) == ("physics", 4 * 3600)


def test_oarproject_warns_of_accounting_that_is_purged_before_the_period_ends(login: LoginNode) -> None:
    words = ("--budget", "5", "--from", "2026-01-01", "--to", "2028-01-01", "physics")
    login.config = login.config.replace(retention_accounting=365)
    assert "lasts 730 days, but accounting is purged after 365 days" in _oarproject(login, *words).err
    login.config = login.config.replace(retention_accounting=800)
    assert _oarproject(login, *words).err == ""
