"""Changes of resources, as oarnodesetting, oar_resources_add and oarremoveresource do; the preview of a maintenance."""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from http import HTTPStatus
from typing import TYPE_CHECKING, Annotated, Any, NotRequired

from pydantic import BaseModel, Field, model_validator
from starlette.requests import Request
from typing_extensions import TypedDict

from oar.api.errors import problem
from oar.api.nodes import ResourceNumber, version_of_resource
from oar.api.parameters import LARGEST_ID, PRINTABLE, STRICT, Force, IfMatch, Text
from oar.api.responses import Answer, answer
from oar.api.routing import Router
from oar.api.service import administering, asking, check_seen
from oar.lib.base.errors import BadRequest, NoSuchResource
from oar.lib.db.user_sql import SITE, Subject, evaluate
from oar.lib.jobs.states import NOT_STARTED
from oar.lib.nodes import changes, machines, state_changes, topology
from oar.lib.nodes.changes import NodeChange, RemovalRefusal
from oar.lib.nodes.state_reasons import LONGEST
from oar.lib.nodes.states import ResourceState
from oar.lib.nodes.topology import Machines

if TYPE_CHECKING:
    from oar.lib.db.transaction import Transaction
    from oar.lib.history.sql_gantt_days import DrawnJob
    from oar.lib.nodes.properties import Setting


router = Router("administration")


class UpdatedResources(TypedDict):
    ids: list[int]
    jobs: list[int]
    updated: dict[str, int]
    warnings: list[str]


CreatedResources = TypedDict("CreatedResources", {"ids": list[int], "warnings": list[str]})
Machine = TypedDict("Machine", {"node": str, "properties": dict[str, Any]})


class CreatedMachines(TypedDict):
    items: list[Machine]
    new_properties: NotRequired[list[str]]
    ids: NotRequired[list[int]]
    warnings: NotRequired[list[str]]


DeletedResource = TypedDict("DeletedResource", {"id": int, "done": str, "purged": Sequence[int], "warnings": list[str]})


#: Resources of one request, at most.
MOST = 100_000
ResourceId = Annotated[int, Field(ge=1, le=2**31 - 1)]
Host = Annotated[str, Field(max_length=255, pattern=PRINTABLE)]
Value = Annotated[int, Field(ge=-(2**63), le=2**63 - 1)] | Text | None
Properties = Annotated[
    dict[Annotated[str, Field(max_length=63, pattern=PRINTABLE)], Value],
    Field(max_length=200, description="Values by property; null removes a value."),
]
_REFUSALS: Mapping[RemovalRefusal, tuple[HTTPStatus, str, str]] = {
    RemovalRefusal.UNKNOWN: (HTTPStatus.NOT_FOUND, "no-such-resource", "there is no resource {id}"),
    RemovalRefusal.NOT_DEAD: (HTTPStatus.CONFLICT, "not-dead", "the state of resource {id} must be set to Dead before"),
    RemovalRefusal.USED: (HTTPStatus.CONFLICT, "in-use", "resource {id} is used by job {job}"),
    RemovalRefusal.NOT_ACCOUNTED: (
        HTTPStatus.CONFLICT,
        "not-accounted",
        "{number} job(s) of resource {id} are not yet accounted: run oaraccounting first",
    ),
}


class NewResources(BaseModel):
    """New resources with the same properties, one for each node name."""

    model_config = STRICT

    nodes: list[Host] = Field(
        min_length=1,
        max_length=MOST,
        description="Node names, one for each new resource; '' for a resource without a node.",
    )
    state: ResourceState | None = Field(None, strict=False, description="Initial state; default: Alive.")
    maintenance: bool = Field(default=False, description="Whether the resources are in maintenance.")
    properties: Properties = {}


class ResourceUpdate(BaseModel):
    """New values of some resources, which are selected in one of three ways."""

    model_config = STRICT

    ids: list[ResourceId] | None = Field(None, min_length=1, max_length=MOST, description="Resource ids.")
    nodes: list[Host] | None = Field(None, min_length=1, max_length=MOST, description="Nodes of the resources.")
    condition: Text | None = Field(None, description="Condition on the resources, as with `--sql`.")
    state: ResourceState | None = Field(None, strict=False, description="New state.")
    maintenance: bool | None = Field(None, description="Whether the resources are in maintenance.")
    drain: bool | None = Field(None, description="Whether the resources accept no new jobs.")
    reason: str = Field("", max_length=LONGEST, description="Reason of the state, drain or maintenance.")
    properties: Properties = {}
    force: bool = Field(default=False, description="Proceed even if an advance reservation is broken.")


class NewMachines(BaseModel):
    """Identical machines, described as for `oar_resources_add`."""

    model_config = STRICT

    hosts: int = Field(ge=1, le=10_000, description="Number of machines.")
    cpus: int = Field(2, ge=1, le=64, description="CPUs of each machine.")
    cores: int = Field(4, ge=1, le=1024, description="Cores of each CPU.")
    threads: int = Field(1, ge=1, le=16, description="Threads of each core.")
    gpus: int = Field(0, ge=0, le=64, description="GPUs of each machine.")
    each_thread: bool = Field(
        default=False, description="Create one resource for each thread instead of one for each core."
    )
    first_host: int | None = Field(None, ge=0, le=10**9, description="Number of the first machine.")
    first_cpu: int | None = Field(None, ge=0, le=10**9, description="Number of the first CPU.")
    first_core: int | None = Field(None, ge=0, le=10**9, description="Number of the first core.")
    first_thread: int | None = Field(None, ge=0, le=10**9, description="Number of the first thread.")
    first_gpu: int | None = Field(None, ge=0, le=10**9, description="Number of the first GPU.")
    cpusets: int | None = Field(None, ge=1, le=10**6, description="Cpusets of each machine, as with `--cpusets`.")
    cpu_topology: str = Field(
        "", max_length=10_000, pattern=PRINTABLE, description="CPU topology, as with `--cputopo`."
    )
    gpu_devices: int | None = Field(None, ge=1, le=64, description="GPU devices, as with `--gpudevices`.")
    gpu_topology: str = Field("", max_length=1000, pattern=PRINTABLE, description="GPU topology, as with `--gputopo`.")
    prefix: str = Field("node-", max_length=200, pattern=PRINTABLE, description="Prefix of the machine names.")
    suffix: str = Field("", max_length=200, pattern=PRINTABLE, description="Suffix of the machine names.")
    number_on: bool = Field(default=False, description="Continue the existing numbers, as with `-a`.")
    add_properties: bool = Field(default=True, description="Create missing properties.")
    properties: Properties = {}
    repair: bool = Field(default=False, description="Update the properties of existing resources, as with `-R`.")
    dry_run: bool = Field(default=False, description="Only return what would be created.")

    def machines(self, tx: "Transaction") -> Machines:
        """Return the machines.  Raises BadTopology, BadRequest."""
        own = self.model_dump(exclude={"number_on", "add_properties", "properties", "repair", "dry_run"})
        values = {name: value for name, value in own.items() if value is not None}
        described = Machines(**values)
        resources = described.cpus * described.cores * (described.threads if described.each_thread else 1)
        if described.hosts * resources > MOST:
            raise BadRequest(f"{described.hosts * resources} resources: must be at most {MOST} in a request")
        return machines.behind_the_last(tx, described, values) if self.number_on else described


@router.post("/v1/resources", "resources_add", "Create resources", status=HTTPStatus.CREATED)
def resources_add(request: Request, body: NewResources) -> CreatedResources:
    """Create a resource for each given node name, as `oarnodesetting -a` does. Administrators only."""
    with administering(request) as act:
        settings = _settings(act.tx, body.properties)
        change = NodeChange(body.state, body.maintenance or None, settings)
        ids = changes.add(act.tx, act.user, body.nodes, change)
    return {"ids": ids, "warnings": act.warnings}


@router.post(
    "/v1/resources/machines",
    "machines_add",
    "Create the resources of several machines",
    status=HTTPStatus.CREATED,
    or_status=HTTPStatus.OK,
)
def machines_add(request: Request, body: NewMachines) -> CreatedMachines | Answer:
    """Create the resources of identical machines, as `oar_resources_add -x` does. Administrators only."""
    with administering(request) as act:
        described = body.machines(act.tx)
        units = topology.units(described)
        items: list[Machine] = [{"node": unit.host, "properties": dict(unit.properties)} for unit in units]
        missing = machines.missing_properties(act.tx, described) if body.add_properties else {}
        if body.dry_run:
            return answer({"items": items, "new_properties": sorted(missing)})
        do = machines.repair if body.repair else machines.create
        ids = do(act.tx, act.user, units, _settings(act.tx, body.properties), missing)
    return {"ids": ids, "items": items, "warnings": act.warnings}


@router.patch("/v1/resources", "resources_change", "Update resources", status=HTTPStatus.ACCEPTED)
def resources_change(request: Request, body: ResourceUpdate, match: IfMatch = None) -> UpdatedResources:
    """Update states, maintenance, drain and properties: all changes or none. Administrators only.

    `jobs` are the jobs that must end; `updated` is the number of changed resources by property. `If-Match` is allowed
    for one resource only.
    """
    satisfying: list[int] = []
    if body.condition is not None:
        who = asking(request)
        who.caller.administering()
        satisfying = evaluate(who.database, Subject.RESOURCES, body.condition, SITE)
    with administering(request) as act:
        flags = {} if body.drain is None else {"drain": "YES" if body.drain else "NO"}
        settings = _settings(act.tx, {**body.properties, **flags})
        change = NodeChange(body.state, body.maintenance, settings, body.force, body.reason)
        if change._replace(is_forced=False, reason="") == NodeChange():
            raise BadRequest("use at least one of: state, maintenance, drain, properties")
        ids = _selected(act.tx, body, satisfying)
        _check_seen(act.tx, ids, match)
        jobs = sorted(state_changes.doomed(act.tx, ids)) if change.ends_jobs else []
        updated = changes.change_resources(act.tx, act.user, ids, change)
    return {"ids": ids, "jobs": jobs, "updated": updated, "warnings": act.warnings}


@router.delete("/v1/resources/{resource_id}", "resource_remove", "Delete a resource")
def resource_remove(
    request: Request,
    resource_id: ResourceNumber,
    purge_jobs: Annotated[bool, Field(description="Also delete the history of all jobs that ran on it.")] = False,
    force: Force = False,
    match: IfMatch = None,
) -> DeletedResource | Answer:
    """Delete a Dead resource, as `oarremoveresource` does. `purged` lists the deleted jobs. Administrators only."""
    number = min(resource_id, 2**31 - 1)
    with administering(request) as act:
        _check_seen(act.tx, [number], match)
        result = changes.remove(act.tx, act.user, number, purge_jobs=purge_jobs, force=force)
    if result.refusal:
        status, code, text = _REFUSALS[result.refusal]
        message = text.format(id=resource_id, job=next(iter(result.jobs), 0), number=len(result.jobs))
        return problem(request, status, code, message)
    return {"id": resource_id, "done": "removed", "purged": result.purged, "warnings": act.warnings}


def _ids_by_node(tx: "Transaction", nodes: Sequence[str]) -> Mapping[str, Sequence[int]]:
    """Return the resources of nodes.  Raises NoSuchResource."""
    by_node = tx.resources.ids_of_nodes(nodes)
    if missing := [name for name in nodes if name not in by_node]:
        raise NoSuchResource(f"there is no node {missing[0]!r}")
    return by_node


def _check_seen(tx: "Transaction", ids: Sequence[int], match: str | None) -> None:
    """Check that an administrator has seen the resource as it is.  Raises OtherVersion, BadRequest, NoSuchResource."""
    if match is None:
        return
    if len(ids) != 1:
        raise BadRequest("If-Match is the version of one resource: use it with one resource")
    tx.resources.hold(ids)
    check_seen(match, f"resource {ids[0]}", lambda: version_of_resource(tx, ids[0]))


def _settings(tx: "Transaction", values: Mapping[str, Any]) -> "tuple[Setting, ...]":
    return changes.checked(tx, {name: None if value is None else str(value) for name, value in values.items()})


def _selected(tx: "Transaction", body: ResourceUpdate, satisfying: list[int]) -> list[int]:
    """Return the ids of the selected resources.  Raises BadRequest, NoSuchResource.

    ``satisfying``: those that satisfy the condition.
    """
    if sum(selection is not None for selection in (body.ids, body.nodes, body.condition)) != 1:
        raise BadRequest("use exactly one of: ids, nodes, condition")
    if body.nodes is not None:
        return sorted({resource for ids in _ids_by_node(tx, body.nodes).values() for resource in ids})
    asked = sorted(set(body.ids if body.ids is not None else satisfying))
    existing = set(tx.resources.existing(asked))
    if missing_ids := [resource for resource in asked if resource not in existing]:
        raise NoSuchResource(f"there is no resource {missing_ids[0]}")
    if not asked:
        raise NoSuchResource("no resource satisfies the condition")
    return asked


class MaintenanceEffect(StrEnum):
    """How the withdrawal of its nodes affects a job."""

    ENDS = "ends"  #: the job ends before the maintenance begins
    CUT = "cut"  #: the job would still be running and would be killed
    DELAYED = "delayed"  #: the job is planned to start later and must be planned again


NodeIdleTime = TypedDict("NodeIdleTime", {"name": str, "empty": int | None})


class JobImpact(TypedDict):
    id: int
    name: str | None
    user: str
    state: str
    start: int
    end: int | None
    fate: MaintenanceEffect


class AffectedReservation(TypedDict):
    id: int
    ar_name: str | None
    owner: str
    start: int
    end: int


MaintenancePreview = TypedDict(
    "MaintenancePreview",
    {
        "from": int,
        "to": int | None,
        "nodes": list[NodeIdleTime],
        "jobs": list[JobImpact],
        "reservations": list[AffectedReservation],
    },
)


#: Jobs of a response, at most: running ones, and planned ones.
MAX_JOBS = 1000
#: The end of a maintenance without a planned end.
_FOR_EVER = 2**40
Date = Annotated[int, Field(ge=0, le=LARGEST_ID)]


class MaintenanceWindow(BaseModel):
    """Nodes to withdraw, and for how long."""

    model_config = STRICT

    nodes: list[Host] = Field(min_length=1, max_length=MOST, description="Nodes to withdraw.")
    begin: Date | None = Field(None, alias="from", description="Start of the maintenance; default: now.")
    to: Date | None = Field(None, description="End of the maintenance; default: open end.")

    @model_validator(mode="after")
    def _in_order(self) -> "MaintenanceWindow":
        if self.begin is not None and self.to is not None and self.begin >= self.to:
            raise ValueError("`from` must be earlier than `to`")
        return self


@router.post("/v1/resources/outlook", "resources_outlook", "Preview the impact of a maintenance")
def resources_outlook(request: Request, body: MaintenanceWindow) -> MaintenancePreview:
    """Return how jobs would be affected (`ends` before it, `cut`, `delayed`), and when each node is idle.

    `empty` is the date at which the last running job of a node has ended at the latest; null if a job has no walltime.
    Administrators only.
    """
    who = asking(request)
    who.caller.administering()
    with who.database.snapshot() as tx:
        return _preview(tx, body)


def _preview(tx: "Transaction", body: MaintenanceWindow) -> MaintenancePreview:
    by_node = _ids_by_node(tx, body.nodes)
    begin, end = body.begin or tx.now, body.to or _FOR_EVER
    resources = sorted({number for ids in by_node.values() for number in ids})
    jobs = [job for job in tx.gantt_days.on(resources, tx.now, end, MAX_JOBS) if not job.stop]
    return {
        "from": begin,
        "to": body.to,
        "nodes": [{"name": name, "empty": _empty(jobs, set(ids), tx.now)} for name, ids in sorted(by_node.items())],
        "jobs": [_item(job, begin) for job in sorted(jobs, key=lambda job: (job.start, job.id))],
        "reservations": _reservations(tx, set(resources), begin, end),
    }


def _item(job: "DrawnJob", begin: int) -> JobImpact:
    return {
        "id": job.id,
        "name": job.name or None,
        "user": job.user,
        "state": job.state,
        "start": job.start,
        "end": job.latest_end,
        "fate": maintenance_effect(job, begin),
    }


def maintenance_effect(job: "DrawnJob", begin: int) -> MaintenanceEffect:
    """Return how the withdrawal of its resources affects a job."""
    if job.state in NOT_STARTED and job.start >= begin:
        return MaintenanceEffect.DELAYED
    end = job.latest_end
    return MaintenanceEffect.ENDS if end is not None and end <= begin else MaintenanceEffect.CUT


def _empty(jobs: "Sequence[DrawnJob]", resources: set[int], now: int) -> int | None:
    """Return when the last running job of a node ends; `now` without jobs, None if a job has no walltime."""
    ends = [job.latest_end for job in jobs if job.state not in NOT_STARTED and resources.intersection(job.resources)]
    known_ends = [end for end in ends if end is not None]
    return None if len(known_ends) < len(ends) else max([now, *known_ends])


def _reservations(tx: "Transaction", resources: set[int], begin: int, end: int) -> list[AffectedReservation]:
    """Return the advance reservations of some resources in the period."""
    return [
        {
            "id": reservation.number,
            "ar_name": reservation.name or None,
            "owner": reservation.owner,
            "start": reservation.start,
            "end": reservation.end,
        }
        for reservation in tx.reservations.planned()
        if reservation.start < end and reservation.end > begin and resources.intersection(reservation.resources)
    ]
