"""The warden with a database that does not do what it asks: only the lock and the generation decide."""

import logging
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import Mock

import psycopg2
import pytest

from oar.lib.base.errors import DatabaseUnavailable
from oar.lib.bus.frames import Active, Alive, Away, Frame, Standby
from oar.lib.config.files import Config
from oar.lib.db.connections import DatabaseSettings
from oar.lib.db.database import Database
from oar.lib.db.lock_keys import SERVER_LOCK
from oar.lib.db.servers import Servers
from oar.lib.jobs import recovery
from oar.lib.runtime import Runtime
from oar.modules import warden as module
from oar.modules.warden import Warden, take_over
from tests.builders import add_job


class Watched:
    """A warden, and what it has reported to Almighty."""

    def __init__(self, settings: DatabaseSettings, directory: Path) -> None:
        self.reports: list[Frame] = []
        config = Config(server_hostnames=("srv1", "srv2"), server_name="srv1", oar_run_dir=str(directory))
        runtime = Runtime(config, Database(settings._replace(patience=0), application="oar:warden"))
        self.warden = Warden(runtime, self.reports.append)

    def turn(self) -> list[type[Frame]]:
        """Return the kinds of the reports of one turn."""
        self.reports.clear()
        self.warden.turn()
        return [type(report) for report in self.reports]


@pytest.fixture
def watched(settings: DatabaseSettings, tmp_path: Path) -> Iterator[Watched]:
    made = Watched(settings, tmp_path)
    yield made
    made.warden.close()


def test_a_take_over_whose_report_fails_begins_again(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    announce = Mock(side_effect=[DatabaseUnavailable("lost"), Active(7)])
    monkeypatch.setattr(Warden, "_announce", announce)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(watched.warden._runtime, "changed_config", lambda: None)
        assert watched.turn() == [Away]
    assert [watched.turn(), watched.turn()] == [[Active], [Alive]]
    assert announce.call_args_list[0].args[1] <= announce.call_args_list[1].args[1]


def test_a_session_that_locks_the_table_of_servers_delays_no_take_over(
    watched: Watched, database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    with database.begin() as tx:
        take_over(tx, "srv2")
    with database.begin() as tx:
        tx.execute("LOCK TABLE servers")
        assert [watched.turn(), watched.turn()] == [[Active], [Alive]]
    assert "is not stored: canceling statement due to lock timeout" in caplog.text
    watched.warden.follow_configuration()
    assert watched.turn() == [Alive]
    with database.begin() as tx:
        assert [row.server_name for row in tx.servers.all()] == ["srv1"]
        assert tx.column("SELECT description FROM event_logs WHERE type = 'SERVER_TAKE_OVER'") == [
            "srv1 has taken over from srv2: srv2 no longer holds the server lock"
        ]


def test_a_session_that_locks_the_generation_is_ended_and_delays_no_take_over(
    watched: Watched, settings: DatabaseSettings, database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    """A process of the former server that was stopped between its request and its commit."""
    with database.begin() as tx:
        take_over(tx, "srv2")
    other = Database(settings._replace(patience=0))
    with pytest.raises(DatabaseUnavailable), other.begin() as tx:
        tx.servers.request_count()
        assert watched.turn() == [Active]
    other.close()
    assert "the take-over was blocked by 1 sessions" in caplog.text
    assert watched.warden._locks is not None
    assert watched.warden._locks.look(lambda tx: tx.value("SHOW lock_timeout")) == "0"


@pytest.mark.parametrize("error", [psycopg2.errors.DiskFull("no space"), psycopg2.errors.UndefinedColumn("host")])
def test_a_report_that_cannot_be_stored_does_not_release_the_lock(
    watched: Watched, monkeypatch: pytest.MonkeyPatch, error: psycopg2.Error
) -> None:
    monkeypatch.setattr(Servers, "report", Mock(side_effect=error))
    assert [watched.turn(), watched.turn()] == [[Active], [Alive]]


@pytest.mark.parametrize(("ahead", "kept"), [(-1, 0), (90, 90)])
def test_a_standby_keeps_the_largest_job_id(
    watched: Watched, database: Database, tmp_path: Path, ahead: int, kept: int
) -> None:
    job_id = add_job(database)
    recovery.write_newest_job(str(tmp_path), job_id + ahead)
    with database.hold_lock(SERVER_LOCK):
        assert watched.turn() == [Standby]
    assert recovery.read_newest_job(str(tmp_path)) == job_id + kept


def test_a_standby_that_cannot_write_its_file_goes_on(watched: Watched, database: Database, tmp_path: Path) -> None:
    add_job(database)
    (tmp_path / "newest_job").mkdir()
    with database.hold_lock(SERVER_LOCK):
        assert watched.turn() == [Standby]
    assert watched.turn() == [Active]


def test_a_take_over_that_waits_for_former_sessions_is_logged_once(
    database: Database, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "SLOW_END_SECONDS", 0.0)
    monkeypatch.setattr(Servers, "end_former_sessions", Mock(side_effect=[3, 2, 1, 0]))
    with caplog.at_level(logging.WARNING), database.begin() as tx:
        take_over(tx)
    assert [record.getMessage().split(" of a ")[0] for record in caplog.records] == [
        "the take-over waits for the end of 3 sessions"
    ]
