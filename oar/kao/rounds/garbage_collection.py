"""The collector of cyclic garbage rests while a round is made.

A round makes hundreds of thousands of small objects that refer to each other in no circle, among as many that it keeps
from the last one.  The collector would look through all of them again and again, which costs as much as the planning.

A full collection looks at all objects there are, which takes a fifth of a second for 10,000 jobs.  The worker makes
none in a round or a slice of a plan: it makes them between these, when there is nothing else to do.  What such a
collection has seen it lays aside (``gc.freeze``), so that the next one looks only at what came since.  That is right
because nothing in a plan, and in what rounds keep, refers to itself by way of others: it is gone when nobody needs it,
without the collector (a test sees to it).  For the same reason what a long plan has left is laid aside without being
looked at.  What others leave in circles is found by a collection in a thousand, which looks at everything.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

#: The collector makes no full collection by itself if this is the threshold of its oldest generation.
_NEVER = 1_000_000
#: A full collection is due after more collections of the younger generations than this.
_MANY = 4
#: Where more objects than these have come since the last collection, one would take longer than a tenth of a second.
_TOO_MANY = 100_000
#: Of so many full collections one looks at everything.
_SELDOM = 1000


def defer_full_collections() -> None:
    """Let the collector of this process leave full collections to ``collect``."""
    first, second, _ = gc.get_threshold()
    gc.set_threshold(first, second, _NEVER)


def is_full_collection_due() -> bool:
    """Whether there is a full collection that was deferred."""
    return _are_deferred() and gc.get_count()[2] > _MANY


def _are_deferred() -> bool:
    return gc.get_threshold()[2] == _NEVER


def collect() -> None:
    """Make a full collection; what there is now, the next ones leave alone."""
    if gc.get_stats()[2]["collections"] % _SELDOM == 0:
        gc.unfreeze()
    gc.collect()
    gc.freeze()


@contextmanager
def resting() -> Iterator[None]:
    """Keep the collector from running; what was left in circles is found afterwards."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            if _are_deferred() and gc.get_count()[0] > _TOO_MANY:
                gc.freeze()
            gc.enable()
