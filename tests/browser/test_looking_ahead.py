"""When a job would start, its submission, and what it writes; consumption and advance reservations."""

import os
import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from playwright.sync_api import expect

from oar.kao.rounds.meta_sched import MetaScheduler
from oar.lib.db.database import Database
from oar.lib.jobs.records import Group, Level
from oar.lib.jobs.sql_waits import StoredReason
from oar.lib.jobs.states import JobState
from oar.lib.runtime import Runtime
from oar.lib.submission.sql_new_jobs import NewAlternative
from tests.api.conftest import Api
from tests.api.test_output import NOBODY, home, needs_root
from tests.browser.conftest import USER, Visitor
from tests.browser.test_pages import faults
from tests.builders import add_array, add_job, add_resources, state_of
from tests.db.reservation_rows import add_reservation

__all__ = ["home"]  # a fixture

DAY = 86400
_ACCOUNTED = """
    INSERT INTO accounting (window_start, window_stop, accounting_user, accounting_project, queue_name,
        consumption_type, consumption) VALUES (%s, %s, %s, 'ml', 'default', %s, %s)"""


def test_alternatives_are_compared_before_one_is_submitted(owner: Visitor, database: Database) -> None:
    add_resources(database)
    page = owner.open("submit?nodes=2&walltime=4:00")
    when = page.locator("#when")
    expect(when).to_contain_text("It would start now, and so would each smaller or shorter one.")
    when.get_by_text("each of them").click()
    expect(when).to_contain_text("as asked: starts now")
    expect(when).to_contain_text("walltime 2:00: starts now")
    expect(when.locator(".lanes .would")).to_have_count(2)  # on both nodes, in a small diagram
    when.get_by_role("button", name="use this: walltime 2:00").click()
    expect(page.get_by_role("textbox", name="walltime")).to_have_value("2:00")
    expect(page.locator("pre").first).to_contain_text("/network_address=2,walltime=2:00")
    page.get_by_role("textbox", name="command").fill("sleep 1")
    page.get_by_role("button", name="submit", exact=True).click()
    page.wait_for_url("**/ui/jobs/*")
    job = int(page.url.rpartition("/")[2])
    assert state_of(database, job) is JobState.WAITING
    with database.snapshot() as tx:
        assert tx.jobs.get(job).user == USER


def test_a_form_begins_with_a_former_job_and_tells_how_long_such_jobs_took(
    owner: Visitor, api: Api, database: Database, tmp_path: Path
) -> None:
    templates = tmp_path / "web.yaml"
    templates.write_text("templates:\n- label: <b>night</b>\n  walltime: 8:00\n  types: besteffort\n")
    api.runtime.config = api.runtime.config.replace(web_conf_file=str(templates))
    resources, now = add_resources(database), int(time.time())
    add_job(database, JobState.TERMINATED, on=resources[:1], user=USER, name="old", command="./old.sh")
    for length in (1800, 3000):
        job = add_job(
            database, JobState.TERMINATED, on=resources, user=USER, name="sim", command="./sim.sh", walltime=DAY
        )
        with database.begin() as tx:
            dates = (now - length - 60, now - 60, job)
            tx.execute("UPDATE jobs SET start_time = %s, stop_time = %s WHERE job_id = %s", dates)
    page = owner.open("submit")
    page.get_by_role("combobox", name="template of the site").select_option(label="<b>night</b>")
    expect(page.get_by_role("textbox", name="walltime")).to_have_value("8:00")
    expect(page.get_by_role("checkbox", name="besteffort")).to_be_checked()
    choice = page.get_by_role("combobox", name="as one of your jobs")
    expect(choice.locator("option")).to_have_count(3)
    choice.select_option(label=f"{job} · sim · ./sim.sh")
    fields = {"command": "./sim.sh", "name": "sim", "walltime": "24:00"}
    for name, value in fields.items():
        expect(page.get_by_role("textbox", name=name, exact=True)).to_have_value(value)
    expect(page.locator("pre").first).to_contain_text("-l /resource_id=4,walltime=24:00")
    expect(page.locator("#when")).to_contain_text("Your last 2 jobs “sim” took at most 00:50.")
    page.get_by_role("button", name="walltime 1:00", exact=True).click()
    expect(page.get_by_role("textbox", name="walltime")).to_have_value("1:00")
    assert faults(page) == []
    page = owner.open("usage")
    row = page.get_by_role("row").filter(has_text="sim")
    expect(row).to_contain_text("ask for 1:00")
    expect(page.get_by_role("img", name="0–10 %: 3")).to_have_count(1)


def test_a_large_array_does_not_hide_the_jobs_before_it(owner: Visitor, database: Database) -> None:
    resources = add_resources(database)
    add_former_job(database, resources[:1], "./old.sh")
    ids = add_array(database, 210, user=USER, command="./scan.sh")
    with database.begin() as tx:
        tx.execute(
            "UPDATE jobs SET state = 'Terminated', start_time = 1000, stop_time = 1600, assigned_moldable_job = 1"
            " WHERE job_id = ANY(%s)",
            (ids,),
        )
    options = owner.open("submit").get_by_role("combobox", name="as one of your jobs").locator("option")
    expect(options.filter(has_text="./scan.sh")).to_have_count(1)
    expect(options.filter(has_text="./old.sh")).to_have_count(1)


def add_former_job(database: Database, on: Sequence[int], command: str, **columns: Any) -> None:
    add_job(database, JobState.TERMINATED, on=on, user=USER, command=command, **columns)


def test_a_form_keeps_the_condition_of_a_former_job_however_it_was_given(owner: Visitor, database: Database) -> None:
    resources, condition = add_resources(database), "gpu = 1"
    requests = ["-pgpu=1", '-Ip "gpu = 1"', "--prop gpu=1", "--property=gpu=1", "-p gpu=1", "--project p"]
    for place, request in enumerate(requests):
        text = f"oarsub {request} ./{place}.sh"
        add_former_job(database, resources[:1], f"./{place}.sh", properties=condition, initial_request=text)
    page = owner.open("submit")
    choice = page.get_by_role("combobox", name="as one of your jobs")
    for place, request in enumerate(requests):
        label = choice.locator("option").filter(has_text=f"./{place}.sh").inner_text()
        choice.select_option(label=label)
        expect(page.locator("[name=command]")).to_have_value(f"./{place}.sh")
        kept = "" if request == "--project p" else condition
        expect(page.locator("[name=properties]")).to_have_value(kept)


def test_a_form_counts_what_a_former_job_counted(owner: Visitor, database: Database) -> None:
    with database.begin() as tx:
        tx.execute("ALTER TABLE resources ADD COLUMN core integer")
    resources = add_resources(database)
    for unit in ("core", "resource_id"):
        asked = NewAlternative(3600, (Group("", (Level("network_address", 1), Level(unit, 2))),))
        add_former_job(database, resources[:2], f"./{unit}.sh", alternatives=[asked])
    page = owner.open("submit?each=3")
    line = page.locator("pre").first
    expect(line).to_contain_text("-l /core=3")  # what is usual where resources have it
    choice = page.get_by_role("combobox", name="as one of your jobs")
    for unit in ("resource_id", "core"):
        choice.select_option(label=choice.locator("option").filter(has_text=f"./{unit}.sh").inner_text())
        expect(line).to_contain_text(f"-l /network_address=1/{unit}=2,walltime=1:00")


def test_a_waiting_job_tells_what_would_let_it_start(owner: Visitor, api: Api, database: Database) -> None:
    add_job(database, JobState.RUNNING, on=add_resources(database))
    job = add_job(database, user=USER, command="./run.sh", walltime=7200)
    MetaScheduler(Runtime(api.runtime.config, Database(database.settings))).round()
    page = owner.open(f"jobs/{job}")
    page.get_by_role("button", name="What would let it start now?").click()
    expect(page.get_by_text("No change of one number in its request is enough.")).to_be_visible()
    page.get_by_role("link", name="When would a shorter or a smaller one start?").click()
    expect(page.locator("#when")).to_contain_text("walltime 1:00: starts")
    expect(page.locator("pre").first).to_contain_text(
        "-l /resource_id=1,walltime=2:00 -q default --project default ./run.sh"
    )


def test_a_request_that_cannot_be_is_told_in_a_sentence(owner: Visitor, database: Database) -> None:
    add_resources(database)
    page = owner.open("submit?nodes=99")
    expect(page.locator("#when li").first).not_to_contain_text("starts now")
    expect(page.locator("#when li").first).to_contain_text("as asked:")


def test_who_is_nobody_is_led_to_the_login(visitor: Visitor) -> None:
    page = visitor.open("submit")
    expect(page.get_by_role("main")).to_contain_text("Log in to ask")
    expect(page.get_by_role("button", name="submit", exact=True)).to_be_disabled()


@needs_root
def test_the_output_of_a_job_is_shown_as_it_is_written(owner: Visitor, database: Database, home: Path) -> None:
    file = home / "out"
    file.write_bytes(b"\x1b[32mone\x1b[0m\n<b>two</b>\n")
    os.chown(file, NOBODY.pw_uid, NOBODY.pw_gid)
    job = add_job(
        database,
        JobState.RUNNING,
        on=add_resources(database)[:1],
        user=USER,
        launching_directory=str(home),
        stdout_file="out",
    )
    page = owner.open(f"jobs/{job}")
    expect(page.locator("#output")).to_have_text("one\n<b>two</b>\n")
    with file.open("ab") as more:
        more.write("trois é\n".encode())
    expect(page.locator("#output")).to_contain_text("trois é")
    page.get_by_role("button", name="stderr", exact=True).click()
    expect(page.locator("main")).to_contain_text("cannot be read")


def _sizes(resources: list[int]) -> list[tuple[int, list[int]]]:
    """One resource, and three others."""
    return [(1, resources[:1]), (3, resources[1:])]


def test_consumption_is_drawn_and_told(visitor: Visitor, database: Database) -> None:
    waited = {size: add_job(database, JobState.RUNNING, on=on) for size, on in _sizes(add_resources(database))}
    day = int(time.time()) // DAY * DAY - DAY
    with database.begin() as tx:
        for user, used in (("alice", 7200), ("<i>bob</i>", 3600)):
            tx.execute(_ACCOUNTED, (day, day + DAY - 1, user, "USED", used))
            tx.execute(_ACCOUNTED, (day, day + DAY - 1, user, "ASKED", 2 * used))
        for size, job in waited.items():
            dates = (tx.now - 60 - size * 3600, tx.now - 60, job)
            tx.execute("UPDATE jobs SET submission_time = %s, start_time = %s WHERE job_id = %s", dates)
    page = visitor.open("usage?days=7")
    expect(page.locator("svg.chart:not(.waits) rect")).to_have_count(2)
    row = page.get_by_role("row").filter(has_text="alice")
    expect(row).to_contain_text("2")
    expect(row).to_contain_text("50 %")
    expect(page.get_by_role("row").filter(has_text="<i>bob</i>")).to_have_count(1)
    waits = page.locator("#waits")
    expect(waits.get_by_role("row").filter(has_text="2–4")).to_have_count(2)  # of all queues, and of its own
    expect(waits.get_by_role("row").filter(has_text="2–4").first).to_contain_text("03:00")
    waits.get_by_role("combobox", name="resources").select_option(label="1")
    expect(waits.locator("#trend svg g title")).to_contain_text("at most 01:00")
    waits.get_by_text("as a table").click()
    expect(waits.locator("#trend tbody tr")).to_have_count(1)
    expect(waits.locator("#soonest .sentence")).to_contain_text("started within 01:00")
    expect(waits.locator("#soonest td.heat-4")).to_have_text("01:00")
    assert faults(page) == []


def test_a_reservation_is_found_in_its_week_and_opened(visitor: Visitor, database: Database) -> None:
    resources, now = add_resources(database), int(time.time())
    number = add_reservation(
        database,
        state="r",
        ar_name="course",
        start_time=now - 60,
        end_time=now + 7200,
        resources=resources[:2],
    )
    page = visitor.open("reservations")
    expect(page.locator("td.week rect")).to_have_count(1)
    expect(page.locator(".weeks rect")).to_have_count(1)
    page.get_by_role("link", name="course").click()
    page.wait_for_url(f"**/ui/reservations/{number}")
    expect(page.locator("main")).to_contain_text("course")
    expect(page.locator("main")).to_contain_text("node-1")
    assert faults(page) == []


def test_lists_name_the_jobs_that_others_wait_for(owner: Visitor, api: Api, database: Database) -> None:
    holder = add_job(database, JobState.RUNNING, on=add_resources(database), walltime=3600)
    job = add_job(database, user=USER, name="train")
    MetaScheduler(Runtime(api.runtime.config, Database(database.settings))).round()
    for path in ("jobs?state=Waiting", ""):
        page = owner.open(path)
        row = page.locator("tr", has=page.get_by_role("link", name=f"{job} train"))
        expect(row.get_by_role("link", name=str(holder), exact=True)).to_be_visible()
    with database.begin() as tx:
        behind = StoredReason("RESERVATION", "", '{"advance_reservations": [7], "jobs": [], "count": 0}')
        tx.job_waits.explain({add_job(database, user=USER, name="late"): behind})
    page = owner.open("jobs?q=late")
    expect(page.locator("tbody tr").get_by_role("link", name="7", exact=True)).to_have_attribute(
        "href", re.compile("reservations/7$")
    )
    page = owner.open("jobs?state=Waiting&lang=fr")
    expect(page.get_by_role("row").filter(has_text=f"{job} train")).to_contain_text("ressources occupées : ")
