"""oarsub --stagein: a copy of the user's file is kept for jobs that fetch it (commands-user.md 3.16).

Files are known by their MD5 sum and their owner: one that is there is not copied again.  Who knows a sum, or makes
another file with the same one, never gets what somebody else has staged.  Each file goes some days after its last job
has started.
"""

import fcntl
import hashlib
import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from oar.cli.as_user import UserFiles
from oar.cli.command import Context, Stop
from oar.cli.oarsub_options import EXIT_SCRIPT
from oar.lib.db.files import StagedFile

_SUM = re.compile(r"[0-9a-f]{32}\Z")
_KEPT = re.compile(r"[0-9a-f]{32}\.")  #: then the name of the owner
#: Kinds of archives by what their names end with, longer ones first.
_KINDS = {
    ".tar.gz": "tar.gz",
    ".tar.bz2": "tar.bz2",
    ".tgz": "tar.gz",
    ".tbz2": "tar.bz2",
    ".tar": "tar",
    ".zip": "zip",
}
#: A file that was copied or chosen so lately may be wanted by a job that is not inserted yet.
_GRACE = 3600.0
#: Between the creation of a file and its lock.
_MOMENT = 10.0
_HOUR = 3600
_BLOCK = 1 << 20


@contextmanager
def staged(context: Context, files: UserFiles, path: str | None, md5sum: str | None) -> Iterator[int]:
    """Have a file ready for the job that is submitted meanwhile; a refused job leaves nothing.  Raises Stop."""
    stage = _Stage(context, files)
    wanted = _read_sum(md5sum)
    found, is_new = stage.known(wanted) if path is None else stage.take(path, wanted)
    try:
        yield found.id
    except BaseException:
        if is_new:
            stage.give_up(found)
        raise
    stage.forget_unused()


def _read_sum(text: str | None) -> str | None:
    if text is None:
        return None
    if not _SUM.match(text.lower()):
        raise _stop(f'"{text}" is not an MD5 sum: 32 hexadecimal digits.')
    return text.lower()


def _stop(text: str) -> Stop:
    return Stop(f"# Error: {text}", EXIT_SCRIPT)


class _Stage:
    """The directory of the kept files, and the table that knows them."""

    def __init__(self, context: Context, files: UserFiles) -> None:
        self._database = context.database
        self._config = context.runtime.config
        self._files = files
        self._owner = context.user.name

    def _location(self, md5sum: str) -> str:
        return os.path.join(self._config.stagein_dir, f"{md5sum}.{self._owner}")

    def known(self, md5sum: str | None) -> tuple[StagedFile, bool]:
        """Return the kept file with this content.  Raises Stop."""
        found = self._find(md5sum or "")
        if found is None:
            raise _stop(f"no file of yours with the checksum {md5sum} is kept, give it with --stagein.")
        return found, False

    def take(self, path: str, wanted: str | None) -> tuple[StagedFile, bool]:
        """Return the kept file with the content of the user's, and whether it was copied.  Raises Stop."""
        try:
            md5sum = self._files.md5sum(path)
            self._check(md5sum, wanted)
            found = self._find(md5sum)
            return (found, False) if found else (self._copy(path, wanted), True)
        except OSError:
            raise Stop(f"[ERROR] Cannot open the stage-in file {path}.", EXIT_SCRIPT) from None

    @staticmethod
    def _check(md5sum: str, wanted: str | None) -> None:
        if wanted is not None and md5sum != wanted:
            raise _stop("stage-in checksum mismatch.")

    def _find(self, md5sum: str) -> StagedFile | None:
        """Return a kept file that is still there; it stays for a while."""
        with self._database.snapshot() as tx:
            found = tx.files.at(md5sum, self._location(md5sum))
        try:
            if found is not None:
                os.utime(found.location)
        except OSError:
            return None
        return found

    def _copy(self, path: str, wanted: str | None) -> StagedFile:
        """Copy the user's file; what counts is the content of the copy.  Raises Stop, OSError."""
        directory, most = self._config.stagein_dir, self._config.api_max_upload
        try:
            os.makedirs(directory, mode=0o700, exist_ok=True)
            self._forget_broken(directory)
            unfinished = os.path.join(directory, f".{os.getpid()}.{time.time_ns()}")
            descriptor = os.open(unfinished, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            fcntl.flock(descriptor, fcntl.LOCK_SH)
        except OSError as error:
            raise _stop(f"cannot write to {directory}: {error.strerror}.") from None
        try:
            with os.fdopen(descriptor, "r+b") as copy:
                self._files.pour(path, copy, most + 1)
                copy.flush()
                size, md5sum = _measure(copy.fileno())
            if size > most:
                raise _stop(f"the stage-in file is larger than {most} bytes.")
            self._check(md5sum, wanted)
            location = self._location(md5sum)
            os.rename(unfinished, location)
        except BaseException:
            with suppress(OSError):
                os.unlink(unfinished)
            raise
        with self._database.begin() as tx:
            return tx.files.at(md5sum, location) or tx.files.add(md5sum, location, _kind(path), size)

    def _forget_broken(self, directory: str) -> None:
        """Remove what those left who were killed while they copied, or before they had noted their copy."""
        paths = {name: os.path.join(directory, name) for name in os.listdir(directory)}
        whole = {path for name, path in paths.items() if _KEPT.match(name) and not _is_fresh(path)}
        with self._database.snapshot() as tx:
            strange = whole - tx.files.known(whole)
        for name, path in paths.items():
            is_unfinished = name.startswith(".") and not _is_fresh(path, _MOMENT)
            if path in strange or (is_unfinished and _is_left(path)):
                with suppress(OSError):
                    os.unlink(path)

    def give_up(self, file: StagedFile) -> None:
        """Remove a file for which no job was submitted, unless another one was."""
        with self._database.begin() as tx:
            is_forgotten = tx.files.remove(file.id)
        if is_forgotten:
            with suppress(OSError):
                os.unlink(file.location)

    def forget_unused(self) -> None:
        """Remove what no job has wanted for so long as the site keeps it."""
        with self._database.begin() as tx:
            for file in tx.files.unused(tx.now - self._config.stagein_cache_expiry * _HOUR):
                if not _is_fresh(file.location):
                    tx.files.forget(file.id)
                    with suppress(OSError):
                        os.unlink(file.location)


def _is_fresh(path: str, seconds: float = _GRACE) -> bool:
    try:
        return os.stat(path).st_mtime > time.time() - seconds
    except OSError:
        return False


def _is_left(path: str) -> bool:
    """Whether nobody writes a copy any more: who does holds a lock on it."""
    try:
        with open(path, "rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _measure(descriptor: int) -> tuple[int, str]:
    """Return the size and the MD5 sum of an open file."""
    digest, size = hashlib.md5(usedforsecurity=False), 0
    while block := os.pread(descriptor, _BLOCK, size):
        digest.update(block)
        size += len(block)
    return size, digest.hexdigest()


def _kind(path: str) -> str:
    return next((kind for suffix, kind in _KINDS.items() if path.lower().endswith(suffix)), "")
