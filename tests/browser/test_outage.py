"""What pages show when something is not there: a job, a page, the database."""

import httpx
import pytest
from playwright.sync_api import expect

from oar.lib.db.database import Database
from tests.api.conftest import Api
from tests.browser.conftest import Visitor
from tests.builders import add_job
from tests.postgres import PostgreSQL


@pytest.mark.parametrize("path", ["jobs/77", "nowhere"])
def test_pages_of_errors_have_the_menu_and_the_search(visitor: Visitor, database: Database, path: str) -> None:
    job = add_job(database, name="sim")
    page = visitor.open(path)
    expect(page.get_by_role("navigation").get_by_role("link", name="Jobs")).to_be_visible()
    page.get_by_role("button", name="Search").click()
    page.keyboard.type(str(job))
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/ui/jobs/{job}")
    visitor.errors = [each for each in visitor.errors if "404" not in each]  # the page that is not there


def test_live_means_that_the_database_answers(
    visitor: Visitor, api: Api, database: Database, postgres: PostgreSQL
) -> None:
    add_job(database, name="sim")
    page = visitor.open("jobs")
    expect(page.locator("#live")).to_have_attribute("data-status", "live")
    with postgres.outage("oar"):
        expect(page.locator("#live")).not_to_have_attribute("data-status", "live")
        bar = page.locator("main > .notice.bad")
        expect(bar).to_have_text("The database does not answer: what is shown is old.")
        expect(page.get_by_text("sim")).to_be_visible()  # what was there stays
    expect(page.locator("#live")).to_have_attribute("data-status", "live")
    expect(bar).to_have_count(0)
    visitor.errors.clear()  # of requests without an answer


def test_no_text_has_the_address_of_the_database(api: Api, database: Database, postgres: PostgreSQL) -> None:
    job = add_job(database)
    with postgres.outage("oar"), httpx.Client(base_url=f"http://127.0.0.1:{api.port}", timeout=60) as client:
        for path in ("ui/", "ui/jobs", f"ui/jobs/{job}", "v1/jobs", "v1/nodes"):
            answer = client.get(path)
            assert answer.status_code == 503, path
            assert "the database does not answer" in answer.text, path
            for word in (postgres.socket, "connection to server", "5432", "FATAL"):
                assert word not in answer.text, path
