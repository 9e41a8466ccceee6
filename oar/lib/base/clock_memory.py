"""The saved state of the clock watch, in OAR_RUN_DIR, for a restart of the server.

The watch compares times with the monotonic clock of the computer, which restarts at each boot.
"""

import math
import os
from collections.abc import Sequence
from pathlib import Path

#: In OAR_RUN_DIR.
FILE = "clock"
_BOOT = Path("/proc/sys/kernel/random/boot_id")


def read(run_directory: str) -> tuple[float, ...]:
    """Return the saved numbers, () if there are none or they are from another boot."""
    try:
        boot, *words = (Path(run_directory) / FILE).read_text(encoding="ascii", errors="replace").split()
        numbers = tuple(map(float, words))
    except (OSError, ValueError):
        return ()
    return numbers if boot == _boot() and all(map(math.isfinite, numbers)) else ()


def write(run_directory: str, numbers: Sequence[float]) -> None:
    """Replace the saved numbers. Raises OSError."""
    path = Path(run_directory) / FILE
    made = path.with_suffix(".new")
    made.write_text(" ".join([_boot(), *map(repr, numbers)]) + "\n", encoding="ascii")
    os.replace(made, path)


def _boot() -> str:
    return _BOOT.read_text(encoding="ascii").strip()
