"""Peers that fall silent: they accept connections and take data, and nothing comes back."""

import contextlib
import selectors
import socket
import threading
from collections.abc import Iterator

Address = str | tuple[str, int]


class Relay:
    """A way to a server; while it is silent it accepts and reads, and passes nothing on."""

    def __init__(self, target: Address) -> None:
        self._target = target
        self._is_open = threading.Event()
        self._is_open.set()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.accepted = 0  #: connections

    def fall_silent(self) -> None:
        """Pass nothing on from now on."""
        self._is_open.clear()

    def recover(self) -> None:
        """Pass on what was held back, and all that comes."""
        self._is_open.set()

    def close(self) -> None:
        """Accept no connection any more."""
        self.recover()
        self._listener.close()

    def serve(self) -> None:
        """Accept connections until it is closed."""
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                self.accepted += 1
                threading.Thread(target=self._pass_on, args=(client,), daemon=True).start()

    def _pass_on(self, client: socket.socket) -> None:
        self._is_open.wait()
        server = socket.socket(socket.AF_UNIX if isinstance(self._target, str) else socket.AF_INET)
        server.connect(self._target)
        with client, server, selectors.DefaultSelector() as watched, contextlib.suppress(OSError):
            watched.register(client, selectors.EVENT_READ, server)
            watched.register(server, selectors.EVENT_READ, client)
            while True:
                for key, _ in watched.select():
                    assert isinstance(key.fileobj, socket.socket)
                    data = key.fileobj.recv(65536)
                    if not data:
                        return
                    self._is_open.wait()
                    key.data.sendall(data)


@contextlib.contextmanager
def relay_to(target: Address) -> Iterator[Relay]:
    """Have a relay to a server: the path of its local socket, or its host and port."""
    relay = Relay(target)
    thread = threading.Thread(target=relay.serve, daemon=True)
    thread.start()
    try:
        yield relay
    finally:
        relay.close()


@contextlib.contextmanager
def deaf_server() -> Iterator[int]:
    """Have a port of this machine that does not answer those who connect: its queue is full."""
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.socket())
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        port = listener.getsockname()[1]
        for _ in range(4):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(("127.0.0.1", port))
        yield port
