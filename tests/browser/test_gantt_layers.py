"""What lies over and below the jobs of the diagram, as somebody sees it."""

import json
import time
from pathlib import Path

from playwright.sync_api import Page, Route, expect

from oar.lib.db.database import Database
from oar.lib.facts.states import JobState
from oar.web.assets import Assets
from tests.api.conftest import Api
from tests.browser.conftest import Visitor
from tests.browser.test_pages import FITS, faults
from tests.builders import add_job, add_resources

HOUR, DAY = 3600, 86400
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


def test_what_was_planned_is_laid_over_what_came_of_it(visitor: Visitor, database: Database) -> None:
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
            tx.execute("INSERT INTO gantt_jobs_resources_log VALUES (%s, %s, %s)", (*values[:2], resources[1]))
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


def test_periods_of_quotas_stand_above_the_jobs(api: Api, visitor: Visitor, database: Database, tmp_path: Path) -> None:
    add_resources(database)
    file = tmp_path / "quotas.json"
    periods = [["08:00-19:00 * * *", "working", "day"], ["19:00-08:00 * * *", "free", "night"]]
    file.write_text(json.dumps({"periodical": periods, "working": {"*,*,*,/": [4, -1, -1]}, "free": {}}))
    api.runtime.config = api.runtime.config.replace(quotas=True, quotas_conf_file=str(file))
    with database.begin() as tx:
        tx.execute("UPDATE queues SET scheduler_policy = 'kamelot'")
    page = open_diagram(visitor, "gantt")
    band = page.locator(".quota-band svg")
    expect(band).to_contain_text("working")
    assert "free" in (band.get_attribute("aria-label") or "")
    assert faults(page) == []
    page.get_by_role("button", name="month").click()
    page.get_by_role("button", name="month").click()
    expect(band).to_be_visible()
