"""An advance reservation is tried, asked for, seen in the diagram, changed and deleted, all on the pages."""

import re
import time
from collections.abc import Iterator
from urllib.parse import parse_qs, urlsplit

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

DAY = 86400


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
        found = tx.reservations.by_numbers([number])[number]
    assert (found.owner, found.name, found.start, found.end) == (USER, "lecture", begin, begin + HOUR)


@pytest.mark.usefixtures("scheduler")
def test_an_address_with_a_date_that_no_calendar_has_is_answered(owner: Visitor, database: Database) -> None:
    add_resources(database)
    page = owner.open(f"reservations/new?from={int(time.time()) + HOUR}&to=10000000000000")
    expect(page.get_by_role("alert").filter(visible=True)).to_have_count(1)
    expect(page.locator("input[name=to]")).to_have_value("")
    page.locator("input[name=to]").fill("2030-01-01T08:00")
    expect(page).to_have_url(re.compile("&to=1893"))
    page.locator("input[name=to]").fill("")
    expect(page).not_to_have_url(re.compile("[?&]to="))
    assert faults(page) == []
    assert all("400 (Bad Request)" in error for error in owner.errors)
    owner.errors.clear()


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


def _next_monday() -> int:
    """Return a Monday at midnight, UTC, which is the zone of tests, of a week that has not begun."""
    day = int(time.time()) // DAY
    return (day - (day + 3) % 7 + 7) * DAY


def test_a_time_of_the_calendar_is_dragged_over_to_reserve_it(visitor: Visitor, database: Database) -> None:
    monday, resources = _next_monday(), add_resources(database)
    add_reservation(database, ar_name="course", start_time=monday, end_time=monday + HOUR, resources=resources[:2])
    page = visitor.open(f"reservations?week={monday}&rows=network_address")
    rows = page.locator(".weeks .row-week")
    expect(rows).to_have_count(2)
    expect(rows.nth(0).locator("g")).to_have_count(1)
    expect(rows.nth(1).locator("g")).to_have_count(0)
    box = rows.nth(1).locator("svg").bounding_box()
    assert box
    page.mouse.move(box["x"] + box["width"] * 1.3 / 7, box["y"] + 10)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 1.6 / 7, box["y"] + 10)
    page.mouse.up()
    group = page.get_by_role("group", name="selected area")
    expect(group).to_contain_text("node-2")
    assert faults(page) == []
    group.get_by_role("link", name="reserve it").click()
    page.wait_for_url("**/reservations/new?*")
    asked = parse_qs(urlsplit(page.url).query)
    assert (asked["hosts"], asked["nodes"]) == (["node-2"], ["1"])
    assert abs(int(asked["from"][0]) - (monday + 1.3 * DAY)) < HOUR
    assert abs(int(asked["to"][0]) - (monday + 1.6 * DAY)) < HOUR


def test_a_time_of_the_calendar_is_chosen_by_keys(visitor: Visitor, database: Database) -> None:
    monday = _next_monday()
    add_resources(database)
    page = visitor.open(f"reservations?week={monday}&rows=network_address")
    page.get_by_role("application", name="The week by rows").focus()
    for key in ("ArrowDown", "ArrowDown", "PageDown", "ArrowRight", "Shift+ArrowRight"):
        page.keyboard.press(key)
    expect(page.get_by_role("group", name="selected area")).to_contain_text("node-2")
    page.keyboard.press("Enter")
    page.wait_for_url("**/reservations/new?*")
    asked = parse_qs(urlsplit(page.url).query)
    begin = monday + DAY + HOUR
    assert [int(asked[name][0]) for name in ("from", "to")] == [begin, begin + 2 * HOUR]
