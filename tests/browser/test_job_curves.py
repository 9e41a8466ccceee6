"""The page of a job draws what it used over time."""

from playwright.sync_api import expect

from oar.lib.db.database import Database
from oar.lib.jobs.curves import Sample
from oar.lib.jobs.records import NodeUsage
from oar.lib.jobs.sql_curves import NewPoints
from oar.lib.jobs.states import JobState
from tests.browser.conftest import USER, Visitor
from tests.browser.test_pages import faults
from tests.builders import add_job, add_resources


def test_the_page_of_a_job_draws_what_it_used(owner: Visitor, database: Database) -> None:
    job = add_job(database, JobState.RUNNING, on=add_resources(database, nodes=1, cores=2), user=USER)
    with database.begin() as tx:
        points = [(place, Sample(100 * place, 512 * place, 50 * place, 1024, 2)) for place in range(15)]
        tx.job_runs.add_usage([(job, NodeUsage("node-1", 2))])
        tx.job_curves.append([NewPoints(job, "node-1", tx.now - 450, 30, points)])
    page = owner.open(f"jobs/{job}")
    card = page.locator("section.card").filter(has_text="What it used over time")
    expect(card).to_contain_text("busy of 2 cores last 1.40, at most 1.40")
    expect(card).to_contain_text("last 7.0 GiB")
    expect(card).to_contain_text("last 70 %")
    expect(card.locator("svg")).to_have_count(4)
    expect(card.locator("svg").first.locator("rect")).to_have_count(15)
    assert faults(page) == []
