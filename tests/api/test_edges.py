"""Numbers and dates at the edges of their types, in every place where the OpenAPI document takes one."""

import itertools
import json
import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any, NamedTuple

import httpx
import pytest

from oar.api.application import all_routes
from oar.api.openapi import EXAMPLES, document
from oar.lib.db.database import Database
from oar.lib.jobs.states import JobState
from tests.api.conftest import Api
from tests.builders import add_job, add_resources

pytestmark = pytest.mark.slow


#: The smallest and largest numbers of the types that databases, dates and browsers know, and what is just beyond.
EDGES = (-(2**63), -1, 11_000_000, 2**31, 253_402_300_800, 2**63 - 1, 10**30)
#: Operations whose answers do not end, or that would stop the service.
_NOT_SENT = frozenset({"stream", "job_output_follow", "server_notify"})
_METHODS = ("get", "post", "put", "patch", "delete")


class Operation(NamedTuple):
    """An operation of the document, with what it takes of numbers."""

    method: str
    path: str
    numbers: tuple[str, ...]  #: parameters of the query
    places: tuple[str, ...]  #: parameters of the path that are numbers
    body: str  #: name of its schema, '' if it takes none
    fields: tuple[str, ...]  #: fields of the body that are numbers


@cache
def _document() -> Mapping[str, Any]:
    return document(all_routes().all)


def _is_number(schema: Mapping[str, Any]) -> bool:
    kinds = [schema, *schema.get("anyOf", ())]
    return any(kind.get("type") in ("integer", "number") for kind in kinds)


def _operations() -> Iterator[tuple[str, Operation]]:
    document = _document()
    for path, methods in document["paths"].items():
        for method in _METHODS:
            if method not in methods or methods[method]["operationId"] in _NOT_SENT:
                continue
            described = methods[method]
            by_place: dict[str, list[str]] = {"query": [], "path": [], "header": [], "cookie": []}
            for each in described.get("parameters", ()):
                if each["name"] == "wait":  # the answer would come after so many seconds
                    continue
                is_date = each["name"] in ("from", "to", "since", "start", "stop", "date")
                if is_date or _is_number(each["schema"]):
                    by_place[each["in"]].append(each["name"])
            content = described.get("requestBody", {}).get("content", {}).get("application/json", {})
            body = content.get("schema", {}).get("$ref", "").rpartition("/")[2]
            properties = document["components"]["schemas"].get(body, {}).get("properties", {})
            fields = tuple(name for name, schema in properties.items() if _is_number(schema) and name != "wait")
            taken = Operation(method, path, tuple(by_place["query"]), tuple(by_place["path"]), body, fields)
            if taken.numbers or taken.places or taken.fields:
                yield described["operationId"], taken


OPERATIONS = dict(_operations())


@pytest.fixture
def ask(api: Api, local: httpx.Client, database: Database) -> Callable[[Operation, Mapping[str, int], str], int]:
    """Sends a request with some numbers; what is not a number in the path is the name of something that is there."""
    resources = add_resources(database)
    job = add_job(database, JobState.RUNNING, on=resources[:1], user="nobody")
    add_job(database, user="nobody")
    there = {"job_id": job, "array_id": job, "node": "node-1", "host": "node-1", "name": "node-1", "queue": "default"}

    def send(operation: Operation, numbers: Mapping[str, int], where: str) -> int:
        named = {**there, **(numbers if where == "path" else {})}
        path = re.sub(r"\{(\w+)\}", lambda found: str(named.get(found[1], 1)), operation.path)
        parameters = {name: "1" for name in operation.numbers if name in ("from", "to")}
        parameters |= {name: str(number) for name, number in numbers.items()} if where == "query" else {}
        body = {**EXAMPLES.get(operation.body, {}), **(numbers if where == "body" else {})}
        content = json.dumps(body).encode() if operation.body else None
        headers = {"Content-Type": "application/json"} if operation.body else {}
        answer = local.request(operation.method, path, params=parameters, content=content, headers=headers)
        assert answer.status_code != 500, f"{operation.method} {answer.request.url} {numbers}: {answer.text}"
        return answer.status_code

    return send


def test_a_number_at_the_edge_of_a_type_is_no_fault_of_ours(
    ask: Callable[[Operation, Mapping[str, int], str], int],
) -> None:
    for operation in OPERATIONS.values():
        for where, names in (("query", operation.numbers), ("path", operation.places), ("body", operation.fields)):
            for each, edge in itertools.product(names, EDGES):
                ask(operation, {each: edge}, where)
        for first, second in itertools.combinations(operation.numbers, 2):
            for low, high in ((0, 11_000_000), (1, 2**63 - 1), (-(2**63), 2**63 - 1)):
                ask(operation, {first: low, second: high}, "query")


def test_a_period_of_some_months_has_plans(anonymous: httpx.Client) -> None:
    assert anonymous.get("/v1/gantt/plans", params={"from": 0, "to": 11_000_000}).status_code == 200
