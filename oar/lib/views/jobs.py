"""Jobs as users see them: records, from which every output format is made.

The records of many jobs need a few queries, one for each table.  ``Privacy`` decides what a user sees of the jobs of
others (docs/design/formats.rst, "Privacy").
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from oar.lib.db.listings import Assigned, PlannedResource, Prediction
from oar.lib.facts import output_names
from oar.lib.facts.records import Cause, Dependency, Event, Job, Moldable
from oar.lib.facts.request import format_wanted_resources
from oar.lib.facts.states import NOT_STARTED, JobType, Reservation
from oar.lib.views.events import event_record
from oar.lib.views.privacy import Privacy

if TYPE_CHECKING:
    from oar.lib.db.transaction import Transaction
    from oar.lib.views.job_ends import JobEnd
    from oar.lib.views.job_usage import JobUsage

INTERACTIVE_OUTPUT = "<interactive shell>"


class JobView(NamedTuple):
    """All data of a job that users see."""

    job: Job
    types: tuple[str, ...]
    moldables: tuple[Moldable, ...]
    dependencies: tuple[Dependency, ...]
    assigned: Assigned
    planned: tuple[PlannedResource, ...]  #: of an accepted reservation that has not started
    prediction: Prediction | None
    events: tuple[Event, ...]
    command: str  #: '' if the user may not see it
    initial_request: str  #: '' if the user may not see it
    cause: Cause | None = None  #: why it ended, if that is known
    copy: int | None = None  #: the job as which it was resubmitted automatically
    usage: "JobUsage | None" = None  #: what it used, once it has ended
    advance_reservation: int = 0  #: number of the one that it is in, or the frame of; 0 = none
    resubmitted_as: int | None = None  #: the last job as which it was resubmitted, automatically or by a user

    @property
    def end(self) -> "JobEnd | None":
        """Why it ended, with the texts of the cause."""
        if self.cause is None:
            return None
        from oar.lib.views.job_ends import job_end

        return job_end(self.job, self.cause, next(iter(self.assigned.nodes), None), self.copy)

    @property
    def scheduled_start(self) -> int | None:
        """The predicted start; None if there is none or the job was started."""
        return self.prediction.start if self.prediction and self.job.state in NOT_STARTED else None

    @property
    def foreseen_at(self) -> int:
        """The predicted start may be as old as this date; 0: it is that of the last round, or agreed."""
        is_agreed = self.job.reservation is not Reservation.NONE
        return 0 if self.scheduled_start is None or is_agreed or not self.prediction else self.prediction.foreseen_at

    @property
    def walltime(self) -> int | None:
        """The walltime of the moldable description that was chosen, else of the first one."""
        chosen = self.job.assigned_moldable or (self.prediction.moldable if self.prediction else 0)
        for moldable in self.moldables:
            if moldable.id == chosen:
                return moldable.walltime
        return self.moldables[0].walltime if self.moldables else None

    @property
    def wanted_resources(self) -> str:
        """The moldable descriptions as they are written with -l."""
        return format_wanted_resources(self.moldables)

    @property
    def reserved_resources(self) -> tuple[PlannedResource, ...] | None:
        """The resources of an accepted reservation before its start; None for other jobs."""
        is_waiting = self.job.reservation is Reservation.SCHEDULED and self.job.state in NOT_STARTED
        return self.planned if is_waiting else None

    @property
    def stdout_file(self) -> str:
        """Name of the file of the standard output."""
        return self._output(self.job.stdout_file)

    @property
    def stderr_file(self) -> str:
        """Name of the file of the standard error output."""
        return self._output(self.job.stderr_file)

    def _output(self, pattern: str | None) -> str:
        if self.job.job_type is JobType.INTERACTIVE:
            return INTERACTIVE_OUTPUT
        return output_names.expand(pattern or "", self.job, self.assigned.nodes[0] if self.assigned.nodes else None)


def job_views(tx: "Transaction", jobs: Sequence[Job], privacy_for: Privacy) -> list[JobView]:
    """Return the views of jobs, in their order."""
    ids = [job.id for job in jobs]
    if not ids:
        return []
    types, moldables, dependencies = tx.jobs.types(ids), tx.jobs.moldables(ids), tx.jobs.dependencies(ids)
    assigned = tx.listings.assigned(ids)
    predictions = tx.listings.predictions([job.id for job in jobs if job.state in NOT_STARTED])
    reserved = [job.id for job in jobs if job.reservation is Reservation.SCHEDULED and job.id in predictions]
    planned = tx.listings.planned([predictions[job_id].moldable for job_id in reserved])
    events = tx.events.of_jobs(ids)
    ended = [job for job in jobs if job.is_final]
    causes, copies = _causes(tx, [job.id for job in ended])
    copies_of_all = tx.listings.copies([job.id for job in ended])
    usages = _uses(tx, ended)
    reservations = tx.advance_reservations.numbers_of(ids)
    nothing = Assigned((), ())
    return [
        JobView(
            job,
            types.get(job.id, ()),
            tuple(moldables.get(job.id, ())),
            tuple(dependencies.get(job.id, ())),
            assigned.get(job.id, nothing),
            tuple(planned.get(predictions[job.id].moldable, ())) if job.id in predictions else (),
            predictions.get(job.id),
            tuple(events.get(job.id, ())),
            privacy_for.command(job),
            privacy_for.initial_request(job),
            causes.get(job.id),
            copies.get(job.id),
            usages.get(job.id),
            reservations.get(job.id, 0),
            copies_of_all.get(job.id),
        )
        for job in jobs
    ]


def _uses(tx: "Transaction", ended: Sequence[Job]) -> "Mapping[int, JobUsage]":
    """Return the usage of jobs that have ended."""
    if not ended:
        return {}
    from oar.lib.views.job_usage import job_usages

    return {usage.job.id: usage for usage in job_usages(tx, ended, None)}


def _causes(tx: "Transaction", ended: Sequence[int]) -> tuple[Mapping[int, Cause], Mapping[int, int]]:
    """Return the causes of ends, and the jobs as which jobs were resubmitted automatically."""
    return (tx.job_ends.causes(ended), tx.resubmissions.copies(ended)) if ended else ({}, {})


class JobTimes(NamedTuple):
    """The start and the duration of a job."""

    start: int | None  #: of a waiting job, the predicted start; None if there is none
    walltime: int | None
    remaining: int | None  #: seconds until its walltime is over; None for a job that does not run


def job_times(tx: "Transaction", jobs: Sequence[Job]) -> dict[int, JobTimes]:
    """Return the times of jobs; the time of suspensions does not count."""
    walltimes = tx.listings.walltimes([job.id for job in jobs])
    predictions = tx.listings.predictions([job.id for job in jobs if job.state in NOT_STARTED])
    suspended = tx.jobs.suspended_times([job.id for job in jobs if job.suspended and not job.is_final])
    times = {}
    for job in jobs:
        start, walltime = job.started or None, walltimes.get(job.id)
        remaining = None
        if start and walltime is not None and not job.is_final:
            remaining = max(0, start + walltime + suspended.get(job.id, 0) - tx.now)
        if start is None and job.id in predictions:
            start = predictions[job.id].start
        times[job.id] = JobTimes(start, walltime, remaining)
    return times


def job_record(view: JobView) -> dict[str, object]:
    """Return the record of a job with both families of keys that programs read (docs/design/formats.rst, "Records")."""
    job = view.job
    reserved = view.reserved_resources
    scheduled, start = view.scheduled_start, job.started
    return {
        "Job_Id": job.id,
        "id": job.id,
        "array_id": job.array_id,
        "array_index": job.array_index,
        "name": job.name or "",
        "project": job.project,
        "owner": job.user,
        "job_user": job.user,
        "state": job.state,
        "wanted_resources": view.wanted_resources,
        "types": view.types,
        "dependencies": [dependency.required for dependency in view.dependencies],
        "assigned_resources": view.assigned.resources,
        "assigned_network_address": view.assigned.nodes,
        "queue": job.queue,
        "command": view.command,
        "exit_code": job.exit_code,
        "launchingDirectory": job.launching_directory,
        "launching_directory": job.launching_directory,
        "stdout_file": view.stdout_file,
        "stderr_file": view.stderr_file,
        "jobType": job.job_type,
        "type": job.job_type,
        "properties": job.properties or "",
        "reservation": job.reservation,
        "advance_reservation": view.advance_reservation,
        **({} if reserved is None else {"reserved_resources": [resource.id for resource in reserved]}),
        "walltime": view.walltime,
        "submissionTime": job.submission_time,
        "submission_time": job.submission_time,
        "startTime": start,
        "start_time": start,
        "stopTime": job.stop_time,
        "stop_time": job.stop_time,
        "cpuset_name": job.cpuset_name,
        "initial_request": view.initial_request,
        "message": job.message,
        "scheduledStart": scheduled,
        "scheduled_start": scheduled,
        "foreseen_at": view.foreseen_at or None,
        "resubmit_job_id": job.resubmit_job_id,
        "resubmitted_as": view.resubmitted_as,
        "events": [event_record(event) for event in view.events],
        **_end_record(view),
    }


class JobRecords(Mapping[int, dict[str, object]]):
    """The records of jobs, by id.  Each is made when it is read: ten thousand at a time would need 30 MB."""

    def __init__(self, views: Sequence[JobView]) -> None:
        self._views = {view.job.id: view for view in views}

    def __getitem__(self, job_id: int) -> dict[str, object]:
        return job_record(self._views[job_id])

    def __iter__(self) -> Iterator[int]:
        return iter(self._views)

    def __len__(self) -> int:
        return len(self._views)


def _end_record(view: JobView) -> dict[str, object]:
    """Return the fields that no older version had: why a job ended and what it used."""
    end, usage = view.end, view.usage
    fullest = usage.fullest if usage else None
    return {
        "end": end.record if end else None,
        "cpu_seconds": usage.cpu_seconds if usage else None,
        "cpu_efficiency": usage.efficiency if usage else None,
        "max_rss": fullest.memory_peak if fullest else None,
    }
