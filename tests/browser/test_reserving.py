"""An advance reservation is tried, asked for, seen in the diagram, changed and deleted, all on the pages."""

import time
from collections.abc import Iterator

import pytest
from playwright.sync_api import expect

from oar.lib.config.files import Config
from oar.lib.db.database import Database
from tests.api.conftest import Api
from tests.api.scheduling import scheduling
from tests.browser.conftest import USER, Visitor
from tests.browser.test_gantt import HOUR, diagram, point
from tests.browser.test_pages import faults
from tests.builders import add_resources
from tests.db.reservation_rows import add_reservation


@pytest.fixture
def scheduler(api: Api, database: Database) -> Iterator[None]:
    """A scheduler that makes round after round, where everybody may reserve."""
    api.runtime.config = Config(instance_name="testbed", estimate_timeout=120, reservation_open=True)
    with scheduling(api, database):
        yield


@pytest.mark.usefixtures("scheduler")
def test_a_reservation_is_tried_while_it_is_typed_then_asked_for_and_changed(
    owner: Visitor, database: Database
) -> None:
    add_resources(database)
    begin = int(time.time()) // 60 * 60 + HOUR
    page = owner.open(f"reservations/new?from={begin}&to={begin + HOUR}")
    page.get_by_role("spinbutton", name="nodes").fill("2")
    expect(page.locator("#trial")).to_contain_text("It would be granted.")
    expect(page.locator("#trial")).to_contain_text("node-2")
    expect(page.locator("#trial .lanes .would")).to_have_count(2)
    page.get_by_role("textbox", name="name", exact=True).fill("course")
    expect(page.locator("pre")).to_contain_text("-l /network_address=2 -N course")
    assert faults(page) == []
    page.get_by_role("button", name="ask for it").click()
    page.wait_for_url(lambda address: address.rpartition("/")[2].isdecimal())
    expect(page.get_by_role("heading", level=1)).to_contain_text("course")
    number = int(page.url.rpartition("/")[2])
    page.get_by_text("Change it").click()
    page.get_by_role("textbox", name="name", exact=True).fill("lecture")
    expect(page.locator("form pre")).to_have_text(f"qralter -N lecture {number}")
    page.get_by_role("button", name="change", exact=True).click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("lecture")
    with database.snapshot() as tx:
        found = tx.advance_reservations.by_numbers([number])[number]
    assert (found.owner, found.name, found.start, found.end) == (USER, "lecture", begin, begin + HOUR)


@pytest.mark.usefixtures("scheduler")
def test_what_cannot_be_granted_says_when_it_could(owner: Visitor, database: Database) -> None:
    resources = add_resources(database)
    begin = int(time.time()) // 60 * 60 + HOUR
    add_reservation(database, start_time=begin, end_time=begin + HOUR, resources=resources)
    page = owner.open(f"reservations/new?from={begin}&to={begin + HOUR}&nodes=2")
    expect(page.locator("#trial")).to_contain_text("It would not be granted")
    page.locator("#trial").get_by_role("button", name="use this").click()
    expect(page.locator("#trial")).to_contain_text("It would be granted.")


def test_an_area_of_the_diagram_opens_the_form(visitor: Visitor, database: Database) -> None:
    add_resources(database)
    page = diagram(visitor)
    page.keyboard.down("Alt")
    point(page, 2, 0.5)
    page.mouse.down()
    point(page, 4, 1.5)
    page.mouse.up()
    page.keyboard.up("Alt")
    area = page.get_by_role("group", name="selected area")
    expect(area).to_contain_text("2 rows")
    area.get_by_role("link", name="reserve it").click()
    page.wait_for_url("**/ui/reservations/new?**")
    expect(page.get_by_role("textbox", name="only on these nodes")).to_have_value("node-1,node-2")
    expect(page.locator("pre")).to_contain_text("qrsub -a")
    expect(page.get_by_role("button", name="ask for it")).to_be_disabled()  # nobody is known


def test_reservations_are_bands_in_the_diagram(visitor: Visitor, database: Database) -> None:
    resources, now = add_resources(database), int(time.time())
    number = add_reservation(
        database,
        state="W",
        ar_name="course",
        start_time=now + HOUR,
        end_time=now + 5 * HOUR,
        resources=resources[:2],
        missing=resources[:1],
    )
    page = diagram(visitor)
    point(page, 2, 0.75)
    says = page.locator("#gantt-says")
    expect(says).to_contain_text(f"reservation {number} course")
    says.get_by_role("link", name="course").click()
    page.wait_for_url(f"**/ui/reservations/{number}")
