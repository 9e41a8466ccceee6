"""Who has seen another version of what he changes, changes nothing."""

from collections.abc import Callable
from typing import NamedTuple

import httpx
import pytest

from oar.lib.config.files import Config
from oar.lib.db.database import Database
from oar.lib.jobs.states import JobState
from tests.api.conftest import Api
from tests.builders import add_job, add_resources


def _seen(client: httpx.Client, job: int) -> dict[str, str]:
    answer = client.get(f"/v1/jobs/{job}")
    assert answer.headers["etag"].startswith(f'W/"{answer.json()["version"]}-')
    return {"If-Match": answer.headers["etag"]}


def _hold(client: httpx.Client, job: int) -> None:
    assert client.post(f"/v1/jobs/{job}/hold").status_code == 202


@pytest.mark.parametrize(
    "change",
    [
        lambda client, job, match: client.patch(f"/v1/jobs/{job}", json={"name": "new"}, headers=match),
        lambda client, job, match: client.delete(f"/v1/jobs/{job}", headers=match),
    ],
)
def test_of_another_version_nothing_is_changed(
    nobody: httpx.Client,
    database: Database,
    change: Callable[[httpx.Client, int, dict[str, str]], httpx.Response],
) -> None:
    add_resources(database)
    job = add_job(database, user="nobody", name="old")
    seen = _seen(nobody, job)
    _hold(nobody, job)
    refused = change(nobody, job, seen)
    assert (refused.status_code, refused.json()["type"]) == (412, "other-version")
    record = nobody.get(f"/v1/jobs/{job}").json()
    assert (record["name"], record["state"]) == ("old", "Hold")
    # The present version comes with the refusal, and lets the change be made.
    present = {"If-Match": refused.headers["etag"]}
    assert change(nobody, job, present).status_code in (200, 202)
    assert change(nobody, job, present).status_code == 412


def test_a_version_is_named_by_a_tag_or_itself_or_any(nobody: httpx.Client, database: Database) -> None:
    job = add_job(database, user="nobody")
    for match in ("*", '"{}"', '"0.Error", W/"{}-abc"'):
        version = nobody.get(f"/v1/jobs/{job}").json()["version"]
        again = nobody.delete(f"/v1/jobs/{job}", headers={"If-Match": match.format(version)})
        assert again.status_code != 412, match
    assert nobody.delete(f"/v1/jobs/{job}", headers={"If-Match": "nonsense"}).status_code == 412
    assert nobody.delete("/v1/jobs/999999", headers={"If-Match": "nonsense"}).status_code == 404


def test_a_plan_is_no_version(nobody: httpx.Client, database: Database) -> None:
    job = add_job(database, user="nobody")
    seen = _seen(nobody, job)
    with database.begin() as tx:
        (moldable,) = tx.new_jobs.moldables_of_jobs([job])[job]
        tx.execute("INSERT INTO gantt_jobs_predictions_visu VALUES (%s, 2000000000)", (moldable.id,))
    assert nobody.get(f"/v1/jobs/{job}").json()["planned"] == 2000000000
    assert nobody.delete(f"/v1/jobs/{job}", headers=seen).status_code == 202


def test_an_administrator_who_has_seen_another_job_changes_nothing(local: httpx.Client, database: Database) -> None:
    job = add_job(database, JobState.RUNNING, on=add_resources(database)[:1])
    answer = local.put(f"/v1/jobs/{job}/besteffort", json={"on": True}, headers={"If-Match": '"0.Waiting"'})
    assert answer.status_code == 412
    assert local.get(f"/v1/jobs/{job}").json()["types"] == []


class Thing(NamedTuple):
    """Something that administrators change."""

    route: str
    meanwhile: tuple[str, object]  #: how another one changes it
    change: tuple[str, object]  #: by who has seen the former
    kept: tuple[str, object]


THINGS = [
    Thing("queues/default", ("PATCH", {"priority": 7}), ("PATCH", {"priority": 1}), ("priority", 7)),
    Thing("queues/default", ("PATCH", {"enabled": False}), ("DELETE", None), ("state", "notActive")),
    Thing("usersets/team", ("PUT", {"entries": ["carol"]}), ("DELETE", None), ("entries", ["bob", "carol"])),
    Thing("usersets/team", ("PUT", {"entries": ["carol"]}), ("PUT", {"entries": ["x"]}), ("entries", ["bob", "carol"])),
    Thing("admission-rules/{rule}", ("PATCH", {"priority": 9}), ("PATCH", {"text": "2"}), ("text", "1")),
    Thing("admission-rules/{rule}", ("PATCH", {"priority": 9}), ("DELETE", None), ("text", "1")),
]


@pytest.mark.parametrize("thing", THINGS, ids=str)
def test_what_another_administrator_has_changed_meanwhile_stays(local: httpx.Client, api: Api, thing: Thing) -> None:
    api.runtime.config = Config(api_admission_rules=True, api_rate_read=0, api_rate_change=0)
    rule = local.post("/v1/admission-rules", json={"text": "1"}).json()["id"]
    local.put("/v1/usersets/team", json={"entries": ["bob"]})
    address = f"/v1/{thing.route.format(rule=rule)}"
    seen = local.get(address)
    assert seen.headers["etag"].startswith(f'W/"{seen.json()["version"]}-')
    match = {"If-Match": seen.headers["etag"]}
    assert local.request(thing.meanwhile[0], address, json=thing.meanwhile[1], headers=match).status_code == 200
    refused = local.request(thing.change[0], address, json=thing.change[1], headers=match)
    assert (refused.status_code, refused.json()["type"]) == (412, "other-version")
    name, value = thing.kept
    assert local.get(address).json()[name] == value
    again = {"If-Match": refused.headers["etag"]}
    assert local.request(thing.change[0], address, json=thing.change[1], headers=again).status_code == 200


def test_a_resource_that_somebody_has_changed_meanwhile_stays(local: httpx.Client, database: Database) -> None:
    first, second = add_resources(database, nodes=1)
    address = f"/v1/resources/{first}"
    seen = local.get(address)
    assert seen.headers["etag"].startswith(f'W/"{seen.json()["version"]}-')
    match = {"If-Match": seen.headers["etag"]}
    drain, undrain = {"ids": [first], "drain": True}, {"ids": [first], "drain": False}
    assert local.patch("/v1/resources", json={**drain, "ids": [second]}).status_code == 202
    assert local.patch("/v1/resources", json=drain, headers=match).status_code == 202
    for refused in (
        local.patch("/v1/resources", json=undrain, headers=match),
        local.delete(address, headers=match),
    ):
        assert (refused.status_code, refused.json()["type"]) == (412, "other-version")
    assert local.get(address).json()["drain"] == "YES"
    assert local.patch("/v1/resources", json={**undrain, "ids": [first, second]}, headers=match).status_code == 400
    again = {"If-Match": refused.headers["etag"]}
    assert local.patch("/v1/resources", json=undrain, headers=again).status_code == 202


def test_a_property_that_was_made_anew_is_another_one(local: httpx.Client) -> None:
    local.post("/v1/properties", json={"name": "rack", "type": "int"})
    match = {"If-Match": local.get("/v1/properties/rack").headers["etag"]}
    local.delete("/v1/properties/rack")
    assert local.patch("/v1/properties/rack", json={"name": "shelf"}, headers=match).status_code == 404
    local.post("/v1/properties", json={"name": "rack", "type": "varchar"})
    assert local.delete("/v1/properties/rack", headers=match).status_code == 412
    assert local.get("/v1/properties/rack").json()["type"] == "varchar"
    present = {"If-Match": local.get("/v1/properties/rack").headers["etag"]}
    assert local.delete("/v1/properties/rack", headers=present).status_code == 200


def test_one_queue_is_found_by_its_name(anonymous: httpx.Client) -> None:
    assert anonymous.get("/v1/queues/default").json() in anonymous.get("/v1/queues").json()["items"]
    assert anonymous.get("/v1/queues/nowhere").status_code == 404


def test_a_resource_of_which_nothing_was_logged_has_a_version(local: httpx.Client, database: Database) -> None:
    with database.begin() as tx:  # as old databases and inserts by hand leave it
        (resource,) = tx.resources.insert([{"network_address": "node-1"}])
    address = f"/v1/resources/{resource}"
    seen = local.get(address)
    assert (seen.status_code, local.get(f"{address}/log").json()["items"]) == (200, [])
    change, match = {"ids": [resource], "drain": True}, {"If-Match": seen.headers["etag"]}
    assert local.patch("/v1/resources", json=change, headers=match).status_code == 202
    assert local.patch("/v1/resources", json=change, headers=match).status_code == 412
    assert local.delete(f"/v1/resources/{resource + 1}", headers=match).status_code == 404
