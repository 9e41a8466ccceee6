"""Advance reservations as users see them: records, of which all formats are made."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from oar.lib.facts.advance_reservations import AccessEntry, AdvanceReservation, LiveJobCounts

if TYPE_CHECKING:
    from oar.lib.db.transaction import Transaction


class GrantedSlots(NamedTuple):
    """The slots of a reservation at one place."""

    queue: str
    host: str  #: '' = resources on no node
    kind: str  #: the type of the resources
    slots: int

    @property
    def place(self) -> str:
        """``queue@host``, or the type of resources that are on no node."""
        return f"{self.queue}@{self.host}" if self.host else self.kind


class ShownReservation(NamedTuple):
    """A reservation with what is shown with it."""

    reservation: AdvanceReservation
    access: tuple[AccessEntry, ...]
    granted: tuple[GrantedSlots, ...]
    jobs: LiveJobCounts

    @property
    def reasons(self) -> list[str]:
        """Why resources are missing, a line each."""
        return self.reservation.message.split("\n") if self.reservation.message else []


def shown(tx: "Transaction", reservations: Sequence[AdvanceReservation]) -> list[ShownReservation]:
    """Return reservations with what is shown with them, in a fixed number of queries."""
    ids = [reservation.id for reservation in reservations]
    numbers = {number for reservation in reservations for number in reservation.resources}
    rows = {row.id: row for row in tx.resources.select(numbers)} if numbers else {}
    access, jobs = tx.advance_reservations.access(ids), tx.advance_reservations.live_jobs(ids)
    return [ShownReservation(each, access[each.id], _granted(each, rows), jobs[each.id]) for each in reservations]


def _granted(reservation: AdvanceReservation, rows: Mapping[int, Any]) -> tuple[GrantedSlots, ...]:
    found = [rows[number] for number in reservation.resources if number in rows]
    places = Counter((row.network_address, "" if row.network_address else row.type) for row in found)
    return tuple(GrantedSlots(reservation.queue, host, kind, count) for (host, kind), count in sorted(places.items()))


def reservation_record(item: ShownReservation) -> dict[str, Any]:
    """Return the fields for machine formats."""
    reservation = item.reservation
    return {
        "id": reservation.number,
        "reservation_id": reservation.id,
        "name": reservation.name,
        "account": reservation.account,
        "owner": reservation.owner,
        "group": reservation.owner_group,
        "project": reservation.project,
        "queue": reservation.queue,
        "submission_time": reservation.submission_time,
        "start_time": reservation.start,
        "end_time": reservation.end,
        "duration": reservation.duration,
        "time_limit": reservation.duration - reservation.time_offset,
        "state": str(reservation.state),
        "error_handling": "hard" if reservation.is_hard else "soft",
        "replace": reservation.replaces_lost,
        "idle_limit": reservation.idle_limit,
        "granted_slots": [{"queue": each.queue, "host": each.host, "slots": each.slots} for each in item.granted],
        "resources": list(reservation.resources),
        "missing": list(reservation.missing),
        "reasons": item.reasons,
        "acl_list": [entry.text for entry in item.access if not entry.denied],
        "xacl_list": [entry.text for entry in item.access if entry.denied],
        "mail_options": reservation.mail_options,
        "jobs": {"running": list(item.jobs.running), "waiting": list(item.jobs.waiting)},
        "revision": reservation.revision,
        "ended": reservation.ended,
    }
