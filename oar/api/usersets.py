"""Usersets, the named lists of users in access lists of advance reservations, as oaruserset changes them."""

from collections.abc import Collection
from typing import Annotated

from fastapi import APIRouter, Path, Request
from pydantic import BaseModel, Field

from oar.api.parameters import PRINTABLE, STRICT, Force, IfMatch, Text
from oar.api.preconditions import check_seen, version_of_values
from oar.api.responses import Answer, answer, answer_unless_known, list_answer
from oar.api.routing import ApiRoute
from oar.api.service import AdminAct, administering, asking
from oar.lib.access import userset_changes

router = APIRouter(tags=["administration"], route_class=ApiRoute)

SetName = Annotated[str, Path(max_length=100, pattern=PRINTABLE, description="Userset name.")]
Entry = Annotated[str, Path(max_length=255, pattern=PRINTABLE, description="User name, `@group` or pattern.")]


class UsersetEntries(BaseModel):
    """Users, groups (`@group`) and patterns."""

    model_config = STRICT

    entries: list[Text] = Field(min_length=1, max_length=10_000, description="Users, and groups as `@group`.")
    force: bool = Field(default=False, description="Proceed even if a user loses access to a live reservation.")


@router.get("/v1/usersets", operation_id="usersets_list", summary="List usersets")
def usersets_list(request: Request) -> Answer:
    """Return the usersets with their entries."""
    who = asking(request)
    with who.database.snapshot() as tx:
        entries = tx.access.userset_entries(tx.access.userset_names())
    return list_answer(request, {"items": [_item(name, entries[name]) for name in entries]})


@router.get("/v1/usersets/{name}", operation_id="userset", summary="Get a userset")
def get_userset(request: Request, name: SetName) -> Answer:
    """Return the entries of a userset."""
    who = asking(request)
    with who.database.snapshot() as tx:
        return answer_unless_known(request, _item(name, userset_changes.entries_of(tx, name)))


@router.put("/v1/usersets/{name}", operation_id="userset_add", summary="Add users to a userset")
def userset_add(request: Request, name: SetName, body: UsersetEntries, match: IfMatch = None) -> Answer:
    """Add users to a userset, as `oaruserset -a` does. A missing userset is created. Administrators only."""
    return _added(request, name, ",".join(body.entries), match, force=body.force)


@router.put("/v1/usersets/{name}/{entry}", operation_id="userset_add_one", summary="Add a user to a userset")
def userset_add_one(
    request: Request, name: SetName, entry: Entry, force: Force = False, match: IfMatch = None
) -> Answer:
    """Add a user, `@group` or pattern to a userset. A missing userset is created. Administrators only."""
    return _added(request, name, entry, match, force=force)


def _added(request: Request, name: str, text: str, match: str | None, *, force: bool) -> Answer:
    """Add a comma list of entries to a userset."""
    with administering(request) as act:
        _check_seen(act, name, match)
        added = [entry for entry, is_new in userset_changes.add(act.tx, act.user, text, name, force=force) if is_new]
        entries = userset_changes.entries_of(act.tx, name)
    warnings = [*act.warnings, *userset_changes.unknown_names(text)]
    return answer({**_item(name, entries), "added": added, "warnings": warnings})


@router.delete("/v1/usersets/{name}", operation_id="userset_delete", summary="Delete a userset")
def userset_delete(request: Request, name: SetName, force: Force = False, match: IfMatch = None) -> Answer:
    """Delete a userset, as `oaruserset -D` does. Administrators only."""
    with administering(request) as act:
        _check_seen(act, name, match)
        userset_changes.delete(act.tx, act.user, name, force=force)
    return answer({"name": name, "done": "deleted"})


@router.delete("/v1/usersets/{name}/{entry}", operation_id="userset_remove", summary="Remove a user from a userset")
def userset_remove(
    request: Request, name: SetName, entry: Entry, force: Force = False, match: IfMatch = None
) -> Answer:
    """Remove a user from a userset, as `oaruserset -d` does. A missing entry is not an error. Administrators only."""
    with administering(request) as act:
        _check_seen(act, name, match)
        removed = [
            entry_
            for entry_, was_there in userset_changes.remove(act.tx, act.user, entry, name, force=force)
            if was_there
        ]
        entries = userset_changes.entries_of(act.tx, name)
    return answer({**_item(name, entries), "removed": removed})


def _check_seen(act: AdminAct, name: str, match: str | None) -> None:
    act.tx.access.lock_userset(name)
    check_seen(match, f"userset {name}", lambda: _version(name, userset_changes.entries_of(act.tx, name)))


def _item(name: str, entries: Collection[str]) -> dict[str, object]:
    return {"name": name, "entries": entries, "version": _version(name, entries)}


def _version(name: str, entries: Collection[str]) -> str:
    return version_of_values(name, sorted(entries))
