"""The feed: each change of a state and each event once, in order, whatever the writers do."""

import os
import random
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import psycopg2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oar.lib.base.errors import BadRequest
from oar.lib.bus.messages import Channel, Topic
from oar.lib.db.database import Database
from oar.lib.history.records import Position
from oar.lib.history.sql_feed import Feed, settled
from oar.lib.history.sql_history import Log
from oar.lib.jobs.states import JobState
from tests.builders import add_job, move_job

WRITERS = 8
ROWS = 40


@pytest.fixture
def feed(database: Database) -> Iterator[Feed]:
    with Feed(database) as made:
        made.begin()
        yield made


@contextmanager
def _writer(database: Database) -> Iterator[psycopg2.extensions.connection]:
    connection = database.connection()
    connection.cursor().execute("BEGIN")
    yield connection
    connection.close()


def _insert(connection: psycopg2.extensions.connection, text: str) -> None:
    connection.cursor().execute("INSERT INTO event_logs (type, description) VALUES ('NOTE', %s)", (text,))


def _texts(feed: Feed) -> list[str]:
    return [event.description for event in feed.next(0).events]


def test_a_change_of_a_state_tells_its_job_and_the_state_before(database: Database, feed: Feed) -> None:
    job_id = add_job(database)
    move_job(database, job_id, JobState.HOLD)
    changes = feed.next(0).changes
    assert [(change.job_id, change.state, change.former) for change in changes] == [
        (job_id, JobState.WAITING, None),
        (job_id, JobState.HOLD, JobState.WAITING),
    ]
    assert {change.array_id for change in changes} == {job_id}


def test_a_row_that_is_committed_late_is_neither_lost_nor_out_of_order(database: Database, feed: Feed) -> None:
    with _writer(database) as slow, _writer(database) as quick:
        _insert(slow, "first")
        _insert(quick, "second")
        quick.cursor().execute("COMMIT")
        assert _texts(feed) == []
        slow.cursor().execute("COMMIT")
    assert _texts(feed) == ["first", "second"]


def test_a_row_that_is_never_committed_stops_nothing(database: Database, feed: Feed) -> None:
    with _writer(database) as slow, _writer(database) as quick:
        _insert(slow, "never")
        _insert(quick, "second")
        quick.cursor().execute("COMMIT")
        assert _texts(feed) == []
        slow.cursor().execute("ROLLBACK")
    assert _texts(feed) == ["second"]


def test_a_transaction_that_only_reads_for_hours_stops_nothing(database: Database, feed: Feed) -> None:
    with _writer(database) as reader, _writer(database) as quick, _writer(database) as failed:
        reader.cursor().execute("SELECT count(*) FROM event_logs")
        _insert(failed, "never")
        failed.cursor().execute("ROLLBACK")
        _insert(quick, "only")
        quick.cursor().execute("COMMIT")
        assert _texts(feed) == ["only"]


def test_it_begins_behind_what_was_being_written(database: Database) -> None:
    begun: list[Position] = []
    with _writer(database) as slow, _writer(database) as quick, Feed(database) as feed:
        _insert(slow, "first")
        _insert(quick, "second")
        quick.cursor().execute("COMMIT")
        thread = threading.Thread(target=lambda: begun.append(feed.begin()))
        thread.start()
        thread.join(0.3)
        assert not begun
        slow.cursor().execute("COMMIT")
        thread.join()
        assert _texts(feed) == []
    with database.snapshot() as tx:
        assert begun == [tx.history.newest()]


def test_many_writers_that_sleep_and_roll_back_lose_nothing(database: Database, feed: Feed) -> None:
    def write(number: int) -> None:
        chance = random.Random(number)
        connection = database.connection()
        for row in range(ROWS):
            end = "ROLLBACK" if chance.random() < 0.2 else "COMMIT"
            connection.cursor().execute("BEGIN")
            _insert(connection, f"{number}.{row}")
            connection.cursor().execute("SELECT pg_sleep(%s)", (chance.random() * 0.01,))
            connection.cursor().execute(f"{end}; NOTIFY oar_event, 'events'")
        connection.close()

    threads = [threading.Thread(target=write, args=(number,)) for number in range(WRITERS)]
    begin = feed.begin()
    for thread in threads:
        thread.start()
    read: list[int] = []
    while any(thread.is_alive() for thread in threads):
        read += [event.id for event in feed.next(0.05).events]
    while news := feed.next(0).events:
        read += [event.id for event in news]
    with database.snapshot() as tx:
        assert read == tx.history.ids_after(Log.EVENTS, begin.event, 10_000)
    assert len(read) > WRITERS * ROWS / 2


def test_it_tells_of_topics_without_rows(database: Database, feed: Feed) -> None:
    writer = database.connection()
    writer.cursor().execute("NOTIFY oar_event, 'gantt'; NOTIFY oar_event, 'nonsense'")
    writer.close()
    assert feed.next(30).topics == {Topic.GANTT}


@given(st.lists(st.tuples(st.booleans(), st.booleans()), max_size=30), st.integers(0, 30), st.integers(0, 30))
def test_settled_rows_have_nothing_unsettled_before_them(
    rows: list[tuple[bool, bool]], last: int, passable: int
) -> None:
    ids = [number for number, (is_seen, _) in enumerate(rows, last + 1) if is_seen]
    end = settled(last, ids, passable)
    missing = set(range(last + 1, end)) - set(ids)
    assert all(number <= passable for number in missing)
    behind = [number for number in ids if number > end]
    assert not behind or behind[0] - 1 > max(end, passable)


def test_a_position_is_a_text_and_back() -> None:
    assert Position.parse(str(Position(12, 4))) == Position(12, 4)
    for text in ("", "s1", "s1.e", "s-1.e2", "s1.e2;", "s٣.e1", "s" + "9" * 30 + ".e1"):
        with pytest.raises(BadRequest, match="is not a position in the history"):
            Position.parse(text)


def test_who_no_longer_listens_may_be_interrupted(database: Database) -> None:
    with Feed(database) as ended:
        ended.begin()
    # The number of what it waited on belongs to another file now, into which nothing may be written.
    reader, writer = os.pipe2(os.O_NONBLOCK)
    ended.interrupt()
    assert ended.is_interrupted
    with pytest.raises(BlockingIOError):
        os.read(reader, 1)
    os.close(reader)
    os.close(writer)


class _Interrupted(Exception):
    """What the handler of a signal raises."""


def _interrupt(number: int, frame: object) -> None:
    raise _Interrupted


def test_a_signal_is_not_lost_while_what_is_told_is_read(database: Database, feed: Feed) -> None:
    """It comes while a statement of the listener runs, and so is heeded when the notification behind it is read."""
    listening = feed._connection
    assert listening
    former = signal.signal(signal.SIGUSR1, _interrupt)
    try:
        with _writer(database) as writer, writer.cursor() as cursor, ThreadPoolExecutor() as pool:
            cursor.execute(f"SELECT pg_advisory_lock(7, 7); NOTIFY {Channel.EVENT}, '{Topic.JOBS}'")

            def interrupt() -> None:
                while not _waits(database):
                    pass
                cursor.execute("COMMIT")
                signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)
                cursor.execute("SELECT pg_advisory_unlock(7, 7)")

            pool.submit(interrupt)
            with pytest.raises(_Interrupted):
                listening.cursor().execute("SELECT pg_advisory_lock(7, 7)")
    finally:
        signal.signal(signal.SIGUSR1, former)


def _waits(database: Database) -> bool:
    with database.snapshot() as tx:
        return bool(tx.value("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"))
