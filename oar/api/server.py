"""The server process: sockets, signals, systemd."""

import asyncio
import gc
import logging
import os
import signal
import socket
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import uvicorn
import uvloop

from oar.api.application import application
from oar.api.connections import PeerProtocol
from oar.api.service import Service
from oar.lib import logs
from oar.lib.base import local_socket
from oar.lib.base.errors import ConfigError, OarError, Unavailable
from oar.lib.base.processes import ServiceManager
from oar.lib.db.database import Database
from oar.lib.runtime import Runtime, open_runtime

_log = logging.getLogger(__name__)

#: Prefix of the address of a local socket.
LOCAL = "unix:"
#: Length of the kernel's queue of connections.
BACKLOG = 1024
#: Seconds for which a request tries to reach the database.
PATIENCE_SECONDS = 2.0
#: Seconds given to requests in progress when the service stops.
GRACE_SECONDS = 5


def listening_sockets(addresses: Sequence[str]) -> list[socket.socket]:
    """Return sockets that listen: ``HOST:PORT``, ``[HOST]:PORT``, ``unix:PATH``.  Raises ConfigError, Unavailable."""
    return [
        _local(address.removeprefix(LOCAL)) if address.startswith(LOCAL) else _tcp(address) for address in addresses
    ]


def serve(runtime: Runtime, sockets: Sequence[socket.socket]) -> None:
    """Answer requests until a signal ends the process."""
    manager = ServiceManager(os.environ)
    server = server_of(Service(runtime), manager)
    spare_what_stays()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(server, list(sockets), manager))


def spare_what_stays() -> None:
    """Exclude all present objects from garbage collection: they live as long as the process.

    An answer of thousands of records lets the collector run; to go through the whole application each time took
    several times as long as the answer.
    """
    gc.collect()
    gc.freeze()


class ApiServer(uvicorn.Server):
    """The server of uvicorn; subscribers get ``bye`` before it waits for the requests in progress."""

    def __init__(self, config: uvicorn.Config, service: Service, manager: ServiceManager) -> None:
        super().__init__(config)
        self._service = service
        self._manager = manager

    def reload(self) -> None:
        """Read oar.conf again; a file with errors changes nothing."""
        if self._service.reload():
            _log.info("oar.conf has been read again")

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept no more requests, and end the streams."""
        self._manager.stopping()
        await asyncio.to_thread(self._service.hub.stop)
        await super().shutdown(sockets)
        await asyncio.to_thread(self._service.workers.close)


def limited(runtime: Runtime) -> Database:
    """Return the database of a runtime as requests use it: no statement takes longer than API_STATEMENT_TIMEOUT.

    The end of a client does not end a statement.  A database that is away is not waited for as long as by a command:
    the thread could answer others.
    """
    settings = runtime.database.settings._replace(
        statement_timeout=runtime.config.api_statement_timeout, patience=PATIENCE_SECONDS
    )
    return Database(settings, application=runtime.database.application, deliver=runtime.database.deliver)


def server_of(service: Service, manager: ServiceManager) -> ApiServer:
    """Return the server of the application, not begun."""
    config = uvicorn.Config(
        application(service),
        http=partial(PeerProtocol, site=lambda: service.runtime.config),  # type: ignore[arg-type]
        proxy_headers=False,  # else any local process could pose as a trusted proxy
        server_header=False,
        access_log=False,
        log_config=None,
        timeout_graceful_shutdown=GRACE_SECONDS,
        ws="none",
    )
    return ApiServer(config, service, manager)


async def _serve(server: ApiServer, sockets: list[socket.socket], manager: ServiceManager) -> None:
    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, server.reload)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGHUP])
    life = asyncio.create_task(_tell_of_life(server, manager))
    await server.serve(sockets=sockets)
    life.cancel()


async def _tell_of_life(server: uvicorn.Server, manager: ServiceManager) -> None:
    while not server.started:
        await asyncio.sleep(0.05)
    _log.info("answering requests")
    manager.ready()
    while manager.watchdog_period:
        manager.alive()
        await asyncio.sleep(manager.watchdog_period)


def _local(path: str) -> socket.socket:
    """Listen on a socket that everybody on this machine may use: the kernel reports the peer."""
    try:
        Path(path).parent.mkdir(mode=0o755, exist_ok=True)
        return local_socket.listening(path, socket.SOCK_STREAM, BACKLOG)
    except OSError as error:
        raise Unavailable(f"cannot listen on {path}: {error.strerror}") from None


def _tcp(address: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    if not (host and port.isdecimal()):
        raise ConfigError(f"API_LISTEN: {address!r} is no address: HOST:PORT or unix:PATH")
    host = host.removeprefix("[").removesuffix("]")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # Named, or asyncio does not see that it is TCP: the kernel would hold back the ends of answers for 40 ms.
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, int(port)))
    except (OSError, OverflowError) as error:
        listening.close()
        reason = getattr(error, "strerror", "") or "a port is a number from 0 to 65535"
        raise Unavailable(f"cannot listen on {address}: {reason}") from None
    listening.listen(BACKLOG)
    return listening


def main() -> int:
    """Run as a program, until a signal ends it; return the exit code."""
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGHUP])  # until the server can take it, it would end us
    service = open_runtime("oar-api", deliver=None)
    service.database = limited(service)
    try:
        with logs.logging_to(service.config, "api"):
            serve(service, listening_sockets(service.config.api_listen))
    except OarError as error:
        sys.stderr.write(f"oar-api: {error}\n")
        return error.exit_code
    finally:
        service.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
