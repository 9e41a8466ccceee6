"""Addresses are found with and without a slash, by HEAD as by GET, and tell which methods they take."""

import json
import re

import httpx
import pytest

from oar.lib.config.files import Config
from oar.lib.db.database import Database
from tests.api.conftest import Api
from tests.builders import add_job, add_resources


@pytest.mark.parametrize("path", ["/v1/jobs", "/v1/version", "/health/live", "/v1/jobs/{job}", "/v1/gantt/index"])
def test_a_slash_at_the_end_changes_nothing(anonymous: httpx.Client, database: Database, path: str) -> None:
    address = path.format(job=add_job(database))
    without, with_one = anonymous.get(address), anonymous.get(f"{address}/")
    assert without.status_code == with_one.status_code
    assert without.json().keys() == with_one.json().keys()


def test_a_body_is_taken_behind_a_slash(nobody: httpx.Client) -> None:
    answers = [nobody.post(f"/v1/job-acts{end}", json={"act": "odd"}).json()["detail"] for end in ("", "/")]
    assert answers[0] == answers[1]


@pytest.mark.parametrize(
    "path", ["/v1/jobs", "/v1/stream", "/health/live", "/jobs", "/metrics", "/ui/", "/v1/jobs/999"]
)
def test_the_head_of_an_answer_is_that_of_the_answer(anonymous: httpx.Client, path: str) -> None:
    head = anonymous.head(path)
    assert head.content == b""
    with anonymous.stream("GET", path) as answer:
        assert (head.status_code, head.headers["content-type"]) == (answer.status_code, answer.headers["content-type"])
        assert path == "/ui/" or head.headers.get("content-length") == answer.headers.get("content-length")


def test_other_methods_are_told_which_there_are(anonymous: httpx.Client) -> None:
    for path, allowed in (
        ("/v1/jobs", "GET, HEAD, POST"),
        ("/v1/jobs/1", "DELETE, GET, HEAD, PATCH"),
        ("/v1/estimates/", "POST"),
    ):
        refused = anonymous.put(path, json={})
        assert (refused.status_code, refused.headers["allow"]) == (405, allowed)
    assert anonymous.request("TRACE", "/v1/jobs").status_code == 405


def test_the_beginning_of_v1_leads_to_all_that_can_be_read(api: Api, anonymous: httpx.Client) -> None:
    entry = anonymous.get("/v1").json()
    links = {each["rel"]: each["href"] for each in entry["links"]}
    assert {"self", "service-desc", "service-doc", "jobs_list", "nodes_list", "reservations_list"} <= set(links)
    for address in links.values():
        with anonymous.stream("GET", address) as answer:
            if address == "/v1/rounds":  # the server is asked, which does not run
                assert (answer.status_code, json.loads(answer.read())["type"]) == (503, "server-unavailable")
                continue
            assert answer.status_code in (200, 400, 401, 403), address  # 400: it needs parameters
    api.runtime.config = Config(api_root_path="/oar/")
    assert anonymous.get("/v1").json()["links"][0]["href"] == "/oar/v1"


def test_what_was_made_is_named_by_its_address_outside(api: Api, nobody: httpx.Client, database: Database) -> None:
    add_resources(database)
    api.runtime.config = Config(api_trusted_proxies=("127.0.0.0/8",), api_root_path="/oar")
    made = [
        nobody.post("/v1/jobs", json={"command": "true"}, headers=headers)
        for headers in ({}, {"X-API-Path-Prefix": "/cluster"})
    ]
    assert [each.headers["location"] for each in made] == [
        f"{before}/v1/jobs/{each.json()['id']}" for each, before in zip(made, ("/oar", "/cluster"), strict=True)
    ]


@pytest.mark.parametrize("root", ["/cluster", "/one/two", "/oarapi"])
def test_addresses_are_found_below_the_path_of_the_site_and_without_it(
    api: Api, anonymous: httpx.Client, nobody: httpx.Client, database: Database, root: str
) -> None:
    job = add_job(database, user="nobody")
    api.runtime.config = Config(api_root_path=root, api_rate_read=0, api_rate_change=0)
    for path in ("/v1/whoami", f"/v1/jobs/{job}", "/health/live", f"/jobs/{job}.json", "/ui/login", "/openapi.json"):
        within, without = anonymous.get(root + path), anonymous.get(path)
        assert (within.status_code, without.status_code) == (200, 200), path
    for before in ("", root):
        for link in anonymous.get(f"{before}/v1").json()["links"][:3]:
            assert anonymous.get(link["href"]).status_code == 200
        item = anonymous.get(f"{before}/jobs").json()["items"][0]
        assert anonymous.get(item["links"][0]["href"]).json()["id"] == job
        assert "../../" not in anonymous.get(f"{before}/ui/login").text
        assert anonymous.get(f"{before}/", headers={"Accept": "text/html"}).headers["location"] == f"{root}/ui/"
    assert nobody.post(f"{root}/v1/jobs/{job}/hold", json={}).status_code == 202
    assert anonymous.get(root).json()["links"][0]["href"] == f"{root}/"
    assert anonymous.get(f"{root}x/v1/whoami").status_code == 404


def test_no_path_of_a_site_hides_our_own_addresses(api: Api, anonymous: httpx.Client, database: Database) -> None:
    job = add_job(database)
    api.runtime.config = Config(api_root_path="/jobs", api_rate_read=0)  # the web server takes it away
    assert anonymous.get(f"/jobs/{job}").json()["links"][0]["href"] == f"/jobs/jobs/{job}"


def test_a_path_that_a_trusted_proxy_tells_is_in_links_and_not_taken_away(api: Api, anonymous: httpx.Client) -> None:
    told = {"X-API-Path-Prefix": "/cluster"}
    api.runtime.config = Config(api_trusted_proxies=("127.0.0.0/8",), api_root_path="/oar", api_rate_read=0)
    assert anonymous.get("/cluster/v1/version", headers=told).status_code == 404
    for path in ("/v1", "/oar/v1"):
        assert anonymous.get(path, headers=told).json()["links"][0]["href"] == "/cluster/v1"


def test_what_is_not_found_or_not_taken_is_told_a_way_out(anonymous: httpx.Client) -> None:
    assert "/v1" in anonymous.get("/nothing").json()["hint"]
    assert anonymous.put("/v1/jobs", json={}).json()["hint"] == "it takes GET, HEAD, POST"


def test_the_first_address_is_for_programs_and_for_people(anonymous: httpx.Client) -> None:
    assert anonymous.get("/").json()["links"][0] == {"rel": "self", "href": "/"}
    people = anonymous.get("/", headers={"Accept": "text/html,*/*;q=0.8"})
    assert (people.status_code, people.headers["location"]) == (302, "ui/")
    assert anonymous.get("/oarapi/index.html").headers["content-type"].startswith("text/html")


@pytest.mark.parametrize("method", ["get", "post", "put", "patch", "delete"])
def test_no_address_takes_a_parameter_that_it_does_not_have(anonymous: httpx.Client, method: str) -> None:
    document = anonymous.get("/openapi.json").json()
    paths = [path for path, all_of in document["paths"].items() if path.startswith("/v1") and method in all_of]
    for path in paths:
        answer = anonymous.request(method, re.sub(r"\{[^}]+\}", "1", path), params={"form": "1"})
        assert (answer.status_code, answer.json().get("field")) == (400, "form"), path


def test_a_misspelt_parameter_of_a_question_is_told_its_name(anonymous: httpx.Client) -> None:
    for path, given, meant in (
        ("/v1/usage", "form", "from"),
        ("/v1/predictions", "sinse", "since"),
        ("/v1/jobs/1", "included", "include"),
        ("/v1/jobs/1/output/stdout", "folow", "follow"),
    ):
        answer = anonymous.get(path, params={given: "1"})
        assert (answer.status_code, answer.json()["hint"]) == (400, f"did you mean {meant!r}?"), path
    assert anonymous.head("/v1/whoami", params={"x": "1"}).status_code == 400


def test_older_addresses_take_what_their_clients_send_besides(anonymous: httpx.Client) -> None:
    for path in ("/whoami", "/oarapi/jobs", "/resources.json", "/version"):
        assert anonymous.get(path, params={"_": "1700000000000", "callback": "x"}).status_code == 200, path
