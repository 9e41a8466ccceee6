"""The Gantt page: the past, what goes on and what is planned, moved through by hand and by keyboard."""

import re
import time
from collections import Counter
from collections.abc import Sequence
from urllib.parse import parse_qs, urlsplit
from xml.etree import ElementTree

import pytest
from playwright.sync_api import Page, Route, expect

from oar.kao.rounds.meta_sched import MetaScheduler
from oar.lib.db.database import Database
from oar.lib.jobs import lifecycle
from oar.lib.jobs.states import JobState
from oar.lib.nodes import state_changes
from oar.lib.runtime import Runtime
from tests.api.conftest import Api
from tests.browser.conftest import USER, Visitor
from tests.browser.test_pages import faults
from tests.builders import add_job, add_resources
from tests.process.this_machine import wait_until

HOUR, DAY = 3600, 86400
#: Everything in sight is drawn.
COMPLETE = ".gantt-frame[data-complete]"
#: The colours of a line of pixels of the diagram, by its distance from the top in units of the style sheet.
LINE = """
(y) => {
  const canvas = document.querySelector(".gantt-frame canvas");
  const { data } = canvas.getContext("2d").getImageData(0, y * devicePixelRatio, canvas.width, 1);
  return Array.from({ length: canvas.width }, (_, x) => data.slice(4 * x, 4 * x + 3).join());
}
"""
#: Whether each half of a line of pixels, between two shares of what is behind the names of rows, holds dark ones.
DARK = """
async ([y, left, from, to]) => {
  for (let frame = 0; frame < 2; frame++) await new Promise(requestAnimationFrame);
  const canvas = document.querySelector(".gantt-frame canvas"), ratio = devicePixelRatio;
  const wide = canvas.width / ratio - left, begin = left + wide * from, length = wide * (to - from);
  const { data, width } = canvas.getContext("2d").getImageData(begin * ratio, y * ratio, length * ratio, 1);
  const dark = Array.from({ length: width }, (_, x) => data[4 * x] + data[4 * x + 1] + data[4 * x + 2] < 240);
  return [dark.slice(0, width / 2), dark.slice(width / 2)].map((half) => half.some(Boolean));
}
"""
#: Whether there is anything on the paper in parts of some lines of the diagram, which are told as [from, to].
WRITTEN = """
([y, height, parts]) => {
  const canvas = document.querySelector(".gantt-frame canvas"), ratio = devicePixelRatio;
  const { data, width } = canvas.getContext("2d").getImageData(0, y * ratio, canvas.width, height * ratio);
  const colour = (x, line) => data.slice(4 * (line * width + x), 4 * (line * width + x) + 3).join();
  const line = (from, to, number) => Array.from({ length: to - from }, (_, x) => colour(from + x, number));
  const lines = (from, to) => Array.from({ length: height }, (_, number) => line(from, to, number));
  const colours = (from, to) => new Set(lines(from, to).flat());
  return parts.map(([from, to]) => colours(from * ratio, to * ratio).size > 1);
}
"""
#: Lets the page think that it prints; the width of what it prints is kept.
PRINTING = """
() => { window.print = () => {
  document.documentElement.dataset.printed = document.querySelector(".gantt-frame img").naturalWidth;
}; }
"""
_USED = "INSERT INTO job_usage (job_id, network_address, cpu_seconds, cores) VALUES (%s, %s, %s, %s)"
#: The room for names of rows; the first row below the dates, and its height.
LEFT, TOP, ROW = 132, 26, 22


@pytest.fixture
def resources(database: Database) -> list[int]:
    """Two nodes of two resources."""
    return add_resources(database)


def ended(database: Database, on: Sequence[int], begin: float, stop: float, name: str = "past") -> int:
    """Add a job that ran between two dates, in hours before now."""
    job, now = add_job(database, JobState.TERMINATED, on=on, name=name), int(time.time())
    with database.begin() as tx:
        dates = (now - int(begin * HOUR), now - int(stop * HOUR), job)
        tx.execute("UPDATE jobs SET start_time = %s, stop_time = %s WHERE job_id = %s", dates)
    return job


def ended_today(database: Database, on: Sequence[int]) -> int:
    """Add a job that has run since the day began, which goes on while the test does."""
    wait_until(lambda: 60 < time.time() % DAY < DAY - 300, seconds=400)
    return ended(database, on, time.time() % DAY / HOUR, 0)


def planned(database: Database, on: Sequence[int], start: float) -> int:
    """Add a job that is to start in some hours."""
    job = add_job(database, user="bob", name="future")
    with database.begin() as tx:
        moldable = tx.new_jobs.moldables_of_jobs([job])[job][0].id
        values = (moldable, int(time.time() + start * HOUR))
        tx.execute("INSERT INTO gantt_jobs_predictions_visu (moldable_job_id, start_time) VALUES (%s, %s)", values)
        places = (moldable, list(on))
        tx.execute("INSERT INTO gantt_jobs_sets_visu (moldable_job_id, resources) VALUES (%s, %s)", places)
    return job


def diagram(visitor: Visitor, query: str = "") -> Page:
    """Open the page, and wait until the diagram is drawn."""
    page = visitor.open(f"gantt{query}")
    page.wait_for_selector(COMPLETE)
    return page


def point(page: Page, hours: float, row: float) -> None:
    """Point at a date, in hours from now, of the view that is shown at first."""
    box = page.locator(".gantt-frame canvas").bounding_box()
    assert box
    x = LEFT + (box["width"] - LEFT) * (0.6 + hours / 24)
    page.mouse.move(box["x"] + x, box["y"] + TOP + row * ROW)


def test_past_present_and_future_are_pointed_at(visitor: Visitor, database: Database, resources: list[int]) -> None:
    past = ended(database, resources[2:], 8, 4)
    future = planned(database, resources[:2], 3)
    page = diagram(visitor)
    says = page.locator("#gantt-says")
    point(page, -6, 1.5)
    expect(says).to_contain_text(f"{past} past")
    expect(says).to_contain_text("node-2 (2 resources)")
    point(page, 3.5, 0.5)
    expect(says).to_contain_text(f"{future} future")
    expect(says).to_contain_text("planned start")
    point(page, 6, 1.5)
    expect(says).to_contain_text("node-2")


def test_a_running_job_is_drawn_up_to_now_and_its_rest_otherwise(
    visitor: Visitor, database: Database, resources: list[int]
) -> None:
    job = add_job(database, JobState.RUNNING, on=resources[:2], walltime=6 * HOUR)
    with database.begin() as tx:
        tx.jobs.update(job, start_time=tx.now - 4 * HOUR)
    page = diagram(visitor)
    line: list[str] = page.evaluate(LINE, TOP + 5)

    def colours(hours: float) -> set[str]:
        """The colours after a date; those of one pixel are lines between dates, which may hide half of a stripe."""
        place = int(LEFT + (len(line) - LEFT) * (0.6 + hours / 24))
        return {colour for colour, number in Counter(line[place : place + 24]).items() if number > 1}

    assert len(colours(-2)) == 1  # one colour: it runs
    assert len(colours(1)) > 1  # hatched: it may run on
    assert colours(-2).isdisjoint(colours(4))  # nothing is there


def test_times_out_of_use_are_told(visitor: Visitor, database: Database, resources: list[int]) -> None:
    with database.begin() as tx:
        state_changes.suspect(tx, ["node-2"], finaud=False)
    page = diagram(visitor)
    point(page, 2, 1.5)
    expect(page.locator("#gantt-says")).to_contain_text("Suspected")


def test_the_diagram_is_walked_and_opened_by_keyboard(
    visitor: Visitor, database: Database, resources: list[int]
) -> None:
    first, second = ended(database, resources[:2], 8, 4), ended(database, resources[2:], 8, 4)
    page = diagram(visitor)
    canvas = page.get_by_role("application", name="Diagram of jobs over time")
    canvas.focus()
    page.keyboard.press("n")
    expect(page.locator("#gantt-says")).to_contain_text(f"{first} past")
    page.keyboard.press("n")
    expect(page.locator("#gantt-says")).to_contain_text(f"{second} past")
    page.keyboard.press("p")
    expect(page.locator("#gantt-says")).to_contain_text(f"{first} past")
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/ui/jobs/{first}")


def test_a_view_is_a_link(visitor: Visitor, database: Database, resources: list[int]) -> None:
    ended(database, resources[:2], 60, 52)
    page = diagram(visitor)
    page.get_by_role("application").focus()
    for _ in range(16):
        page.keyboard.press("ArrowLeft")  # an eighth of a day each
    page.wait_for_url("**from=**")
    expect(page.get_by_role("heading", level=1)).to_contain_text("1 job")
    page.reload()
    page.wait_for_selector(COMPLETE)
    expect(page.get_by_role("heading", level=1)).to_contain_text("1 job")
    page.get_by_role("button", name="now", exact=True).click()
    page.wait_for_url(lambda address: "from=" not in address)


def test_what_happens_is_drawn_as_it_happens(visitor: Visitor, database: Database, resources: list[int]) -> None:
    page = diagram(visitor)
    expect(page.locator("#live")).to_have_attribute("data-status", "live")
    running = add_job(database, JobState.RUNNING, on=resources)
    expect(page.get_by_role("heading", level=1)).to_contain_text("1 job")
    expect(page.get_by_role("button", name="Running 1")).to_be_visible()
    planned(database, resources[:2], 3)  # from here on the page is told of changes only
    expect(page.get_by_role("button", name="Waiting 1")).to_be_visible()
    with database.begin() as tx:
        lifecycle.move(tx, running, JobState.FINISHING)
        lifecycle.move(tx, running, JobState.TERMINATED)
    expect(page.get_by_role("button", name="Terminated 1")).to_be_visible()
    expect(page.get_by_role("button", name="Running")).to_have_count(0)
    lives = [url for url in visitor.requests if "/gantt/live" in url]
    assert ["since=" in url for url in lives] == [False, *(True for _ in lives[1:])]
    assert len(lives) > 1


def test_of_a_day_that_goes_on_only_what_has_ended_since_is_fetched(
    visitor: Visitor, database: Database, resources: list[int]
) -> None:
    ended_today(database, resources[2:])
    first, second = (add_job(database, JobState.RUNNING, on=resources[:1]) for _ in range(2))
    page = diagram(visitor)
    for number, job in enumerate((first, second), 2):
        with database.begin() as tx:
            lifecycle.move(tx, job, JobState.FINISHING)
            lifecycle.move(tx, job, JobState.TERMINATED)
        expect(page.get_by_role("button", name=f"Terminated {number}")).to_be_visible()
    expect(page.get_by_role("heading", level=1)).to_contain_text("3 jobs")
    assert fetched_chunks(visitor) == ["v", "since", "since"]


def test_what_has_ended_is_fetched_once_though_somebody_moves_meanwhile(
    visitor: Visitor, database: Database, resources: list[int]
) -> None:
    ended_today(database, resources[2:])
    job = add_job(database, JobState.RUNNING, on=resources[:1])
    page = diagram(visitor)
    expect(page.locator("#live")).to_have_attribute("data-status", "live")
    expect(page.get_by_role("button", name="Terminated 1")).to_be_visible()
    held: list[Route] = []
    page.route("**/gantt/chunks/*since=*", lambda route: route.continue_() if held else held.append(route))
    with page.expect_request("**/gantt/chunks/*since=*"), database.begin() as tx:
        lifecycle.move(tx, job, JobState.FINISHING)
        lifecycle.move(tx, job, JobState.TERMINATED)
    page.get_by_role("application").focus()
    page.keyboard.press("ArrowLeft")
    page.wait_for_url("**from=**")  # the view has asked for the days that it shows
    held[0].continue_()
    expect(page.get_by_role("button", name="Terminated 2")).to_be_visible()
    assert fetched_chunks(visitor) == ["v", "since"]


def fetched_chunks(visitor: Visitor) -> list[str]:
    """By what each request for the jobs of a day chose them: a version of the whole day, or a date."""
    queries = [url.partition("?")[2] for url in visitor.requests if "/gantt/chunks/" in url]
    return [query.partition("=")[0] for query in queries]


def test_an_area_is_selected_by_keyboard(visitor: Visitor, database: Database, resources: list[int]) -> None:
    ended(database, resources[:2], 8, 4)
    page = diagram(visitor)
    page.get_by_role("application", name="Diagram of jobs over time").focus()
    page.keyboard.press("n")
    expect(page.locator("#gantt-says")).to_contain_text("past")
    page.keyboard.press("Shift+ArrowRight")  # from the job on
    area = page.get_by_role("group", name="selected area")
    expect(area).to_contain_text("1 row (node-1)")
    page.keyboard.press("Shift+ArrowDown")
    expect(area).to_contain_text("2 rows (node-1 – node-2)")
    expect(page.locator("#said")).to_contain_text("node-1")
    link = area.get_by_role("link", name="reserve it").get_attribute("href") or ""
    assert "hosts=node-1%2Cnode-2" in link
    page.keyboard.press("Escape")
    expect(area).to_have_count(0)


def test_jobs_are_chosen_and_listed(visitor: Visitor, database: Database, resources: list[int]) -> None:
    ended(database, resources[:2], 8, 4, name="sim")
    ended(database, resources[2:], 8, 4, name="train")
    page = diagram(visitor, "?view=table")
    expect(page.locator("tbody tr")).to_have_count(2)
    page.get_by_role("searchbox", name="id, or part of a name or user").fill("train")
    expect(page.locator("tbody tr")).to_have_count(1)
    expect(page.locator("tbody")).to_contain_text("node-2")
    assert "q=train" in page.url
    assert faults(page) == []


def test_rows_are_grouped_and_folded(visitor: Visitor, database: Database, resources: list[int]) -> None:
    ended(database, resources[2:], 8, 4)
    page = diagram(visitor, "?rows=network_address,resource_id&fold=node-1")
    point(page, -6, 1.5)  # behind the one row of node-1 there are those of the resources of node-2
    expect(page.locator("#gantt-says")).to_contain_text(f"node-2 {resources[2]} (1 resource)")
    point(page, -6, 0.5)
    expect(page.locator("#gantt-says")).to_contain_text("node-1 node-1 (2 resources)")


def test_a_chosen_job_shows_what_it_depends_on_and_what_waits_for_it(
    visitor: Visitor, database: Database, resources: list[int]
) -> None:
    first, second = ended(database, resources[:2], 10, 8), ended(database, resources[2:], 4, 2)
    with database.begin() as tx:
        tx.execute("INSERT INTO job_dependencies (job_id, job_id_required) VALUES (%s, %s)", (second, first))
    page = diagram(visitor)
    canvas = page.get_by_role("application", name="Diagram of jobs over time")
    between = [TOP + 0.8 * ROW, LEFT, 0.6 - 7.5 / 24, 0.6 - 4.5 / 24]
    canvas.focus()
    page.keyboard.press("p")
    expect(page.locator("#gantt-says")).to_contain_text(f"depends on {first}")
    page.keyboard.press("p")
    expect(page.locator("#gantt-says")).to_contain_text(f"awaited by {second}")
    assert page.evaluate(DARK, between) == [True, False]
    assert faults(page) == []


def test_names_of_jobs_are_text_in_the_diagram(visitor: Visitor, database: Database, resources: list[int]) -> None:
    ended(database, resources, 8, 4, name="<img src=x onerror=alert(1)>")
    page = diagram(visitor)
    point(page, -6, 0.5)
    expect(page.locator("#gantt-says")).to_contain_text("<img src=x onerror=alert(1)>")
    assert page.locator("main img").count() == 0


def test_the_view_is_taken_away_as_vectors(visitor: Visitor, database: Database, resources: list[int]) -> None:
    job = ended(database, resources[:2], 8, 4, name="<b>&past")
    planned(database, resources[2:], 3)
    page = diagram(visitor)
    page.get_by_text("export").click()
    with page.expect_download() as download:
        page.get_by_role("button", name="SVG").click()
    drawing = ElementTree.parse(download.value.path()).getroot()
    texts = [each.text for each in drawing.iter("{http://www.w3.org/2000/svg}text")]
    classes = [each.get("class") for each in drawing.iter("{http://www.w3.org/2000/svg}rect")]
    assert {"node-1", "node-2"} <= set(texts)
    assert any(re.fullmatch(r"\d\d-\d\d \S+", text or "") for text in texts)  # the day at the left edge, and the zone
    assert any(text and text.startswith(f"{job} <b>&past") for text in texts)
    assert (classes.count("plain"), classes.count("plan")) == (1, 1)


def test_the_diagram_is_printed_as_vectors(visitor: Visitor, database: Database, resources: list[int]) -> None:
    ended(database, resources[:2], 8, 4)
    page = diagram(visitor)
    page.evaluate(PRINTING)
    page.keyboard.press("Control+p")
    page.wait_for_selector("html[data-printed]:not([data-printed='0'])")
    page.emulate_media(media="print")
    expect(page.get_by_role("img", name="Diagram of jobs over time")).to_be_visible()
    expect(page.locator(".gantt-frame canvas")).not_to_be_visible()
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    expect(page.locator(".gantt-frame img")).to_have_count(0)


def test_the_days_beside_those_in_sight_are_fetched_ahead(
    visitor: Visitor, database: Database, resources: list[int]
) -> None:
    today = int(time.time()) // (24 * HOUR)
    shown = (today - 3) * 24 * HOUR
    job = ended(database, resources[:2], 8, 4)
    with database.begin() as tx:
        dates = (shown - 6 * HOUR, shown - 4 * HOUR, job)  # on the day before
        tx.execute("UPDATE jobs SET start_time = %s, stop_time = %s WHERE job_id = %s", dates)
    day = time.strftime("%Y-%m-%d", time.gmtime(shown - 24 * HOUR))
    with visitor.context.expect_event("request", lambda request: f"/gantt/chunks/{day}" in request.url):
        diagram(visitor, f"?from={shown + 6 * HOUR}&to={shown + 18 * HOUR}")


def test_a_card_beside_the_pointer_tells_what_is_there(
    visitor: Visitor, database: Database, resources: list[int]
) -> None:
    past = ended(database, resources[2:], 8, 4, name="<b>sim")
    page = diagram(visitor)
    card = page.locator(".gantt-card")
    expect(card).to_be_hidden()
    point(page, -6, 1.5)
    expect(card).to_contain_text(f"{past} <b>sim")
    expect(card).to_contain_text("node-2 (2 resources)")
    expect(card.locator("dl")).to_contain_text("walltime")
    box = card.bounding_box()
    assert box
    assert box["x"] + box["width"] <= 1280
    assert box["y"] + box["height"] <= 900
    page.mouse.move(1, 1)
    expect(card).to_be_hidden()
    page.get_by_role("application").focus()
    page.keyboard.press("n")
    expect(card).to_contain_text(f"{past} <b>sim")


def test_the_card_of_a_planned_job_says_why_it_waits(
    visitor: Visitor, api: Api, database: Database, resources: list[int]
) -> None:
    holder = add_job(database, JobState.RUNNING, on=resources, user="alice", walltime=2 * HOUR)
    add_job(database, user="bob", name="train")
    MetaScheduler(Runtime(api.runtime.config, Database(database.settings))).round()
    page = diagram(visitor)
    point(page, 2.4, 0.3)
    expect(page.locator(".gantt-card .why")).to_contain_text(str(holder))
    expect(page.locator(".gantt-card")).to_contain_text("at the latest")


def test_where_a_job_would_be_is_shown(owner: Visitor, database: Database, resources: list[int]) -> None:
    add_job(database, JobState.RUNNING, on=resources[:2], walltime=2 * HOUR)
    page = owner.open("submit?nodes=1&walltime=4:00")
    page.locator("#when").get_by_role("link", name="in the diagram").first.click()
    page.wait_for_selector(COMPLETE)
    page.evaluate("new Promise((next) => requestAnimationFrame(() => requestAnimationFrame(next)))")
    begin, end = (
        float(page.evaluate(f"new URLSearchParams(location.search).get('{name}')")) for name in ("from", "to")
    )
    start, length = map(float, page.evaluate("new URLSearchParams(location.search).get('would')").split(","))
    box = page.locator(".gantt-frame canvas").bounding_box()
    assert box
    line = page.evaluate(LINE, TOP + 1.5 * ROW)  # node-2 is free
    middle, behind = (
        int(LEFT + (box["width"] - LEFT) * (date - begin) / (end - begin))
        for date in (start + length * 0.8, start + length * 1.2)
    )
    # A line between two dates, of one pixel, may be in it.
    (there, number), (other, _) = (Counter(line[place : place + 8]).most_common(1)[0] for place in (middle, behind))
    assert number >= 7
    assert there != other


@pytest.mark.parametrize("colour", ["mine", "types"])
def test_jobs_are_coloured_by_what_is_asked(
    owner: Visitor, database: Database, resources: list[int], colour: str
) -> None:
    add_job(database, JobState.RUNNING, on=resources[:2], user=USER, types=["deploy"])
    add_job(database, JobState.RUNNING, on=resources[2:], user="alice")
    past = ended(database, resources[2:], 8, 4)
    with database.begin() as tx:  # half of the time of its two cores
        tx.execute(_USED, (past, "node-2", 4 * HOUR, 2))
    page = diagram(owner, f"?color={colour}")
    counted = page.locator(".legend").first
    expect(counted).to_contain_text("Running 2" if colour == "mine" else "deploy 1")
    page.get_by_role("combobox", name="colour by").select_option(label="efficiency")
    page.get_by_role("button", name="40–60 % 1").click()
    page.wait_for_url("**efficiency=40*")
    assert faults(page) == []


def test_beside_the_resources_stands_the_name_of_their_node(
    visitor: Visitor, database: Database, resources: list[int]
) -> None:
    page = diagram(visitor, "?view=drawgantt")
    written = page.evaluate(WRITTEN, [TOP + 2, 16, [[16, 60], [66, 92], [92, 126]]])
    assert written == [True, False, True]  # the node, a gap, the resource, whose number has some digits


def test_as_drawgantt_it_begins_with_the_first_node(visitor: Visitor, database: Database, resources: list[int]) -> None:
    add_resources(database, nodes=40, cores=4)
    page = diagram(visitor)
    page.locator("select[name=filter-view]").select_option("drawgantt")
    expect(page.locator("select[name=filter-view]")).to_have_value("drawgantt")
    page.wait_for_url("**unit=20.00*")
    assert "top=" not in page.url


def test_long_names_of_nodes_are_seen_as_a_whole(visitor: Visitor, database: Database, resources: list[int]) -> None:
    add_resources(database, nodes=1, network_address="chifflot-10.lille.example.org")
    page = diagram(visitor)
    written = page.evaluate(WRITTEN, [TOP + 2, 16, [[4, 70], [76, 110], [110, 150]]])
    assert written == [True, True, True]  # beyond the first part of the name


def test_the_strip_above_the_diagram_tells_of_the_period_around_the_view_and_moves_it(
    visitor: Visitor, database: Database, resources: list[int]
) -> None:
    ended(database, resources, 30, 20, name="before")
    begin = int(time.time()) - DAY // 2
    page = diagram(visitor, f"?from={begin}&to={begin + DAY}")  # a view that does not go on by itself
    strip = page.get_by_role("slider", name="The period around the view")
    expect(strip).to_have_attribute("aria-valuenow", str(begin))
    frame = page.locator(".gantt-frame").bounding_box()
    strip.press("ArrowLeft")
    expect(strip).to_have_attribute("aria-valuenow", str(begin - DAY // 4))
    box = strip.bounding_box()
    assert box
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 10)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] / 2 - box["width"] / 5, box["y"] + 10)
    page.mouse.up()
    moved = int(strip.get_attribute("aria-valuenow") or 0)
    assert DAY * 0.8 < begin - DAY // 4 - moved < DAY * 1.2
    assert page.locator(".gantt-frame").bounding_box() == frame  # nothing jumped
    expect(page).to_have_url(re.compile(f"from={moved}&"))


def test_the_first_view_takes_a_few_files_and_each_record_once(
    visitor: Visitor, database: Database, resources: list[int]
) -> None:
    ended(database, resources, 8, 4)
    page = diagram(visitor, "?rows=network_address,resource_id")
    page.wait_for_selector(".overview[role=slider]")
    fetched = Counter(re.sub(r"^.*?/(ui|v1)/(static/\w+/)?", "", url).split("?")[0] for url in visitor.requests)
    days = [path for path in fetched if path.startswith("gantt/chunks/")]
    assert days
    scripts = ("theme.js", "gantt/first.js", "gantt/worker.js", "pages/gantt.js", "stream-worker.js")
    once = {f"js/{name}" for name in scripts}
    assert {path: number for path, number in fetched.items() if path.endswith(".js")} == dict.fromkeys(once, 1)
    records = ("gantt/rows", "gantt/occupancy", *days)
    assert [fetched[path] for path in records] == [1] * len(records)
    # On a busy machine it may have begun to fetch days ahead, and to ask what is new since nothing is told yet.
    news = sum("/gantt/live?since=" in url for url in visitor.requests)
    assert fetched["gantt/live"] == 1 + news
    assert 1 <= sum(reaches_now(url) for url in visitor.requests) <= 1 + news


def reaches_now(url: str) -> bool:
    """Whether it is asked on which days something ended, up to the present."""
    address = urlsplit(url)
    return address.path.endswith("/gantt/index") and int(parse_qs(address.query)["to"][0]) > time.time()


def test_a_node_tells_small_what_was_is_and_comes_there(
    visitor: Visitor, database: Database, resources: list[int]
) -> None:
    past = ended(database, resources[:1], 8, 4)
    add_job(database, JobState.RUNNING, on=resources[1:2], name="rests", walltime=4 * HOUR)
    ended(database, resources[2:], 8, 4, name="elsewhere")
    future = planned(database, resources[:2], 3)
    page = visitor.open("nodes/node-1")
    drawing = page.get_by_role("img", name="node-1: 3 jobs")
    kinds = [drawing.locator(f"rect.{kind}").count() for kind in ("ran", "rest", "plan")]
    assert kinds == [2, 1, 1]
    expect(page.get_by_role("table", name="What comes next")).to_contain_text(f"{future} future")
    expect(page.get_by_role("table", name="What was")).to_contain_text(f"{past} past")
    assert page.get_by_text("elsewhere").count() == 0
    drawing.locator("rect.plan").click()
    page.wait_for_url(f"**/ui/jobs/{future}")
    page = visitor.open(f"jobs/{past}")
    expect(page.get_by_role("img", name="node-1").locator("rect.ran.sought")).to_have_count(1)
