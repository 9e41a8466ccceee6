"""What administrators look at first: versions, database, rounds, queues, rules, and keys that are not the defaults."""

import os
import pwd
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from oar.api import administration, events
from oar.api.administration import HIDDEN
from oar.lib.access.records import User
from oar.lib.base.version import SCHEMA, VERSION
from oar.lib.bus import control_client
from oar.lib.bus.frames import Frame, RoundsAnswer, RoundsQuestion, Status
from oar.lib.config.files import Config
from oar.lib.db.database import Database
from oar.lib.submission import rule_changes
from tests.api.conftest import Api

#: What a server says of itself, in short.
STATUS = {
    "version": VERSION,
    "start": 1_700_000_000,
    "ready": True,
    "runner": {"waiting": 0, "running": 2},
    "modules": {"MetaSched": {"passes": 3, "failures": 0, "last_duration": 0.2}},
    "rounds": {"bounds": [0.1, 1.0], "counts": [1, 3], "number": 3, "sum": 0.7},
}


@pytest.fixture
def admin(known: Callable[[str, str], httpx.Client]) -> httpx.Client:
    """A client of an administrator."""
    return known(pwd.getpwuid(os.geteuid()).pw_name, "admin")


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that answers."""

    def ask(config: Config, question: Frame, answer: type[Frame], seconds: float) -> Frame:
        return Status(STATUS)

    monkeypatch.setattr(control_client, "ask", ask)


@pytest.mark.usefixtures("server")
def test_versions_rounds_and_modules_are_told(admin: httpx.Client) -> None:
    record = admin.get("/v1/administration").json()
    assert record["versions"] == {"api": VERSION, "server": VERSION, "schema": SCHEMA}
    assert (record["server"]["runner"], record["rounds"]["durations"]["number"]) == ({"waiting": 0, "running": 2}, 3)
    assert record["modules"]["MetaSched"]["passes"] == 3
    assert record["database"]["size"] > 2**20
    assert 1 <= record["database"]["connections"] <= record["database"]["most_connections"]
    assert "besteffort" in {queue["name"] for queue in record["queues"]}


def test_a_server_that_is_down_leaves_its_parts_empty(
    admin: httpx.Client, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(administration, "PATIENCE", 0.0)
    record = admin.get("/v1/administration").json()
    assert (record["server"], record["modules"], record["rounds"]["durations"]) == (None, None, None)
    assert "The server does not answer." in admin.get("/ui/admin").text


@pytest.mark.usefixtures("server")
def test_keys_are_told_that_are_not_the_defaults_and_no_secret(admin: httpx.Client, api: Api) -> None:
    api.runtime.config = Config(server_port=7777, db_base_passwd="hidden-word", server_hostnames=("localhost",))
    keys = {each["key"]: each for each in admin.get("/v1/administration").json()["keys"]}
    assert (keys["SERVER_PORT"]["value"], keys["SERVER_PORT"]["default"]) == ("7777", "6666")
    assert keys["DB_BASE_PASSWD"]["value"] == HIDDEN
    assert "SERVER_HOSTNAME" not in keys  # it is set to its default
    assert "hidden-word" not in admin.get("/ui/admin").text


@pytest.mark.usefixtures("server")
def test_rules_are_told_only_where_they_are_served(admin: httpx.Client, api: Api, database: Database) -> None:
    assert admin.get("/v1/administration").json()["rules"] is None
    with database.begin() as tx:
        user = User("root", 0, administers=True)
        number = rule_changes.create(tx, user, "# no long jobs\nx = 1", priority=3, enabled=True, force=False)
    api.runtime.config = api.runtime.config.replace(api_admission_rules=True)
    rules = {rule["id"]: rule for rule in admin.get("/v1/administration").json()["rules"]}
    assert rules[number] == {"id": number, "priority": 3, "enabled": True, "begins": "# no long jobs"}


@pytest.mark.parametrize(
    ("told", "kind"),
    [
        ({"jobs": 9, "undecided": 4, "phases": {"read": 0.1, "plan": 0.2, "write": 0.1}}, "urgent"),
        ({"jobs": 9, "undecided": 0, "phases": {"read": 0.1, "plan": 0.2, "write": 0.1}}, "full"),
        ({}, None),
    ],
)
def test_the_last_rounds_are_told_to_everybody(
    anonymous: httpx.Client, monkeypatch: pytest.MonkeyPatch, told: dict[str, object], kind: str | None
) -> None:
    own: dict[str, Any] = {"date": 1_700_000_000, "duration": 0.4, "result": "nothing more to do", "started": 2}
    older = {**own, "date": own["date"] - 60}
    questions: list[Frame] = []

    def ask(config: Config, question: Frame, answer: type[Frame], seconds: float) -> Frame:
        questions.append(question)
        return RoundsAnswer({"rounds": [{**own, **told}, older]})

    monkeypatch.setattr(control_client, "ask", ask)
    monkeypatch.setattr(events, "KEPT_SECONDS", 3600.0)
    (item,) = anonymous.get("/v1/rounds", params={"last": 1}).json()["items"]
    assert item == {
        **own,
        "kind": kind,
        "waiting": told.get("jobs"),
        "undecided": told.get("undecided"),
        "phases": told.get("phases"),
    }
    assert [each["date"] for each in anonymous.get("/v1/rounds").json()["items"]] == [own["date"], older["date"]]
    assert questions == [RoundsQuestion(events.MAX_PASSES)]  # once for all who ask


def test_rounds_of_a_server_that_is_down_are_not_known(anonymous: httpx.Client) -> None:
    answer = anonymous.get("/v1/rounds")
    assert (answer.status_code, answer.json()["type"]) == (503, "server-unavailable")
    assert "does not answer" in answer.json()["detail"]
