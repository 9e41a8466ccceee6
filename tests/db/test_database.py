"""Transactions, reconnection, locks: oar/lib/db/database.py on a real PostgreSQL."""

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from pathlib import Path

import psycopg2
import pytest

from oar.cli import oarqueue
from oar.cli.common.command import CommandResult, invoke
from oar.cli.common.health_probes import find_database_problem
from oar.lib.access.records import User
from oar.lib.base.errors import DatabaseFull, DatabaseReadOnly, DatabaseRefused, DatabaseUnavailable
from oar.lib.bus.messages import Ask, Due, Effect, JobAction, Tag, Wake
from oar.lib.config.files import Config
from oar.lib.db import connections
from oar.lib.db.connections import DatabaseSettings
from oar.lib.db.database import Database
from oar.lib.db.lock_keys import job_lock
from oar.lib.db.statements import PreparingConnection
from oar.lib.db.transaction import Transaction
from tests.postgres import PostgreSQL
from tests.process.this_machine import wait_until


@pytest.fixture
def delivered() -> list[Effect]:
    return []


@pytest.fixture
def telling(settings: DatabaseSettings, delivered: list[Effect]) -> Database:
    def deliver(effects: Sequence[Effect]) -> None:
        delivered.extend(effects)

    return Database(settings, deliver=deliver)


def test_effects_leave_after_the_commit_and_only_then(telling: Database, delivered: list[Effect]) -> None:
    with telling.begin() as tx:
        tx.outbox.append(Wake(Tag.QSUB))
        assert delivered == []
    assert delivered == [Wake(Tag.QSUB)]


def test_a_tag_or_a_date_that_several_jobs_ask_for_is_told_once(telling: Database, delivered: list[Effect]) -> None:
    """Ten jobs that end in one transaction wake the automaton once; what is about a job is told for each."""
    with telling.begin() as tx:
        for job_id in range(10):
            tx.outbox += [Ask(JobAction.END, job_id), Wake(Tag.CHSTATE), Due(5)]
    asked = [Ask(JobAction.END, job_id) for job_id in range(10)]
    assert delivered == [asked[0], Wake(Tag.CHSTATE), Due(5), *asked[1:]]


def test_a_transaction_that_fails_changes_and_tells_nothing(telling: Database, delivered: list[Effect]) -> None:
    with pytest.raises(RuntimeError), telling.begin() as tx:
        tx.execute("INSERT INTO queues (queue_name) VALUES ('lost')")
        tx.outbox.append(Wake(Tag.QSUB))
        raise RuntimeError
    with telling.begin() as tx:
        assert not tx.queues.exists("lost")
    assert delivered == []


def test_a_connection_that_died_while_idle_is_replaced(database: Database) -> None:
    with database.begin() as tx:
        pid = tx.value("SELECT pg_backend_pid()")
    other = Database(database.settings)
    with other.begin() as tx:
        tx.value("SELECT pg_terminate_backend(%s)", (pid,))
    with database.begin() as tx:
        assert tx.value("SELECT pg_backend_pid()") != pid


def test_connections_that_a_burst_has_left_are_closed(settings: DatabaseSettings) -> None:
    with closing(Database(settings, application="burst")) as database:
        with ExitStack() as burst:
            for _ in range(5):
                burst.enter_context(database.begin())
        database.pool.close_surplus(3600)
        assert count_connections(database) == 5
        database.pool.close_surplus(0)
        wait_until(lambda: count_connections(database) == 1)


class _Contended(list[PreparingConnection]):
    """Idle connections of which other threads take all between two looks."""

    def __len__(self) -> int:
        number = super().__len__()
        self.clear()
        return number


def test_the_thread_that_closes_idle_connections_survives_others_that_take_them(settings: DatabaseSettings) -> None:
    with closing(Database(settings)) as database, closing(Database(settings)) as other:
        writers = [other.pool.new_writer() for _ in range(2)]
        database.pool._idle_writers = _Contended(writers)
        database.pool.close_surplus(0)
        assert all(not writer.closed for writer in writers)
        for writer in writers:
            writer.close()


def count_connections(database: Database) -> int:
    """Return the number of connections of a database with this application name."""
    with database.snapshot() as tx:
        return int(tx.value("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'burst'"))


def test_a_connection_that_dies_in_use_is_reported_as_such(database: Database) -> None:
    other = Database(database.settings)
    with pytest.raises(DatabaseUnavailable), database.begin() as tx:
        pid = tx.value("SELECT pg_backend_pid()")
        with other.begin() as killer:
            killer.value("SELECT pg_terminate_backend(%s)", (pid,))
        tx.value("SELECT 1")


def test_the_host_of_a_connection_that_dies_in_use_is_tried_last(settings: DatabaseSettings) -> None:
    database = Database(settings._replace(host=f"{settings.host} no.such.host.invalid"))
    with pytest.raises(DatabaseUnavailable), database.begin() as tx:
        tx.execute("SELECT pg_terminate_backend(pg_backend_pid())")
    assert [address.host for address in database.pool.hosts.in_order()] == ["no.such.host.invalid", settings.host]


class DyingCursor(psycopg2.extensions.cursor):
    """The cursor of a session that PostgreSQL ends: psycopg2 has no class for this error."""

    def execute(self, query: object, parameters: object = None) -> None:
        raise psycopg2.DatabaseError("server closed the connection unexpectedly")


def test_a_session_that_dies_at_its_first_statement_is_a_database_that_is_away(settings: DatabaseSettings) -> None:
    database = Database(settings._replace(patience=0))
    database.pool.cursors = DyingCursor
    with pytest.raises(DatabaseUnavailable, match="server closed the connection"):
        database.locks()


def test_work_is_done_again_after_a_deadlock(database: Database) -> None:
    meeting = threading.Barrier(2, timeout=120)
    met: set[str] = set()

    def lock_both(first: str, second: str) -> None:
        def work(tx: Transaction) -> None:
            tx.execute("UPDATE queues SET priority = priority + 1 WHERE queue_name = %s", (first,))
            if first not in met:
                met.add(first)
                meeting.wait()
            tx.execute("UPDATE queues SET priority = priority + 1 WHERE queue_name = %s", (second,))

        database.run(work)

    other = threading.Thread(target=lock_both, args=("admin", "default"))
    other.start()
    lock_both("default", "admin")
    other.join(120)
    with database.begin() as tx:
        priorities = {queue.name: queue.priority for queue in tx.queues.all()}
    assert (priorities["admin"], priorities["default"]) == (12, 4)


def test_the_readonly_login_cannot_write_and_cannot_see_secrets(database: Database) -> None:
    for sql in ("INSERT INTO queues (queue_name) VALUES ('x')", "SELECT * FROM challenges", "SELECT * FROM job_runs"):
        with pytest.raises(psycopg2.Error), database.readonly() as tx:
            tx.execute(sql)


def test_a_lock_that_was_given_back_is_free_at_once(database: Database) -> None:
    for _ in range(100):
        with database.hold_lock((7, 8)) as lock:
            assert lock is not None


def test_an_advisory_lock_is_held_by_one_and_freed_with_its_connection(database: Database) -> None:
    ours, theirs = database.locks(), database.locks()
    assert ours.acquire(job_lock(42))
    assert not theirs.acquire(job_lock(42))
    assert "oar:test" in database.lock_holder(job_lock(42))
    ours.close()
    with database.begin() as tx:  # the server notices the end of the connection on its own time
        while tx.value("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'"):
            pass
    assert theirs.acquire(job_lock(42))
    theirs.release(job_lock(42))
    assert theirs.alive()
    theirs.close()


@pytest.fixture
def standby(database: Database, settings: DatabaseSettings) -> Iterator[Database]:
    """The database, which takes no changes."""
    turn = "ALTER DATABASE {} SET default_transaction_read_only TO {}"
    with closing(database.connection()) as connection:
        connection.cursor().execute(turn.format(settings.name, "on"))
    opened = Database(settings)
    yield opened
    opened.close()
    with closing(database.connection()) as connection:
        connection.cursor().execute("SET default_transaction_read_only TO off")
        connection.cursor().execute(turn.format(settings.name, "off"))


def test_a_database_that_takes_no_changes_is_one_to_wait_for(standby: Database) -> None:
    with pytest.raises(DatabaseReadOnly, match="PostgreSQL takes no changes") as error, standby.begin() as tx:
        assert tx.figures.is_read_only()
        tx.execute("DELETE FROM jobs")
    assert "\n" not in str(error.value)
    assert isinstance(error.value, DatabaseUnavailable)
    with standby.snapshot() as tx:
        assert tx.value("SELECT count(*) FROM jobs") == 0


def test_who_asks_whether_the_server_is_well_is_told_of_such_a_database(
    standby: Database, settings: DatabaseSettings
) -> None:
    way_out = "Check whether DB_HOSTNAME names a standby server."
    assert find_database_problem(config_of(settings)) == f"{settings.place}: it is read-only. {way_out}"


def config_of(settings: DatabaseSettings) -> Config:
    return Config(
        db_hostname=settings.host,
        db_port=settings.port,
        db_base_name=settings.name,
        db_base_login=settings.user,
        db_base_passwd=settings.password,
    )


_PID = "SELECT pg_backend_pid()"


def test_the_readonly_login_is_used_again_and_finds_nothing_of_its_last_use(database: Database) -> None:
    with database.readonly() as tx:
        pid, path = tx.value(_PID), tx.value("SHOW search_path")
        tx.value("SELECT set_config('search_path', 'nowhere', false), set_config('oar.left', 'x', false)")
        tx.execute("PREPARE leftover AS SELECT 1")
    with database.readonly() as tx:
        assert (tx.value(_PID), tx.value("SHOW search_path")) == (pid, path)
        assert not tx.value("SELECT current_setting('oar.left', true)")
        assert tx.value("SELECT count(*) FROM pg_prepared_statements") == 0
    with pytest.raises(psycopg2.Error), database.readonly() as tx:
        tx.value("SELECT 1 / 0")
    with database.readonly() as tx:
        assert tx.value(_PID) == pid
        assert tx.value("SHOW transaction_read_only") == "on"


def test_a_lost_connection_of_the_readonly_login_is_replaced(database: Database, postgres: PostgreSQL) -> None:
    with database.readonly() as tx:
        pid = tx.value(_PID)
    postgres.execute(f"SELECT pg_terminate_backend({pid}, 30000)")
    with database.readonly() as tx:
        assert tx.value(_PID) != pid
    with pytest.raises(DatabaseUnavailable), database.readonly() as tx:
        postgres.execute(f"SELECT pg_terminate_backend({tx.value(_PID)})")
        tx.value("SELECT 1")
    with database.readonly() as tx:
        assert tx.value("SELECT current_user") == database.settings.ro_user


_CONNECTIONS = "SELECT count(*) FROM pg_stat_activity WHERE application_name"


def test_who_waits_for_its_second_connection_gives_the_first_back(
    settings: DatabaseSettings, postgres: PostgreSQL
) -> None:
    hasty = Database(settings._replace(patience=0))
    client = Database(settings._replace(patience=10), application="oar:client")
    with postgres.outage(settings.name, left=1), closing(hasty):
        with pytest.raises(DatabaseUnavailable, match="too many connections"):
            hasty.ready()
        with client.begin() as tx:  # there is place for one again
            assert tx.value(f"{_CONNECTIONS} = 'oar:client'") == 1
        with pytest.raises(DatabaseUnavailable, match="too many connections"):
            client.ready()
        with Database(settings._replace(patience=60)).begin() as tx:  # the server takes its time to see that it left
            assert tx.value(f"{_CONNECTIONS} = 'oar:client'") == 0
    with client.begin() as tx:
        assert tx.value(f"{_CONNECTIONS} = 'oar:client'") == 1
    client.ready()
    with client.begin() as tx, client.readonly() as reader:
        assert reader.value("SELECT current_user") == settings.ro_user
        assert tx.value(f"{_CONNECTIONS} = 'oar:client'") == 2
    client.close()


def test_the_clock_is_never_ahead_of_the_clock_of_commands(database: Database) -> None:
    while not 0.5 <= time.time() % 1 <= 0.8:  # where rounding would show
        pass
    with database.begin() as tx:
        assert tx.value("SELECT EXTRACT(EPOCH FROM clock_timestamp())") >= tx.now


def test_the_clock_is_the_databases_or_the_tests(database: Database) -> None:
    with database.begin() as tx:
        assert abs(tx.now - tx.value("SELECT EXTRACT(EPOCH FROM clock_timestamp())::bigint")) <= 60
    with Database(database.settings, clock=lambda: 1000).begin() as tx:
        assert tx.now == 1000


class _FakeTime:
    """A clock that moves when somebody sleeps."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def full(settings: DatabaseSettings, postgres: PostgreSQL) -> Iterator[DatabaseSettings]:
    """A PostgreSQL whose connections are all taken."""
    with postgres.outage(settings.name):
        yield settings


@pytest.mark.parametrize("is_full", [True, False])
def test_who_waits_for_a_connection_gives_up_after_the_time_that_is_set(
    full: DatabaseSettings, monkeypatch: pytest.MonkeyPatch, is_full: bool
) -> None:
    clock, told = _FakeTime(), list[DatabaseUnavailable]()
    monkeypatch.setattr(connections, "time", clock)
    monkeypatch.setattr("oar.lib.db.database.time", clock)
    database = Database(full._replace(patience=20, host=full.host if is_full else "/nonexistent"))
    database.pool.outage.follow(told.append)
    with pytest.raises(DatabaseUnavailable) as error, database.begin():
        pass
    assert 10 <= clock.now - 1000.0 <= 20
    assert [isinstance(each, DatabaseFull) for each in (*told, error.value)] == [is_full, is_full]


@pytest.mark.parametrize("wrong", ["user", "ro_user", "name"])
def test_a_login_that_is_refused_is_told_at_once(
    settings: DatabaseSettings, monkeypatch: pytest.MonkeyPatch, wrong: str
) -> None:
    clock, told = _FakeTime(), list[DatabaseUnavailable]()
    monkeypatch.setattr(connections, "time", clock)
    monkeypatch.setattr("oar.lib.db.database.time", clock)
    database = Database(DatabaseSettings(**{**settings._asdict(), "patience": 20, wrong: "nobody_here"}))
    database.pool.outage.follow(told.append)
    with pytest.raises(DatabaseRefused, match="nobody_here"):
        (database.readonly if wrong == "ro_user" else database.begin)().__enter__()
    assert (clock.now, told) == (1000.0, [])


@pytest.mark.parametrize(
    "said",
    [
        'connection to server at "db", port 5432 failed: FATAL:  password authentication failed for user "oar"',
        'connection to server at "db" (192.0.2.1), port 5432 failed: fe_sendauth: no password supplied',
        'connection to server at "::1", port 5432 failed: Connection refused\n'
        'connection to server at "127.0.0.1", port 5432 failed: FATAL:  no pg_hba.conf entry for host "127.0.0.1"',
    ],
)
def test_refusals_are_known_by_their_words(said: str) -> None:
    found = connections.unavailable(RuntimeError(said))
    assert isinstance(found, DatabaseRefused)
    assert str(found) == said.splitlines()[-1]


def test_a_server_that_is_down_or_starting_refuses_nobody() -> None:
    for said in ("Connection refused", "FATAL:  the database system is starting up", ""):
        assert type(connections.unavailable(RuntimeError(said))) is DatabaseUnavailable


def test_a_command_says_who_can_mend_a_refused_login(settings: DatabaseSettings, tmp_path: Path) -> None:
    conf = tmp_path / "oar.conf"
    conf.write_text(f'DB_HOSTNAME="{settings.host}"\nDB_BASE_NAME="nothing_here"\n')
    result = invoke(oarqueue.main, ["-l"], user=User("root", 0), environment={"OARCONFFILE": str(conf)})
    assert result == CommandResult(
        3,
        "",
        f"[ERROR] cannot use the OAR database: nothing_here at {settings.host}:5432: it has no such database."
        " An administrator has to correct DB_BASE_NAME, DB_BASE_LOGIN and DB_BASE_PASSWD in oar.conf,"
        " or pg_hba.conf of PostgreSQL.\n",
    )


def test_a_command_tells_the_time_for_which_it_waits_for_a_free_connection(
    full: DatabaseSettings, tmp_path: Path
) -> None:
    conf = tmp_path / "oar.conf"
    conf.write_text(f'DB_HOSTNAME="{full.host}"\nDB_BASE_NAME="{full.name}"\nMAX_DB_CONNECTION_TIMEOUT="3"\n')
    result = invoke(oarqueue.main, ["-l"], user=User("root", 0), environment={"OARCONFFILE": str(conf)})
    assert result == CommandResult(
        2,
        "",
        f"/!\\ the OAR database at {full.host}:5432 has no free connection, trying for 3 s.\n"
        f"[ERROR] cannot reach the OAR database: {full.place}: it has no free connection, tried for 3 s."
        " Try again later, or inform an administrator.\n",
    )
