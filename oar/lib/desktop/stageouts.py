"""Results of jobs (stage-out): archives sent by agents, one file for each job, in STAGEOUT_DIR."""

import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import IO, TYPE_CHECKING

from oar.lib.base.errors import Unavailable

if TYPE_CHECKING:
    from oar.lib.config.files import Config
    from oar.lib.db.database import Database

_RESULT = re.compile(r"([1-9][0-9]{0,17})\.tgz")
_UNFINISHED = re.compile(r"\.[0-9]+\.[0-9]+\.part")
#: Seconds after which nobody writes an unfinished file any more: longer than any upload may take.
_GRACE = 24 * 3600
_HOUR = 3600


def path_of(config: "Config", job_id: int) -> str:
    """Return the path of the results of a job, which may not exist."""
    return os.path.join(config.stageout_dir, f"{job_id}.tgz")


@contextmanager
def new_file(config: "Config", job_id: int) -> Iterator[IO[bytes]]:
    """Open a file for the results of a job.  Raises Unavailable.

    The file becomes the result when the block ends without an error.
    """
    directory = config.stageout_dir
    unfinished = os.path.join(directory, f".{os.getpid()}.{time.time_ns()}.part")
    try:
        os.makedirs(directory, mode=0o700, exist_ok=True)
        descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise Unavailable(f"results cannot be kept in {directory}: {error.strerror}") from None
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.rename(unfinished, path_of(config, job_id))
    except OSError as error:
        _remove(unfinished)
        raise Unavailable(f"results cannot be kept in {directory}: {error.strerror}") from None
    except BaseException:
        _remove(unfinished)
        raise


def remove(config: "Config", job_id: int) -> None:
    _remove(path_of(config, job_id))


def remove_old(database: "Database", config: "Config") -> int:
    """Remove the results of jobs that ended long ago, and files of interrupted uploads; return how many."""
    directory = config.stageout_dir
    try:
        names = os.listdir(directory)
    except OSError:
        return 0
    of_jobs = {int(found[1]) for name in names if (found := _RESULT.fullmatch(name))}
    with database.snapshot() as tx:
        before = tx.now - config.stagein_cache_expiry * _HOUR
        forgotten = tx.desktop_computers.forgotten(of_jobs, before) if of_jobs else []
    for job_id in forgotten:
        remove(config, job_id)
    broken = [os.path.join(directory, name) for name in names if _UNFINISHED.fullmatch(name)]
    old = [path for path in broken if _age(path) > _GRACE]
    for path in old:
        _remove(path)
    return len(forgotten) + len(old)


def _age(path: str) -> float:
    try:
        return time.time() - os.stat(path).st_mtime
    except OSError:
        return 0.0


def _remove(path: str) -> None:
    with suppress(OSError):
        os.unlink(path)
