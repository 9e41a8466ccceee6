"""The collector of cyclic garbage rests while a round is made.

A round makes hundreds of thousands of small objects that refer to each other in no circle, among as many that it keeps
from the last one.  The collector would look through all of them again and again, which costs as much as the planning.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def resting() -> Iterator[None]:
    """Keep the collector from running; what was left in circles is found afterwards."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
