"""Several jobs of the list are chosen, by mouse or by keyboard alone, and all of them are acted on at once."""

from playwright.sync_api import Page, Route, expect

from oar.lib.db.database import Database
from oar.lib.jobs import lifecycle
from oar.lib.jobs.states import JobState
from tests.browser.conftest import USER, Visitor
from tests.browser.test_every_page import left_in_english
from tests.browser.test_pages import FITS, faults
from tests.builders import add_array, add_job, add_resources, state_of


def question(page: Page) -> str:
    return page.locator(".question").inner_text()


def test_several_jobs_are_held_and_deleted_by_keyboard(owner: Visitor, database: Database) -> None:
    running = add_job(database, JobState.RUNNING, on=add_resources(database)[:1], user=USER)
    waiting = [add_job(database, user=USER) for _ in range(3)]
    page = owner.open("jobs")
    page.get_by_role("checkbox", name="choose all jobs in view").focus()
    page.keyboard.press("Space")
    expect(page.locator(".selection")).to_contain_text("4 jobs chosen")
    page.get_by_role("button", name="hold").focus()
    page.keyboard.press("Enter")
    assert "3 jobs do not start before they are resumed." in question(page)
    assert "1 chosen job is in a state" in question(page)
    assert faults(page) == []
    expect(page.locator(".question button").first).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator(".selection")).to_contain_text("done for 3 jobs")
    assert [state_of(database, job) for job in waiting] == [JobState.HOLD] * 3
    page.get_by_role("checkbox", name=f"choose job {waiting[0]}").check()
    page.get_by_role("button", name="delete").click()
    assert "2 jobs are deleted" in question(page)
    assert "1 of them has run for" in question(page)
    page.keyboard.press("Escape")
    expect(page.locator(".question")).to_have_count(0)
    page.get_by_role("button", name="delete").click()
    page.locator(".question").get_by_role("button", name="delete").click()
    expect(page.locator(".selection")).to_contain_text("done for 2 jobs")
    with database.snapshot() as tx:
        assert tx.job_requests.jobs_to_kill([running, *waiting]) == {running, waiting[0]}


def test_of_each_job_it_is_told_what_came_of_it(owner: Visitor, database: Database) -> None:
    """Also of one whose state changes between the answer to the question and the act."""
    jobs = [add_job(database, user=USER) for _ in range(2)]

    def hold_one_first(route: Route) -> None:
        with database.begin() as tx:
            lifecycle.move(tx, jobs[0], JobState.HOLD)
        route.continue_()

    page = owner.open("jobs")
    page.route("**/v1/job-acts", hold_one_first)
    page.get_by_role("checkbox", name="choose all jobs in view").check()
    page.get_by_role("button", name="hold").click()
    page.locator(".question").get_by_role("button", name="hold").click()
    told = page.locator(".selection .notice.bad")
    expect(told).to_contain_text("done for 1 job. 1 job was refused.")
    expect(told.locator("li").first).to_contain_text(f"Cannot hold {jobs[0]}")
    page.get_by_text("job by job").click()
    expect(told.locator("li").last).to_contain_text(f"{jobs[1]} hold registered")


def test_all_jobs_of_a_row_are_chosen_together(owner: Visitor, database: Database) -> None:
    ids = add_array(database, 12, user=USER)
    held = ids[3:5]
    with database.begin() as tx:
        for job in held:
            lifecycle.move(tx, job, JobState.HOLD)
    page = owner.open("jobs")
    page.get_by_role("checkbox", name=f"choose 10 jobs, the first of them {ids[0]}").check()
    expect(page.locator(".selection")).to_contain_text("10 jobs chosen")
    page.get_by_role("button", name="hold").click()
    assert "10 jobs do not start before they are resumed." in question(page)
    page.locator(".question").get_by_role("button", name="hold").click()
    expect(page.locator(".selection")).to_contain_text("done for 10 jobs")
    expect(page.locator("tbody tr")).to_have_count(1)
    with database.snapshot() as tx:
        assert {job.state for job in tx.jobs.select(ids)} == {JobState.HOLD}
    page.get_by_role("checkbox", name="choose all jobs in view").check()
    expect(page.locator(".selection")).to_contain_text("12 jobs chosen")
    page.get_by_role("checkbox", name=f"choose 12 jobs, the first of them {ids[0]}").uncheck()
    expect(page.locator(".selection")).to_have_count(0)


def test_the_jobs_of_others_are_not_chosen(owner: Visitor, database: Database) -> None:
    others, mine = add_job(database, user="alice"), add_job(database, user=USER)
    page = owner.open("jobs")
    expect(page.get_by_role("checkbox", name=f"choose job {mine}")).to_have_count(1)
    expect(page.get_by_role("checkbox", name=f"choose job {others}")).to_have_count(0)
    page.goto(f"{owner.base}/ui/jobs?user=alice")
    page.get_by_role("link", name=str(others)).wait_for()
    expect(page.get_by_role("checkbox", name="choose all jobs in view")).to_have_count(0)


def test_jobs_are_chosen_on_a_telephone_in_french(owner: Visitor, database: Database) -> None:
    add_job(database, user=USER)
    page = owner.open("jobs?lang=fr")
    expect(page.locator("thead th")).to_have_count(9)
    page.set_viewport_size({"width": 360, "height": 740})
    page.emulate_media(color_scheme="dark")
    page.reload()
    expect(page.locator("thead th")).to_have_count(5)  # those of a small screen
    page.get_by_role("checkbox", name="choisir tous les jobs affichés").check()
    page.get_by_role("button", name="supprimer").click()
    assert "1 job est supprimé" in question(page)
    assert left_in_english(page) == []
    assert faults(page) == []
    assert page.evaluate(FITS)


def test_a_job_whose_command_failed_shows_its_exit_code(owner: Visitor, database: Database) -> None:
    well, bad, killed = (add_job(database, JobState.TERMINATED, user=USER) for _ in range(3))
    with database.begin() as tx:
        tx.execute("UPDATE jobs SET exit_code = 768 WHERE job_id = %s", (bad,))
        tx.execute("UPDATE jobs SET exit_code = 9 WHERE job_id = %s", (killed,))
    page = owner.open("jobs?state=all")
    rows = {
        job: page.get_by_role("row").filter(has=page.get_by_role("link", name=str(job))) for job in (well, bad, killed)
    }
    expect(rows[bad].locator(".state.failed")).to_have_text("exit code 3")
    expect(rows[killed].locator(".state.failed")).to_have_text("signal 9")
    expect(rows[well].locator(".state.failed")).to_have_count(0)
    failed, usual = (rows[bad].locator(each) for each in (".state.failed", ".state.Terminated"))
    colour = "each => getComputedStyle(each).color"
    assert failed.evaluate(colour) != usual.evaluate(colour)
    page.goto(f"{owner.base}/ui/jobs/{bad}")
    expect(page.locator("h1 .state.failed")).to_have_text("exit code 3")
    assert "768" not in page.locator("main").inner_text()
    for path in ("jobs?state=all", f"jobs/{bad}"):
        expect(owner.open(path, scripted=False).locator(".state.failed").filter(has_text="3")).to_have_text(
            "exit code 3"
        )
