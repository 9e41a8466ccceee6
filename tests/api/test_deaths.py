"""The service, writers and clients die at any moment: nothing that happened is lost, told twice or out of order."""

import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import httpx
import pytest

from oar.lib.access import tokens
from oar.lib.access.records import User
from oar.lib.db.connections import DatabaseSettings
from oar.lib.db.database import Database
from tests.api.test_program import Program, Start, start
from tests.builders import add_resources

pytestmark = pytest.mark.slow

__all__ = ["start"]

WRITERS, ROWS_OF_A_WRITER, DEATHS = 8, 25, 3
#: Writes events until it has written enough, or is killed: some transactions last, some are rolled back.
_WRITER = """
import json, random, sys, time
from oar.lib.db.connections import DatabaseSettings
from oar.lib.db.database import Database
settings, rows, seed = DatabaseSettings(**json.loads(sys.argv[1])), int(sys.argv[2]), int(sys.argv[3])
chance, database = random.Random(seed), Database(settings)
class Undone(Exception): pass
for row in range(rows):
    try:
        with database.begin() as tx:
            for _ in range(chance.randint(1, 3)):
                tx.events.add("TEST", 0, f"{seed}.{row}")
            time.sleep(chance.random() / 50)
            if chance.random() < 0.2:
                raise Undone
    except Undone:
        pass
"""


def _client(path: Path) -> httpx.Client:
    return httpx.Client(transport=httpx.HTTPTransport(uds=str(path)), base_url="http://oar", timeout=60)


@contextmanager
def _writers(settings: DatabaseSettings) -> Iterator[list[subprocess.Popen[bytes]]]:
    given = json.dumps(settings._asdict())
    command = [sys.executable, "-c", _WRITER, given, str(ROWS_OF_A_WRITER)]
    found = [subprocess.Popen([*command, str(seed)]) for seed in range(WRITERS)]
    try:
        yield found
    finally:
        for each in found:
            each.kill()
            each.wait()


class _Reader:
    """A client of the stream that comes back with the last position that it knows."""

    def __init__(self, path: Path, position: str) -> None:
        self._path = path
        self.position = position
        self.seen: list[int] = []

    def read(self, until: int) -> None:
        """Read until so many events are seen, or the service is gone."""
        with suppress(httpx.HTTPError), _client(self._path) as client:
            headers = {"Last-Event-ID": self.position}
            with client.stream("GET", "/v1/stream", headers=headers) as answer:
                place = name = ""
                for line in answer.iter_lines():
                    word, _, value = line.partition(": ")
                    assert value != "reset", f"{self.position} is too long ago"
                    place, name = (value, name) if word == "id" else (place, value if word == "event" else name)
                    if word == "data" and name == "event":
                        self.seen.append(json.loads(value)["id"])
                        self.position = place
                        if len(self.seen) >= until:
                            return


def _events(database: Database, after: int) -> list[int]:
    with database.snapshot() as tx:
        return tx.column("SELECT event_id FROM event_logs WHERE event_id > %s ORDER BY event_id", (after,))


def _ready(start: Start, path: Path) -> Program:
    path.with_name("notify").unlink(missing_ok=True)
    program = start(f"unix:{path}")
    assert program.told.recv(100) == b"READY=1"
    with _client(path) as client:
        while client.get("/v1/events").status_code != 200:
            assert program.process.poll() is None
    return program


def _killed(program: Program) -> None:
    """Kill a service, and wait until it is gone: a living one keeps its socket."""
    program.process.kill()
    program.process.wait()


def test_each_event_is_told_once_whoever_is_killed(
    start: Start, shared_settings: DatabaseSettings, database: Database, tmp_path: Path
) -> None:
    path = tmp_path / "api.sock"
    with database.begin() as tx:  # numbers of events may have come far while there is none
        tx.events.add("TEST", 0, "before")
    program = _ready(start, path)
    with _client(path) as client:
        reader = _Reader(path, client.get("/v1/events").json()["position"])
    first = int(reader.position.partition(".e")[2])
    with _writers(shared_settings) as writers:
        for death in range(DEATHS):
            reader.read(until=(death + 1) * 30)
            _killed(program)
            writers[death].kill()  # in the middle of a transaction, as a server is
            program = _ready(start, path)
        for each in writers:
            each.wait()
    written = _events(database, first)
    reader.read(until=len(written))
    assert reader.seen == written
    assert len(written) > 100


def test_a_request_with_a_key_makes_one_job_whenever_the_service_is_killed(
    start: Start, database: Database, tmp_path: Path
) -> None:
    add_resources(database)
    with database.begin() as tx:
        _, token = tokens.create(tx, User("nobody", 65534))
    path = tmp_path / "api.sock"
    made: list[int] = []
    for number, kills_when_stored in enumerate((False, True, True)):
        program = _ready(start, path)
        is_connected = threading.Event()
        send = partial(_submit, path, number, token, is_connected)
        thread = threading.Thread(target=_ignoring, args=(send,))
        thread.start()
        is_connected.wait()
        while kills_when_stored and len(_jobs(database)) == len(made):
            assert program.process.poll() is None
        _killed(program)
        thread.join()
        program = _ready(start, path)
        answers = [send(), send()]
        assert [each.status_code for each in answers] == [201, 201], answers[0].text
        assert answers[1].headers["Idempotency-Replayed"] == "true"
        _killed(program)
        made.append(answers[0].json()["id"])
        assert answers[1].json()["id"] == made[-1]
    assert _jobs(database) == made


def _submit(path: Path, number: int, token: str, is_connected: threading.Event) -> httpx.Response:
    headers = {"Authorization": f"Bearer {token}", "Idempotency-Key": f"request {number}"}
    with _client(path) as client:
        client.get("/health/live")
        is_connected.set()
        return client.post("/v1/jobs", json={"command": f"run {number}"}, headers=headers)


def _ignoring(send: Callable[[], httpx.Response]) -> None:
    with suppress(httpx.HTTPError):
        send()


def _jobs(database: Database) -> list[int]:
    with database.snapshot() as tx:
        return sorted(job.id for job in tx.jobs.live("nobody"))
