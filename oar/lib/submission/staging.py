"""Stage-in files that users submit with desktop computing jobs: copies in one directory, and their rows.

A copy is identified by its MD5 sum and owner, and is stored once.  Knowing the sum, or creating a file with the same
sum, never gives access to a file of another user.  A copy is removed some days after the start of its last job.
"""

import fcntl
import hashlib
import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import IO, TYPE_CHECKING, Protocol

from oar.lib.config.files import Config
from oar.lib.jobs.states import JobTypeName
from oar.lib.submission.checks import BadSubmission, Code
from oar.lib.submission.options import JobOptions
from oar.lib.submission.resource_request import JobTypes
from oar.lib.submission.sql_new_jobs import StagedFile

if TYPE_CHECKING:
    from oar.lib.db.database import Database

_SUM = re.compile(r"[0-9a-f]{32}\Z")
_COPY = re.compile(r"[0-9a-f]{32}\.")  #: how the name of a copy begins; the name of the owner follows
#: Kinds of archives by the ends of their names, longer ones first.
_KINDS = {
    ".tar.gz": "tar.gz",
    ".tar.bz2": "tar.bz2",
    ".tgz": "tar.gz",
    ".tbz2": "tar.bz2",
    ".tar": "tar",
    ".zip": "zip",
}
#: Seconds for which a copy may belong to a job that is not inserted yet.
_GRACE = 3600.0
#: Seconds between the creation of a file and its lock.
_MOMENT = 10.0
_HOUR = 3600
_BLOCK = 1 << 20


class FilesOfUser(Protocol):
    """The files of a user, opened with the permissions of the user."""

    def md5sum(self, path: str) -> str:
        """Return the MD5 sum of a regular file.  Raises OSError."""

    def pour(self, path: str, target: IO[bytes], most: int) -> None:
        """Write at most ``most`` bytes of a regular file to an open file.  Raises OSError."""


class Staging:
    """The stage-in directory of one user."""

    def __init__(self, database: "Database", config: Config, owner: str, files: FilesOfUser) -> None:
        self._database = database
        self._config = config
        self._owner = owner
        self._files = files

    @contextmanager
    def staged(self, path: str | None, md5sum: str | None) -> Iterator[int]:
        """Provide a copy while the job is submitted; yield its id.  Remove a new copy if the job is rejected.

        ``path``: the user's file, None for a file that was staged earlier; ``md5sum``: the sum that it must have.
        Raises BadSubmission.
        """
        if md5sum is not None and not _SUM.match(md5sum.lower()):
            raise _refusal(f'"{md5sum}" is not an MD5 sum: use 32 hexadecimal digits.')
        expected = md5sum.lower() if md5sum is not None else None
        copy, is_new = (self._find(expected or ""), False) if path is None else self._take(path, expected)
        if copy is None:
            raise _refusal(f"you have no staged file with the checksum {expected}: use --stagein with the file.")
        try:
            yield copy.id
        except BaseException:
            if is_new:
                self._remove(copy)
            raise
        remove_unused(self._database, self._config)

    def _take(self, path: str, expected: str | None) -> tuple[StagedFile, bool]:
        """Return a copy of the user's file, and whether it is new.  Raises BadSubmission."""
        try:
            md5sum = self._files.md5sum(path)
            _check_sum(md5sum, expected)
            copy = self._find(md5sum)
            return (copy, False) if copy else (self._copy(path, expected), True)
        except OSError:
            raise BadSubmission(Code.FILE, f"Cannot open the stage-in file {path}.", prefix="[ERROR] ") from None

    def _location(self, md5sum: str) -> str:
        return os.path.join(self._config.stagein_dir, f"{md5sum}.{self._owner}")

    def _find(self, md5sum: str) -> StagedFile | None:
        """Return the copy with this sum if it exists; update its timestamp, so that it is kept for a while."""
        with self._database.snapshot() as tx:
            copy = tx.new_jobs.find_file(md5sum, self._location(md5sum))
        try:
            if copy is not None:
                os.utime(copy.location)
        except OSError:
            return None
        return copy

    def _copy(self, path: str, expected: str | None) -> StagedFile:
        """Copy the user's file and compute the sum of the copy, since the file may change.

        Raises BadSubmission, OSError.
        """
        unfinished, descriptor = self._create()
        limit = self._config.api_max_upload
        try:
            with os.fdopen(descriptor, "r+b") as file:
                self._files.pour(path, file, limit + 1)
                file.flush()
                size, md5sum = _measure(file.fileno())
            if size > limit:
                raise _refusal(f"the stage-in file is larger than {limit} bytes.")
            _check_sum(md5sum, expected)
            location = self._location(md5sum)
            os.rename(unfinished, location)
        except BaseException:
            with suppress(OSError):
                os.unlink(unfinished)
            raise
        kind = next((kind for suffix, kind in _KINDS.items() if path.lower().endswith(suffix)), "")
        with self._database.begin() as tx:
            return tx.new_jobs.find_file(md5sum, location) or tx.new_jobs.add_file(md5sum, location, kind, size)

    def _create(self) -> tuple[str, int]:
        """Return path and descriptor of a new file, locked while it is written.  Raises BadSubmission."""
        directory = self._config.stagein_dir
        try:
            os.makedirs(directory, mode=0o700, exist_ok=True)
            self._remove_broken(directory)
            path = os.path.join(directory, f".{os.getpid()}.{time.time_ns()}")
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            fcntl.flock(descriptor, fcntl.LOCK_SH)
        except OSError as error:
            raise _refusal(f"cannot write to {directory}: {error.strerror}.") from None
        return path, descriptor

    def _remove_broken(self, directory: str) -> None:
        """Remove the files of processes that were killed during the copy, or before they inserted the row."""
        paths = {name: os.path.join(directory, name) for name in os.listdir(directory)}
        copies = {path for name, path in paths.items() if _COPY.match(name) and not _is_fresh(path)}
        with self._database.snapshot() as tx:
            without_row = copies - tx.new_jobs.file_locations(copies)
        for name, path in paths.items():
            is_unfinished = name.startswith(".") and not _is_fresh(path, _MOMENT)
            if path in without_row or (is_unfinished and _is_unlocked(path)):
                with suppress(OSError):
                    os.unlink(path)

    def _remove(self, copy: StagedFile) -> None:
        """Remove a copy whose job was not submitted, unless another job uses it."""
        with self._database.begin() as tx:
            is_removed = tx.new_jobs.remove_file_unless_named(copy.id)
        if is_removed:
            with suppress(OSError):
                os.unlink(copy.location)


def remove_unused(database: "Database", config: Config) -> None:
    """Remove the copies that no job used during the retention time of the site."""
    with database.begin() as tx:
        for copy in tx.new_jobs.unused_files(tx.now - config.stagein_cache_expiry * _HOUR):
            if not _is_fresh(copy.location):
                tx.new_jobs.remove_file(copy.id)
                with suppress(OSError):
                    os.unlink(copy.location)


@contextmanager
def staged_file(
    staging: Staging, options: JobOptions, types: Sequence[str], warn: Callable[[str], object]
) -> Iterator[int | None]:
    """Provide the stage-in file while a job of these types is submitted; yield its id, or None without a file.

    Raises BadSubmission.
    """
    if options.stagein is None and options.stagein_md5sum is None:
        yield None
    elif JobTypeName.DESKTOP_COMPUTING not in JobTypes(types):
        warn("--stagein is only used by desktop_computing jobs.")
        yield None
    else:
        with staging.staged(options.stagein, options.stagein_md5sum) as file_id:
            yield file_id


def _refusal(text: str) -> BadSubmission:
    return BadSubmission(Code.FILE, text)


def _check_sum(md5sum: str, expected: str | None) -> None:
    if expected is not None and md5sum != expected:
        raise _refusal("stage-in checksum mismatch.")


def _is_fresh(path: str, seconds: float = _GRACE) -> bool:
    try:
        return os.stat(path).st_mtime > time.time() - seconds
    except OSError:
        return False


def _is_unlocked(path: str) -> bool:
    """Return whether no process writes the file: a writer holds a lock on it."""
    try:
        with open(path, "rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _measure(descriptor: int) -> tuple[int, str]:
    digest, size = hashlib.md5(usedforsecurity=False), 0
    while block := os.pread(descriptor, _BLOCK, size):
        digest.update(block)
        size += len(block)
    return size, digest.hexdigest()
