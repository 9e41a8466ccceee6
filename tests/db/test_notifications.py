"""NOTIFY after the commit: what listeners are told, and that it costs writers nothing."""

import select
from collections.abc import Callable, Iterator
from typing import Any

import psycopg2.extensions
import pytest

from oar.lib.bus.messages import Channel, Effect, Tag, Topic, Wake
from oar.lib.db.channel_listener import ChannelListener
from oar.lib.db.connections import DatabaseSettings
from oar.lib.db.database import Database
from oar.lib.db.statements import Connection
from oar.lib.db.transaction import Transaction
from oar.lib.jobs import lifecycle
from oar.lib.jobs.records import Queue
from oar.lib.jobs.states import JobState, QueueState
from tests.builders import add_job, for_no_reason
from tests.postgres import PostgreSQL


class Listening:
    """A program of the site that listens."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        for channel in Channel:
            connection.cursor().execute(f"LISTEN {channel}")

    def next(self) -> tuple[str, str]:
        """Return channel and payload of the next notification."""
        while not self._connection.notifies:
            assert select.select([self._connection], [], [], 30)[0]
            self._connection.poll()
        notice = self._connection.notifies.pop(0)
        return notice.channel, notice.payload

    def has_more(self) -> bool:
        """Return whether another notification is here: the server sends them before the answer of a statement."""
        self._connection.cursor().execute("SELECT")
        return bool(self._connection.notifies)


@pytest.fixture
def listening(settings: DatabaseSettings, postgres: PostgreSQL) -> Iterator[Listening]:
    connection = postgres.connect(settings.name, settings.user)
    connection.autocommit = True
    yield Listening(connection)
    connection.close()


def _add_queue(tx: Transaction, name: str) -> None:
    tx.queues.insert(Queue(name, 1, "oar_sched_gantt_with_timesharing", QueueState.ACTIVE))


def _recorded(connection: Connection) -> list[str]:
    """Return the list to which all further statements of a connection are added."""
    statements: list[str] = []

    class Recording(psycopg2.extensions.cursor):
        def execute(self, query: Any, vars: Any = None) -> None:
            statements.append(str(query))
            super().execute(query, vars)

    connection.cursor_factory = Recording
    return statements


def test_a_transaction_that_writes_does_not_notify(database: Database) -> None:
    with database.begin() as tx:
        statements = _recorded(tx.connection)
        _add_queue(tx, "new")
    assert statements[0] == "COMMIT"
    (notice,) = statements[1:]
    assert notice.startswith("BEGIN; SET LOCAL synchronous_commit TO off; NOTIFY oar_event, 'queues';")


def test_what_a_listener_is_told_is_there(database: Database, listening: Listening) -> None:
    with database.begin() as tx:
        _add_queue(tx, "new")
    assert listening.next() == (Channel.EVENT, Topic.QUEUES)
    with database.snapshot() as tx:
        assert tx.queues.exists("new")


def test_of_a_burst_the_first_change_is_told_at_once_and_all_others_together(
    settings: DatabaseSettings, listening: Listening
) -> None:
    busy, pauses = Database(settings), list[Callable[[], None]]()
    busy.gather_topics(later=lambda seconds, end: pauses.append(end))
    for number in range(20):
        with busy.begin() as tx:
            _add_queue(tx, f"new{number}")
    with busy.begin() as tx:
        tx.accounting.clear()
    assert listening.next() == (Channel.EVENT, Topic.QUEUES)
    assert not listening.has_more()
    pauses.pop(0)()
    assert [listening.next()[1], listening.next()[1]] == [Topic.ACCOUNTING, Topic.QUEUES]
    pauses.pop(0)()  # nothing happened meanwhile: the pause is over
    assert not pauses
    with busy.begin() as tx:
        tx.accounting.clear()
    assert listening.next() == (Channel.EVENT, Topic.ACCOUNTING)
    with busy.begin() as tx:
        _add_queue(tx, "last")
    busy.close()  # tells what is left
    assert listening.next() == (Channel.EVENT, Topic.QUEUES)


def test_the_end_of_a_job_is_told_at_once_in_a_burst_too(
    database: Database, settings: DatabaseSettings, listening: Listening
) -> None:
    job_id, busy = add_job(database), Database(settings)
    busy.gather_topics(later=lambda seconds, end: None)
    with busy.begin() as tx:
        tx.accounting.clear()
    with busy.begin() as tx:
        lifecycle.move_all(tx, [job_id], JobState.ERROR, because=for_no_reason(job_id))
    while listening.next() != (Channel.JOB_END, str(job_id)):
        pass
    busy.close()


def test_nobody_is_told_of_what_was_rolled_back(database: Database, listening: Listening) -> None:
    with pytest.raises(RuntimeError), database.begin() as tx:
        _add_queue(tx, "lost")
        raise RuntimeError
    with database.begin() as tx:
        tx.accounting.clear()
    assert listening.next() == (Channel.EVENT, Topic.ACCOUNTING)


def test_nobody_is_told_where_the_site_wants_no_notifications(
    database: Database, settings: DatabaseSettings, listening: Listening
) -> None:
    silent = Database(settings._replace(notify=False))
    with silent.begin() as tx:
        _add_queue(tx, "new")
    silent.close()
    with database.begin() as tx:
        tx.accounting.clear()
    assert listening.next() == (Channel.EVENT, Topic.ACCOUNTING)


def test_a_connection_that_is_lost_after_the_commit_is_no_error(database: Database, sent: list[Effect]) -> None:
    other = Database(database.settings)

    class Dying(psycopg2.extensions.cursor):
        def execute(self, query: Any, vars: Any = None) -> None:
            if "NOTIFY" in str(query):
                with other.begin() as killer:
                    assert killer.value("SELECT pg_terminate_backend(%s)", (self.connection.info.backend_pid,))
            super().execute(query, vars)

    with database.begin() as tx:
        tx.connection.cursor_factory = Dying
        _add_queue(tx, "new")
        tx.outbox.append(Wake(Tag.TERM))
    other.close()
    assert sent == [Wake(Tag.TERM)]
    with database.begin() as tx:
        assert tx.queues.exists("new")


@pytest.mark.usefixtures("many_descriptors")
def test_a_listener_hears_with_more_descriptors_than_select_takes(database: Database) -> None:
    with ChannelListener(database, Channel.EVENT) as listener:
        assert listener.listen()
        with database.begin() as tx:
            _add_queue(tx, "new")
        heard: list[str] = []
        listener.wait_until(lambda payload: not heard.append(payload), 30)  # type: ignore[func-returns-value]
        assert heard == ["queues"]
        listener.interrupt()
        listener.wait_until(lambda _: False, 30)


def test_the_ends_of_jobs_are_told_by_their_ids(database: Database, listening: Listening) -> None:
    ids = [add_job(database) for _ in range(3)]
    with database.begin() as tx:
        lifecycle.move_all(tx, ids[:2], JobState.ERROR, because=for_no_reason(*ids))
    while (told := listening.next())[0] != Channel.JOB_END:
        pass
    assert told[1].split() == [str(job_id) for job_id in ids[:2]]


def test_the_ids_of_many_jobs_are_told_in_pieces(database: Database, listening: Listening) -> None:
    ids = set(range(1_000_000, 1_005_000))
    with database.begin() as tx:
        tx.ended.update(ids)
    told: set[int] = set()
    while told != ids:
        channel, payload = listening.next()
        assert channel == Channel.JOB_END
        told.update(map(int, payload.split()))
