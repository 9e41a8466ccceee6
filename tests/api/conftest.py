"""A service of the API, started as its program starts it but for the process."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from oar.api.server import listening_sockets, server_of
from oar.api.service import Service
from oar.lib.access import tokens
from oar.lib.config.files import Config
from oar.lib.db.database import Database
from oar.lib.facts.records import User
from oar.lib.io.processes import ServiceManager
from oar.lib.runtime import Runtime


class Api:
    """A running service, and clients of it."""

    def __init__(self, runtime: Runtime, path: Path) -> None:
        self.runtime = runtime
        self.socket = str(path)
        self.sockets = listening_sockets(["127.0.0.1:0", f"unix:{path}"])
        self.port: int = self.sockets[0].getsockname()[1]
        self.service = Service(runtime)
        self._server = server_of(self.service, ServiceManager({}))
        self._thread = threading.Thread(target=self._serve)

    def start(self) -> None:
        """Serve, until ``stop``."""
        self._thread.start()
        with httpx.Client(base_url=f"http://127.0.0.1:{self.port}", timeout=60) as client:
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
    with httpx.Client(base_url=f"http://127.0.0.1:{api.port}", timeout=60) as client:
        yield client


@pytest.fixture
def local(api: Api) -> Iterator[httpx.Client]:
    """A client that comes by the local socket."""
    with httpx.Client(transport=httpx.HTTPTransport(uds=api.socket), base_url="http://oar", timeout=60) as client:
        yield client


@pytest.fixture
def known(api: Api) -> Iterator[Callable[[str], httpx.Client]]:
    """Makes clients that show a token of a user, with a scope."""
    clients: list[httpx.Client] = []

    def client(user: str, scope: str = "rw") -> httpx.Client:
        with api.runtime.database.begin() as tx:
            _, token = tokens.create(tx, User(user, 0, administers=True), scope=scope)
        headers = {"Authorization": f"Bearer {token}"}
        clients.append(httpx.Client(base_url=f"http://127.0.0.1:{api.port}", headers=headers, timeout=60))
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
