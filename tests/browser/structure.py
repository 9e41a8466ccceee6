"""Where the parts of each page are, as stored: ``python -m tests.browser.structure`` stores it anew.

Pixels of letters differ from machine to machine; where blocks are, and how wide, does not.  So a page is compared by
its blocks: which there are, their place across the screen, and about how far down and how high they are.
"""

import json
import tempfile
from collections.abc import Mapping
from pathlib import Path

from playwright.sync_api import Browser, Page, sync_playwright

from bench.ground import ground
from oar.lib.config.files import Config
from oar.lib.runtime import Runtime
from tests.api.conftest import Api
from tests.browser.conftest import ARGUMENTS, CHROMIUM, LOOKS, PAGES, is_scripted, small_site, visiting

STORED = Path(__file__).with_name("structure.json")
#: Looks of which the structure is stored: a usual screen, a telephone.
COMPARED = ("light", "on a telephone")
#: How far a block may be from its place across the screen, how much narrower or wider, in hundredths of the screen.
ACROSS = 2.0
#: How far down, and how much higher or lower: so many units of the style sheet, and a part of what is stored.
DOWN, DOWN_SHARE = 40, 0.2
#: The blocks of a page, each by its kind and its number: [left, width] in hundredths of the screen, [top, height].
_BLOCKS = """
() => {
  const kinds = ["header", "nav", "main", "footer", "h1", "form", ".filters", ".row", ".bar:not(.small)", ".legend",
    ".facts", ".card", ".scroll", ".chart", ".lanes", ".gantt-frame", ".overview", ".grid .window", ".array-grid"];
  const wide = document.documentElement.clientWidth, found = {};
  const share = (length) => Math.round((1000 * length) / wide) / 10;
  const isSeen = (each) => each.checkVisibility() && !each.closest("dialog");
  for (const kind of kinds) {
    [...document.querySelectorAll(kind)].filter(isSeen).forEach((each, place) => {
      const { left, width, top, height } = each.getBoundingClientRect();
      found[`${kind} ${place + 1}`] = [share(left), share(width), Math.round(top + scrollY), Math.round(height)];
    });
  }
  return found;
}
"""
Block = tuple[float, float, int, int]
Blocks = dict[str, Block]


def blocks(page: Page) -> Blocks:
    """Return where the blocks of a page are."""
    return {name: tuple(numbers) for name, numbers in page.evaluate(_BLOCKS).items()}


def stored(look: str, path: str) -> Blocks:
    """Return where the blocks of a page are to be."""
    return {name: tuple(numbers) for name, numbers in json.loads(STORED.read_text())[look][path].items()}


def differences(found: Blocks, wanted: Blocks) -> list[str]:
    """Return what differs by more than fonts explain."""
    there = [f"{name}: missing" for name in wanted.keys() - found.keys()]
    there += [f"{name}: not stored" for name in found.keys() - wanted.keys()]
    moved = [
        f"{name}: {found[name]}, stored {wanted[name]}"
        for name in wanted.keys() & found.keys()
        if not _is_near(found[name], wanted[name])
    ]
    return sorted(there + moved)


def _is_near(found: Block, wanted: Block) -> bool:
    across = max(abs(found[place] - wanted[place]) for place in (0, 1))
    down = [abs(found[place] - wanted[place]) - DOWN_SHARE * wanted[place] for place in (2, 3)]
    return across <= ACROSS and max(down) <= DOWN


def _all(browser: Browser, api: Api, jobs: Mapping[str, int]) -> dict[str, dict[str, Blocks]]:
    found: dict[str, dict[str, Blocks]] = {}
    for look in COMPARED:
        visits = visiting(browser, api, **LOOKS[look])
        visitor = next(visits)
        for path, text in PAGES.items():
            if is_scripted(path):
                page = visitor.open_whole(path.format(**jobs), text)
                found.setdefault(look, {})[path] = blocks(page)
                page.close()
        next(visits, None)
    return found


def main() -> None:
    """Store the structure of all pages."""
    with ground() as stand, tempfile.TemporaryDirectory() as directory, sync_playwright() as playwright:
        jobs = small_site(stand.database)
        api = Api(Runtime(Config(instance_name="testbed"), stand.database), Path(directory, "api.sock"))
        api.start()
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(ARGUMENTS))
        try:
            found = _all(browser, api, jobs)
        finally:
            browser.close()
            api.stop()
    STORED.write_text(_written(found))


def _written(found: Mapping[str, Mapping[str, Blocks]]) -> str:
    """Return a line for each page: a change is read as one."""
    looks = []
    for look, pages in found.items():
        lines = [f" {json.dumps(path)}: {json.dumps(each)}" for path, each in pages.items()]
        looks.append(f"{json.dumps(look)}: {{\n" + ",\n".join(lines))
    return "{\n" + "\n},\n".join(looks) + "\n}}\n"


if __name__ == "__main__":
    main()
