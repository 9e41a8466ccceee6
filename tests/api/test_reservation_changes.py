"""Advance reservations are asked for, changed and deleted through the API, and a scheduler answers."""

import threading
from collections.abc import Callable, Iterator

import httpx
import pytest

from oar.kao.rounds.meta_sched import MetaScheduler
from oar.lib.config.files import Config
from oar.lib.db.database import Database
from oar.lib.runtime import Runtime
from tests.api.conftest import Api
from tests.builders import add_resources

HOUR = {"duration": 3600, "resources": ["nodes=1"]}


@pytest.fixture
def scheduler(api: Api, database: Database) -> Iterator[None]:
    """A scheduler that makes round after round."""
    api.runtime.config = Config(api_rate_read=0, api_rate_change=0, reservation_open=True)
    ends = threading.Event()
    scheduler = MetaScheduler(Runtime(api.runtime.config, Database(database.settings)))

    def work() -> None:
        while not ends.wait(0.05):
            scheduler.round()

    thread = threading.Thread(target=work)
    thread.start()
    yield
    ends.set()
    thread.join()


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
def test_a_series_is_asked_for_and_deleted_as_one(nobody: httpx.Client, database: Database) -> None:
    add_resources(database)
    granted = _ask(nobody, start="+1h", rule="FREQ=DAILY;COUNT=3", depth=2).json()
    assert (len(granted["items"]), granted["skipped"]) == (2, [])
    deleted = nobody.delete(f"/v1/reservation-series/{granted['series']}")
    assert (deleted.status_code, len(deleted.json()["items"])) == (202, 2)
    assert nobody.delete(f"/v1/reservation-series/{granted['series']}").status_code == 404


def test_without_a_scheduler_nothing_stays(api: Api, nobody: httpx.Client, database: Database) -> None:
    add_resources(database)
    api.runtime.config = Config(api_rate_change=0, reservation_open=True, reservation_answer_timeout=1)
    answer = _ask(nobody, start="+1h")
    assert (answer.status_code, answer.json()["type"]) == (503, "no-answer")
    with database.snapshot() as tx:
        assert tx.advance_reservations.live() == []


def test_who_may_not_is_told_so(
    nobody: httpx.Client, anonymous: httpx.Client, known: Callable[[str, str], httpx.Client], database: Database
) -> None:
    add_resources(database)
    assert _ask(anonymous).status_code == 401
    assert _ask(known("nobody", "ro")).status_code == 403
    denied = _ask(nobody, start="+1h")
    assert (denied.status_code, denied.json()["type"]) == (403, "denied")
    assert denied.json()["hint"].startswith("ask an administrator")
    bad = known("root", "admin").post("/v1/reservations", json={"start": "yesterday", **HOUR})
    assert (bad.status_code, "yesterday" in bad.json()["detail"]) == (400, True)
