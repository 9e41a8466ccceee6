"""The list of jobs: whose they are, what they ask for, and by what they are filtered."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect

from oar.lib.db.database import Database
from oar.lib.jobs.records import Group, Level
from oar.lib.jobs.states import JobState
from oar.lib.submission.sql_new_jobs import NewAlternative
from tests.api.conftest import Api
from tests.browser.conftest import USER, Visitor, visiting
from tests.builders import add_job, add_resources


@pytest.fixture
def telephone(chromium: Browser, api: Api) -> Iterator[Visitor]:
    """Somebody with a small screen."""
    yield from visiting(chromium, api, viewport={"width": 390, "height": 740}, has_touch=True, is_mobile=True)


def test_the_first_switch_is_that_to_my_jobs(owner: Visitor, database: Database) -> None:
    add_job(database, user=USER, name="mine")
    add_job(database, user="bob", name="other")
    page = owner.open("jobs")
    expect(page.locator("tbody tr")).to_have_count(2)
    assert page.locator("main button").first.inner_text() == "my jobs"
    page.get_by_role("button", name="my jobs").click()
    expect(page.locator("tbody tr")).to_have_count(1)
    expect(page.get_by_role("button", name="my jobs")).to_have_attribute("aria-pressed", "true")
    assert page.url.endswith(f"?user={USER}")
    page.get_by_role("button", name="all jobs").click()
    expect(page.locator("tbody tr")).to_have_count(2)


def test_nobody_has_no_switch_to_his_jobs(visitor: Visitor, database: Database) -> None:
    add_job(database)
    expect(visitor.open("jobs").get_by_role("button", name="all jobs")).to_have_count(0)


@pytest.mark.parametrize(
    ("groups", "walltime", "sentence"),
    [
        ((Group("", (Level("network_address", 4), Level("core", 8))),), 7200, "4 nodes, 32 cores, 2 h"),
        ((Group("type = 'default'", (Level("network_address", 1),)),), 5400, "1 node, 1 h 30 min"),
        ((Group("gpu = 'YES}'", (Level("core", 1),)), Group("", (Level("switch", 2),))), 45,
         "1 core (gpu = 'YES}') + 2 switch, 45 s"),
    ],
)  # fmt: skip
def test_a_request_is_told_as_a_sentence(
    visitor: Visitor, database: Database, groups: tuple[Group, ...], walltime: int, sentence: str
) -> None:
    add_job(database, alternatives=[NewAlternative(walltime, groups)])
    asked = visitor.open("jobs").locator("td.asked bdi")
    assert asked.inner_text() == sentence
    assert (asked.get_attribute("title") or "").startswith('-l "')


def test_filters_are_chips_that_a_click_takes_away(visitor: Visitor, database: Database) -> None:
    add_job(database, user="alice")
    add_job(database, user="bob")
    page = visitor.open("jobs?user=bob&state=Waiting")
    chips = page.locator(".chips .chip")
    expect(chips).to_have_text(["state Waiting ✕", "user bob ✕"])
    chips.nth(1).click()
    expect(page.locator("tbody tr")).to_have_count(2)
    assert page.url.endswith("?state=Waiting")


def test_a_filter_suggests_what_there_is(visitor: Visitor, database: Database) -> None:
    add_resources(database)
    add_job(database, user="alice")
    page = visitor.open("jobs")
    page.locator("input[name=filter-user]").focus()
    expect(page.locator("#names-users option")).to_have_attribute("value", "alice")
    page.locator("input[name=filter-node]").focus()
    values = page.locator("#names-nodes option").evaluate_all("all => all.map((each) => each.value)")
    assert values == ["node-1", "node-2"]


def test_on_a_telephone_the_filters_do_not_push_the_list_away(telephone: Visitor, database: Database) -> None:
    add_job(database)
    page = telephone.open("jobs")
    assert not page.locator("input[name=filter-user]").is_visible()
    box = page.locator("tbody tr").first.bounding_box()
    assert box
    assert box["y"] < 370
    page.get_by_text("filters", exact=True).click()
    expect(page.locator("input[name=filter-user]")).to_be_visible()


def test_nodes_stand_in_the_order_of_people(visitor: Visitor, database: Database) -> None:
    resources = add_resources(database, nodes=12, cores=1)
    add_job(database, JobState.RUNNING, on=resources)
    page = visitor.open("jobs?columns=job,nodes")
    assert page.locator("td .node").all_inner_texts() == ["node-1", "node-2", "node-3"]
