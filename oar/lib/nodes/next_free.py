"""Predict when occupied resources become free, from running and planned jobs."""

from collections import defaultdict
from collections.abc import Collection, Iterable
from typing import NamedTuple

#: Seconds between two jobs in which nobody else finds a place.
GAP = 60


class Taken(NamedTuple):
    """A period in which resources are occupied."""

    begin: int
    end: int | None  #: None: nobody knows
    resources: Collection[int]


def next_free(resources: Collection[int], taken: Iterable[Taken], now: int) -> int | None:
    """Return when the first of the resources becomes free; return None if this is unknown for all of them.

    >>> next_free([1, 2], [Taken(0, 50, [1]), Taken(50, 90, [1]), Taken(0, 70, [2])], 10)
    70
    """
    asked = set(resources)
    by_resource: dict[int, list[tuple[int, int | None]]] = defaultdict(list)
    for each in taken:
        for number in asked.intersection(each.resources):
            by_resource[number].append((each.begin, each.end))
    dates = [_free_from(by_resource[number], now) for number in asked]
    return min((date for date in dates if date is not None), default=None)


def _free_from(taken: Iterable[tuple[int, int | None]], now: int) -> int | None:
    """Return when a resource is free for longer than a gap; return None if this is unknown."""
    free = now
    for begin, end in sorted(taken, key=lambda each: each[0]):
        if begin > free + GAP:
            break
        if end is None:
            return None
        free = max(free, end)
    return free
