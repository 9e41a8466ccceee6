"""Directories that take long to create: created once and kept below the cache root, safe with concurrent processes."""

from __future__ import annotations

import contextlib
import fcntl
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from . import layout


def kept(name: str, make: Callable[[Path], None]) -> Path:
    """Return the directory `name` of the cache; if it is missing, `make` creates it.

    `make` gets the path of a directory that does not exist yet; it is renamed to `name` when it is complete.  Other
    threads and processes that need the same directory wait.  If `make` raises, nothing is kept.
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
    """Lock an entry of the cache; the lock ends with the process."""
    locks = layout.cache_root() / "locks"
    locks.mkdir(mode=0o755, parents=True, exist_ok=True)
    with (locks / name).open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield
