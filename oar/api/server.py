"""The server process: its sockets, connections that tell who is at their other end, signals, systemd."""

import asyncio
import gc
import logging
import os
import resource
import secrets
import signal
import socket
import struct
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import orjson
import uvicorn
import uvloop
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from oar.api.application import application
from oar.api.clients import Peer, find_client
from oar.api.errors import early_problem
from oar.api.service import Service
from oar.lib import logs
from oar.lib.access.acting import login_uid_of
from oar.lib.base import local_socket
from oar.lib.base.errors import ConfigError, OarError, Unavailable
from oar.lib.base.processes import ServiceManager
from oar.lib.db.database import Database
from oar.lib.runtime import Runtime, open_runtime

if TYPE_CHECKING:
    from oar.lib.config.files import Config


_CREDENTIALS = struct.Struct("3i")
#: Limits on the head of a request: bytes, and seconds until it is received.
MAX_HEAD = 32 << 10
HEAD_SECONDS = 20.0
#: Seconds in which a client must read some of the response; otherwise the connection is closed.
UNREAD_SECONDS = 60.0
#: A process or an address has at most this part of the connections that the service may have; trusted proxies have all.
PART_OF_CONNECTIONS = 8
_TOO_MANY = b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
#: Hints for a head that is too long, by status.
_WAYS_OUT = {
    HTTPStatus.REQUEST_URI_TOO_LONG: "name fewer things in one request, or send them in the body of a POST",
    HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE: "send fewer headers or cookies",
}


class _TooLongError(Exception):
    """The head of a request is longer than any that is read."""


class PeerProtocol(HttpToolsProtocol):
    """The protocol of uvicorn; each request's ``state`` holds the ``peer``."""

    _head = 0  # bytes that came since the last head was whole
    _patience: asyncio.TimerHandle | None = None
    _until_read: asyncio.TimerHandle | None = None
    _is_refused = False
    _open: ClassVar[Counter[str]] = Counter()  #: connections of each ``Peer.key``

    def __init__(self, *arguments: Any, site: "Callable[[], Config]", **more: Any) -> None:
        super().__init__(*arguments, **more)
        self._site = site

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Read the peer from the kernel, and refuse it if it has too many connections."""
        super().connection_made(transport)
        self._peer = peer_of(transport.get_extra_info("socket"), self.client)
        self.app_state = {**self.app_state, "peer": self._peer}
        self._patience = self.loop.call_later(HEAD_SECONDS, self._give_up)
        self._open[self._peer.key] += 1
        if self._open[self._peer.key] > most_connections() and not self._is_proxy():
            self._is_refused = True
            transport.write(_TOO_MANY)
            transport.close()

    def _is_proxy(self) -> bool:
        return find_client({"headers": (), "state": self.app_state}, self._site()).is_trusted

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel the timers and uncount the connection."""
        self._open[self._peer.key] -= 1
        if not self._open[self._peer.key]:
            del self._open[self._peer.key]
        self._wait_no_more()
        self._stop_until_read()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """Pause writing: the client does not read fast enough."""
        super().pause_writing()
        if self._until_read is None:
            self._until_read = self.loop.call_later(UNREAD_SECONDS, self.transport.abort)

    def timeout_keep_alive_handler(self) -> None:
        """Close an idle connection, at the latest UNREAD_SECONDS later if the client does not read the response."""
        super().timeout_keep_alive_handler()
        self.loop.call_later(UNREAD_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        """Resume writing: the client's receive buffer has space again."""
        self._stop_until_read()
        super().resume_writing()

    def data_received(self, data: bytes) -> None:
        """Receive data, unless the head exceeds its limit."""
        if self._is_refused:
            return
        if self._is_in_head:
            self._head += len(data)
        super().data_received(data)
        if self._is_in_head and self._head > MAX_HEAD and not self._is_refused:
            self._refuse_head(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)

    def on_message_begin(self) -> None:
        """Start the timer of a head."""
        super().on_message_begin()
        self._is_in_head, self._told = True, 0
        if self._patience is None:
            self._patience = self.loop.call_later(HEAD_SECONDS, self._give_up)

    def on_url(self, url: bytes) -> None:
        """Take a piece of the address.  Raises _TooLongError, which ends in ``send_400_response``."""
        super().on_url(url)
        self._count(len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header.  Raises _TooLongError."""
        self._count(len(name) + len(value))
        super().on_header(name, value)

    def send_400_response(self, msg: str) -> None:
        """Reject data that is not a request, or whose head is too long."""
        if self._told <= MAX_HEAD:
            text, way_out = "this is not an HTTP request, or its body is not sent as its head says", "send HTTP/1.1"
            self._write_problem(HTTPStatus.BAD_REQUEST, "bad-request", text, way_out)
            self.transport.close()
            return
        is_address = len(self.url) > MAX_HEAD
        uri, fields = HTTPStatus.REQUEST_URI_TOO_LONG, HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
        self._refuse_head(uri if is_address else fields)

    def on_headers_complete(self) -> None:
        """Stop the timer of the head: it is complete."""
        self._is_in_head, self._head = False, 0
        self._wait_no_more()
        super().on_headers_complete()

    _is_in_head = True
    _told = 0  # bytes of the address and the headers, however they came

    def _count(self, length: int) -> None:
        self._told += length
        if self._told > MAX_HEAD:
            raise _TooLongError

    def _refuse_head(self, status: HTTPStatus) -> None:
        """Reject a head that is too long, and close the connection: the start of the next request is unknown.

        It is closed when the client closes it, or at the end of its time: closed earlier, with data that nobody has
        read, it would be reset, and the answer lost.
        """
        text = f"the head of a request has at most {MAX_HEAD} bytes"
        self._write_problem(status, "head-too-long", text, _WAYS_OUT[status])
        self._is_refused = True
        self.transport.write_eof()

    def _write_problem(self, status: HTTPStatus, code: str, text: str, hint: str) -> None:
        path = (getattr(self, "url", None) or b"").decode("latin-1")
        record = early_problem(path, status, code, text, hint=hint)
        body = orjson.dumps({**record, "request_id": secrets.token_hex(8)})
        headers = {"content-type": "application/json", "content-length": str(len(body)), "connection": "close"}
        lines = [f"HTTP/1.1 {status.value} {status.phrase}", *(f"{name}: {value}" for name, value in headers.items())]
        self.transport.write("".join(f"{line}\r\n" for line in (*lines, "")).encode() + body)

    def _unsupported_upgrade_warning(self) -> None:
        """Serve requests for another protocol by HTTP/1.1, without the warnings that uvicorn would log."""

    def _wait_no_more(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None

    def _stop_until_read(self) -> None:
        if self._until_read is not None:
            self._until_read.cancel()
            self._until_read = None

    def _give_up(self) -> None:
        self.transport.close()


def most_connections() -> int:
    """Return how many connections one process or address may have."""
    return max(1, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // PART_OF_CONNECTIONS)


def peer_of(connection: Any, client: tuple[str, int] | None) -> Peer:
    """Return the peer of a connection."""
    if connection is not None and connection.family == socket.AF_UNIX:
        data = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        process, uid, _ = _CREDENTIALS.unpack(data)
        return Peer(uid=uid, login=login_uid_of(process, uid) if uid == 0 else None)
    return Peer(address=client[0] if client else "")


_log = logging.getLogger(__name__)

#: Prefix of the address of a local socket.
LOCAL = "unix:"
#: Length of the kernel's queue of connections.
BACKLOG = 1024
#: Seconds for which a request tries to reach the database.
PATIENCE_SECONDS = 2.0
#: Seconds between two looks at oar.conf.
FOLLOW_SECONDS = 2.0
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
    tasks = [asyncio.create_task(_tell_of_life(server, manager)), asyncio.create_task(_follow_file(server))]
    await server.serve(sockets=sockets)
    for task in tasks:
        task.cancel()


async def _tell_of_life(server: uvicorn.Server, manager: ServiceManager) -> None:
    while not server.started:
        await asyncio.sleep(0.05)
    _log.info("answering requests")
    manager.ready()
    while manager.watchdog_period:
        manager.alive()
        await asyncio.sleep(manager.watchdog_period)


async def _follow_file(server: ApiServer) -> None:
    """Read oar.conf again when it has changed: limits of the site must hold for the API as for commands."""
    while True:
        await asyncio.sleep(FOLLOW_SECONDS)
        server.reload()


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
        raise ConfigError(f"API_LISTEN: {address!r} must be HOST:PORT or unix:PATH")
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
