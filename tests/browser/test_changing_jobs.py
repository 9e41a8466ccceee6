"""The owner of a job changes it on its page: another walltime while it runs, other wishes while it waits."""

import time
from typing import Any

from playwright.sync_api import expect

from oar.lib.config.files import Config
from oar.lib.db.database import Database
from oar.lib.jobs.states import JobState
from tests.api.conftest import Api
from tests.browser.conftest import USER, Visitor
from tests.browser.test_every_page import left_in_english
from tests.browser.test_pages import FITS, faults
from tests.builders import add_job, add_resources
from tests.db.reservation_rows import add_reservation

HOUR = 3600


def allow_changes(api: Api, **more: Any) -> None:
    keys: dict[str, Any] = {"walltime_change_enabled": True, "walltime_max_increase": {"_": HOUR}, **more}
    api.runtime.config = Config(instance_name="testbed", **keys)


def test_another_walltime_is_asked_for_by_keyboard(owner: Visitor, api: Api, database: Database) -> None:
    allow_changes(api)
    job = add_job(database, JobState.RUNNING, on=add_resources(database)[:1], user=USER)
    page = owner.open(f"jobs/{job}")
    page.get_by_text("Another walltime").focus()
    page.keyboard.press("Enter")
    page.get_by_text("It may still grow by 01:00.").wait_for()
    page.get_by_label("h:mm").focus()
    page.keyboard.type("0:30")
    expect(page.locator("pre").filter(has_text="oarwalltime")).to_have_text(f"oarwalltime {job} +0:30")
    assert faults(page) == []
    page.keyboard.press("Enter")
    expect(page.get_by_text("walltime change request accepted")).to_be_visible()
    expect(page.get_by_text("Asked and not granted yet: +00:30.")).to_be_visible()
    with database.begin() as tx:
        assert tx.job_requests.find_walltime_change(job).pending == HOUR // 2
        tx.execute("UPDATE walltime_change SET pending = 0, granted = 1800 WHERE job_id = %s", (job,))
        tx.events.add("WALLTIME_CHANGED", job, "by 0:30:0")
    expect(page.get_by_text("Granted so far: +00:30.")).to_be_visible()


def test_what_the_site_does_not_allow_is_not_offered_and_is_refused_in_words(
    owner: Visitor, api: Api, database: Database
) -> None:
    allow_changes(api, walltime_allowed_users_to_force={"_": (USER,)}, walltime_reduction_disallowed={"_": True})
    job = add_job(database, JobState.RUNNING, on=add_resources(database)[:1], user=USER)
    page = owner.open(f"jobs/{job}")
    page.get_by_text("Another walltime").click()
    expect(page.get_by_label("at once, not only a while before the end")).to_be_visible()
    expect(page.get_by_label("even if jobs that wait start later")).to_have_count(0)
    assert page.locator("select[name=sign] option").all_inner_texts() == ["more", "in all"]
    page.get_by_label("h:mm").fill("2:00")
    page.get_by_role("button", name="ask for it").click()
    expect(page.get_by_role("alert")).to_contain_text("cannot increase by more than 1:0:0")
    owner.errors = [each for each in owner.errors if "403" not in each]  # browsers write down such answers


def test_where_walltimes_stay_the_page_says_so(owner: Visitor, api: Api, database: Database) -> None:
    api.runtime.config = Config(instance_name="testbed", walltime_change_enabled=False)
    job = add_job(database, JobState.RUNNING, on=add_resources(database)[:1], user=USER)
    page = owner.open(f"jobs/{job}?lang=fr")
    page.set_viewport_size({"width": 360, "height": 740})
    page.emulate_media(color_scheme="dark")
    page.get_by_text("Un autre walltime").click()
    page.get_by_text("Les walltimes ne peuvent pas changer sur ce site.").wait_for()
    assert left_in_english(page) == []
    assert faults(page) == []
    assert page.evaluate(FITS)


def test_a_job_that_waits_is_altered(owner: Visitor, database: Database) -> None:
    add_resources(database)
    first, job = add_job(database, user=USER), add_job(database, user=USER, name="sim")
    page = owner.open(f"jobs/{job}")
    page.get_by_text("Alter it", exact=True).click()
    form = page.locator("details form")
    form.locator("[name=name]").fill("train")
    form.locator("[name=dependencies]").fill(str(first))
    expect(page.locator("pre").filter(has_text="oaralter")).to_have_text(f"oaralter -n train -a {first} {job}")
    assert faults(page) == []
    page.keyboard.press("Enter")
    expect(page.locator("h1")).to_contain_text("train")
    expect(page.get_by_text("Done. altered")).to_be_visible()
    expect(page.locator("dl.facts").get_by_role("link", name=str(first))).to_be_visible()


def test_a_job_goes_into_an_advance_reservation_and_out_of_it(owner: Visitor, database: Database) -> None:
    start = int(time.time()) + HOUR
    add_reservation(
        database,
        owner=USER,
        ar_name="course",
        start_time=start,
        end_time=start + 2 * HOUR,
        resources=add_resources(database),
        flex="YES",
    )
    job = add_job(database, user=USER)
    page = owner.open(f"jobs/{job}")
    page.get_by_text("Alter it", exact=True).click()
    field = page.get_by_label("into the advance reservation")
    command = page.locator("pre").filter(has_text="oaralter")
    field.fill("course")
    expect(command).to_have_text(f"oaralter --ar course {job}")
    assert faults(page) == []
    page.keyboard.press("Enter")
    expect(page.get_by_text("Done. altered")).to_be_visible()
    assert place_of(database, job)
    field.fill("none")
    expect(command).to_have_text(f"oaralter --ar none {job}")
    with page.expect_response(f"**/v1/jobs/{job}"):
        page.keyboard.press("Enter")
    assert not place_of(database, job)


def place_of(database: Database, job: int) -> dict[int, int]:
    with database.snapshot() as tx:
        return dict(tx.reservations.of_jobs([job]))


def test_what_cannot_be_admitted_leaves_the_job_as_it_is(owner: Visitor, database: Database) -> None:
    add_resources(database)
    job = add_job(database, user=USER)
    page = owner.open(f"jobs/{job}?lang=fr")
    page.set_viewport_size({"width": 360, "height": 740})
    page.get_by_text("Le modifier", exact=True).click()
    form = page.locator("details form")
    form.locator("[name=queue]").fill("nowhere")
    form.get_by_role("button", name="le modifier").click()
    expect(page.get_by_role("alert")).to_contain_text("nowhere")
    assert left_in_english(page) == []
    assert page.evaluate(FITS)
    owner.errors = [each for each in owner.errors if "400" not in each]  # browsers write down such answers
    expect(page.locator(".lead")).to_contain_text("default")


def test_others_and_other_states_have_no_forms(owner: Visitor, database: Database) -> None:
    theirs, ended = add_job(database, user="alice"), add_job(database, JobState.TERMINATED, user=USER)
    assert owner.open(f"jobs/{theirs}").get_by_text("Alter it", exact=True).count() == 0
    assert owner.open(f"jobs/{ended}").get_by_text("Another walltime").count() == 0
