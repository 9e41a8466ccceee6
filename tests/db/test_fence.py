"""The fence: after a take-over no transaction of a former server can commit, whatever it had begun."""

import random
import threading
from collections.abc import Iterator
from typing import Any, ClassVar

import psycopg2
import pytest

from oar.lib.base.errors import DatabaseUnavailable, Fenced
from oar.lib.db.connections import DatabaseSettings
from oar.lib.db.database import Database
from oar.lib.db.lock_keys import SERVER_LOCK
from oar.lib.db.locks import Locks
from oar.modules.warden import take_over
from tests.process.this_machine import wait_until

QUEUE = "INSERT INTO queues (queue_name) VALUES (%s)"


@pytest.fixture
def lock(settings: DatabaseSettings) -> Iterator[Locks]:
    """The session of a warden that holds the server lock."""
    locks = Database(settings, application="oar:warden").locks()
    assert locks.acquire(SERVER_LOCK)
    yield locks
    locks.close()


def server(settings: DatabaseSettings, generation: int) -> Database:
    """The database of a process of the server."""
    return Database(settings, application="oar:runner", generation=generation)


def queues(database: Database) -> list[str]:
    with database.begin() as tx:
        return tx.column("SELECT queue_name FROM queues WHERE queue_name NOT IN ('admin', 'default', 'besteffort')")


class Counting(psycopg2.extensions.cursor):
    """Cursors that count the round trips."""

    trips: ClassVar[list[Any]] = []

    def execute(self, query: Any, parameters: Any = None) -> None:
        self.trips.append(query)
        super().execute(query, parameters)


def trips(database: Database) -> int:
    """Return the number of round trips of a transaction, once its statements are prepared."""
    database.pool.cursors = Counting
    for _ in range(3):
        Counting.trips.clear()
        with database.begin() as tx:
            tx.execute("SELECT 1")
    return len(Counting.trips)


def test_the_active_server_writes_without_a_further_round_trip(
    database: Database, settings: DatabaseSettings, lock: Locks
) -> None:
    active = server(settings, lock.look(take_over))
    assert trips(active) == trips(database)
    with active.begin() as tx:
        tx.execute(QUEUE, ("new",))
    assert queues(database) == ["new"]


def test_a_transaction_of_a_former_generation_is_refused_and_changes_nothing(
    database: Database, settings: DatabaseSettings, lock: Locks
) -> None:
    former = server(settings, lock.look(take_over))
    assert queues(former) == []
    lock.look(take_over)
    for _ in range(2):  # on the connection that is lost, and on a new one
        with pytest.raises((Fenced, DatabaseUnavailable)), former.begin() as tx:
            tx.execute(QUEUE, ("late",))
    with pytest.raises(Fenced, match="another server is active"):
        former.run(lambda tx: tx.execute(QUEUE, ("late",)))
    with former.snapshot() as tx:
        assert tx.now
    assert queues(database) == []


def test_a_transaction_that_was_checked_before_a_take_over_is_ended_by_it(
    database: Database, settings: DatabaseSettings, lock: Locks
) -> None:
    former = server(settings, lock.look(take_over))
    with pytest.raises(DatabaseUnavailable), former.begin() as tx:
        tx.execute(QUEUE, ("late",))
        lock.look(take_over)
    assert queues(database) == []


def test_a_take_over_waits_for_no_row_that_a_former_server_has_locked(
    database: Database, settings: DatabaseSettings, lock: Locks
) -> None:
    former = server(settings, lock.look(take_over))
    with pytest.raises(DatabaseUnavailable), former.begin() as tx:
        tx.execute("SELECT generation FROM server_generation")
        tx.execute("UPDATE queues SET priority = 7")
        active = server(settings, lock.look(take_over))
        with active.begin() as other:
            other.execute("UPDATE queues SET priority = 8")
    with database.begin() as tx:
        assert set(tx.column("SELECT priority FROM queues")) == {8}


def test_sessions_of_commands_and_of_the_new_generation_go_on(
    database: Database, settings: DatabaseSettings, lock: Locks
) -> None:
    with database.begin() as tx:
        tx.execute(QUEUE, ("of a command",))
        generation = lock.look(take_over)
        with server(settings, generation).begin() as other:
            assert lock.look(lambda warden: warden.servers.end_former_sessions(generation)) == 0
            other.execute(QUEUE, ("of the server",))
    assert sorted(queues(database)) == ["of a command", "of the server"]


def test_a_warden_that_has_lost_its_session_begins_no_generation(database: Database, lock: Locks) -> None:
    generation = lock.look(take_over)
    with database.begin() as tx:
        tx.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'oar:warden@%'")
    with pytest.raises(DatabaseUnavailable):
        lock.look(take_over)
    with database.begin() as tx:
        assert tx.servers.generation().number == generation


def test_a_restored_database_gives_no_generation_again(database: Database, lock: Locks) -> None:
    former = lock.look(take_over)
    with database.begin() as tx:
        tx.execute("UPDATE server_generation SET generation = 3, since = 0")
    assert lock.look(take_over) >= former
    with database.begin() as tx:
        tx.execute("DELETE FROM server_generation")
    assert lock.look(take_over) >= former


def _write_until_fenced(writer: Database, lengths: random.Random) -> None:
    with pytest.raises((Fenced, DatabaseUnavailable)):
        while True:
            with writer.begin() as tx:
                tx.execute("INSERT INTO task_runs SELECT 'g' || nextval('fence_numbers'), %s", (writer.generation,))
                for _ in range(lengths.randrange(4)):
                    tx.execute("SELECT count(*) FROM queues")


def test_commits_of_generations_never_interleave(database: Database, settings: DatabaseSettings, lock: Locks) -> None:
    """Writers of each generation write as fast as they can during the take-over by the next one."""
    count = "SELECT count(*) FROM task_runs WHERE last_success = %s"
    ended: dict[int, int] = {}
    with database.begin() as tx:
        tx.execute("CREATE SEQUENCE fence_numbers")
    former, threads = 0, []
    for seed in range(12):
        generation = lock.look(take_over)
        with database.begin() as tx:
            ended[former] = tx.value(count, (former,))
        former = generation
        writers = [
            threading.Thread(target=_write_until_fenced, args=(server(settings, generation), random.Random(seed)))
            for _ in range(4)
        ]
        for writer in writers:
            writer.start()
        threads += writers

        def has_written(number: int = generation) -> bool:
            with database.begin() as tx:
                return bool(tx.value(count, (number,)) > 20)

        wait_until(has_written)
    lock.look(take_over)
    with database.begin() as tx:
        ended[former] = tx.value(count, (former,))
    for thread in threads:
        thread.join()
    with database.begin() as tx:
        tx.execute("DROP SEQUENCE fence_numbers")
        written: dict[int, int] = dict(tx.rows("SELECT last_success, count(*) FROM task_runs GROUP BY 1"))
    assert len(written) == 12
    assert written == {number: rows for number, rows in ended.items() if number}
