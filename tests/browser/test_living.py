"""Pages follow what happens, and are used by keyboard alone."""

import re

from playwright.sync_api import Route, expect

from oar.lib.db.database import Database
from oar.lib.jobs import lifecycle
from oar.lib.jobs.records import Group, Level
from oar.lib.jobs.states import JobState
from oar.lib.submission.sql_new_jobs import NewAlternative
from tests.browser.conftest import Visitor
from tests.builders import add_array, add_job, add_resources, for_no_reason

#: Whether there is ink within each of the three boxes of the first node.
WRITTEN = """
() => {
  const canvas = document.querySelector(".grid canvas"), ratio = devicePixelRatio, wide = Math.round(44 * ratio);
  const { data } = canvas.getContext("2d").getImageData(13 * ratio, 29 * ratio, 3 * wide, 13 * ratio);
  const isInk = (at) => data[4 * at] + data[4 * at + 1] + data[4 * at + 2] < 150;
  const found = [false, false, false];
  for (let at = 0; at < data.length / 4; at++) {
    if (at % wide < 30 * ratio && isInk(at)) found[Math.floor((at / wide) % 3)] = true;
  }
  return found;
}
"""


def test_a_job_page_shows_the_new_state_of_its_job(visitor: Visitor, database: Database) -> None:
    job = add_job(database, name="sim")
    page = visitor.open(f"jobs/{job}")
    expect(page.locator("#live")).to_have_attribute("data-status", "live")
    with database.begin() as tx:
        lifecycle.move(tx, job, JobState.HOLD)
    expect(page.locator("h1 .state")).to_contain_text("Hold")
    expect(page.locator("#said")).to_contain_text("Hold")
    expect(page.locator("time").first).to_have_attribute("title", re.compile(r"^[-0-9]{10} [:0-9]{8} \S+$"))
    expect(page.get_by_role("table", name="States").get_by_role("row").last).to_contain_text(re.compile(r"\d s$"))


def test_records_that_come_late_are_shown(visitor: Visitor, database: Database) -> None:
    """A page that is told nothing asks now and then; that does not cut off what it has asked before."""
    job = add_job(database, name="sim")
    asked: list[Route] = []

    def hold(route: Route) -> None:
        asked.append(route)

    visitor.context.add_init_script("delete globalThis.SharedWorker")  # its requests are not seen here
    visitor.context.route("**/v1/stream", lambda route: None)  # no answer
    visitor.context.route(f"**/v1/jobs/{job}?*", hold)
    page = visitor.context.new_page()
    page.clock.install()
    with page.expect_request(f"**/v1/jobs/{job}?*"):
        page.goto(f"{visitor.base}/ui/jobs/{job}")
    page.clock.run_for(30_000)
    asked[0].continue_()
    page.wait_for_selector("html[data-ready]")
    expect(page.locator("h1")).to_contain_text("sim")
    assert len(asked) == 1


def test_two_tabs_share_one_stream(visitor: Visitor, database: Database) -> None:
    job = add_job(database)
    tabs = [visitor.open(f"jobs/{job}"), visitor.open("jobs")]
    for tab in tabs:
        expect(tab.locator("#live")).to_have_attribute("data-status", "live")
    with database.begin() as tx:
        lifecycle.move(tx, job, JobState.HOLD)
    for tab in tabs:
        expect(tab.locator(".state").first).to_contain_text("Hold")


def test_new_jobs_are_announced_and_come_on_a_click(visitor: Visitor, database: Database) -> None:
    add_job(database, name="first")
    page = visitor.open("jobs")
    expect(page.locator("#live")).to_have_attribute("data-status", "live")
    add_job(database, name="second")
    page.get_by_role("button", name="1 new").click()
    page.get_by_text("second").wait_for()


def test_a_job_is_found_by_keyboard(visitor: Visitor, database: Database) -> None:
    job = add_job(database, name="sim")
    page = visitor.open("")
    page.keyboard.press("/")
    page.keyboard.type(str(job))
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/ui/jobs/{job}")
    page.get_by_role("heading", name="Why it waits").wait_for()


def test_the_grid_is_walked_by_keyboard(visitor: Visitor, database: Database) -> None:
    job = add_job(database, JobState.RUNNING, on=add_resources(database)[:1])
    page = visitor.open("nodes")
    page.get_by_role("application", name="Grid of nodes").focus()
    page.keyboard.press("ArrowRight")
    expect(page.locator("#grid-says")).to_contain_text(f"node-1 · 1 free · 1 busy · Jobs: {job} (alice)")
    page.keyboard.press("ArrowRight")
    expect(page.locator("#grid-says")).to_contain_text("node-2")
    page.keyboard.press("Enter")
    page.wait_for_url("**/ui/nodes/node-2")


def test_an_array_is_a_grid_that_follows_its_jobs(visitor: Visitor, database: Database) -> None:
    ids = add_array(database, 12, name="scan")
    with database.begin() as tx:
        lifecycle.move(tx, ids[1], JobState.HOLD)
    page = visitor.open(f"jobs/{ids[1]}")
    page.get_by_role("link", name=f"2 of the array {ids[0]}").click()
    page.get_by_role("heading", name=f"array {ids[0]} scan 12 jobs").wait_for()
    expect(page.locator(".legend")).to_contain_text("on hold 1")
    page.get_by_role("application", name="Grid of the jobs of the array").focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    expect(page.locator("#array-says")).to_contain_text(f"job {ids[1]} · on hold")
    with database.begin() as tx:
        lifecycle.move_all(tx, [ids[1]], JobState.ERROR, because=for_no_reason(ids[1]))
    expect(page.locator("#array-says")).to_contain_text("in error")
    expect(page.locator(".legend")).to_contain_text("in error 1")
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/ui/jobs/{ids[1]}")


def test_a_filter_stands_in_the_address(visitor: Visitor, database: Database) -> None:
    add_job(database, user="alice", name="sim")
    add_job(database, user="bob", name="train")
    page = visitor.open("jobs")
    page.get_by_role("combobox", name="user").fill("bob")
    expect(page.get_by_text("sim")).to_have_count(0)
    assert "user=bob" in page.url
    page.reload()
    expect(page.get_by_role("combobox", name="user")).to_have_value("bob")
    expect(page.locator("tbody tr")).to_have_count(1)
    page.get_by_role("combobox", name="user").fill("carol")
    expect(page.get_by_text("No job matches.")).to_be_visible()


def test_the_list_of_jobs_is_sorted_and_the_address_says_so(visitor: Visitor, database: Database) -> None:
    jobs = [add_job(database, user=user) for user in ("bob", "alice", "carol")]
    page = visitor.open(f"jobs?array={jobs[0]}&state=all")
    expect(page.get_by_role("searchbox", name="array")).to_have_value(str(jobs[0]))
    page.get_by_role("button", name="clear filters").click()
    expect(page.locator("tbody tr")).to_have_count(3)
    users = page.locator("tbody td:nth-child(2)")
    for address, order, direction in (("sort=user", [1, 0, 2], "ascending"), ("sort=-user", [2, 0, 1], "descending")):
        page.get_by_role("button", name="user").click()
        expect(page.locator("th[aria-sort]")).to_have_attribute("aria-sort", direction)
        expect(page.get_by_role("button", name="user")).to_be_focused()
        assert page.url.endswith(f"?{address}")
        assert [page.locator("tbody .job").nth(place).inner_text() for place in range(3)] == [
            str(jobs[number]) for number in order
        ]
    page.reload()
    expect(users.first).to_have_text("carol")
    page.get_by_role("button", name="user").click()
    expect(users.first).to_have_text("carol")  # the newest is the first again
    assert page.url.endswith("/ui/jobs")


def test_a_command_is_copied_where_pages_have_no_clipboard(visitor: Visitor) -> None:
    """Browsers give one only to pages that come by HTTPS."""
    visitor.context.add_init_script("Object.defineProperty(navigator, 'clipboard', { value: undefined })")
    page = visitor.open("jobs?user=bob")
    page.get_by_role("button", name="copy as oarstat").click()
    expect(page.locator("[data-done=copied]")).to_be_focused()
    page.get_by_role("combobox", name="queue").press("Control+v")
    expect(page.get_by_role("combobox", name="queue")).to_have_value("oarstat -u bob")


def test_what_users_name_is_text(visitor: Visitor, database: Database) -> None:
    names = (
        '<img src=x onerror="alert(1)">',
        "'\"><script>alert(1)</script>",
        "\u202eright to left",
        "x" * 100,
        "{{ 7 * 7 }}",
    )
    ids = [add_job(database, name=name, project=name[:40]) for name in names]
    page = visitor.open("jobs?columns=job,user,project,state")
    shown = page.locator("tbody td:first-child bdi").all_inner_texts()
    assert [text.strip() for text in shown] == list(reversed(names))
    for job, name in zip(ids, names, strict=True):
        page.goto(f"{visitor.base}/ui/jobs/{job}")
        page.wait_for_selector("html[data-ready]")
        assert name in page.inner_text("h1")
        assert page.locator("main img, main script").count() == 0
        assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")


def test_a_page_that_was_cut_off_catches_up(visitor: Visitor, database: Database) -> None:
    job = add_job(database)
    page = visitor.open(f"jobs/{job}")
    expect(page.locator("#live")).to_have_attribute("data-status", "live")
    visitor.context.set_offline(True)
    with database.begin() as tx:
        lifecycle.move_all(tx, [job], JobState.ERROR, because=for_no_reason(job))
    page.get_by_role("alert").wait_for()
    visitor.context.set_offline(False)
    expect(page.locator("h1 .state")).to_contain_text("cancelled")
    expect(page.get_by_role("alert")).to_have_count(0)
    visitor.errors = [each for each in visitor.errors if "ERR_INTERNET_DISCONNECTED" not in each]


def test_the_first_page_shows_how_busy_the_cluster_was_and_that_nobody_plans(
    visitor: Visitor, database: Database
) -> None:
    resources = add_resources(database)
    running, waiting = add_job(database, JobState.RUNNING, on=resources, walltime=86400), add_job(database)
    with database.begin() as tx:
        tx.jobs.update(running, start_time=tx.now - 12 * 3600)
        tx.jobs.update(waiting, submission_time=tx.now - 3600)
        tx.execute("UPDATE gantt_jobs_predictions SET start_time = %s WHERE moldable_job_id = 0", (tx.now - 1200,))
    page = visitor.open("")
    expect(
        page.get_by_role("img", name=re.compile(r"busy (49|50|51) % in the last 24 hours, planned (49|50|51) %"))
    ).to_be_visible()
    unplanned = re.compile("The scheduler has not looked at the jobs for 00:2[0-9]")
    expect(page.get_by_role("link", name=unplanned)).to_be_visible()
    expect(page.get_by_role("table", name="Queues")).to_contain_text(re.compile("01:0[0-9]"))


def test_who_knows_monika_and_drawgantt_finds_them(visitor: Visitor, database: Database, jobs: dict[str, int]) -> None:
    page = visitor.open("")
    warning = page.locator(".notice").filter(has_text="2 resources are suspected")
    expect(warning).to_contain_text("node-2 since")
    warning.get_by_role("link", name="2 resources are suspected").click()
    expect(page.get_by_role("table", name="Nodes").get_by_role("columnheader", name="since")).to_be_visible()
    page.keyboard.press("/")
    page.keyboard.type("drawgantt")
    expect(page.locator("#palette-list li").first).to_contain_text("a row for each resource")
    page.keyboard.press("Enter")
    page.wait_for_url("**/ui/gantt?view=drawgantt*")
    page = visitor.open("help")
    page.get_by_role("link", name="with the number of the job in each box").click()
    page.wait_for_url("**/ui/nodes?view=monika")
    expect(page.get_by_role("heading", level=1)).to_contain_text("4 resources on 2 nodes")


def test_an_array_is_one_row_of_the_list_until_somebody_unfolds_it(visitor: Visitor, database: Database) -> None:
    ids = add_array(database, 5, name="scan")
    with database.begin() as tx:
        lifecycle.move(tx, ids[4], JobState.HOLD)
    page = visitor.open("jobs")
    rows = page.locator("tbody tr")
    expect(rows).to_have_count(2)  # the others wait
    expect(rows.last).to_contain_text(f"{ids[0]} scan and 3 more · array")
    rows.last.get_by_role("link", name="and 3 more").click()
    page.wait_for_url(f"**/ui/jobs?array={ids[0]}&state=Waiting")
    expect(rows).to_have_count(4)
    page.goto(f"{visitor.base}/ui/jobs?array={ids[0]}")
    expect(rows).to_have_count(5)


def test_a_large_array_hides_no_job_of_others_and_its_rows_follow_its_jobs(
    visitor: Visitor, database: Database
) -> None:
    others = [add_job(database, user="bob") for _ in range(30)]
    ids = add_array(database, 500, name="scan")
    page = visitor.open("jobs")
    rows = page.locator("tbody tr")
    expect(rows).to_have_count(31)
    expect(page.locator("h1")).to_contain_text("530 jobs")
    expect(page.locator("#more")).to_have_count(0)
    expect(rows.first).to_contain_text(f"{ids[0]} scan and 499 more · array")
    expect(rows.last).to_contain_text(str(others[0]))
    with database.begin() as tx:
        for job in ids[:2]:
            lifecycle.move(tx, job, JobState.HOLD)
    expect(rows).to_have_count(32)
    expect(rows.nth(0)).to_contain_text(f"{ids[2]} scan and 497 more · array")
    expect(rows.nth(1)).to_contain_text(f"{ids[0]} scan and 1 more · array")
    with database.begin() as tx:
        lifecycle.move(tx, ids[0], JobState.WAITING)
    expect(rows.nth(0)).to_contain_text(f"{ids[0]} scan and 498 more · array")
    expect(rows.nth(1)).to_contain_text(f"{ids[1]} scan")
    expect(rows.nth(1)).not_to_contain_text("more")
    add_array(database, 7, user="carol")
    page.get_by_role("button", name="7 new").click()
    expect(rows).to_have_count(33)
    expect(rows.first).to_contain_text("and 6 more")


def test_the_page_of_a_node_names_all_its_jobs_however_many_an_array_has_there(
    administrator: Visitor, database: Database
) -> None:
    resources = add_resources(database, nodes=1, cores=121)
    alone = add_job(database, JobState.RUNNING, on=resources[:1])
    ids = [add_job(database, JobState.RUNNING, on=[resource]) for resource in resources[1:]]
    with database.begin() as tx:
        tx.execute("UPDATE jobs SET array_id = %s WHERE job_id = ANY(%s)", (ids[0], ids))
    page = administrator.open("nodes/node-1")
    rows = page.get_by_role("table", name="Jobs on it").locator("tbody tr")
    expect(rows).to_have_count(2)
    expect(rows.first).to_contain_text(str(alone))
    page.get_by_role("button", name="set Absent").click()
    assert str(ids[-1]) in page.locator(".question").inner_text()
    page.keyboard.press("Escape")
    rows.last.get_by_role("link", name="and 119 more").click()
    page.wait_for_url(f"**/ui/jobs?node=node-1&array={ids[0]}&state=Running")


def test_each_large_box_names_its_job(visitor: Visitor, database: Database) -> None:
    add_job(database, JobState.RUNNING, on=add_resources(database, nodes=1, cores=3)[:2])
    page = visitor.open("nodes?view=monika")
    assert page.evaluate(WRITTEN) == [True, True, False]
    expect(page.locator("select[name=filter-color] option:checked")).to_have_text("job")


def test_requests_and_messages_are_shown_without_what_all_have(visitor: Visitor, database: Database) -> None:
    group = Group("type = 'default'", (Level("core", 2),))
    add_job(database, alternatives=[NewAlternative(3600, (group,))], message="R=2,W=1:0:0,J=B")
    row = visitor.open("jobs").locator("tbody tr")
    expect(row).to_contain_text("2 cores, 1 h")
    expect(row.locator("[title]").filter(has_text="core")).to_have_attribute("title", re.compile("type = 'default'"))
    expect(row).not_to_contain_text("R=2")
