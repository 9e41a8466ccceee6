"""The page of the reader: jobs, limits, hours, efficiency and advice, in both languages, on all screens."""

import json
import time

import pytest
from playwright.sync_api import expect

from oar.lib.config.files import Config
from oar.lib.db.database import Database
from oar.lib.jobs.records import NodeUsage
from oar.lib.jobs.states import JobPriority, JobState
from tests.api.conftest import Api
from tests.browser.conftest import USER, Visitor
from tests.browser.test_every_page import left_in_english
from tests.browser.test_pages import FITS, faults
from tests.builders import add_job, add_resources


def fill(database: Database, api: Api) -> dict[str, int]:
    """Add jobs of the reader and of another user, quotas and consumption."""
    api.runtime.config = Config(quotas=True, job_priority=JobPriority.FAIRSHARE, instance_name="testbed")
    resources, now = add_resources(database), int(time.time())
    running = add_job(database, JobState.RUNNING, on=resources[:2], user=USER, name="<b>sim</b>", walltime=3600)
    waiting = add_job(database, user=USER, name="train")
    add_job(database, user="bob")
    ended = add_job(database, JobState.TERMINATED, on=resources[2:], user=USER, name="<i>post</i>", walltime=7200)
    rules = {"quotas": {"default,*,*,/": [2, -1, -1]}, "waiting": {"*,*,*,/": [10]}}
    with database.begin() as tx:
        sql = "INSERT INTO policy_log (kind, name, value) VALUES ('file', %s, %s)"
        tx.execute(sql, (api.runtime.config.quotas_conf_file, json.dumps(rules)))
        tx.execute("UPDATE jobs SET start_time = stop_time - 900 WHERE job_id = %s", (ended,))
        tx.job_runs.add_usage([(ended, NodeUsage("node-2", 4, 360.0, 1 << 30))])
        accounted = """INSERT INTO accounting (window_start, window_stop, accounting_user, accounting_project,
            queue_name, consumption_type, consumption) VALUES (%s, %s, %s, 'ml', 'default', 'USED', 9000)"""
        tx.execute(accounted, (now - 60, now, USER))
    return {"running": running, "waiting": waiting}


def test_the_page_shows_what_is_the_readers(owner: Visitor, api: Api, database: Database) -> None:
    jobs = fill(database, api)
    page = owner.open("")
    page.get_by_role("link", name=USER).click()
    page.wait_for_url("**/ui/me")
    expect(page.locator("#running").get_by_role("row").filter(has_text="<b>sim</b>")).to_contain_text("01:00")
    expect(page.locator("#waiting").get_by_role("row").filter(has_text="train")).to_have_count(1)
    limits = page.locator("#limits")
    expect(limits).to_contain_text("2 of 2 resources of the quota for each user in queue default 100 % used up")
    expect(limits.get_by_role("link", name=str(jobs["running"]))).to_be_visible()
    expect(limits).to_contain_text("of 1 other user (")
    expect(page.locator("#month")).to_contain_text("ml: 2.5")
    expect(page.locator("#groups").get_by_role("row").filter(has_text="<i>post</i>")).to_contain_text("10 %")
    expect(page.locator("#changes")).to_contain_text("they used 10 % of 4 cores")
    expect(page.locator("main")).not_to_contain_text("bob")
    assert faults(page) == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_the_page_fits_all_screens_in_french(
    owner: Visitor, api: Api, database: Database, scheme: str, width: int
) -> None:
    fill(database, api)
    page = owner.open("me?lang=fr")
    page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]  # one of two literals
    page.set_viewport_size({"width": width, "height": 900})
    page.get_by_text("Que changer").first.wait_for()
    assert left_in_english(page) == []
    assert faults(page) == []
    assert page.evaluate(FITS)


def test_nobody_has_no_page_of_his_own(visitor: Visitor) -> None:
    page = visitor.context.new_page()
    answer = page.goto(f"{visitor.base}/ui/me")
    assert answer is not None
    assert answer.status == 401
    visitor.errors.clear()  # the browser reports the status
