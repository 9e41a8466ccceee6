"""Cost of API requests: ``python -m bench.api [REQUESTS]``.

CPU is measured per request in the serving process only, over one persistent connection, without the work of the
database.  The first figure is an empty Starlette route on the same server: the difference to it is our code.
The second part measures clients of the event stream: CPU of the process as a share of a core, and its memory.
"""

import multiprocessing
import os
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from http import HTTPStatus
from http.client import HTTPConnection
from pathlib import Path
from statistics import median

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from bench.commands import CORES, RUNNING, add_jobs
from bench.figures import Figures, heading
from bench.ground import ground
from oar.api.server import PeerProtocol, listening_sockets, server_of, spare_what_stays
from oar.api.service import Service
from oar.lib.access import tokens
from oar.lib.access.records import User
from oar.lib.base.processes import ServiceManager
from oar.lib.config.files import Config
from oar.lib.db.connections import DatabaseSettings
from oar.lib.db.database import Database
from oar.lib.jobs.reasons import ReasonCode
from oar.lib.jobs.sql_waits import StoredReason
from oar.lib.runtime import Runtime

WAITING = 2_000
REQUESTS = 1_000
#: Divisor of the number of requests for slow routes.
LONG = 20
RESOURCES = 5_000
#: Clients of the event stream, events per second, duration in seconds.
LISTENERS, EVENTS, SECONDS = 200, 5, 20
#: Requests per second of the mixed load, and its duration in seconds.
RATE, MIXED_SECONDS = 300, 10
#: Number of measurements; the median is reported.
RUNS = 3
_TICK = os.sysconf("SC_CLK_TCK")
_ADDRESSES = {
    "one job, anonymous": ("/v1/jobs/1", 0.6, False),
    "one job, with a token": ("/v1/jobs/1", 1.0, True),
    "page of 100 jobs": ("/v1/jobs?limit=100", 1.0, False),
    "page of 100 jobs with all details": ("/v1/jobs?limit=100&details=true", 5.0, False),
    "no such address": ("/v1/nothing", 0.6, False),
}
_LONG = {
    "why a job waits": (f"/v1/jobs/{RUNNING + 1}/explanation", 10.0),
    f"all {RESOURCES} resources": ("/v1/resources", 65.0),
}
_RESOURCES = """
    INSERT INTO resources (type, network_address, cpuset)
    SELECT 'default', 'node-' || node, '0' FROM generate_series(1, %s) node"""


def main() -> None:
    """Print the figures."""
    requests = int(sys.argv[1]) if len(sys.argv) > 1 else REQUESTS
    figures = Figures()
    with ground() as stand:
        with stand.database.begin() as tx:
            tx.execute(_RESOURCES, (RESOURCES,))
        add_jobs(stand, 1, RUNNING, "Running", CORES)
        add_jobs(stand, RUNNING + 1, WAITING, "Waiting")
        busy = StoredReason(ReasonCode.BUSY, "its resources are used", '{"busy": [1, 2, 3]}')
        with stand.database.begin() as tx:
            tx.job_waits.explain(dict.fromkeys(range(RUNNING + 1, RUNNING + WAITING + 1), busy))
        stand.analyze()
        with stand.database.begin() as tx:
            _, token = tokens.create(tx, User("nobody", 65534), scope="ro")
            _, administrator = tokens.create(tx, User("root", 0, administers=True), scope="admin")
        settings = stand.database.settings
        heading(f"CPU of a request; {RESOURCES} resources, {RUNNING} running jobs, {WAITING} waiting")
        with _served(_empty) as server:
            figures.note("an empty route of Starlette", server.cost("/", {}, requests))
        with _served(lambda listening: _service(settings, listening)) as server:
            for what, (address, most, is_known) in _ADDRESSES.items():
                headers = {"Authorization": f"Bearer {token}"} if is_known else {}
                figures.add(what, server.cost(address, headers, requests), most)
            for what, (address, most) in _LONG.items():
                figures.add(what, server.cost(address, {}, requests // LONG + 1), most)
            heading(f"{LISTENERS} clients listen to {EVENTS} events a second")
            figures.add("CPU, of a core", 100 * server.listened(stand.database, administrator), 5.0, "%")
            figures.add("memory", server.memory, 120.0, "MiB")
            heading(f"{RATE} requests a second, of all kinds")
            share, rate = server.mixed()
            figures.note("requests a second that were answered", rate, "")
            figures.add("CPU, of a core", share, 0.35, "")
    figures.end()


class _Server:
    """A serving process and a client connection to it."""

    def __init__(self, process: int, port: int) -> None:
        self._process = process
        self._port = port
        self._client = HTTPConnection("127.0.0.1", port, timeout=60)

    def cost(self, address: str, headers: Mapping[str, str], requests: int) -> float:
        """Return the CPU time of a request in milliseconds."""
        self._ask(address, headers, requests // 10 + 1)
        return median(self._measured(address, headers, requests) for _ in range(RUNS))

    def listened(self, database: Database, token: str) -> float:
        """Return the share of a core used to send events to clients; ``token``: of a user without a stream limit."""
        with ExitStack() as clients:
            for _ in range(LISTENERS):
                clients.enter_context(self._listener(token))
            before = self._cpu()
            for _ in range(EVENTS * SECONDS):
                with database.begin() as tx:
                    tx.events.add("BENCH", 0, "")
                time.sleep(1 / EVENTS)
            return (self._cpu() - before) / SECONDS

    def mixed(self) -> tuple[float, float]:
        """Return the share of a core used by the mixed load, and the number of requests per second."""
        known = [address for address, _, is_known in _ADDRESSES.values() if not (is_known or "details" in address)]
        others = ["/v1/version", f"/v1/jobs/{RUNNING + 1}", "/v1/queues", "/health/live"]
        addresses = [*known, _LONG["why a job waits"][0], *others]
        self._client.close()  # the idle connection has timed out
        before, begin = self._cpu(), time.monotonic()
        for number in range(RATE * MIXED_SECONDS):
            self._ask(addresses[number % len(addresses)], {}, 1)
            time.sleep(max(0.0, begin + number / RATE - time.monotonic()))
        elapsed = time.monotonic() - begin
        return (self._cpu() - before) / elapsed, RATE * MIXED_SECONDS / elapsed

    def _listener(self, token: str) -> socket.socket:
        """Return a connection with an open event stream; its data stay in the socket buffer."""
        connection = socket.create_connection(("127.0.0.1", self._port))
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
        head = f"GET /v1/stream HTTP/1.1\r\nHost: bench\r\nAuthorization: Bearer {token}\r\n\r\n"
        connection.sendall(head.encode())
        connection.recv(1)
        return connection

    @property
    def memory(self) -> float:
        """Resident memory of the process in MiB."""
        status = Path(f"/proc/{self._process}/status").read_text()
        return int(status.partition("VmRSS:")[2].split()[0]) / 1024

    def _measured(self, address: str, headers: Mapping[str, str], requests: int) -> float:
        before = self._cpu()
        self._ask(address, headers, requests)
        return (self._cpu() - before) * 1000 / requests

    def _ask(self, address: str, headers: Mapping[str, str], requests: int) -> None:
        for _ in range(requests):
            self._client.request("GET", address, headers=headers)
            answer = self._client.getresponse()
            answer.read()
            if answer.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
                sys.exit(f"{address} was answered {answer.status}")

    def _cpu(self) -> float:
        """Return the CPU time of the process in seconds."""
        fields = Path(f"/proc/{self._process}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICK


@contextmanager
def _served(serve: Callable[[socket.socket], None]) -> Iterator[_Server]:
    """Run the server in a child process until the end of the block."""
    (listening,) = listening_sockets(["127.0.0.1:0"])
    process = multiprocessing.get_context("fork").Process(target=serve, args=(listening,), daemon=True)
    process.start()
    try:
        assert process.pid
        yield _Server(process.pid, listening.getsockname()[1])
    finally:
        process.kill()
        process.join()
        listening.close()


def _empty(listening: socket.socket) -> None:
    def nothing(_: Request) -> Response:
        return Response(b"{}", media_type="application/json")

    app = Starlette(routes=[Route("/", nothing)])
    protocol = partial(PeerProtocol, site=Config)
    config = uvicorn.Config(
        app,
        http=protocol,  # type: ignore[arg-type]
        proxy_headers=False,
        access_log=False,
        log_config=None,
        ws="none",
    )
    uvicorn.Server(config).run(sockets=[listening])


def _service(settings: DatabaseSettings, listening: socket.socket) -> None:
    config = Config(api_rate_read=0, api_rate_change=0)
    with tempfile.TemporaryDirectory() as directory:
        runtime = Runtime(config, Database(settings), oardir=directory)
        server = server_of(Service(runtime), ServiceManager({}))
        spare_what_stays()
        server.run(sockets=[listening])


if __name__ == "__main__":
    main()
