"""Takes the screenshots of the pages for the documentation: ``python -m docs.take_pictures``.

It creates a small site and opens its pages in a browser.  ``tests/browser/test_pictures.py`` does the same and checks
that there is a picture of each page, with the same size.
"""

import json
import pwd
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from unittest.mock import patch

from playwright.sync_api import Browser, Page, sync_playwright

from bench.drawn_site import DAY, DrawnSize, fill
from bench.ground import ground
from oar.kao.facts.reasons import busy
from oar.lib.access import tokens
from oar.lib.access.records import User
from oar.lib.config.files import Config
from oar.lib.db.database import Database
from oar.lib.history.sql_gantt_days import DrawnJob
from oar.lib.jobs import lifecycle
from oar.lib.jobs.accounting import accounting_rules, count
from oar.lib.jobs.sql_waits import StoredReason
from oar.lib.jobs.states import JobState
from oar.lib.runtime import Runtime
from tests.api.conftest import Api
from tests.browser.conftest import ARGUMENTS, CHROMIUM, PATIENCE
from tests.builders import add_array
from tests.db.reservation_rows import add_reservation

DIRECTORY = Path(__file__).parent / "pictures"
SIZE = DrawnSize(nodes=24, cores=4, days=2, jobs=320)
#: User of the browser.
WHO = "alice"
#: Width and height of a picture.
VIEWPORT = (1120, 680)
#: Pictures by name: address of the page, and a selector that matches when the page is complete.
PICTURES = {
    "dashboard": ("", "html[data-ready]"),
    "nodes": ("nodes", ".grid canvas"),
    "properties": ("nodes?props=cpuset=0", ".grid canvas"),
    "node": ("nodes/node-3", ".lanes"),
    "jobs": ("jobs?project=ml,phys", "tbody tr"),
    "job": ("jobs/{job}", ".lanes"),
    "alteration": ("jobs/{job}", ".lanes"),
    "array": ("arrays/{array}", ".array-grid"),
    "gantt": ("gantt?job={job}", ".gantt-card .why + .faint"),
    "submit": ("submit?nodes=4&walltime=2:00&command=./run.sh&name=sim", "#when:not(.aged) .lanes"),
    "usage": ("usage?of=site&days=7", "svg.chart"),
    "reservations": ("reservations", "svg.week"),
    "queues": ("queues", "tbody tr"),
    "events": ("events", "html[data-ready]"),
    "new-reservation": ("reservations/new?nodes=4&from={begin}&to={end}", "#trial:not(.aged) .lanes"),
}
#: Folded section to open before a picture is taken, by name of the picture.
OPENED = {"alteration": "Alter it", "properties": "choose by properties, as in Monika"}

#: Stores the request of a job, and the time since which it waits.
_ASKED = """
    WITH groups AS (
        INSERT INTO job_resource_groups (res_group_moldable_id, res_group_property)
        SELECT moldable_id, '' FROM moldable_job_descriptions WHERE moldable_job_id = %(job)s RETURNING res_group_id),
    asked AS (
        INSERT INTO job_resource_descriptions
            (res_job_group_id, res_job_resource_type, res_job_value, res_job_order)
        SELECT res_group_id, 'resource_id', %(number)s, 0 FROM groups)
    INSERT INTO job_state_logs (job_id, job_state, date_start) SELECT %(job)s, 'Waiting', %(since)s"""


def main() -> None:
    """Take all pictures."""
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
    """Fill the site and take a picture of each page."""
    values = _site(database)
    api.runtime.config = api.runtime.config.replace(reservation_open=True)
    width, height = VIEWPORT
    base = f"http://127.0.0.1:{api.port}/ui/"
    context = browser.new_context(viewport={"width": width, "height": height}, locale="en", color_scheme="light")
    page = context.new_page()
    page.set_default_timeout(PATIENCE)
    with patch("pwd.getpwnam", _account):
        _log_in(page, base, database)
        for name, (address, there) in PICTURES.items():
            _open(page, f"{base}{address.format(**values)}", there)
            if name in OPENED:
                _unfold(page, OPENED[name])
            page.screenshot(path=directory / f"{name}.png")
    context.close()


def _account(name: str, known: Callable[[str], pwd.struct_passwd] = pwd.getpwnam) -> pwd.struct_passwd:
    """Return an account of the site; one of them does not exist on this machine."""
    return pwd.struct_passwd((WHO, *known("nobody")[1:])) if name == WHO else known(name)


def _log_in(page: Page, base: str, database: Database) -> None:
    """Log in a user who has jobs on the site."""
    with database.begin() as tx:
        _, token = tokens.create(tx, User(WHO, 65534), scope="rw")
    page.goto(f"{base}login")
    page.wait_for_selector("html[data-ready]")
    page.get_by_label("token", exact=True).fill(token)
    page.keyboard.press("Enter")
    page.wait_for_url(base)


def _open(page: Page, address: str, there: str) -> None:
    page.goto(address)
    page.wait_for_selector("html[data-ready]")
    page.wait_for_selector(there, state="attached")
    if "gantt" in address:
        page.wait_for_selector(".overview[role=slider]")
    page.wait_for_selector('#live[data-status="live"]')


def _unfold(page: Page, words: str) -> None:
    """Open the folded section with a title, and scroll to it."""
    summary = page.locator("summary").filter(has_text=words)
    summary.click()
    summary.locator("xpath=..").locator("input").first.wait_for()
    summary.evaluate("each => each.scrollIntoView()")


def _site(database: Database) -> dict[str, int]:
    """Fill the site; return the values for the addresses of the pages."""
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
    array = _array(database, now)
    job = _explain(database)
    for _ in count(database, accounting_rules(Config())):
        pass
    return {"job": job, "array": array, "begin": hour + DAY, "end": hour + DAY + 4 * 3600}


def _array(database: Database, now: int) -> int:
    """Add an array of which half the jobs have ended; return its id."""
    ids = add_array(database, 300, user="carol", name="scan", project="bio")
    ended = (
        "UPDATE jobs SET state = 'Terminated', exit_code = %s, start_time = %s, stop_time = %s WHERE job_id = ANY(%s)"
    )
    with database.begin() as tx:
        tx.execute(ended, (0, now - 1200, now - 300, ids[:150]))
        tx.execute(ended, (256, now - 1200, now - 900, ids[17:150:31]))
        for number in ids[150:174]:
            lifecycle.move(tx, number, JobState.HOLD)
    return ids[0]


def _explain(database: Database) -> int:
    """Store the reasons of planned jobs: an earlier job on the same resources; return one of them."""
    reasons = {}
    with database.begin() as tx:
        running, planned = tx.gantt_days.running(), tx.gantt_days.planned()
        tx.execute("UPDATE jobs SET array_id = job_id WHERE array_id = 0")
        for job in (*running, *planned):
            tx.execute(_ASKED, {"job": job.id, "number": len(job.resources), "since": job.submitted})
        for job in planned:
            before = [each for each in (*running, *planned) if each.start < job.start and _meet(each, job)]
            last = max(before, key=lambda each: each.start, default=None)
            reason = busy(job.start, [last.id] if last else [])
            reasons[job.id] = StoredReason(reason.code, reason.text, json.dumps(reason.data))
        tx.job_waits.explain(reasons)
        for table in ("gantt_jobs_predictions", "gantt_jobs_predictions_visu"):
            tx.execute(f"DELETE FROM {table} WHERE moldable_job_id = 0")
            tx.execute(f"INSERT INTO {table} (moldable_job_id, start_time) VALUES (0, %s)", (tx.now,))
        mine = [job.id for job in planned if job.user == WHO]
    return mine[0]


def _meet(one: DrawnJob, other: DrawnJob) -> bool:
    return bool(set(one.resources) & set(other.resources))


if __name__ == "__main__":
    main()
