"""What lies over and below the jobs of the diagram, as somebody sees it."""

import json
import time
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from playwright.sync_api import Browser, Page, Route, expect

from oar.lib.db.database import Database
from oar.lib.jobs.sql_waits import StoredReason
from oar.lib.jobs.states import JobState
from oar.web.assets import Assets
from tests.api.conftest import Api
from tests.browser.conftest import Visitor, visiting
from tests.browser.test_every_page import left_in_english
from tests.browser.test_pages import FITS, faults
from tests.builders import add_job, add_resources

HOUR, DAY = 3600, 86400
SVG = "{http://www.w3.org/2000/svg}"
#: How many pixels of the diagram are of a colour that is near to one.
PIXELS = """
([red, green, blue]) => {
  const canvas = document.querySelector(".gantt-frame canvas"), { width, height } = canvas;
  const pen = new OffscreenCanvas(width, height).getContext("2d", { willReadFrequently: true });
  pen.drawImage(canvas, 0, 0);
  const { data } = pen.getImageData(0, 0, width, height);
  let found = 0;
  for (let at = 0; at < data.length; at += 4)
    found += Math.abs(data[at] - red) + Math.abs(data[at + 1] - green) + Math.abs(data[at + 2] - blue) < 24;
  return found;
}
"""
#: The colour of what is used.
USED = [40, 142, 215]


def open_diagram(visitor: Visitor, address: str) -> Page:
    page = visitor.open(address)
    page.wait_for_selector(".gantt-frame[data-complete]")
    return page


def _few_jobs(route: Route) -> None:
    """Hand the worker out, as if more than one job were too many."""
    worker = Assets().find("js/gantt/worker.js")
    assert worker
    text = worker.content.decode()
    changed = text.replace("MOST_JOBS = 500_000", "MOST_JOBS = 1")
    assert changed != text
    route.fulfill(body=changed, content_type="text/javascript")


def test_days_of_too_many_jobs_are_shown_by_how_much_was_used(visitor: Visitor, database: Database) -> None:
    begin = int(time.time()) // DAY * DAY - 9 * DAY
    resources = add_resources(database)
    jobs = [add_job(database, JobState.TERMINATED, on=resources) for _ in range(2)]
    with database.begin() as tx:
        for job, day in zip(jobs, (begin, begin + DAY), strict=True):
            dates = (day + HOUR, day + 20 * HOUR, job)
            tx.execute("UPDATE jobs SET start_time = %s, stop_time = %s WHERE job_id = %s", dates)
    visitor.context.route("**/gantt/worker.js", _few_jobs)
    page = open_diagram(visitor, f"gantt?from={begin}&to={begin + 2 * DAY}")
    expect(page.locator(".notice")).to_contain_text("how much was used")
    page.wait_for_function(f"(colour) => ({PIXELS})(colour) > 2000", arg=USED)


def _plan(database: Database) -> tuple[int, int]:
    """Keep a plan of three hours ago: of a job that has started later, and of one that waits still; return both."""
    now = int(time.time())
    resources = add_resources(database)
    late, waiting = add_job(database, JobState.RUNNING, on=resources[:1], name="sim"), add_job(database)
    with database.begin() as tx:
        tx.execute("UPDATE jobs SET start_time = %s WHERE job_id = %s", (now - HOUR, late))
        for job, start in ((late, now - 2 * HOUR), (waiting, now - HOUR)):
            (moldable,) = tx.rows(
                "SELECT moldable_id FROM moldable_job_descriptions WHERE moldable_job_id = %s", (job,)
            )[0]
            values = (now - 3 * HOUR, moldable, start)
            tx.execute("INSERT INTO gantt_jobs_predictions_log VALUES (%s, %s, %s)", values)
            for resource in resources[:2]:
                tx.execute("INSERT INTO gantt_jobs_resources_log VALUES (%s, %s, %s)", (*values[:2], resource))
    return late, waiting


def _choose_plan(page: Page) -> None:
    page.locator(".plan input").focus()
    page.keyboard.press("ArrowLeft")
    expect(page.locator(".plan li")).to_have_count(4)


def test_what_was_planned_is_laid_over_what_came_of_it(visitor: Visitor, database: Database) -> None:
    _plan(database)
    page = open_diagram(visitor, "gantt")
    slider = page.get_by_role("slider", name="what was planned at")
    slider.focus()
    page.keyboard.press("ArrowLeft")
    expect(page.locator(".plan li").filter(has_text="started later")).to_contain_text("1")
    expect(page.locator(".plan li").filter(has_text="has not started")).to_contain_text("1")
    page.locator("summary", has_text="What was planned then").click()
    expect(page.get_by_role("row").filter(has_text="sim")).to_contain_text("+01:00")
    assert faults(page) == []
    assert page.evaluate(FITS)
    page.get_by_role("button", name="the plan of now").click()
    expect(page.locator(".plan li")).to_have_count(0)


def test_a_former_plan_is_taken_away_and_printed_as_it_is_seen(visitor: Visitor, database: Database) -> None:
    late, waiting = _plan(database)
    now = int(time.time())
    page = open_diagram(visitor, f"gantt?from={now - 6 * HOUR}&to={now + HOUR}")
    _choose_plan(page)
    page.get_by_text("export").click()
    with page.expect_download() as download:
        page.get_by_role("button", name="SVG").click()
    drawing = ElementTree.parse(download.value.path()).getroot()
    dashed = [each for each in drawing.iter(f"{SVG}rect") if each.get("stroke-dasharray")]
    texts = {each.text for each in drawing.iter(f"{SVG}text")}
    assert len(dashed) == 2
    assert {f"{late} +01:00", str(waiting), "node-1", "node-2"} <= texts
    page.emulate_media(media="print")
    for told in ("output", ".legend"):
        expect(page.locator(f".plan {told}")).to_be_visible()
    for pressed in ("input", "button"):
        expect(page.locator(f".plan {pressed}")).not_to_be_visible()


def _divide(api: Api, database: Database, directory: Path) -> None:
    """Give the site quotas that are others by day and by night."""
    file = directory / "quotas.json"
    periods = [["08:00-19:00 * * *", "working", "day"], ["19:00-08:00 * * *", "sleeping", "night"]]
    file.write_text(json.dumps({"periodical": periods, "working": {"*,*,*,/": [4, -1, -1]}, "sleeping": {}}))
    api.runtime.config = api.runtime.config.replace(quotas=True, quotas_conf_file=str(file))
    with database.begin() as tx:
        tx.execute("UPDATE queues SET scheduler_policy = 'kamelot'")


def test_periods_of_quotas_stand_above_the_jobs(api: Api, visitor: Visitor, database: Database, tmp_path: Path) -> None:
    add_resources(database)
    _divide(api, database, tmp_path)
    page = open_diagram(visitor, "gantt")
    band = page.locator(".quota-band svg")
    expect(band).to_contain_text("working")
    assert "sleeping" in (band.get_attribute("aria-label") or "")
    assert faults(page) == []
    page.get_by_role("button", name="month").click()
    page.get_by_role("button", name="month").click()
    expect(band).to_be_visible()


LOOKS = ({"color_scheme": "dark"}, {"viewport": {"width": 360, "height": 740}, "has_touch": True, "is_mobile": True})


@pytest.mark.parametrize("look", LOOKS, ids=("dark", "narrow"))
def test_all_layers_are_for_everybody(
    chromium: Browser, api: Api, database: Database, tmp_path: Path, look: dict[str, Any]
) -> None:
    """In French, while there are too many jobs, a former plan is chosen, and quotas have periods."""
    _plan(database)
    begin = int(time.time()) // DAY * DAY - DAY
    with database.snapshot() as tx:
        resources = [row.id for row in tx.resources.all()]
    for day in (begin, begin - DAY):
        job = add_job(database, JobState.TERMINATED, on=resources)
        with database.begin() as tx:
            tx.execute("UPDATE jobs SET start_time = %s, stop_time = %s WHERE job_id = %s", (day, day + HOUR, job))
    _divide(api, database, tmp_path)
    visits = visiting(chromium, api, locale="fr-FR", **look)
    visitor = next(visits)
    visitor.context.route("**/gantt/worker.js", _few_jobs)
    page = open_diagram(visitor, f"gantt?from={begin - DAY}&to={begin + 3 * DAY}")
    _choose_plan(page)
    page.locator("summary", has_text="Ce qui était prévu alors").click()
    expect(page.get_by_role("row").filter(has_text="sim")).to_contain_text("+01:00")
    expect(page.locator(".quota-band svg")).to_contain_text("sleeping")
    expect(page.locator(".pattern.dense")).to_be_visible()
    assert faults(page) == []
    assert page.evaluate(FITS)
    assert left_in_english(page) == []
    next(visits, None)


def test_a_planned_job_says_in_words_for_what_it_waits(visitor: Visitor, database: Database) -> None:
    job, resources = add_job(database), add_resources(database)
    with database.begin() as tx:
        (moldable,) = tx.rows("SELECT moldable_id FROM moldable_job_descriptions WHERE moldable_job_id = %s", (job,))[0]
        tx.execute("INSERT INTO gantt_jobs_predictions_visu VALUES (%s, %s)", (moldable, int(time.time()) + HOUR))
        tx.execute("INSERT INTO gantt_jobs_sets_visu VALUES (%s, %s)", (moldable, resources[:2]))
        tx.job_waits.explain({job: StoredReason("BUSY", "others use them", "{}")})
    page = open_diagram(visitor, f"gantt?job={job}")
    expect(page.locator("#gantt-says")).to_contain_text("waits for busy resources")
