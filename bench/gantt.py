"""What the Gantt page costs: ``python -m bench.gantt [nodes days jobs]``, else 5,000 nodes, 30 days, 200,000 jobs.

A real browser opens a day and a month, and moves through them; the script of the page counts, and tasks that keep it
from answering.  An empty page is opened the same way, for comparison.  Times of first views have all of it in them:
service, database, browser on one machine.
"""

import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from playwright.sync_api import Browser, Page, sync_playwright

from bench.drawn_site import DAY, DrawnSize, fill
from bench.figures import Figures, heading
from bench.ground import ground
from oar.api.server import spare_what_stays
from oar.lib.config.files import Config
from oar.lib.runtime import Runtime
from tests.api.conftest import Api
from tests.browser.conftest import ARGUMENTS, CHROMIUM

SIZE = DrawnSize(5000, 1, 30, 200_000)
RUNS = 5
#: Steps of a movement.
STEPS = 120
_TASKS = """
globalThis.tasks = [];
new PerformanceObserver((list) => tasks.push(...list.getEntries().map((entry) => entry.duration)))
    .observe({ type: "longtask", buffered: true });
"""
#: Moves to the left, a step for each picture of the screen; returns the milliseconds of script of each.
_PAN = """
async (steps) => {
  const canvas = document.querySelector(".gantt-frame canvas"), box = canvas.getBoundingClientRect();
  const send = (name, x) => canvas.dispatchEvent(new PointerEvent(name,
    { pointerId: 1, clientX: x, clientY: box.top + box.height / 2, bubbles: true }));
  canvas.setPointerCapture = () => {};
  const before = oarPerf.frames.length;
  send("pointerdown", box.left + 300);
  for (let step = 1; step <= steps; step++) {
    send("pointermove", box.left + 300 + step * 6);
    await new Promise((next) => requestAnimationFrame(() => setTimeout(next)));
  }
  send("pointerup", box.left + 300 + steps * 6);
  return oarPerf.frames.slice(before);
}
"""


def main() -> None:
    """Print the figures."""
    given = [int(word) for word in sys.argv[1:4]]
    size = DrawnSize(given[0], 1, given[1], given[2]) if len(given) == 3 else SIZE
    now, figures = int(time.time()), Figures()
    with ground() as stand, tempfile.TemporaryDirectory() as directory, sync_playwright() as playwright:
        jobs = fill(stand.database, size, now)
        stand.analyze()
        api = Api(Runtime(Config(instance_name="bench", api_rate_read=0), stand.database), Path(directory, "api.sock"))
        spare_what_stays()
        api.start()
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(ARGUMENTS))
        try:
            base = f"http://127.0.0.1:{api.port}/ui"
            heading(f"{size.nodes} nodes, {size.days} days, {jobs} jobs")
            figures.note("an empty page", median(_opened(browser, f"{base}/help", "data-ready") for _ in range(RUNS)))
            _day(browser, figures, f"{base}/gantt")
            _month(browser, figures, f"{base}/gantt?from={now - 30 * DAY}&to={now + DAY // 2}")
        finally:
            browser.close()
            api.stop()
    figures.end()


def _day(browser: Browser, figures: Figures, address: str) -> None:
    first = [_first_view(browser, address) for _ in range(RUNS)]
    figures.add("first view of a day", median(first), 400)
    with _visit(browser) as page:
        _show(page, address)
        _move(page, figures, "of a day")


def _month(browser: Browser, figures: Figures, address: str) -> None:
    with _visit(browser) as page:
        figures.add("first view of a month, nothing cached", _show(page, address), 4000)
        figures.add("first view of a month, chunks cached", _show(page, address), 1500)
        _move(page, figures, "of a month")


def _move(page: Page, figures: Figures, what: str) -> None:
    frames = page.evaluate(_PAN, STEPS)
    figures.add(f"moving through a view {what}: script of a picture, median", median(frames), 2)
    figures.add(f"moving through a view {what}: script, 95th percentile", quantiles(frames, n=20)[-1], 8)
    figures.add(f"longest task of the page {what}", max([0, *page.evaluate("tasks")]), 50)


@contextmanager
def _visit(browser: Browser) -> Iterator[Page]:
    context = browser.new_context(viewport={"width": 1600, "height": 900})
    context.add_init_script(_TASKS)
    yield context.new_page()
    context.close()


def _first_view(browser: Browser, address: str) -> float:
    with _visit(browser) as page:
        return _show(page, address)


def _show(page: Page, address: str) -> float:
    """Open the page; return after how many milliseconds all of it was drawn."""
    page.goto(address)
    page.wait_for_selector(".gantt-frame[data-complete]", timeout=120_000)
    complete: Any = page.evaluate("oarPerf.complete")
    page.wait_for_timeout(1500)  # what comes after the first view, the legend, is no part of the movement
    return float(complete)


def _opened(browser: Browser, address: str, attribute: str) -> float:
    with _visit(browser) as page:
        page.goto(address)
        page.wait_for_selector(f"html[{attribute}]")
        return float(page.evaluate("performance.now()"))


if __name__ == "__main__":
    main()
