"""The lines of Grid Engine's reporting file, generated from the tables: always complete, without partial lines."""

from collections.abc import Iterator
from heapq import merge
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from oar.lib.db.transaction import Transaction
    from oar.lib.reservations.sql_logs import EndedJob

GIB = 2**30
#: Grid Engine's word for a text that is not there.
NONE = "NONE"
#: What separates fields, and what would break a line; ``%`` first.
_ESCAPES = (("%", "%25"), (":", "%3A"), ("\n", "%0A"))
#: Fields between ru_wallclock and project: what the kernel of Grid Engine's days told of processes.
_UNKNOWN_USAGE = ("0",) * 17


def reporting_lines(tx: "Transaction", since: int = 0) -> Iterator[str]:
    """Iterate over the records since a date, in order of time.

    Records of the same second are in the order of the sources below.
    """
    reports = tx.reservation_logs
    sources = (
        _lines(0, "new_ar", reports.new_for_report(since)),
        _lines(1, "ar_attribute", reports.attributes_for_report(since)),
        _lines(2, "ar_log", reports.logs_for_report(since)),
        ((date, 3, _line(date, "acct", _job_fields(job))) for date, job in reports.ended_jobs(since)),
        _lines(4, "ar_acct", reports.bills_for_report(since)),
    )
    return (line for _, _, line in merge(*sources, key=lambda each: each[:2]))


def _lines(rank: int, kind: str, rows: Iterator[tuple[object, ...]]) -> Iterator[tuple[int, int, str]]:
    for date, *fields in rows:
        assert isinstance(date, int)
        yield date, rank, _line(date, kind, fields)


def _line(date: int, kind: str, fields: list[object]) -> str:
    return ":".join([str(date), kind, *map(_field, fields)])


def _field(value: object) -> str:
    text = str(value)
    for character, escape in _ESCAPES:
        text = text.replace(character, escape)
    return text


def _job_fields(job: "EndedJob") -> list[object]:
    """Return the 45 fields of ``acct``; unknown values are 0."""
    seconds = job.stop - job.start
    return [
        *(job.queue, job.hostname or NONE, job.group, job.owner, job.name or NONE, job.id, "sge", 0),
        *(job.submission_time, job.start, job.stop, 0, exit_status(job.exit_code), seconds),
        *_UNKNOWN_USAGE,
        *(job.project, job.queue, NONE, job.slots, job.task),
        *(f"{job.cpu_seconds:f}", f"{job.memory_peak / GIB * seconds:f}", f"{job.io_bytes / GIB:f}"),
        *(NONE, f"{0:f}", NONE, f"{job.memory_peak:f}", job.number, job.reservation_submission),
    ]


def exit_status(code: int | None) -> int:
    """Return the exit status that a shell reports; 128 plus the signal number if a signal ended the job.

    >>> exit_status(256), exit_status(9), exit_status(None)
    (1, 137, 0)
    """
    if not code:
        return 0
    return 128 + (code & 127) if code & 127 else code >> 8
