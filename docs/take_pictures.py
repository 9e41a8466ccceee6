"""Takes the pictures of the pages that the documents show: ``python -m docs.take_pictures``.

A small site is made, and a browser looks at its pages.  ``tests/browser/test_pictures.py`` does the same and sees that
there is a picture of each page, as large as it is here.
"""

import tempfile
import time
from pathlib import Path

from playwright.sync_api import Browser, Page, sync_playwright

from bench.drawn_site import DAY, DrawnSize, fill
from bench.ground import ground
from oar.lib.config.files import Config
from oar.lib.db.database import Database
from oar.lib.facts.states import JobState
from oar.lib.jobs import lifecycle
from oar.lib.jobs.accounting import accounting_rules, count
from oar.lib.runtime import Runtime
from tests.api.conftest import Api
from tests.browser.conftest import ARGUMENTS, CHROMIUM, PATIENCE
from tests.builders import add_array, add_job
from tests.db.reservation_rows import add_reservation

DIRECTORY = Path(__file__).parent / "pictures"
SIZE = DrawnSize(nodes=24, cores=4, days=2, jobs=320)
#: Width and height of a picture.
VIEWPORT = (1120, 680)
#: The pictures by name: the address of the page, and what is there when it is complete.
PICTURES = {
    "dashboard": ("", "html[data-ready]"),
    "nodes": ("nodes", ".grid canvas"),
    "node": ("nodes/node-3", "html[data-ready]"),
    "jobs": ("jobs", "tbody tr"),
    "job": ("jobs/{job}", "html[data-ready]"),
    "array": ("arrays/{array}", ".array-grid"),
    "gantt": ("gantt", ".gantt-frame[data-complete]"),
    "submit": ("submit?nodes=4&walltime=2:00&command=./run.sh", "html[data-ready]"),
    "usage": ("usage?days=7", "svg.chart"),
    "reservations": ("reservations", "svg.week"),
    "new-reservation": ("reservations/new?nodes=4&from={begin}&to={end}", "html[data-ready]"),
    "queues": ("queues", "tbody tr"),
    "events": ("events", "html[data-ready]"),
}


def main() -> None:
    """Take all pictures anew."""
    with ground() as stand, tempfile.TemporaryDirectory() as directory, sync_playwright() as playwright:
        api = Api(Runtime(Config(instance_name="lyra"), stand.database), Path(directory, "api.sock"))
        api.start()
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(ARGUMENTS))
        try:
            DIRECTORY.mkdir(exist_ok=True)
            take(browser, api, stand.database, DIRECTORY)
        finally:
            browser.close()
            api.stop()


def take(browser: Browser, api: Api, database: Database, directory: Path) -> None:
    """Fill the site, and take a picture of each of its pages."""
    values = _site(database)
    width, height = VIEWPORT
    context = browser.new_context(viewport={"width": width, "height": height}, locale="en", color_scheme="light")
    page = context.new_page()
    page.set_default_timeout(PATIENCE)
    for name, (address, there) in PICTURES.items():
        _open(page, f"http://127.0.0.1:{api.port}/ui/{address.format(**values)}", there)
        page.screenshot(path=directory / f"{name}.png")
    context.close()


def _open(page: Page, address: str, there: str) -> None:
    page.goto(address)
    page.wait_for_selector("html[data-ready]")
    page.wait_for_selector(there, state="attached")
    page.wait_for_selector('#live[data-status="live"]')


def _site(database: Database) -> dict[str, int]:
    """Fill the site; return what addresses name of it."""
    now = int(time.time())
    fill(database, SIZE, now)
    with database.snapshot() as tx:
        cores = sorted(row.id for row in tx.resources.all())
    hour = now // 3600 * 3600
    add_reservation(
        database,
        state="w",
        owner="carol",
        ar_name="course",
        start_time=hour + 2 * 3600,
        end_time=hour + 5 * 3600,
        resources=cores[:32],
    )
    job = add_job(database, user="alice", name="train")
    array = _array(database, now)
    for _ in count(database, accounting_rules(Config())):
        pass
    return {"job": job, "array": array, "begin": hour + DAY, "end": hour + DAY + 4 * 3600}


def _array(database: Database, now: int) -> int:
    """Add an array that is half over; return its id."""
    ids = add_array(database, 300, user="alice", name="scan")
    ended = (
        "UPDATE jobs SET state = 'Terminated', exit_code = %s, start_time = %s, stop_time = %s WHERE job_id = ANY(%s)"
    )
    with database.begin() as tx:
        tx.execute(ended, (0, now - 1200, now - 300, ids[:150]))
        tx.execute(ended, (256, now - 1200, now - 900, ids[17:150:31]))
        for number in ids[150:174]:
            lifecycle.move(tx, number, JobState.HOLD)
    return ids[0]


if __name__ == "__main__":
    main()
