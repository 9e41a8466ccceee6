"""Jobs for users: all data of each job, from which every output format is rendered.

Loading many jobs needs a few queries, one for each table. ``Privacy`` decides which fields of other users' jobs a user
can see (docs/design/formats.rst, "Privacy").
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import repeat
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, overload

from oar.lib.base.errors import NoSuchJob
from oar.lib.history.records import Event
from oar.lib.jobs import output_names
from oar.lib.jobs.ends import Cause, CauseText, cause_text
from oar.lib.jobs.privacy import Privacy
from oar.lib.jobs.records import Dependency, Job, Moldable
from oar.lib.jobs.sql_listings import Assigned, PlannedResource, Prediction
from oar.lib.jobs.states import FINAL, NOT_STARTED, JobType, Reservation

if TYPE_CHECKING:
    from oar.lib.db.statements import About
    from oar.lib.db.transaction import Transaction
    from oar.lib.jobs.usage import JobUsage

T = TypeVar("T")

INTERACTIVE_OUTPUT = "<interactive shell>"


class JobView(NamedTuple):
    """All data of a job that users can see."""

    job: Job
    types: tuple[str, ...]
    moldables: Sequence[Moldable]
    dependencies: Sequence[Dependency]
    assigned: Assigned
    planned: Sequence[PlannedResource]  #: of an accepted reservation that has not started
    prediction: Prediction | None
    events: tuple[Event, ...]
    command: str  #: '' if the user may not see it
    initial_request: str  #: '' if the user may not see it
    cause: Cause | None = None  #: why it ended, if that is known
    copy: int | None = None  #: the job as which it was resubmitted automatically
    usage: "JobUsage | None" = None  #: what it used, once it has ended
    advance_reservation: int = 0  #: number of the one that it is in, or the frame of; 0 = none
    resubmitted_as: int | None = None  #: the last job as which it was resubmitted, automatically or by a user
    notify: str = ""  #: '' if the user may not see it

    @property
    def version(self) -> str:
        """A string that changes with each change of the job by a user: its last event, and its state."""
        return f"{self.events[-1].id if self.events else 0}.{self.job.state}"

    @property
    def end(self) -> "JobEnd | None":
        """The end cause with its texts; None if no cause is stored."""
        if self.cause is None:
            return None
        return job_end(self.job, self.cause, next(iter(self.assigned.nodes), None), self.copy)

    @property
    def scheduled_start(self) -> int | None:
        """The predicted start; None if there is none or the job has started."""
        return self.prediction.start if self.prediction and self.job.state in NOT_STARTED else None

    @property
    def foreseen_at(self) -> int:
        """The time from which the prediction may date; 0 for one of the last scheduling pass, and for reservations."""
        is_agreed = self.job.reservation is not Reservation.NONE
        return 0 if self.scheduled_start is None or is_agreed or not self.prediction else self.prediction.foreseen_at

    @property
    def walltime(self) -> int | None:
        """The walltime of the chosen or predicted alternative, else of the first one."""
        return walltime_of(self.moldables, self.job.assigned_moldable, self.prediction)

    @property
    def reserved_resources(self) -> Sequence[PlannedResource] | None:
        """The resources of an accepted reservation before its start; None for other jobs."""
        is_waiting = self.job.reservation is Reservation.SCHEDULED and self.job.state in NOT_STARTED
        return self.planned if is_waiting else None

    @property
    def stdout_file(self) -> str:
        """Name of the standard output file."""
        return self._output(self.job.stdout_file)

    @property
    def stderr_file(self) -> str:
        """Name of the standard error file."""
        return self._output(self.job.stderr_file)

    def _output(self, pattern: str | None) -> str:
        if self.job.job_type is JobType.INTERACTIVE:
            return INTERACTIVE_OUTPUT
        return output_names.expand(pattern or "", self.job, self.assigned.nodes[0] if self.assigned.nodes else None)


def walltime_of(moldables: Sequence[Moldable], assigned: int, prediction: Prediction | None) -> int | None:
    """Return the walltime of the chosen or predicted alternative, else of the first one."""
    if len(moldables) == 1:
        return moldables[0].walltime
    chosen = assigned or (prediction.moldable if prediction else 0)
    for moldable in moldables:
        if moldable.id == chosen:
            return moldable.walltime
    return moldables[0].walltime if moldables else None


class JobColumns(Sequence[JobView]):
    """The views of many jobs, stored by field: records are created without one object per job."""

    def __init__(self, fields: Sequence[Sequence[Any]]) -> None:
        """``fields``: the fields of ``JobView``, each with the values of all jobs."""
        self._fields = fields

    def __len__(self) -> int:
        return len(self._fields[0])

    def __iter__(self) -> Iterator[JobView]:
        return map(JobView._make, zip(*self._fields, strict=True))

    @overload
    def __getitem__(self, place: int) -> JobView: ...

    @overload
    def __getitem__(self, place: slice) -> "JobColumns": ...

    def __getitem__(self, place: int | slice) -> "JobView | JobColumns":
        if isinstance(place, slice):
            return JobColumns([field[place] for field in self._fields])
        return JobView._make([field[place] for field in self._fields])

    @property
    def fields(self) -> Any:
        """A ``JobView`` in which each field contains the values of all jobs."""
        return JobView._make(self._fields)


class _Beside(NamedTuple):
    """Data about jobs from other tables, by job."""

    types: Mapping[int, tuple[str, ...]]
    moldables: Mapping[int, Sequence[Moldable]]
    dependencies: Mapping[int, Sequence[Dependency]]
    assigned: Mapping[int, Assigned]
    predictions: Mapping[int, Prediction]
    events: Mapping[int, Sequence[Event]]
    reservations: Mapping[int, int]


def job_view(tx: "Transaction", job_id: int, privacy: Privacy) -> JobView:
    """Return the view of one job; a live job needs only one SQL statement. Raises NoSuchJob."""
    jobs, *beside = tx.about([job_id], tx.jobs.ROWS, *_questions(tx))
    if not jobs:
        raise NoSuchJob(job_id)
    (view,) = _columns(tx, jobs, _Beside(*beside), privacy)
    return view


def job_views(tx: "Transaction", jobs: Sequence[Job], privacy: Privacy) -> list[JobView]:
    """Return the views of jobs, in their order."""
    return list(job_columns(tx, jobs, privacy))


def job_columns(tx: "Transaction", jobs: Sequence[Job], privacy: Privacy) -> JobColumns:
    """Return the views of jobs, in their order, stored by field."""
    if not jobs:
        return JobColumns([()] * len(JobView._fields))
    questions = _questions(tx)
    if not any(job.assigned_moldable for job in jobs):  # no job has resources: skip their query
        questions = tuple([question for question in questions if question is not tx.listings.ASSIGNED])
    answers = dict(zip(questions, tx.about([job.id for job in jobs], *questions), strict=True))
    return _columns(tx, jobs, _Beside(*[answers.get(question, {}) for question in _questions(tx)]), privacy)


def _questions(tx: "Transaction") -> "tuple[About, ...]":
    """Return the queries for all jobs, in the order of ``_Beside``."""
    of_rows = (tx.jobs.TYPES, tx.new_jobs.OF_JOBS, tx.jobs.DEPENDENCIES)
    return (*of_rows, tx.listings.ASSIGNED, tx.listings.PREDICTIONS, tx.events.OF_JOBS, tx.reservations.NUMBERS)


def _columns(tx: "Transaction", jobs: Sequence[Job], beside: _Beside, privacy: Privacy) -> JobColumns:
    foreseen, scheduled, final = beside.predictions, Reservation.SCHEDULED, tuple(FINAL)
    predictions = {}
    if foreseen:
        predictions = {job.id: foreseen[job.id] for job in jobs if job.id in foreseen and job.state in NOT_STARTED}
    reserved = [job.id for job in jobs if job.reservation is scheduled and job.id in predictions]
    planned = tx.listings.planned([predictions[job_id].moldable for job_id in reserved])
    causes, copies, copies_of_all, usages = _ends(tx, [job for job in jobs if job.state in final])
    ids = [job.id for job in jobs]
    commands, initial_requests, notifications = privacy.texts(jobs)
    fields: list[Sequence[object]] = [
        jobs,
        _of_each(ids, beside.types, ()),
        _of_each(ids, beside.moldables, ()),
        _of_each(ids, beside.dependencies, ()),
        _of_each(ids, beside.assigned, Assigned((), ())),
        _of_each(ids, {job_id: planned.get(predictions[job_id].moldable, ()) for job_id in reserved}, ()),
        _of_each(ids, predictions, None),
        _of_each(ids, {job_id: privacy.events(events) for job_id, events in beside.events.items()}, ()),
        commands,
        initial_requests,
        _of_each(ids, causes, None),
        _of_each(ids, copies, None),
        _of_each(ids, usages, None),
        _of_each(ids, beside.reservations, 0),
        _of_each(ids, copies_of_all, None),
        notifications,
    ]
    return JobColumns(fields)


def _of_each(ids: Sequence[int], found: Mapping[int, T], missing: T) -> list[T]:
    """Return the value of each job, or ``missing``, in the order of the ids. Optimized for ten thousand jobs."""
    return list(map(found.get, ids, repeat(missing))) if found else [missing] * len(ids)


def _ends(
    tx: "Transaction", ended: Sequence[Job]
) -> "tuple[Mapping[int, Cause], Mapping[int, int], Mapping[int, int], Mapping[int, JobUsage]]":
    """Return the causes, the automatic copies, all copies, and the usage of ended jobs, each by job."""
    if not ended:
        return {}, {}, {}, {}
    from oar.lib.jobs.usage import usages_of

    questions = (tx.job_runs.CAUSES, tx.new_jobs.COPIES, tx.listings.COPIES, tx.job_runs.USAGE)
    causes, copies, copies_of_all, reported = tx.about([job.id for job in ended], *questions)
    return causes, copies, copies_of_all, {usage.job.id: usage for usage in usages_of(tx, ended, reported, None)}


class JobTimes(NamedTuple):
    """The start, the walltime and the remaining time of a job."""

    start: int | None  #: of a waiting job, the predicted start; None if there is none
    walltime: int | None
    remaining: int | None  #: seconds until its walltime is over; None for a job that does not run


def job_times(tx: "Transaction", jobs: Sequence[Job]) -> dict[int, JobTimes]:
    """Return the times of jobs; times of suspension do not count."""
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


class JobEnd(NamedTuple):
    """The end cause of a job, with its texts."""

    cause: Cause
    text: CauseText
    copy: int | None  #: the job as which it was resubmitted automatically

    @property
    def record(self) -> dict[str, object]:
        """The fields for machine formats."""
        return {
            "cause": self.cause.code,
            "data": self.cause.data,
            "sentence": self.text.sentence,
            "advice": self.text.advice,
            "resubmitted_as": self.copy,
        }


def job_ends(tx: "Transaction", jobs: Collection[Job]) -> dict[int, JobEnd]:
    """Return the end causes of jobs, without jobs whose cause is unknown."""
    ended = {job.id: job for job in jobs if job.is_final}
    causes = tx.job_runs.end_causes(ended)
    if not causes:
        return {}
    assigned, copies = tx.listings.assigned(causes), tx.new_jobs.resubmitted_copies(causes)
    first_nodes = {job_id: next(iter(held.nodes), None) for job_id, held in assigned.items()}
    return {
        job_id: job_end(ended[job_id], cause, first_nodes.get(job_id), copies.get(job_id))
        for job_id, cause in causes.items()
    }


def job_end(job: Job, cause: Cause, host: str | None, copy: int | None) -> JobEnd:
    """Return an end cause with its texts. ``host``: the first node of the job; ``copy``: its automatic resubmission."""
    has_stderr = job.job_type is JobType.PASSIVE and bool(job.stderr_file) and bool(job.started)
    stderr = output_names.expand(job.stderr_file or "", job, host) if has_stderr else ""
    if stderr and not stderr.startswith("/"):
        stderr = f"{job.launching_directory.rstrip('/')}/{stderr}"
    return JobEnd(cause, cause_text(cause, job.id, stderr, copy), copy)


# -- dependencies -----------------------------------------------------------------------------------------------------

#: Steps in each direction of the dependency graph.
DEPENDENCY_STEPS = 3
#: Dependencies that are shown in each direction, at most.
MAX_DEPENDENCIES = 1000


class JobsAround(NamedTuple):
    """The jobs before and after a job in the dependency graph."""

    job_id: int
    jobs: tuple[Job, ...]  #: those that still exist, by id, the job itself among them
    dependencies: tuple[Dependency, ...]
    is_complete: bool  #: whether nothing was left out because there is too much of it

    @property
    def record(self) -> dict[str, object]:
        """The fields for machine formats."""
        return {
            "dependencies": [
                {
                    "job": dependency.job_id,
                    "requires": dependency.required,
                    "condition": dependency.condition or None,
                    "min_shift": dependency.min_shift or None,
                    "max_shift": dependency.max_shift or None,
                }
                for dependency in self.dependencies
            ],
            "jobs": [{"id": job.id, "user": job.user, "name": job.name, "state": job.state} for job in self.jobs],
            "complete": self.is_complete,
        }


def jobs_around(tx: "Transaction", job_id: int) -> JobsAround:
    """Return the dependencies of a job and the jobs that depend on it, up to ``DEPENDENCY_STEPS`` steps."""
    before = _follow(job_id, tx.new_jobs.dependencies_of, attrgetter("required"))
    after = _follow(job_id, tx.new_jobs.dependencies_on, attrgetter("job_id"))
    dependencies = tuple(sorted({*before[:MAX_DEPENDENCIES], *after[:MAX_DEPENDENCIES]}))
    ids = {job_id}.union(*((dependency.job_id, dependency.required) for dependency in dependencies))
    jobs = tuple(sorted(tx.jobs.select(sorted(ids)), key=attrgetter("id")))
    return JobsAround(job_id, jobs, dependencies, max(len(before), len(after)) <= MAX_DEPENDENCIES)


def _follow(
    job_id: int,
    load: Callable[[Collection[int], int], Collection[Dependency]],
    other_job: Callable[[Dependency], int],
) -> list[Dependency]:
    """Return the dependencies in one direction; more than ``MAX_DEPENDENCIES`` results show that there are others."""
    dependencies: list[Dependency] = []
    seen, reached = {job_id}, {job_id}
    for _ in range(DEPENDENCY_STEPS):
        if not reached or len(dependencies) > MAX_DEPENDENCIES:
            break
        step = load(reached, MAX_DEPENDENCIES + 1)
        dependencies += step
        reached = set(map(other_job, step)) - seen
        seen |= reached
    return dependencies
