"""The Gantt diagram: jobs and resources as records, days as columns of integers, and the density of resource usage."""

import json
import struct
import sys
from array import array
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from oar.lib.history.sql_gantt_days import Amount, Pieces
from oar.lib.history.views import event_record
from oar.lib.jobs.privacy import Privacy
from oar.lib.jobs.sql_listings import Assigned, PlannedResource
from oar.lib.jobs.views import JobView, job_views

if TYPE_CHECKING:
    from oar.lib.db.transaction import Transaction
    from oar.lib.history.sql_gantt_days import DayVersion, DrawnJob, DrawnState


def gantt(tx: "Transaction", start: int, stop: int, privacy: Privacy) -> dict[str, object]:
    """Return the jobs and the resources between two dates."""
    views = job_views(tx, tx.jobs.select(tx.listings.jobs_between(start, stop)), privacy)
    foreseen = {view.prediction.moldable: view for view in views if view.prediction and not view.job.started}
    planned = tx.listings.planned(list(foreseen))
    resources = tx.listings.resources()
    return {
        "jobs": {view.job.id: _gantt_job(view, planned) for view in views},
        "resources": resources,
        "dead_resources": dict(sorted(tx.listings.unavailable_between(start, stop).items())),
    }


def _gantt_job(view: JobView, planned: Mapping[int, Sequence[PlannedResource]]) -> dict[str, object]:
    job, assigned = view.job, view.assigned
    start, walltime = view.job.started, view.walltime or 0
    if not start and view.prediction:
        start = view.prediction.start
        resources = planned.get(view.prediction.moldable, ())
        nodes = sorted({resource.node for resource in resources if resource.node})
        assigned = Assigned(tuple(resource.id for resource in resources), tuple(nodes))
    return {
        "job_id": job.id,
        "job_name": job.name or "",
        "user": job.user,
        "project": job.project,
        "queue_name": job.queue,
        "state": job.state,
        "job_type": job.job_type,
        "types": view.types,
        "properties": job.properties or "",
        "command": view.command,
        "submission_time": job.submission_time,
        "start_time": start,
        "foreseen_at": view.foreseen_at or None,
        "stop_time": job.stop_time or (start + walltime if start else 0),
        "walltime": walltime,
        "resource_id": assigned.resources,
        "network_address": assigned.nodes,
        "dependencies": [resource.required for resource in view.dependencies],
        "events": [event_record(resource) for resource in view.events],
        "array_id": job.array_id,
        "array_index": job.array_index,
        "reservation": job.reservation,
        "message": job.message,
        "launching_directory": job.launching_directory,
        "stdout_file": view.stdout_file,
        "stderr_file": view.stderr_file,
        "cpuset_name": job.cpuset_name,
        "resubmit_job_id": job.resubmit_job_id,
        "initial_request": view.initial_request,
    }


MAGIC = b"OARG"
LAYOUT = 4
#: Stands for an efficiency that nobody knows.
UNKNOWN = 255
DAY = 86400
_HEAD = struct.Struct("<4s7I")
_LARGEST = 2**32 - 1
_FOUR_BYTES = next(code for code in "IL" if array(code).itemsize == 4)
Range = tuple[int, int]
Pause = tuple[int, int, int]


def day_chunk(tx: "Transaction", day: int, since: int = 0) -> bytes:
    """Return the chunk of a day (in days since 1970), with the items that ended at ``since`` or later."""
    start, stop = max(since, day * DAY), (day + 1) * DAY
    jobs, states = tx.gantt_days.ended(start, stop), tx.gantt_days.closed_states(start, stop)
    return chunk(jobs, states, tx.gantt_days.pauses([job.id for job in jobs]) if jobs else [], zero=day * DAY)


def chunk_version(version: "DayVersion") -> str:
    """Return the version of the chunk of a day: it changes with the content."""
    return f"{LAYOUT}-{version.jobs}-{version.states}-{version.sum & 0xFFFFFFFFFFFF:x}"


def ranges(ids: Sequence[int]) -> Iterator[Range]:
    """Yield ascending numbers as ranges: the first number, and the count.

    >>> list(ranges([1, 2, 3, 7, 9, 10]))
    [(1, 3), (7, 1), (9, 2)]
    """
    if ids and ids[-1] - ids[0] == len(ids) - 1:  # fast path for most jobs: one range
        yield ids[0], len(ids)
        return
    first = last = None
    for number in ids:
        if first is None or last is None:
            first = number
        elif number != last + 1:
            yield first, last - first + 1
            first = number
        last = number
    if first is not None and last is not None:
        yield first, last - first + 1


class _Words:
    """Texts with a number for each."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}

    def number(self, text: str) -> int:
        return self.numbers.setdefault(text, len(self.numbers))

    def numbered(self, texts: Iterable[str]) -> list[int]:
        numbers = self.numbers
        return [numbers.setdefault(text, len(numbers)) for text in texts]


def chunk(jobs: Sequence["DrawnJob"], states: Sequence["DrawnState"], pauses: Sequence[Pause], *, zero: int) -> bytes:
    """Return jobs by id, resource states and suspensions as one block.

    Dates are relative to ``zero``, or to the first start if that is earlier.
    """
    zero = min([zero, *(job.start for job in jobs), *(state.start for state in states)])
    words = {
        name: _Words() for name in ("users", "projects", "queues", "names", "types", "states", "kinds", "outcomes")
    }
    by_job = [list(ranges(job.resources)) for job in jobs]
    job_ranges = [part for each in by_job for part in each]
    job_columns = _job_columns(jobs, [len(each) for each in by_job], words, zero)
    state_columns = _state_columns(states, words, zero)
    pause_columns = (
        [job for job, _, _ in pauses],
        [begin - zero for _, begin, _ in pauses],
        [(end or begin) - zero for _, begin, end in pauses],
    )
    texts = json.dumps({name: list(each.numbers) for name, each in words.items()}, ensure_ascii=False).encode()
    counts = (len(jobs), len(job_ranges), len(state_columns[0]), len(pauses))
    head = _HEAD.pack(MAGIC, LAYOUT, zero, *counts, len(texts))
    range_columns = ([first for first, _ in job_ranges], [number for _, number in job_ranges])
    columns = [*job_columns, *range_columns, *state_columns, *pause_columns]
    return b"".join([head, texts, *map(_column, columns)])


def _job_columns(
    jobs: Sequence["DrawnJob"], parts: list[int], words: dict[str, _Words], zero: int
) -> list[Sequence[int]]:
    """Return the columns of the jobs. Ids are stored as differences, which are small."""
    ids = [job.id for job in jobs]
    return [
        [number - before for before, number in zip([0, *ids], ids, strict=False)],
        [job.start - zero for job in jobs],
        [job.stop - job.start for job in jobs],
        [job.walltime for job in jobs],
        [job.start - job.submitted for job in jobs],
        words["users"].numbered(job.user for job in jobs),
        words["projects"].numbered(job.project for job in jobs),
        words["queues"].numbered(job.queue for job in jobs),
        words["names"].numbered(job.name for job in jobs),
        words["types"].numbered(job.types for job in jobs),
        words["states"].numbered(job.state for job in jobs),
        words["kinds"].numbered(job.kind for job in jobs),
        words["outcomes"].numbered(job.outcome or "" for job in jobs),
        [UNKNOWN if job.efficiency is None else min(job.efficiency, 100) for job in jobs],
        parts,
    ]


def _state_columns(states: Sequence["DrawnState"], words: dict[str, _Words], zero: int) -> list[Sequence[int]]:
    rows = [
        (first, number, state.start - zero, state.stop - zero, words["states"].number(state.state))
        for state in states
        for first, number in ranges(state.resources)
    ]
    return list(zip(*rows, strict=True)) if rows else [()] * 5


def _column(values: Sequence[int]) -> bytes:
    """Return numbers as four bytes each: first the lowest bytes of all numbers, then the next ones.

    Similar bytes are then adjacent. Numbers that do not fit are replaced by the nearest possible value.
    """
    try:
        column = array(_FOUR_BYTES, values)
    except OverflowError:
        column = array(_FOUR_BYTES, [min(max(value, 0), _LARGEST) for value in values])
    if sys.byteorder == "big":
        column.byteswap()
    data = column.tobytes()
    return b"".join(data[place::4] for place in range(4))


#: Groups of an answer at most.
MOST_GROUPS = 200
_FULL = 255


def density_record(tx: "Transaction", rows: Sequence[Sequence[int]], begin: int, bucket: int, parts: int) -> Any:
    """Return by group of rows the density of usage, of besteffort usage, and of unusable time.

    Only jobs and states that ended in the period are counted.
    """
    pieces = Pieces(begin, begin + bucket * parts, bucket, grouped(rows))
    used = tx.gantt_days.used_density(pieces)
    besteffort = [amount for amount in used if amount.is_besteffort]
    return {
        "from": begin,
        "bucket": bucket,
        "parts": parts,
        "groups": [list(ranges(sorted(ids))) for ids in pieces.groups],
        "used": shades(used, pieces, parts),
        "besteffort": shades(besteffort, pieces, parts),
        "unusable": shades(tx.gantt_days.unusable_density(pieces), pieces, parts),
    }


class NodeDensity(NamedTuple):
    """Shares of the time of the resources of a node in a period, from 0 to 1."""

    node: str
    used: float  #: by jobs that ended in the period
    besteffort: float  #: part of ``used``
    unusable: float

    @property
    def record(self) -> dict[str, float]:
        return {"used": self.used, "besteffort": self.besteffort, "unusable": self.unusable}


def node_densities(tx: "Transaction", start: int, stop: int) -> list[NodeDensity]:
    """Return the densities of all nodes in a period, by name."""
    nodes: dict[str, list[int]] = {}
    for resource in tx.listings.resources():
        nodes.setdefault(str(resource["network_address"]), []).append(int(resource["resource_id"]))
    names = sorted(name for name in nodes if name)
    pieces = Pieces(start, stop, stop - start, [nodes[name] for name in names])
    used, unusable = tx.gantt_days.used_density(pieces), tx.gantt_days.unusable_density(pieces)
    shares = (_shares(used, pieces), _shares([each for each in used if each.is_besteffort], pieces))
    return [NodeDensity(*row) for row in zip(names, *shares, _shares(unusable, pieces), strict=True)]


def _shares(amounts: Iterable[Amount], pieces: Pieces) -> list[float]:
    """Return the share of each group."""
    sums = [0] * len(pieces.groups)
    for amount in amounts:
        sums[amount.group] += int(amount.seconds)
    return [round(value / (pieces.bucket * len(ids)), 4) for value, ids in zip(sums, pieces.groups, strict=True)]


def grouped(rows: Sequence[Sequence[int]]) -> list[list[int]]:
    """Return consecutive rows joined into at most ``MOST_GROUPS`` groups.

    >>> grouped([[1], [2, 3]])
    [[1], [2, 3]]
    """
    size = -(-len(rows) // MOST_GROUPS) or 1
    return [[number for row in rows[at : at + size] for number in row] for at in range(0, len(rows), size)]


def shades(amounts: Iterable[Amount], pieces: Pieces, parts: int) -> str:
    """Return one byte for each piece of each group, as base64, group after group; 255 = completely used."""
    sums = [0] * (len(pieces.groups) * parts)
    for amount in amounts:
        sums[amount.group * parts + amount.piece] += int(amount.seconds)
    whole = [_FULL / (pieces.bucket * len(ids)) for ids in pieces.groups]
    return b64encode(bytes(min(_FULL, round(value * whole[at // parts])) for at, value in enumerate(sums))).decode()
