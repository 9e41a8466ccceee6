"""What pages begin with, and what they show of queues, consumption and output."""

from pathlib import Path

import pytest
from playwright.sync_api import expect

from oar.lib.access.records import User
from oar.lib.config.files import Config
from oar.lib.db.database import Database
from oar.lib.history import announcements
from oar.lib.jobs.states import JobState
from tests.api.conftest import Api
from tests.browser.conftest import USER, Visitor
from tests.browser.test_pages import faults
from tests.builders import add_job, add_resources


def test_the_first_page_counts_nodes_cores_and_gpus(visitor: Visitor, database: Database) -> None:
    with database.begin() as tx:
        tx.execute("ALTER TABLE resources ADD COLUMN core integer, ADD COLUMN gpu integer")
    resources = [add_resources(database, nodes=1, cores=2, network_address=f"n{n}", gpu=n + 1)[0] for n in range(3)]
    with database.begin() as tx:
        tx.execute("UPDATE resources SET core = resource_id")
    add_job(database, JobState.RUNNING, on=resources[:1])
    figures = visitor.open("").locator(".figure")
    expect(figures).to_have_text(["2 of 3 nodes free", "5 of 6 cores free", "2 of 3 GPUs free", "17 % busy"])


def test_the_page_of_a_node_begins_with_what_is_on_it(visitor: Visitor, database: Database) -> None:
    job = add_job(database, JobState.RUNNING, on=add_resources(database)[:1])
    page = visitor.open("nodes/node-1")
    first = page.locator("main section").first
    expect(first.get_by_role("heading")).to_have_text("Jobs on it")
    expect(first).to_contain_text(str(job))


def test_consumption_has_two_halves(owner: Visitor, database: Database) -> None:
    add_resources(database)
    page = owner.open("usage")
    expect(page.get_by_role("heading", name="Fair share")).to_be_visible()
    expect(page.get_by_role("heading", name="Resources over time")).to_have_count(0)
    page.get_by_role("button", name="the site's").click()
    expect(page.get_by_role("heading", name="Resources over time")).to_be_visible()
    expect(page.get_by_role("heading", name="Fair share")).to_have_count(0)
    assert page.url.endswith("usage?of=site")
    assert faults(page) == []


def test_queues_show_their_walltime_who_may_use_them_and_limits(
    owner: Visitor, api: Api, database: Database, tmp_path: Path
) -> None:
    (tmp_path / "web.yaml").write_text("queues:\n  admin: <b>root</b> only\n")
    api.runtime.config = api.runtime.config.replace(web_conf_file=str(tmp_path / "web.yaml"), default_job_walltime=5400)
    with database.begin() as tx:
        sql = "INSERT INTO policy_log (kind, name, value) VALUES ('file', %s, %s)"
        rule = '{"waiting": {"default,*,*,/": [4, -1]}}'
        tx.execute(sql, (Config().quotas_conf_file, rule))
    add_job(database, user=USER)
    page = owner.open("queues")
    rows = page.get_by_role("row")
    expect(rows.filter(has_text="<b>root</b> only")).to_contain_text("01:30")
    expect(rows.filter(has=page.get_by_role("link", name="default"))).to_contain_text("1 of 4 jobs")
    assert faults(page) == []


def test_a_repeat_rule_is_chosen(owner: Visitor, database: Database) -> None:
    add_resources(database)
    page = owner.open("reservations/new")
    line = page.locator("pre").first
    page.get_by_label("repeats").select_option("every week")
    expect(line).to_contain_text("-rrule 'FREQ=WEEKLY;COUNT=10'")
    page.get_by_label("times").fill("4")
    expect(line).to_contain_text("-rrule 'FREQ=WEEKLY;COUNT=4'")
    page.get_by_label("repeats").select_option("by a rule")
    page.get_by_label("rule (RFC 5545)").fill("FREQ=DAILY;COUNT=3;INTERVAL=2")
    expect(line).to_contain_text("INTERVAL=2")
    page.get_by_label("repeats").select_option("never")
    expect(line).not_to_contain_text("rrule")


@pytest.mark.parametrize(("exit_code", "stream"), [(256, "stderr"), (0, "stdout")])
def test_of_a_job_that_failed_the_errors_are_opened(
    owner: Visitor, database: Database, exit_code: int, stream: str
) -> None:
    job = add_job(database, JobState.TERMINATED, on=add_resources(database)[:1], user=USER, stderr_file="E.stderr")
    with database.begin() as tx:
        tx.execute("UPDATE jobs SET exit_code = %s WHERE job_id = %s", (exit_code, job))
        if exit_code:
            tx.execute("UPDATE job_ends SET code = 'EXIT_STATUS' WHERE job_id = %s", (job,))
    page = owner.open(f"jobs/{job}")
    expect(page.locator(".output-card [aria-pressed=true]")).to_have_text(stream)


def test_announcements_are_shown_on_every_page_as_texts(visitor: Visitor, database: Database) -> None:
    text = "<script>alert(1)</script> Power cut on Friday"
    with database.begin() as tx:
        announcements.announce(tx, User("root", 0, administers=True), text)
    for path in ("", "jobs", "help"):
        page = visitor.open(path)
        expect(page.get_by_role("complementary", name="Announcements")).to_have_text(text)
    assert faults(page) == []
