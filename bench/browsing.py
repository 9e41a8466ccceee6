"""A browser with measurements: duration of scripts, CPU of its processes, transferred bytes."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import NamedTuple

from playwright.sync_api import Browser, Page, Response

#: Steps of a drag.
STEPS = 120
_SCREEN = {"width": 1600, "height": 900}
_TICK = 1000 / os.sysconf("SC_CLK_TCK")
#: Records long tasks of a page and when its records are shown; logs that, and when a diagram is drawn.
_NOTES = """
globalThis.tasks = [];
new PerformanceObserver((list) => tasks.push(...list.getEntries().map((entry) => entry.duration)))
    .observe({ type: "longtask", buffered: true });
new MutationObserver(([{ attributeName }]) => {
  if (document.documentElement?.dataset.ready) globalThis.usable ??= performance.now();
  console.debug(attributeName);
}).observe(document, { attributes: true, subtree: true, attributeFilter: ["data-ready", "data-complete"] });
"""
#: Drags a canvas to the left, one step per frame.
_DRAG = """
async ([selector, steps]) => {
  const canvas = document.querySelector(selector), box = canvas.getBoundingClientRect();
  const send = (name, x) => canvas.dispatchEvent(new PointerEvent(name,
    { pointerId: 1, clientX: x, clientY: box.top + box.height / 2, bubbles: true }));
  canvas.setPointerCapture = () => {};
  send("pointerdown", box.left + 300);
  for (let step = 1; step <= steps; step++) {
    send("pointermove", box.left + 300 + step * 6);
    await new Promise((next) => requestAnimationFrame(() => setTimeout(next)));
  }
  send("pointerup", box.left + 300 + steps * 6);
}
"""
#: Inserts an empty canvas of the size of the diagram, which is redrawn when it is dragged.
_EMPTY = """
() => {
  const canvas = document.createElement("canvas"), pen = canvas.getContext("2d");
  Object.assign(canvas, { id: "empty", width: 1560, height: 594 });
  document.querySelector("main").replaceChildren(canvas);
  let isDue = false;
  const draw = () => ((isDue = false), (pen.fillStyle = "#fff"), pen.fillRect(0, 0, 1560, 594));
  canvas.addEventListener("pointermove", () => (isDue ||= Boolean(requestAnimationFrame(draw))));
}
"""


class Movement(NamedTuple):
    """Measurements of a drag."""

    script: list[float]  #: milliseconds of script of each frame
    cpu: float  #: CPU milliseconds of all browser processes per frame


@contextmanager
def visit(browser: Browser) -> Iterator[Page]:
    """Open a tab without cached data."""
    context = browser.new_context(viewport=_SCREEN)  # type: ignore[arg-type]  # a literal of two numbers
    context.add_init_script(_NOTES)
    yield context.new_page()
    context.close()


def drag(page: Page, selector: str) -> Movement:
    """Drag a diagram."""
    before, cpu = page.evaluate("oarPerf?.frames.length"), _cpu()
    page.evaluate(_DRAG, [selector, STEPS])
    cpu = _cpu() - cpu
    return Movement(page.evaluate("(before) => oarPerf.frames.slice(before)", before), cpu / STEPS)


def drag_nothing(page: Page) -> float:
    """Drag an empty canvas; return the CPU milliseconds of the browser per frame."""
    page.evaluate(_EMPTY)
    cpu = _cpu()
    page.evaluate(_DRAG, ["#empty", STEPS])
    return (_cpu() - cpu) / STEPS


def longest_task(page: Page) -> float:
    """Return the duration of the longest task of the page in milliseconds; 0 if all were shorter than 50 ms."""
    return float(page.evaluate("Math.max(0, ...tasks)"))


class Traffic:
    """Bytes that a page has received, compressed as sent."""

    def __init__(self, page: Page) -> None:
        self._answers: list[Response] = []
        page.on("response", self._take)

    def _take(self, answer: Response) -> None:
        self._answers.append(answer)

    def bytes(self, part: str) -> int:
        """Return the bytes of URLs that contain a text, since the last call."""
        answers, self._answers = self._answers, []
        return sum(each.request.sizes()["responseBodySize"] for each in answers if part in each.url)


def open_until(page: Page, address: str, told: str) -> None:
    """Open a page and wait until it sets an attribute.

    The page is not queried meanwhile, because a query takes as long as part of its own work.
    """
    with page.expect_console_message(lambda message: message.text == told, timeout=120_000):
        page.goto(address)


def usable(page: Page, address: str) -> float:
    """Open a page; return the milliseconds until it showed its records."""
    open_until(page, address, "data-ready")
    return float(page.evaluate("usable"))


def slow_start(browser: Browser, address: str, runs: int, slower: int) -> float:
    """Return the median of the milliseconds until a page is usable on a processor that is ``slower`` times slower."""
    times = []
    for _ in range(runs):
        with visit(browser) as page:
            page.context.new_cdp_session(page).send("Emulation.setCPUThrottlingRate", {"rate": slower})
            times.append(usable(page, address))
    return median(times)


def _cpu() -> float:
    """Return the CPU time of all browser processes in milliseconds."""
    return sum(ticks for name, ticks in _descendants(os.getpid()) if "chrom" in name) * _TICK


def _descendants(root: int) -> Iterator[tuple[str, int]]:
    """Iterate over the direct and indirect children of a process: name and clock ticks."""
    children: dict[int, list[tuple[int, str, int]]] = {}
    for path in (process / "stat" for process in Path("/proc").glob("[0-9]*")):
        try:
            name, _, rest = path.read_text().partition("(")[2].rpartition(")")
        except OSError:
            continue
        fields = rest.split()
        children.setdefault(int(fields[1]), []).append((int(path.parent.name), name, int(fields[11]) + int(fields[12])))
    todo = [root]
    while todo:
        for number, name, ticks in children.get(todo.pop(), ()):
            todo.append(number)
            yield name, ticks
