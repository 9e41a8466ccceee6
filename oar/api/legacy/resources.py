"""Resources and other objects as clients of OAR 2.5 and OAR 3 ask for them."""

import json
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from oar.api.legacy.jobs import jobs_list
from oar.api.legacy.queries import by_id, chosen_fields
from oar.api.legacy.records import full_resource, short_job, short_resource
from oar.api.legacy.requests import LegacyCall, PageOf, Reply, link, segment, timed
from oar.api.responses import Export
from oar.api.service import service_of
from oar.lib.base.errors import BadRequest, NoSuchResource, NotAllowed, WrongState
from oar.lib.base.formats import read_yaml
from oar.lib.db.user_sql import Asker, Subject, evaluate
from oar.lib.nodes import changes, removal
from oar.lib.nodes.changes import NodeChange
from oar.lib.nodes.removal import RemovalRefusal
from oar.lib.nodes.states import ResourceState
from oar.lib.nodes.views import ResourceView, resource_views

if TYPE_CHECKING:
    from oar.lib.jobs.sql_accounting import Consumption

_DETAILED = frozenset({"full", "details"})
#: Beside what identifies a resource, so much is needed of it in lists.
_SHORT = ("resource_id", "network_address", "state", "available_upto", "type")


def resources_list(call: LegacyCall, detail: str = "") -> Reply:
    """Return a page of resources; ``detail``: ``full`` with all columns, ``details`` also with the jobs on them."""
    page = PageOf.of(call)
    is_full = detail in _DETAILED or any(call.flag(name) for name in ("detailed", "details"))
    views = sorted(_chosen(call, ("*",) if is_full else _SHORT), key=lambda view: view.id)
    shown = page.cut(views)
    if is_full:
        items = [full_resource(view, call.prefix, with_jobs=detail == "details") for view in shown]
    else:
        items = [short_resource(view, call.prefix) for view in shown]
    if (named := by_id(call, items)) is not None:
        return Reply(named)
    return Reply(page.collection(call, chosen_fields(call, items), len(views)))


def _chosen(call: LegacyCall, columns: Sequence[str], nodes: Sequence[str] = ()) -> list[ResourceView]:
    """Return the resources that satisfy the parameters.  Raises BadRequest, BadCondition, Unidentified."""
    states, types = {word.lower() for word in call.words("state")}, call.words("type")
    ids = None
    if condition := call.text("sql"):
        user = call.who.caller.identified()
        ids = evaluate(call.who.database, Subject.RESOURCES, condition, Asker(user.name, has_full_sql=user.is_admin))
    with call.who.database.snapshot() as tx:
        named = nodes or call.words("network_address") or None
        views = resource_views(tx, ids=ids, nodes=named, columns=columns)
    return [
        view
        for view in views
        if (not states or view.state.lower() in states) and (not types or view.columns["type"] in types)
    ]


def resource_one(call: LegacyCall, resource_id: int) -> Reply:
    """Return a resource with all its columns.  Raises NoSuchResource."""
    return Reply(full_resource(_one(call, resource_id), call.prefix))


def resource_jobs(call: LegacyCall, resource_id: int) -> Reply:
    """Return the live jobs on a resource.  Raises NoSuchResource."""
    return _jobs(call, _one(call, resource_id).jobs)


def nodes_list(call: LegacyCall) -> Reply:
    """Return the nodes."""
    with call.who.database.snapshot() as tx:
        names = sorted(tx.resources.nodes())
    page = PageOf.of(call)
    items = [
        {"network_address": name, "links": [link("self", f"{call.prefix}/resources/nodes/{segment(name)}")]}
        for name in page.cut(names)
    ]
    return Reply(page.collection(call, items, len(names)))


def node_resources(call: LegacyCall, name: str) -> Reply:
    """Return the resources of a node.  Raises NoSuchResource."""
    page, views = PageOf.of(call), _of_node(call, name)
    items = [short_resource(view, call.prefix) for view in page.cut(views)]
    return Reply(page.collection(call, items, len(views)))


def node_jobs(call: LegacyCall, name: str, *, details: bool = False) -> Reply | Export:
    """Return the jobs on a node: the live ones, or those that the parameters choose.  Raises NoSuchResource."""
    with call.who.database.snapshot() as tx:
        if name not in tx.resources.nodes():
            raise NoSuchResource(f"there is no node {name!r}")
    return jobs_list(call._replace(parameters={**call.parameters, "node": [name]}), details=details)


def jobs_by_value(call: LegacyCall, name: str) -> Reply:
    """Return the live jobs by the values of a property of the resources that they have.  Raises NoSuchResource."""
    page = PageOf.of(call)
    with call.who.database.snapshot() as tx:
        views = resource_views(tx)
    if views and name not in views[0].columns:
        raise NoSuchResource(f"there is no property {name!r}")
    jobs: dict[Any, set[int]] = {}
    for view in views:
        jobs.setdefault(view.columns[name], set()).update(view.jobs)
    items = [
        {
            name: value,
            "jobs": [{"id": each, "links": [link("self", f"{call.prefix}/jobs/{each}")]} for each in sorted(ids)],
        }
        for value, ids in sorted(jobs.items(), key=lambda item: (item[0] is None, str(item[0])))
    ]
    return Reply(page.collection(call, page.cut(items), len(items)))


def busy(call: LegacyCall) -> Reply:
    """Return how many resources have a job."""
    with call.who.database.snapshot() as tx:
        return Reply(timed({"busy": sum(bool(view.jobs) for view in resource_views(tx, columns=_SHORT))}))


def _one(call: LegacyCall, resource_id: int) -> ResourceView:
    with call.who.database.snapshot() as tx:
        views = resource_views(tx, ids=[resource_id]) if resource_id < 2**31 else []
    if not views:
        raise NoSuchResource(f"there is no resource {resource_id}")
    return views[0]


def _of_node(call: LegacyCall, name: str) -> list[ResourceView]:
    views = _chosen(call, _SHORT, [name])
    if not views:
        raise NoSuchResource(f"there is no node {name!r}")
    return sorted(views, key=lambda view: view.id)


def _jobs(call: LegacyCall, ids: Sequence[int]) -> Reply:
    page = PageOf.of(call)
    with call.who.database.snapshot() as tx:
        items = [short_job(job, call.prefix) for job in tx.jobs.select(page.cut(ids))]
    return Reply(page.collection(call, items, len(ids)))


# -- what administrators do -------------------------------------------------------------------------------------------


def add(call: LegacyCall) -> Reply:
    """Create the resources of a body: an object, or a list of them."""
    user = call.who.caller.administering()
    wishes = _wishes(call)
    ids: list[int] = []
    with call.who.database.begin() as tx:
        for wish in wishes:
            name, values = _described(wish)
            change = NodeChange(settings=changes.checked(tx, values))
            ids += changes.add(tx, user, [name], change)
    items = [timed({"id": each, "status": "ok"}, [link("self", f"{call.prefix}/resources/{each}")]) for each in ids]
    return Reply({"items": items, "total": len(items), "api_timestamp": items[0]["api_timestamp"]}, HTTPStatus.CREATED)


def _wishes(call: LegacyCall) -> Sequence[object]:
    """Return the resources that are to be made: of the body, of its field ``yaml_array``, or of the address."""
    if isinstance(call.body, list):
        return call.body
    fields = call.fields or {name: values[-1] for name, values in call.parameters.items()}
    listed = fields.get("yaml_array")
    if not isinstance(listed, str):
        return [fields]
    try:
        found = read_yaml(listed)
    except ValueError:
        found = None
    if not isinstance(found, list):
        raise BadRequest("yaml_array: this is no list of YAML").of("yaml_array")
    return found


def _described(wish: object) -> tuple[str, dict[str, str | None]]:
    """Return the node and the properties of a resource that is to be made.  Raises BadRequest."""
    if not isinstance(wish, Mapping):
        raise BadRequest("a resource is an object with its properties")
    values = {str(name): value for name, value in wish.items()}
    own = values.pop("properties", None)
    if isinstance(own, str):
        own = _object(own)
    values |= dict(own) if isinstance(own, Mapping) else {}
    name = values.pop("hostname", None) or values.pop("network_address", None)
    if not isinstance(name, str):
        raise BadRequest("hostname: a resource needs the name of its node").of("hostname")
    values.pop("network_address", None)
    return name, {key: None if value is None else str(value) for key, value in values.items()}


def _object(text: str) -> object:
    try:
        return json.loads(text)
    except ValueError:
        raise BadRequest("properties: this is no object of JSON").of("properties") from None


def set_state(call: LegacyCall, ids: Sequence[int], address: str) -> Reply:
    """Ask for another state of resources.  Raises BadRequest."""
    user = call.who.caller.administering()
    text = str(call.fields.get("state", ""))
    if text not in list(ResourceState):
        raise BadRequest(f"Bad state: {text!r} is none of {', '.join(ResourceState)}").of("state")
    with service_of(call.request).warnings(), call.who.database.begin() as tx:
        changes.change_resources(tx, user, ids, NodeChange(ResourceState(text)))
    told = {"id": address, "uri": f"{call.prefix}/resources/{address}", "status": "Change state request registered"}
    return Reply(timed(told), HTTPStatus.ACCEPTED)


def set_state_of_resource(call: LegacyCall, resource_id: int) -> Reply:
    """Ask for another state of a resource.  Raises NoSuchResource, BadRequest."""
    call.who.caller.administering()
    return set_state(call, [_one(call, resource_id).id], str(resource_id))


def set_state_of_node(call: LegacyCall, name: str) -> Reply:
    """Ask for another state of all resources of a node.  Raises NoSuchResource, BadRequest."""
    call.who.caller.administering()
    return set_state(call, [view.id for view in _of_node(call, name)], f"nodes/{segment(name)}")


def remove_by_cpuset(call: LegacyCall, node: str, cpuset: str) -> Reply:
    """Remove the resource of a node that has a cpuset.  Raises NoSuchResource, NotAllowed, WrongState."""
    call.who.caller.administering()
    with call.who.database.snapshot() as tx:
        found = [view.id for view in resource_views(tx, nodes=[node]) if str(view.columns.get("cpuset")) == cpuset]
    if len(found) != 1:
        raise NoSuchResource(f"{len(found)} resources of {node!r} have the cpuset {cpuset!r}: name one by its id")
    return remove(call, found[0])


def remove(call: LegacyCall, resource_id: int) -> Reply:
    """Remove a resource that is Dead.  Raises NoSuchResource, NotAllowed, WrongState."""
    user = call.who.caller.administering()
    with call.who.database.begin() as tx:
        found = removal.remove(tx, user, min(resource_id, 2**31 - 1), purge_jobs=False)
    if found.refusal is RemovalRefusal.UNKNOWN:
        raise NoSuchResource(f"there is no resource {resource_id}")
    if found.refusal is RemovalRefusal.NOT_DEAD:
        raise NotAllowed(f"the state of resource {resource_id} must be set to Dead before")
    if found.refusal:
        raise WrongState(f"resource {resource_id} is used by jobs")
    return Reply(timed({"id": resource_id, "status": "deleted"}))


# -- accounting -------------------------------------------------------------------------------------------------------


def accounting(call: LegacyCall, user: str | None = None) -> Reply:
    """Return what was asked for and used in a period, by project and user.  Raises BadRequest, NotAllowed."""
    begin, end = call.date("from", "start_time"), call.date("to", "stop_time")
    if begin is None or end is None:
        missing = "from" if begin is None else "to"
        raise BadRequest("from and to: both ends of the period are needed, such as from=2026-11-01").of(missing)
    caller = call.who.caller.user
    if call.who.config.api_accounting_private and not (caller and caller.is_admin):
        own = call.who.caller.identified().name
        if user not in (None, own):
            raise NotAllowed("the consumption of others is private here (API_ACCOUNTING_PRIVATE)")
        user = own
    with call.who.database.snapshot() as tx:
        rows = tx.accounting.between(begin, end, user)
    items = _by_project(rows)
    return Reply(PageOf(0, max(1, len(items))).collection(call, items, len(items)))


def _by_project(rows: "Sequence[Consumption]") -> list[dict[str, Any]]:
    projects: dict[str, dict[str, dict[str, int]]] = {}
    for row in rows:
        of_project = projects.setdefault(row.project, {"ASKED": {}, "USED": {}})
        of_project["ASKED"][row.user] = row.asked
        of_project["USED"][row.user] = row.used
    return [{"project": name, "consumptions": projects[name]} for name in sorted(projects)]
