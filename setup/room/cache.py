"""What takes long to make and is made once: kept below the root of the cache, also when several make it at a time."""

from __future__ import annotations

import contextlib
import fcntl
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from . import layout


def kept(name: str, make: Callable[[Path], None]) -> Path:
    """The directory `name` of the cache; where it is not there, `make` makes it.

    `make` gets the place where it shall write: a directory that is not there, whose name becomes `name` when it is
    whole.  Who wants the same meanwhile waits, in this process or in another one.  Raises what `make` raises; then
    nothing is kept.
    """
    place = layout.cache_root() / name
    if place.exists():
        return place
    with lock(name):
        if not place.exists():
            unfinished = place.with_name(f"{name}.unfinished")
            shutil.rmtree(unfinished, ignore_errors=True)
            make(unfinished)
            unfinished.rename(place)
    return place


@contextlib.contextmanager
def lock(name: str) -> Iterator[None]:
    """Be alone with a thing of the cache; the lock ends with the process."""
    locks = layout.cache_root() / "locks"
    locks.mkdir(mode=0o755, parents=True, exist_ok=True)
    with (locks / name).open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield
