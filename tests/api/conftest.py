"""A service of the API, started as its program starts it but for the process.

Every answer that a client of these fixtures gets is what the OpenAPI document says of it.
"""

import asyncio
import json
import re
import ssl
import threading
from collections.abc import Callable, Collection, Iterator
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

import httpx
import jsonschema_rs
import psycopg2.extensions
import pytest

from oar.api import application as applications
from oar.api.application import all_routes
from oar.api.openapi import document as describe
from oar.api.records import WHOLE
from oar.api.server import listening_sockets, server_of
from oar.api.service import Service
from oar.lib.access import tokens
from oar.lib.access.records import User
from oar.lib.base.processes import ServiceManager
from oar.lib.config.files import Config
from oar.lib.db.database import Database
from oar.lib.db.statements import PreparingConnection
from oar.lib.runtime import Runtime
from oar.web.documents import Documents

Validate = Callable[[object], None]
#: The document is made by one thread, though clients of several ask for the first time at once.
_DESCRIBING = threading.Lock()
_REFERENCE = re.compile(r'"#/components/schemas/([^"]+)"')


@cache
def _described(*, whole: bool) -> list[tuple[str, re.Pattern[str], dict[str, Callable[[], Validate]]]]:
    """Return each operation of the document: method, path, what gives the checks of its answers; fixed paths first.

    ``whole``: of requests that ask for all fields of each item.
    """
    document = describe(all_routes().all)
    components = _closed(document["components"], whole=whole)
    found = []
    for path, operations in sorted(document["paths"].items(), key=lambda each: each[0].count("{")):
        pattern = re.compile(re.sub(r"\{[^}]+\}", "[^/]+", path))
        for method, operation in operations.items():
            checks: dict[str, Callable[[], Validate]] = {}
            for status, answer in operation["responses"].items():
                schema = answer.get("content", {}).get("application/json", {}).get("schema")
                if schema is not None:
                    checks[status] = _later(_closed(schema, whole=whole), components["schemas"])
            found.append((method.upper(), pattern, checks))
    return found


def _later(schema: dict[str, Any], records: dict[str, Any]) -> Callable[[], Validate]:
    """Return what makes the check of an answer when it is needed: each takes megabytes."""

    @cache
    def check() -> Validate:
        needed, unread = dict[str, Any](), [schema]
        while unread:
            for name in _REFERENCE.findall(json.dumps(unread.pop())):
                if name not in needed:
                    needed[name] = records[name]
                    unread.append(needed[name])
        return jsonschema_rs.validator_for({**schema, "components": {"schemas": needed}}).validate

    return check


def _closed(schema: Any, *, whole: bool) -> Any:
    """Return a schema that takes no key which it does not name; ``whole``: and asks for all that may be left out."""
    if isinstance(schema, list):
        return [_closed(each, whole=whole) for each in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {key: _closed(value, whole=whole) for key, value in schema.items()}
    if whole and WHOLE in closed:
        closed["required"] = closed[WHOLE]
    is_record = schema.get("type") == "object" and "properties" in schema and "status" not in schema["properties"]
    return {**closed, "additionalProperties": False} if is_record else closed


def check_described(answer: httpx.Response) -> None:
    """Check that an answer is one that the document describes."""
    request, kind = answer.request, answer.headers.get("content-type", "")
    if kind != "application/json" or not request.url.path.startswith("/v1/"):
        return
    with _DESCRIBING:
        described = _described(whole="fields" not in request.url.params)
    for method, pattern, checks in described:
        if method == request.method and pattern.fullmatch(request.url.path):
            answer.read()
            assert str(answer.status_code) in checks, f"{method} {request.url.path}: {answer.status_code}"
            checks[str(answer.status_code)]()(answer.json())
            return


HOOKS = {"response": [check_described]}
#: All clients share it: to load the certificates of the system takes longer than most requests.
PLAIN = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


#: What takes most of the time of a start and never changes is made once for all services.
_documents, _routes = cache(Documents), cache(all_routes)


class Api:
    """A running service, and clients of it."""

    def __init__(self, runtime: Runtime, path: Path, port: int = 0) -> None:
        self.runtime = runtime
        self.socket = str(path)
        self.sockets = listening_sockets([f"127.0.0.1:{port}", f"unix:{path}"])
        self.port: int = self.sockets[0].getsockname()[1]
        with patch.object(applications, "Documents", _documents), patch.object(applications, "all_routes", _routes):
            self.service = Service(runtime)
            self._server = server_of(self.service, ServiceManager({}))
        self._thread = threading.Thread(target=self._serve)

    @property
    def connections(self) -> Collection[object]:
        """The connections that are open."""
        return self._server.server_state.connections

    def client(self, **options: Any) -> httpx.Client:
        """Return a client that comes over the network."""
        return httpx.Client(base_url=f"http://127.0.0.1:{self.port}", timeout=60, verify=PLAIN, **options)

    def start(self) -> None:
        """Serve, until ``stop``."""
        self._thread.start()
        with self.client() as client:
            while client.get("/health/ready").json()["feed"]["lag"] > 30:
                pass

    def stop(self) -> None:
        """End as by a signal."""
        self._server.should_exit = True
        self._thread.join()
        for each in self.sockets:
            each.close()

    def _serve(self) -> None:
        asyncio.run(self._server.serve(sockets=self.sockets))


@pytest.fixture
def api(database: Database, tmp_path: Path) -> Iterator[Api]:
    """A service of a site as shipped, but that it never says how often is too often."""
    made = Api(Runtime(Config(api_rate_read=0, api_rate_change=0), database), tmp_path / "api.sock")
    made.start()
    yield made
    made.stop()


@pytest.fixture
def anonymous(api: Api) -> Iterator[httpx.Client]:
    """A client that comes over the network, without a name."""
    with api.client(event_hooks=HOOKS) as client:
        yield client


@pytest.fixture
def local(api: Api) -> Iterator[httpx.Client]:
    """A client that comes by the local socket."""
    transport = httpx.HTTPTransport(uds=api.socket, verify=PLAIN)
    with httpx.Client(transport=transport, base_url="http://oar", timeout=60, event_hooks=HOOKS) as client:
        yield client


@pytest.fixture
def known(api: Api) -> Iterator[Callable[[str], httpx.Client]]:
    """Makes clients that show a token of a user, with a scope."""
    clients: list[httpx.Client] = []

    def client(user: str, scope: str = "rw") -> httpx.Client:
        with api.runtime.database.begin() as tx:
            _, token = tokens.create(tx, User(user, 0, administers=True), scope=scope)
        headers = {"Authorization": f"Bearer {token}"}
        clients.append(api.client(headers=headers, event_hooks=HOOKS))
        return clients[-1]

    yield client
    for each in clients:
        each.close()


@pytest.fixture
def nobody(known: Callable[[str], httpx.Client]) -> httpx.Client:
    """A client of the user ``nobody``, who is an account of every machine."""
    return known("nobody")


@pytest.fixture
def daemon(known: Callable[[str], httpx.Client]) -> httpx.Client:
    """A client of somebody else."""
    return known("daemon")


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch, anonymous: httpx.Client) -> Callable[[str], list[str]]:
    """Asks for an address; returns what the service sent to PostgreSQL meanwhile."""
    statements: list[str] = []

    class Cursor(psycopg2.extensions.cursor):
        def execute(self, query: Any, *parameters: Any) -> None:
            is_of_connection = str(query).startswith(("PREPARE ", "SET "))  # once for each, whichever is idle
            if threading.current_thread().name != "feed" and not is_of_connection:
                statements.append(str(query))
            super().execute(query, *parameters)

    plain = PreparingConnection.cursor
    monkeypatch.setattr(
        PreparingConnection, "cursor", lambda self, *_, **options: plain(self, cursor_factory=Cursor, **options)
    )

    def ask(address: str, client: httpx.Client = anonymous) -> list[str]:
        for _ in range(2):  # the first request with a token notes that it is used
            statements.clear()
            assert client.get(address).status_code == 200
        return list(statements)

    return ask
