"""Changes of resources: what oarnodesetting, oar_resources_add and oarremoveresource do."""

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, Field

from oar.api.answers.bodies import Answer, answer
from oar.api.answers.faults import PRINTABLE
from oar.api.answers.preconditions import IfMatch, check_seen
from oar.api.jobs.request import Text
from oar.api.nodes.resources import ResourceNumber, version_of_resource
from oar.api.routing.administrators import STRICT, Force, administering
from oar.api.routing.problems import problem
from oar.api.serving.service import asking
from oar.lib.db.foreign_code.user_sql import SITE, Subject, evaluate
from oar.lib.facts import topology
from oar.lib.facts.errors import BadRequest, NoSuchResource
from oar.lib.facts.states import ResourceState
from oar.lib.facts.topology import Machines
from oar.lib.resources import machines, node_changes, nodes, removal
from oar.lib.resources.node_changes import NodeChange
from oar.lib.resources.removal import RemovalRefusal
from oar.lib.rules.node_reasons import LONGEST

if TYPE_CHECKING:
    from oar.api.serving.service import Asking
    from oar.lib.db.transaction import Transaction
    from oar.lib.resources.properties import Setting

router = APIRouter(prefix="/v1/resources", tags=["administration"])

#: Resources of one request, at most.
MOST = 100_000
ResourceId = Annotated[int, Field(ge=1, le=2**31 - 1)]
Host = Annotated[str, Field(max_length=255, pattern=PRINTABLE)]
Value = Annotated[int, Field(ge=-(2**63), le=2**63 - 1)] | Text | None
Properties = Annotated[
    dict[Annotated[str, Field(max_length=63, pattern=PRINTABLE)], Value],
    Field(max_length=200, description="Values by property; null takes a value away."),
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
    """Resources that are all alike but for their nodes."""

    model_config = STRICT

    nodes: list[Host] = Field(min_length=1, max_length=MOST, description="A resource for each; '' is on no node.")
    state: ResourceState | None = Field(None, strict=False, description="The state in which they begin; else Alive.")
    maintenance: bool = Field(default=False, description="Whether they are taken away for maintenance.")
    properties: Properties = {}


class ResourceChange(BaseModel):
    """What is to become of some resources; they are named in one of three ways."""

    model_config = STRICT

    ids: list[ResourceId] | None = Field(None, min_length=1, max_length=MOST, description="Ids of resources.")
    nodes: list[Host] | None = Field(None, min_length=1, max_length=MOST, description="All resources of these nodes.")
    condition: Text | None = Field(None, description="Those that satisfy a condition, as `--sql`.")
    state: ResourceState | None = Field(None, strict=False, description="The new state.")
    maintenance: bool | None = Field(None, description="Whether they are taken away for maintenance.")
    drain: bool | None = Field(None, description="Whether they get no new jobs.")
    reason: str = Field(
        "", max_length=LONGEST, description="Why: of the state, or of a drain or a maintenance that begins."
    )
    properties: Properties = {}
    force: bool = Field(default=False, description="Change them though that breaks an advance reservation.")


class NewMachines(BaseModel):
    """Machines that are all alike, as oar_resources_add describes them."""

    model_config = STRICT

    hosts: int = Field(ge=1, le=10_000, description="So many machines.")
    cpus: int = Field(2, ge=1, le=64, description="Processors of each machine.")
    cores: int = Field(4, ge=1, le=1024, description="Of each processor.")
    threads: int = Field(1, ge=1, le=16, description="Of each core.")
    gpus: int = Field(0, ge=0, le=64, description="Of each machine.")
    each_thread: bool = Field(default=False, description="A resource for each thread, else one for each core.")
    first_host: int | None = Field(None, ge=0, le=10**9, description="Number of the first machine.")
    first_cpu: int | None = Field(None, ge=0, le=10**9, description="Number of the first processor.")
    first_core: int | None = Field(None, ge=0, le=10**9, description="Number of the first core.")
    first_thread: int | None = Field(None, ge=0, le=10**9, description="Number of the first thread.")
    first_gpu: int | None = Field(None, ge=0, le=10**9, description="Number of the first GPU.")
    cpusets: int | None = Field(None, ge=1, le=10**6, description="Cpusets of each machine, as `--cpusets`.")
    cpu_topology: str = Field("", max_length=10_000, pattern=PRINTABLE, description="As `--cputopo`.")
    gpu_devices: int | None = Field(None, ge=1, le=64, description="As `--gpudevices`.")
    gpu_topology: str = Field("", max_length=1000, pattern=PRINTABLE, description="As `--gputopo`.")
    prefix: str = Field("node-", max_length=200, pattern=PRINTABLE, description="Begin of the names of the machines.")
    suffix: str = Field("", max_length=200, pattern=PRINTABLE, description="End of the names of the machines.")
    number_on: bool = Field(default=False, description="Number from the last ones that are used, as `-a`.")
    add_properties: bool = Field(default=True, description="Add the properties that are missing.")
    properties: Properties = {}
    repair: bool = Field(default=False, description="Set the properties of resources that exist, as `-R`.")
    dry_run: bool = Field(default=False, description="Only tell what would be created.")

    def machines(self, tx: "Transaction") -> Machines:
        """Return the machines.  Raises BadTopology, BadRequest."""
        own = self.model_dump(exclude={"number_on", "add_properties", "properties", "repair", "dry_run"})
        given = {name: value for name, value in own.items() if value is not None}
        described = Machines(**given)
        each = described.cpus * described.cores * (described.threads if described.each_thread else 1)
        if described.hosts * each > MOST:
            raise BadRequest(f"these are {described.hosts * each} resources, {MOST} can be created at a time")
        return machines.behind_the_last(tx, described, given) if self.number_on else described


@router.post("", operation_id="resources_add", summary="Add resources", status_code=HTTPStatus.CREATED)
def resources_add(request: Request, wish: NewResources) -> Answer:
    """Create a resource for each name of a node, as `oarnodesetting -a` does (administrators)."""
    with administering(request) as act:
        settings = _settings(act.tx, wish.properties)
        change = NodeChange(wish.state, wish.maintenance or None, settings)
        ids = node_changes.add(act.tx, act.user, wish.nodes, change)
    return answer({"ids": ids, "warnings": act.warnings}, status=HTTPStatus.CREATED)


@router.post(
    "/machines",
    operation_id="machines_add",
    summary="Add the resources of machines",
    status_code=HTTPStatus.CREATED,
    responses={200: {"description": "Nothing is created: what would be (`dry_run`)."}},
)
def machines_add(request: Request, wish: NewMachines) -> Answer:
    """Create the resources of machines that are all alike, as `oar_resources_add -x` does (administrators)."""
    with administering(request) as act:
        described = wish.machines(act.tx)
        units = topology.units(described)
        items = [{"node": unit.host, "properties": dict(unit.properties)} for unit in units]
        missing = machines.missing_properties(act.tx, described) if wish.add_properties else {}
        if wish.dry_run:
            return answer({"items": items, "new_properties": sorted(missing)})
        do = machines.repair if wish.repair else machines.create
        ids = do(act.tx, act.user, units, _settings(act.tx, wish.properties), missing)
    return answer({"ids": ids, "items": items, "warnings": act.warnings}, status=HTTPStatus.CREATED)


@router.patch("", operation_id="resources_change", summary="Change resources", status_code=HTTPStatus.ACCEPTED)
def resources_change(request: Request, wish: ResourceChange, match: IfMatch = None) -> Answer:
    """Change states, maintenance, drain and properties, as `oarnodesetting` does, all or nothing (administrators).

    `jobs` are those that have to end; `updated` counts by property the resources that had another value. `If-Match` is
    for one resource.
    """
    chosen = _satisfying(asking(request), wish.condition) if wish.condition is not None else None
    with administering(request) as act:
        flags = {} if wish.drain is None else {"drain": "YES" if wish.drain else "NO"}
        settings = _settings(act.tx, {**wish.properties, **flags})
        change = NodeChange(wish.state, wish.maintenance, settings, wish.force, wish.reason)
        if change._replace(is_forced=False, reason="") == NodeChange():
            raise BadRequest("name what is to be changed: state, maintenance, drain, properties")
        ids = _named(act.tx, wish, chosen)
        _check_seen(act.tx, ids, match)
        jobs = sorted(nodes.doomed(act.tx, ids)) if change.ends_jobs else []
        updated = node_changes.change_resources(act.tx, act.user, ids, change)
    record = {"ids": ids, "jobs": jobs, "updated": updated, "warnings": act.warnings}
    return answer(record, status=HTTPStatus.ACCEPTED)


@router.delete("/{resource_id}", operation_id="resource_remove", summary="Remove a resource")
def resource_remove(
    request: Request,
    resource_id: ResourceNumber,
    purge_jobs: Annotated[bool, Query(description="With the history of all jobs that ran there.")] = False,
    force: Force = False,
    match: IfMatch = None,
) -> Answer:
    """Remove a resource that is Dead, as `oarremoveresource` does (administrators); `purged` are the jobs."""
    known = min(resource_id, 2**31 - 1)
    with administering(request) as act:
        _check_seen(act.tx, [known], match)
        found = removal.remove(act.tx, act.user, known, purge_jobs=purge_jobs, force=force)
    if found.refusal:
        status, word, text = _REFUSALS[found.refusal]
        told = text.format(id=resource_id, job=next(iter(found.jobs), 0), number=len(found.jobs))
        return problem(request, status, word, told)
    return answer({"id": resource_id, "done": "removed", "purged": found.purged, "warnings": act.warnings})


def _check_seen(tx: "Transaction", ids: Sequence[int], match: str | None) -> None:
    """Check that an administrator has seen the resource as it is.  Raises OtherVersion, BadRequest, NoSuchResource."""
    if match is None:
        return
    if len(ids) != 1:
        raise BadRequest("If-Match names the version of one resource: name one")
    tx.resources.hold(ids)
    check_seen(match, f"resource {ids[0]}", lambda: version_of_resource(tx, ids[0]))


def _settings(tx: "Transaction", values: Mapping[str, Any]) -> "tuple[Setting, ...]":
    return node_changes.checked(tx, {name: None if value is None else str(value) for name, value in values.items()})


def _satisfying(who: "Asking", condition: str) -> list[int]:
    """Return the resources that satisfy a condition of an administrator.  Raises BadCondition."""
    who.caller.administering()
    return evaluate(who.database, Subject.RESOURCES, condition, SITE)


def _named(tx: "Transaction", wish: ResourceChange, satisfying: list[int] | None) -> list[int]:
    """Return the ids of the resources that are meant.  Raises BadRequest, NoSuchResource."""
    if sum(each is not None for each in (wish.ids, wish.nodes, wish.condition)) != 1:
        raise BadRequest("name the resources by one of ids, nodes, condition")
    if wish.nodes is not None:
        by_node = tx.resources.ids_of_nodes(wish.nodes)
        if missing := [name for name in wish.nodes if name not in by_node]:
            raise NoSuchResource(f"there is no node {missing[0]!r}")
        return sorted({resource for ids in by_node.values() for resource in ids})
    asked = sorted(set(wish.ids if wish.ids is not None else satisfying or ()))
    existing = set(tx.resources.existing(asked))
    if missing_ids := [resource for resource in asked if resource not in existing]:
        raise NoSuchResource(f"there is no resource {missing_ids[0]}")
    if not asked:
        raise NoSuchResource("no resource satisfies the condition")
    return asked
