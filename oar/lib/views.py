"""What users see of jobs, nodes and consumption: records, from which every format and every face is made.

A record is built from a few queries, one for each table, whatever the number of jobs.  What one user may see of
another's job is decided here (commands-user.md 13), by ``Privacy``.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from oar.lib import patterns
from oar.lib.db import listings
from oar.lib.db.listings import Assigned, PlannedResource, Prediction
from oar.lib.ends import End, Use, end_of, uses
from oar.lib.model import SYSTEM_PROPERTIES, Cause, Dependency, Event, Job, Moldable, User
from oar.lib.request import format_wanted_resources
from oar.lib.resource_set import format_ranges
from oar.lib.states import ALWAYS_AVAILABLE, NOT_STARTED, JobType, Reservation, ResourceState

if TYPE_CHECKING:
    from oar.lib.config import Config
    from oar.lib.db.accounting import Consumption
    from oar.lib.db.engine import Transaction

INTERACTIVE_OUTPUT = "<interactive shell>"


class Privacy(NamedTuple):
    """What somebody may see of the jobs of others."""

    user: User | None  #: None = nobody who is identified
    shows_requests: bool = False
    hides_commands: bool = False

    def command(self, job: Job) -> str:
        """Return the command of a job, if it may be seen."""
        is_hidden = self.user is None or (self.hides_commands and not self._is_ones_own(job))
        return "" if is_hidden else job.command or ""

    def initial_request(self, job: Job) -> str:
        """Return the command line of a submission, if it may be seen."""
        is_open = self.user is not None and self.shows_requests and not self.hides_commands
        return job.initial_request or "" if is_open or self._is_ones_own(job) else ""

    def _is_ones_own(self, job: Job) -> bool:
        return self.user is not None and (self.user.is_admin or self.user.name == job.user)


def privacy(config: "Config", user: User | None) -> Privacy:
    """Return what oar.conf lets somebody see."""
    return Privacy(
        user,
        shows_requests=config.oarstat_show_other_users_initial_request,
        hides_commands=config.oarstat_private,
    )


# --------------------------------------------------------------------------------------------------------------- jobs


class JobView(NamedTuple):
    """All that is shown of a job."""

    job: Job
    types: tuple[str, ...]
    moldables: tuple[Moldable, ...]
    dependencies: tuple[Dependency, ...]
    assigned: Assigned
    planned: tuple[PlannedResource, ...]  #: of an accepted reservation that has not started
    prediction: Prediction | None
    events: tuple[Event, ...]
    command: str  #: '' where it may not be seen
    initial_request: str  #: '' where it may not be seen
    cause: Cause | None = None  #: why it ended, if that is known
    copy: int | None = None  #: the job as which it was submitted again by itself
    use: Use | None = None  #: what it used, once it has ended
    resubmitted_as: int | None = None  #: the job as which it was submitted again last, by itself or by somebody

    @property
    def end(self) -> End | None:
        """Why it ended, in words too."""
        if self.cause is None:
            return None
        return end_of(self.job, self.cause, next(iter(self.assigned.nodes), None), self.copy)

    @property
    def scheduled_start(self) -> int | None:
        """When the scheduler means to start it; None if it does not know or the job was started."""
        return self.prediction.start if self.prediction and self.job.state in NOT_STARTED else None

    @property
    def walltime(self) -> int | None:
        """Walltime of the alternative that was chosen, else of the first."""
        chosen = self.job.assigned_moldable or (self.prediction.moldable if self.prediction else 0)
        for each in self.moldables:
            if each.id == chosen:
                return each.walltime
        return self.moldables[0].walltime if self.moldables else None

    @property
    def wanted_resources(self) -> str:
        """The alternatives as they are written with -l."""
        return format_wanted_resources(self.moldables)

    @property
    def reserved_resources(self) -> tuple[PlannedResource, ...] | None:
        """What an accepted reservation will have; None for other jobs and from its start on."""
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
        return patterns.expand(pattern or "", self.job, self.assigned.nodes[0] if self.assigned.nodes else None)


def job_views(tx: "Transaction", jobs: Sequence[Job], privacy: Privacy) -> list[JobView]:
    """Return what is shown of jobs, in their order."""
    ids = [job.id for job in jobs]
    if not ids:
        return []
    types, moldables, dependencies = tx.jobs.types(ids), tx.jobs.moldables(ids), tx.jobs.dependencies(ids)
    assigned = listings.assigned(tx, ids)
    predictions = listings.predictions(tx, [job.id for job in jobs if job.state in NOT_STARTED])
    reserved = [job.id for job in jobs if job.reservation is Reservation.SCHEDULED and job.id in predictions]
    planned = listings.planned(tx, [predictions[job_id].moldable for job_id in reserved])
    events = tx.events.of_jobs(ids)
    over = [job for job in jobs if job.is_final]
    causes, copies = _causes(tx, [job.id for job in over])
    again = listings.copies(tx, [job.id for job in over])
    used = {use.job.id: use for use in uses(tx, over, None)}
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
            privacy.command(job),
            privacy.initial_request(job),
            causes.get(job.id),
            copies.get(job.id),
            used.get(job.id),
            again.get(job.id),
        )
        for job in jobs
    ]


def _causes(tx: "Transaction", over: Sequence[int]) -> tuple[Mapping[int, Cause], Mapping[int, int]]:
    """Return why jobs ended, and the copies of those that were submitted again by themselves."""
    return (tx.ends.causes(over), tx.ends.copies(over)) if over else ({}, {})


class JobTimes(NamedTuple):
    """When a job starts or has started, and for how long it runs."""

    start: int | None  #: the predicted one of a job that waits; None if there is none
    walltime: int | None
    left: int | None  #: seconds until its walltime is over; None for a job that does not run


def job_times(tx: "Transaction", jobs: Sequence[Job]) -> dict[int, JobTimes]:
    """Return the times of jobs; that in which one was suspended does not count."""
    walltimes = listings.walltimes(tx, [job.id for job in jobs])
    predictions = listings.predictions(tx, [job.id for job in jobs if job.state in NOT_STARTED])
    suspended = tx.rounds.suspended_times([job.id for job in jobs if job.suspended and not job.is_final])
    found = {}
    for job in jobs:
        start, walltime = job.started or None, walltimes.get(job.id)
        left = None
        if start and walltime is not None and not job.is_final:
            left = max(0, start + walltime + suspended.get(job.id, 0) - tx.now)
        if start is None and job.id in predictions:
            start = predictions[job.id].start
        found[job.id] = JobTimes(start, walltime, left)
    return found


def places_of_jobs(tx: "Transaction", jobs: Sequence[Job]) -> dict[int, str]:
    """Return the resources of jobs by node in one word, ``n1:1-2+5,n2:7``; '' for a job that has none."""
    found = {}
    for job_id, resources in resources_of_jobs(tx, [job.id for job in jobs]).items():
        nodes: dict[str, int] = defaultdict(int)
        for each in resources:
            nodes[each.node or "-"] |= 1 << each.id
        found[job_id] = ",".join(
            f"{node}:{format_ranges(ids).replace(',', '+')}" for node, ids in sorted(nodes.items())
        )
    return found


def job_record(view: JobView) -> dict[str, object]:
    """Return the record of a job with both families of keys that programs read (commands-user.md 5.6)."""
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
        "dependencies": [each.required for each in view.dependencies],
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
        **({} if reserved is None else {"reserved_resources": [each.id for each in reserved]}),
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
        "resubmit_job_id": job.resubmit_job_id,
        "resubmitted_as": view.resubmitted_as,
        "events": [event_record(each) for each in view.events],
        **_end_record(view),
    }


class JobRecords(Mapping[int, dict[str, object]]):
    """The records of jobs, by id.  Each is made when it is looked at: ten thousand at a time would be 30 MB."""

    def __init__(self, views: Sequence[JobView]) -> None:
        self._views = {view.job.id: view for view in views}

    def __getitem__(self, job_id: int) -> dict[str, object]:
        return job_record(self._views[job_id])

    def __iter__(self) -> Iterator[int]:
        return iter(self._views)

    def __len__(self) -> int:
        return len(self._views)


def _end_record(view: JobView) -> dict[str, object]:
    """Return what is ours to tell: why a job ended and what it used."""
    end, use = view.end, view.use
    fullest = use.fullest if use else None
    return {
        "end": end.record if end else None,
        "cpu_seconds": use.cpu_seconds if use else None,
        "cpu_efficiency": use.efficiency if use else None,
        "max_rss": fullest.memory_peak if fullest else None,
    }


def event_record(event: Event) -> dict[str, object]:
    """Return the record of an event."""
    return {
        "type": event.type,
        "event_id": event.id,
        "description": event.description,
        "job_id": event.job_id,
        "to_check": "YES" if event.to_check else "NO",
        "date": event.date,
    }


# -------------------------------------------------------------------------------------------------------------- gantt


def gantt(tx: "Transaction", start: int, stop: int, privacy: Privacy) -> dict[str, object]:
    """Return jobs and resources between two dates (commands-user.md 5.7)."""
    views = job_views(tx, tx.jobs.select(listings.jobs_between(tx, start, stop)), privacy)
    foreseen = {view.prediction.moldable: view for view in views if view.prediction and not view.job.started}
    planned = listings.planned(tx, list(foreseen))
    resources = listings.resources(tx)
    return {
        "jobs": {view.job.id: _gantt_job(view, planned) for view in views},
        "resources": resources,
        "dead_resources": dict(sorted(listings.unavailable_between(tx, start, stop).items())),
    }


def _gantt_job(view: JobView, planned: Mapping[int, Sequence[PlannedResource]]) -> dict[str, object]:
    job, assigned = view.job, view.assigned
    start, walltime = view.job.started, view.walltime or 0
    if not start and view.prediction:
        start = view.prediction.start
        coming = planned.get(view.prediction.moldable, ())
        nodes = sorted({each.node for each in coming if each.node})
        assigned = Assigned(tuple(each.id for each in coming), tuple(nodes))
    return {
        "job_id": job.id,
        "job_name": job.name or "",
        "user": job.user,
        "project": job.project,
        "queue_name": job.queue,
        "state": job.state,
        "job_type": job.job_type,
        "types": view.types,
        "properties": job.properties or "",
        "command": view.command,
        "submission_time": job.submission_time,
        "start_time": start,
        "stop_time": job.stop_time or (start + walltime if start else 0),
        "walltime": walltime,
        "resource_id": assigned.resources,
        "network_address": assigned.nodes,
        "dependencies": [each.required for each in view.dependencies],
        "events": [event_record(each) for each in view.events],
        "array_id": job.array_id,
        "array_index": job.array_index,
        "reservation": job.reservation,
        "message": job.message,
        "launching_directory": job.launching_directory,
        "stdout_file": view.stdout_file,
        "stderr_file": view.stderr_file,
        "cpuset_name": job.cpuset_name,
        "resubmit_job_id": job.resubmit_job_id,
        "initial_request": view.initial_request,
    }


# ---------------------------------------------------------------------------------------------------------- resources


class ResourceView(NamedTuple):
    """All that is shown of a resource: every column, and the live jobs on it."""

    columns: Mapping[str, Any]
    jobs: tuple[int, ...]

    @property
    def id(self) -> int:
        """Its number."""
        number: int = self.columns["resource_id"]
        return number

    @property
    def node(self) -> str:
        """The node it belongs to; '' if none."""
        name: str = self.columns["network_address"]
        return name

    @property
    def state(self) -> ResourceState:
        """Its state."""
        return ResourceState(self.columns["state"])

    def is_standby(self, now: int) -> bool:
        """Whether it is Absent, and will be woken when it is needed."""
        until = self.columns["available_upto"]
        return self.state is ResourceState.ABSENT and now < until != ALWAYS_AVAILABLE

    @property
    def described(self) -> list[tuple[str, Any]]:
        """What the job's programs are told of it, by name; None for what is not set."""
        return sorted(item for item in self.columns.items() if item[0] not in SYSTEM_PROPERTIES)

    @property
    def properties(self) -> list[tuple[str, Any]]:
        """What describes it, by name; without what is not set."""
        return [item for item in self.described if item[1] is not None]

    @property
    def record(self) -> dict[str, object]:
        """Every column; ``jobs`` only if there are some."""
        if not self.jobs:
            return dict(self.columns)
        return {**self.columns, "jobs": ", ".join(map(str, self.jobs))}


_STATE_COLUMNS = ("resource_id", "network_address", "state")


def resource_views(
    tx: "Transaction",
    *,
    ids: Collection[int] | None = None,
    nodes: Collection[str] | None = None,
    states_only: bool = False,
) -> list[ResourceView]:
    """Return what is shown of all resources, of some, or of those of some nodes; by node, those without at the end.

    ``states_only``: without jobs, and without the columns that a state does not need, which take most of the time.
    """
    held = {} if states_only else listings.jobs_on_resources(tx)
    rows = listings.resources(tx, ids=ids, nodes=nodes, columns=_STATE_COLUMNS if states_only else ("*",))
    rows.sort(key=lambda row: (not row["network_address"], row["network_address"]))  # they come by their numbers
    return [ResourceView(row, tuple(held.get(row["resource_id"], ()))) for row in rows]


def resources_of_jobs(tx: "Transaction", ids: Collection[int]) -> dict[int, list[ResourceView]]:
    """Return the resources that jobs have or had, without the jobs on them; a job without any has none."""
    assigned = listings.assigned(tx, ids)
    wanted = sorted({number for each in assigned.values() for number in each.resources})
    found = {row["resource_id"]: ResourceView(row, ()) for row in listings.resources(tx, ids=wanted)}
    return {
        job_id: [found[number] for number in assigned[job_id].resources if number in found]
        if job_id in assigned
        else []
        for job_id in ids
    }


class JobOnNode(NamedTuple):
    """What is shown of a job on one node."""

    job: Job
    resources: tuple[int, ...]  #: on this node
    total: int  #: everywhere
    types: tuple[str, ...]

    @property
    def record(self) -> dict[str, object]:
        """All of it, keys in alphabetical order; ``projet`` is how older programs spell it."""
        return {
            "assigned_resources": self.resources,
            "name": self.job.name or "",
            "owner": self.job.user,
            "project": self.job.project,
            "projet": self.job.project,
            "queue": self.job.queue,
            "resources_count": len(self.resources),
            "resources_total": self.total,
            "state": self.job.state,
            "types": self.types,
        }


def jobs_on_nodes(tx: "Transaction", views: Sequence[ResourceView]) -> dict[str, list[JobOnNode]]:
    """Return the live jobs on the nodes of some resources; a node without jobs has none."""
    places: dict[str, dict[int, list[int]]] = {view.node: defaultdict(list) for view in views if view.node}
    for view in views:
        for job_id in view.jobs if view.node else ():
            places[view.node][job_id].append(view.id)
    ids = sorted({job_id for jobs in places.values() for job_id in jobs})
    jobs = {job.id: job for job in tx.jobs.select(ids)}
    types, assigned = tx.jobs.types(ids), listings.assigned(tx, ids)
    return {
        node: [
            JobOnNode(jobs[job_id], tuple(resources), len(assigned[job_id].resources), types.get(job_id, ()))
            for job_id, resources in sorted(here.items())
            if job_id in jobs and job_id in assigned
        ]
        for node, here in places.items()
    }


# --------------------------------------------------------------------------------------------------------- accounting


class ProjectUsage(NamedTuple):
    """What a user consumed in a project, in resource seconds."""

    project: str
    asked: int
    used: int
    karma: float | None


class Usage(NamedTuple):
    """What a user consumed, in resource seconds, and the windows that were looked at."""

    user: str
    first_window_start: int
    last_window_stop: int
    projects: tuple[ProjectUsage, ...]

    @property
    def asked(self) -> int:
        """What he asked for."""
        return sum(each.asked for each in self.projects)

    @property
    def used(self) -> int:
        """What he used."""
        return sum(each.used for each in self.projects)

    @property
    def record(self) -> dict[str, object]:
        """All of it."""
        return {
            "first_window_start": self.first_window_start,
            "last_window_stop": self.last_window_stop,
            "asked": self.asked,
            "used": self.used,
            "projects": {
                each.project: {"asked": each.asked, "used": each.used, "karma": each.karma} for each in self.projects
            },
        }


def usages(tx: "Transaction", start: int, stop: int, user: str | None = None) -> list[Usage]:
    """Return the consumption of one or all users in the windows that overlap ``[start, stop)``, by user."""
    by_user: dict[str, list[Consumption]] = defaultdict(list)
    for each in tx.accounting.between(start, stop, user):
        by_user[each.user].append(each)

    def karma(project: str) -> float | None:
        return tx.accounting.last_karma(user, project) if user is not None else None

    return [_usage(name, rows, karma) for name, rows in sorted(by_user.items())]


def _usage(user: str, rows: "Sequence[Consumption]", karma: Callable[[str], float | None]) -> Usage:
    return Usage(
        user,
        min(row.first_window_start for row in rows),
        max(row.last_window_stop for row in rows),
        tuple(ProjectUsage(row.project, row.asked, row.used, karma(row.project)) for row in rows),
    )
