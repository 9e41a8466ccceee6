"""What people chose and read by properties in Monika: which nodes have what, and how much of it is free."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from oar.lib.db.database import Database
from oar.lib.jobs.states import JobState
from tests.api.conftest import Api
from tests.browser.conftest import LOOKS, Visitor, visiting
from tests.browser.test_every_page import left_in_english
from tests.browser.test_pages import FITS, faults
from tests.builders import add_job, add_resources

HOUR = 3600


@pytest.fixture
def telephone(chromium: Browser, api: Api) -> Iterator[Visitor]:
    """Somebody with a dark telephone who reads French."""
    yield from visiting(chromium, api, **{**LOOKS["on a telephone"], "locale": "fr-FR", "color_scheme": "dark"})


def is_for_everybody(page: Page) -> None:
    assert [text for _, text in left_in_english(page) if text != "drain"] == []  # that is the name of a property
    assert faults(page) == []
    assert page.evaluate(FITS)


def some_deploy(database: Database) -> list[int]:
    """Make three nodes of which the last is for deployments."""
    resources = add_resources(database, nodes=3)
    with database.begin() as tx:
        tx.resources.set_property(resources[4:], "deploy", "YES")
    return resources


def test_nodes_are_chosen_by_values_of_properties_and_the_address_is_the_view(
    visitor: Visitor, database: Database
) -> None:
    some_deploy(database)
    page = visitor.open("nodes")
    page.get_by_text("choose by properties").focus()
    page.keyboard.press("Enter")
    page.get_by_role("group", name="deploy").get_by_label("YES").first.check()
    expect(page.get_by_role("heading", level=1)).to_contain_text("2 resources on 1 node")
    assert "props=deploy%3DYES" in page.url
    assert faults(page) == []
    page.reload()
    expect(page.get_by_role("heading", level=1)).to_contain_text("2 resources on 1 node")
    page.get_by_text("choose by properties").click()
    page.get_by_role("group", name="deploy").get_by_label("NO").first.check()
    expect(page.get_by_role("heading", level=1)).to_contain_text("6 resources on 3 nodes")
    page.get_by_role("button", name="no longer deploy=NO").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("2 resources on 1 node")
    page.get_by_role("button", name="clear filters").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("6 resources on 3 nodes")
    assert "props" not in page.url


def test_properties_are_chosen_on_a_telephone_in_french(telephone: Visitor, database: Database) -> None:
    some_deploy(database)
    page = telephone.open("monika.cgi?props=deploy=YES&props=deploy=NO")
    page.get_by_text("choisir par propriétés").click()
    page.get_by_role("group", name="deploy").get_by_label("YES").first.wait_for()
    is_for_everybody(page)


def test_a_link_of_monika_with_an_unknown_property_says_so(visitor: Visitor, database: Database) -> None:
    some_deploy(database)
    page = visitor.context.new_page()
    page.goto(f"{visitor.base}/ui/monika.cgi?props=colour=red")
    page.get_by_text("resources have no property 'colour'").wait_for()
    visitor.errors = [each for each in visitor.errors if "400" not in each]  # browsers write down such answers


def test_the_first_page_tells_what_of_a_property_is_free_and_when(
    visitor: Visitor, api: Api, database: Database, tmp_path: Path
) -> None:
    resources = some_deploy(database)
    add_job(database, JobState.RUNNING, on=resources[4:], walltime=2 * HOUR)
    (tmp_path / "web.yaml").write_text("group_by: deploy\n")
    api.runtime.config = api.runtime.config.replace(web_conf_file=str(tmp_path / "web.yaml"))
    page = visitor.open("")
    groups = page.get_by_role("table", name="Resources by deploy")
    expect(groups.get_by_role("row").nth(1)).to_contain_text("NO404")
    busy = groups.get_by_role("row").nth(2)
    expect(busy).to_contain_text("YES022")
    end = busy.locator("time").get_attribute("datetime")
    assert end is not None
    assert end[:16] == time.strftime("%Y-%m-%dT%H:%M", time.gmtime(started(database) + 2 * HOUR))
    assert faults(page) == []
    page.get_by_label("property").select_option("besteffort")
    page.get_by_role("table", name="Resources by besteffort").wait_for()
    assert "by=besteffort" in page.url
    page.get_by_role("table", name="Resources by besteffort").get_by_role("link", name="YES").click()
    page.wait_for_url("**/ui/nodes?props=besteffort%3DYES")


def started(database: Database) -> int:
    with database.snapshot() as tx:
        (job,) = tx.jobs.live()
        return job.start_time


def test_licences_of_which_none_is_free_are_told(telephone: Visitor, database: Database) -> None:
    add_resources(database)
    (licence,) = add_resources(database, nodes=1, cores=1, type="licence", network_address="")
    add_job(database, JobState.RUNNING, on=[licence], walltime=HOUR)
    page = telephone.open("?by=deploy")
    page.get_by_text("Aucune ressource de type licence n’est libre · libre à").wait_for()
    page.get_by_role("table", name="Sur aucun nœud").get_by_role("cell", name="licence").wait_for()
    is_for_everybody(page)
