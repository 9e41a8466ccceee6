"""A server that takes end reports of jobs, for tests of oarexec."""

import socket
from threading import Thread


class Almighty:
    """Takes end reports and answers what the test wants."""

    def __init__(self, *answers: bytes) -> None:
        self.reports: list[str] = []
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = self._server.getsockname()[1]
        self._answers = answers
        self._thread = Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        with self._server:
            for answer in self._answers:
                connection, _ = self._server.accept()
                with connection:
                    self.reports.append(connection.makefile().readline())
                    connection.sendall(answer)

    def join(self) -> None:
        self._thread.join(120)
        assert not self._thread.is_alive()
