"""What is computed once for many clients: answers, the states that pages have, the days of the Gantt diagram.

``Cache`` is the cache of the API.  A question names all that its value depends on, besides the state of the database
and the time: never the caller.  A value is valid while nothing in the database has changed, by the position in the feed
of events, or for some seconds.  Three other things are kept, since they do not become invalid by an event:

- tags of states (``hub.StateTags``) are compared, and no value is kept with them;
- ``SentStates`` are states of the past, of which clients get the differences;
- a day of the Gantt diagram (``Chunks``) never changes once it is over; its file outlives the process.
"""

import gzip
import logging
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from starlette.requests import Request
from starlette.responses import Response

from oar.api.responses import Answer, encoded, is_known, tag_of, validators
from oar.lib.base.errors import OarError
from oar.lib.history.gantt import DAY, chunk_version, day_chunk

if TYPE_CHECKING:
    from oar.lib.db.database import Database
    from oar.lib.db.transaction import Transaction

_log = logging.getLogger(__name__)
Record = Mapping[str, Any]
Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")

#: Questions whose values are kept: the last ones.
MAX_QUESTIONS = 32


class LastUsed(Generic[Key, Value]):
    """The values that were used last, as many as fit."""

    def __init__(self, most: int, size_of: Callable[[Value], int] = lambda _: 1) -> None:
        """``most``: sum of the sizes; one value is always kept."""
        self._most = most
        self._size_of = size_of
        self._values: OrderedDict[Key, Value] = OrderedDict()
        self._size = 0
        self._lock = threading.Lock()

    def get(self, key: Key) -> Value | None:
        """Return a value if it is kept."""
        with self._lock:
            if key not in self._values:
                return None
            self._values.move_to_end(key)
            return self._values[key]

    def keep(self, key: Key, value: Value) -> Value:
        """Keep a value unless there is one; return the one that is kept."""
        with self._lock:
            if key not in self._values:
                self._values[key] = value
                self._size += self._size_of(value)
            self._values.move_to_end(key)
            while self._size > self._most and len(self._values) > 1:
                self._size -= self._size_of(self._values.popitem(last=False)[1])
            return self._values[key]


@dataclass
class _Entry:
    """A value, and when it was computed; the thread that computes it holds the lock, others wait."""

    value: Any = None
    computed: float | None = None  #: by the monotonic clock
    instant: str = ""  #: of the database
    lock: threading.Lock = field(default_factory=threading.Lock)


class _Body(NamedTuple):
    """The body of a response, plain and compressed, and its tag."""

    plain: bytes
    compressed: bytes
    tag: str

    @classmethod
    def of(cls, record: Record) -> "_Body":
        plain = encoded(record)
        return cls(plain, gzip.compress(plain, 1, mtime=0), tag_of(plain))


class Cache:
    """The values of the last questions."""

    def __init__(self) -> None:
        self._entries: LastUsed[Hashable, _Entry] = LastUsed(MAX_QUESTIONS)

    def recent(self, question: Hashable, compute: Callable[[], Value], seconds: float) -> Value:
        """Return the value of a question, computed again if it is older than ``seconds``."""
        entry = self._entries.keep(question, _Entry())
        with entry.lock:
            if entry.computed is None or time.monotonic() - entry.computed > seconds:
                entry.value = compute()
                entry.computed = time.monotonic()
            value: Value = entry.value
            return value

    def current(
        self, request: Request, database: "Database", question: Hashable, compute: "Callable[[Transaction], Record]"
    ) -> Answer:
        """Return the response with a record, which is computed again if anything in the database has changed.

        304 for a client that has the current version.
        """
        entry = self._entries.keep(question, _Entry())
        with entry.lock, database.snapshot() as tx:
            instant = tx.history.instant()
            if entry.value is None or entry.instant != instant:
                entry.value, entry.instant = _Body.of(compute(tx)), instant
            body: _Body = entry.value
        headers = {**validators(body.tag), "Vary": "Accept-Encoding"}
        if is_known(request, body.tag):
            return Response(status_code=HTTPStatus.NOT_MODIFIED, headers=headers)
        if "gzip" not in request.headers.get("accept-encoding", ""):
            return Response(body.plain, HTTPStatus.OK, headers, "application/json")
        return Response(body.compressed, HTTPStatus.OK, {**headers, "Content-Encoding": "gzip"}, "application/json")


#: Lists of jobs, which are sent job by job; all other parts are sent completely if anything in them has changed.
OF_JOBS = ("running", "planned")
#: States that are kept.  Pages poll at about the same time, so that few states are needed.
MAX_MOMENTS = 24


class SentState(NamedTuple):
    """Digests of the state at a moment, to find what has changed since."""

    jobs: Mapping[int, int]  #: a number for each job that is another one if anything of it has changed
    parts: Mapping[str, int]  #: the same for each other part


class SentStates:
    """The last states that were sent, by the cursor of the response."""

    def __init__(self) -> None:
        self._kept: LastUsed[str, SentState] = LastUsed(MAX_MOMENTS)

    def answer(self, record: Record, since: str | None) -> dict[str, Any]:
        """Return the changes of a record since the cursor ``since``; the whole record if that state is not kept."""
        moment = SentState(
            {job["id"]: _digest(job) ^ index for index, name in enumerate(OF_JOBS) for job in record[name]},
            {name: _digest(part) for name, part in record.items() if name not in OF_JOBS},
        )
        cursor = f"{_digest([*moment.jobs.items()]):x}-{_digest(moment.parts):x}"
        former = self._kept.get(since) if since else None
        self._kept.keep(cursor, moment)
        if former is None:
            return {**record, "gone": [], "since": None, "cursor": cursor}
        return {**changed(record, moment, former), "since": since, "cursor": cursor}


def changed(record: Record, moment: SentState, former: SentState) -> dict[str, Any]:
    """Return new and changed jobs and the ids of jobs that are gone; null for unchanged parts."""
    jobs = {
        name: [job for job in record[name] if former.jobs.get(job["id"]) != moment.jobs[job["id"]]] for name in OF_JOBS
    }
    parts = {name: record[name] if former.parts[name] != digest else None for name, digest in moment.parts.items()}
    return {**jobs, **parts, "gone": sorted(former.jobs.keys() - moment.jobs.keys())}


def _digest(value: object) -> int:
    """Return a number for a value, of 64 bits; another process gives it another one, so its cursors mean nothing here.

    A digest takes as long as the answer, for thousands of jobs.
    """
    return hash(encoded(value)) & 0xFFFF_FFFF_FFFF_FFFF


#: Set by systemd (CacheDirectory=); what is in it may be removed at any time.
DIRECTORY = "CACHE_DIRECTORY"
_SUFFIX = ".gz"


class ChunkFiles:
    """Compressed chunks in a directory; the oldest are deleted when the directory exceeds its size."""

    def __init__(self, directory: Path | None, most_bytes: int) -> None:
        """``directory``: None = none is kept."""
        self._directory = directory
        self._most = most_bytes

    @classmethod
    def of_service(cls, most_bytes: int) -> "ChunkFiles":
        """Return the files of the program that runs."""
        directory = os.environ.get(DIRECTORY)
        return cls(Path(directory, "gantt") if directory else None, most_bytes)

    @property
    def are_kept(self) -> bool:
        """Whether there is a directory for chunks."""
        return self._directory is not None

    def has(self, name: str) -> bool:
        """Whether the file of a chunk exists."""
        return self.are_kept and self._path(name).is_file()

    def read(self, name: str) -> bytes | None:
        """Return a chunk if its file exists."""
        try:
            return self._path(name).read_bytes() if self._directory else None
        except OSError:
            return None

    def write(self, name: str, body: bytes) -> None:
        """Store a chunk; a failure is logged."""
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
        files = [(path.stat().st_mtime, path.stat().st_size, path) for path in Path(self._directory or "").iterdir()]
        too_many = sum(size for _, size, _ in files) - self._most
        for _, size, path in sorted(files):
            if too_many <= 0:
                return
            path.unlink(missing_ok=True)
            too_many -= size


#: Bytes of compressed chunks in memory, at most.
KEPT_BYTES = 64 << 20


def packed(chunk: bytes) -> bytes:
    """Return a chunk, compressed."""
    return gzip.compress(chunk, 6, mtime=0)


class Chunks:
    """The chunks that were requested last, compressed."""

    def __init__(self, files: ChunkFiles, most_bytes: int = KEPT_BYTES) -> None:
        self._files = files
        self._kept: LastUsed[tuple[int, str], bytes] = LastUsed(most_bytes, len)

    @property
    def keeps_files(self) -> bool:
        """Whether past days are stored in files."""
        return self._files.are_kept

    def make_file(self, tx: "Transaction", day: int, version: str) -> None:
        """Write the file of a past day, if there is none."""
        name = _name(tx, day, version)
        if not self._files.has(name):
            self._files.write(name, packed(day_chunk(tx, day)))

    def kept(self, day: int, version: str) -> bytes | None:
        """Return the chunk of a day if it is in memory."""
        return self._kept.get((day, version))

    def packed(self, tx: "Transaction", day: int, version: str, *, is_over: bool) -> bytes:
        """Return the chunk of a day from memory, else from the file of a past day, else from the database."""
        if chunk := self.kept(day, version):
            return chunk
        chunk = self._of_file(tx, day, version) if is_over else packed(day_chunk(tx, day))
        return self._kept.keep((day, version), chunk)

    def _of_file(self, tx: "Transaction", day: int, version: str) -> bytes:
        name = _name(tx, day, version)
        chunk = self._files.read(name)
        if chunk is None:
            chunk = packed(day_chunk(tx, day))
            self._files.write(name, chunk)
        return chunk


def _name(tx: "Transaction", day: int, version: str) -> str:
    return f"{day}-{version}-{tx.gantt_days.database_number()}"


#: Days whose files are written in advance: a month.
DAYS = 31
#: Seconds after the end of a day until its file is written: all rows of the day are stored then.
SETTLED = 300.0
#: Seconds until the next attempt if the database is unavailable.
AGAIN = 60.0


class ChunksAhead:
    """A thread that writes the files of the last days, and each night the file of the day that has ended.

    It sleeps as long as it works: requests have priority.
    """

    def __init__(self, database: "Database", chunks: "Chunks") -> None:
        self._database = database
        self._chunks = chunks
        self._ends = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the thread, if chunks are stored in files."""
        if self._chunks.keeps_files:
            self._thread = threading.Thread(target=self._follow, name="days", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Stop the thread; wait for the day that it is working on."""
        self._ends.set()
        if self._thread:
            self._thread.join()

    def make_missing(self) -> None:
        """Write the missing files of the last days, the earliest first.

        Raises OarError.
        """
        with self._database.snapshot() as tx:
            today = tx.now // DAY
            versions = tx.gantt_days.versions((today - DAYS) * DAY, today * DAY)
        for version in versions:
            began = time.monotonic()
            with self._database.snapshot() as tx:
                self._chunks.make_file(tx, version.day, chunk_version(version))
            if self._ends.wait(time.monotonic() - began):
                return

    def _follow(self) -> None:
        while not self._ends.is_set():
            try:
                self.make_missing()
                rest = DAY - time.time() % DAY + SETTLED
            except OarError as error:
                _log.info("days of the Gantt diagram are not made ahead: %s", error)
                rest = AGAIN
            self._ends.wait(rest)
