"""Control of the cyclic garbage collector: it is disabled during a round.

A round creates 100,000s of small objects without reference cycles, and rounds keep as many.  A full collection examines
all existing objects, which takes 0.2 s for 10,000 jobs.  So the worker makes no full collection during a round or a
slice of a plan, but between them, when it is idle.

Examined objects are moved to the permanent generation (``gc.freeze``), so that the next collection examines only newer
ones.  This is correct because plans and the data kept between rounds contain no reference cycles (a test checks this).
They are freed by reference counting.  For the same reason, the objects left by a long plan are frozen without being
examined.  Cycles left by other code are found by every 1000th collection, which examines everything.
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
    """Disable automatic full collections in this process; ``collect`` makes them instead."""
    first, second, _ = gc.get_threshold()
    gc.set_threshold(first, second, _NEVER)


def is_full_collection_due() -> bool:
    return _are_deferred() and gc.get_count()[2] > _MANY


def _are_deferred() -> bool:
    return gc.get_threshold()[2] == _NEVER


def collect() -> None:
    """Make a full collection; exclude the surviving objects from the next ones."""
    if gc.get_stats()[2]["collections"] % _SELDOM == 0:
        gc.unfreeze()
    gc.collect()
    gc.freeze()


@contextmanager
def resting() -> Iterator[None]:
    """Disable the collector in the ``with`` block; afterwards, freeze the objects if too many of them are new."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            if _are_deferred() and gc.get_count()[0] > _TOO_MANY:
                gc.freeze()
            gc.enable()
