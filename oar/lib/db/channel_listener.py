"""Listeners of the database: NOTIFY notifies them, and they also poll the database periodically.

See docs/design/locks.rst, "Notifications".
"""

import os
import select
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Self

from oar.lib.base.errors import DatabaseUnavailable
from oar.lib.bus.messages import Channel
from oar.lib.db.statements import Connection, psycopg2

if TYPE_CHECKING:
    from oar.lib.db.database import Database

#: A connection is taken to listen while at most this part of PostgreSQL's connections is in use, and given back when
#: more than the second one is: those who work come before those who wait.
PLENTY, SCARCE = 0.5, 0.75
#: Seconds after which who could not listen tries again.
RETRY_SECONDS = 60.0
#: What is told is ASCII; in this encoding psycopg2 reads it without a line of Python.  For UTF-8 one runs, and psycopg2
#: throws away what is raised in it, such as the KeyboardInterrupt of a ^C that came meanwhile.
_ENCODING = "LATIN1"
_IN_USE = "SELECT sum(numbackends) / current_setting('max_connections')::float8 FROM pg_stat_database"


class ChannelListener:
    """Listen to a channel while PostgreSQL has enough free connections. Use it as a context manager."""

    def __init__(self, database: "Database", channel: Channel) -> None:
        self._database = database
        self._channel = channel
        self._connection: Connection | None = None
        self._next_try = 0.0
        self._interruption: int | None = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._interrupting = threading.Lock()
        self.is_interrupted = False  #: whether nobody is to wait any more

    def interrupt(self) -> None:
        """End the current wait and all later ones: at once while listening, else after the pause.

        Another thread may call this, even after ``close``.
        """
        self.is_interrupted = True
        with self._interrupting:  # the number of a closed descriptor may have been reused
            if self._interruption is not None:
                os.eventfd_write(self._interruption, 1)

    def listen(self) -> bool:
        """Listen from now on, if possible. Return whether it listens. To be called before each poll of the database."""
        try:
            if self._connection is None and self._may_try():
                self._connection = self._database.pool.new_writer_at_once()
                if self._part_in_use() <= PLENTY:
                    self._connection.set_client_encoding(_ENCODING)
                    self._connection.cursor().execute(f"LISTEN {self._channel}")
                else:
                    self.close()
            elif self._connection is not None and self._part_in_use() > SCARCE:
                self.close()
        except (DatabaseUnavailable, psycopg2.Error):
            self.close()
        return self._connection is not None

    def wait_until(self, is_enough: Callable[[str], bool], seconds: float) -> None:
        """Wait at most ``seconds`` seconds, or until ``is_enough`` accepts the payload of a notification."""
        if self._connection is None or self._interruption is None:
            time.sleep(seconds)
            return
        limit = time.monotonic() + seconds
        ready = select.poll()
        ready.register(self._connection, select.POLLIN)
        ready.register(self._interruption, select.POLLIN)
        # Notifications during the last poll are already received, and do not make the connection readable again.
        while not self._heard(self._connection, is_enough):
            descriptors = {descriptor for descriptor, _ in ready.poll(1000 * max(0.0, limit - time.monotonic()))}
            if self._connection.fileno() not in descriptors:
                return
            try:
                self._connection.poll()
            except psycopg2.Error:  # PostgreSQL was restarted
                self.close()
                return

    @staticmethod
    def _heard(connection: Connection, is_enough: Callable[[str], bool]) -> bool:
        heard = [is_enough(notice.payload) for notice in connection.notifies]
        connection.notifies.clear()
        return any(heard)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
        with self._interrupting:
            if self._interruption is not None:
                os.close(self._interruption)
            self._interruption = None

    def _may_try(self) -> bool:
        now = time.monotonic()
        if not self._database.settings.notify or now < self._next_try:
            return False
        self._next_try = now + RETRY_SECONDS
        return True

    def _part_in_use(self) -> float:
        if self._connection is None:
            return 1.0
        cursor = self._connection.cursor()
        cursor.execute(_IN_USE)
        return float(cursor.fetchall()[0][0])
