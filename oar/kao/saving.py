"""Rounds in files, to be planned again elsewhere.  Nobody but the owner reads them: they hold names of users."""

import logging
import os
from pathlib import Path

from oar.kao.codec import to_json
from oar.kao.model import Snapshot

log = logging.getLogger(__name__)


def save(snapshot: Snapshot, path: Path) -> None:
    """Write a round; a link in the place of the file is not followed.  Raises OSError."""
    number = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    with open(number, "w", encoding="utf-8") as file:
        file.write(to_json(snapshot))


def keep(snapshot: Snapshot, directory: Path, name: str, count: int) -> Path | None:
    """Write a round beside earlier ones of that name, of which the latest stay; None if it cannot be written."""
    path = directory / f"{name}-{snapshot.now}.json"
    try:
        save(snapshot, path)
        for old in sorted(directory.glob(f"{name}-*.json"))[:-count]:
            old.unlink(missing_ok=True)
    except OSError as error:
        log.error("cannot save the round %s: %s", path, error.strerror)
        return None
    return path
