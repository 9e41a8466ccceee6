"""Every page, as people look at it: it shows what there is and does nothing that it may not do."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page

from tests.api.conftest import Api
from tests.browser.conftest import Visitor, visiting

#: The pages, each with a text that it shows of the cluster below.
PAGES = {
    "": "The cluster testbed",
    "nodes": "4 resources on 2 nodes",
    "nodes?view=table": "node-1",
    "nodes/node-1": "rests",
    "jobs": "train",
    "jobs/{running}": "node-1",
    "jobs/{waiting}": "Why it waits",
    "jobs/{ended}": "post",
    "arrays/{running}": "ended",
    "gantt": "Jobs over time",
    "gantt?view=table&color=user": "rests",
    "submit": "When would a job start?",
    "usage": "Usage",
    "fairshare?who=alice": "has the karma",
    "reservations": "There are no reservations here.",
    "reservations?view=all": "Advance reservations",
    "reservations/new": "New advance reservation",
    "queues": "besteffort",
    "events": "PING_CHECKER_NODE_SUSPECTED",
    "help": "Ctrl",
    "login": "Log in",
    "nowhere": "There is no such page.",
}
#: Where it is another one without scripts.
PLAIN = {
    "nodes": "4 resources: 1 free",
    "nodes?view=table": "4 resources: 1 free",
    "nodes/node-1": "2 resources: 1 free",
    "gantt": "rests",
    "fairshare?who=alice": "Usage",
}
#: How people look: their screen, their wishes.
LOOKS: dict[str, dict[str, Any]] = {
    "light": {"color_scheme": "light"},
    "dark and still": {"color_scheme": "dark", "reduced_motion": "reduce"},
    "on a telephone": {"viewport": {"width": 360, "height": 740}, "has_touch": True, "is_mobile": True},
}
#: Nothing of a page is to the right of the screen.
FITS = "document.documentElement.scrollWidth <= document.documentElement.clientWidth"


@pytest.fixture(params=LOOKS)
def looker(request: pytest.FixtureRequest, chromium: Browser, api: Api) -> Iterator[Visitor]:
    """Somebody with a screen of his own."""
    yield from visiting(chromium, api, **LOOKS[request.param])


def faults(page: Page) -> list[str]:
    """Return what is in the way of people who cannot see, or not well."""
    found = Axe().run(page).response["violations"]
    return [f"{fault['id']}: {node['target']} {node['failureSummary']}" for fault in found for node in fault["nodes"]]


def is_scripted(path: str) -> bool:
    return path != "nowhere"


def test_every_page_is_for_everybody(looker: Visitor, jobs: dict[str, int]) -> None:
    for path, text in PAGES.items():
        if not is_scripted(path):
            continue
        page = looker.open(path.format(**jobs))
        page.get_by_text(text).first.wait_for()
        assert faults(page) == [], path
        assert page.evaluate(FITS), path
        page.close()


def test_every_page_can_be_read_without_scripts(chromium: Browser, api: Api, jobs: dict[str, int]) -> None:
    visits = visiting(chromium, api, java_script_enabled=False)
    visitor = next(visits)
    for path, text in PAGES.items():
        page = visitor.open(path.format(**jobs), scripted=False)
        assert page.get_by_text(PLAIN.get(path, text)).count(), path
        page.close()
    visitor.errors = [each for each in visitor.errors if "404" not in each]  # the page that is not there
    next(visits, None)


def test_pages_speak_french(chromium: Browser, api: Api, jobs: dict[str, int]) -> None:
    visits = visiting(chromium, api, locale="fr-FR")
    visitor = next(visits)
    page = visitor.open("jobs/{waiting}".format(**jobs))
    assert page.locator("html").get_attribute("lang") == "fr"
    page.get_by_role("heading", name="Pourquoi il attend").wait_for()
    page.get_by_role("link", name="English").click()
    page.get_by_role("heading", name="Why it waits").wait_for()
    page.goto(f"{visitor.base}/ui/queues")  # the choice stays
    page.get_by_role("heading", name="Queues").wait_for()
    next(visits, None)


def test_a_page_is_printed_without_its_controls(visitor: Visitor, jobs: dict[str, int]) -> None:
    page = visitor.open("jobs")
    page.emulate_media(media="print")
    assert not page.locator("nav").is_visible()
    assert page.get_by_text("train").is_visible()


def test_pages_work_below_a_prefix(api: Api) -> None:
    """No address of a page begins at the root of its host: a proxy may put it anywhere."""
    with httpx.Client(base_url=f"http://127.0.0.1:{api.port}") as client:
        text = client.get("/ui/jobs/1/", follow_redirects=True).text + client.get("/ui/jobs").text
    assert 'href="../ui/nodes"' in text
    assert 'href="/' not in text
    assert 'src="/' not in text
