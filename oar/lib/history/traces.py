"""Traces: the ended jobs of a database as the lines of a file."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from oar.lib.history.completions import Completion, completions
from oar.lib.history.workload_formats import Origin, TracedJob, TraceFormat, head, numbered, own_line, standard_line
from oar.lib.jobs.records import Job

if TYPE_CHECKING:
    from oar.lib.db.database import Database
    from oar.lib.db.transaction import Transaction


class TraceWish(NamedTuple):
    """Which jobs are traced, and how."""

    form: TraceFormat
    first: int  #: ids of jobs, from one to another
    last: int
    start: int  #: dates of their submission, from one to another
    stop: int
    property: str = ""  #: a processor is a value of this property; '' = a resource of the type default
    chunk: int = 10_000  #: jobs that are read at once
    anonymous: bool = False


def trace(database: "Database", wish: TraceWish) -> Iterator[str]:
    """Give the lines of a trace.  Each piece is read in a transaction of its own.  Raises DatabaseUnavailable."""
    with database.snapshot() as tx:
        processors = _processors(tx, wish.property)
        origin = _origin(tx, wish, processors)
    yield from head(origin, wish.form, anonymous=wish.anonymous)
    after = wish.first - 1
    while True:
        with database.snapshot() as tx:
            limits = {"start": wish.start, "stop": wish.stop, "limit": wish.chunk}
            ids = tx.jobs.next_ended(after, wish.last, **limits)
            traced = list(_traced(tx, tx.jobs.select(ids), processors)) if ids else []
        for each in traced:
            is_own = wish.form is TraceFormat.OWF
            yield own_line(each, origin, anonymous=wish.anonymous) if is_own else standard_line(each, origin)
        if len(ids) < wish.chunk:
            return
        after = ids[-1]


def resource_records(database: "Database") -> list[dict[str, object]]:
    """Return all resources with their properties, for the file beside a trace.  Raises DatabaseUnavailable."""
    with database.snapshot() as tx:
        return [dict(resource.properties) for resource in tx.resources.all()]


def _processors(tx: "Transaction", name: str) -> Mapping[int, object]:
    """Return the processor that each resource is; resources that are none are left out."""
    resources = [resource for resource in tx.resources.all() if resource.type == "default"]
    return {resource.id: resource.properties[name] if name else resource.id for resource in resources}


def _origin(tx: "Transaction", wish: TraceWish, processors: Mapping[int, object]) -> Origin:
    summary = tx.jobs.ended_summary(wish.first, wish.last, start=wish.start, stop=wish.stop)
    return Origin(
        summary.first_submission,
        summary.number,
        len(set(processors.values())),
        len(tx.resources.nodes()),
        *(numbered(names) for names in (summary.users, summary.projects, summary.queues)),
    )


def _traced(tx: "Transaction", jobs: Sequence[Job], processors: Mapping[int, object]) -> Iterator[TracedJob]:
    dependencies = tx.jobs.dependencies([job.id for job in jobs])
    for each in completions(tx, jobs):
        required = min((other.required for other in dependencies.get(each.job.id, ())), default=0)
        yield _traced_job(each, processors, required)


def _traced_job(each: Completion, processors: Mapping[int, object], required: int) -> TracedJob:
    fullest = each.usage.fullest
    return TracedJob(
        each.job,
        each.cause,
        each.usage.elapsed,
        each.walltime,
        _count(each.resources, processors),
        each.resources,
        each.types,
        required,
        each.usage.cpu_seconds,
        fullest.memory_peak if fullest else None,
    )


def _count(resources: Sequence[int], processors: Mapping[int, object]) -> int:
    """Return how many processors some resources are; one that has been removed since counts as one."""
    known = Counter(processors[resource] for resource in resources if resource in processors)
    gone = sum(1 for resource in resources if resource not in processors)
    return len(known) + gone
