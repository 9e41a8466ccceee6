"""Refused submissions: their users and administrators see them, nobody else."""

import httpx

from oar.lib.access import tokens
from oar.lib.access.records import User
from oar.lib.db.database import Database
from oar.lib.history.event_types import EventType
from tests.api.conftest import Api


def test_refused_submissions_of_others_are_not_listed(api: Api, anonymous: httpx.Client, database: Database) -> None:
    with database.begin() as tx:
        tx.events.add(EventType.SUBMISSION_REFUSED, 0, "a submission of nobody: not you")
        tx.events.add(EventType.SUBMISSION_INVALID, 0, "a submission of bob: no queue 'x'")
        _, own = tokens.create(tx, User("nobody", 65534), scope="ro")
        _, full = tokens.create(tx, User("root", 0, administers=True), scope="admin")
    seen = {}
    for name, token in (("owner", own), ("administrator", full), ("anonymous", "")):
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        items = anonymous.get("/v1/event-log", headers=headers).json()["items"]
        seen[name] = [event["text"] for event in items if event["type"].startswith("SUBMISSION_")]
    assert seen == {
        "owner": ["a submission of nobody: not you"],
        "administrator": ["a submission of bob: no queue 'x'", "a submission of nobody: not you"],
        "anonymous": [],
    }
