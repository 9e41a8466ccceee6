"""Changes of advance reservations: store a change, and apply it.

Changes of attributes take effect at once; the scheduler decides changes of windows and resources, which are stored as
JSON until then.  ``change_requests`` makes changes of the options of qralter.

See docs/design/reservations.rst, "Changes".
"""

import json
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from oar.lib.access.records import User
from oar.lib.base.errors import BrokenRow
from oar.lib.bus.messages import Tag, Wake
from oar.lib.history import audit
from oar.lib.history.audit import AuditAction, Values
from oar.lib.reservations import deletion, lifecycle, permissions
from oar.lib.reservations.errors import ChangeDenied
from oar.lib.reservations.fields import COLUMNS
from oar.lib.reservations.records import (
    AccessEntry,
    AdvanceReservation,
    ReservationAttributes,
    ReservationChange,
    Series,
    decode,
)
from oar.lib.reservations.series import change_template
from oar.lib.reservations.states import GRANTED, ChangeAnswer, ReservationEvent
from oar.lib.reservations.views import change_names

if TYPE_CHECKING:
    from oar.lib.db.transaction import Transaction

#: Message about a job that ends because its owner loses access.
NO_ACCESS = "job {} was deleted: its owner may not use the reservation any more"


class WantedChange(NamedTuple):
    """A requested window and requested resources; None means unchanged."""

    start: int | None = None
    end: int | None = None
    is_forced: bool = False
    request: str | None = None  #: JSON, as ``reservations.request``
    asked: Mapping[str, str] | None = None  #: columns of the reservation that tell how the resources were asked for
    attributes: ReservationAttributes = ReservationAttributes()  #: they are changed with it, or stay with it

    @property
    def values(self) -> dict[str, Any]:
        """The new values by name, with the attributes, as they are stored."""
        window = {name: value for name, value in self._asdict().items() if value is not None and name != "attributes"}
        return {**window, **self.attributes.given}


#: Types of the values of a stored change.
_TYPES: Mapping[str, type] = {
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
#: Longest texts of a stored change, where their columns are short.
_LONGEST: Mapping[str, int] = {"name": 128, "account": 255, "mail_options": 3}
#: Largest number of a stored change: the last second of the year 9999.
_LARGEST = 253_402_300_799


def read_change(text: str) -> WantedChange:
    """Return a stored change, whose values fit the database columns.  Raises BrokenRow."""
    try:
        values: dict[str, Any] = json.loads(text)
        is_valid = all(type(value) is _TYPES[name] and _is_storable(name, value) for name, value in values.items())
        attributes = {name: values.pop(name) for name in ReservationAttributes._fields if name in values}
        if "access" in attributes:
            attributes["access"] = tuple(AccessEntry(*entry) for entry in attributes["access"])
        change = WantedChange(**values, attributes=ReservationAttributes(**attributes))
        is_valid &= all(entry.is_storable for entry in change.attributes.access or ())
        is_valid &= change.request is None or change.asked is not None
    except (ValueError, LookupError, TypeError, AttributeError):
        is_valid = False
    if not is_valid or (change.request is not None and not decode(change.request)):
        raise BrokenRow(f"a change of an advance reservation cannot be read: {text[:60]}")
    return change


def _is_storable(name: str, value: Any) -> bool:
    """Return whether a value of a stored change fits into its column.  The type of the value is already checked."""
    if isinstance(value, str):
        return "\0" not in value and len(value) <= _LONGEST.get(name, len(value))
    if isinstance(value, dict):
        return value.keys() <= _ASKED and all(type(text) is str and _is_storable("", text) for text in value.values())
    return not isinstance(value, int) or 0 <= value <= _LARGEST


def check(tx: "Transaction", user: User, reservation: AdvanceReservation | None, number: int) -> AdvanceReservation:
    """Return the reservation if the user may change it.  Raises ChangeDenied."""
    if reservation is None or not reservation.is_live or reservation.state not in GRANTED:
        raise ChangeDenied(f'denied: advance_reservation "{number}" does not exist')
    if not permissions.may_change(tx, user, reservation):
        raise ChangeDenied(f'denied: "{user.name}" is not allowed to alter advance_reservation {number}')
    return reservation


def lock(tx: "Transaction", user: User, reservation: AdvanceReservation | None, number: int) -> AdvanceReservation:
    """Lock a reservation and return it if the user may change it.  Raises ChangeDenied.

    Scheduling passes wait until the transaction ends.
    """
    locked = tx.reservations.lock([reservation.id]) if reservation else []
    return check(tx, user, locked[0] if locked else None, number)


def request_change(
    tx: "Transaction", user: User, reservation: AdvanceReservation, change: WantedChange, *, patience: float
) -> int:
    """Request another window or other resources from the scheduler; return the id of the change.  Raises ChangeDenied.

    ``reservation`` is locked.  ``patience``: seconds that the client waits for the decision.
    """
    expires = tx.now + round(10 * patience)
    change_id = tx.reservations.request_change(reservation.id, user.name, json.dumps(change.values), expires)
    if change_id is None:
        raise ChangeDenied(f"denied: a change of advance_reservation {reservation.number} is pending")
    _audit(tx, user, reservation, json.dumps(change.values))
    tx.outbox.append(Wake(Tag.TERM))
    return change_id


def _audit(tx: "Transaction", user: User, reservation: AdvanceReservation, values: str) -> None:
    """Record the change of a reservation of another user; ``values``: JSON of the new values."""
    if reservation.owner != user.name:
        name = f"reservation {reservation.number} ({reservation.owner})"
        audit.record(tx, user, AuditAction.CHANGE, name, Values(new=values))


def cancel_change(tx: "Transaction", change_id: int) -> ReservationChange | None:
    """Withdraw a change whose client stopped waiting; return the change if it was already decided, else None."""
    if tx.reservations.answer_change(change_id, ChangeAnswer.DROPPED, "withdrawn"):
        return None
    return tx.reservations.find_change(change_id)


def change_attributes(
    tx: "Transaction", user: User, reservation: AdvanceReservation, attributes: ReservationAttributes
) -> list[int]:
    """Change attributes of a locked reservation; return the waiting jobs that are therefore deleted.

    Waiting jobs of users who lose access are deleted; their running jobs continue.
    """
    lost = jobs_without_access(tx, reservation, attributes)
    _audit(tx, user, reservation, json.dumps(attributes.given))
    changed = set_attributes(tx, reservation._replace(revision=reservation.revision + 1), attributes)
    log_change(tx, changed, user.author, change_names(attributes.given))
    tx.outbox.append(Wake(Tag.TERM))
    end_without_access(tx, changed, lost)
    return lost


def set_attributes(
    tx: "Transaction", reservation: AdvanceReservation, attributes: ReservationAttributes
) -> AdvanceReservation:
    """Store new attributes of a locked reservation; return the changed reservation."""
    given = attributes._replace(access=None).given
    if given:
        tx.reservations.update(reservation.id, **{COLUMNS[name]: value for name, value in given.items()})
    if attributes.access is not None:
        tx.reservations.set_access(reservation.id, attributes.access)
    return reservation._replace(**given)


def log_change(tx: "Transaction", changed: AdvanceReservation, author: str, message: str) -> None:
    """Store the new revision of a reservation and log the change.  ``message``: the names of the changed attributes."""
    tx.reservations.update(changed.id, revision=changed.revision)
    lifecycle.add_revision(tx, changed, author)
    lifecycle.note(tx, changed, ReservationEvent.ALTERED, message=message, author=author)


def jobs_without_access(
    tx: "Transaction", reservation: AdvanceReservation, attributes: ReservationAttributes
) -> list[int]:
    """Return the waiting jobs of a reservation whose owners lose access by a change."""
    if attributes.access is None:
        return []
    jobs = tx.jobs.select(tx.reservations.live_jobs([reservation.id])[reservation.id].waiting)
    owners = {owner: permissions.visitor_of(*owner) for owner in {(job.user, job.project) for job in jobs}}
    allowed = permissions.allowed_visitors(tx, attributes.access, owners)
    return [job.id for job in jobs if (job.user, job.project) not in allowed]


def end_without_access(tx: "Transaction", reservation: AdvanceReservation, job_ids: Collection[int]) -> None:
    """Request the end of jobs whose owners lost access."""
    deletion.end_some_jobs(tx, reservation, job_ids, "its owner may not use any more")


def change_series(
    tx: "Transaction",
    user: User,
    reservation: AdvanceReservation,
    attributes: ReservationAttributes,
    *,
    duration: int | None,
    resources: Mapping[str, Any],
) -> Series:
    """Change the template for future occurrences in the series of a locked reservation; return the series.

    ``duration``: None means unchanged.  ``resources``: new resource fields of the template.  Raises ChangeDenied.
    """
    series = tx.reservations.lock_series(reservation.series_id) if reservation.series_id else None
    if series is None:
        raise ChangeDenied(f"denied: advance_reservation {reservation.number} is in no series that goes on")
    offset = reservation.time_offset
    if duration is not None and duration <= offset:
        raise ChangeDenied(f"denied: the duration must be longer than {offset} seconds")
    given = {**attributes.given, **resources}
    values = Values(new=json.dumps({"duration": duration, **given} if duration is not None else given))
    if series.owner != user.name:
        audit.record(tx, user, AuditAction.CHANGE, f"series {series.id} ({series.owner})", values)
    return change_template(tx, series, duration, **given)
