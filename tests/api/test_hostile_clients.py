"""Clients that send too much, too slowly, too often, or what is no HTTP."""

import select
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import Any

import httpx
import pytest
from starlette.requests import Request

from oar.api import request_bodies, server
from oar.api.authentication import Caller
from oar.api.concurrency import ARRIVING_FOR_A_THREAD, BYTES_OF_A_CLIENT, CLIENTS_OF_A_CROWD, WAITING_FOR_A_THREAD, Seat
from oar.api.estimates import FindSmallestChange
from oar.api.legacy import requests
from oar.api.request_bodies import MAX_PARTS, check_shape, fields_of
from oar.api.workers import Outcome
from oar.lib.base.errors import BadRequest, Unavailable
from oar.lib.config.files import Config
from oar.lib.db.database import Database
from tests.api.conftest import Api
from tests.builders import add_job, add_resources
from tests.process.this_machine import wait_until

CORPUS = (
    *("' OR 1=1 --", "1; DROP TABLE jobs", "1' UNION SELECT token_hash FROM api_tokens --", "';SELECT pg_sleep(9)--"),
    *("$(id)", "`id`", "../../etc/passwd", "..%2f..%2fetc%2fpasswd", "%00", "\u202e", "<script>alert(1)</script>"),
    *("{{7*7}}", "%s%n", "9" * 400, "-1", "1e9", "NaN", "\ud7ff\U0010ffff", "a" * 5000, "%", "\\"),
)
_LOGIN = b"POST /v1/session HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-type: application/json\r\n"
#: The body never comes.
_BODY = b"content-length: 9\r\n\r\n"
_TWO_LENGTHS = b"content-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\nGET / HTTP/1.1\r\n\r\n"


def _raw(api: Api, data: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", api.port), timeout=60) as connection:
        connection.sendall(data)
        answer = b""
        try:
            while piece := connection.recv(65536):
                answer += piece
        except ConnectionResetError:
            pass
        return answer


@pytest.mark.parametrize("route", ["/v1/jobs?{}={}", "/v1/nodes?{}={}", "/v1/resources?{}={}", "/v1/events?{}={}"])
def test_no_parameter_is_more_than_a_value(anonymous: httpx.Client, route: str) -> None:
    path = route.partition("?")[0]
    names = ("state", "user", "name", "type", "node", "q", "limit", "since", "array", "after")
    statuses = {anonymous.get(path, params={name: text}).status_code for name in names for text in CORPUS}
    assert statuses <= {200, 400, 401}


def test_no_path_and_no_header_is_more_than_a_value(anonymous: httpx.Client) -> None:
    for text in CORPUS:
        for path in ("/v1/jobs/", "/v1/nodes/", "/", "/v1/"):
            assert anonymous.get(path + httpx.URL(path="/" + text).raw_path.decode()[1:]).status_code in {200, 400, 404}
        header = text.encode("utf-8", "replace").replace(b"\n", b"")
        for name in ("X-Request-ID", "If-None-Match", "Accept", "Cookie", "X-Remote-Ident"):
            answer = anonymous.get("/v1/whoami", headers=[(name.encode(), header)])
            assert answer.status_code == 200


@pytest.mark.parametrize(
    "head",
    [
        _LOGIN + _TWO_LENGTHS,
        _LOGIN + b"content-length: 5\r\ncontent-length: 6\r\n\r\n12345",
        b"GET /v1/whoami HTTP/1.1\r\nhost: x\r\nx-remote-ident : root\r\n\r\n",
        b"GET /v1/whoami HTTP/1.1\r\nhost: x\r\n x-remote-ident: root\r\n\r\n",
        b"TRACE /v1/whoami HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc",
        b"GET /v1/whoami HTTP/9.9\r\n\r\n",
    ],
)
def test_what_could_be_read_in_two_ways_is_refused(api: Api, head: bytes) -> None:
    answer = _raw(api, head)
    assert answer.split(b" ")[1:2] in ([b"400"], [b"405"])
    assert b'"root"' not in answer


def test_a_head_without_end_is_refused(api: Api) -> None:
    answer = _raw(api, b"GET / HTTP/1.1\r\nhost: x\r\nx: " + b"a" * 100_000)
    assert answer.startswith(b"HTTP/1.1 431 ")


@pytest.mark.parametrize("path", ["/v1/jobs", "/oarapi/jobs"])
def test_a_head_that_is_too_long_is_told_what_is_long_in_it(api: Api, path: str) -> None:
    address, long = f"http://127.0.0.1:{api.port}{path}", "1" * server.MAX_HEAD
    of_address, of_header = httpx.get(address, params={"ids": long}), httpx.get(address, headers={"Cookie": long})
    for refused, status, way_out in ((of_address, 414, "fewer things"), (of_header, 431, "fewer headers")):
        told = refused.json()
        assert (refused.status_code, told["status"], told["type"]) == (status, status, "head-too-long")
        assert "32768 bytes" in told["detail"]
        assert way_out in told["hint"]
        old_words = (None, None) if path == "/v1/jobs" else (status, told["detail"])
        assert (told.get("code"), told.get("message")) == old_words
    assert httpx.get(f"http://127.0.0.1:{api.port}/v1/version").status_code == 200


def test_one_line_may_have_most_of_a_head(anonymous: httpx.Client) -> None:
    ids = ":".join(map(str, range(1_000_000, 1_003_500)))  # 27 KiB, as CiGri asks for all jobs of a campaign
    assert anonymous.get(f"/oarapi/jobs/details?ids={ids}").json()["items"] == []
    many = "&".join(f"job_ids={number}" for number in range(1_000_000, 1_001_500))
    assert anonymous.get(f"/oarapi/jobs?{many}").json()["items"] == []


def test_a_body_that_is_too_large_is_refused_before_it_is_read(api: Api, anonymous: httpx.Client) -> None:
    refused = _raw(api, _LOGIN + b"content-length: 104857600\r\n\r\n")
    assert refused.startswith(b"HTTP/1.1 413 ")
    assert b"retry-after" not in refused  # it will be as large then
    api.runtime.config = Config(api_max_body=1000)

    def without_length() -> Iterator[bytes]:
        for _ in range(100):
            yield b"x" * 100

    answer = anonymous.post("/v1/session", content=without_length(), headers={"Content-Type": "application/json"})
    assert (answer.status_code, answer.json()["type"]) == (413, "too-large")


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"[" * 65 + b"]" * 65, 400),
        (b'{"a":' * 100_000, 400),
        (b"{" + b",".join(b'"%d":0' % number for number in range(100_001)) + b"}", 413),
    ],
)
@pytest.mark.parametrize("path", ["/v1/session", "/oarapi/jobs"])
def test_a_body_of_an_endless_shape_is_not_read(anonymous: httpx.Client, path: str, body: bytes, status: int) -> None:
    answer = anonymous.post(path, content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == status
    assert "the body has" in answer.json()["detail"]
    assert path != "/v1/session" or answer.json()["hint"]


@pytest.mark.parametrize(
    "text", [b"[" * 64 + b"]" * 64, b'"' + b"[{:" * 200_000 + b'"', rb'["\"[' + b"[" * 100 + b'"]']
)
def test_the_shape_of_a_body_is_not_that_of_its_texts(text: bytes) -> None:
    check_shape(text)


def test_nobody_is_waited_for_for_ever(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(server, "HEAD_SECONDS", 0.1)
        assert _raw(api, b"GET /v1/whoami HTTP/1.1\r\nhost: x\r\n") == b""
        assert _raw(api, b"") == b""
    api.runtime.config = Config(api_timeout=1)
    assert _raw(api, _LOGIN + _BODY).startswith(b"HTTP/1.1 408 ")


def test_who_asks_too_often_is_told_so_and_others_are_not(
    api: Api, anonymous: httpx.Client, local: httpx.Client
) -> None:
    api.runtime.config = Config(api_rate_read=1)
    api.service.set_rates()
    assert anonymous.get("/v1/version").status_code == 200
    wait_until(lambda: anonymous.get("/v1/version").status_code == 429)
    assert {local.get("/v1/version").status_code for _ in range(10)} == {200}  # root is not counted


@pytest.mark.slow
def test_many_connections_that_say_nothing_harm_nobody(api: Api, anonymous: httpx.Client) -> None:
    with ExitStack() as silent:
        for _ in range(2000):
            silent.enter_context(socket.create_connection(("127.0.0.1", api.port), timeout=60))
        assert anonymous.get("/v1/version").status_code == 200
        with api.client() as another:
            assert another.get("/v1/version").status_code == 200


_VERSION = b"GET /v1/version HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"


@contextmanager
def _bodies_that_never_come(api: Api, number: int, family: socket.AddressFamily = socket.AF_INET) -> Iterator[None]:
    address = ("127.0.0.1", api.port) if family == socket.AF_INET else api.socket
    with ExitStack() as waiting:
        for _ in range(number):
            connection = waiting.enter_context(socket.socket(family))
            connection.connect(address)
            connection.sendall(_LOGIN + _BODY + b"{")
        wait_until(lambda: len(api.connections) == number)
        yield


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_UNIX])
def test_bodies_that_never_come_take_the_service_from_nobody(
    api: Api, anonymous: httpx.Client, local: httpx.Client, family: socket.AddressFamily
) -> None:
    with _bodies_that_never_come(api, 150, family):
        for client in (anonymous, local):
            for path in ("/v1/version", "/health/ready", "/ui/"):
                assert client.get(path).status_code == 200, path
        sender, other = (anonymous, local) if family == socket.AF_INET else (local, anonymous)
        refused = sender.post("/v1/session", json={})
        assert (refused.status_code, refused.json()["type"]) == (503, "too-many")
        assert int(refused.headers["retry-after"]) > 0
        assert other.post("/v1/session", json={}).status_code == 401


def test_more_requests_than_threads_can_answer_are_told_to_come_again(
    api: Api, local: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    api.runtime.config = Config(api_threads=1)
    slow = _VERSION.replace(b"host: x", b"host: x\r\nx-waits: 1")
    with _waiting(api, WAITING_FOR_A_THREAD, monkeypatch):
        while not (answer := _raw(api, slow)).startswith(b"HTTP/1.1 503 "):
            assert answer
        assert b'"too-many"' in answer
        old = _raw(api, _VERSION.replace(b"/v1/version", b"/oarapi/version"))
        assert b'"code":503,"message":"too many requests in progress: 127.0.0.1: the limit for one client is 8' in old
        assert b"\r\nretry-after: 1\r\n" in answer
        not_ready = _raw(api, _VERSION.replace(b"/v1/version", b"/health/ready"))
        alive = _raw(api, _VERSION.replace(b"/v1/version", b"/health/live"))
        assert (not_ready.split(b" ")[1], alive.split(b" ")[1]) == (b"503", b"200")
        assert local.get("/v1/version").status_code == 200


@contextmanager
def _waiting(api: Api, number: int, monkeypatch: pytest.MonkeyPatch, path: bytes = b"/v1/version") -> Iterator[None]:
    """Requests of an address, each of which keeps the thread that answers it while the block lasts."""
    goes_on, identify = threading.Event(), api.service.identities.identify

    def wait(request: Request, config: Config) -> Caller:
        if "x-waits" in request.headers:
            goes_on.wait()
        return identify(request, config)

    monkeypatch.setattr(api.service.identities, "identify", wait)
    slow = _VERSION.replace(b"host: x", b"host: x\r\nx-waits: 1").replace(b"/v1/version", path)
    with ExitStack() as waiting:
        waiting.callback(goes_on.set)
        for _ in range(number):
            waiting.enter_context(socket.create_connection(("127.0.0.1", api.port), timeout=60)).sendall(slow)
        yield


@pytest.mark.parametrize("path", ["/v1/version", "/v1/tokens", "/oarapi/version", "/v1/jobs?limit=1"])
def test_a_client_has_a_part_of_the_threads(
    api: Api, local: httpx.Client, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    threads = api.service.places.threads
    with _waiting(api, threads.number + 1, monkeypatch):
        wait_until(lambda: threads.busy == threads.number // 2)
        assert local.get(path).status_code == 200
        assert threads.busy == threads.number // 2
    wait_until(lambda: threads.busy == 0)


def test_clients_whom_a_proxy_does_not_tell_apart_have_more_than_half_of_the_threads(
    api: Api, local: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    api.runtime.config = Config(api_trusted_proxies=("127.0.0.1",))
    threads = api.service.places.threads
    threads.number = 5
    with _waiting(api, threads.number + 1, monkeypatch):
        wait_until(lambda: threads.busy == CLIENTS_OF_A_CROWD)
        assert local.get("/v1/version").status_code == 200
        assert threads.busy == CLIENTS_OF_A_CROWD
    wait_until(lambda: threads.busy == 0)


def test_a_user_has_a_part_of_the_workers(
    api: Api, database: Database, nobody: httpx.Client, daemon: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_resources(database)
    workers, goes_on, do = api.service.workers, threading.Event(), api.service.workers._done
    monkeypatch.setattr(workers._places, "_patience", 60)

    def done(process: Any, task: Any, seconds: float) -> Outcome:
        if task.user.name == "nobody":
            goes_on.wait()
        return do(process, task, seconds)

    monkeypatch.setattr(workers, "_done", done)
    job = {"command": "/bin/true"}
    with ThreadPoolExecutor() as users, ExitStack() as waiting:
        waiting.callback(goes_on.set)
        answers = [users.submit(nobody.post, "/v1/jobs", json=job) for _ in range(2)]
        wait_until(lambda: (workers._places.busy, api.service.places.threads.busy) == (1, 2))
        assert daemon.post("/v1/jobs", json=job).status_code == 201
        goes_on.set()
        assert [each.result().status_code for each in answers] == [201, 201]


def test_nobody_waits_for_a_worker_of_a_service_that_has_stopped(api: Api) -> None:
    api.service.workers.close()
    for run in (api.service.workers.run, api.service.workers.run_long):
        with pytest.raises(Unavailable, match="the service is stopping"):
            run(FindSmallestChange(1), 1)


def test_who_waits_for_a_thread_does_not_listen_yet(
    api: Api, database: Database, local: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, threads = b"/v1/jobs/%d/output/stdout?follow=true" % add_job(database), api.service.places.threads
    with _waiting(api, threads.number, monkeypatch, path):
        wait_until(lambda: threads.busy == threads.number // 2)
        assert api.service.hub.listeners == 0


def test_a_client_has_a_part_of_the_bytes_of_bodies(api: Api, anonymous: httpx.Client, local: httpx.Client) -> None:
    api.runtime.config = Config(api_rate_read=0, api_rate_change=0, api_max_body=1000)
    with ExitStack() as waiting:
        for _ in range(BYTES_OF_A_CLIENT):
            connection = waiting.enter_context(socket.create_connection(("127.0.0.1", api.port), timeout=60))
            connection.sendall(_LOGIN + b"content-length: 1000\r\n\r\n" + b"{" * 999)
        wait_until(lambda: api.service.places.bytes.total == 999 * BYTES_OF_A_CLIENT)
        refused = anonymous.post("/v1/session", content=b" " * 900, headers={"Content-Type": "application/json"})
        assert (refused.status_code, int(refused.headers["retry-after"]) > 0) == (503, True)
        assert (
            "too many request bodies in progress: 127.0.0.1: the limit for one client is 4000 bytes (4 x API_MAX_BODY)"
            in refused.json()["detail"]
        )
        assert local.post("/v1/session", content=b" " * 900).status_code not in (413, 503)
    wait_until(lambda: api.service.places.bytes.total == 0)
    assert anonymous.post("/v1/session", content=b" " * 900).status_code not in (413, 503)


def test_a_user_has_a_part_of_all_requests_from_whichever_address(
    api: Api, nobody: httpx.Client, daemon: httpx.Client
) -> None:
    api.runtime.config = Config(api_rate_read=0, api_threads=1)
    with ExitStack() as held:
        for _ in range(WAITING_FOR_A_THREAD):
            seat = Seat(api.service.places, "192.0.2.1", 1)
            held.callback(seat.give_back)
            seat.count_user("nobody")
        assert (nobody.get("/v1/version").status_code, daemon.get("/v1/version").status_code) == (503, 200)
    assert nobody.get("/v1/version").status_code == 200


def test_a_process_has_a_part_of_all_connections(
    api: Api, local: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "most_connections", lambda: 5)
    with ExitStack() as silent:
        for _ in range(5):
            silent.enter_context(socket.create_connection(("127.0.0.1", api.port), timeout=60))
        wait_until(lambda: len(api.connections) == 5)
        assert _raw(api, b"").startswith(b"HTTP/1.1 503 ")
        assert local.get("/v1/version").status_code == 200
        api.runtime.config = Config(api_trusted_proxies=("127.0.0.1",))
        assert _raw(api, _VERSION).startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize("path", ["/v1/jobs", "/oarapi/jobs", "/v1/session"])
@pytest.mark.parametrize("megabytes", [17, 24])
def test_the_answer_to_a_body_that_is_too_large_is_not_lost(api: Api, path: str, megabytes: int) -> None:
    head = f"POST {path} HTTP/1.1\r\nhost: x\r\ncontent-length: {megabytes << 20}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", api.port), timeout=60) as connection:
        connection.sendall(head.encode())
        for _ in range(megabytes):  # as Ruby's and Python's clients do: all is sent before anything is read
            connection.sendall(b"x" * (1 << 20))
        assert _rest(connection).startswith(b"HTTP/1.1 413 ")


def test_a_refused_body_takes_no_place_of_bodies_that_come(api: Api) -> None:
    head = f"POST /v1/jobs HTTP/1.1\r\nhost: x\r\ncontent-length: {1 << 40}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", api.port), timeout=60) as connection, ExitStack() as held:
        connection.sendall(head.encode())
        assert connection.recv(12) == b"HTTP/1.1 413"  # and what comes now is read on
        for _ in range(ARRIVING_FOR_A_THREAD):
            seat = Seat(api.service.places, "127.0.0.1", 1)
            held.callback(seat.give_back)
            seat.wait_for_body()


def test_an_early_refusal_and_one_of_a_long_head_are_not_lost(api: Api) -> None:
    length = 12 << 20
    head = f"POST /oar-cgi HTTP/1.1\r\nhost: x\r\ncontent-length: {length}\r\n\r\n".encode()
    for begin, status in ((head, b"401"), (b"GET / HTTP/1.1\r\nx: ", b"431")):
        with socket.create_connection(("127.0.0.1", api.port), timeout=60) as connection:
            connection.sendall(begin)
            for _ in range(length >> 20):
                connection.sendall(b"x" * (1 << 20))
            connection.shutdown(socket.SHUT_WR)
            assert _rest(connection).split(b" ")[1] == status


def test_who_reads_nothing_holds_nothing_for_long(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "UNREAD_SECONDS", 1.0)
    api.sockets[0].setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)  # the kernel keeps little
    with ExitStack() as deaf:
        clients = [deaf.enter_context(socket.socket()) for _ in range(8)]
        for client in clients:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.connect(("127.0.0.1", api.port))
        wait_until(lambda: len(api.connections) == len(clients))
        for client in clients:
            client.sendall(b"GET /docs HTTP/1.1\r\nhost: x\r\n\r\n")
        wait_until(lambda: not api.connections)
        assert all(b"</html>" not in _rest(client) for client in clients)


def _rest(client: socket.socket) -> bytes:
    """Return all that the kernel has kept for a client."""
    rest = b""
    while piece := client.recv(1 << 20):
        rest += piece
    return rest


@pytest.mark.slow
def test_a_hundred_million_bytes_are_not_taken(api: Api) -> None:
    head = _LOGIN + b"transfer-encoding: chunked\r\n\r\n"
    piece = b"100000\r\n" + b"x" * (1 << 20) + b"\r\n"
    sent = 0
    with socket.create_connection(("127.0.0.1", api.port), timeout=60) as connection:
        connection.sendall(head)
        try:
            while sent < 100 and not select.select([connection], [], [], 0)[0]:
                connection.sendall(piece)
                sent += 1
            answer = connection.recv(65536)
        except ConnectionError:
            answer = b""
    assert answer.startswith(b"HTTP/1.1 413 ") or not answer
    assert sent < 50


def _dripped(api: Api, head: bytes) -> bytes:
    """Send a body byte by byte, for as long as it takes until there is an answer."""
    with socket.create_connection(("127.0.0.1", api.port), timeout=60) as connection:
        connection.sendall(head)
        while not select.select([connection], [], [], 0.05)[0]:
            connection.sendall(b"x")
        return connection.recv(65536)


@pytest.mark.parametrize("path", ["/v1/session", "/oar-cgi", "/media/tmp/x"])
def test_a_body_that_only_drips_is_given_up(api: Api, known: Callable[[str, str], httpx.Client], path: str) -> None:
    api.runtime.config = Config(api_timeout=1, api_media=True, api_media_roots=("/tmp",))
    client = known("root", "agent:*") if path == "/oar-cgi" else known("nobody", "rw")
    kind = "multipart/form-data; boundary=x" if path == "/oar-cgi" else "application/octet-stream"
    head = (
        f"POST {path} HTTP/1.1\r\nhost: x\r\nauthorization: {client.headers['authorization']}\r\n"
        f"content-type: {kind}\r\ncontent-length: 100000\r\n\r\n--x\r\n"
    )
    assert _dripped(api, head.encode()).startswith(b"HTTP/1.1 408 ")


def test_the_parts_of_a_form_are_counted_before_they_are_looked_at() -> None:
    part = b'--x\r\ncontent-disposition: form-data; name="a"\r\n\r\nb\r\n'
    kind = "multipart/form-data; boundary=x"
    assert fields_of(kind, part + b"--x--\r\n") == {"a": "b"}
    assert fields_of(kind, b"preamble\r\n" + part * MAX_PARTS + b"--x--") == {"a": "b"}
    looked_at = 0
    with pytest.MonkeyPatch.context() as patch:

        def count(*_: object) -> tuple[str, str]:
            nonlocal looked_at
            looked_at += 1
            return "a", "b"

        patch.setattr(request_bodies, "_field", count)
        with pytest.raises(BadRequest, match="at most 1000 parts"):
            fields_of(kind, part * 10 * MAX_PARTS + b"--x--")
    assert looked_at == 0


def test_a_part_that_is_a_form_itself_is_a_text() -> None:
    inner = b"content-type: multipart/mixed; boundary=y\r\n\r\n--y\r\n\r\n--y--"
    form = b"--x\r\ncontent-disposition: form-data; name=a\r\n" + inner + b"\r\n--x--\r\n"
    assert fields_of("multipart/form-data; boundary=x", form) == {"a": "--y\r\n\r\n--y--"}


@pytest.mark.parametrize(
    "form",
    [
        *(
            b"",
            b"--x",
            b"--x\r\n",
            b"--x--x",
            b"--x\r\n\r\nb\r\n--x--",
            b"--x\r\ncontent-disposition: form-data\r\n\r\n",
        ),
        *(b'--x\r\ncontent-disposition: form-data; name="a"\r\n\r\nb', b"--x\r\nname=a\r\n\r\nb\r\n--x--"),
        b'--x\r\ncontent-disposition: form-data; name="a"\r\n\r\n\xff\r\n--x--',
    ],
)
def test_what_is_no_whole_form_is_refused(form: bytes) -> None:
    with pytest.raises(BadRequest):
        fields_of("multipart/form-data; boundary=x", form)


def test_yaml_of_nobody_and_much_of_it_is_not_read(
    anonymous: httpx.Client, nobody: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []

    def note(text: str) -> object:
        read.append(text)
        return {}

    monkeypatch.setattr(requests, "read_yaml", note)
    yaml = {"Content-Type": "text/yaml"}
    short, long, endless = (b"a: [" + b"1," * number + b"1]" for number in (9, 10_000, requests.MAX_YAML))
    assert anonymous.post("/oarapi/jobs", content=short, headers=yaml).status_code == 401
    refused = nobody.post("/oarapi/jobs", content=endless, headers=yaml)
    assert (refused.status_code, "too much YAML" in refused.text, read) == (400, True, [])
    monkeypatch.setattr(requests._YAML_BODIES, "_patience", 0)
    with requests._YAML_BODIES.place("somebody"):
        busy = nobody.post("/oarapi/jobs", content=long, headers=yaml)
        assert (busy.status_code, busy.headers["retry-after"], read) == (503, "2", [])
        nobody.post("/oarapi/jobs", content=short, headers=yaml)
    nobody.post("/oarapi/jobs", content=long, headers=yaml)
    assert [len(each) for each in read] == [len(short), len(long)]


def test_another_protocol_is_answered_by_this_one_and_fills_no_log(
    anonymous: httpx.Client, caplog: pytest.LogCaptureFixture
) -> None:
    for wanted in ("h2c", "websocket", "x" * 1000):
        answer = anonymous.get("/v1/version", headers={"Connection": "Upgrade", "Upgrade": wanted})
        assert (answer.status_code, answer.http_version) == (200, "HTTP/1.1")
    assert not [each for each in caplog.records if "upgrade" in each.getMessage().lower()]
