"""The stream: what happens, as it happens, each thing once, in order, and again for who comes back."""

import asyncio
import json
import socket
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, ExitStack, contextmanager
from itertools import count, islice
from typing import Any

import httpx
import pytest
from starlette.types import Message

from oar.api import events, service
from oar.api import hub as serving_hub
from oar.api.concurrency import UnderWay
from oar.api.responses import EventStream
from oar.lib.bus.messages import Topic
from oar.lib.db.database import Database
from oar.lib.jobs import lifecycle
from oar.lib.jobs.records import Queue
from oar.lib.jobs.states import JobState, QueueState
from tests.api.conftest import Api
from tests.builders import add_job

Sent = dict[str, str]


@contextmanager
def _stream(client: httpx.Client, **parameters: str | int) -> Iterator[Iterator[Sent]]:
    with client.stream("GET", "/v1/stream", params=parameters) as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        messages = _messages(response.iter_lines())
        yield messages


#: So many comments that nothing is new, a quarter of a minute each, end a test that waits for a message.
_PATIENCE = 8


def _messages(lines: Iterator[str]) -> Iterator[Sent]:
    message: Sent = {}
    read: list[str] = []
    for line in lines:
        read.append(line)
        assert read.count(": nothing new") < _PATIENCE, f"nothing comes any more behind {read}"
        if not line and message:
            yield message
            message = {}
        elif line and not line.startswith(":"):
            key, _, value = line.partition(": ")
            message[key] = value


def _begin(messages: Iterator[Sent]) -> str:
    assert next(messages) == {"retry": "3000"}
    return next(messages)["id"]


def states_of(messages: Iterator[Sent], number: int) -> list[tuple[int, str]]:
    """Return the next changes of states: jobs, and the state that each got."""
    found: list[tuple[int, str]] = []
    while len(found) < number:
        message = next(messages)
        if message.get("event") == "state":
            data = json.loads(message["data"])
            found.append((data["job"], data["state"]))
    return found


@contextmanager
def streamed(client: httpx.Client) -> Iterator[Iterator[Sent]]:
    """Give the messages of a stream, from now on."""
    with _stream(client) as messages:
        _begin(messages)
        yield messages


def test_changes_come_as_they_happen(anonymous: httpx.Client, database: Database) -> None:
    with _stream(anonymous) as messages:
        _begin(messages)
        job_id = add_job(database)
        with database.begin() as tx:
            lifecycle.move(tx, job_id, JobState.HOLD)
        assert states_of(messages, 2) == [(job_id, "Waiting"), (job_id, "Hold")]


def test_a_token_of_a_job_hears_the_texts_of_its_own_events_only(
    known: Callable[[str, str], httpx.Client], database: Database
) -> None:
    job_id, other = add_job(database), add_job(database)
    clients = {scope: known("nobody", scope) for scope in ("ro", f"job:{job_id}", f"job:{other}")}
    with ExitStack() as stack:
        streams = {scope: stack.enter_context(streamed(client)) for scope, client in clients.items()}
        with database.begin() as tx:
            tx.events.add("PING_CHECKER_NODE_SUSPECTED", job_id, "its secret is 42", hosts=["node-1"])
        told = {scope: _event(messages) for scope, messages in streams.items()}
    texts = {"ro": "its secret is 42", f"job:{job_id}": "its secret is 42", f"job:{other}": ""}
    assert {scope: event["text"] for scope, event in told.items()} == texts
    page = f"/v1/events?job={job_id}&since=s0.e{told['ro']['id'] - 1}"
    for scope, client in clients.items():
        found = [each["text"] for each in client.get(page).json()["items"] if each["event"] == "event"]
        assert found == [texts[scope]], scope


def _event(messages: Iterator[Sent]) -> dict[str, Any]:
    """Return the next event that is told."""
    data: dict[str, Any] = json.loads(next(each["data"] for each in messages if each.get("event") == "event"))
    return data


def test_a_client_of_a_service_that_has_just_started_waits_for_its_first_look(
    api: Api, anonymous: httpx.Client
) -> None:
    hub = api.service.hub
    hub._has_begun.clear()
    hub.position = None
    with anonymous.stream("GET", "/v1/stream") as answer:
        assert (answer.status_code, hub.position is None) == (200, False)


def test_a_client_is_told_why_nobody_can_listen_yet(
    api: Api, anonymous: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving_hub, "BEGIN_SECONDS", 0.0)
    monkeypatch.setattr(api.service.hub, "_has_begun", asyncio.Event())
    monkeypatch.setattr(api.service.hub, "_publish", lambda *_: None)
    api.service.hub.position = None
    for path in ("/v1/stream", "/v1/events"):
        refused = anonymous.get(path)
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "2")
        assert refused.json()["detail"] == "the service has just started and has not read the database yet. Try again."


def test_who_comes_back_is_told_what_he_missed(anonymous: httpx.Client, database: Database) -> None:
    # Ids go on from test to test: from the beginning of an empty log it may be too far.
    add_job(database)
    while anonymous.get("/v1/events").json()["position"].startswith("s0."):
        pass
    with _stream(anonymous) as messages:
        position = _begin(messages)
    ids = [add_job(database) for _ in range(5)]
    # A page of events is behind the stream's position as soon as the feed has seen all.
    seen: list[int] = []
    while len(seen) < len(ids):
        items = anonymous.get("/v1/events", params={"since": position}).json()["items"]
        seen = [item["job"] for item in items if item["event"] == "state"]
    with anonymous.stream("GET", "/v1/stream", headers={"Last-Event-ID": position}) as response:
        messages = _messages(response.iter_lines())
        next(messages)
        assert [job for job, _ in states_of(messages, 5)] == ids


def test_a_place_of_another_database_lets_all_be_loaded_anew(anonymous: httpx.Client) -> None:
    with _stream(anonymous, since="s999999999.e999999999") as messages:
        next(messages)
        assert next(messages)["event"] == "reset"


def test_who_was_away_for_too_long_loads_all_anew(api: Api, anonymous: httpx.Client, database: Database) -> None:
    add_job(database)
    while (position := anonymous.get("/v1/events").json()["position"]).startswith("s0."):
        pass
    for _ in range(3):
        add_job(database)
    while len(anonymous.get("/v1/events", params={"since": position}).json()["items"]) < 3:
        pass
    for depth, told in ((2, "reset"), (3, "state")):
        api.runtime.config = api.runtime.config.replace(api_stream_depth=depth)
        with _stream(anonymous, since=position) as messages:
            next(messages)
            assert next(messages)["event"] == told


@pytest.mark.parametrize(
    ("listening", "told"),
    [
        ({"topics": "event"}, [("event", "second")]),
        ({"topics": "state"}, [("state", "first"), ("state", "second")]),
        ({"queue": "default", "topics": "state,event"}, [("state", "second")]),
    ],
)
def test_a_client_chooses_messages_and_a_queue(
    anonymous: httpx.Client, database: Database, listening: dict[str, str], told: list[tuple[str, str]]
) -> None:
    with _stream(anonymous, **listening) as messages:
        _begin(messages)
        jobs = {add_job(database, queue="besteffort"): "first", add_job(database): "second"}
        with database.begin() as tx:
            tx.events.add("CHOSEN", max(jobs), "")
        found = [(each["event"], json.loads(each["data"])) for each in islice(messages, len(told))]
    assert [(name, jobs[data["job"]]) for name, data in found] == told


def test_a_stream_ends_after_an_hour(anonymous: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "STREAM_SECONDS", 0.0)
    with _stream(anonymous) as messages:
        position = _begin(messages)
        told = list(messages)
    assert [each["event"] for each in told][-1] == "bye"
    assert told[-1]["id"] >= position


def test_nobody_takes_the_streams_of_all(api: Api, nobody: httpx.Client, anonymous: httpx.Client) -> None:
    for client, most in ((nobody, service.STREAMS_OF_A_USER), (anonymous, service.STREAMS_OF_AN_ADDRESS)):
        with ExitStack() as held:
            for _ in range(most):
                held.enter_context(_stream(client))
            refused = client.get("/v1/stream")
            assert (refused.status_code, refused.json()["type"]) == (503, "too-many")
            assert client.get("/v1/version").status_code == 200
    while api.service.hub.listeners:
        pass


def test_behind_a_proxy_everybody_has_streams_of_his_own(api: Api, anonymous: httpx.Client) -> None:
    api.service.streams_of_addresses = UnderWay("event streams", 1)
    api.runtime.config = api.runtime.config.replace(api_trusted_proxies=("127.0.0.0/8",))
    with ExitStack() as held:
        for told in ("192.0.2.1", "192.0.2.2", "203.0.113.9, 192.0.2.3", None, None, "no address", "no address"):
            headers = {} if told is None else {"X-Forwarded-For": told}
            answer = held.enter_context(anonymous.stream("GET", "/v1/stream", headers=headers))
            assert answer.status_code == 200
        for told in ("192.0.2.1", "192.0.2.9,192.0.2.3"):
            assert anonymous.get("/v1/stream", headers={"X-Forwarded-For": told}).status_code == 503
        api.runtime.config = api.runtime.config.replace(api_trusted_proxies=())
        held.enter_context(anonymous.stream("GET", "/v1/stream"))
        assert anonymous.get("/v1/stream", headers={"X-Forwarded-For": "192.0.2.4"}).status_code == 503


def test_of_a_topic_it_is_told_once_a_second(
    api: Api, anonymous: httpx.Client, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    fold = 2.0
    monkeypatch.setattr(serving_hub, "FOLD_SECONDS", fold)
    hub, names = api.service.hub, map(str, count())
    with _stream(anonymous, topics="queues") as messages:
        _begin(messages)
        seconds = fold
        while seconds >= fold:  # a busy machine may take longer for three changes; then once more
            monkeypatch.setattr(hub, "_due", {})
            before, begun = hub.counters[Topic.QUEUES], time.monotonic()
            for name in islice(names, 3):
                _add_queue(hub, database, name)
            seconds, told = time.monotonic() - begun, [0]
            while told[-1] != before + 3:
                told.append(json.loads(next(messages)["data"])["counter"])
    assert told == [0, before + 1, before + 3]


def _add_queue(hub: serving_hub.Hub, database: Database, name: str) -> None:
    """Add a queue, and wait until the service has heard of it."""
    heard = hub.counters[Topic.QUEUES]
    with database.begin() as tx:
        tx.queues.insert(Queue(name, 1, "kamelot", QueueState.ACTIVE))
    while hub.counters[Topic.QUEUES] == heard:
        pass


def test_a_listener_hears_only_what_he_asks_for(anonymous: httpx.Client, database: Database) -> None:
    with _stream(anonymous, user="bob") as messages:
        _begin(messages)
        add_job(database, user="alice")
        bobs = add_job(database, user="bob")
        assert states_of(messages, 1) == [(bobs, "Waiting")]


def test_the_end_of_the_service_is_told(api: Api, anonymous: httpx.Client) -> None:
    with _stream(anonymous) as messages:
        _begin(messages)
        api.stop()
        assert [message.get("event") for message in messages][-1] == "bye"


def test_pages_of_the_history_follow_one_another(anonymous: httpx.Client, database: Database) -> None:
    position = anonymous.get("/v1/events").json()["position"]
    job_id = add_job(database)
    items: list[dict[str, object]] = []
    while not items:
        page = anonymous.get("/v1/events", params={"since": position}).json()
        items, position = page["items"], page["position"]
    assert [(item["job"], item["state"], item["from"]) for item in items] == [(job_id, "Waiting", None)]
    assert anonymous.get("/v1/events", params={"since": position}).json()["items"] == []


def test_a_page_of_the_history_is_as_long_as_asked_for(anonymous: httpx.Client, database: Database) -> None:
    position = anonymous.get("/v1/events").json()["position"]
    jobs = [add_job(database) for _ in range(3)]
    with database.begin() as tx:
        tx.events.add("SEEN", jobs[0], "")
    while len(anonymous.get("/v1/events", params={"since": position}).json()["items"]) < 4:
        pass
    items: list[tuple[str, int]] = []
    more = True
    while more:
        page = anonymous.get("/v1/events", params={"since": position, "limit": 1}).json()
        assert len(page["items"]) <= 1
        items += [(each["event"], each["job"]) for each in page["items"]]
        position, more = page["position"], page["more"]
    assert items == [*(("state", job) for job in jobs), ("event", jobs[0])]


def test_a_token_that_is_revoked_ends_its_streams(anonymous: httpx.Client, local: httpx.Client) -> None:
    made = local.post("/v1/tokens", json={"scope": "ro"}).json()
    anonymous.headers["Authorization"] = f"Bearer {made['token']}"
    with _stream(anonymous) as messages:
        _begin(messages)
        assert local.delete(f"/v1/tokens/{made['id']}").status_code == 204
        assert [message.get("event") for message in messages][-1] == "bye"


def test_who_goes_before_the_first_message_leaves_nothing_behind(api: Api, anonymous: httpx.Client) -> None:
    for _ in range(service.STREAMS_OF_AN_ADDRESS - 1):
        with socket.create_connection(("127.0.0.1", api.port)) as client:
            client.sendall(b"GET /v1/stream HTTP/1.1\r\nHost: oar\r\n\r\n")
    with _stream(anonymous) as messages:  # what was asked before has begun
        _begin(messages)
    while api.service.hub.listeners:
        pass


def test_a_stream_that_never_begins_lets_go_what_it_holds() -> None:
    begun: list[str] = []
    let_go: list[str] = []

    async def told() -> AsyncIterator[bytes]:
        begun.append("begun")
        yield b""

    async def gone() -> Message:
        return {"type": "http.disconnect"}

    async def blocked(_: Message) -> None:
        await asyncio.Event().wait()

    held = AsyncExitStack()
    held.callback(let_go.append, "let go")
    asyncio.run(EventStream(told(), held)({"type": "http"}, gone, blocked))
    assert (begun, let_go) == ([], ["let go"])
