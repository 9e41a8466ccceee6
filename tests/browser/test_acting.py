"""Who is known does with his jobs on their pages what the commands do, also by keyboard alone."""

import os
import pwd
import time
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect

from oar.lib.access import tokens
from oar.lib.db.database import Database
from oar.lib.facts.records import User
from oar.lib.facts.states import JobState
from tests.api.conftest import Api
from tests.api.test_output import needs_root
from tests.browser.conftest import Visitor, visiting
from tests.browser.test_pages import faults
from tests.builders import add_job, add_resources, state_of
from tests.db.reservation_rows import add_reservation

USER = "nobody"  # every machine has this account


@pytest.fixture
def owner(chromium: Browser, api: Api, database: Database) -> Iterator[Visitor]:
    """Somebody who has logged in with a token of his."""
    yield from _logged_in(chromium, api, database, User(USER, 65534), "rw")


@pytest.fixture
def administrator(chromium: Browser, api: Api, database: Database) -> Iterator[Visitor]:
    """An administrator who has logged in."""
    name = pwd.getpwuid(os.geteuid()).pw_name
    yield from _logged_in(chromium, api, database, User(name, os.geteuid(), administers=True), "admin")


def _logged_in(chromium: Browser, api: Api, database: Database, user: User, scope: str) -> Iterator[Visitor]:
    with database.begin() as tx:
        _, token = tokens.create(tx, user, scope=scope)
    visits = visiting(chromium, api)
    visitor = next(visits)
    page = visitor.open("login")
    page.get_by_label("token", exact=True).fill(token)
    page.keyboard.press("Enter")
    page.wait_for_url("**/ui/")
    expect(page.get_by_role("link", name=user.name)).to_be_visible()
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


@needs_root
def test_an_administrator_drains_a_node_and_takes_it_away(administrator: Visitor, database: Database) -> None:
    resources = add_resources(database)
    job = add_job(database, JobState.RUNNING, on=resources[:1])
    page = administrator.open("nodes/node-1")
    assert faults(page) == []
    page.get_by_role("button", name="drain").click()
    page.get_by_role("button", name="end the drain").wait_for()
    with database.snapshot() as tx:
        assert tx.rows("SELECT DISTINCT drain FROM resources WHERE network_address = 'node-1'") == [("YES",)]
    page.get_by_role("button", name="set Absent").click()
    expect(page.locator(".question")).to_contain_text(f"The jobs on it are ended: {job}.")
    page.locator(".question").get_by_role("button", name="set Absent").click()
    expect(page.get_by_role("status").filter(has_text="Done.")).to_be_visible()


@needs_root
def test_an_administrator_stops_a_queue_and_starts_it(administrator: Visitor, database: Database) -> None:
    page = administrator.open("queues")
    row = page.get_by_role("row").filter(has_text="besteffort")
    row.get_by_role("button", name="stop").click()
    row.get_by_role("button", name="stop").click()  # the one of the question
    expect(row).to_contain_text("does not start jobs")
    row.get_by_role("button", name="start", exact=True).click()
    expect(row).not_to_contain_text("does not start jobs")


def test_who_is_no_administrator_has_no_buttons_there(owner: Visitor, database: Database) -> None:
    add_resources(database)
    assert owner.open("nodes/node-1").locator(".acts").count() == 0
    assert owner.open("queues").locator(".acts").count() == 0


def test_an_owner_deletes_his_reservation(owner: Visitor, database: Database) -> None:
    now = int(time.time())
    resources = add_resources(database)
    number = add_reservation(
        database, owner=USER, start_time=now + 3600, end_time=now + 7200, resources=resources[:2], ar_name="mine"
    )
    page = owner.open(f"reservations/{number}")
    page.get_by_role("button", name="delete").click()
    page.locator(".question").get_by_role("button", name="delete").click()
    expect(page.locator("h1 .state")).to_contain_text("d")
