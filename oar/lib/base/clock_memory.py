"""What the watch of the clock knew last, kept in OAR_RUN_DIR: it goes on after a restart of the server.

It compares dates with the monotonic clock of the computer, which begins anew with each boot.
"""

import math
import os
from collections.abc import Sequence
from pathlib import Path

#: In OAR_RUN_DIR.
FILE = "clock"
_BOOT = Path("/proc/sys/kernel/random/boot_id")


def read(run_directory: str) -> tuple[float, ...]:
    """Return the numbers; none if there are none, or if they are of another boot."""
    try:
        boot, *words = (Path(run_directory) / FILE).read_text(encoding="ascii", errors="replace").split()
        numbers = tuple(map(float, words))
    except (OSError, ValueError):
        return ()
    return numbers if boot == _boot() and all(map(math.isfinite, numbers)) else ()


def write(run_directory: str, numbers: Sequence[float]) -> None:
    """Replace the numbers.  Raises OSError."""
    path = Path(run_directory) / FILE
    made = path.with_suffix(".new")
    made.write_text(" ".join([_boot(), *map(repr, numbers)]) + "\n", encoding="ascii")
    os.replace(made, path)


def _boot() -> str:
    return _BOOT.read_text(encoding="ascii").strip()
