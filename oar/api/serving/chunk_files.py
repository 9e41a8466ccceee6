"""Days of the Gantt diagram that are over, as files: a service that has just started reads none of them again."""

import logging
import os
from contextlib import suppress
from pathlib import Path

_log = logging.getLogger(__name__)
#: Set by systemd (CacheDirectory=); what is in it may be removed at any time.
DIRECTORY = "CACHE_DIRECTORY"
_SUFFIX = ".gz"


class ChunkFiles:
    """Packed chunks in a directory, the oldest of which go when there are too many bytes."""

    def __init__(self, directory: Path | None, most_bytes: int) -> None:
        """``directory``: None = none is kept."""
        self._directory = directory
        self._most = most_bytes

    @classmethod
    def of_service(cls, most_bytes: int) -> "ChunkFiles":
        """Return the files of the program that runs."""
        given = os.environ.get(DIRECTORY)
        return cls(Path(given, "gantt") if given else None, most_bytes)

    @property
    def are_kept(self) -> bool:
        """Whether there is a directory for them."""
        return self._directory is not None

    def has(self, name: str) -> bool:
        """Whether a chunk is there."""
        return self.are_kept and self._path(name).is_file()

    def read(self, name: str) -> bytes | None:
        """Return a chunk if it is there."""
        try:
            return self._path(name).read_bytes() if self._directory else None
        except OSError:
            return None

    def write(self, name: str, body: bytes) -> None:
        """Keep a chunk; where that is impossible, the log says so."""
        if self._directory is None:
            return
        path = self._path(name)
        unfinished = path.with_suffix(f".{os.getpid()}")
        try:
            self._directory.mkdir(mode=0o700, exist_ok=True)
            unfinished.write_bytes(body)
            unfinished.rename(path)
            self._trim()
        except OSError as error:
            _log.warning("a day of the Gantt diagram is not kept: %s", error)
            with suppress(OSError):
                unfinished.unlink()

    def _path(self, name: str) -> Path:
        return Path(self._directory or "", f"{name}{_SUFFIX}")

    def _trim(self) -> None:
        files = [(each.stat().st_mtime, each.stat().st_size, each) for each in Path(self._directory or "").iterdir()]
        too_many = sum(size for _, size, _ in files) - self._most
        for _, size, path in sorted(files):
            if too_many <= 0:
                return
            path.unlink(missing_ok=True)
            too_many -= size
