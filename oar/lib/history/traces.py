"""Traces of ended jobs for simulators: the records, and the lines of each format."""

from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from oar.lib.base.version import VERSION
from oar.lib.history.completions import completions
from oar.lib.jobs.ends import Cause, EndCode
from oar.lib.jobs.records import Job
from oar.lib.jobs.states import JobState

if TYPE_CHECKING:
    from oar.lib.db.database import Database
    from oar.lib.db.transaction import Transaction


UNKNOWN = -1

#: Ends that somebody wanted: the job did not fail.
_CANCELLED = frozenset(
    {
        *(EndCode.DELETED, EndCode.ADMINISTRATOR, EndCode.MANAGER, EndCode.EVICTED, EndCode.CONTAINER),
        *(EndCode.RESERVATION, EndCode.NODE_TAKEN, EndCode.STOPPED),
    }
)

OWN_COLUMNS = (
    *("job_id", "submit", "wait", "run", "processors", "walltime", "state", "exit_code", "cause"),
    *("user", "project", "queue", "resources", "types", "required", "array_id"),
)


class TraceFormat(StrEnum):
    SWF = "swf"
    OWF = "owf"


class TraceStatus:
    """Values of the status field of the standard format."""

    FAILED, COMPLETED, CANCELLED = 0, 1, 5


class TracedJob(NamedTuple):
    """The data of a job in a trace."""

    job: Job
    cause: Cause
    elapsed: int  #: seconds that it ran
    walltime: int
    processors: int  #: that it had
    resources: tuple[int, ...]
    types: tuple[str, ...]
    required: int  #: the first job that it depended on; 0 = none
    cpu_seconds: float | None
    max_rss: int | None  #: bytes, on the node where it was the most

    @property
    def status(self) -> int:
        """The status of the end in the standard format."""
        if not self.job.started or self.cause.code in _CANCELLED:
            return TraceStatus.CANCELLED
        is_good = self.job.state is JobState.TERMINATED and not self.job.exit_code
        return TraceStatus.COMPLETED if is_good else TraceStatus.FAILED


class Origin(NamedTuple):
    """The start date of a trace, its totals, and the numbers that replace names."""

    start: int  #: the first submission, epoch seconds
    jobs: int
    processors: int
    nodes: int
    users: Mapping[str, int]
    projects: Mapping[str, int]
    queues: Mapping[str, int]


def numbered(names: Sequence[str]) -> dict[str, int]:
    """Return a number for each name, from 1.

    >>> numbered(["b", "a"])
    {'a': 1, 'b': 2}
    """
    return {name: number for number, name in enumerate(sorted(set(names)), start=1)}


def head(origin: Origin, form: TraceFormat, *, anonymous: bool) -> list[str]:
    """Return the header lines; ``anonymous``: without names of users and projects."""
    if form is TraceFormat.OWF:
        return [f"; start: {origin.start}", "; " + "\t".join(OWN_COLUMNS)]
    lines = [
        "; Version: 2.2",
        f"; Computer: OAR {VERSION}",
        f"; MaxJobs: {origin.jobs}",
        f"; MaxRecords: {origin.jobs}",
        f"; UnixStartTime: {origin.start}",
        f"; MaxNodes: {origin.nodes}",
        f"; MaxProcs: {origin.processors}",
        f"; MaxQueues: {len(origin.queues)}",
        *(f"; Queue: {number} {_plain(name)}" for name, number in origin.queues.items()),
    ]
    if not anonymous:
        lines += [f"; User: {number} {_plain(name)}" for name, number in origin.users.items()]
        lines += [f"; Group: {number} {_plain(name)}" for name, number in origin.projects.items()]
    return lines


def standard_line(traced: TracedJob, origin: Origin) -> str:
    """Return the 18 numbers of a job in the standard format."""
    job, had = traced.job, bool(traced.job.started)
    processors = traced.processors if had else UNKNOWN
    cpu, memory = traced.cpu_seconds, traced.max_rss
    fields = (
        job.id,
        job.submission_time - origin.start,
        job.started - job.submission_time if had else UNKNOWN,
        traced.elapsed if had else UNKNOWN,
        processors,
        round(cpu / processors) if cpu is not None and processors > 0 else UNKNOWN,
        memory // 1024 // processors if memory is not None and processors > 0 else UNKNOWN,
        processors,
        traced.walltime or UNKNOWN,
        UNKNOWN,
        traced.status,
        origin.users.get(job.user, UNKNOWN),
        origin.projects.get(job.project, UNKNOWN),
        UNKNOWN,
        origin.queues.get(job.queue, UNKNOWN),
        UNKNOWN,
        traced.required or UNKNOWN,
        UNKNOWN,
    )
    return " ".join(map(str, fields))


def own_line(traced: TracedJob, origin: Origin, *, anonymous: bool) -> str:
    """Return the columns of a job, separated by tabs; ``-`` stands for unknown and missing values."""
    job, had = traced.job, bool(traced.job.started)
    user = str(origin.users.get(job.user, UNKNOWN)) if anonymous else job.user
    project = str(origin.projects.get(job.project, UNKNOWN)) if anonymous else job.project
    fields: tuple[object, ...] = (
        job.id,
        job.submission_time - origin.start,
        job.started - job.submission_time if had else UNKNOWN,
        traced.elapsed if had else UNKNOWN,
        traced.processors,
        traced.walltime or UNKNOWN,
        job.state,
        "" if job.exit_code is None else job.exit_code,
        traced.cause.code,
        user,
        project,
        job.queue,
        intervals(traced.resources),
        ",".join(traced.types),
        traced.required or "",
        job.array_id,
    )
    return "\t".join(_plain(str(field)) or "-" for field in fields)


def intervals(numbers: Sequence[int]) -> str:
    """Return numbers as ranges, separated by blanks.

    >>> intervals([8, 1, 2, 3])
    '1-3 8'
    """
    ranges: list[list[int]] = []
    for number in sorted(numbers):
        if ranges and number == ranges[-1][1] + 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    return " ".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges)


def _plain(text: str) -> str:
    """Return the text with `_` in place of characters that are not printable."""
    return "".join(letter if letter.isprintable() else "_" for letter in text)


class TraceOptions(NamedTuple):
    form: TraceFormat
    first: int  #: ids of jobs, from one to another
    last: int
    start: int  #: dates of their submission, from one to another
    stop: int
    property: str = ""  #: a processor is a value of this property; '' = a resource of the type default
    chunk: int = 10_000  #: jobs that are read at once
    anonymous: bool = False


def trace(database: "Database", options: TraceOptions) -> Iterator[str]:
    """Yield the lines of a trace. Each chunk is read in its own transaction. Raises DatabaseUnavailable."""
    with database.snapshot() as tx:
        resources = [resource for resource in tx.resources.all() if resource.type == "default"]
        name = options.property
        processors = {resource.id: resource.properties[name] if name else resource.id for resource in resources}
        origin = _origin(tx, options, processors)
    yield from head(origin, options.form, anonymous=options.anonymous)
    after = options.first - 1
    while True:
        with database.snapshot() as tx:
            limits = {"start": options.start, "stop": options.stop, "limit": options.chunk}
            ids = tx.jobs.next_ended(after, options.last, **limits)
            traced = list(_traced(tx, tx.jobs.select(ids), processors)) if ids else []
        for job in traced:
            is_own = options.form is TraceFormat.OWF
            yield own_line(job, origin, anonymous=options.anonymous) if is_own else standard_line(job, origin)
        if len(ids) < options.chunk:
            return
        after = ids[-1]


def resource_records(database: "Database") -> list[dict[str, object]]:
    """Return all resources with their properties, for the file that accompanies a trace. Raises DatabaseUnavailable."""
    with database.snapshot() as tx:
        return [dict(resource.properties) for resource in tx.resources.all()]


def _origin(tx: "Transaction", options: TraceOptions, processors: Mapping[int, object]) -> Origin:
    summary = tx.jobs.ended_summary(options.first, options.last, start=options.start, stop=options.stop)
    return Origin(
        summary.first_submission,
        summary.number,
        len(set(processors.values())),
        len(tx.resources.nodes()),
        *(numbered(names) for names in (summary.users, summary.projects, summary.queues)),
    )


def _traced(tx: "Transaction", jobs: Sequence[Job], processors: Mapping[int, object]) -> Iterator[TracedJob]:
    """Yield the data of ended jobs; of their resources, a deleted one counts as a processor."""
    dependencies = tx.jobs.dependencies([job.id for job in jobs])
    for ended in completions(tx, jobs):
        known = {processors[resource] for resource in ended.resources if resource in processors}
        fullest = ended.usage.fullest
        yield TracedJob(
            ended.job,
            ended.cause,
            ended.usage.elapsed,
            ended.walltime,
            len(known) + sum(resource not in processors for resource in ended.resources),
            ended.resources,
            ended.types,
            min((other.required for other in dependencies.get(ended.job.id, ())), default=0),
            ended.usage.cpu_seconds,
            fullest.memory_peak if fullest else None,
        )
