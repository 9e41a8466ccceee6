"""Changes of advance reservations.

Changes of attributes take effect at once; the scheduler decides changes of windows and resources.

See docs/design/reservations.rst, "Changes".
"""

import json
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from oar.lib.access.records import User
from oar.lib.base.errors import BrokenRow, UserError
from oar.lib.bus.messages import Tag, Wake
from oar.lib.reservations import deletion, lifecycle, occurrences, rights
from oar.lib.reservations.records import AccessEntry, AdvanceReservation, ReservationChange, Series, decode
from oar.lib.reservations.revisions import add_revision
from oar.lib.reservations.states import GRANTED, ChangeAnswer, ReservationEvent
from oar.lib.reservations.views import change_names
from oar.lib.submission import visitors

if TYPE_CHECKING:
    from oar.lib.db.transaction import Transaction


#: What is said of a job that ends because its owner loses his access.
NO_ACCESS = "job {} was deleted: its owner may not use the reservation any more"


class ChangeDenied(UserError):
    """The change is not allowed; the message is a complete line."""


class AttributeChange(NamedTuple):
    """New attributes of a reservation; None means unchanged."""

    name: str | None = None
    account: str | None = None
    mail_options: str | None = None
    mail_list: str | None = None
    is_hard: bool | None = None
    replaces_lost: bool | None = None
    idle_limit: int | None = None
    access: tuple[AccessEntry, ...] | None = None

    @classmethod
    def of(cls, change: Mapping[str, Any]) -> "AttributeChange":
        """Return the attribute changes of a stored change, without the window and the resources."""
        found = {name: change[name] for name in cls._fields if name in change}
        if "access" in found:
            found["access"] = tuple(AccessEntry(*entry) for entry in found["access"])
        return cls(**found)


#: What the values of a stored change are.
_STORED: Mapping[str, type] = {
    "start": int,
    "end": int,
    "is_forced": bool,
    "request": str,
    "asked": dict,
    "name": str,
    "account": str,
    "mail_options": str,
    "mail_list": str,
    "is_hard": bool,
    "replaces_lost": bool,
    "idle_limit": int,
    "access": list,
}


#: The columns that tell how other resources were asked for.
_ASKED = frozenset({"resource_list", "pe", "pe_range", "host_list", "properties", "queue_list"})
#: What the texts of a stored change may be at most, where their columns are short.
_LONGEST: Mapping[str, int] = {"name": 128, "account": 255, "mail_options": 3}
#: No number of a stored change is larger: the last second of the year 9999.
_MOST = 253_402_300_799


def read_change(text: str) -> dict[str, Any]:
    """Return a stored change as a dictionary whose values fit the database columns.  Raises BrokenRow."""
    try:
        values: dict[str, Any] = json.loads(text)
        is_ours = all(type(value) is _STORED[name] and _is_storable(name, value) for name, value in values.items())
        request, access = values.get("request"), AttributeChange.of(values).access or ()
        is_ours &= all(each.is_storable for each in access) and (request is None or "asked" in values)
    except (ValueError, LookupError, TypeError, AttributeError):
        is_ours = False
    if not is_ours or (request is not None and not decode(request)):
        raise BrokenRow(f"a change of an advance reservation cannot be read: {text[:60]}")
    return values


def _is_storable(name: str, value: Any) -> bool:
    """Return whether a value of a stored change fits into its column.  The type of the value is already checked."""
    if isinstance(value, str):
        return "\0" not in value and len(value) <= _LONGEST.get(name, len(value))
    if isinstance(value, dict):
        return value.keys() <= _ASKED and all(type(each) is str and _is_storable("", each) for each in value.values())
    return not isinstance(value, int) or 0 <= value <= _MOST


class WantedChange(NamedTuple):
    """A requested window and requested resources; None means unchanged."""

    start: int | None = None
    end: int | None = None
    is_forced: bool = False
    request: str | None = None  #: JSON, as ``reservations.request``
    asked: Mapping[str, str] | None = None  #: columns of the reservation that tell how the resources were asked for
    attributes: AttributeChange = AttributeChange()  #: they are changed with it, or stay with it


def check(tx: "Transaction", user: User, reservation: AdvanceReservation | None, number: int) -> AdvanceReservation:
    """Return the reservation if the user may change it.  Raises ChangeDenied."""
    if reservation is None or not reservation.is_live or reservation.state not in GRANTED:
        raise ChangeDenied(f'denied: advance_reservation "{number}" does not exist')
    if not rights.may_change(tx, user, reservation):
        raise ChangeDenied(f'denied: "{user.name}" is not allowed to alter advance_reservation {number}')
    return reservation


def lock(tx: "Transaction", user: User, reservation: AdvanceReservation | None, number: int) -> AdvanceReservation:
    """Lock a reservation and return it if the user may change it.  Raises ChangeDenied.

    Scheduling passes wait until the transaction ends.
    """
    locked = tx.reservations.lock([reservation.id]) if reservation else []
    return check(tx, user, locked[0] if locked else None, number)


def ask_change(
    tx: "Transaction", user: User, reservation: AdvanceReservation, change: WantedChange, *, patience: float
) -> int:
    """Request another window or other resources from the scheduler; return the id of the change.  Raises ChangeDenied.

    ``reservation`` is locked.  ``patience``: seconds that the client waits for the decision.
    """
    values = {**change._asdict(), **change.attributes._asdict()}
    del values["attributes"]
    text = json.dumps({name: value for name, value in values.items() if value is not None})
    expires = tx.now + round(10 * patience)
    change_id = tx.reservations.request_change(reservation.id, user.name, text, expires)
    if change_id is None:
        raise ChangeDenied(f"denied: a change of advance_reservation {reservation.number} is pending")
    tx.outbox.append(Wake(Tag.TERM))
    return change_id


def give_up(tx: "Transaction", change_id: int) -> ReservationChange | None:
    """Withdraw a change whose client stopped waiting; return the change if it was already answered, else None."""
    if tx.reservations.answer_change(change_id, ChangeAnswer.DROPPED, "withdrawn"):
        return None
    return tx.reservations.find_change(change_id)


def change_attributes(
    tx: "Transaction", user: User, reservation: AdvanceReservation, change: AttributeChange
) -> list[int]:
    """Change attributes of a locked reservation; return the waiting jobs that are therefore deleted.

    Waiting jobs of users who lose access are deleted; their running jobs continue.
    """
    lost = jobs_without_access(tx, reservation, change)
    changed = set_attributes(tx, reservation._replace(revision=reservation.revision + 1), change)
    note_change(tx, changed, user.name, change_names(change._asdict()))
    tx.outbox.append(Wake(Tag.TERM))
    end_without_access(tx, changed, lost)
    return lost


def set_attributes(tx: "Transaction", reservation: AdvanceReservation, change: AttributeChange) -> AdvanceReservation:
    """Store new attributes of a locked reservation; return the changed reservation."""
    flags = {"error_handling": change.is_hard, "replace_lost": change.replaces_lost}
    columns: dict[str, object] = {
        "ar_name": change.name,
        "account": change.account,
        "mail_options": change.mail_options,
        "mail_list": change.mail_list,
        "idle_limit": change.idle_limit,
        **{name: None if flag is None else "YES" if flag else "NO" for name, flag in flags.items()},
    }
    if columns := {name: value for name, value in columns.items() if value is not None}:
        tx.reservations.update(reservation.id, **columns)
    if change.access is not None:
        tx.reservations.set_access(reservation.id, change.access)
    given = {name: value for name, value in change._asdict().items() if name != "access" and value is not None}
    return reservation._replace(**given)


def note_change(tx: "Transaction", changed: AdvanceReservation, author: str, message: str) -> None:
    """Store the new revision of a reservation and log the change.  ``message``: the names of the changed attributes."""
    tx.reservations.update(changed.id, revision=changed.revision)
    add_revision(tx, changed, author)
    lifecycle.note(tx, changed, ReservationEvent.ALTERED, message=message, author=author)


def jobs_without_access(tx: "Transaction", reservation: AdvanceReservation, change: AttributeChange) -> list[int]:
    """Return the waiting jobs of a reservation whose owners lose access by a change."""
    if change.access is None:
        return []
    jobs = tx.jobs.select(tx.reservations.live_jobs([reservation.id])[reservation.id].waiting)
    owners = {each: visitors.visitor(*each) for each in {(job.user, job.project) for job in jobs}}
    allowed = visitors.allowed(tx, change.access, owners)
    return [job.id for job in jobs if (job.user, job.project) not in allowed]


def end_without_access(tx: "Transaction", reservation: AdvanceReservation, job_ids: Collection[int]) -> None:
    """Request the end of jobs whose owners lost access."""
    deletion.end_some_jobs(tx, reservation, job_ids, "its owner may not use any more")


def change_series(
    tx: "Transaction",
    reservation: AdvanceReservation,
    change: AttributeChange,
    duration: int | None,
    asked: Mapping[str, str],
) -> Series:
    """Change the template for future occurrences in the series of a locked reservation; return the series.

    ``duration``: None means unchanged.  ``asked``: new resources, by field of the template.  Raises ChangeDenied.
    """
    series = tx.reservations.lock_series(reservation.series_id) if reservation.series_id else None
    if series is None:
        raise ChangeDenied(f"denied: advance_reservation {reservation.number} is in no series that goes on")
    offset = reservation.time_offset
    if duration is not None and duration <= offset:
        raise ChangeDenied(f"denied: the duration must be longer than {offset} seconds")
    return occurrences.alter(tx, series, duration, **{**change._asdict(), **asked})
