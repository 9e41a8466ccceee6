"""Bills of advance reservations: reserved, used and unusable time, in slot seconds."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from oar.lib.reservations.records import AdvanceReservation, ReservationUsage, ResourceInterval
from oar.lib.reservations.states import IntervalKind

if TYPE_CHECKING:
    from oar.lib.db.transaction import Transaction


#: A stretch of time, half open.
Span = tuple[int, int]


#: The place of resources that were removed meanwhile.
REMOVED = "removed"


class ReservationHistory(NamedTuple):
    """Intervals during which resources were granted, missing, or used by jobs."""

    granted: Sequence[ResourceInterval]
    missing: Sequence[ResourceInterval]
    used: Sequence[ResourceInterval]


def bill(window: Span, history: ReservationHistory, places: Mapping[int, str], queue: str) -> list[ReservationUsage]:
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
        lost = _without(_common(reserved, unusable), in_use)
        for index, spans in enumerate((reserved, in_use, lost)):
            seconds[place][index] += sum(stop - start for start, stop in spans)
    return [ReservationUsage(queue, place, slots[place], *seconds[place]) for place in sorted(slots)]


def _spans(intervals: Iterable[ResourceInterval], window: Span) -> dict[int, list[Span]]:
    """Return the intervals of each resource within the window, merged into disjoint spans."""
    spans: defaultdict[int, list[Span]] = defaultdict(list)
    for interval in sorted(intervals, key=lambda each: (each.resource_id, each.start)):
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


def _without(spans: Sequence[Span], taken: Sequence[Span]) -> list[Span]:
    left = list(spans)
    for start, stop in taken:
        left = [
            (begin, end)
            for span in left
            for begin, end in ((span[0], min(span[1], start)), (max(span[0], stop), span[1]))
            if begin < end
        ]
    return left


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
    tx.reservation_logs.add_bill({each.id: _bill(each, histories[each.id], places, tx.now) for each in reservations})


def _bill(
    reservation: AdvanceReservation, history: ReservationHistory, places: Mapping[int, str], now: int
) -> list[ReservationUsage]:
    date = reservation.ended or now
    window = reservation.start, max(reservation.start, min(date, reservation.end))
    rows = bill(window, history, places, reservation.queue)
    return [row._replace(termination_time=date) for row in rows]
