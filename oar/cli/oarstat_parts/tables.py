"""Further layouts of oarstat: chosen fields, bills of reservations, a text chart."""

import shutil
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any, NamedTuple

from oar.cli.common.options import Stop
from oar.cli.common.render import padded, places, visible
from oar.lib.base.times import format_date, format_duration
from oar.lib.jobs.fields import FIELDS, Kind
from oar.lib.reservations.sql_logs import ReservationTotal

Record = Mapping[str, object]

#: Fields by the keys that a record of a job may have.
_FIELDS = {key: field for field in FIELDS for key in field.records}
KEYS = tuple(_FIELDS)
#: Other words for them.
_ALIASES = {
    "job_id": "id",
    "user": "owner",
    "job_name": "name",
    "queue_name": "queue",
    "nodes": "assigned_network_address",
    "hosts": "assigned_network_address",
    "resources": "assigned_resources",
}


class Field(NamedTuple):
    """A column: the key of the record and the header."""

    key: str
    label: str


def read_fields(text: str) -> list[Field]:
    """Return the fields of ``key[:label],...``.  Raises Stop."""
    fields = []
    for part in text.split(","):
        name, _, label = (text_part.strip() for text_part in part.partition(":"))
        key = _ALIASES.get(name, name)
        if key not in KEYS:
            from oar.lib.base.did_you_mean import did_you_mean

            raise Stop(f'# Error: jobs have no field "{name}"{did_you_mean(name, [*KEYS, *_ALIASES])}')
        fields.append(Field(key, label or name))
    return fields


def chosen_fields(records: Mapping[int, Record], fields: Sequence[Field]) -> dict[int, dict[str, object]]:
    """Return the records with these fields only, under their labels."""
    return {job_id: {field.label: record.get(field.key) for field in fields} for job_id, record in records.items()}


def fields_table(records: Mapping[int, Record], fields: Sequence[Field], *, header: bool) -> str:
    """Return a line for each record; columns are as wide as they need to be, '' if there is no record."""
    if not records:
        return ""
    rows = [[_shown(field.key, record.get(field.key)) for field in fields] for _, record in records.items()]
    if header:
        rows.insert(0, [visible(field.label) for field in fields])
    widths = [max(map(places, column)) for column in zip(*rows, strict=True)]
    return "".join(
        " ".join(padded(cell, width) for cell, width in zip(row, widths, strict=True)).rstrip() + "\n" for row in rows
    )


def _shown(key: str, value: object) -> str:
    """Return a value in one word where that can be: ``-`` for nothing, so that columns can be counted."""
    kind = _FIELDS[key].kind
    if isinstance(value, int) and kind is Kind.DATE:
        text = format_date(value)
    elif isinstance(value, int) and kind is Kind.DURATION:
        text = format_duration(value)
    elif isinstance(value, Mapping):
        text = ",".join(f"{name}={'' if item is None else item}" for name, item in value.items())
    elif isinstance(value, Sequence) and not isinstance(value, str):
        text = str(len(value)) if key == "events" else ",".join(map(str, value))
    else:
        text = "" if value is None else str(value)
    return visible(text) or "-"


_UNIT = "slot seconds"
_BILLS_HEAD = (
    f"{'AR':>7} {'owner':<12} {'jobs':>5} {'reserved':>16} {'used':>16} {'unusable':>16} {'unused':>16}\n"
    f"{'':26} {_UNIT:>16} {_UNIT:>16} {_UNIT:>16} {_UNIT:>16}\n"
)


def bills_table(totals: Sequence[ReservationTotal], *, header: bool = True) -> str:
    """Return a row for each reservation, in slot seconds."""
    return (_BILLS_HEAD if header else "") + "".join(
        f"{total.number:7d} {visible(total.owner):<12.12} {total.jobs:5d} {total.reserved:16d} {total.used:16d}"
        f" {total.unusable:16d} {total.unused:16d}\n"
        for total in totals
    )


def bill_records(totals: Sequence[ReservationTotal]) -> dict[str, dict[str, object]]:
    """Return the fields for machine formats, by number."""
    return {
        str(total.number): {
            "owner": total.owner,
            "account": total.account,
            "jobs": total.jobs,
            "reserved": total.reserved,
            "used": total.used,
            "unusable": total.unusable,
            "unused": total.unused,
        }
        for total in totals
    }


#: Letters of jobs; reused when there are more jobs.
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvw0123456789"
FREE, UNUSABLE = ".", "x"
NARROWEST = 20

Jobs = Mapping[int, Mapping[str, Any]]


def chart(record: Mapping[str, Any], start: int, stop: int, width: int | None = None) -> str:
    """Return the chart of what ``oarstat --gantt`` shows; resources of a node that look the same share a line."""
    jobs: Jobs = record["jobs"]
    letters = {job_id: LETTERS[place % len(LETTERS)] for place, job_id in enumerate(jobs)}
    resources = sorted(record["resources"], key=lambda resource: (resource["network_address"], resource["resource_id"]))
    names = {resource["network_address"] for resource in resources}
    label = max(map(places, names), default=0) + 6
    columns = max((width or shutil.get_terminal_size().columns) - label, NARROWEST)
    cells = _Cells(start, max(stop, start + 1), columns)
    lines = {resource["resource_id"]: [FREE] * columns for resource in resources}
    for number, gaps in record["dead_resources"].items():
        for since, until, _ in gaps:
            cells.fill(lines.get(number), since, until or stop, UNUSABLE)
    for job_id, job in jobs.items():
        for number in job["resource_id"]:
            cells.fill(lines.get(number), job["start_time"], job["stop_time"] or stop, letters[job_id])
    head = f"{format_date(start)} - {format_date(stop)}, a column is {format_duration(-(-(stop - start) // columns))}\n"
    return head + "".join(_nodes(resources, lines, label)) + "".join(_legend(jobs, letters))


class _Cells:
    """Columns of a chart, each a part of the time."""

    def __init__(self, start: int, stop: int, columns: int) -> None:
        self._start = start
        self._length = stop - start
        self._columns = columns

    def fill(self, line: list[str] | None, start: int, stop: int, letter: str) -> None:
        """Write a letter where a time lies, at least once if it lies in the chart at all."""
        if line is None or stop < self._start or start > self._start + self._length or not start:
            return
        first = max((start - self._start) * self._columns // self._length, 0)
        last = -(-(stop - self._start) * self._columns // self._length)
        for place in range(min(first, self._columns - 1), min(max(last, first + 1), self._columns)):
            line[place] = letter


def _nodes(resources: Sequence[Mapping[str, Any]], lines: Mapping[int, list[str]], label: int) -> Iterable[str]:
    for node, of_node in groupby(resources, key=lambda resource: resource["network_address"]):
        for line, same in groupby("".join(lines[resource["resource_id"]]) for resource in of_node):
            number = len(list(same))
            name = f"{visible(node)}{f' x{number}' if number > 1 else ''}"
            yield f"{padded(name, label)}{line}\n"


def _legend(jobs: Jobs, letters: Mapping[int, str]) -> Iterable[str]:
    for job_id, job in jobs.items():
        name = f" {visible(job['job_name'])}" if job["job_name"] else ""
        yield (
            f"{letters[job_id]} {job_id} {visible(job['user'])} {job['state']}"
            f" {format_date(job['start_time'])} - {format_date(job['stop_time'])}{name}{_age(job)}\n"
        )


def _age(job: Mapping[str, Any]) -> str:
    """Return the age of a predicted start that is older than the last scheduling pass."""
    return f", foreseen at {format_date(job['foreseen_at'])} or later" if job["foreseen_at"] else ""
