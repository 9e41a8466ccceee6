"""The time zone of a round, in which dates in job types are parsed and dates in messages are formatted.

The time zone is saved with a round.  So the plan and the dates in its messages are the same on another machine.
"""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

#: Where the zone of this machine is, and those that have a name.
LOCAL = Path("/etc/localtime")
ZONES = Path("/usr/share/zoneinfo")

_MAGIC = b"TZif"


def local() -> str:
    """Return the time zone of this process in POSIX format: ``CET-1CEST,M3.5.0,M10.5.0/3``."""
    wish = os.environ.get("TZ", "").removeprefix(":")
    path = ZONES / wish if wish else LOCAL
    try:
        content = path.read_bytes()
    except (OSError, ValueError):
        content = b""
    if content.startswith(_MAGIC):
        return content.rstrip(b"\n").rpartition(b"\n")[2].decode("ascii", "replace")
    return wish or "UTC0"


@contextmanager
def within(zone: str) -> Iterator[None]:
    """Use another time zone in the ``with`` block; '' = the time zone of this process."""
    before = os.environ.get("TZ")
    if zone:
        _set(zone)
    try:
        yield
    finally:
        _set(before)


def _set(zone: str | None) -> None:
    if zone is None:
        os.environ.pop("TZ", None)
    else:
        os.environ["TZ"] = zone
    time.tzset()
