"""Days of the Gantt diagram that were asked for, packed, as long as there is room."""

import gzip
import threading
from collections import OrderedDict
from typing import TYPE_CHECKING

from oar.api.serving.chunk_files import ChunkFiles
from oar.lib.views.gantt_chunks import day_chunk

if TYPE_CHECKING:
    from oar.lib.db.transaction import Transaction

#: Bytes of packed chunks that are kept in memory.
KEPT_BYTES = 64 << 20


def packed(chunk: bytes) -> bytes:
    """Return a chunk as it is sent."""
    return gzip.compress(chunk, 6, mtime=0)


class Chunks:
    """The chunks that were asked for last, packed."""

    def __init__(self, files: ChunkFiles, most_bytes: int = KEPT_BYTES) -> None:
        self._files = files
        self._most = most_bytes
        self._lock = threading.Lock()
        self._kept: OrderedDict[tuple[int, str], bytes] = OrderedDict()
        self._bytes = 0

    @property
    def keeps_files(self) -> bool:
        """Whether days that are over become files."""
        return self._files.are_kept

    def make_file(self, tx: "Transaction", day: int, version: str) -> None:
        """Let a day that is over become a file, if it is none."""
        name = _name(tx, day, version)
        if not self._files.has(name):
            self._files.write(name, packed(day_chunk(tx, day)))

    def kept(self, day: int, version: str) -> bytes | None:
        """Return the chunk of a day if it is there."""
        with self._lock:
            found = self._kept.get((day, version))
            if found is not None:
                self._kept.move_to_end((day, version))
            return found

    def packed(self, tx: "Transaction", day: int, version: str, *, is_over: bool) -> bytes:
        """Return the chunk of a day, read if it is not there; of a day that is over it becomes a file."""
        found = self.kept(day, version)
        if found is not None:
            return found
        made = self._of_file(tx, day, version) if is_over else packed(day_chunk(tx, day))
        self._keep(day, version, made)
        return made

    def _of_file(self, tx: "Transaction", day: int, version: str) -> bytes:
        name = _name(tx, day, version)
        found = self._files.read(name)
        if found is None:
            found = packed(day_chunk(tx, day))
            self._files.write(name, found)
        return found

    def _keep(self, day: int, version: str, made: bytes) -> None:
        with self._lock:
            if (day, version) not in self._kept:
                self._kept[day, version] = made
                self._bytes += len(made)
            while self._bytes > self._most and len(self._kept) > 1:
                self._bytes -= len(self._kept.popitem(last=False)[1])


def _name(tx: "Transaction", day: int, version: str) -> str:
    return f"{day}-{version}-{tx.gantt_days.database_number()}"
