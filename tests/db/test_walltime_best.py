"""walltime=best: a job that lasts longer than it asks, once it runs, where that delays nobody."""

from types import MappingProxyType
from typing import Any

import pytest

from oar.cli import oarwalltime
from oar.kao.rounds.meta_sched import MetaScheduler
from oar.lib.config.files import Config
from oar.lib.db.database import Database
from oar.lib.runtime import Runtime
from oar.lib.submission import resubmission
from tests.builders import add_resources, execute_sql
from tests.db.test_meta_sched import NOW, ask, at
from tests.frontend import LoginNode, add_rules

GROWS = {"walltime_change_enabled": True, "walltime_max_increase": MappingProxyType({"_": 7200.0})}


@pytest.fixture
def site(database: Database) -> LoginNode:
    """Two nodes of two cores, where walltimes may grow by two hours."""
    add_resources(database, nodes=2, cores=2)
    add_rules(database)
    return LoginNode(at(database, NOW), Config(**GROWS))


def run(site: LoginNode) -> None:
    """Make a round, and let what it launches run."""
    scheduler = MetaScheduler(
        Runtime(site.config.replace(job_resource_manager_property_db_field="cpuset"), site.database)
    )
    scheduler.round()
    scheduler.close()
    execute_sql(site.database, "UPDATE jobs SET state = 'Running' WHERE state = 'toLaunch'")


def walltimes(site: LoginNode) -> list[int]:
    return [
        row[0]
        for row in ask(site.database, "SELECT moldable_walltime FROM moldable_job_descriptions ORDER BY moldable_id")
    ]


def changes(site: LoginNode) -> list[tuple[int, int]]:
    return [tuple(row) for row in ask(site.database, "SELECT pending, granted FROM walltime_change ORDER BY job_id")]


def test_it_gets_what_nobody_else_waits_for(site: LoginNode) -> None:
    job = site.submit("-l", "nodes=1,walltime=best:0:30", "true")
    assert (job.message, walltimes(site), changes(site)) == ("R=2,W=0:30:0,J=B,T=walltime", [1800], [(7200, 0)])
    run(site)
    assert site.oarsub("-l", "nodes=2,walltime=1", "--parsable", "true").exit == 0
    run(site)
    assert (walltimes(site), changes(site)) == ([9000, 3600], [(0, 7200)])


def test_it_ends_before_what_is_planned_behind_it(site: LoginNode) -> None:
    site.submit("-l", "nodes=1,walltime=best:0:30", "true")
    assert site.oarsub("-l", "nodes=2,walltime=1", "true").exit == 0
    run(site)
    run(site)
    assert (walltimes(site), changes(site)) == ([1800, 3600], [(7200, 0)])


def test_without_a_least_it_asks_for_the_default(site: LoginNode) -> None:
    site.submit("-l", "walltime = BEST", "true")
    site.submit("-l", "walltime=best,nodes=1,walltime=best:1", "true")
    site.submit("-t", "walltime=best", "-l", "nodes=1,walltime=2", "true")
    assert (walltimes(site), len(changes(site))) == ([7200, 3600, 7200], 3)


def test_each_job_of_an_array_grows(site: LoginNode) -> None:
    assert site.oarsub("--array", 3, "-l", "nodes=1,walltime=best:0:30", "true").exit == 0
    assert changes(site) == [(7200, 0)] * 3


def test_its_owner_may_want_no_more(site: LoginNode) -> None:
    job = site.submit("-l", "nodes=1,walltime=best:0:30", "true")
    run(site)
    shown = site.type(oarwalltime.main, job.id).out
    assert "Possible increase:     +2:0:0\n" in shown
    assert "Pending/unsatisfied:   +2:0:0\n" in shown
    assert site.type(oarwalltime.main, job.id, "+0").exit == 0
    assert changes(site) == [(0, 0)]


def test_a_copy_asks_for_the_same(site: LoginNode) -> None:
    job = site.submit("-l", "nodes=1,walltime=best:0:30", "true")
    run(site)
    run(site)
    assert walltimes(site) == [9000]
    with site.database.begin() as tx:
        new = resubmission.copy(tx, job.id)
    assert (walltimes(site), changes(site)) == ([9000, 1800], [(0, 7200), (7200, 0)])
    assert site.jobs()[-1].message == job.message
    assert site.jobs()[-1].id == new


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({}, "walltimes cannot change on this site (WALLTIME_CHANGE_ENABLED)."),
        ({"walltime_change_enabled": True}, "no walltime can grow in the queue default (WALLTIME_MAX_INCREASE)."),
        (
            {**GROWS, "walltime_min_for_change": MappingProxyType({"default": 3600.0})},
            "a walltime below 1:0:0 cannot change (WALLTIME_MIN_FOR_CHANGE).",
        ),
    ],
)
def test_a_site_that_does_not_allow_it_says_why(site: LoginNode, keys: dict[str, Any], said: str) -> None:
    site.config = Config(**keys)
    for words in ([], ["--dry-run"]):
        result = site.oarsub(*words, "-l", "nodes=1,walltime=best:0:30", "true")
        assert (result.exit, result.err.splitlines()[0]) == (8, f"# Error: walltime=best: {said}")
    assert site.is_empty()


def test_without_a_limit_of_the_site_it_grows_by_a_day(site: LoginNode) -> None:
    site.config = Config(walltime_change_enabled=True, walltime_max_increase=MappingProxyType({"_": -1.0}))
    site.submit("-l", "nodes=1,walltime=best:0:30", "true")
    assert changes(site) == [(86400, 0)]


@pytest.mark.parametrize("text", ["best:", "best:x", "best:1:00:00:00", "better", "bestest"])
def test_what_is_none_is_refused(site: LoginNode, text: str) -> None:
    result = site.oarsub("-l", f"nodes=1,walltime={text}", "true")
    assert result.exit == 18
    assert result.err.splitlines()[1] == f'# "{text}" is not a walltime: write h[:m[:s]], 90m or 1d12h'


def test_zero_is_none_either(site: LoginNode) -> None:
    assert site.oarsub("-l", "walltime=best:0", "true").err == "# Error: walltime must be greater than 0\n"
