"""Lists: as lines for exports, with all fields of each item or some; tags by which nothing is read a second time."""

import json
from collections.abc import Callable

import httpx
import pytest

from oar.api import hub
from oar.lib.bus.messages import Topic
from oar.lib.config.files import Config
from oar.lib.db.database import Database
from oar.lib.history.event_types import EventType
from oar.lib.jobs.states import JobState
from tests.api.conftest import Api
from tests.builders import add_job, add_resources
from tests.db.reservation_rows import add_reservation
from tests.process.this_machine import wait_until

#: What tells what comes next, and what other programs read.
COMING = ("/v1/stream", "/v1/events", "/v1/reservations/events", "/metrics")
LISTS = ("jobs", "nodes", "resources", "queues", "reservations", "event-log", "usersets", "properties")


def _fill(database: Database) -> None:
    resources = add_resources(database)
    for _ in range(3):
        add_job(database, JobState.RUNNING, on=resources[:1])
    add_reservation(database, 12, state="w")
    with database.begin() as tx:
        for _ in range(5):
            tx.events.add(EventType.PING_CHECKER_NODE_SUSPECTED, 0, "")


def _lines(answer: httpx.Response) -> list[object]:
    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/x-ndjson")
    return [json.loads(line) for line in answer.text.splitlines()]


@pytest.mark.parametrize("name", LISTS)
def test_a_list_is_given_as_lines_to_who_accepts_these_alone(
    anonymous: httpx.Client, database: Database, name: str
) -> None:
    _fill(database)
    whole = anonymous.get(f"/v1/{name}").json()["items"]
    assert _lines(anonymous.get(f"/v1/{name}", headers={"Accept": "application/x-ndjson"})) == whole
    assert whole or name == "usersets"
    both = anonymous.get(f"/v1/{name}", headers={"Accept": "application/json, application/x-ndjson"})
    assert both.json()["items"] == whole


def test_an_export_of_events_is_more_than_a_page(
    anonymous: httpx.Client, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    _fill(database)
    monkeypatch.setattr("oar.api.events.EXPORT_PAGE", 2)
    whole = anonymous.get("/v1/event-log?limit=1000").json()["items"]
    assert _lines(anonymous.get("/v1/event-log", headers={"Accept": "application/x-ndjson"})) == whole
    assert len(whole) > 4


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        *(("jobs", "id,state"), ("jobs?details=true", "id,command,events"), ("jobs?outlook=true", "outlook")),
        *(("nodes", "name,free"), ("resources", "id,properties"), ("queues", "name"), ("event-log", "type,date")),
        ("reservations", "id,state"),
    ],
)
def test_some_fields_of_each_item_are_given(
    anonymous: httpx.Client, database: Database, name: str, fields: str
) -> None:
    _fill(database)
    route = f"/v1/{name}"
    whole = anonymous.get(route).json()["items"]
    address = httpx.URL(route).copy_merge_params({"fields": fields})
    names = fields.split(",")
    some = anonymous.get(address).json()["items"]
    assert some == [{each: item[each] for each in names} for item in whole] != []
    assert _lines(anonymous.get(address, headers={"Accept": "application/x-ndjson"})) == some
    wrong = anonymous.get(httpx.URL(route).copy_merge_params({"fields": f"{names[0]}x"}))
    assert (wrong.status_code, names[0] in wrong.json()["hint"]) == (400, True)


# -- tags --------------------------------------------------------------------------------------------------------------


@pytest.fixture
def again(api: Api, anonymous: httpx.Client) -> Callable[..., tuple[int, bool]]:
    """Asks for an address with the tag that it had; the status, and whether the database was asked."""
    tags: dict[tuple[str, int], str] = {}

    def ask(route: str, client: httpx.Client = anonymous) -> tuple[int, bool]:
        known = tags.get((route, id(client)))
        answer = client.get(route, headers={"If-None-Match": known} if known else {})
        tags[route, id(client)] = answer.headers["etag"]
        return answer.status_code, not answer.headers["server-timing"].startswith("db;dur=0.0,")

    wait_until(lambda: api.service.hub.reports_changes)
    return ask


@pytest.mark.parametrize(
    "route", ["/v1/queues", "/v1/queues/default", "/v1/jobs", "/v1/nodes", "/v1/resources", "/v1/site", "/v1/grid"]
)
def test_what_nothing_has_changed_is_not_read_again(
    again: Callable[..., tuple[int, bool]], database: Database, route: str
) -> None:
    add_job(database, on=add_resources(database)[:1])
    wait_until(lambda: again(route) == (304, False))


def change(api: Api, database: Database, job: int, message: str) -> None:
    """Give a job a message, and wait until the service has been told."""
    counted = api.service.hub.counters[Topic.JOBS]
    with database.begin() as tx:
        tx.jobs.set_message([job], message)
    wait_until(lambda: api.service.hub.counters[Topic.JOBS] > counted)


def test_what_has_changed_is_read_again_and_what_is_the_same_is_not_sent_again(
    api: Api, again: Callable[..., tuple[int, bool]], database: Database
) -> None:
    job = add_job(database, on=add_resources(database)[:1])
    wait_until(lambda: again("/v1/jobs") == (304, False))
    change(api, database, job, "hello")
    assert again("/v1/jobs") == (200, True)
    wait_until(lambda: again("/v1/queues") == (304, False))
    change(api, database, job, "again")
    assert again("/v1/queues") == (304, True)


def test_who_has_changed_something_never_gets_what_was_before(
    again: Callable[..., tuple[int, bool]], known: Callable[[str, str], httpx.Client], database: Database
) -> None:
    add_resources(database)
    root = known("root", "admin")
    again("/v1/queues", root)
    for number in range(5):
        assert root.patch("/v1/queues/default", json={"priority": number + 20}).status_code == 200
        assert again("/v1/queues", root)[0] == 200


def test_a_tag_is_that_of_one_caller_one_address_and_one_configuration(
    api: Api, anonymous: httpx.Client, nobody: httpx.Client, database: Database
) -> None:
    add_job(database, user="nobody")
    tag = nobody.get("/v1/jobs?user=me").headers["etag"].rpartition("~")[2]
    for client, route in ((anonymous, "/v1/jobs?user=nobody"), (nobody, "/v1/jobs?user=me&limit=1")):
        assert client.get(route).headers["etag"].rpartition("~")[2] != tag
    api.runtime.config = Config(api_rate_read=0, oarstat_private=True)
    assert nobody.get("/v1/jobs?user=me").headers["etag"].rpartition("~")[2] != tag
    api.runtime.config = Config(api_rate_read=0, api_anonymous_read=False)
    assert anonymous.get("/v1/jobs", headers={"If-None-Match": f'W/"x~{tag}'}).status_code == 401


def test_every_answer_that_is_read_has_a_tag(known: Callable[[str, str], httpx.Client], database: Database) -> None:
    add_resources(database)
    root = known("root", "admin")
    answers = [
        root.get(path)
        for path, operations in root.get("/openapi.json").json()["paths"].items()
        if "get" in operations and "{" not in path and path not in COMING
    ]
    untagged = [each.url.path for each in answers if each.status_code == 200 and "etag" not in each.headers]
    assert [path for path in untagged if not path.startswith("/health/")] == []


def test_a_request_with_a_tag_counts_once(api: Api, anonymous: httpx.Client) -> None:
    api.runtime.config = Config(api_rate_read=1)
    api.service.set_rates()
    left = [int(anonymous.get("/v1/queues").headers["ratelimit-remaining"]) for _ in range(3)]
    assert left[0] - left[2] in (1, 2)


def test_without_notices_tags_are_those_of_bodies(anonymous: httpx.Client, api: Api, database: Database) -> None:
    add_job(database)
    wait_until(lambda: api.service.hub.reports_changes)
    tags = [anonymous.get("/v1/queues").headers["etag"]]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hub, "_MAX_SILENCE", -1.0)
        tags.append(anonymous.get("/v1/queues").headers["etag"])
        assert anonymous.get("/v1/queues", headers={"If-None-Match": tags[0]}).status_code == 304
    assert ["~" in tag for tag in tags] == [True, False]
