"""Changes of resources: what oarnodesetting, oar_resources_add and oarremoveresource do."""

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, Field

from oar.api.errors import problem
from oar.api.nodes import ResourceNumber, version_of_resource
from oar.api.parameters import PRINTABLE, STRICT, Force, IfMatch, Text
from oar.api.preconditions import check_seen
from oar.api.responses import Answer, answer
from oar.api.routing import ApiRoute
from oar.api.service import administering, asking
from oar.lib.base.errors import BadRequest, NoSuchResource
from oar.lib.db.user_sql import SITE, Subject, evaluate
from oar.lib.nodes import changes, machines, state_changes, topology
from oar.lib.nodes.changes import NodeChange, RemovalRefusal
from oar.lib.nodes.state_reasons import LONGEST
from oar.lib.nodes.states import ResourceState
from oar.lib.nodes.topology import Machines

if TYPE_CHECKING:
    from oar.api.service import Asking
    from oar.lib.db.transaction import Transaction
    from oar.lib.nodes.properties import Setting

router = APIRouter(tags=["administration"], route_class=ApiRoute)

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
            raise BadRequest(f"these are {described.hosts * resources} resources, {MOST} can be created at a time")
        return machines.behind_the_last(tx, described, values) if self.number_on else described


@router.post("/v1/resources", operation_id="resources_add", summary="Create resources", status_code=HTTPStatus.CREATED)
def resources_add(request: Request, body: NewResources) -> Answer:
    """Create a resource for each given node name, as `oarnodesetting -a` does. Administrators only."""
    with administering(request) as act:
        settings = _settings(act.tx, body.properties)
        change = NodeChange(body.state, body.maintenance or None, settings)
        ids = changes.add(act.tx, act.user, body.nodes, change)
    return answer({"ids": ids, "warnings": act.warnings}, status=HTTPStatus.CREATED)


@router.post(
    "/v1/resources/machines",
    operation_id="machines_add",
    summary="Create the resources of several machines",
    status_code=HTTPStatus.CREATED,
    responses={200: {"description": "Nothing is created: what would be (`dry_run`)."}},
)
def machines_add(request: Request, body: NewMachines) -> Answer:
    """Create the resources of identical machines, as `oar_resources_add -x` does. Administrators only."""
    with administering(request) as act:
        described = body.machines(act.tx)
        units = topology.units(described)
        items = [{"node": unit.host, "properties": dict(unit.properties)} for unit in units]
        missing = machines.missing_properties(act.tx, described) if body.add_properties else {}
        if body.dry_run:
            return answer({"items": items, "new_properties": sorted(missing)})
        do = machines.repair if body.repair else machines.create
        ids = do(act.tx, act.user, units, _settings(act.tx, body.properties), missing)
    return answer({"ids": ids, "items": items, "warnings": act.warnings}, status=HTTPStatus.CREATED)


@router.patch(
    "/v1/resources", operation_id="resources_change", summary="Update resources", status_code=HTTPStatus.ACCEPTED
)
def resources_change(request: Request, body: ResourceUpdate, match: IfMatch = None) -> Answer:
    """Update states, maintenance, drain and properties: all changes or none. Administrators only.

    `jobs` are the jobs that must end; `updated` is the number of changed resources by property. `If-Match` is allowed
    for one resource only.
    """
    chosen = _satisfying(asking(request), body.condition) if body.condition is not None else None
    with administering(request) as act:
        flags = {} if body.drain is None else {"drain": "YES" if body.drain else "NO"}
        settings = _settings(act.tx, {**body.properties, **flags})
        change = NodeChange(body.state, body.maintenance, settings, body.force, body.reason)
        if change._replace(is_forced=False, reason="") == NodeChange():
            raise BadRequest("name what is to be changed: state, maintenance, drain, properties")
        ids = _named(act.tx, body, chosen)
        _check_seen(act.tx, ids, match)
        jobs = sorted(state_changes.doomed(act.tx, ids)) if change.ends_jobs else []
        updated = changes.change_resources(act.tx, act.user, ids, change)
    record = {"ids": ids, "jobs": jobs, "updated": updated, "warnings": act.warnings}
    return answer(record, status=HTTPStatus.ACCEPTED)


@router.delete("/v1/resources/{resource_id}", operation_id="resource_remove", summary="Delete a resource")
def resource_remove(
    request: Request,
    resource_id: ResourceNumber,
    purge_jobs: Annotated[bool, Query(description="Also delete the history of all jobs that ran on it.")] = False,
    force: Force = False,
    match: IfMatch = None,
) -> Answer:
    """Delete a Dead resource, as `oarremoveresource` does. `purged` lists the deleted jobs. Administrators only."""
    number = min(resource_id, 2**31 - 1)
    with administering(request) as act:
        _check_seen(act.tx, [number], match)
        result = changes.remove(act.tx, act.user, number, purge_jobs=purge_jobs, force=force)
    if result.refusal:
        status, code, text = _REFUSALS[result.refusal]
        message = text.format(id=resource_id, job=next(iter(result.jobs), 0), number=len(result.jobs))
        return problem(request, status, code, message)
    return answer({"id": resource_id, "done": "removed", "purged": result.purged, "warnings": act.warnings})


def _check_seen(tx: "Transaction", ids: Sequence[int], match: str | None) -> None:
    """Check that an administrator has seen the resource as it is.  Raises OtherVersion, BadRequest, NoSuchResource."""
    if match is None:
        return
    if len(ids) != 1:
        raise BadRequest("If-Match names the version of one resource: name one")
    tx.resources.hold(ids)
    check_seen(match, f"resource {ids[0]}", lambda: version_of_resource(tx, ids[0]))


def _settings(tx: "Transaction", values: Mapping[str, Any]) -> "tuple[Setting, ...]":
    return changes.checked(tx, {name: None if value is None else str(value) for name, value in values.items()})


def _satisfying(who: "Asking", condition: str) -> list[int]:
    """Return the resources that satisfy a condition of an administrator.  Raises BadCondition."""
    who.caller.administering()
    return evaluate(who.database, Subject.RESOURCES, condition, SITE)


def _named(tx: "Transaction", body: ResourceUpdate, satisfying: list[int] | None) -> list[int]:
    """Return the ids of the resources that are meant.  Raises BadRequest, NoSuchResource."""
    if sum(selection is not None for selection in (body.ids, body.nodes, body.condition)) != 1:
        raise BadRequest("name the resources by one of ids, nodes, condition")
    if body.nodes is not None:
        by_node = tx.resources.ids_of_nodes(body.nodes)
        if missing := [name for name in body.nodes if name not in by_node]:
            raise NoSuchResource(f"there is no node {missing[0]!r}")
        return sorted({resource for ids in by_node.values() for resource in ids})
    asked = sorted(set(body.ids if body.ids is not None else satisfying or ()))
    existing = set(tx.resources.existing(asked))
    if missing_ids := [resource for resource in asked if resource not in existing]:
        raise NoSuchResource(f"there is no resource {missing_ids[0]}")
    if not asked:
        raise NoSuchResource("no resource satisfies the condition")
    return asked
