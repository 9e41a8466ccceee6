"""What ``oar-server status --check`` finds of the nodes: none is Alive, or nothing where the database does not tell."""

import pytest

from oar.cli import oar_server
from oar.cli.oar_server import nodes_away
from oar.lib.config.files import Config
from oar.lib.db.database import Database
from oar.lib.facts.states import ResourceState
from oar.lib.resources import nodes
from tests.builders import add_resources


@pytest.fixture
def config(database: Database, monkeypatch: pytest.MonkeyPatch) -> Config:
    monkeypatch.setattr(oar_server, "database_settings", lambda config, patience: database.settings)
    return Config()


def test_nodes_are_away_when_none_is_alive(database: Database, config: Config) -> None:
    assert nodes_away(config) == 0
    add_resources(database, state="Absent")
    assert nodes_away(config) == 2


def test_a_node_for_desktop_computing_is_alive_too(database: Database, config: Config) -> None:
    add_resources(database, state="Suspected")
    add_resources(database, network_address="desktop", desktop_computing="YES")
    assert nodes_away(config) == 0


def test_a_node_of_which_something_is_asked_is_alive_until_then(database: Database, config: Config) -> None:
    add_resources(database, state="Suspected")
    asked = add_resources(database, network_address="node-9")
    with database.begin() as tx:
        nodes.ask_state(tx, asked, ResourceState.ABSENT)
    assert nodes_away(config) == 0


def test_a_lock_on_the_resources_does_not_hold_the_check_up(
    database: Database, config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(oar_server, "DATABASE_SECONDS", 1)
    add_resources(database, state="Absent")
    with database.begin() as tx:
        tx.execute("LOCK TABLE resources IN ACCESS EXCLUSIVE MODE")
        assert nodes_away(config) == 0
    assert nodes_away(config) == 2


def test_an_error_of_the_database_is_not_told_here(database: Database, config: Config) -> None:
    add_resources(database, state="Absent")
    with database.begin() as tx:
        tx.execute("ALTER TABLE resources RENAME TO gone")
    try:
        assert nodes_away(config) == 0
    finally:
        with database.begin() as tx:
            tx.execute("ALTER TABLE gone RENAME TO resources")
