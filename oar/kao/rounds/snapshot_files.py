"""Snapshots in files, for planning them again elsewhere.  Only the owner can read them: they contain user names."""

import logging
import os
from pathlib import Path

from oar.kao.facts.record_json import to_json
from oar.kao.facts.snapshot import Snapshot

log = logging.getLogger(__name__)


def save(snapshot: Snapshot, path: Path) -> None:
    """Write a snapshot; do not follow a symbolic link at the path.  Raises OSError."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    with open(descriptor, "w", encoding="utf-8") as file:
        file.write(to_json(snapshot))


def save_latest(snapshot: Snapshot, directory: Path, prefix: str, count: int) -> Path | None:
    """Write a snapshot to ``<prefix>-<date>.json`` and remove all but the latest ``count`` files.

    Return the path; return None if the file cannot be written.
    """
    path = directory / f"{prefix}-{snapshot.now}.json"
    try:
        save(snapshot, path)
        for old in sorted(directory.glob(f"{prefix}-*.json"))[:-count]:
            old.unlink(missing_ok=True)
    except OSError as error:
        log.error("cannot save the round %s: %s", path, error.strerror)
        return None
    return path
