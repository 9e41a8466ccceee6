"""Jobs as users see them: records, from which every output format is made.

The records of many jobs need a few queries, one for each table.  ``Privacy`` decides what a user sees of the jobs of
others (docs/design/formats.rst, "Privacy").
"""

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from oar.lib.db.listings import Assigned, PlannedResource, Prediction
from oar.lib.facts import output_names
from oar.lib.facts.errors import NoSuchJob
from oar.lib.facts.records import Cause, Dependency, Event, Job, Moldable
from oar.lib.facts.request import format_wanted_resources
from oar.lib.facts.states import NOT_STARTED, JobType, Reservation
from oar.lib.views.events import event_record
from oar.lib.views.privacy import Privacy

if TYPE_CHECKING:
    from oar.lib.db.statements import About
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
    def version(self) -> str:
        """What is another text after each change by somebody: its last event, and its state."""
        return f"{self.events[-1].id if self.events else 0}.{self.job.state}"

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


class _Beside(NamedTuple):
    """What is beside jobs in other tables, by job."""

    types: Mapping[int, tuple[str, ...]]
    moldables: Mapping[int, Sequence[Moldable]]
    dependencies: Mapping[int, Sequence[Dependency]]
    assigned: Mapping[int, Assigned]
    predictions: Mapping[int, Prediction]
    events: Mapping[int, Sequence[Event]]
    reservations: Mapping[int, int]


class _Ends(NamedTuple):
    """What is told of jobs that have ended, by job."""

    causes: Mapping[int, Cause] = MappingProxyType({})
    copies: Mapping[int, int] = MappingProxyType({})
    copies_of_all: Mapping[int, int] = MappingProxyType({})
    usages: "Mapping[int, JobUsage]" = MappingProxyType({})


def job_view(tx: "Transaction", job_id: int, privacy: Privacy) -> JobView:
    """Return the view of one job; while it lives that is one statement.  Raises NoSuchJob."""
    jobs, *beside = tx.about([job_id], tx.jobs.ROWS, *_questions(tx))
    if not jobs:
        raise NoSuchJob(job_id)
    (view,) = _views(tx, jobs, _Beside(*beside), privacy)
    return view


def job_views(tx: "Transaction", jobs: Sequence[Job], privacy: Privacy) -> list[JobView]:
    """Return the views of jobs, in their order."""
    if not jobs:
        return []
    return _views(tx, jobs, _Beside(*tx.about([job.id for job in jobs], *_questions(tx))), privacy)


def _questions(tx: "Transaction") -> "tuple[About, ...]":
    """Return what is asked of all jobs, in the order of ``_Beside``."""
    of_rows = (tx.jobs.TYPES, tx.jobs.MOLDABLES, tx.jobs.DEPENDENCIES)
    return (*of_rows, tx.listings.ASSIGNED, tx.listings.PREDICTIONS, tx.events.OF_JOBS, tx.advance_reservations.NUMBERS)


def _views(tx: "Transaction", jobs: Sequence[Job], beside: _Beside, privacy: Privacy) -> list[JobView]:
    predictions = {
        job.id: beside.predictions[job.id] for job in jobs if job.state in NOT_STARTED and job.id in beside.predictions
    }
    reserved = [job.id for job in jobs if job.reservation is Reservation.SCHEDULED and job.id in predictions]
    planned = tx.listings.planned([predictions[job_id].moldable for job_id in reserved])
    ends = _ends(tx, [job for job in jobs if job.is_final])
    nothing = Assigned((), ())
    return [
        JobView(
            job,
            beside.types.get(job.id, ()),
            tuple(beside.moldables.get(job.id, ())),
            tuple(beside.dependencies.get(job.id, ())),
            beside.assigned.get(job.id, nothing),
            tuple(planned.get(predictions[job.id].moldable, ())) if job.id in predictions else (),
            predictions.get(job.id),
            privacy.events(beside.events.get(job.id, ())),
            privacy.command(job),
            privacy.initial_request(job),
            ends.causes.get(job.id),
            ends.copies.get(job.id),
            ends.usages.get(job.id),
            beside.reservations.get(job.id, 0),
            ends.copies_of_all.get(job.id),
        )
        for job in jobs
    ]


def _ends(tx: "Transaction", ended: Sequence[Job]) -> _Ends:
    if not ended:
        return _Ends()
    from oar.lib.views.job_usage import usages_of

    questions = (tx.job_ends.CAUSES, tx.resubmissions.COPIES, tx.listings.COPIES, tx.job_ends.USAGE)
    causes, copies, copies_of_all, reported = tx.about([job.id for job in ended], *questions)
    usages = {usage.job.id: usage for usage in usages_of(tx, ended, reported, None)}
    return _Ends(causes, copies, copies_of_all, usages)


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
