"""Lists on the addresses of OAR 2.5 and OAR 3: which jobs, which fields, in which order, and what a site chooses."""

import json
from typing import Any
from urllib.parse import urljoin

import httpx
import pytest

from oar.api.legacy import jobs as legacy_jobs
from oar.lib.config.files import Config
from oar.lib.db.database import Database
from oar.lib.jobs import sql_listings
from oar.lib.jobs.states import JobState
from tests.api.conftest import Api
from tests.builders import add_job, add_resources


def _ids(client: httpx.Client, query: str) -> list[int]:
    answer = client.get(f"/jobs.json?{query}")
    assert answer.status_code == 200, answer.text
    return [item["id"] for item in answer.json()["items"]]


def test_a_site_says_which_jobs_are_listed_when_none_are_chosen(
    api: Api, anonymous: httpx.Client, database: Database
) -> None:
    waiting, done = add_job(database, user="alice"), add_job(database, JobState.TERMINATED, user="alice")
    assert _ids(anonymous, "user=alice") == [waiting]
    assert _ids(anonymous, "states=all") == [waiting, done]
    api.runtime.config = Config(api_rate_read=0, api_jobs_uri_default_params="state=Terminated&limit=5")
    assert _ids(anonymous, "") == _ids(anonymous, "user=alice") == [done]
    assert _ids(anonymous, "state=Waiting") == [waiting]
    assert _ids(anonymous, f"ids={waiting}") == [waiting]
    links = anonymous.get("/jobs").json()["links"]
    assert links[0]["href"] == "/jobs?state=Terminated&limit=5&offset=0"


def test_a_site_says_whether_lists_are_by_id(api: Api, anonymous: httpx.Client, database: Database) -> None:
    (resource, *_), job = add_resources(database), add_job(database)
    api.runtime.config = Config(api_rate_read=0, api_default_data_structure="oar")
    assert set(anonymous.get("/jobs").json()) == {str(job)}
    assert str(resource) in anonymous.get("/resources").json()
    assert anonymous.get("/jobs?structure=simple").json()["total"] == 1
    assert anonymous.get("/jobs?structure=odd").status_code == 400


@pytest.mark.parametrize("address", ["/jobs", "/jobs/", "/oarapi/jobs", "/oarapi/jobs/details.json", "/jobs/details"])
def test_links_lead_to_the_same_place_where_they_are_relative(
    api: Api, anonymous: httpx.Client, database: Database, address: str
) -> None:
    for _ in range(3):
        add_job(database)
    whole = anonymous.get(address, params={"limit": 2}).json()
    api.runtime.config = Config(api_rate_read=0, api_absolute_uris=False)
    relative = anonymous.get(address, params={"limit": 2}).json()
    base = f"http://oar{address}"
    pairs = list(zip(whole["links"], relative["links"], strict=True))
    pairs += list(zip(whole["items"][0]["links"], relative["items"][0]["links"], strict=True))
    for one, other in pairs:
        assert not other["href"].startswith("/")
        assert urljoin(base, other["href"]) == urljoin(base, one["href"])


@pytest.mark.parametrize("address", ["/oarapi", "/oarapi/", "/"])
def test_links_of_the_beginning_are_relative_too(api: Api, anonymous: httpx.Client, address: str) -> None:
    api.runtime.config = Config(api_rate_read=0, api_absolute_uris=False)
    if address == "/":  # the page of the site
        address = "/oarapi-priv/"
    links = anonymous.get(address).json()["links"]
    targets = {urljoin(f"http://oar{address}", each["href"]) for each in links}
    assert f"http://oar/{address.strip('/')}/jobs" in targets


def test_pages_behind_an_id_are_followed_to_the_end(anonymous: httpx.Client, database: Database) -> None:
    jobs = [add_job(database) for _ in range(5)]
    for begin, expected in (("before_id=999999999", jobs[::-1]), ("after_id=0", jobs)):
        href, seen = f"/jobs?limit=2&{begin}", []
        while href:
            page = anonymous.get(href).json()
            seen += [item["id"] for item in page["items"]]
            href = next((each["href"] for each in page["links"] if each["rel"] == "next"), "")
        assert seen == expected
    assert _ids(anonymous, "order=-id&limit=2&offset=1") == jobs[3:1:-1]
    assert anonymous.get("/jobs?order=start_time").status_code == 400


def test_only_the_fields_that_are_asked_for_come(anonymous: httpx.Client, database: Database) -> None:
    job, resources = add_job(database, user="alice"), add_resources(database)
    assert anonymous.get("/jobs?fields=id,owner").json()["items"] == [{"id": job, "owner": "alice"}]
    first = anonymous.get("/resources/full?fields=id,cpuset&limit=1").json()["items"]
    assert first == [{"id": resources[0], "cpuset": 0}]
    refused = anonymous.get("/jobs?fields=id,ownr").json()
    assert (refused["status"], refused["field"], refused["hint"]) == (400, "fields", "did you mean 'owner'?")
    assert anonymous.get("/jobs?fields=owner&structure=oar").json() == {str(job): {"owner": "alice"}}


def test_no_value_is_none_of_it_but_for_states_and_ids(anonymous: httpx.Client, database: Database) -> None:
    waiting, done = add_job(database, user="alice"), add_job(database, JobState.TERMINATED, user="alice")
    for query, expected in (
        ("state=", [waiting, done]),
        ("states=", [waiting, done]),
        ("ids=", []),
        ("job_ids=", []),
        ("array=", [waiting]),
        ("from=&to=", [waiting]),
        ("since=", [waiting]),
        ("user=&queue=&limit=&offset=&order=&fields=", [waiting]),
    ):
        assert _ids(anonymous, query) == expected, query


def test_ids_and_a_condition_hold_together(nobody: httpx.Client, database: Database) -> None:
    first, second = add_job(database, user="alice"), add_job(database, user="bob")
    assert _ids(nobody, f"ids={first}:{second}&sql=job_user='bob'") == [second]
    assert _ids(nobody, "sql=job_user='alice'&states=all") == [first]


def test_jobs_that_ended_since_are_listed_with_those_that_live(anonymous: httpx.Client, database: Database) -> None:
    waiting, done = add_job(database), add_job(database, JobState.TERMINATED)
    assert _ids(anonymous, "since=1") == [waiting, done]


def test_many_jobs_are_not_counted(
    anonymous: httpx.Client, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(4):
        add_job(database)
    monkeypatch.setattr("oar.lib.jobs.sql_listings.MOST_COUNTED", 2)
    monkeypatch.setattr("oar.api.legacy.jobs.MOST_COUNTED", sql_listings.MOST_COUNTED)
    page = anonymous.get("/jobs").json()
    assert page["total_is_estimate"] is True
    assert page["total"] >= 3


def test_jobs_of_a_node_and_of_the_values_of_a_property(anonymous: httpx.Client, database: Database) -> None:
    resources = add_resources(database)
    running = add_job(database, JobState.RUNNING, on=resources[:1])
    done = add_job(database, JobState.TERMINATED, on=resources[:1])
    for query, expected in (("", [running]), ("?state=Terminated", [done]), ("/details?states=all", [running, done])):
        page = anonymous.get(f"/resources/nodes/node-1/jobs{query}").json()
        assert [item["id"] for item in page["items"]] == expected, query
    assert anonymous.get("/resources/nodes/none/jobs").status_code == 404
    grouped = anonymous.get("/resources/network_address/jobs").json()["items"]
    assert [each["id"] for each in grouped[0]["jobs"]] == [running]
    assert anonymous.get("/resources/odd/jobs").status_code == 404


@pytest.mark.parametrize("address", ["/jobs", "/oarapi/jobs/details", "/jobs/table", "/jobs?order=-id"])
def test_all_jobs_come_as_lines(
    anonymous: httpx.Client, database: Database, monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    for _ in range(5):
        add_job(database)
    monkeypatch.setattr(legacy_jobs, "EXPORT_PAGE", 2)
    whole = anonymous.get(address).json()["items"]
    path, _, query = address.partition("?")
    for answer in (
        anonymous.get(f"{path}.ndjson?{query}&limit=1"),
        anonymous.get(address, headers={"Accept": "application/x-ndjson"}),
    ):
        assert (answer.status_code, answer.headers["content-type"]) == (200, "application/x-ndjson")
        assert [_undated(json.loads(line)) for line in answer.text.splitlines()] == [_undated(item) for item in whole]
    assert len(whole) == 5


def test_other_lists_come_as_lines_and_what_is_no_list_is_one(
    api: Api, anonymous: httpx.Client, database: Database
) -> None:
    ids = add_resources(database, nodes=3)
    api.runtime.config = Config(api_rate_read=0, api_default_max_items_number=1, api_default_data_structure="oar")
    lines = anonymous.get("/resources/full.ndjson").text.splitlines()
    assert [json.loads(line)["id"] for line in lines] == ids
    (line,) = anonymous.get("/version.ndjson").text.splitlines()
    assert "oar_version" in json.loads(line)
    add_job(database)
    problem = anonymous.get("/jobs.ndjson?fields=nothing")
    assert (problem.status_code, json.loads(problem.text)["type"]) == (400, "bad-request")


def _undated(item: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in item.items() if name not in ("api_timestamp", "links")}
