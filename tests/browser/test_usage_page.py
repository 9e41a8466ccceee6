"""The page of consumption tells what comes of it: fair share over time, how well jobs fitted, which nodes were lost."""

import time
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect

from oar.lib.accounts.records import Budget, Project
from oar.lib.config.files import Config
from oar.lib.db.database import Database
from oar.lib.jobs.states import JobState, ProjectMode
from tests.api.conftest import Api
from tests.browser.conftest import Visitor, visiting
from tests.browser.test_every_page import left_in_english
from tests.browser.test_pages import FITS, faults
from tests.builders import add_job, add_resources

DAY = 86400
_ACCOUNTED = """
    INSERT INTO accounting (window_start, window_stop, accounting_user, accounting_project, queue_name,
        consumption_type, consumption) VALUES (%s, %s, %s, 'ml', 'default', 'USED', %s)"""
_USED = """
    INSERT INTO job_usage (job_id, network_address, cores, cpu_seconds, memory_peak)
    VALUES (%s, 'node-1', 1, 60, 1000)"""
_LOST = """
    INSERT INTO resource_logs (resource_id, attribute, value, date_start, date_stop)
    VALUES (%s, 'state', 'Suspected', %s, %s)"""


def history(database: Database) -> None:
    """Consumption, a job that has ended, a node that was suspected for two hours."""
    resources, today = add_resources(database), int(time.time()) // DAY
    for user in ("bob", "<i>carol</i>"):
        add_job(database, user=user, project="ml")
    job = add_job(database, JobState.TERMINATED, on=resources[:1], user="alice", name="<b>sim</b>")
    with database.begin() as tx:
        for day, user, used in ((today - 27, "alice", 5000), (today - 1, "bob", 900), (today - 1, "dave", 2000)):
            tx.execute(_ACCOUNTED, (day * DAY, (day + 1) * DAY - 1, user, used))
        tx.execute("UPDATE jobs SET start_time = stop_time - 900 WHERE job_id = %s", (job,))
        tx.execute(_USED, (job,))
        tx.execute(_LOST, (resources[2], (today - 1) * DAY, (today - 1) * DAY + 7200))


def test_fair_share_fades_and_those_ahead_are_named(visitor: Visitor, database: Database) -> None:
    history(database)
    page = visitor.open("fairshare?who=alice&project=ml")
    fair = page.locator("#fairshare")
    expect(fair.get_by_role("row").filter(has_text="bob")).to_contain_text("what the user used")
    expect(fair.get_by_role("row").filter(has_text="<i>carol</i>")).to_have_count(1)
    expect(fair.get_by_role("row").filter(has_text="dave")).to_have_count(0)  # none of his jobs wait
    expect(fair).to_contain_text("If nothing is submitted")
    expect(fair.locator("svg.karma path")).to_have_count(1)
    assert faults(page) == []


def test_the_rules_that_limit_a_user_are_shown(visitor: Visitor, database: Database) -> None:
    with database.begin() as tx:
        sql = "INSERT INTO policy_log (kind, name, value) VALUES ('file', %s, %s)"
        tx.execute(sql, (Config().quotas_conf_file, '{"waiting": {"*,<i>ml</i>,*,/": [4, 10.5]}}'))
    add_job(database, user="alice", project="<i>ml</i>")
    page = visitor.open("usage?who=alice")
    rules = page.locator("#limits").get_by_role("row").filter(has_text="<i>ml</i>")
    expect(rules).to_have_count(2)
    expect(rules.first).to_contain_text("1 jobs")
    expect(rules.first).to_contain_text("jobs that start or are deleted")
    assert faults(page) == []


def test_shares_of_projects_are_shown_where_they_count(visitor: Visitor, api: Api, database: Database) -> None:
    with database.begin() as tx:
        tx.projects.create(Project("<i>ml</i>", shares=3))
        tx.projects.create(Project("bio"))
    assert visitor.open("usage").locator("#projects").count() == 0
    api.runtime.config = Config(projects=ProjectMode.KNOWN)
    row = visitor.open("usage").locator("#projects").get_by_role("row").filter(has_text="<i>ml</i>")
    expect(row).to_contain_text("75 %")


def test_budgets_are_shown_with_their_use(visitor: Visitor, api: Api, database: Database) -> None:
    today = int(time.time()) // DAY * DAY
    with database.begin() as tx:
        tx.projects.create(Project("<i>ml</i>"))
        tx.budgets.store(Budget("<i>ml</i>", today - 3 * DAY, today + 90 * DAY, 5))
        tx.execute(_ACCOUNTED.replace("'ml'", "'<i>ml</i>'"), (today - DAY, today - 1, "alice", 2 * 3600))
    add_job(database, user="alice", project="<i>ml</i>")
    api.runtime.config = Config(projects=ProjectMode.KNOWN)
    page = visitor.open("usage?who=alice")
    for place in ("#projects", "#limits"):
        row = page.locator(place).get_by_role("row").filter(has_text="<i>ml</i>")
        expect(row).to_contain_text("at the present rate used up on")
        expect(row).to_contain_text("5")
    expect(page.locator("#limits").get_by_role("row").filter(has_text="<i>ml</i>")).to_contain_text("2 h of resources")
    assert faults(page) == []


def test_jobs_are_dots_by_what_they_used_of_what_they_had(visitor: Visitor, database: Database) -> None:
    history(database)
    page = visitor.open("fairshare?who=alice&project=ml")
    expect(page.get_by_role("img", name="How much 1 job used of its walltime and of its cores")).to_be_visible()
    expect(page.locator(".scatter circle title")).to_contain_text("<b>sim</b>: 25 %, 7 %")
    expect(page.get_by_role("row").filter(has_text="<b>sim</b>")).to_contain_text("25 %")  # the same as a table


def test_nodes_that_were_lost_are_told(visitor: Visitor, database: Database) -> None:
    history(database)
    page = visitor.open("usage")
    row = page.locator("#lost").get_by_role("row").filter(has_text="node-2")
    expect(row).to_contain_text("1")
    expect(row).to_contain_text("2")


@pytest.fixture
def french(chromium: Browser, api: Api) -> Iterator[Visitor]:
    """Somebody who reads French on a dark telephone."""
    yield from visiting(
        chromium, api, locale="fr-FR", color_scheme="dark", viewport={"width": 360, "height": 740}, is_mobile=True
    )


def test_all_of_it_is_for_a_dark_telephone_in_french(french: Visitor, database: Database) -> None:
    history(database)
    page = french.open("fairshare?who=alice&project=ml")
    page.get_by_text("Qui est devant").first.wait_for()
    assert left_in_english(page) == []
    assert faults(page) == []
    assert page.evaluate(FITS)
