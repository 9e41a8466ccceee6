"""The audit log through the API: what requests write, and who reads it."""

import json
import os
import pwd
from collections.abc import Callable

import httpx
import pytest

from oar.api.authentication import Caller, Way
from oar.lib.access import tokens
from oar.lib.access.records import User, Via
from oar.lib.db.database import Database
from oar.lib.history import audit
from oar.lib.history.sql_audit import AuditEntry, AuditFilter
from oar.lib.jobs.states import JobState
from tests.builders import add_job, add_resources

ROOT = pwd.getpwuid(os.geteuid()).pw_name


@pytest.fixture
def admin(known: Callable[[str, str], httpx.Client]) -> httpx.Client:
    return known(ROOT, "admin")


def rows(database: Database, selected: AuditFilter) -> list[AuditEntry]:
    with database.snapshot() as tx:
        return audit.find(tx, selected, 1000)[::-1]


def test_a_change_by_the_api_is_one_row_with_user_and_token(admin: httpx.Client, database: Database) -> None:
    assert admin.patch("/v1/queues/default", json={"priority": 7}).status_code == 200
    assert admin.patch("/v1/queues/no-queue", json={"priority": 7}).status_code == 404
    (entry,) = rows(database, AuditFilter(object="queue"))
    assert entry.via is Via.API
    assert entry.person.startswith(f"{ROOT}, token ")
    assert (entry.former_value, entry.new_value) == (
        "priority 2, policy kamelot, Active",
        "priority 7, policy kamelot, Active",
    )


def test_jobs_of_others_are_recorded_and_own_ones_are_not(
    admin: httpx.Client, nobody: httpx.Client, database: Database
) -> None:
    own, other = add_job(database, user="nobody"), add_job(database, user="alice")
    assert nobody.delete(f"/v1/jobs/{own}").status_code < 300
    assert nobody.delete(f"/v1/jobs/{other}").status_code == 403
    assert admin.delete(f"/v1/jobs/{other}").status_code < 300
    (entry,) = rows(database, AuditFilter(object="job"))
    assert (entry.action, entry.object) == ("delete", f"job {other} (alice)")


def test_the_accounting_that_is_counted_again_and_deleted_is_recorded(admin: httpx.Client, database: Database) -> None:
    add_job(database, JobState.TERMINATED, on=add_resources(database)[:1])
    assert admin.post("/v1/accounting").json()["jobs"] == 1
    assert admin.post("/v1/accounting", json={"anew": True}).json()["jobs"] == 1
    removed = admin.delete("/v1/accounting?older_than=0").json()["windows"]
    entries = rows(database, AuditFilter(object="accounting"))
    assert [(entry.action, entry.former_value, entry.new_value) for entry in entries] == [
        ("change", "", "all ended jobs counted again"),
        *([("purge", f"{removed} windows older than 0 seconds", "")] if removed else []),
    ]
    assert all(entry.person.startswith(f"{ROOT}, token ") for entry in entries)


def test_the_comment_of_a_token_names_nobody(admin: httpx.Client, database: Database) -> None:
    with database.begin() as tx:
        number, secret = tokens.create(tx, User(ROOT, 0, administers=True), scope="admin", comment="ci), root (eve")
    shown = {"Authorization": f"Bearer {secret}"}
    assert admin.patch("/v1/queues/default", json={"priority": 7}, headers=shown).status_code == 200
    (entry,) = rows(database, AuditFilter(object="queue"))
    assert entry.person == f"{ROOT}, token {number}"
    assert not rows(database, AuditFilter(person="eve"))


def test_administrators_read_it_in_pages_and_as_lines(admin: httpx.Client, database: Database) -> None:
    with database.begin() as tx:
        for number in range(5):
            audit.record(tx, User("root", 0, person="anna"), audit.AuditAction.CHANGE, f"queue q{number}")
    first = admin.get("/v1/audit", params={"object": "queue", "limit": 3}).raise_for_status().json()
    rest = admin.get("/v1/audit", params={"object": "queue", "before": first["next"]}).raise_for_status().json()
    items = [*first["items"], *rest["items"]]
    assert [item["object"] for item in items] == [f"queue q{number}" for number in range(4, -1, -1)]
    assert rest["next"] is None
    assert {item["person"] for item in items} == {"root (anna)"}
    lines = admin.get("/v1/audit", params={"object": "queue"}, headers={"Accept": "application/x-ndjson"})
    assert [json.loads(line) for line in lines.text.splitlines()] == items
    assert admin.get("/v1/audit", params={"by": "anna", "object": "queue q2"}).json()["items"] == [items[2]]
    assert admin.get("/v1/audit", params={"until": 1}).json()["items"] == []


@pytest.mark.parametrize("query", ["limit=0", "since=x", "by=%00", "object=%0a", "nothing=1", "before=0"])
def test_a_bad_query_is_refused(admin: httpx.Client, query: str) -> None:
    assert admin.get(f"/v1/audit?{query}").status_code == 400


def test_nobody_else_reads_it(
    anonymous: httpx.Client, nobody: httpx.Client, known: Callable[[str, str], httpx.Client]
) -> None:
    assert anonymous.get("/v1/audit").status_code == 401
    assert nobody.get("/v1/audit").status_code == 403
    assert known(ROOT, "rw").get("/v1/audit").status_code == 403


def test_a_session_is_a_page_and_a_token_is_named() -> None:
    anna = User("anna", 1, administers=True)
    recorded = Caller(anna, Way.SESSION, token=3).recorded("").user
    assert recorded
    assert (recorded.via, recorded.token) == (Via.PAGE, "")
    recorded = Caller(anna, Way.TOKEN, token=3, rests_on_token=True, origin=3).recorded("").user
    assert recorded
    assert (recorded.via, recorded.token) == (Via.API, "token 3")
