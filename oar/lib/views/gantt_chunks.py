"""A day of the Gantt diagram as columns of integers: what pages draw.  See docs/api.rst, "The Gantt diagram".

All jobs and states of resources that ended on the day (UTC) are in it.  A day that is over changes no more, unless jobs
are removed.
"""

import json
import struct
from array import array
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from oar.lib.db.gantt_days import DrawnJob, DrawnState
    from oar.lib.db.transaction import Transaction

MAGIC = b"OARG"
LAYOUT = 1
DAY = 86400
_HEAD = struct.Struct("<4s7I")
_LARGEST = 2**32 - 1
Range = tuple[int, int]
Pause = tuple[int, int, int]


def day_chunk(tx: "Transaction", day: int) -> bytes:
    """Return the chunk of a day, given in days since 1970."""
    start, stop = day * DAY, (day + 1) * DAY
    jobs, states = tx.gantt_days.ended(start, stop), tx.gantt_days.closed_states(start, stop)
    return chunk(jobs, states, tx.gantt_days.pauses([job.id for job in jobs]) if jobs else [], zero=start)


def ranges(ids: Iterable[int]) -> Iterator[Range]:
    """Yield ascending numbers as ranges: the first number, and how many.

    >>> list(ranges([1, 2, 3, 7, 9, 10]))
    [(1, 3), (7, 1), (9, 2)]
    """
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
    """Texts, each of which has a number."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}

    def number(self, text: str) -> int:
        return self.numbers.setdefault(text, len(self.numbers))


def chunk(jobs: Sequence["DrawnJob"], states: Sequence["DrawnState"], pauses: Sequence[Pause], *, zero: int) -> bytes:
    """Return jobs, states of resources and suspensions as one block of bytes; ``zero``: dates count from there on."""
    dates = [job.start for job in jobs] + [job.submitted for job in jobs] + [state.start for state in states]
    zero = min([zero, *dates])
    words = {name: _Words() for name in ("users", "projects", "queues", "names", "types", "states", "kinds")}
    job_columns, job_ranges = _job_columns(jobs, words, zero)
    state_columns = _state_columns(states, words, zero)
    pause_columns = [
        _column(job for job, _, _ in pauses),
        _column(begin - zero for _, begin, _ in pauses),
        _column((end or begin) - zero for _, begin, end in pauses),
    ]
    texts = json.dumps({name: list(each.numbers) for name, each in words.items()}, ensure_ascii=False).encode()
    texts += b" " * (-len(texts) % 4)
    counts = (len(jobs), len(job_ranges), len(state_columns[0]), len(pauses))
    head = _HEAD.pack(MAGIC, LAYOUT, zero, *counts, len(texts))
    range_columns = [_column(first for first, _ in job_ranges), _column(number for _, number in job_ranges)]
    columns = [*job_columns, *range_columns, *state_columns, *pause_columns]
    return b"".join([head, texts, *(column.tobytes() for column in columns)])


def _job_columns(
    jobs: Sequence["DrawnJob"], words: dict[str, _Words], zero: int
) -> tuple[list["array[int]"], list[Range]]:
    by_job = [list(ranges(job.resources)) for job in jobs]
    columns = [
        _column(job.id for job in jobs),
        _column(job.start - zero for job in jobs),
        _column(job.stop - job.start for job in jobs),
        _column(job.walltime for job in jobs),
        _column(job.submitted - zero for job in jobs),
        _column(words["users"].number(job.user) for job in jobs),
        _column(words["projects"].number(job.project) for job in jobs),
        _column(words["queues"].number(job.queue) for job in jobs),
        _column(words["names"].number(job.name) for job in jobs),
        _column(words["types"].number(job.types) for job in jobs),
        _column(words["states"].number(job.state) for job in jobs),
        _column(words["kinds"].number(job.kind) for job in jobs),
        _column(len(each) for each in by_job),
    ]
    return columns, [part for each in by_job for part in each]


def _state_columns(states: Sequence["DrawnState"], words: dict[str, _Words], zero: int) -> list["array[int]"]:
    rows = [
        (first, number, state.start - zero, state.stop - zero, words["states"].number(state.state))
        for state in states
        for first, number in ranges(state.resources)
    ]
    return [_column(column) for column in (zip(*rows, strict=True) if rows else [()] * 5)]


def _column(values: Iterable[int]) -> "array[int]":
    """Return numbers as four bytes each, the lowest first; what does not fit becomes the nearest that does."""
    column = array("I", (min(max(value, 0), _LARGEST) for value in values))
    if column.itemsize != 4:
        column = array("L", column)
    if struct.pack("=H", 1) != struct.pack("<H", 1):
        column.byteswap()
    return column
