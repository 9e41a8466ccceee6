"""Hostile values for every field of every operation: no sentence of PostgreSQL, Python or a library reaches a user."""

import json
import re
import socket
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from http import HTTPStatus
from typing import Any, NamedTuple

import httpx
import pytest

from oar.api.application import all_routes
from oar.api.openapi import EXAMPLES, document
from oar.lib.db.database import Database
from oar.lib.jobs.states import JobState
from tests.api.conftest import Api
from tests.builders import add_job, add_resources
from tests.db.test_foreign_sentences import FOREIGN

pytestmark = pytest.mark.slow

#: Sentences of pydantic, of the JSON parsers, of YAML's, of uvicorn and of browsers.
LIBRARIES = re.compile(
    r"Input should|Field required|[Ss]tring should|should (have|match|be)|valid (integer|string|number|boolean|list)"
    r"|[Uu]nable to (parse|interpret)|Value error|Extra inputs|key must be|EOF while|trailing characters|expected value"
    r"|Expecting|control character \(|Invalid (JSON|HTTP|control)|could not find|mapping values|while parsing"
)
#: Operations whose answers do not end, that would stop the service, or whose answers hold texts of rules' authors.
NOT_SENT = frozenset({"stream", "job_output_follow", "server_notify", "rule_create", "rule_change", "rule_try"})
TEXTS = ("", "-1", "x" * 2000, "9" * 25, "a\x01b", "'", "½", "1e9", "1/0 = 1", "2026-02-30", "[", "\\")
VALUES: tuple[Any, ...] = (*TEXTS, -1, 1.5, 10**30, True, None, [], [1], {}, {"a": []}, "\udfff", ["\ud800"])
#: What PostgreSQL cannot store, for each field.
NULS: tuple[Any, ...] = ("a\0b", ["a\0b"], {"a\0b": "a\0b"})


class Operation(NamedTuple):
    """An operation of the document, with the names that it takes."""

    method: str
    path: str
    query: tuple[str, ...]
    body: str  #: name of its schema, '' if it takes none
    fields: tuple[str, ...]


@cache
def _document() -> Mapping[str, Any]:
    return document(all_routes().all)


def _operations() -> Iterator[Operation]:
    document = _document()
    for path, methods in document["paths"].items():
        for method, described in methods.items():
            if described["operationId"] in NOT_SENT:
                continue
            query = tuple(each["name"] for each in described.get("parameters", ()) if each["in"] == "query")
            content = described.get("requestBody", {}).get("content", {}).get("application/json", {})
            body = content.get("schema", {}).get("$ref", "").rpartition("/")[2]
            fields = tuple(document["components"]["schemas"].get(body, {}).get("properties", {}))
            yield Operation(method, path, tuple(name for name in query if name != "wait"), body, fields)


def _told(answer: httpx.Response) -> str:
    """Return what an answer says is wrong."""
    try:
        record = answer.json()
    except ValueError:
        return answer.text if answer.is_error else ""
    keys = ("detail", "hint", "title", "message", "trouble", "problem")
    return " ".join(str(record.get(key)) for key in keys) if isinstance(record, dict) and answer.is_error else ""


@pytest.fixture
def send(local: httpx.Client, database: Database) -> Callable[..., str]:
    """Sends a request to an operation, with names of what is there in its path; returns what is told of a fault."""
    resources = add_resources(database)
    job = add_job(database, JobState.RUNNING, on=resources[:1], user="nobody")
    there = {"job_id": job, "array_id": job, "node": "node-1", "host": "node-1", "name": "node-1", "queue": "default"}

    def ask(operation: Operation, query: Mapping[str, str], content: bytes | None) -> str:
        path = re.sub(r"\{(\w+)\}", lambda found: str(there.get(found[1], 1)), operation.path)
        headers = {"Content-Type": "application/json"} if content else {}
        answer = local.request(operation.method, path, params=query, content=content, headers=headers)
        told = _told(answer)
        return told if answer.status_code != HTTPStatus.INTERNAL_SERVER_ERROR else f"internal error: {told}"

    return ask


def _requests(operation: Operation) -> Iterator[tuple[Mapping[str, str], bytes | None]]:
    """Iterate over queries and bodies, each with one hostile value."""
    for number, name in enumerate(operation.query):
        for text in (*TEXTS[number % 3 :: 3], "a\0b"):
            yield {name: text}, None
    example = EXAMPLES.get(operation.body, {})
    for number, name in enumerate(operation.fields):
        for value in (*VALUES[number % 3 :: 3], *NULS):
            yield {}, json.dumps({**example, name: value}).encode()
    for broken in (b"[1", b"7", b"{'a': 1}", b'{"a": "\x01"}', b"\xff", b""):
        if operation.body:
            yield {}, broken


def test_no_foreign_sentence_answers_a_request(send: Callable[..., str]) -> None:
    found = []
    for operation in _operations():
        for query, content in _requests(operation):
            told = send(operation, query, content)
            if FOREIGN.search(told) or LIBRARIES.search(told):
                found.append((operation.method, operation.path, query, content, told))
    assert found == []


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ({"limit": "many"}, "limit: must be a whole number"),
        ({"limit": "0"}, "limit: must be at least 1"),
        ({"q": "a\x01"}, "q: the text must not hold control characters"),
        ({"details": "maybe"}, "details: must be true or false"),
    ],
)
def test_a_value_is_refused_in_our_words(anonymous: httpx.Client, body: Mapping[str, str], told: str) -> None:
    assert anonymous.get("/v1/jobs", params=body).json()["detail"] == told


@pytest.mark.parametrize("kind", ["application/json", "text/yaml", "application/x-www-form-urlencoded"])
@pytest.mark.parametrize("content", [b"{'a'", b"a: b: c", b"command: [", b"\xff", b"resource=%00&walltime=x"])
def test_no_foreign_sentence_answers_an_older_client(nobody: httpx.Client, kind: str, content: bytes) -> None:
    answer = nobody.post("/oarapi/jobs.json", content=content, headers={"Content-Type": kind})
    assert answer.is_error
    assert not FOREIGN.search(answer.text)
    assert not LIBRARIES.search(answer.text)


def test_what_is_no_request_is_answered_with_a_problem(api: Api) -> None:
    with socket.create_connection(("127.0.0.1", api.port), timeout=60) as connection:
        connection.sendall(b"\x16\x03\x01\x02\r\n\r\n")
        head, _, body = connection.makefile("rb").read().partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 ")
    assert json.loads(body).items() >= {"type": "bad-request", "hint": "send HTTP/1.1"}.items()
