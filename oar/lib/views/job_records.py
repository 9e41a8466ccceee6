"""The records of jobs, from which the machine formats are made (docs/design/formats.rst, "Records").

A record has two families of keys that programs read.  The records of ten thousand jobs are made a page at a time, and
a page column by column: so each takes half of the time, and there is never memory for all of them.
"""

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

from oar.lib.facts import output_names
from oar.lib.facts.formats import RecordTable, RecordTables
from oar.lib.facts.records import Job, date_of_start
from oar.lib.facts.states import JobType, Reservation
from oar.lib.views.events import event_record
from oar.lib.views.jobs import INTERACTIVE_OUTPUT, JobView

#: So many records are made at a time: their text is about 150 kB.
PAGE = 100


class JobRecords(RecordTables):
    """The records of jobs, by id."""

    def __init__(self, views: Sequence[JobView]) -> None:
        self._views = {view.job.id: view for view in views}

    def __getitem__(self, job_id: int) -> dict[str, object]:
        ((_, record),) = _table([self._views[job_id]]).items()
        return record

    def __iter__(self) -> Iterator[int]:
        return iter(self._views)

    def __len__(self) -> int:
        return len(self._views)

    def tables(self) -> Iterator[RecordTable]:
        """Yield all records; those of reservations that have not started have one key more."""
        views = list(self._views.values())
        for start in range(0, len(views), PAGE):
            page = views[start : start + PAGE]
            if Reservation.SCHEDULED in [view.job.reservation for view in page]:
                yield from (_table(list(some)) for _, some in groupby(page, _has_reserved))
            else:
                yield _table(page)


def _has_reserved(view: JobView) -> bool:
    return view.reserved_resources is not None


def _table(views: Sequence[JobView]) -> RecordTable:
    """Return the records of jobs, of which there is one at least; all have resources reserved, or none has."""
    of: Any = JobView._make(zip(*views, strict=True))  # each field holds those of all jobs
    job: Any = Job._make(zip(*of.job, strict=True))
    start = list(map(date_of_start, job.state, job.start_time, job.stop_time, job.assigned_moldable))
    scheduled = [view.scheduled_start for view in views]
    columns: dict[str, Sequence[object]] = {
        "Job_Id": job.id,
        "id": job.id,
        "array_id": job.array_id,
        "array_index": job.array_index,
        "name": [name or "" for name in job.name],
        "project": job.project,
        "owner": job.user,
        "job_user": job.user,
        "state": job.state,
        "wanted_resources": [view.wanted_resources for view in views],
        "types": of.types,
        "dependencies": [[each.required for each in some] for some in of.dependencies],
        "assigned_resources": [each.resources for each in of.assigned],
        "assigned_network_address": [each.nodes for each in of.assigned],
        "queue": job.queue,
        "command": of.command,
        "exit_code": job.exit_code,
        "launchingDirectory": job.launching_directory,
        "launching_directory": job.launching_directory,
        "stdout_file": _output_files(job.stdout_file, job, of),
        "stderr_file": _output_files(job.stderr_file, job, of),
        "jobType": job.job_type,
        "type": job.job_type,
        "properties": [properties or "" for properties in job.properties],
        "reservation": job.reservation,
        "advance_reservation": of.advance_reservation,
        **_reserved_columns(views),
        "walltime": [view.walltime for view in views],
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
        "foreseen_at": [view.foreseen_at or None for view in views] if any(scheduled) else scheduled,
        "resubmit_job_id": job.resubmit_job_id,
        "resubmitted_as": of.resubmitted_as,
        "events": [[event_record(event) for event in some] for some in of.events],
        **_end_columns(views, of),
    }
    return RecordTable(job.id, columns)


def _output_files(patterns: Sequence[str | None], job: Any, of: Any) -> list[str]:
    """Return the names of output files; ``job`` and ``of`` hold the fields of all jobs and of their views."""
    hosts = [each.nodes[0] if each.nodes else None for each in of.assigned]
    names = output_names.expand_all([pattern or "" for pattern in patterns], of.job, hosts)
    if JobType.INTERACTIVE not in job.job_type:
        return names
    shown = zip(job.job_type, names, strict=True)
    return [INTERACTIVE_OUTPUT if kind is JobType.INTERACTIVE else name for kind, name in shown]


def _reserved_columns(views: Sequence[JobView]) -> dict[str, Sequence[object]]:
    if views[0].reserved_resources is None:
        return {}
    return {"reserved_resources": [[resource.id for resource in view.reserved_resources or ()] for view in views]}


def _end_columns(views: Sequence[JobView], of: Any) -> dict[str, Sequence[object]]:
    """Return the fields that no older version had: why jobs ended and what they used."""
    nothing = [None] * len(views)
    ends = [view.end for view in views] if any(of.cause) else nothing
    fullest = [usage.fullest if usage else None for usage in of.usage] if any(of.usage) else nothing
    return {
        "end": [end.record if end else None for end in ends],
        "cpu_seconds": [usage.cpu_seconds if usage else None for usage in of.usage],
        "cpu_efficiency": [usage.efficiency if usage else None for usage in of.usage],
        "max_rss": [each.memory_peak if each else None for each in fullest],
    }
