"""Views of advance reservations and their series: records from which all output formats are made."""

import json
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from oar.lib.base.errors import BrokenRow
from oar.lib.base.grid_engine_times import write_date
from oar.lib.base.times import format_duration
from oar.lib.jobs.fields import Kind
from oar.lib.reservations import permissions
from oar.lib.reservations.fields import FIELDS, RECORD, ReservationField
from oar.lib.reservations.permissions import ReservationReader
from oar.lib.reservations.records import (
    REMOVED,
    SOON,
    AccessEntry,
    AdvanceReservation,
    LiveJobCounts,
    ReservationChange,
    ReservationLog,
    ReservationRevision,
    ReservationUsage,
    Series,
)
from oar.lib.reservations.states import INCOMPLETE, ReservationState

if TYPE_CHECKING:
    from oar.lib.db.transaction import Transaction
    from oar.lib.nodes.records import Resource

#: The type of resources that are slots.
SLOT = "default"


class GrantedSlots(NamedTuple):
    """The slots of a reservation on one host."""

    queue: str
    host: str  #: the type of resources that are on no node
    slots: int

    @property
    def place(self) -> str:
        """The queue instance, in Grid Engine's terms."""
        return f"{self.queue}@{self.host}"


class ShownReservation(NamedTuple):
    """A reservation with the related data to display, without the fields that the reader may not see."""

    reservation: AdvanceReservation
    access: tuple[AccessEntry, ...]
    granted: tuple[GrantedSlots, ...]
    slots: int  #: the granted resources that are slots
    jobs: LiveJobCounts
    usage: tuple[ReservationUsage, ...]
    change: ReservationChange | None  #: it was asked for, and is not answered
    occurrences: int = 0  #: how many its series has in all; 0 = it is in none

    @property
    def resource_list(self) -> list[tuple[str, str]]:
        """The requested resources by name, and the number of slots."""
        given = [(str(name), str(value)) for name, value in json.loads(self.reservation.resource_list)]
        return [*(pair for pair in given if pair[0] != "slots"), ("slots", str(self.slots))]

    @property
    def mail_addresses(self) -> list[str]:
        """The mail recipients in addition to the owner."""
        return _words(self.reservation.mail_list)


def reasons(reservation: AdvanceReservation) -> list[str]:
    """Return why resources of a reservation are missing, one line for each reason."""
    return reservation.message.split("\n") if reservation.state in INCOMPLETE and reservation.message else []


#: The names of the values of a change, as in the details of a reservation.
_CHANGE_NAMES = {
    "start": "start",
    "end": "end",
    "request": "resources",
    "name": "name",
    "account": "account",
    "mail_options": "mail_options",
    "mail_list": "mail_list",
    "is_hard": "error_handling",
    "replaces_lost": "replace",
    "idle_limit": "idle_limit",
    "access": "acl_list",
}


def change_text(change: ReservationChange) -> str:
    """Return a requested change as text: ``end 12/14/2006 15:57:33, account b``."""
    return ", ".join(_change_words(json.loads(change.change)))


def _change_words(values: Mapping[str, Any]) -> list[str]:
    if "request" in values:
        values = {**values, "request": _resources_text(values.get("asked", {}))}
    shown = [name for name in _CHANGE_NAMES if name in values]
    return [f"{_CHANGE_NAMES[name]} {_value_text(name, values[name])}" for name in shown]


def change_names(values: Mapping[str, Any]) -> str:
    """Return the changes for the log; values that not every user may see are left out."""
    given = {name: value for name, value in values.items() if value is not None}
    public = {name: value for name, value in given.items() if name not in _SECRETS}
    return ", ".join([*_change_words(public), *(_CHANGE_NAMES[name] for name in _SECRETS if name in given)])


def _resources_text(columns: Mapping[str, str]) -> str:
    """Return the requested resources as text: ``licence=2, slots=3``.

    With a condition only, the requested resources stay the same.
    """
    pairs = json.loads(columns.get("resource_list", "[]"))
    words = [value if name == "oar" else f"{name}={value}" for name, value in pairs]
    words += [f"{columns['pe']} {columns['pe_range']}"] if columns.get("pe") else []
    return ", ".join(words) or "of the same kind"


def _value_text(name: str, value: Any) -> str:
    if name in ("start", "end"):
        return write_date(value)
    if name == "access":
        return ",".join(f"!{text}" if denied else text for text, denied in value)
    if name == "is_hard":
        return "hard" if value else "soft"
    if name == "replaces_lost":
        return "yes" if value else "no"
    return str(value)


#: Values of a change that are shown only to readers who may see the mail addresses.
_SECRETS = ("account", "mail_list", "access")


def open_changes(
    tx: "Transaction", reservations: Sequence[AdvanceReservation], reader: ReservationReader
) -> dict[int, ReservationChange]:
    """Return the unanswered change of each reservation, by reservation id; a reservation has at most one."""
    present = {reservation.id: reservation for reservation in reservations}
    changes: dict[int, ReservationChange] = {}
    for change in tx.reservations.open_changes():
        reservation = present.get(change.reservation_id)
        if reservation and reader.may_see_mail(reservation):
            changes[reservation.id] = change
        elif reservation:
            public = {name: value for name, value in json.loads(change.change).items() if name not in _SECRETS}
            changes[reservation.id] = change._replace(change=json.dumps(public))
    return changes


def shown(
    tx: "Transaction", reservations: Sequence[AdvanceReservation], reader: ReservationReader
) -> list[ShownReservation]:
    """Return reservations with the related data to display, in a fixed number of queries."""
    ids = [reservation.id for reservation in reservations]
    numbers = {number for reservation in reservations for number in reservation.resources}
    rows = {row.id: row for row in tx.resources.select(numbers)} if numbers else {}
    access, jobs = tx.reservations.access(ids), tx.reservations.live_jobs(ids)
    usage, changes = tx.reservation_logs.select_bills(ids), open_changes(tx, reservations, reader)
    in_series = {each.series_id for each in reservations if each.series_id}
    series = tx.reservations.select_series(in_series) if in_series else {}
    hidden = _hidden(tx, reservations, access, reader)
    items = []
    for each in reservations:
        slots = sum(1 for number in each.resources if number not in rows or rows[number].type == SLOT)
        seen, entries = (each._replace(account=""), ()) if each.id in hidden else (each, access[each.id])
        if not reader.may_see_mail(each):
            seen = seen._replace(mail_list="")
        granted, bill = _granted(each, rows), tuple(usage[each.id])
        total = series[each.series_id].occurrences if each.series_id in series else 0
        items.append(ShownReservation(seen, entries, granted, slots, jobs[each.id], bill, changes.get(each.id), total))
    return items


def _hidden(
    tx: "Transaction",
    reservations: Sequence[AdvanceReservation],
    access: Mapping[int, tuple[AccessEntry, ...]],
    reader: ReservationReader,
) -> frozenset[int]:
    """Return the ids of the reservations whose account and access list the reader may not see."""
    if not reader.is_private or reader.is_operator:
        return frozenset()
    usable = permissions.lists_that_allow(tx, access, reader.visitor)
    return frozenset(
        reservation.id
        for reservation in reservations
        if reservation.owner != reader.visitor.user and reservation.id not in usable
    )


def _granted(reservation: AdvanceReservation, rows: "Mapping[int, Resource]") -> tuple[GrantedSlots, ...]:
    hosts: Counter[str] = Counter()
    for number in reservation.resources:
        row = rows.get(number)
        hosts[(row.network_address or row.type) if row else REMOVED] += 1
    return tuple(GrantedSlots(reservation.queue, host, count) for host, count in sorted(hosts.items()))


def granted_slots(tx: "Transaction", queue: str, resources: Collection[int]) -> tuple[GrantedSlots, ...]:
    """Return the slots on each host."""
    hosts = Counter(row.network_address or row.type for row in tx.resources.select(resources))
    return tuple(GrantedSlots(queue, host, count) for host, count in sorted(hosts.items()))


def granted_text(tx: "Transaction", reservation: AdvanceReservation) -> str:
    """Return the granted resources as ``default@node-1=4,licence=2``."""
    rows = tx.resources.select(reservation.resources)
    places = Counter(f"{reservation.queue}@{row.network_address}" if row.network_address else row.type for row in rows)
    return ",".join(f"{place}={count}" for place, count in sorted(places.items()))


def log_record(row: ReservationLog) -> dict[str, Any]:
    """Return an event as fields for machine-readable formats."""
    return {
        "date": row.date,
        "event": row.event,
        "state": str(row.state),
        "host": row.hostname,
        "message": row.message,
        "author": row.author,
    }


def revision_record(row: ReservationRevision, *, shows_account: bool) -> dict[str, Any]:
    """Return a revision as fields for machine-readable formats."""
    return {
        "revision": row.revision,
        "date": row.date,
        "author": row.author,
        "ar_name": row.name,
        "account": row.account if shows_account else "",
        "start_time": row.start,
        "end_time": row.end,
        "granted_parallel_environment": row.granted_pe,
        "granted_resources": row.granted_resources,
    }


def reservation_record(item: ShownReservation) -> dict[str, Any]:
    """Return the fields for machine-readable formats."""
    values = {**field_values(item), "change": json.loads(item.change.change) if item.change else None}
    return {key: values[field.name] for key, field in RECORD.items()}


def field_values(item: ShownReservation) -> dict[str, Any]:
    """Return the values of the fields by name, without a requested change; ``fields.FIELDS`` declares them."""
    reservation = item.reservation
    duration = reservation.real_end - reservation.start
    pe, granted_pe = reservation.pe, reservation.granted_pe
    return {
        **reservation._asdict(),
        "allowed": [entry.text for entry in item.access if not entry.denied],
        "denied": [entry.text for entry in item.access if entry.denied],
        "real_end": reservation.real_end,
        "real_duration": duration,
        "granted": [granted._asdict() for granted in item.granted],
        "requested": [{"name": name, "value": value} for name, value in item.resource_list],
        "state": str(reservation.state),
        "reasons": reasons(reservation),
        "time_limit": reservation.duration - reservation.time_offset,
        "error_handling": "hard" if reservation.is_hard else "soft",
        "granted_environment": {"name": granted_pe, "slots": reservation.granted_slots} if granted_pe else None,
        "environment": {"name": pe, "range": reservation.pe_range} if pe else None,
        "queue_list": _words(reservation.queue_list),
        "master_queue_list": _words(reservation.master_queue_list),
        "host_list": _words(reservation.host_list),
        "mail_list": item.mail_addresses,
        "resources": list(reservation.resources),
        "missing": list(reservation.missing),
        "jobs": {"running": list(item.jobs.running), "waiting": list(item.jobs.waiting)},
        "usage": [
            {
                "queue": row.queue,
                "host": row.network_address,
                "slots": row.slots,
                "reserved": row.reserved,
                "used": row.used,
                "unusable": row.unusable,
            }
            for row in item.usage
        ],
    }


def details(item: ShownReservation, date: Callable[[int], str], *, explains: bool) -> Iterator[tuple[str, str]]:
    """Iterate over the labels and texts of the details of a reservation; skip empty texts.

    ``explains``: with a requested change.
    """
    reservation, values = item.reservation, field_values(item)
    texts = {
        "granted": ",".join(f"{granted.place}={granted.slots}" for granted in item.granted),
        "requested": ",".join(f"{name}={value}" for name, value in item.resource_list),
        "change_text": change_text(item.change) if explains and item.change else "",
        "granted_environment": f"{reservation.granted_pe} slots {reservation.granted_slots}",
        "environment": f"{reservation.pe} slots {reservation.pe_range}",
        "queue_list": reservation.queue_list,
        "host_list": reservation.host_list,
        "jobs": f"running={len(item.jobs.running)},waiting={len(item.jobs.waiting)}" if any(item.jobs) else "",
        "series": f"{reservation.series_id} ({reservation.series_index} of {item.occurrences})",
    }
    absent = {
        "granted_environment": not reservation.granted_pe,
        "environment": not reservation.pe,
        "series": not reservation.series_id,
        "start_window": reservation.start_window <= SOON,
        "mail_options": reservation.mail_options == "n",
    }
    for field in FIELDS:
        if not field.text or absent.get(field.name):
            continue
        if field.name == "reasons":
            yield from ((field.text, reason) for reason in values["reasons"])
            continue
        text = texts[field.name] if field.name in texts else _text(field, values[field.name], date)
        if text or field.name == "name":
            yield field.text, text


def _text(field: ReservationField, value: Any, date: Callable[[int], str]) -> str:
    if field.is_left_out and not value:
        return ""
    match field.kind:
        case Kind.DATE:
            return date(value)
        case Kind.DURATION:
            return format_duration(value)
        case Kind.FLAG:
            return "yes" if value else "no"
        case Kind.TEXTS:
            return ",".join(value)
    return str(value)


def _words(text: str) -> list[str]:
    return [word for word in text.split(",") if word]


class ShownSeries(NamedTuple):
    """A series with the related data to display."""

    series: Series
    name: str  #: of the reservations to come
    live: tuple[int, ...]  #: the numbers of those that are granted and have not ended

    @property
    def left(self) -> int:
        """The number of occurrences that are not requested yet."""
        return self.series.occurrences - self.series.next_index + 1 if self.series.next_start else 0


def shown_series(tx: "Transaction", series: Sequence[Series]) -> list[ShownSeries]:
    """Return series with the related data to display, in a fixed number of queries."""
    live: dict[int, list[int]] = {}
    for each in tx.reservations.of_series([each.id for each in series]):
        if each.is_live and each.state is not ReservationState.ASKED:
            live.setdefault(each.series_id, []).append(each.number)
    return [ShownSeries(each, _name(each), tuple(live.get(each.id, ()))) for each in series]


def _name(series: Series) -> str:
    """Return the name of future reservations; '' if the series cannot be read."""
    try:
        return series.read_template.new.name
    except BrokenRow:
        return ""


def series_record(item: ShownSeries) -> dict[str, Any]:
    """Return the fields for machine-readable formats."""
    each = item.series
    return {
        "id": each.id,
        "name": item.name,
        "owner": each.owner,
        "rule": each.rule,
        "time_zone": each.time_zone,
        "first_start": each.first_start,
        "duration": each.duration,
        "depth": each.depth,
        "conflict": "skip" if each.skips_conflicts else "fail",
        "occurrences": each.occurrences,
        "left": item.left,
        "next_start": each.next_start,
        "reservations": list(item.live),
        "ended": each.ended,
    }
