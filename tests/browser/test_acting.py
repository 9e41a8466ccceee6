"""Who is known does with his jobs on their pages what the commands do, also by keyboard alone."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect

from oar.lib.access import tokens
from oar.lib.db.database import Database
from oar.lib.facts.records import User
from oar.lib.facts.states import JobState
from tests.api.conftest import Api
from tests.browser.conftest import Visitor, visiting
from tests.browser.test_pages import faults
from tests.builders import add_job, add_resources, state_of

USER = "nobody"  # every machine has this account


@pytest.fixture
def owner(chromium: Browser, api: Api, database: Database) -> Iterator[Visitor]:
    """Somebody who has logged in with a token of his."""
    with database.begin() as tx:
        _, token = tokens.create(tx, User(USER, 65534), scope="rw")
    visits = visiting(chromium, api)
    visitor = next(visits)
    page = visitor.open("login")
    page.get_by_label("token", exact=True).fill(token)
    page.keyboard.press("Enter")
    page.wait_for_url("**/ui/")
    expect(page.get_by_role("link", name=USER)).to_be_visible()
    page.close()
    yield visitor
    next(visits, None)


def test_a_job_is_held_and_resumed_by_keyboard(owner: Visitor, database: Database) -> None:
    job = add_job(database, user=USER)
    page = owner.open(f"jobs/{job}")
    page.get_by_role("button", name="hold").focus()
    page.keyboard.press("Enter")
    expect(page.locator("h1 .state")).to_contain_text("Hold")
    expect(page.get_by_role("button", name="resume")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("h1 .state")).to_contain_text("Waiting")
    assert state_of(database, job) is JobState.WAITING


def test_the_end_of_a_job_is_asked_for_once(owner: Visitor, database: Database) -> None:
    job = add_job(database, JobState.RUNNING, on=add_resources(database)[:1], user=USER)
    page = owner.open(f"jobs/{job}")
    page.get_by_role("button", name="delete").click()
    expect(page.locator(".question")).to_contain_text("what it has not stored is lost")
    page.keyboard.press("Escape")
    expect(page.locator(".question")).to_have_count(0)
    page.get_by_role("button", name="delete").click()
    page.locator(".question").get_by_role("button", name="delete").click()
    page.get_by_text("deletion registered").wait_for()
    with database.snapshot() as tx:
        assert tx.kill_requests.jobs([job]) == {job}


def test_the_jobs_of_others_have_no_buttons(owner: Visitor, database: Database) -> None:
    page = owner.open(f"jobs/{add_job(database, user='alice')}")
    assert page.locator(".acts").count() == 0


def test_a_token_is_made_shown_once_and_revoked(owner: Visitor, database: Database) -> None:
    page = owner.open("tokens")
    assert faults(page) == []
    page.get_by_label("comment").fill("<b>my dashboard</b>")
    page.get_by_role("button", name="create").click()
    expect(page.locator("pre")).to_contain_text("oar_")
    row = page.get_by_role("row").filter(has_text="<b>my dashboard</b>")
    row.get_by_role("button", name="revoke").click()
    expect(row).to_have_count(0)


def test_who_logs_out_is_nobody(owner: Visitor) -> None:
    page = owner.open("")
    page.get_by_role("button", name="log out").click()
    page.get_by_role("link", name="log in").wait_for()


def test_a_wrong_token_is_told(visitor: Visitor) -> None:
    page = visitor.open("login")
    page.get_by_label("token", exact=True).fill("oar_wrong")
    page.get_by_role("button", name="log in with the token").click()
    expect(page.get_by_role("alert")).to_contain_text("token")
    visitor.errors = [each for each in visitor.errors if "401" not in each]  # browsers write down such answers
