"""Views of advance reservations and their series: records from which all output formats are made."""

import json
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from oar.lib.base.errors import BrokenRow
from oar.lib.reservations import access_lists
from oar.lib.reservations.access_lists import Visitor
from oar.lib.reservations.grid_engine_times import write_date
from oar.lib.reservations.records import (
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

#: In place of the node of resources that were removed while a reservation held them.
REMOVED = "removed"


class ReservationReader(NamedTuple):
    """The user who views reservations."""

    who: Visitor
    is_operator: bool = False
    is_private: bool = False  #: account and access list are hidden from those who cannot use the reservation

    def may_see_mail(self, reservation: AdvanceReservation) -> bool:
        """Return whether the user may see the mail recipients."""
        return self.is_operator or self.who.user == reservation.owner


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
        return [address for address in self.reservation.mail_list.split(",") if address]

    @property
    def master_queues(self) -> list[str]:
        """The queues for the first slot."""
        return [word for word in self.reservation.master_queue_list.split(",") if word]


def reasons(reservation: AdvanceReservation) -> list[str]:
    """Return why resources of a reservation are missing, one line for each reason."""
    is_told = reservation.state in INCOMPLETE and reservation.message
    return reservation.message.split("\n") if is_told else []


#: What is shown of a change that somebody asks for: the names that the detail has, too.
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
    """Return the changed attributes, each with its new value."""
    if "request" in values:
        values = {**values, "request": _asked_text(values.get("asked", {}))}
    shown = [name for name in _CHANGE_NAMES if name in values]
    return [f"{_CHANGE_NAMES[name]} {_value_text(name, values[name])}" for name in shown]


def change_names(values: Mapping[str, Any]) -> str:
    """Return the changes for the log; values that not every user may see are left out."""
    given = {name: value for name, value in values.items() if value is not None}
    public = {name: value for name, value in given.items() if name not in _SECRETS}
    told = _change_words(public)
    return ", ".join([*told, *(_CHANGE_NAMES[name] for name in _SECRETS if name in given)])


def _asked_text(columns: Mapping[str, str]) -> str:
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


#: What only those who are shown the mail addresses are shown of a change.
_SECRETS = ("account", "mail_list", "access")


def open_changes(
    tx: "Transaction", reservations: Sequence[AdvanceReservation], reader: ReservationReader
) -> dict[int, ReservationChange]:
    """Return the unanswered change of each reservation, by reservation id; a reservation has at most one."""
    found = {change.reservation_id: change for change in tx.reservations.open_changes()}
    return {each.id: _seen(found[each.id], each, reader) for each in reservations if each.id in found}


def _seen(change: ReservationChange, reservation: AdvanceReservation, reader: ReservationReader) -> ReservationChange:
    if reader.may_see_mail(reservation):
        return change
    values = json.loads(change.change)
    return change._replace(change=json.dumps({name: values[name] for name in values if name not in _SECRETS}))


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
    names = {name for entries in access.values() for name in access_lists.names_of(entries).groups}
    usersets = tx.access.userset_entries(names)
    return frozenset(
        each.id
        for each in reservations
        if each.owner != reader.who.user and not access_lists.allows(access[each.id], reader.who, usersets)
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
    each = item.reservation
    environment = {"name": each.granted_pe, "slots": each.granted_slots} if each.granted_pe else None
    return {
        "id": each.number,
        "ar_name": each.name,
        "submission_time": each.submission_time,
        "owner": each.owner,
        "acl_list": [entry.text for entry in item.access if not entry.denied],
        "start_time": each.start,
        "end_time": each.real_end,
        "duration": each.real_end - each.start,
        "granted_slots": [granted._asdict() for granted in item.granted],
        "resource_list": [{"name": name, "value": value} for name, value in item.resource_list],
        "state": str(each.state),
        "reasons": reasons(each),
        "group": each.owner_group,
        "account": each.account,
        "project": each.project,
        "queue": each.queue,
        "time_limit": each.duration - each.time_offset,
        "error_handling": "hard" if each.is_hard else "soft",
        "replace": each.replaces_lost,
        "flex": each.is_flexible,
        "idle_limit": each.idle_limit,
        "xacl_list": [entry.text for entry in item.access if entry.denied],
        "granted_parallel_environment": environment,
        "parallel_environment": _asked_environment(each),
        "queue_list": [word for word in each.queue_list.split(",") if word],
        "master_queue_list": item.master_queues,
        "host_list": [word for word in each.host_list.split(",") if word],
        "properties": each.properties,
        "interactive": each.is_interactive,
        "ignore_jobs": each.ignores_jobs,
        "start_window": each.start_window,
        "checkpoint_name": each.checkpoint_name,
        "mail_options": each.mail_options,
        "mail_list": item.mail_addresses,
        "resources": list(each.resources),
        "missing": list(each.missing),
        "jobs": {"running": list(item.jobs.running), "waiting": list(item.jobs.waiting)},
        "change": json.loads(item.change.change) if item.change else None,
        "series_id": each.series_id,
        "series_index": each.series_index,
        "revision": each.revision,
        "ended": each.ended,
        "usage": [_usage_record(row) for row in item.usage],
    }


def _asked_environment(reservation: AdvanceReservation) -> dict[str, str] | None:
    """Return the value of ``-pe`` or ``-alloc``."""
    return {"name": reservation.pe, "range": reservation.pe_range} if reservation.pe else None


def _usage_record(row: ReservationUsage) -> dict[str, Any]:
    return {
        "queue": row.queue,
        "host": row.network_address,
        "slots": row.slots,
        "reserved": row.reserved,
        "used": row.used,
        "unusable": row.unusable,
    }


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
