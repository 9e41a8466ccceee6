"""Advance reservations are asked for, changed and deleted through the API, and a scheduler answers."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from oar.cli import qralter, qrstat, qrsub
from oar.cli.common.command import Command, invoke
from oar.lib.access.records import User
from oar.lib.base.grid_engine_times import write_option_date
from oar.lib.config.files import Config
from oar.lib.db.database import Database
from oar.lib.runtime import Runtime
from tests.api.conftest import Api
from tests.api.scheduling import scheduling
from tests.builders import add_resources

HOUR = {"duration": 3600, "resources": ["nodes=1"]}


@pytest.fixture
def scheduler(api: Api, database: Database) -> Iterator[None]:
    """A scheduler that makes round after round."""
    api.runtime.config = Config(api_rate_read=0, api_rate_change=0, reservation_open=True)
    with scheduling(api, database):
        yield


def _ask(client: httpx.Client, **wish: object) -> httpx.Response:
    return client.post("/v1/reservations", json={**HOUR, **wish})


@pytest.mark.usefixtures("scheduler")
def test_a_reservation_is_granted_changed_and_deleted(
    nobody: httpx.Client, daemon: httpx.Client, anonymous: httpx.Client, database: Database
) -> None:
    add_resources(database)
    granted = _ask(nobody, start="+1h", name="course", users=["nobody", "daemon"])
    assert granted.status_code == 201, granted.text
    (record,) = granted.json()["items"]
    assert (record["ar_name"], record["owner"], record["duration"]) == ("course", "nobody", 3600)
    place = granted.headers["location"]
    assert anonymous.patch(place, json={"name": "x"}).status_code == 401
    assert (daemon.patch(place, json={"name": "x"}).status_code, daemon.delete(place).status_code) == (403, 403)
    assert nobody.patch(place, json={"name": "lecture"}).json()["ar_name"] == "lecture"
    seen = {"If-Match": nobody.get(place).headers["etag"]}
    assert nobody.patch(place, json={"name": "seminar"}, headers=seen).status_code == 200
    assert nobody.patch(place, json={"name": "lesson"}, headers=seen).status_code == 412
    assert nobody.delete(place, headers=seen).status_code == 412
    assert nobody.get(place).json()["ar_name"] == "seminar"
    longer = nobody.patch(place, json={"duration": 7200, "start": record["start_time"] + 600})
    assert (longer.json()["duration"], longer.json()["start_time"]) == (7200, record["start_time"] + 600)
    assert nobody.patch(place, json={}).status_code == 400
    assert nobody.delete(place).json()["done"] == "deleted"
    assert (nobody.delete(place).status_code, nobody.patch(place, json={"name": "x"}).status_code) == (404, 404)


@pytest.mark.usefixtures("scheduler")
def test_what_cannot_be_granted_says_why_and_when(nobody: httpx.Client, database: Database) -> None:
    add_resources(database)
    first = _ask(nobody, start="+1h", resources=["nodes=2"]).json()["items"][0]
    refused = _ask(nobody, start="+90m", resources=["nodes=2"])
    assert (refused.status_code, refused.json()["type"]) == (409, "reservation-refused")
    assert refused.json()["proposal"] >= first["end_time"]
    tried = nobody.post("/v1/reservation-trials", json={**HOUR, "start": "+90m", "resources": ["nodes=2"]}).json()
    assert (tried["granted"], tried["items"], bool(tried["reason"])) == (False, [], True)
    kept = nobody.patch(f"/v1/reservations/{first['id']}", json={"resources": ["nodes=9"]})
    assert kept.status_code in (400, 409)
    possible = nobody.post("/v1/reservation-trials", json={**HOUR, "start": "+8h"}).json()
    assert (possible["granted"], len(possible["items"])) == (True, 1)


@pytest.mark.usefixtures("scheduler")
def test_a_change_is_tried_as_by_the_command_and_nothing_is_stored(
    api: Api, nobody: httpx.Client, daemon: httpx.Client, database: Database
) -> None:
    add_resources(database)
    first = _ask(nobody, start="+1h", resources=["nodes=2"]).json()["items"][0]
    behind = _ask(nobody, start=write_option_date(first["end_time"] + 600), resources=["nodes=2"]).json()["items"][0]
    place = f"/v1/reservations/{first['id']}"
    runtime = Runtime(api.runtime.config, Database(database.settings))

    def typed(*words: str) -> dict[str, Any]:
        line = ["-w", "v", "-J", *words, str(first["id"])]
        (told,) = json.loads(invoke(qralter.main, line, runtime=runtime, user=User("nobody", 65534)).out).values()
        assert isinstance(told, dict)
        return told

    tried = nobody.post(f"{place}/trials", json={"duration": 4000}).json()
    assert tried == {
        "granted": True,
        "start_time": first["start_time"],
        "end_time": first["start_time"] + 4000,
        "resources": first["resources"],
        "ended_jobs": [],
        "lost_jobs": [],
        "reason": None,
        "proposal": None,
    }
    assert typed("-d", "4000")["ok"]
    refused, said = nobody.post(f"{place}/trials", json={"duration": 7200}).json(), typed("-d", "7200")
    assert (refused["granted"], refused["start_time"]) == (False, None)
    assert (refused["reason"], refused["proposal"]) == (said["reason"], said["proposal"])
    assert refused["proposal"] == behind["start_time"]
    assert nobody.post(f"{place}/trials", json={"name": "lecture"}).json()["granted"]
    assert nobody.get(place).json()["revision"] == 1
    assert daemon.post(f"{place}/trials", json={"name": "x"}).status_code == 403
    assert nobody.post("/v1/reservations/999/trials", json={"name": "x"}).status_code == 404


@pytest.mark.usefixtures("scheduler")
def test_routes_tell_what_commands_tell(api: Api, nobody: httpx.Client, database: Database) -> None:
    add_resources(database)
    runtime = Runtime(api.runtime.config, Database(database.settings))

    def typed(command: Command, *words: str) -> dict[str, Any]:
        told: dict[str, Any] = json.loads(
            invoke(command, [*words, "-J"], runtime=runtime, user=User("nobody", 65534)).out
        )
        return told

    first = _ask(nobody, start="+1h", resources=["nodes=2"], name="course").json()["items"][0]
    (shown,) = typed(qrstat.main, "-ar", "course").values()
    route = nobody.get(f"/v1/reservations/{first['id']}").json()
    assert {key: value for key, value in route.items() if key not in ("log", "version")} == shown == first

    begin = str(first["start_time"] + 600)
    refused = _ask(nobody, start=write_option_date(int(begin)), resources=["nodes=2"]).json()
    said = typed(qrsub.main, "-a", write_option_date(int(begin)), "-d", "3600", "-l", "nodes=2")
    assert (refused["proposal"], refused["reason"]) == (said["proposal"], said["reason"])
    assert refused["proposal"] == first["end_time"]
    unchanged = nobody.patch(f"/v1/reservations/{first['id']}", json={"resources": ["nodes=9"]}).json()
    (kept,) = typed(qralter.main, "-l", "nodes=9", str(first["id"])).values()
    assert kept["message"].startswith(unchanged["detail"].splitlines()[0])


@pytest.mark.usefixtures("scheduler")
def test_a_series_is_asked_for_and_deleted_as_one(nobody: httpx.Client, database: Database) -> None:
    add_resources(database)
    granted = _ask(nobody, start="+1h", rule="FREQ=DAILY;COUNT=3", depth=2).json()
    assert (len(granted["items"]), granted["skipped"]) == (2, [])
    deleted = nobody.delete(f"/v1/reservation-series/{granted['series']}")
    assert (deleted.status_code, len(deleted.json()["items"])) == (202, 2)
    assert nobody.delete(f"/v1/reservation-series/{granted['series']}").status_code == 404


@pytest.mark.usefixtures("scheduler")
def test_a_series_is_changed_from_one_of_its_reservations_on(
    nobody: httpx.Client, daemon: httpx.Client, database: Database
) -> None:
    add_resources(database)
    first, *others = _ask(nobody, start="+1h", rule="FREQ=HOURLY;COUNT=9", depth=3, duration=600).json()["items"]
    place, ids = f"/v1/reservations/{others[0]['id']}/series", [each["id"] for each in others]
    assert daemon.patch(place, json={"name": "x"}).status_code == 403
    assert nobody.patch(place, json={"start": "+2h"}).status_code == 400
    changed = nobody.patch(place, json={"duration": 1200, "name": "lecture"})
    assert changed.status_code == 200, changed.text
    assert [(each["id"], each["done"]) for each in changed.json()["items"]] == [(each, "altered") for each in ids]
    nobody.delete(f"/v1/reservations/{first['id']}")
    asked = nobody.get("/v1/reservations", params={"name": "lecture"}).json()["items"]
    assert {each["duration"] for each in asked} == {1200}
    overlapping = nobody.patch(place, json={"duration": 7200, "resources": ["nodes=2"]})
    assert (overlapping.status_code, "overlap occurrence" in overlapping.text) == (400, True)
    blocker = _ask(nobody, start=write_option_date(others[0]["start_time"] + 1200), resources=["nodes=2"], duration=60)
    (item, later) = nobody.patch(place, json={"duration": 1800, "resources": ["nodes=2"]}).json()["items"][:2]
    assert (item["done"], later["done"]) == ("refused", "altered"), blocker.text
    assert item["message"].startswith("there is a place for it only until ")
    alone = _ask(nobody, start="+30h").json()["items"][0]["id"]
    assert nobody.patch(f"/v1/reservations/{alone}/series", json={"name": "x"}).status_code == 409


def test_without_a_scheduler_nothing_stays(api: Api, nobody: httpx.Client, database: Database) -> None:
    add_resources(database)
    api.runtime.config = Config(api_rate_change=0, reservation_open=True, reservation_answer_timeout=1)
    answer = _ask(nobody, start="+1h")
    assert (answer.status_code, answer.json()["type"]) == (503, "no-answer")
    with database.snapshot() as tx:
        assert tx.reservations.live() == []


def test_who_may_not_is_told_so(
    nobody: httpx.Client, anonymous: httpx.Client, known: Callable[[str, str], httpx.Client], database: Database
) -> None:
    add_resources(database)
    assert _ask(anonymous).status_code == 401
    assert _ask(known("nobody", "ro")).status_code == 403
    denied = _ask(nobody, start="+1h")
    assert (denied.status_code, denied.json()["type"]) == (403, "denied")
    assert denied.json()["hint"].startswith("ask an administrator")
    bad = known("root", "admin").post("/v1/reservations", json={"start": "some day", **HOUR})
    assert (bad.status_code, "some day" in bad.json()["detail"]) == (400, True)


@pytest.mark.usefixtures("scheduler")
def test_a_reservation_that_is_asked_for_again_with_its_key_is_the_same_one(
    nobody: httpx.Client, api: Api, database: Database
) -> None:
    add_resources(database)
    api.runtime.config = Config(api_rate_read=0, api_rate_change=0, reservation_open=True, max_advance_reservations=1)
    nobody.headers["Idempotency-Key"] = "course 1"
    first, again = (_ask(nobody, start="+1h", name="course") for _ in range(2))
    assert (first.status_code, again.status_code) == (201, 201), again.text
    assert again.headers["location"] == first.headers["location"]
    assert "idempotency-replayed" not in first.headers
    assert again.headers["idempotency-replayed"] == "true"
    other = _ask(nobody, start="+2h", name="course")
    assert (other.status_code, other.json()["type"]) == (409, "key-reused")
    assert len(nobody.get("/v1/reservations").json()["items"]) == 1
