"""Usersets, the named lists of users that advance reservations know: what oaruserset does."""

from typing import Annotated

from fastapi import APIRouter, Path, Request
from pydantic import BaseModel, Field

from oar.api.administrators import STRICT, Force, administering
from oar.api.answers import Answer, answer, answer_unless_known
from oar.api.job_request import Text
from oar.api.jobs import PRINTABLE
from oar.api.service import asking
from oar.lib.reservations import userset_changes

router = APIRouter(prefix="/v1/usersets", tags=["administration"])

SetName = Annotated[str, Path(max_length=100, pattern=PRINTABLE, description="Name of a userset.")]
Entry = Annotated[str, Path(max_length=255, pattern=PRINTABLE, description="A user, `@group` or pattern.")]


class UsersetEntries(BaseModel):
    """Users, groups (`@group`) and patterns."""

    model_config = STRICT

    entries: list[Text] = Field(min_length=1, max_length=10_000)
    force: bool = Field(default=False, description="Though it takes a live reservation from somebody.")


@router.get("", operation_id="usersets_list", summary="Usersets")
def usersets_list(request: Request) -> Answer:
    """Return the usersets with their entries."""
    who = asking(request)
    with who.database.snapshot() as tx:
        entries = tx.usersets.entries(tx.usersets.names())
    return answer_unless_known(request, {"items": [{"name": name, "entries": entries[name]} for name in entries]})


@router.get("/{name}", operation_id="userset", summary="One userset")
def userset_one(request: Request, name: SetName) -> Answer:
    """Return the entries of a userset."""
    who = asking(request)
    with who.database.snapshot() as tx:
        return answer_unless_known(request, {"name": name, "entries": userset_changes.entries_of(tx, name)})


@router.put("/{name}", operation_id="userset_add", summary="Add users to a userset")
def userset_add(request: Request, name: SetName, wish: UsersetEntries) -> Answer:
    """Add users to a userset, which is made if it is new, as `oaruserset -a` does (administrators)."""
    text = ",".join(wish.entries)
    with administering(request) as act:
        added = [
            entry for entry, is_new in userset_changes.add(act.tx, act.user, text, name, force=wish.force) if is_new
        ]
        entries = userset_changes.entries_of(act.tx, name)
    warnings = [*act.warnings, *userset_changes.unknown_names(text)]
    return answer({"name": name, "entries": entries, "added": added, "warnings": warnings})


@router.delete("/{name}", operation_id="userset_delete", summary="Delete a userset")
def userset_delete(request: Request, name: SetName, force: Force = False) -> Answer:
    """Delete a userset, as `oaruserset -D` does (administrators)."""
    with administering(request) as act:
        userset_changes.delete(act.tx, act.user, name, force=force)
    return answer({"name": name, "done": "deleted"})


@router.delete("/{name}/{entry}", operation_id="userset_remove", summary="Take a user out of a userset")
def userset_remove(request: Request, name: SetName, entry: Entry, force: Force = False) -> Answer:
    """Take a user out of a userset, as `oaruserset -d` does (administrators); one that was not there is no error."""
    with administering(request) as act:
        removed = [
            each for each, was_there in userset_changes.remove(act.tx, act.user, entry, name, force=force) if was_there
        ]
        entries = userset_changes.entries_of(act.tx, name)
    return answer({"name": name, "entries": entries, "removed": removed})
