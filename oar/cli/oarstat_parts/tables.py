"""Further layouts of oarstat: chosen fields, usage of jobs, bills of reservations, a text chart."""

import shutil
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

from oar.cli.common.options import Stop
from oar.cli.common.render import cell, padded, places, visible
from oar.cli.oarstat_parts.curves import curve_lines
from oar.lib.base.formats import Format, dump
from oar.lib.base.times import format_date, format_duration
from oar.lib.jobs.curves import record as curve_record
from oar.lib.jobs.ends import memory_size
from oar.lib.jobs.fields import FIELDS, Kind
from oar.lib.jobs.states import STATE_LETTERS, Outcome
from oar.lib.jobs.usage import JobUsage, job_usages
from oar.lib.jobs.usage_groups import UsageGroup, group_usages
from oar.lib.reservations.sql_logs import ReservationTotal

if TYPE_CHECKING:
    from oar.cli.common.command import Context
    from oar.lib.db.transaction import Transaction
    from oar.lib.history.gantt import NodeDensity
    from oar.lib.jobs.curves import Curve
    from oar.lib.jobs.records import Job, NodeUsage
    from oar.lib.jobs.sql_waits import Errors

Record = Mapping[str, object]

#: Fields by the keys that a record of a job may have.
_FIELDS = {key: field for field in FIELDS for key in field.records}
KEYS = tuple(_FIELDS)
#: Other names of fields.
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
            from oar.lib.base.texts import did_you_mean

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
        " ".join(padded(text, width) for text, width in zip(row, widths, strict=True)).rstrip() + "\n" for row in rows
    )


def _shown(key: str, value: object) -> str:
    """Return a value, if possible without spaces; ``-`` for no value, so that columns can be counted."""
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


# -- usage ------------------------------------------------------------------------------------------------------------

#: Of more jobs the table has one line for each name.
MAX_USAGE_LINES = 20
#: Outcomes that are no failures of the jobs.
_NOT_BAD = (Outcome.DONE, Outcome.CANCELLED, Outcome.EVICTED, Outcome.UNKNOWN)
_USAGE_HEAD = (
    "Job id     User           S Cores Elapsed     CPU time    CPU used Memory peak Memory limit\n"
    "---------- -------------- - ----- ----------- ----------- -------- ----------- ------------\n"
)


def usage_table(
    context: "Context",
    tx: "Transaction",
    jobs: "Sequence[Job]",
    machine: Format | None,
    *,
    by_node: bool,
    with_curves: bool = False,
    header: bool = True,
) -> str:
    """Return the usage of jobs: a line per job, of many jobs one per name, or a section with a line per node.

    ``with_curves``: also their curves below.
    """
    usages = job_usages(tx, jobs, context.runtime.config.job_resource_manager_property_db_field)
    curves = tx.job_curves.of_jobs([job.id for job in jobs]) if with_curves else {}
    if machine:
        return dump({use.job.id: use.record | _curves(curves, use.job.id) for use in usages}, machine)
    if len(usages) > MAX_USAGE_LINES and not (by_node or with_curves):
        groups = group_usages(usages, tx.job_runs.outcomes(jobs), tx.listings.walltimes([job.id for job in jobs]))
        return _grouped(groups, header=header)
    lines = _usage_by_node if by_node else _usage_row
    shown = ((*lines(use), *curve_lines(use, curves.get(use.job.id, ()), by_node=by_node)) for use in usages)
    sections = ("".join(f"{line}\n" for line in section) for section in shown)
    return "\n".join(sections) if by_node else (_USAGE_HEAD if usages and header else "") + "".join(sections)


def _curves(curves: "Mapping[int, Sequence[Curve]]", job_id: int) -> dict[str, object]:
    return {"curves": curve_record(curves[job_id])} if job_id in curves else {}


def _grouped(groups: Sequence[UsageGroup], *, header: bool) -> str:
    jobs = sum(group.jobs for group in groups)
    note = f"# {jobs} jobs, by name. Each job: oarstat --usage -f, or -J\n" if header else ""
    advice = [
        f"{visible(group.user)} {visible(group.name or '-')}: {change.sentence}"
        for group in groups
        for change in group.advice
    ]
    lines = "".join(f"# {line}\n" for line in advice[:MAX_USAGE_LINES]) if header else ""
    return note + group_table(groups, header=header) + lines


def group_table(groups: Sequence[UsageGroup], *, with_user: bool = True, header: bool = True) -> str:
    """Return a line with sums for each group of jobs, and the sum of all groups."""
    rows = [(visible(group.user), visible(group.name) or "-", *_group_cells(group)) for group in groups]
    if len(groups) > 1:
        rows.append(("total", "", *_total_cells(groups)))
    if rows and header:
        rows.insert(0, ("User", "Name", "Jobs", "Bad", "Core hours", "CPU used", "Memory peak"))
    return "".join(
        (f"{cell(user, 14)} {cell(name, 20)}" if with_user else cell(name or user, 20))
        + f" {jobs:>6} {bad:>6} {hours:>12} {used:>8} {peak:>11}\n"
        for user, name, jobs, bad, hours, used, peak in rows
    )


def _group_cells(group: UsageGroup) -> tuple[str, str, str, str, str]:
    bad = sum(number for outcome, number in group.outcomes.items() if outcome not in _NOT_BAD)
    peak = "-" if group.memory_peak is None else memory_size(group.memory_peak)
    return str(group.jobs), str(bad), f"{group.core_seconds / 3600:,.1f}", _percent(group.efficiency), peak


def _total_cells(groups: Sequence[UsageGroup]) -> tuple[str, str, str, str, str]:
    whole = groups[0]._replace(
        jobs=sum(group.jobs for group in groups),
        outcomes=sum((Counter(group.outcomes) for group in groups), Counter()),
        core_seconds=sum(group.core_seconds for group in groups),
        measured=sum(group.measured for group in groups),
        cpu_seconds=sum(group.cpu_seconds or 0.0 for group in groups),
        memory_peak=max((group.memory_peak for group in groups if group.memory_peak is not None), default=None),
    )
    return _group_cells(whole)


def _usage_row(use: JobUsage) -> Iterator[str]:
    job, fullest = use.job, use.fullest
    elapsed = format_duration(use.elapsed) if job.started else "-"
    limit = "-" if fullest is None or fullest.memory_limit is None else memory_size(fullest.memory_limit)
    yield (
        f"{job.id:<10} {cell(visible(job.user), 14)} {STATE_LETTERS[job.state]} {use.cores or '-':<5}"
        f" {elapsed:<11} {_time(use.cpu_seconds):<11} {_percent(use.efficiency):<8}"
        f" {_memory(fullest):<11} {limit}"
    ).rstrip()
    if use.silent and use.cpu_seconds is not None:
        yield f"           without {', '.join(map(visible, use.silent))}: not known"


def _usage_by_node(use: JobUsage) -> Iterator[str]:
    job = use.job
    yield f"Job_Id: {job.id}"
    yield f"    owner = {visible(job.user)}"
    yield f"    state = {job.state}"
    if not job.started:
        yield f"    usage = none: it {'never' if job.is_final else 'has not'} started"
        return
    yield f"    cores = {use.cores or '-'}"
    yield f"    elapsed = {format_duration(use.elapsed)}"
    yield f"    cpu_time = {_time(use.cpu_seconds)} of {format_duration(use.cores * use.elapsed)}"
    yield f"    cpu_efficiency = {_percent(use.efficiency)}"
    yield f"    max_rss = {_memory(use.fullest)}"
    for node in use.nodes:
        yield f"    {visible(node.node)}: {_on_node(use, node)}"


def _on_node(use: JobUsage, node: "NodeUsage") -> str:
    cores = f"{node.cores} core{'s' * (node.cores != 1)}"
    if node.cpu_seconds is None:
        return f"{cores}, the rest is not known"
    limit = f" of {memory_size(node.memory_limit)}" if node.memory_limit else ""
    kills = f", {node.oom_kills} processes killed because memory was exhausted" if node.oom_kills else ""
    used = f"CPU time {_time(node.cpu_seconds)} ({_percent(use.efficiency_on(node))})"
    return f"{cores}, {used}, memory peak {_memory(node)}{limit}{kills}"


def _time(seconds: float | None) -> str:
    return "-" if seconds is None else format_duration(int(seconds))


def _percent(part: float | None) -> str:
    return "-" if part is None else f"{100 * part:.1f}%"


def _memory(node: "NodeUsage | None") -> str:
    return "-" if node is None or node.memory_peak is None else memory_size(node.memory_peak)


# -- bills ------------------------------------------------------------------------------------------------------------

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


# -- density ---------------------------------------------------------------------------------------------------------


def density_table(densities: Sequence["NodeDensity"]) -> str:
    """Return which share of the time of each node was used by jobs that ended, and could not be used."""
    lines = [f"{'Node':<24} {'Used':>8} {'Besteffort':>11} {'Unusable':>9}"]
    for row in densities:
        lines.append(f"{padded(visible(row.node), 24)} {row.used:>8.1%} {row.besteffort:>11.1%} {row.unusable:>9.1%}")
    return "".join(f"{line}\n" for line in lines)


# -- accuracy of predictions -----------------------------------------------------------------------------------------


def accuracy_table(errors: Sequence["Errors"]) -> str:
    """Return how far jobs started from their first predicted start: a line for each queue, and one for all."""
    if not errors:
        return "No job with a prediction has started since then.\n"
    lines = [f"{'Queue':<16} {'Jobs':>8} {'Error of half':>14} {'Error of 90 %':>14} {'Later than predicted':>21}"]
    for row in sorted(errors, key=lambda row: (row.queue is None, row.queue)):
        name, half, most = row.queue or "(all)", format_duration(row.half), format_duration(row.most)
        lines.append(f"{padded(visible(name), 16)} {row.jobs:>8} {half:>14} {most:>14} {row.late / row.jobs:>21.1%}")
    return "".join(f"{line}\n" for line in lines)


# -- chart ------------------------------------------------------------------------------------------------------------

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
    """The columns of a chart, each a part of the period."""

    def __init__(self, start: int, stop: int, columns: int) -> None:
        self._start = start
        self._length = stop - start
        self._columns = columns

    def fill(self, line: list[str] | None, start: int, stop: int, letter: str) -> None:
        """Write a letter in the columns of a period, at least once if it overlaps the chart."""
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
        age = f", foreseen at {format_date(job['foreseen_at'])} or later" if job["foreseen_at"] else ""
        yield (
            f"{letters[job_id]} {job_id} {visible(job['user'])} {job['state']}"
            f" {format_date(job['start_time'])} - {format_date(job['stop_time'])}{name}{age}\n"
        )
