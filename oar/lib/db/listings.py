"""What users are shown of many jobs or resources at once: each function is one query, whatever the number of rows."""

from collections import defaultdict
from collections.abc import Collection
from typing import TYPE_CHECKING, Any, NamedTuple

from oar.lib.model import Event
from oar.lib.states import JobState

if TYPE_CHECKING:
    from oar.lib.db.engine import Transaction

#: Resources that jobs have or had, and the nodes that these belong to.
_ASSIGNED = """
    SELECT j.job_id, array_agg(a.resource_id ORDER BY a.resource_id),
        array_agg(DISTINCT r.network_address::text) FILTER (WHERE r.network_address <> '')
    FROM jobs j
    JOIN assigned_resources a ON a.moldable_job_id = j.assigned_moldable_job
    LEFT JOIN resources r ON r.resource_id = a.resource_id
    WHERE j.job_id = ANY(%s) AND j.assigned_moldable_job <> 0
    GROUP BY j.job_id"""
#: When the scheduler means to start jobs, and which alternative of them.
_PREDICTIONS = """
    SELECT m.moldable_job_id, p.start_time, m.moldable_id
    FROM moldable_job_descriptions m JOIN gantt_jobs_predictions_visu p ON p.moldable_job_id = m.moldable_id
    WHERE m.moldable_job_id = ANY(%s) ORDER BY m.moldable_job_id, p.start_time DESC"""
#: Resources that the scheduler means to give to alternatives of jobs.
_PLANNED = """
    SELECT g.moldable_job_id, r.resource_id, r.network_address, r.state
    FROM gantt_jobs_resources_visu g JOIN resources r USING (resource_id)
    WHERE g.moldable_job_id = ANY(%s) ORDER BY g.moldable_job_id, r.resource_id"""
#: Jobs that are, were or will be on resources between two dates.
_BETWEEN = """
    SELECT j.job_id FROM jobs j
    WHERE j.stop_time >= %(start)s AND j.start_time BETWEEN 1 AND %(stop)s AND j.assigned_moldable_job <> 0
    UNION
    SELECT j.job_id FROM jobs j
    WHERE j.state <> 'Terminated' AND j.state <> 'Error' AND j.assigned_moldable_job <> 0
      AND j.start_time BETWEEN 1 AND %(stop)s AND (j.stop_time = 0 OR j.stop_time >= %(start)s)
    UNION
    SELECT m.moldable_job_id
    FROM gantt_jobs_predictions_visu p JOIN moldable_job_descriptions m ON m.moldable_id = p.moldable_job_id
    WHERE p.start_time <= %(stop)s AND p.start_time + m.moldable_walltime >= %(start)s
    ORDER BY 1"""
#: When resources could not be used between two dates.
_UNAVAILABLE = """
    SELECT resource_id, date_start, date_stop, value FROM resource_logs
    WHERE attribute = 'state' AND value IN ('Absent', 'Dead', 'Suspected')
      AND (date_stop = 0 OR date_stop >= %(start)s) AND date_start <= %(stop)s
    ORDER BY resource_id, date_start"""
#: Live jobs and the resources that they hold.
_HELD = """
    SELECT a.resource_id, j.job_id FROM jobs j
    JOIN assigned_resources a ON a.moldable_job_id = j.assigned_moldable_job AND a.assigned_resource_index = 'CURRENT'
    WHERE j.state <> 'Terminated' AND j.state <> 'Error' AND j.assigned_moldable_job <> 0
    ORDER BY a.resource_id, j.job_id"""
#: The last events of nodes.
_LAST_EVENTS = """
    SELECT h.hostname, e.event_id, e.type, e.job_id, e.date, e.description, e.to_check
    FROM unnest(%s::text[]) AS node (name)
    CROSS JOIN LATERAL (
        SELECT hostname, event_id FROM event_log_hostnames WHERE hostname = node.name
        ORDER BY event_id DESC LIMIT %s) h
    JOIN event_logs e USING (event_id)
    ORDER BY h.hostname, e.event_id"""
#: Jobs that ended since a date.
_ENDED_SINCE = """
    SELECT job_id FROM jobs
    WHERE state IN ('Terminated', 'Error') AND stop_time >= %s AND (%s::text IS NULL OR job_user = %s)"""
#: How far jobs have come, and how they ended.
_ENDS = "SELECT job_id, state, exit_code FROM jobs WHERE job_id = ANY(%s)"
#: As which jobs others were submitted again last, by the system or by somebody.
_COPIES = """
    SELECT resubmit_job_id, max(job_id) FROM jobs
    WHERE resubmit_job_id = ANY(%s) AND resubmit_job_id <> 0 GROUP BY resubmit_job_id"""
#: As which jobs the system has submitted others again.
_AUTOMATIC_COPIES = "SELECT job_id, new_job_id FROM auto_resubmissions WHERE job_id = ANY(%s)"
#: The walltime of the alternative that was chosen, else of the one that is foreseen, else of the first.
_WALLTIMES = """
    SELECT DISTINCT ON (j.job_id) j.job_id, m.moldable_walltime
    FROM jobs j JOIN moldable_job_descriptions m ON m.moldable_job_id = j.job_id
    LEFT JOIN gantt_jobs_predictions_visu p ON p.moldable_job_id = m.moldable_id
    WHERE j.job_id = ANY(%s)
    ORDER BY j.job_id, m.moldable_id = j.assigned_moldable_job DESC, p.start_time, m.moldable_id"""
#: Nodes that the commands of jobs run on and that did not answer when they were last asked.
_SILENT = "SELECT job_id, head_host FROM job_runs WHERE job_id = ANY(%s) AND failures > 0 AND head_host <> ''"
#: Nodes of jobs that are not Alive, and since when.
_NOT_ALIVE = """
    SELECT j.job_id, r.network_address::text, r.state, max(COALESCE(l.date_start, 0))
    FROM jobs j
    JOIN assigned_resources a ON a.moldable_job_id = j.assigned_moldable_job
    JOIN resources r ON r.resource_id = a.resource_id
    LEFT JOIN resource_logs l ON l.resource_id = r.resource_id AND l.attribute = 'state' AND l.date_stop = 0
    WHERE j.job_id = ANY(%s) AND j.assigned_moldable_job <> 0 AND r.state <> 'Alive' AND r.network_address <> ''
    GROUP BY j.job_id, r.network_address, r.state ORDER BY j.job_id, r.network_address, r.state"""
#: Distinct nodes.
_NODES = "SELECT DISTINCT network_address::text FROM resources WHERE network_address <> ''"


class Assigned(NamedTuple):
    """What a job has or had."""

    resources: tuple[int, ...]
    nodes: tuple[str, ...]


class Prediction(NamedTuple):
    """When and how the scheduler means to start a job."""

    start: int
    moldable: int


class PlannedResource(NamedTuple):
    """A resource that the scheduler means to give to a job."""

    id: int
    node: str
    is_usable: bool


def assigned(tx: "Transaction", ids: Collection[int]) -> dict[int, Assigned]:
    """Return the resources and the nodes of jobs, ended ones too."""
    rows = tx.rows(_ASSIGNED, (list(ids),)) if ids else []
    return {row[0]: Assigned(tuple(row[1]), tuple(sorted(row[2] or ()))) for row in rows}


def predictions(tx: "Transaction", ids: Collection[int]) -> dict[int, Prediction]:
    """Return the earliest predicted start of each job that has one."""
    rows = tx.rows(_PREDICTIONS, (list(ids),)) if ids else []
    return {row[0]: Prediction(row[1], row[2]) for row in rows}


def walltimes(tx: "Transaction", ids: Collection[int]) -> dict[int, int]:
    """Return how long jobs run, ran or will run at most."""
    return dict(tx.rows(_WALLTIMES, (list(ids),))) if ids else {}


def planned(tx: "Transaction", moldables: Collection[int]) -> dict[int, list[PlannedResource]]:
    """Return the resources planned for alternatives of jobs."""
    found: dict[int, list[PlannedResource]] = defaultdict(list)
    for moldable, resource, node, state in tx.rows(_PLANNED, (list(moldables),)) if moldables else ():
        found[moldable].append(PlannedResource(resource, node, state == "Alive"))
    return found


def not_alive(tx: "Transaction", ids: Collection[int]) -> dict[int, list[tuple[str, str, int]]]:
    """Return the nodes of jobs that are not Alive: name, state, since when."""
    found: dict[int, list[tuple[str, str, int]]] = defaultdict(list)
    for job_id, *node in tx.rows(_NOT_ALIVE, (list(ids),)) if ids else ():
        found[job_id].append((node[0], node[1], node[2]))
    return found


def silent_heads(tx: "Transaction", ids: Collection[int]) -> dict[int, str]:
    """Return the nodes that run the commands of jobs, of those that did not answer when they were last asked."""
    return dict(tx.rows(_SILENT, (list(ids),))) if ids else {}


def ends(tx: "Transaction", ids: Collection[int]) -> dict[int, tuple[JobState, int | None]]:
    """Return the state and the wait status of each job that exists."""
    return {row[0]: (JobState(row[1]), row[2]) for row in tx.rows(_ENDS, (list(ids),))}


def copies(tx: "Transaction", ids: Collection[int]) -> dict[int, int]:
    """Return the last copy of each job that was submitted again, by itself or by oarsub --resubmit."""
    return {row[0]: row[1] for row in tx.rows(_COPIES, (list(ids),))} if ids else {}


def automatic_copies(tx: "Transaction", ids: Collection[int]) -> dict[int, int]:
    """Return the copy of each job that the system has submitted again."""
    return {row[0]: row[1] for row in tx.rows(_AUTOMATIC_COPIES, (list(ids),))} if ids else {}


def ended_since(tx: "Transaction", date: int, user: str | None) -> list[int]:
    """Return the jobs, of one user or of all, that ended since a date."""
    return tx.column(_ENDED_SINCE, (date, user, user))


def jobs_between(tx: "Transaction", start: int, stop: int) -> list[int]:
    """Return the jobs that are, were or will be on resources between two dates."""
    return tx.column(_BETWEEN, {"start": start, "stop": stop})


def unavailable_between(tx: "Transaction", start: int, stop: int) -> dict[int, list[tuple[int, int, str]]]:
    """Return when resources could not be used: ``(from, to, state)``, to = 0 if it lasts."""
    found: dict[int, list[tuple[int, int, str]]] = defaultdict(list)
    for resource, *interval in tx.rows(_UNAVAILABLE, {"start": start, "stop": stop}):
        found[resource].append((interval[0], interval[1], interval[2]))
    return found


def resources(
    tx: "Transaction",
    *,
    ids: Collection[int] | None = None,
    nodes: Collection[str] | None = None,
    columns: Collection[str] = ("*",),
) -> list[dict[str, Any]]:
    """Return the rows of all resources, of some, or of those of some nodes, with whatever columns there are."""
    where, parameters = "true", ()
    if ids is not None:
        where, parameters = "resource_id = ANY(%s)", (list(ids),)  # type: ignore[assignment]
    elif nodes is not None:
        where, parameters = "network_address = ANY(%s)", (list(nodes),)  # type: ignore[assignment]
    rows, names = tx.rows_and_names(
        f"SELECT {', '.join(columns)} FROM resources WHERE {where} ORDER BY resource_id", parameters
    )
    return [dict(zip(names, row, strict=True)) for row in rows]


def jobs_on_resources(tx: "Transaction") -> dict[int, list[int]]:
    """Return the live jobs on each resource that has some."""
    found: dict[int, list[int]] = defaultdict(list)
    for resource, job_id in tx.rows(_HELD):
        found[resource].append(job_id)
    return found


def nodes(tx: "Transaction") -> list[str]:
    """Return the names of all nodes."""
    return sorted(tx.column(_NODES))


def last_events(tx: "Transaction", names: Collection[str], number: int) -> dict[str, list[Event]]:
    """Return the last events of nodes, oldest first."""
    found: dict[str, list[Event]] = defaultdict(list)
    for host, event_id, kind, job_id, date, text, to_check in tx.rows(_LAST_EVENTS, (list(names), number)):
        found[host].append(Event(event_id, kind, job_id, date, text, to_check == "YES", (host,)))
    return found
