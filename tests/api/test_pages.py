"""What the service gives to pages: their files, their first views, the records that only they need."""

import re
from collections.abc import Callable
from datetime import datetime

import httpx
import pytest

from oar.api.legacy.old_pages import DRAWGANTT, MONIKA, drawgantt_place
from oar.api.site import LOST_NODES
from oar.lib.config.files import Config
from oar.lib.db.database import Database
from oar.lib.jobs.states import JobState
from oar.lib.nodes import state_changes
from oar.lib.nodes.states import ResourceState
from tests.api.conftest import Api
from tests.builders import add_array, add_job, add_resources


def static(client: httpx.Client, name: str) -> str:
    """Return the address of a file, as a page names it."""
    return client.get("/ui/help").text.partition('href="../ui/static/')[2].partition("/")[0].join(("/ui/static/", name))


def test_files_may_be_kept_for_ever_and_are_packed(anonymous: httpx.Client) -> None:
    address = static(anonymous, "/style.css")
    answer = anonymous.get(address)
    assert (answer.headers["content-type"], answer.headers["content-encoding"]) == ("text/css; charset=utf-8", "gzip")
    assert "immutable" in answer.headers["cache-control"]
    assert "--state-free" in answer.text
    plain = anonymous.get(address, headers={"Accept-Encoding": "identity"})
    assert (plain.text, plain.headers.get("content-encoding")) == (answer.text, None)
    known = anonymous.get(address, headers={"If-None-Match": answer.headers["etag"]})
    assert (known.status_code, known.content) == (304, b"")


@pytest.mark.parametrize(
    "path", ["/ui/static/000000000000/style.css", "/ui/static/x/../../../etc/passwd", "/ui/static"]
)
def test_files_of_other_versions_and_places_are_not_there(anonymous: httpx.Client, path: str) -> None:
    assert anonymous.get(path).status_code == 404


def test_every_page_comes_with_its_policy(anonymous: httpx.Client) -> None:
    for path in ("/ui/", "/ui/jobs", "/ui/nowhere", "/ui/jobs/0x1", "/ui/jobs?state=broken"):
        policy = anonymous.get(path).headers["content-security-policy"]
        assert "script-src 'self'" in policy
        assert "require-trusted-types-for 'script'" in policy


@pytest.mark.parametrize(
    ("path", "status", "text"),
    [
        ("/ui/jobs/999", 404, "job 999 does not exist"),
        ("/ui/jobs/%00", 400, "must be the id of a job"),
        ("/ui/jobs?state=broken", 400, "must be one of live, all, "),
        ("/ui/jobs?array=many", 400, "array:"),
        ("/ui/jobs?from=9223372036854775807", 400, "from:"),
        ("/ui/jobs?to=9223372036854775807", 400, "to:"),
        ("/ui/jobs?ended_since=9223372036854775807", 400, "ended_since:"),
        ("/ui/jobs?user=me", 401, "the request names no user"),
        ("/ui/nodes/nowhere", 404, "there is no node"),
        ("/ui/nowhere", 404, "There is no such page."),
        ("/ui/%3Cscript%3E", 404, "There is no such page."),
    ],
)
def test_what_is_wrong_is_a_page(anonymous: httpx.Client, path: str, status: int, text: str) -> None:
    answer = anonymous.get(path)
    assert answer.status_code == status
    assert text in answer.text
    assert answer.headers["content-type"] == "text/html; charset=utf-8"


def test_the_first_page_is_found_without_its_slash(anonymous: httpx.Client) -> None:
    assert anonymous.get("/ui", follow_redirects=True).url.path == "/ui/"


@pytest.mark.parametrize(
    ("query", "place"),
    [
        ("?job=42", "/ui/jobs/42"),
        ("?node=node-1.site", "/ui/nodes/node-1.site"),
        ("?node=//evil.example/", "/ui/nodes/%2F%2Fevil.example%2F"),
        ("?props=gpu=YES", "/ui/nodes?props=gpu%3DYES"),
        ("?props=gpu=YES&props=rack=a%26b", "/ui/nodes?props=gpu%3DYES&props=rack%3Da%26b"),
        ("", "/ui/nodes"),
    ],
)
def test_links_of_monika_lead_to_what_shows_the_same(anonymous: httpx.Client, query: str, place: str) -> None:
    for path in ("/monika", "/monika/", "/cgi-bin/monika.cgi", "/ui/monika.cgi"):
        answer = anonymous.get(f"{path}{query}")
        assert (answer.status_code, _led(answer)) == (301, place), path


def _led(answer: httpx.Response) -> str:
    """Return where an answer leads to."""
    return answer.url.join(answer.headers["location"]).raw_path.decode()


def test_parameters_of_scripts_do_not_disturb_the_first_view(anonymous: httpx.Client, database: Database) -> None:
    add_job(database, name="sim")
    assert "sim" in anonymous.get("/ui/jobs?columns=job,why&sort=x&user=").text


def test_the_form_of_the_first_view_keeps_filters_for_which_it_has_no_field(
    anonymous: httpx.Client, database: Database
) -> None:
    job = add_job(database)
    text = anonymous.get(f"/ui/jobs?from=1&to=9999999999&array={job}&user=alice&after=0").text
    form = text.partition('<form method="get" class="filters">')[2].partition("</form>")[0]
    hidden = re.findall(r'<input type="hidden" name="(\w+)" value="(\w+)">', form)
    assert hidden == [("from", "1"), ("to", "9999999999"), ("array", str(job))]


def test_names_are_text_in_the_first_view(anonymous: httpx.Client, database: Database) -> None:
    job = add_job(database, name="<script>alert(1)</script>", project='"><img src=x>')
    for path in ("/ui/jobs", f"/ui/jobs/{job}"):
        text = anonymous.get(path).text
        assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text
        assert "<img" not in text
        assert "<script>" not in text


def test_the_grid_has_a_letter_for_each_resource(anonymous: httpx.Client, database: Database) -> None:
    resources = add_resources(database)
    job = add_job(database, JobState.RUNNING, on=resources[:2], name="sim")
    with database.begin() as tx:
        state_changes.suspect(tx, ["node-2"], finaud=False)
    record = anonymous.get("/v1/grid", params={"group": "type"}).json()
    assert [(node["name"], node["marks"], node["held"], node["group"]) for node in record["items"]] == [
        ("node-1", "uu", [[0, 2, job]], "default"),
        ("node-2", "ss", [], "default"),
    ]
    assert (record["letters"]["u"], record["total"]["used"], record["total"]["suspected"]) == ("used", 2, 2)
    assert [(each["id"], each["user"], each["name"]) for each in record["jobs"]] == [(job, "alice", "sim")]
    assert anonymous.get("/v1/grid", params={"group": "colour"}).status_code == 400


def test_resources_are_chosen_by_values_of_properties(anonymous: httpx.Client, database: Database) -> None:
    resources = add_resources(database, nodes=3)
    with database.begin() as tx:
        tx.resources.set_property(resources[:1], "besteffort", "NO")
        tx.resources.set_property(resources[4:], "deploy", "YES")

    def shown(*props: str) -> dict[str, str]:
        items = anonymous.get("/v1/grid", params={"props": props}).json()["items"]
        return {item["name"]: item["marks"] for item in items}

    assert shown("besteffort=NO") == {"node-1": "f"}
    assert shown("besteffort=NO", "besteffort=YES") == {"node-1": "ff", "node-2": "ff", "node-3": "ff"}
    assert shown("besteffort=YES", "deploy=YES") == {"node-3": "ff"}
    assert shown("deploy=a=b") == {}
    for wrong, said in (("colour=red", "no property 'colour'"), ("deploy", "must be deploy=VALUE")):
        refused = anonymous.get("/v1/grid", params={"props": wrong})
        assert (refused.status_code, said in refused.json()["detail"]) == (400, True)
    text = anonymous.get("/ui/nodes?props=deploy=YES").text
    assert "2 resources: 2 free" in text
    assert ("node-3" in text, "node-1" in text) == (True, False)


def test_the_values_of_properties_are_told(anonymous: httpx.Client, database: Database) -> None:
    resources = add_resources(database, nodes=120, cores=1)
    with database.begin() as tx:
        tx.resources.set_property(resources[:1], "deploy", "YES")
    by_name = {item["name"]: item for item in anonymous.get("/v1/property-values").json()["items"]}
    assert by_name["deploy"] == {"name": "deploy", "values": ["NO", "YES"], "more": 0}
    assert (len(by_name["network_address"]["values"]), by_name["network_address"]["more"]) == (100, 20)
    assert not by_name.keys() & {"state", "besteffort"}  # no choice: the latter is the same everywhere


def test_the_dashboard_counts_what_the_grid_shows(known: Callable[[str], httpx.Client], database: Database) -> None:
    resources = add_resources(database, nodes=4)
    mine = add_job(database, JobState.RUNNING, on=resources[:1], user="nobody")
    add_job(database, user="daemon")
    add_resources(database, nodes=1, cores=3, state=ResourceState.ABSENT, available_upto=2_147_483_646)
    with database.begin() as tx:
        state_changes.suspect(tx, ["node-2"], finaud=False)
        tx.resources.set_property(resources[4:5], "drain", "YES")
    client = known("nobody")
    record = client.get("/v1/dashboard").json()
    sums = client.get("/v1/grid").json()["total"]
    assert record["resources"] == {"total": sum(sums.values()), **sums}
    assert {name: number for name, number in sums.items() if number} == {
        "used": 1,
        "free": 4,
        "draining": 1,
        "suspected": 2,
        "standby": 3,
    }
    assert ([job["id"] for job in record["jobs"]["items"]], record["jobs"]["total"]) == ([mine], 1)


def test_the_dashboard_tells_who_waits_for_longest_and_when_the_scheduler_looked(
    anonymous: httpx.Client, database: Database
) -> None:
    job = add_job(database)
    with database.begin() as tx:
        submitted = tx.now - 900
        tx.jobs.update(job, submission_time=submitted)
        tx.execute("UPDATE gantt_jobs_predictions SET start_time = %s WHERE moldable_job_id = 0", (submitted + 1,))
    record = anonymous.get("/v1/dashboard").json()
    oldest = {queue["name"]: queue["oldest_waiting"] for queue in record["queues"]}
    assert (oldest["default"], oldest["besteffort"], record["last_round"]) == (submitted, None, submitted + 1)


def test_jobs_that_run_are_on_the_dashboard_however_many_wait(
    known: Callable[[str], httpx.Client], database: Database
) -> None:
    user = "nobody"
    running = add_job(database, JobState.RUNNING, on=add_resources(database)[:1], user=user)
    waiting = [add_job(database, user=user) for _ in range(20)]
    page = known(user).get("/v1/dashboard").json()["jobs"]
    assert [job["id"] for job in page["items"]] == [running, *reversed(waiting[5:])]
    assert (page["total"], page["next"]) == (21, None)


def test_an_array_is_one_row_of_the_first_pages(known: Callable[[str], httpx.Client], database: Database) -> None:
    user = "nobody"
    others = [add_job(database, user=user) for _ in range(3)]
    array = add_array(database, 60, user=user)
    client = known(user)
    page = client.get("/v1/dashboard").json()["jobs"]
    assert [(job["id"], job["members"]["total"]) for job in page["items"]] == [
        (array[0], 60),
        *((job, 1) for job in reversed(others)),
    ]
    assert page["total"] == 63
    for path, filters in (("/ui/", ""), ("/ui/jobs", ""), ("/ui/jobs?user=me", "user=me&amp;")):
        text = client.get(path).text
        assert f'ui/jobs?{filters}array={array[0]}&amp;state=Waiting">and 59 more</a>' in text
        assert all(f"ui/jobs/{job}" in text for job in others)
        assert f"ui/jobs/{array[1]}" not in text
    unfolded = client.get(f"/ui/jobs?user=me&array={array[0]}&state=Waiting").text
    assert unfolded.count('<a class="job"') == 50
    following = unfolded.partition('rel="next" href="')[2].partition('"')[0].replace("&amp;", "&")
    assert client.get(f"/ui/jobs{following}").text.count('<a class="job"') == 10


def test_nodes_that_are_out_of_use_are_told_with_since_when(anonymous: httpx.Client, database: Database) -> None:
    add_resources(database, nodes=3)
    add_resources(database, nodes=1, cores=1, network_address="sleeper", state="Absent", available_upto=2_147_483_646)
    with database.begin() as tx:
        since = tx.now
        state_changes.suspect(tx, ["node-2"], finaud=False)
        tx.execute("UPDATE resources SET state = 'Dead' WHERE network_address = 'node-3'")  # since when is not known
    lost = {
        each["node"]: (each["state"], each["since"]) for each in anonymous.get("/v1/dashboard").json()["lost_nodes"]
    }
    assert lost == {"node-2": ("Suspected", since), "node-3": ("Dead", None)}
    assert anonymous.get("/v1/grid").json()["since"] == {"node-2": since}


def test_many_dead_nodes_do_not_hide_one_that_is_suspected(anonymous: httpx.Client, database: Database) -> None:
    add_resources(database, nodes=LOST_NODES + 2, cores=1)
    with database.begin() as tx:
        tx.execute("UPDATE resources SET state = 'Dead' WHERE network_address <> 'node-1'")
        tx.execute("UPDATE resources SET state = 'Suspected' WHERE network_address = 'node-1'")
        tx.execute("DELETE FROM resource_logs WHERE attribute = 'state'")
        tx.execute(
            "INSERT INTO resource_logs (resource_id, attribute, value, date_start)"
            " SELECT resource_id, 'state', state, CASE state WHEN 'Dead' THEN 2000 ELSE 1000 END FROM resources"
        )
    lost = anonymous.get("/v1/dashboard").json()["lost_nodes"]
    assert [each["state"] for each in lost] == ["Suspected"] + ["Dead"] * LOST_NODES


def test_nobody_has_no_jobs_on_the_dashboard(anonymous: httpx.Client, database: Database) -> None:
    add_job(database)
    record = anonymous.get("/v1/dashboard").json()
    assert record["jobs"] is None
    assert {queue["name"]: queue["jobs"] for queue in record["queues"]}["default"] == {"Waiting": 1}


def test_the_first_view_of_many_nodes_comes_by_pages(anonymous: httpx.Client, database: Database) -> None:
    add_resources(database, nodes=201, cores=1)
    first = anonymous.get("/ui/nodes").text
    assert first.count("../ui/nodes/node-") == 200
    after = first.partition('href="?after=')[2].partition('"')[0]
    second = anonymous.get(f"/ui/nodes?after={after}").text
    assert (second.count("../ui/nodes/node-"), "after=" in second) == (1, False)


def test_a_resource_that_can_be_woken_is_not_absent_in_the_grid(anonymous: httpx.Client, database: Database) -> None:
    add_resources(database, nodes=1, cores=2, state=ResourceState.ABSENT, available_upto=2_147_483_646)
    assert anonymous.get("/v1/grid").json()["items"][0]["marks"] == "zz"


def test_the_event_log_comes_by_pages_the_newest_first(local: httpx.Client, database: Database) -> None:
    job = add_job(database)
    with database.begin() as tx:
        for number in range(3):
            tx.events.add("TEST", job if number else 0, f"text {number}", hosts=["node-1"] if number == 2 else ())
    page = local.get("/v1/event-log", params={"limit": 2, "type": "TEST"}).json()
    assert [event["text"] for event in page["items"]] == ["text 2", "text 1"]
    rest = local.get("/v1/event-log", params={"limit": 2, "type": "TEST", "before": page["next"]}).json()
    assert ([event["text"] for event in rest["items"]], rest["next"]) == (["text 0"], None)
    assert [event["text"] for event in local.get("/v1/event-log", params={"node": "node-1"}).json()["items"]] == [
        "text 2"
    ]
    assert len(local.get("/v1/event-log", params={"job": job, "type": "TEST"}).json()["items"]) == 2


def test_texts_of_events_are_for_who_is_known(anonymous: httpx.Client, database: Database) -> None:
    with database.begin() as tx:
        tx.events.add("TEST", 0, "secret")
    assert anonymous.get("/v1/event-log", params={"type": "TEST"}).json()["items"][0]["text"] == ""
    assert "secret" not in anonymous.get("/ui/events").text


def test_a_job_comes_with_all_that_its_page_shows(anonymous: httpx.Client, database: Database) -> None:
    job = add_job(database)
    record = anonymous.get(f"/v1/jobs/{job}", params={"everything": True}).json()
    assert record["explanation"]["sentence"] == "The scheduler has not considered it yet."
    assert [state["state"] for state in record["states"]] == ["Waiting"]
    (listed,) = anonymous.get("/v1/jobs", params={"outlook": True}).json()["items"]
    assert listed["outlook"]["why"] == ""


@pytest.mark.parametrize(
    ("query", "place"),
    [
        ("", "/ui/gantt"),
        ("?start=1700000000&stop=1700086400&filter=all&timezone=UTC", "/ui/gantt?from=1700000000&to=1700086400"),
        ("?start=1700000000&timespan=3600", "/ui/gantt?from=1700000000&to=1700003600"),
        (
            "?start=5&stop=9&resource_base=cpuset&scale=20",
            "/ui/gantt?rows=network_address%2Ccpuset&from=5&to=9",
        ),
        ("?start=9&stop=5", "/ui/gantt"),
        ("?filter=all%20clusters", "/ui/gantt"),
        ("?filter=resources.type%20=%20'default'", "/ui/gantt"),
        ("?filter=resources.cluster='hot'", "/ui/gantt?rows=cluster%2Cnetwork_address&node=hot"),
        ("?filter=network_address%20LIKE%20'node-1%25'&resource_base=network_address", "/ui/gantt?node=node-1"),
        ("?filter=host='n1'&resource_base=core", "/ui/gantt?rows=network_address%2Ccore&node=n1"),
        ("?filter=1=1)%20UNION%20SELECT", "/ui/gantt"),
        ("?start=1%20OR%201=1&stop=99999999999999999999", "/ui/gantt"),
        ("?year=20x4&month=Nov", "/ui/gantt"),
        ("?resource_base=%22%3E%3Cscript%3E", "/ui/gantt"),
    ],
)
def test_links_of_drawgantt_lead_to_what_they_showed(anonymous: httpx.Client, query: str, place: str) -> None:
    for path in ("/drawgantt-svg/", "/drawgantt", "/drawgantt-svg/drawgantt-svg.php", "/ui/drawgantt.php"):
        answer = anonymous.get(f"{path}{query}")
        assert (answer.status_code, _led(answer)) == (302, place), path


@pytest.mark.parametrize("path", sorted((*MONIKA, *DRAWGANTT)))
def test_every_address_of_the_old_pages_leads_to_a_page(anonymous: httpx.Client, path: str) -> None:
    assert anonymous.get(path, follow_redirects=True).url.path in ("/ui/nodes", "/ui/gantt")


def test_links_of_the_old_pages_lead_below_the_prefix_of_the_site(api: Api, anonymous: httpx.Client) -> None:
    api.runtime.config = Config(api_root_path="/cluster/")
    assert anonymous.get("/monika?job=42").headers["location"] == "/cluster/ui/jobs/42"
    assert anonymous.get("/drawgantt-svg/").headers["location"] == "/cluster/ui/gantt"


def test_relative_dates_of_drawgantt_count_from_now() -> None:
    asked = {"relative_start": "-3600", "relative_stop": "7200"}
    assert drawgantt_place(asked, 100_000) == "gantt?from=96400&to=107200"


def test_dates_of_the_first_drawgantt_are_understood() -> None:
    asked = {"year": "2024", "month": "Nov", "day": "5", "hour": "12", "range": "3 days"}
    begin = int(datetime(2024, 11, 5, 12).astimezone().timestamp())
    assert drawgantt_place(asked, 0) == f"gantt?from={begin}&to={begin + 3 * 86400}"
