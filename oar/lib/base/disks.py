"""Disks that are nearly full."""

import os
import shutil
from collections.abc import Iterable
from typing import NamedTuple

#: A disk with less of it free is told.
LEAST_FREE = 0.05


class FullDisk(NamedTuple):
    """A directory on a disk that is nearly full."""

    path: str
    free: int  #: bytes
    total: int


def nearly_full(paths: Iterable[str]) -> list[FullDisk]:
    """Return the directories that are on a nearly full disk, one for each disk."""
    disks: dict[int, FullDisk] = {}
    for path in paths:
        try:
            usage, disk = shutil.disk_usage(path), os.stat(path).st_dev
        except OSError:
            continue  # it is on another machine, or not accessible
        if usage.free < LEAST_FREE * usage.total:
            disks.setdefault(disk, FullDisk(path, usage.free, usage.total))
    return list(disks.values())
