"""Cost of the Gantt page: ``python -m bench.gantt [nodes days jobs]``; default: 5,000 nodes, 30 days, 200,000 jobs.

A real browser opens a day and a month, drags them, and stays open while jobs end; a slowed browser opens the start
page.  An empty page and an empty canvas are measured in the same way for comparison.  Times of first views include
service, database and browser on one machine.
"""

import sys
import tempfile
import time
from pathlib import Path
from statistics import median, quantiles

from playwright.sync_api import Browser, Page, sync_playwright

from bench.browsing import Traffic, drag, drag_nothing, longest_task, open_until, slow_start, usable, visit
from bench.drawn_site import DAY, DrawnSize, fill
from bench.figures import Figures, heading
from bench.ground import ground
from oar.api.server import spare_what_stays
from oar.lib.config.files import Config
from oar.lib.db.database import Database
from oar.lib.jobs import lifecycle
from oar.lib.jobs.states import JobState
from oar.lib.runtime import Runtime
from tests.api.conftest import Api
from tests.browser.conftest import ARGUMENTS, CHROMIUM

SIZE = DrawnSize(5000, 1, 30, 200_000)
RUNS = 5
#: Factor by which the browser is slowed.
SLOWER = 4
#: Jobs that end while the page is open: as many as in a minute.
ENDS = 5
CANVAS = ".gantt-frame canvas"


def main() -> None:
    """Print the figures."""
    given = [int(word) for word in sys.argv[1:4]]
    size = DrawnSize(given[0], 1, given[1], given[2]) if len(given) == 3 else SIZE
    now, figures = int(time.time()), Figures()
    with ground() as stand, tempfile.TemporaryDirectory() as directory:
        jobs = fill(stand.database, size, now)
        stand.analyze()
        api = Api(Runtime(Config(instance_name="bench", api_rate_read=0), stand.database), Path(directory, "api.sock"))
        spare_what_stays()
        api.start()
        try:
            heading(f"{size.nodes} nodes, {size.days} days, {jobs} jobs")
            measure(stand.database, f"http://127.0.0.1:{api.port}/ui/", figures, now)
        finally:
            api.stop()
    figures.end()


def measure(database: Database, base: str, figures: Figures, now: int) -> None:
    """Measure the views of a site that does not change."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(ARGUMENTS))
        try:
            empty = _first(browser, base, figures)
            _day(browser, figures, f"{base}gantt", empty)
            _month(browser, figures, f"{base}gantt?from={now - 30 * DAY}&to={now + DAY // 2}", empty)
            _live(browser, database, figures, f"{base}gantt")
        finally:
            browser.close()


def _first(browser: Browser, base: str, figures: Figures) -> float:
    """Open the start page and an empty canvas; return the CPU of dragging the canvas per frame."""
    with visit(browser) as page:
        traffic = Traffic(page)
        usable(page, base)
        figures.add("script of the first page, packed", traffic.bytes(".js") / 1024, 60, "kB")
    figures.add("first page usable, a browser 4 times slower", slow_start(browser, base, RUNS, SLOWER), 1000)
    figures.note("an empty page, the same", slow_start(browser, f"{base}help", RUNS, SLOWER))
    with visit(browser) as page:
        usable(page, f"{base}help")
        empty = drag_nothing(page)
    figures.note("an empty canvas: CPU of the browser for a picture", empty)
    return empty


def _day(browser: Browser, figures: Figures, address: str, empty: float) -> None:
    first = []
    for _ in range(RUNS):
        with visit(browser) as page:
            first.append(_show(page, address))
    figures.add("first view of a day", median(first), 400)
    with visit(browser) as page:
        _show(page, address)
        _move(page, figures, "of a day", empty)


def _month(browser: Browser, figures: Figures, address: str, empty: float) -> None:
    with visit(browser) as page:
        traffic = Traffic(page)
        figures.add("first view of a month, nothing cached", _show(page, address), 4000)
        figures.add("data of the month", traffic.bytes("/v1/") / 1e6, 2.5, "MB")
        figures.add("first view of a month, chunks cached", median(_show(page, address) for _ in range(RUNS)), 1500)
        _move(page, figures, "of a month", empty)


def _live(browser: Browser, database: Database, figures: Figures, address: str) -> None:
    """End as many jobs as in a minute."""
    with database.snapshot() as tx:
        running = [job.id for job in tx.jobs.in_states([JobState.RUNNING])[:ENDS]]
    with visit(browser) as page:
        _show(page, address)
        traffic = Traffic(page)
        for job in running:
            with page.expect_response(lambda answer: "/gantt/chunks/" in answer.url), database.begin() as tx:
                lifecycle.move(tx, job, JobState.FINISHING)
                lifecycle.move(tx, job, JobState.TERMINATED)
        figures.add(f"data while {ENDS} jobs end", traffic.bytes("/v1/gantt") / 1000, 20, "kB")
        figures.add("longest task of the page while it looks on", longest_task(page), 50)


def _move(page: Page, figures: Figures, what: str, empty: float) -> None:
    figures.add(f"longest task of the first view {what}", longest_task(page), 50)
    page.evaluate("tasks.length = 0")
    moved = drag(page, CANVAS)
    figures.add(f"moving through a view {what}: script of a picture, median", median(moved.script), 2)
    figures.add(f"moving through a view {what}: script, 95th percentile", quantiles(moved.script, n=20)[-1], 8)
    figures.add(f"moving through a view {what}: CPU above an empty canvas", moved.cpu - empty, 6)
    figures.add(f"longest task of moving through a view {what}", longest_task(page), 50)


def _show(page: Page, address: str) -> float:
    """Open the page; return the milliseconds until it was drawn completely."""
    open_until(page, address, "data-complete")
    complete = page.evaluate("oarPerf.complete")
    page.wait_for_timeout(1500)  # the legend is drawn after the first view; it must not count as part of the drag
    return float(complete)


if __name__ == "__main__":
    main()
