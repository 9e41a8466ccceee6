"""Every page in the other language and on paper: no word is left behind, and what is printed can be read."""

import json
import re
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

from oar.web.assets import DIRECTORY
from tests.api.conftest import Api
from tests.browser.conftest import PAGES, Visitor, is_scripted, visiting

#: Pages for administrators, each with a text that it shows.
FOR_ADMINISTRATORS = {
    "admin": "PostgreSQL",
    "rules": "oaradmissionrules",
    "queues": "besteffort",
    "tokens": "Ce que les programmes montrent",
}
#: The texts that a page has for its readers: those of elements, names for who listens, titles, hints in fields.
TEXTS = """
() => {
  const found = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const { parentElement: parent, data } = walker.currentNode;
    const isOfSite = parent.closest("code, pre, bdi, kbd, script, footer p");
    if (!isOfSite && !(parent.tagName === "OPTION" && parent.value === data.trim())) found.push(data);
  }
  for (const name of ["aria-label", "title", "placeholder"])
    for (const element of document.querySelectorAll(`[${name}]`)) found.push(element.getAttribute(name));
  return found.map((text) => text.trim().replace(/\\s+/g, " ")).filter(Boolean);
}
"""
#: What is wrong with the page on paper: what can only be pressed, dark paper, what reaches beyond the sheet.
ON_PAPER = """
() => {
  const start = (each) => each.outerHTML.slice(0, 90);
  const all = (selector, is) => [...document.querySelectorAll(selector)].filter(is).map(start);
  const root = document.documentElement;
  const isCut = (each) => getComputedStyle(each).overflowX === "auto" && each.scrollWidth > each.clientWidth + 1;
  return [
    ...all("nav, footer, .tools, .filters, .skip, summary, button:not(.chip)", (each) => each.checkVisibility()),
    ...(getComputedStyle(document.body).backgroundColor === "rgb(255, 255, 255)" ? [] : ["dark paper"]),
    ...(root.scrollWidth > root.clientWidth ? ["beyond the sheet"] : []),
    ...all("main *", isCut),
  ];
}
"""
#: The choice of a theme, where a page may keep one.
DARK = "if (location.protocol === 'http:') localStorage.setItem('oar.theme', 'dark')"
#: A sheet of A4 between its margins, in units of the style sheet.
SHEET = {"width": 703, "height": 1030}


def english() -> list[tuple[str, re.Pattern[str]]]:
    """Return the texts that differ between the languages, and what finds them as they are shown."""
    texts: dict[str, dict[str, str]] = {
        language: json.loads((DIRECTORY / "i18n" / f"{language}.json").read_text()) for language in ("en", "fr")
    }
    halves = {half for text in texts["fr"].values() for half in text.split("|")}
    found = []
    for key, text in texts["en"].items():
        if text == texts["fr"][key]:
            continue
        for half in text.split("|"):
            if half not in halves and re.sub(r"\{\w+\}|\W", "", half):
                pattern = re.sub(r"\\\{\w+\\\}", ".+", re.escape(half))
                found.append((key, re.compile(pattern)))
    return found


def left_in_english(page: Page) -> list[tuple[str, str]]:
    """Return the texts of a page that stand in the file of the English ones."""
    shown: list[str] = page.evaluate(TEXTS)
    return [(key, text) for key, pattern in english() for text in shown if pattern.fullmatch(text)]


def check(page: Page, path: str) -> None:
    """Look at a page in French, and at what is printed of it."""
    assert page.locator("html").get_attribute("lang") == "fr"
    assert left_in_english(page) == [], path
    page.emulate_media(media="print")
    page.set_viewport_size(SHEET)  # type: ignore[arg-type]  # a literal of two numbers
    wrong: list[Any] = page.evaluate(ON_PAPER)
    assert wrong == [], path
    page.close()


def test_every_page_speaks_french_and_can_be_printed(chromium: Browser, api: Api, jobs: dict[str, int]) -> None:
    visits = visiting(chromium, api, locale="fr-FR", color_scheme="dark")
    visitor = next(visits)
    visitor.context.add_init_script(DARK)
    for path in filter(is_scripted, PAGES):
        check(visitor.open(path.format(**jobs)), path)
    next(visits, None)


def test_pages_of_administrators_do_so_too(administrator: Visitor, api: Api, jobs: dict[str, int]) -> None:
    api.runtime.config = api.runtime.config.replace(api_admission_rules=True)
    for path, text in FOR_ADMINISTRATORS.items():
        page = administrator.open(f"{path}?lang=fr")
        page.get_by_text(text).first.wait_for()
        check(page, path)


@pytest.mark.parametrize("key", ["jobs.title", "gantt.keys"])
def test_a_word_that_was_left_behind_is_found(key: str) -> None:
    """The test of languages finds what it looks for."""
    texts = json.loads((DIRECTORY / "i18n" / "en.json").read_text())
    found = {each for each, pattern in english() if pattern.fullmatch(texts[key])}
    assert (key in found) == (key == "gantt.keys")  # "Jobs" is the same word
