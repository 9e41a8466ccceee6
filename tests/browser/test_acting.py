"""Who is known does with his jobs on their pages what the commands do, also by keyboard alone."""

import re
import time

import pytest
from playwright.sync_api import Route, expect

from oar.lib.access import tokens
from oar.lib.access.records import User
from oar.lib.config.files import Config
from oar.lib.db.database import Database
from oar.lib.jobs.states import JobState
from tests.api.conftest import Api
from tests.api.test_output import needs_root
from tests.browser.conftest import USER, Visitor
from tests.browser.test_pages import faults
from tests.builders import add_array, add_job, add_resources, state_of
from tests.db.reservation_rows import add_reservation


def test_a_job_is_held_and_resumed_by_keyboard(owner: Visitor, database: Database) -> None:
    job = add_job(database, user=USER)
    page = owner.open(f"jobs/{job}")
    page.get_by_role("button", name="hold").focus()
    page.keyboard.press("Enter")
    expect(page.locator("h1 .state")).to_contain_text("Hold")
    expect(page.get_by_role("button", name="resume")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("h1 .state")).to_contain_text("Waiting")
    assert state_of(database, job) is JobState.WAITING


def test_the_end_of_a_job_is_asked_for_once(owner: Visitor, database: Database) -> None:
    job = add_job(database, JobState.RUNNING, on=add_resources(database)[:1], user=USER)
    page = owner.open(f"jobs/{job}")
    page.get_by_role("button", name="delete").click()
    expect(page.locator(".question")).to_contain_text("what it has not stored is lost")
    page.keyboard.press("Escape")
    expect(page.locator(".question")).to_have_count(0)
    page.get_by_role("button", name="delete").click()
    page.locator(".question").get_by_role("button", name="delete").click()
    page.get_by_text("deletion registered").wait_for()
    with database.snapshot() as tx:
        assert tx.job_requests.jobs_to_kill([job]) == {job}


def test_a_job_that_has_ended_tells_what_it_used_and_is_submitted_again(owner: Visitor, database: Database) -> None:
    job = add_job(database, JobState.TERMINATED, on=add_resources(database)[:1], user=USER, name="sim")
    with database.begin() as tx:
        tx.execute(
            "INSERT INTO job_usage (job_id, network_address, cores, cpu_seconds, memory_peak)"
            " VALUES (%s, 'node-1', 1, 60, %s)",
            (job, 2**30),
        )
        tx.execute("UPDATE jobs SET exit_code = 9 WHERE job_id = %s", (job,))
    page = owner.open(f"jobs/{job}")
    used = page.get_by_role("row").filter(has_text="node-1")
    expect(used).to_contain_text("1.0 GiB")
    expect(page.locator(".facts")).to_contain_text("none: ended by signal 9")
    assert faults(page) == []
    page.get_by_role("button", name="submit it again").click()
    page.wait_for_url(lambda address: not address.endswith(f"/{job}"))
    expect(page.locator("h1")).to_contain_text("sim")


def with_modules(route: Route) -> None:
    """Answer as if there were a server, of which one module is not needed and another one is down."""
    answer = route.fetch()
    idle = {"state": "down", "failures": 0, "restarts": 0, "last_start": None, "last_duration": 0}
    modules = {"greta": {**idle, "passes": 0}, "finaud": {**idle, "passes": 3}}
    route.fulfill(response=answer, json={**answer.json(), "modules": modules})


def test_administrators_see_how_the_installation_is(administrator: Visitor, api: Api) -> None:
    api.runtime.config = api.runtime.config.replace(server_port=7777, db_base_passwd="hidden-word")
    page = administrator.open("")
    page.route("**/v1/administration", with_modules)
    page.get_by_role("link", name="Administration").click()
    page.get_by_role("heading", name="How the installation is").wait_for()
    expect(page.get_by_role("row", name="SERVER_PORT 7777 6666")).to_be_visible()
    assert "hidden-word" not in page.content()
    modules = page.get_by_role("table", name="Modules").get_by_role("row")
    expect(modules.filter(has_text="greta")).to_contain_text("not in use")
    expect(modules.filter(has_text="finaud").locator(".bad")).to_have_text("down")
    assert faults(page) == []


def test_the_jobs_of_others_have_no_buttons(owner: Visitor, database: Database) -> None:
    page = owner.open(f"jobs/{add_job(database, user='alice')}")
    assert page.locator(".acts").count() == 0


def test_a_token_is_made_shown_once_and_revoked(owner_by_password: Visitor) -> None:
    page = owner_by_password.open("tokens")
    assert faults(page) == []
    page.get_by_label("comment").fill("<b>my dashboard</b>")
    page.get_by_role("button", name="create").click()
    expect(page.locator("pre")).to_contain_text("oar_")
    row = page.get_by_role("row").filter(has_text="<b>my dashboard</b>")
    expect(row).to_contain_text("read")
    row.get_by_role("button", name="revoke").click()
    expect(row.get_by_text("are refused from now on")).to_be_visible()
    page.keyboard.press("Escape")
    expect(row.get_by_role("button", name="revoke")).to_be_focused()
    page.keyboard.press("Enter")
    page.keyboard.press("Enter")
    expect(row).to_have_count(0)


def test_a_session_that_began_with_a_token_has_no_form_for_tokens(owner: Visitor) -> None:
    page = owner.open("tokens")
    expect(page.locator("main")).to_contain_text("This session began with a token, so it cannot create tokens")
    expect(page.get_by_role("button", name="create")).to_have_count(0)
    expect(page.get_by_role("table", name="Tokens")).to_contain_text("all that I may")


def test_who_logs_out_is_nobody(owner: Visitor) -> None:
    page = owner.open("")
    page.get_by_role("button", name="log out").click()
    page.get_by_role("link", name="log in").wait_for()


@pytest.mark.parametrize("path", ["", "/oar"])
def test_who_comes_directly_or_by_the_path_of_the_site_logs_in_and_out(
    api: Api, visitor: Visitor, database: Database, path: str
) -> None:
    api.runtime.config = api.runtime.config.replace(api_root_path="/oar")
    with database.begin() as tx:
        _, token = tokens.create(tx, User(USER, 65534), scope="rw")
    visitor.base += path
    page = visitor.open("login")
    page.get_by_label("token", exact=True).fill(token)
    page.keyboard.press("Enter")
    page.wait_for_url(f"{visitor.base}/ui/")
    expect(page.get_by_role("link", name=USER)).to_be_visible()
    assert [each["path"] for each in visitor.context.cookies() if each["name"] == "oar_session"] == [f"{path}/"]
    page.get_by_role("button", name="log out").click()
    page.get_by_role("link", name="log in").wait_for()
    assert not visitor.context.cookies()


def test_a_wrong_token_is_told(visitor: Visitor) -> None:
    page = visitor.open("login")
    page.get_by_label("token", exact=True).fill("oar_wrong")
    page.get_by_role("button", name="log in with the token").click()
    expect(page.get_by_role("alert")).to_contain_text("token")
    visitor.errors = [each for each in visitor.errors if "401" not in each]  # browsers write down such answers


@needs_root
def test_an_administrator_drains_a_node_and_takes_it_away(administrator: Visitor, database: Database) -> None:
    resources = add_resources(database)
    job = add_job(database, JobState.RUNNING, on=resources[:1])
    page = administrator.open("nodes/node-1")
    assert faults(page) == []
    page.get_by_text("the commands that do the same").click()
    expect(page.get_by_text("oarnodesetting -h node-1 --drain on")).to_be_visible()
    page.get_by_role("button", name="drain").click()
    page.get_by_role("button", name="end the drain").wait_for()
    expect(page.locator(".lead")).to_contain_text(re.compile("no job is started on it since [0-9:]{5}"))
    with database.snapshot() as tx:
        assert tx.rows("SELECT DISTINCT drain FROM resources WHERE network_address = 'node-1'") == [("YES",)]
    page.get_by_role("button", name="set Absent").click()
    expect(page.locator(".question")).to_contain_text(f"The jobs on it are ended: {job}.")
    page.locator(".question").get_by_role("button", name="set Absent").click()
    expect(page.get_by_role("status").filter(has_text="Done.")).to_be_visible()


@needs_root
def test_an_administrator_stops_a_queue_and_starts_it(administrator: Visitor, database: Database) -> None:
    page = administrator.open("queues")
    row = page.get_by_role("row").filter(has_text="besteffort")
    row.get_by_role("button", name="stop").focus()
    page.keyboard.press("Enter")
    page.keyboard.press("Enter")  # the button of the question
    expect(row).to_contain_text("does not start jobs")
    expect(row.get_by_role("button", name="start", exact=True)).to_be_focused()
    page.keyboard.press("Enter")
    expect(row).not_to_contain_text("does not start jobs")


@needs_root
def test_an_administrator_reads_the_rules_and_disables_one(
    administrator: Visitor, api: Api, database: Database
) -> None:
    api.runtime.config = Config(instance_name="testbed", api_admission_rules=True)
    with database.begin() as tx:
        rule = tx.admission_rules.insert("raise ValueError('<b>no</b>')", priority=7, enabled=True, author="root")
    page = administrator.open("rules")
    expect(page.get_by_text("<b>no</b>")).to_be_visible()
    assert faults(page) == []
    card = page.locator("section").filter(has_text="<b>no</b>")
    card.get_by_role("button", name="disable").click()
    card.locator(".question").get_by_role("button", name="disable").click()
    expect(card.locator(".state")).to_have_text("disabled")
    with database.snapshot() as tx:
        assert [each.enabled for each in tx.admission_rules.all() if each.id == rule] == [False]


def test_who_is_no_administrator_has_no_buttons_there(owner: Visitor, database: Database) -> None:
    add_resources(database)
    assert owner.open("nodes/node-1").locator(".acts").count() == 0
    assert owner.open("queues").locator(".acts").count() == 0


def test_an_owner_deletes_his_reservation(owner: Visitor, database: Database) -> None:
    now = int(time.time())
    resources = add_resources(database)
    number = add_reservation(
        database, owner=USER, start_time=now + 3600, end_time=now + 7200, resources=resources[:2], ar_name="mine"
    )
    page = owner.open(f"reservations/{number}")
    page.get_by_role("button", name="delete").click()
    page.locator(".question").get_by_role("button", name="delete").click()
    expect(page.locator("h1 .state")).to_have_text("d deleted")


def test_all_jobs_of_an_array_are_held_deleted_and_failed_ones_submitted_again(
    owner: Visitor, database: Database
) -> None:
    ids = add_array(database, 6, user=USER, name="scan")
    with database.begin() as tx:
        tx.execute(
            "UPDATE jobs SET state = 'Terminated', exit_code = 256, start_time = 1000, stop_time = 1600"
            " WHERE job_id = ANY(%s)",
            (ids[:2],),
        )
    page = owner.open(f"arrays/{ids[0]}")
    page.get_by_role("button", name="hold (4)").click()
    expect(page.locator(".acts")).to_contain_text("hold: done for 4 jobs.")
    page.get_by_role("button", name="submit the 2 failed again").click()
    expect(page.locator(".acts")).to_contain_text("2 of 2 submitted again")
    expect(page.locator("h1")).to_contain_text("6 jobs")  # a copy stands in the place of its job
    expect(page.locator(".legend")).not_to_contain_text("another exit code")
    page.get_by_role("button", name="delete (6)").click()
    page.get_by_role("group", name="delete (6)").get_by_role("button", name="delete (6)").click()
    expect(page.locator(".acts")).to_contain_text("delete: done for 6 jobs.")
    assert faults(page) == []
