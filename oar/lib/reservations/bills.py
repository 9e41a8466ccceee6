"""Bills of advance reservations: reserved, used and unusable time, in slot seconds; Grid Engine's reporting file."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from oar.lib.reservations.records import REMOVED, AdvanceReservation, ReservationUsage, ResourceInterval
from oar.lib.reservations.states import IntervalKind

if TYPE_CHECKING:
    from oar.lib.db.transaction import Transaction
    from oar.lib.reservations.sql_logs import EndedJob

#: A time span, half open.
Span = tuple[int, int]

GIB = 2**30
#: Grid Engine's word for a missing text.
NONE = "NONE"
#: Characters that separate fields or would break a line; ``%`` first.
_ESCAPES = (("%", "%25"), (":", "%3A"), ("\n", "%0A"))
#: Fields between ru_wallclock and project: resource usage of processes, which is not recorded.
_UNKNOWN_USAGE = ("0",) * 17


class ReservationHistory(NamedTuple):
    """Intervals during which resources were granted, missing, or used by jobs."""

    granted: Sequence[ResourceInterval]
    missing: Sequence[ResourceInterval]
    used: Sequence[ResourceInterval]


def write_bills(tx: "Transaction", reservations: Sequence[AdvanceReservation]) -> None:
    """Write the bills; the reserved time is 0 if the reservation never began."""
    ids = [reservation.id for reservation in reservations]
    intervals = tx.reservations.intervals_of(ids)
    job_intervals = tx.reservations.intervals_of_jobs(ids)
    histories = {
        number: ReservationHistory(kinds[IntervalKind.GRANTED], kinds[IntervalKind.MISSING], job_intervals[number])
        for number, kinds in intervals.items()
    }
    granted = {interval.resource_id for history in histories.values() for interval in history.granted}
    places = tx.reservations.interval_places(granted)
    bills: dict[int, list[ReservationUsage]] = {}
    for reservation in reservations:
        date = reservation.ended or tx.now
        window = reservation.start, max(reservation.start, min(date, reservation.end))
        rows = make_bill(window, histories[reservation.id], places, reservation.queue)
        bills[reservation.id] = [row._replace(termination_time=date) for row in rows]
    tx.reservation_logs.add_bill(bills)


def make_bill(
    window: Span, history: ReservationHistory, places: Mapping[int, str], queue: str
) -> list[ReservationUsage]:
    """Return the bill by place: a node, or the resource type if the resource is on no node.

    ``window``: from the start to the end of the reservation, or to its early end; empty if it never began.
    A missing slot counts as used while a job uses it.  A slot that several jobs share counts once.
    """
    by_resource = [_spans(intervals, window) for intervals in history]
    slots: defaultdict[str, int] = defaultdict(int)
    seconds: defaultdict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
    for resource_id in sorted({interval.resource_id for interval in history.granted}):
        reserved, unusable, busy = (spans.get(resource_id, []) for spans in by_resource)
        place = places.get(resource_id, REMOVED)
        slots[place] += 1
        in_use = _common(reserved, busy)
        lost = _difference(_common(reserved, unusable), in_use)
        for index, spans in enumerate((reserved, in_use, lost)):
            seconds[place][index] += sum(stop - start for start, stop in spans)
    return [ReservationUsage(queue, place, slots[place], *seconds[place]) for place in sorted(slots)]


def _spans(intervals: Iterable[ResourceInterval], window: Span) -> dict[int, list[Span]]:
    """Return the intervals of each resource within the window, merged into disjoint spans."""
    spans: defaultdict[int, list[Span]] = defaultdict(list)
    for interval in sorted(intervals, key=lambda interval: (interval.resource_id, interval.start)):
        start, stop = max(interval.start, window[0]), min(interval.stop or window[1], window[1])
        own = spans[interval.resource_id]
        if own and start <= own[-1][1]:
            own[-1] = own[-1][0], max(own[-1][1], stop)
        elif start < stop:
            own.append((start, stop))
    return spans


def _common(first: Sequence[Span], second: Sequence[Span]) -> list[Span]:
    both = ((max(one[0], two[0]), min(one[1], two[1])) for one in first for two in second)
    return [(start, stop) for start, stop in both if start < stop]


def _difference(spans: Sequence[Span], removed: Sequence[Span]) -> list[Span]:
    left = list(spans)
    for start, stop in removed:
        left = [
            (begin, end)
            for span in left
            for begin, end in ((span[0], min(span[1], start)), (max(span[0], stop), span[1]))
            if begin < end
        ]
    return left


# -- reporting file ----------------------------------------------------------------------------------------------------


def reporting_lines(tx: "Transaction", since: int = 0) -> Iterator[str]:
    """Iterate over the lines of Grid Engine's reporting file since a date, in order of time.

    They are made from the tables, so the file is always complete, without partial lines.  Lines of the same second are
    in the order of the sources below.
    """
    from heapq import merge  # not needed by qrdel and qralter, which close reservations

    reports = tx.reservation_logs
    sources = (
        _lines(0, "new_ar", reports.new_for_report(since)),
        _lines(1, "ar_attribute", reports.attributes_for_report(since)),
        _lines(2, "ar_log", reports.logs_for_report(since)),
        ((date, 3, _line(date, "acct", _job_fields(job))) for date, job in reports.ended_jobs(since)),
        _lines(4, "ar_acct", reports.bills_for_report(since)),
    )
    return (line for _, _, line in merge(*sources, key=lambda item: item[:2]))


def _lines(rank: int, kind: str, rows: Iterator[tuple[object, ...]]) -> Iterator[tuple[int, int, str]]:
    for date, *fields in rows:
        assert isinstance(date, int)
        yield date, rank, _line(date, kind, fields)


def _line(date: int, kind: str, fields: list[object]) -> str:
    texts = [str(field) for field in fields]
    for character, escape in _ESCAPES:
        texts = [text.replace(character, escape) for text in texts]
    return ":".join([str(date), kind, *texts])


def _job_fields(job: "EndedJob") -> list[object]:
    """Return the 45 fields of ``acct``; unknown values are 0."""
    seconds = job.stop - job.start
    return [
        *(job.queue, job.hostname or NONE, job.group, job.owner, job.name or NONE, job.id, "sge", 0),
        *(job.submission_time, job.start, job.stop, 0, exit_status(job.exit_code), seconds),
        *_UNKNOWN_USAGE,
        *(job.project, job.queue, NONE, job.slots, job.task),
        *(f"{job.cpu_seconds:f}", f"{job.memory_peak / GIB * seconds:f}", f"{job.io_bytes / GIB:f}"),
        *(NONE, f"{0:f}", NONE, f"{job.memory_peak:f}", job.number, job.reservation_submission),
    ]


def exit_status(code: int | None) -> int:
    """Return the exit status that a shell reports; 128 plus the signal number if a signal ended the job.

    >>> exit_status(256), exit_status(9), exit_status(None)
    (1, 137, 0)
    """
    if not code:
        return 0
    return 128 + (code & 127) if code & 127 else code >> 8
