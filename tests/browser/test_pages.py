"""Every page, as people look at it: it shows what there is and does nothing that it may not do."""

from collections.abc import Iterator

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect

from tests.api.conftest import Api
from tests.browser.conftest import LOOKS, PAGES, Visitor, is_scripted, visiting

#: Where it is another one without scripts.
PLAIN = {
    "nodes": "4 resources: 1 free",
    "nodes?view=table": "4 resources: 1 free",
    "nodes/node-1": "2 resources: 1 free",
    "gantt": "rests",
    "fairshare?who=alice": "Usage",
}
#: Nothing of a page is to the right of the screen.
FITS = "document.documentElement.scrollWidth <= document.documentElement.clientWidth"


@pytest.fixture(params=LOOKS)
def look(request: pytest.FixtureRequest) -> str:
    """How somebody looks."""
    return str(request.param)


@pytest.fixture
def looker(look: str, chromium: Browser, api: Api) -> Iterator[Visitor]:
    """Somebody with a screen of his own."""
    yield from visiting(chromium, api, **LOOKS[look])


def faults(page: Page) -> list[str]:
    """Return what is in the way of people who cannot see, or not well."""
    found = Axe().run(page).response["violations"]
    return [f"{fault['id']}: {node['target']} {node['failureSummary']}" for fault in found for node in fault["nodes"]]


def test_every_page_is_for_everybody(looker: Visitor, jobs: dict[str, int]) -> None:
    """Also for people who do not see well, and on a small screen."""
    for path, text in filter(lambda item: is_scripted(item[0]), PAGES.items()):
        page = looker.open_whole(path.format(**jobs), text)
        assert faults(page) == [], path
        assert page.evaluate(FITS), path
        page.close()


def test_every_page_can_be_read_without_scripts(chromium: Browser, api: Api, jobs: dict[str, int]) -> None:
    visits = visiting(chromium, api, java_script_enabled=False)
    visitor = next(visits)
    for path, text in PAGES.items():
        page = visitor.open(path.format(**jobs), scripted=False)
        assert PLAIN.get(path, text).lower() in page.locator("body").inner_text().lower(), path
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
    page = visitor.open("jobs?user=bob")
    page.get_by_role("link", name="Français").click()
    page.get_by_role("button", name="effacer les filtres").wait_for()
    assert page.url.endswith("/ui/jobs?user=bob")  # what is shown stays
    next(visits, None)


def test_states_are_told_in_the_language_of_the_page_and_by_their_names_for_programs(
    chromium: Browser, api: Api, jobs: dict[str, int]
) -> None:
    visits = visiting(chromium, api, locale="fr-FR")
    visitor = next(visits)
    for path, place in (("jobs?state=all", ".state"), ("jobs/{ended}", "h1 .state"), ("gantt?color=state", ".legend")):
        page = visitor.open(path.format(**jobs))
        expect(page.locator(place).filter(has_text="terminé").first).to_be_visible()
        page.close()
    page = visitor.open("jobs")
    shown = page.locator("tbody .state").first
    assert shown.inner_text() == "W en attente"
    assert shown.get_attribute("title") == "Waiting, le nom pour oarstat et les programmes"
    page.locator("select[name=filter-state]").select_option("en cours")
    page.wait_for_url("**/ui/jobs?state=Running")
    page = visitor.open("nodes/node-2")
    suspected = page.get_by_role("table", name="Ressources").get_by_text("suspect").first
    assert suspected.get_attribute("title") == "Suspected, le nom pour oarnodes et les programmes"
    expect(page.locator("#main")).to_contain_text("actif")
    expect(page.locator(".lead")).to_contain_text("2 suspects depuis")
    next(visits, None)


def test_a_page_is_printed_without_its_controls(visitor: Visitor, jobs: dict[str, int]) -> None:
    page = visitor.open("jobs")
    page.emulate_media(media="print")
    assert not page.locator("nav").is_visible()
    assert page.get_by_text("train").is_visible()


def test_pages_work_below_a_prefix(api: Api) -> None:
    """No address of a page begins at the root of its host: a proxy may put it anywhere."""
    with api.client() as client:
        text = client.get("/ui/jobs/1/", follow_redirects=True).text + client.get("/ui/jobs").text
    assert 'href="../ui/nodes"' in text
    assert 'href="/' not in text
    assert 'src="/' not in text
