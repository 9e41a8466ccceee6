"""Administrators choose nodes in the grid or in the table, see what is in the way, and drain or take them away."""

import re
import time

import pytest
from playwright.sync_api import expect

from oar.lib.db.database import Database
from oar.lib.history.event_types import EventType
from oar.lib.jobs.states import JobState
from tests.api.test_output import needs_root
from tests.browser.conftest import Visitor
from tests.browser.test_every_page import left_in_english
from tests.browser.test_pages import FITS, faults
from tests.builders import add_job, add_resources
from tests.db.reservation_rows import add_reservation

DRAINED = "SELECT DISTINCT network_address FROM resources WHERE drain = 'YES' ORDER BY 1"
ABSENT = "SELECT DISTINCT network_address FROM resources WHERE next_state = 'Absent' OR state = 'Absent' ORDER BY 1"


@needs_root
def test_nodes_are_chosen_in_the_grid_by_keyboard_and_drained(administrator: Visitor, database: Database) -> None:
    job = add_job(database, JobState.RUNNING, on=add_resources(database)[:1])
    page = administrator.open("nodes")
    page.get_by_role("application", name="Grid of nodes").focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Space")
    expect(page.locator("#grid-says")).to_contain_text("node-1 · chosen")
    page.get_by_text("1 node chosen").wait_for()
    page.get_by_text("1 would be cut").wait_for()
    expect(page.get_by_role("row").filter(has_text=str(job))).to_contain_text("would be cut")
    page.get_by_label("why").fill("a disk is changed")
    assert faults(page) == []
    page.get_by_role("button", name="drain", exact=True).focus()
    page.keyboard.press("Enter")
    expect(page.locator(".question")).to_contain_text("1 job runs there.")
    page.keyboard.press("Enter")
    expect(page.get_by_role("status").filter(has_text="Done.")).to_be_visible()
    with database.snapshot() as tx:
        assert tx.rows(DRAINED) == [("node-1",)]
    page.get_by_role("application", name="Grid of nodes").focus()
    page.keyboard.press("Home")
    expect(page.locator("#grid-says")).to_contain_text("node-1 · a disk is changed")
    page.goto(f"{administrator.base}/ui/nodes?view=table")
    expect(page.get_by_role("row").filter(has_text="node-1")).to_contain_text("a disk is changed")


@needs_root
def test_why_a_node_is_drained_is_told_on_its_page(administrator: Visitor, database: Database) -> None:
    add_resources(database)
    page = administrator.open("nodes/node-1?lang=fr")
    page.set_viewport_size({"width": 360, "height": 740})
    page.emulate_media(color_scheme="dark")
    page.get_by_label("pourquoi").fill("un disque est changé")
    page.get_by_role("button", name="vider").click()
    told = re.compile(r"aucun job n’y démarre depuis [0-9:]{5} : un disque est changé")
    expect(page.locator(".lead")).to_contain_text(told)
    expect(page.get_by_label("pourquoi")).to_have_value("")
    assert [text for _, text in left_in_english(page) if text != "drain"] == []  # that is the name of a property
    assert faults(page) == []
    assert page.evaluate(FITS)
    page.get_by_role("button", name="finir la vidange").click()
    expect(page.locator(".lead")).not_to_contain_text("un disque est changé")


@needs_root
def test_an_area_of_the_grid_is_chosen_with_the_mouse(administrator: Visitor, database: Database) -> None:
    add_resources(database)
    page = administrator.open("nodes")
    box = page.get_by_role("application", name="Grid of nodes").bounding_box()
    assert box
    page.keyboard.down("Shift")
    page.mouse.move(box["x"] + 3, box["y"] + 3)
    page.mouse.down()
    page.mouse.move(box["x"] + 400, box["y"] + 60, steps=4)
    page.mouse.up()
    page.keyboard.up("Shift")
    page.get_by_text("2 nodes chosen").wait_for()
    page.get_by_text("No job and no plan is in the way.").wait_for()
    page.get_by_role("button", name="choose none").click()
    page.get_by_text("0 nodes chosen").wait_for()
    assert "/ui/nodes/" not in page.url


@needs_root
def test_maintenance_names_the_jobs_that_it_ends(administrator: Visitor, database: Database) -> None:
    job = add_job(database, JobState.RUNNING, on=add_resources(database)[:1])
    page = administrator.open("nodes?view=table&lang=fr")
    page.set_viewport_size({"width": 360, "height": 740})
    page.emulate_media(color_scheme="dark")
    page.get_by_role("checkbox", name="choisir tous les nœuds affichés").check()
    page.get_by_text("2 nœuds choisis").wait_for()
    page.get_by_text("1 seraient coupés").wait_for()
    page.get_by_role("button", name="maintenance", exact=True).click()
    expect(page.locator(".question")).to_contain_text(f"Ses jobs sont arrêtés : {job}.")
    assert left_in_english(page) == []
    assert faults(page) == []
    assert page.evaluate(FITS)
    page.locator(".question").get_by_role("button", name="maintenance").click()
    expect(page.get_by_role("status").filter(has_text="Fait.")).to_be_visible()
    with database.snapshot() as tx:
        assert tx.rows(ABSENT) == [("node-1",), ("node-2",)]


@needs_root
def test_a_maintenance_to_come_is_tried_and_reserved(administrator: Visitor, database: Database) -> None:
    add_job(database, JobState.RUNNING, on=add_resources(database)[:1], walltime=3600)
    page = administrator.open("nodes?view=table")
    page.get_by_role("checkbox", name="choose node-1").check()
    page.locator("input[name=from]").fill("2040-01-01T08:00")
    page.locator("input[name=to]").fill("2040-01-01T18:00")
    page.get_by_text("1 are over by then").wait_for()
    page.get_by_role("link", name="Reserve them for this time").click()
    page.wait_for_url("**/ui/reservations/new?**")
    expect(page.locator("input[name=hosts]")).to_have_value("node-1")
    expect(page.locator("input[name=users]")).to_have_value("NONE")
    expect(page.locator("input[name=from]")).to_have_value("2040-01-01T08:00")


@needs_root
@pytest.mark.parametrize("place", ["nodes?view=table&lang=fr", "nodes/node-1?lang=fr"])
def test_who_takes_nodes_of_a_reservation_insists_on_it(administrator: Visitor, database: Database, place: str) -> None:
    resources, start = add_resources(database)[:1], int(time.time()) + 3600
    add_reservation(database, start_time=start, end_time=start + 3600, resources=resources)
    page = administrator.open(place)
    if "view" in place:
        page.get_by_role("checkbox", name="choisir node-1").check()
    page.get_by_label("pourquoi").fill("un disque")
    page.get_by_role("button", name="maintenance", exact=True).click()
    page.locator(".question").get_by_role("button", name="maintenance").click()
    refused = page.get_by_role("alert").filter(has_text="node-1 is reserved by the advance reservation")
    expect(refused).to_be_visible()
    with database.snapshot() as tx:
        assert tx.rows(ABSENT) == []
    refused.get_by_role("button", name="le faire quand même").click()
    expect(page.get_by_role("status").filter(has_text="Fait.")).to_be_visible()
    administrator.errors = [each for each in administrator.errors if "409" not in each]  # browsers tell them
    with database.snapshot() as tx:
        assert tx.rows(ABSENT) == [("node-1",)]
        ((_, told),) = tx.events.last_texts(["node-1"], EventType.MAINTENANCE_BEGUN).values()
        assert told.endswith(": un disque")


def test_who_is_no_administrator_chooses_no_nodes(owner: Visitor, database: Database) -> None:
    add_resources(database)
    page = owner.open("nodes?view=table")
    page.get_by_role("link", name="node-1").wait_for()
    assert page.get_by_role("checkbox").count() == 0
