"""Number of used, planned and unusable resources over time."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from oar.lib.db.transaction import Transaction


class Span(NamedTuple):
    """A number of resources between two dates."""

    begin: int
    end: int
    number: int


def occupancy_curve(tx: "Transaction", begin: int, bucket: int, number: int) -> dict[str, Any]:
    """Return the mean number of used, planned and unusable resources for each part of a period."""
    end, now = begin + bucket * number, tx.now
    found = tx.gantt_days.spans(begin, end)
    used = [Span(each.start, min(each.stop, now), each.number) for each in found if not each.is_planned]
    planned = [Span(max(each.start, now), each.stop, each.number) for each in found if each.stop > now]
    states = [*tx.gantt_days.closed_states(begin, now + 1), *tx.gantt_days.open_states()]
    unusable = [Span(each.start, each.stop or now, len(each.resources)) for each in states]
    return {
        "from": begin,
        "bucket": bucket,
        "now": now,
        "resources": tx.gantt_days.resources(),
        **{
            name: means(spans, begin, bucket, number)
            for name, spans in (("used", used), ("planned", planned), ("unusable", unusable))
        },
    }


def means(spans: Iterable[Span], begin: int, bucket: int, number: int) -> Sequence[float]:
    """Return the mean number of resources in each of ``number`` consecutive parts of a period.

    >>> means([Span(0, 15, 2), Span(10, 20, 1)], 0, 10, 3)
    [2.0, 2.0, 0.0]
    """
    sums = [0.0] * number
    #: What changes at the begin of a part in what covers all of it.
    steps = [0] * (number + 1)
    for span in spans:
        first, last = max(span.begin, begin), min(span.end, begin + bucket * number)
        if last <= first:
            continue
        here, there = (first - begin) // bucket, (last - begin - 1) // bucket
        if here == there:
            sums[here] += span.number * (last - first)
            continue
        sums[here] += span.number * (begin + (here + 1) * bucket - first)
        sums[there] += span.number * (last - begin - there * bucket)
        steps[here + 1] += span.number
        steps[there] -= span.number
    whole = 0
    for part in range(number):
        whole += steps[part]
        sums[part] = round(sums[part] / bucket + whole, 2)
    return sums
