"""The records of jobs, from which the machine formats are made (docs/design/formats.rst, "Records").

A record has two families of keys that programs read.  The records of ten thousand jobs are made a page at a time, and
a page column by column: so each takes half of the time, and there is never memory for all of them.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from itertools import chain, groupby
from operator import attrgetter
from typing import Any, TypeVar

from oar.lib.facts import output_names
from oar.lib.facts.formats import RecordTable, RecordTables
from oar.lib.facts.records import Job, Moldable, date_of_start
from oar.lib.facts.request import format_wanted_resources
from oar.lib.facts.states import JobType, Reservation
from oar.lib.views.events import event_record
from oar.lib.views.jobs import INTERACTIVE_OUTPUT, JobColumns, walltime_of

T = TypeVar("T")

#: So many records are made at a time: their text is about 400 kB.
PAGE = 250


class JobRecords(RecordTables):
    """The records of jobs, by id."""

    def __init__(self, jobs: JobColumns) -> None:
        self._jobs = jobs

    @cached_property
    def _places(self) -> dict[int, int]:
        return {job.id: place for place, job in enumerate(self._jobs.fields.job)}

    def __getitem__(self, job_id: int) -> dict[str, object]:
        place = self._places[job_id]
        ((_, record),) = _table(self._jobs[place : place + 1]).items()
        return record

    def __iter__(self) -> Iterator[int]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._jobs)

    def tables(self) -> Iterator[RecordTable]:
        """Yield all records; those of reservations that have not started have one key more."""
        for start in range(0, len(self._jobs), PAGE):
            page = self._jobs[start : start + PAGE]
            if Reservation.SCHEDULED in [job.reservation for job in page.fields.job]:
                yield from (_table(some) for some in _alike(page))
            else:
                yield _table(page)


def _alike(page: JobColumns) -> Iterator[JobColumns]:
    """Yield the stretches of jobs of which all have resources reserved, or none has."""
    start = 0
    for _, some in groupby(page, lambda view: view.reserved_resources is not None):
        stop = start + sum(1 for _ in some)
        yield page[start:stop]
        start = stop


def _table(page: JobColumns) -> RecordTable:
    """Return the records of jobs, of which there is one at least; all have resources reserved, or none has."""
    of = page.fields
    job: Any = Job._make(zip(*of.job, strict=True))  # each field holds those of all jobs
    wanted, walltimes = _requests(of, job)
    resources, nodes = zip(*of.assigned, strict=True)
    stdout_files, stderr_files = _output_files(job, of, nodes)
    start = _starts(job)
    scheduled, foreseen_at = _foreseen(page)
    columns: dict[str, Sequence[object]] = {
        "Job_Id": job.id,
        "id": job.id,
        "array_id": job.array_id,
        "array_index": job.array_index,
        "name": _texts(job.name),
        "project": job.project,
        "owner": job.user,
        "job_user": job.user,
        "state": job.state,
        "wanted_resources": wanted,
        "types": of.types,
        "dependencies": _lists(of.dependencies, attrgetter("required")),
        "assigned_resources": resources,
        "assigned_network_address": nodes,
        "queue": job.queue,
        "command": of.command,
        "exit_code": job.exit_code,
        "launchingDirectory": job.launching_directory,
        "launching_directory": job.launching_directory,
        "stdout_file": stdout_files,
        "stderr_file": stderr_files,
        "jobType": job.job_type,
        "type": job.job_type,
        "properties": _texts(job.properties),
        "reservation": job.reservation,
        "advance_reservation": of.advance_reservation,
        **_reserved_columns(page),
        "walltime": walltimes,
        "submissionTime": job.submission_time,
        "submission_time": job.submission_time,
        "startTime": start,
        "start_time": start,
        "stopTime": job.stop_time,
        "stop_time": job.stop_time,
        "cpuset_name": job.cpuset_name,
        "initial_request": of.initial_request,
        "message": job.message,
        "scheduledStart": scheduled,
        "scheduled_start": scheduled,
        "foreseen_at": foreseen_at,
        "resubmit_job_id": job.resubmit_job_id,
        "resubmitted_as": of.resubmitted_as,
        "events": _lists(of.events, event_record),
        **_end_columns(page),
    }
    return RecordTable(job.id, columns)


def _foreseen(page: JobColumns) -> tuple[list[int | None], list[int | None]]:
    """Return when jobs are planned to start, and the dates as of which that is so."""
    if not any(page.fields.prediction):
        nothing: list[int | None] = [None] * len(page)
        return nothing, nothing
    views = list(page)
    return [view.scheduled_start for view in views], [view.foreseen_at or None for view in views]


def _texts(column: Sequence[str | None]) -> Sequence[str]:
    """Return texts with '' for those that are missing."""
    return [text or "" for text in column]


def _lists(column: Sequence[Sequence[T]], shown: Callable[[T], object]) -> Sequence[Sequence[object]]:
    """Return what is shown of the members of sequences, most of which are empty."""
    return [list(map(shown, some)) for some in column] if any(column) else [[]] * len(column)


def _starts(job: Any) -> Sequence[int]:
    """Return when jobs started, 0 for those that have not."""
    if not any(job.start_time):
        return [0] * len(job.start_time)
    return list(map(date_of_start, job.state, job.start_time, job.stop_time, job.assigned_moldable))


def _requests(of: Any, job: Any) -> tuple[Sequence[str], Sequence[int | None]]:
    """Return what jobs ask for, and their walltimes.

    Those that ask for the same have the same groups in memory, or few have not.
    """
    if set(map(len, of.moldables)) == {1}:
        alternatives: Any = Moldable._make(zip(*chain.from_iterable(of.moldables), strict=True))
        walltimes = alternatives.walltime
        asked: list[object] = list(zip(map(id, alternatives.groups), walltimes, strict=True))
    else:
        walltimes = list(map(walltime_of, of.moldables, job.assigned_moldable, of.prediction))
        asked = [tuple([(id(one.groups), one.walltime) for one in some]) for some in of.moldables]
    one_of_each = dict(zip(asked, of.moldables, strict=True))
    texts = {request: format_wanted_resources(some) for request, some in one_of_each.items()}
    return list(map(texts.__getitem__, asked)), walltimes


def _output_files(job: Any, of: Any, nodes: Sequence[Sequence[str]]) -> tuple[Sequence[str], Sequence[str]]:
    """Return the names of the files of standard output and error; arguments hold the fields of all jobs."""
    hosts = [some[0] if some else None for some in nodes]
    return _names(job.stdout_file, hosts, job, of), _names(job.stderr_file, hosts, job, of)


def _names(patterns: Sequence[str | None], hosts: Sequence[str | None], job: Any, of: Any) -> list[str]:
    names = output_names.expand_all(_texts(patterns), of.job, hosts)
    if JobType.INTERACTIVE not in job.job_type:
        return names
    shown = zip(job.job_type, names, strict=True)
    return [INTERACTIVE_OUTPUT if kind is JobType.INTERACTIVE else name for kind, name in shown]


def _reserved_columns(page: JobColumns) -> dict[str, Sequence[object]]:
    if page[0].reserved_resources is None:
        return {}
    return {"reserved_resources": [[resource.id for resource in view.reserved_resources or ()] for view in page]}


def _end_columns(page: JobColumns) -> dict[str, Sequence[object]]:
    """Return the fields that no older version had: why jobs ended and what they used."""
    of, nothing = page.fields, [None] * len(page)
    ends = [view.end for view in page] if any(of.cause) else nothing
    usages = of.usage if any(of.usage) else ()
    fullest = [usage.fullest if usage else None for usage in usages]
    return {
        "end": [end.record if end else None for end in ends] if any(ends) else nothing,
        "cpu_seconds": [usage.cpu_seconds if usage else None for usage in usages] or nothing,
        "cpu_efficiency": [usage.efficiency if usage else None for usage in usages] or nothing,
        "max_rss": [each.memory_peak if each else None for each in fullest] or nothing,
    }
