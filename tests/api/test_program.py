"""The program oar-api: its start, its end, what it says when it cannot."""

import gc
import os
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from oar.api.server import limited, listening_sockets, spare_what_stays
from oar.lib.base.errors import Unavailable
from oar.lib.config.files import Config
from oar.lib.db.connections import DatabaseSettings
from oar.lib.db.database import Database
from oar.lib.runtime import Runtime
from tests.builders import add_resources
from tests.documents import SOURCE
from tests.process.this_machine import wait_until

Start = Callable[..., "Program"]
WAY = """
DB_HOSTNAME="{settings.host}"
DB_PORT="{settings.port}"
DB_BASE_NAME="{settings.name}"
DB_BASE_LOGIN="{settings.user}"
DB_BASE_PASSWD="{settings.password}"
LOG_FILE="{directory}/oar.log"
API_LISTEN="{listen}"
"""


def test_requests_do_not_wait_for_a_database_as_commands_do() -> None:
    settings = DatabaseSettings(patience=30)
    runtime = Runtime(Config(api_statement_timeout=7), Database(settings))
    assert limited(runtime).settings == settings._replace(patience=2.0, statement_timeout=7)


class Program:
    """A running oar-api, and what it tells systemd."""

    def __init__(self, directory: Path, configuration: str) -> None:
        self.conf = directory / "oar.conf"
        self.conf.write_text(configuration)
        self.told = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.told.bind(str(directory / "notify"))
        self.told.settimeout(60)
        environment = {**os.environ, "OARCONFFILE": str(self.conf), "NOTIFY_SOCKET": str(directory / "notify")}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "oar.api.server"], env=environment, stderr=subprocess.PIPE, text=True
        )

    def end(self) -> int:
        """Let a signal end it; return its exit code, as Python tells it."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(60)


@pytest.fixture
def start(shared_settings: DatabaseSettings, database: object, tmp_path: Path) -> Iterator[Start]:
    programs: list[Program] = []

    def start_one(listen: str, more: str = "") -> Program:
        text = WAY.format(settings=shared_settings, directory=tmp_path, listen=listen) + more
        programs.append(Program(tmp_path, text))
        return programs[-1]

    yield start_one
    for program in programs:
        program.process.kill()
        program.process.communicate()
        program.told.close()


def _get(path: Path, route: str) -> httpx.Response:
    with httpx.Client(transport=httpx.HTTPTransport(uds=str(path)), base_url="http://oar", timeout=60) as client:
        return client.get(route)


def _post(path: Path, route: str, content: object) -> httpx.Response:
    with httpx.Client(transport=httpx.HTTPTransport(uds=str(path)), base_url="http://oar", timeout=60) as client:
        return client.post(route, json=content)


def test_it_tells_when_it_is_ready_answers_and_ends(start: Start, tmp_path: Path) -> None:
    program = start(f"unix:{tmp_path}/api.sock")
    assert program.told.recv(100) == b"READY=1"
    assert stat.S_IMODE((tmp_path / "api.sock").stat().st_mode) == 0o666  # the kernel tells who comes
    assert _get(tmp_path / "api.sock", "/v1/whoami").json()["way"] == "socket"
    assert program.end() == -signal.SIGTERM  # after everything was closed
    assert program.told.recv(100) == b"STOPPING=1"


def _reload(program: Program, line: str, log: Path, said: str, *, is_signaled: bool = True) -> None:
    """Add a line to the configuration, have it read again, and wait until the log says what came of that."""
    program.conf.write_text(f"{program.conf.read_text()}{line}\n")
    if is_signaled:
        program.process.send_signal(signal.SIGHUP)
    while not (log.exists() and said in log.read_text()):
        assert program.process.poll() is None


@pytest.mark.parametrize("is_signaled", [True, False])
def test_it_reads_its_configuration_again(start: Start, tmp_path: Path, is_signaled: bool) -> None:
    program = start(f"unix:{tmp_path}/api.sock")
    assert program.told.recv(100) == b"READY=1"
    line, said = 'API_DEFAULT_MAX_ITEMS_NUMBER="7"', "has been read again"
    _reload(program, line, tmp_path / "oar.log", said, is_signaled=is_signaled)
    assert _get(tmp_path / "api.sock", "/health/ready").status_code == 200


def test_a_configuration_with_errors_changes_nothing(start: Start, tmp_path: Path) -> None:
    program = start(f"unix:{tmp_path}/api.sock")
    assert program.told.recv(100) == b"READY=1"
    _reload(program, 'API_THREADS="many"', tmp_path / "oar.log", "API_THREADS")
    assert _get(tmp_path / "api.sock", "/health/ready").json()["threads"]["all"] == 16


def test_it_tells_systemd_that_it_lives(start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WATCHDOG_USEC", "20000")
    monkeypatch.delenv("WATCHDOG_PID", raising=False)
    program = start(f"unix:{tmp_path}/api.sock")
    assert [program.told.recv(100) for _ in range(4)] == [b"READY=1", *[b"WATCHDOG=1"] * 3]
    unit = (SOURCE / "setup" / "systemd" / "oar-api.service").read_text().splitlines()
    assert {"Type=notify", "WatchdogSec=30"} <= set(unit)


def _is_waiting_for_a_lock(database: Database) -> bool:
    with database.begin() as tx:
        return bool(tx.column("SELECT pid FROM pg_stat_activity WHERE wait_event_type = 'Lock'"))


def test_a_job_that_is_being_submitted_when_the_service_is_stopped_is_submitted(
    start: Start, tmp_path: Path, database: Database
) -> None:
    add_resources(database)
    program = start(f"unix:{tmp_path}/api.sock", 'ADMISSION_RULES_ACK_EMPTY="yes"\n')
    assert program.told.recv(100) == b"READY=1"
    with ThreadPoolExecutor() as pool:
        with database.begin() as tx:
            tx.execute("LOCK TABLE jobs IN EXCLUSIVE MODE")
            submission = pool.submit(_post, tmp_path / "api.sock", "/v1/jobs", {"command": "true"})
            wait_until(lambda: _is_waiting_for_a_lock(database))
            program.process.send_signal(signal.SIGTERM)  # as its unit does: to it alone
            assert program.told.recv(100) == b"STOPPING=1"
        answer = submission.result()
    assert answer.status_code == 201, answer.text
    assert program.process.wait(60) == -signal.SIGTERM


@pytest.mark.slow
def test_a_second_one_does_not_take_the_socket_of_the_first(start: Start, tmp_path: Path) -> None:
    path = tmp_path / "api.sock"
    assert start(f"unix:{path}").told.recv(100) == b"READY=1"
    with pytest.raises(Unavailable, match=r"api\.sock: Address already in use"):
        listening_sockets([f"unix:{path}"])
    assert _get(path, "/health/ready").status_code == 200


def test_the_socket_that_a_killed_one_has_left_is_replaced(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as former:
        former.bind(str(tmp_path / "api.sock"))
    (listening,) = listening_sockets([f"unix:{tmp_path}/api.sock"])
    listening.close()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("listen", "code", "text"),
    [
        ("nowhere", 1, "API_LISTEN: 'nowhere' must be HOST:PORT"),
        ("127.0.0.1:http", 1, "API_LISTEN: '127.0.0.1:http' must be HOST:PORT"),
        ("unix:/nonexistent/a/api.sock", 2, "cannot listen on /nonexistent/a/api.sock: No such file or directory"),
        ("192.0.2.1:6668", 2, "cannot listen on 192.0.2.1:6668"),
    ],
)
def test_an_address_that_cannot_be_is_told_in_one_line(start: Start, listen: str, code: int, text: str) -> None:
    program = start(listen)
    _, said = program.process.communicate(timeout=60)
    assert (program.process.returncode, said.count("\n")) == (code, 1)
    assert text in said


def test_no_answer_waits_in_the_kernel() -> None:
    (listening,) = listening_sockets(["127.0.0.1:0"])
    with listening:
        assert listening.proto == socket.IPPROTO_TCP  # by which asyncio knows where TCP_NODELAY belongs


@pytest.mark.slow
def test_the_collector_of_garbage_does_not_look_at_what_stays() -> None:
    before = gc.get_freeze_count()
    try:
        spare_what_stays()
        assert gc.get_freeze_count() > before
    finally:
        gc.unfreeze()
