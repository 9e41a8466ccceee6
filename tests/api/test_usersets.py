"""Usersets through the API: what oaruserset refuses is refused, in its words, and what it does is done."""

import os
import pwd
from collections.abc import Callable
from typing import NamedTuple

import httpx
import pytest

from oar.cli import oaruserset
from oar.lib.db.database import Database
from oar.lib.reservations.records import AccessEntry
from tests.api.conftest import Api
from tests.db.console import Console
from tests.db.reservation_rows import add_reservation

TEAM = ["bob", "carol"]


class Act(NamedTuple):
    """A change of usersets, as a request and as words of the command."""

    method: str
    route: str
    words: tuple[str, ...]
    what: str  #: in the words of its refusal


BREAKING = [
    Act("DELETE", "team/bob", ("-d", "bob", "team"), "removing"),
    Act("DELETE", "team", ("-D", "team"), "removing"),
    Act("PUT", "guests/dave", ("-a", "dave", "guests"), "adding"),
    Act("PUT", "daemon/dave", ("-a", "dave", "daemon"), "in the place of the group"),
]


@pytest.fixture
def admin(known: Callable[[str, str], httpx.Client]) -> httpx.Client:
    return known(pwd.getpwuid(os.geteuid()).pw_name, "admin")


@pytest.fixture
def relied_on(database: Database) -> int:
    """A live reservation that allows a userset and a group, and denies another userset."""
    with database.begin() as tx:
        for name in ("team", "guests"):
            tx.access.create_userset(name)
            tx.access.add_to_userset(name, TEAM)
    access = [AccessEntry("@team"), AccessEntry("@daemon"), AccessEntry("@guests", denied=True)]
    return add_reservation(database, 12, access=access)


def usersets(database: Database) -> dict[str, tuple[str, ...]]:
    with database.snapshot() as tx:
        return tx.access.userset_entries(tx.access.userset_names())


@pytest.mark.parametrize("act", BREAKING)
def test_what_a_reservation_relies_on_is_kept_as_by_the_command(
    api: Api, admin: httpx.Client, relied_on: int, act: Act
) -> None:
    database = api.runtime.database
    before, console = usersets(database), Console(database, api.runtime.config)
    refused, typed = admin.request(act.method, f"/v1/usersets/{act.route}"), console.type(oaruserset.main, *act.words)
    problem = refused.json()
    assert (refused.status_code, problem["type"], typed.exit) == (409, "userset-in-use", 9)
    assert typed.err == f"{problem['detail']}\n  {problem['hint']}\n"
    assert act.what in problem["detail"]
    assert problem["detail"].endswith(f"advance reservation {relied_on}")
    assert usersets(database) == before


@pytest.mark.parametrize("act", BREAKING)
@pytest.mark.usefixtures("relied_on")
def test_what_is_forced_is_done_as_by_the_command(api: Api, admin: httpx.Client, act: Act) -> None:
    database = api.runtime.database
    before = usersets(database)
    assert admin.request(act.method, f"/v1/usersets/{act.route}?force=true").status_code == 200
    by_request = usersets(database)
    with database.begin() as tx:
        for name in by_request:
            tx.access.drop_userset(name)
        for name, entries in before.items():
            tx.access.create_userset(name)
            tx.access.add_to_userset(name, entries)
    assert Console(database, api.runtime.config).type(oaruserset.main, "-f", *act.words).exit == 0
    assert usersets(database) == by_request != before


def test_one_user_is_added_and_taken_out_by_his_address(admin: httpx.Client) -> None:
    added = admin.put("/v1/usersets/lab/nobody").json()
    assert (added["entries"], added["added"], added["warnings"]) == (["nobody"], ["nobody"], [])
    assert admin.put("/v1/usersets/lab/nobody").json()["added"] == []
    assert admin.put("/v1/usersets/lab/%40daemon").json()["entries"] == ["@daemon", "nobody"]
    assert admin.put("/v1/usersets/lab/b'ob").status_code == 400
    assert admin.delete("/v1/usersets/lab/nobody").json()["removed"] == ["nobody"]
