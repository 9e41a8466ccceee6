"""Resources and nodes for users: records with the jobs on them, and why nodes are not in use."""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from oar.lib.base.resource_set import format_ranges
from oar.lib.history.event_types import EventType
from oar.lib.jobs.records import Job
from oar.lib.nodes.records import SYSTEM_PROPERTIES
from oar.lib.nodes.state_reasons import author_of, reason_of
from oar.lib.nodes.states import ALWAYS_AVAILABLE, ResourceState

if TYPE_CHECKING:
    from oar.lib.db.transaction import Transaction


class ResourceView(NamedTuple):
    """All data of a resource that users can see: every column, and the live jobs on it."""

    columns: Mapping[str, Any]
    jobs: tuple[int, ...]
    reserved: tuple[int, ...] = ()  #: numbers of the advance reservations that have it now

    @property
    def id(self) -> int:
        number: int = self.columns["resource_id"]
        return number

    @property
    def node(self) -> str:
        """The node of the resource; '' if it has none."""
        name: str = self.columns["network_address"]
        return name

    @property
    def state(self) -> ResourceState:
        return ResourceState(self.columns["state"])

    @property
    def is_drained(self) -> bool:
        """Whether the scheduler starts no more jobs on the resource."""
        return bool(self.columns["drain"] == "YES")

    def is_standby(self, now: int) -> bool:
        """Return whether the resource is Absent and is woken when a job needs it."""
        until = self.columns["available_upto"]
        return self.state is ResourceState.ABSENT and now < until != ALWAYS_AVAILABLE

    @property
    def user_columns(self) -> list[tuple[str, Any]]:
        """The columns that users' programs in jobs get, sorted by name; None for a column without value."""
        return sorted(item for item in self.columns.items() if item[0] not in SYSTEM_PROPERTIES)

    @property
    def properties(self) -> list[tuple[str, Any]]:
        """The columns with a value, except system columns, sorted by name."""
        return [item for item in self.user_columns if item[1] is not None]

    @property
    def record(self) -> dict[str, object]:
        """All columns, with ``jobs`` and ``reserved`` if they are not empty."""
        jobs = {"jobs": ", ".join(map(str, self.jobs))} if self.jobs else {}
        return {**self.columns, **jobs, **({"reserved": list(self.reserved)} if self.reserved else {})}


_STATE_COLUMNS = ("resource_id", "network_address", "state", "drain")


def resource_views(
    tx: "Transaction",
    *,
    ids: Collection[int] | None = None,
    nodes: Collection[str] | None = None,
    states_only: bool = False,
    columns: Collection[str] = ("*",),
) -> list[ResourceView]:
    """Return the views of all resources, or of those with these ids or nodes, sorted by node.

    Resources without a node come last. ``states_only``: without jobs, and only with the state columns, which is much
    faster. ``columns``: the columns of the records; id, node and state must be included.
    """
    jobs_by_resource = {} if states_only else tx.listings.jobs_on_resources()
    reserved = {} if states_only else tx.listings.reserved_now()
    rows = tx.listings.resources(ids=ids, nodes=nodes, columns=_STATE_COLUMNS if states_only else columns)
    rows.sort(key=lambda row: (not row["network_address"], row["network_address"]))  # the query sorts by id
    return [
        ResourceView(
            row, tuple(jobs_by_resource.get(row["resource_id"], ())), tuple(reserved.get(row["resource_id"], ()))
        )
        for row in rows
    ]


def resources_of_jobs(tx: "Transaction", ids: Collection[int]) -> dict[int, list[ResourceView]]:
    """Return the resources that jobs have or had, by job; the views do not contain the jobs on them."""
    assigned = tx.listings.assigned(ids)
    ids_of_resources = sorted({number for job_resources in assigned.values() for number in job_resources.resources})
    views = {row["resource_id"]: ResourceView(row, ()) for row in tx.listings.resources(ids=ids_of_resources)}
    return {
        job_id: [views[number] for number in assigned[job_id].resources if number in views]
        if job_id in assigned
        else []
        for job_id in ids
    }


class JobOnNode(NamedTuple):
    """A job and its resources on one node."""

    job: Job
    resources: tuple[int, ...]  #: on this node
    total: int  #: everywhere
    types: tuple[str, ...]

    @property
    def record(self) -> dict[str, object]:
        """The fields in alphabetical order; ``projet`` is for older programs."""
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
    """Return the live jobs on the nodes of resources, by node."""
    jobs_by_node: dict[str, dict[int, list[int]]] = {view.node: defaultdict(list) for view in views if view.node}
    for view in views:
        for job_id in view.jobs if view.node else ():
            jobs_by_node[view.node][job_id].append(view.id)
    ids = sorted({job_id for jobs in jobs_by_node.values() for job_id in jobs})
    jobs = {job.id: job for job in tx.jobs.select(ids)}
    types, assigned = tx.jobs.types(ids), tx.listings.assigned(ids)
    return {
        node: [
            JobOnNode(jobs[job_id], tuple(resources), len(assigned[job_id].resources), types.get(job_id, ()))
            for job_id, resources in sorted(resources_by_job.items())
            if job_id in jobs and job_id in assigned
        ]
        for node, resources_by_job in jobs_by_node.items()
    }


def placement_texts(tx: "Transaction", jobs: Sequence[Job]) -> dict[int, str]:
    """Return the resources of jobs by node as text without blanks, ``n1:1-2+5,n2:7``; return '' if a job has none."""
    texts = {}
    for job_id, resources in resources_of_jobs(tx, [job.id for job in jobs]).items():
        nodes: dict[str, int] = defaultdict(int)
        for resource in resources:
            nodes[resource.node or "-"] |= 1 << resource.id
        texts[job_id] = ",".join(
            f"{node}:{format_ranges(ids).replace(',', '+')}" for node, ids in sorted(nodes.items())
        )
    return texts


#: The author of changes that no user requested.
OAR = "OAR"
DRAINED, MAINTAINED = "drain", "maintenance"


class NodeReason(NamedTuple):
    """Why a node is in a state in which no jobs start on it."""

    node: str
    state: str  #: Suspected, Absent, Dead, drain or maintenance
    reason: str  #: '' if nobody gave one
    author: str  #: a user, or OAR
    since: int


def reasons_by_node(tx: "Transaction", views: Sequence[ResourceView]) -> dict[str, str]:
    """Return the reasons by node, without empty ones; the reason of a maintenance takes precedence."""
    order = [MAINTAINED, *ResourceState, DRAINED]
    reasons = sorted(node_reasons(tx, views), key=lambda reason: order.index(reason.state), reverse=True)
    return {reason.node: reason.reason for reason in reasons if reason.reason}


def node_reasons(tx: "Transaction", views: Sequence[ResourceView]) -> list[NodeReason]:
    """Return why no jobs start on nodes, by node: one entry for each state of its resources."""
    away = [view for view in views if view.node and view.state is not ResourceState.ALIVE]
    absent = [view.id for view in away if view.state is ResourceState.ABSENT]
    in_maintenance = set(tx.resources.in_maintenance(absent)) if absent else set()
    maintained = {view.node for view in away if view.id in in_maintenance}
    drained = {view.node for view in views if view.node and view.is_drained}
    reasons = [
        *_of_states(tx, [view for view in away if view.id not in in_maintenance]),
        *_of_events(tx, maintained, MAINTAINED, EventType.MAINTENANCE_BEGUN),
        *_of_events(tx, drained, DRAINED, EventType.DRAIN_BEGUN),
    ]
    return sorted(reasons, key=lambda reason: (reason.node, reason.state))


def _of_states(tx: "Transaction", views: Sequence[ResourceView]) -> list[NodeReason]:
    ids = [view.id for view in views]
    stored = {reason.resource: reason for reason in tx.nodes.reasons_of_resources(ids)} if ids else {}
    dates = tx.resources.in_state_since(ids) if ids else {}
    reasons: dict[tuple[str, str], NodeReason] = {}
    for view in views:
        reason = stored.get(view.id)
        text, author = (reason.reason, reason.author or OAR) if reason else ("", "")
        since = dates.get(view.id, reason.date if reason else 0)
        reasons.setdefault((view.node, view.state), NodeReason(view.node, view.state, text, author, since))
    return list(reasons.values())


def _of_events(tx: "Transaction", nodes: set[str], state: str, type_: EventType) -> list[NodeReason]:
    texts = tx.events.last_texts(nodes, type_)
    return [
        NodeReason(node, state, reason_of(text), author_of(text), date)
        for node in nodes
        for date, text in [texts.get(node, (0, ""))]
    ]
