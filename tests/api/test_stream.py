"""The stream: what happens, as it happens, each thing once, in order, and again for who comes back."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, contextmanager

import httpx
from starlette.types import Message

from oar.api.serving.event_streams import EventStream
from oar.lib.db.database import Database
from oar.lib.facts.states import JobState
from oar.lib.jobs import lifecycle
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


def test_a_token_that_is_revoked_ends_its_streams(anonymous: httpx.Client, local: httpx.Client) -> None:
    made = local.post("/v1/tokens", json={"scope": "ro"}).json()
    anonymous.headers["Authorization"] = f"Bearer {made['token']}"
    with _stream(anonymous) as messages:
        _begin(messages)
        assert local.delete(f"/v1/tokens/{made['id']}").status_code == 204
        assert [message.get("event") for message in messages][-1] == "bye"


def test_who_goes_before_the_first_message_leaves_nothing_behind(api: Api) -> None:
    for _ in range(20):
        with socket.create_connection(("127.0.0.1", api.port)) as client:
            client.sendall(b"GET /v1/stream HTTP/1.1\r\nHost: oar\r\n\r\n")
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
