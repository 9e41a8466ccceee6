"""Operations on resources and nodes, and the accounting."""

import json
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

from pydantic import ValidationError

from oar.api.errors import bad_request_of
from oar.api.legacy.jobs import keyed_by_id, list_jobs, with_fields
from oar.api.legacy.requests import LegacyRequest, is_on, segment
from oar.api.legacy.responses import (
    Page,
    Reply,
    full_resource,
    jobs_with_links,
    link,
    list_reply,
    node_link,
    now,
    plain_list,
    short_job,
    short_resource,
    timed,
)
from oar.api.node_changes import NewMachines
from oar.api.responses import Export
from oar.lib.base.errors import BadRequest, NoSuchResource, NotAllowed, WrongState
from oar.lib.base.formats import read_yaml
from oar.lib.base.texts import shell_words
from oar.lib.db.user_sql import Asker, Subject, evaluate
from oar.lib.nodes import changes, topology
from oar.lib.nodes.changes import NodeChange, RemovalRefusal
from oar.lib.nodes.states import ResourceState
from oar.lib.nodes.views import ResourceView, resource_views

#: Columns that lists need besides the hierarchy.
_SHORT_COLUMNS = ("resource_id", "network_address", "state", "available_upto", "type")
#: Options of oar_resources_add that ``resources`` may contain, and their fields in ``/v1``.
_MACHINE_OPTIONS = {
    option: field
    for field, options in (
        *(("hosts", "-H --hosts"), ("cpus", "-C --cpus"), ("cores", "-c --cores"), ("threads", "-t --threads")),
        *(("gpus", "-g --gpus"), ("prefix", "--host-prefix"), ("suffix", "--host-suffix")),
    )
    for option in options.split()
}


# -- lists ------------------------------------------------------------------------------------------------------------


def list_resources(request: LegacyRequest, *, full: bool = False, with_jobs: bool = False) -> Reply:
    """Return a page of resources: short, with all columns, or with all columns and their jobs."""
    page = Page.of(request)
    full = full or with_jobs or request.flag("detailed") or request.flag("details")
    views = _select(request, ("*",) if full else _SHORT_COLUMNS)
    if full:
        items = [full_resource(view, request.prefix, with_jobs=with_jobs) for view in page.of_items(views)]
    else:
        items = [short_resource(view, request.prefix) for view in page.of_items(views)]
    if (by_id := keyed_by_id(request, items)) is not None:
        return Reply(by_id)
    return Reply(page.collection(request, with_fields(request, items), len(views)))


def _select(request: LegacyRequest, columns: Sequence[str], node: str | None = None) -> list[ResourceView]:
    """Return the resources that match the parameters, by id.  Raises BadRequest, BadCondition, Unidentified."""
    states, types = {word.lower() for word in request.words("state")}, request.words("type")
    ids = None
    if condition := request.text("sql"):
        user = request.caller.identified()
        ids = evaluate(request.database, Subject.RESOURCES, condition, Asker(user.name, has_full_sql=user.is_admin))
    nodes = [node] if node is not None else request.words("network_address") or None
    with request.database.snapshot() as tx:
        views = resource_views(tx, ids=ids, nodes=nodes, columns=columns)
    matching = [
        view
        for view in views
        if (not states or view.state.lower() in states) and (not types or view.columns["type"] in types)
    ]
    return sorted(matching, key=lambda view: view.id)


def show_resource(request: LegacyRequest, resource_id: int) -> Reply:
    """Return a resource with all its columns."""
    return Reply(full_resource(_find(request, resource_id), request.prefix))


def list_jobs_of_resource(request: LegacyRequest, resource_id: int) -> Reply:
    """Return the jobs on a resource that have not ended."""
    ids, page = _find(request, resource_id).jobs, Page.of(request)
    with request.database.snapshot() as tx:
        items = [short_job(job, request.prefix) for job in tx.jobs.select(page.of_items(ids))]
    return Reply(page.collection(request, items, len(ids)))


def list_nodes(request: LegacyRequest) -> Reply:
    """Return the nodes."""
    with request.database.snapshot() as tx:
        names = sorted(tx.resources.nodes())
    return list_reply(
        request, names, lambda name: {"network_address": name, "links": [node_link("self", name, request.prefix)]}
    )


def list_resources_of_node(request: LegacyRequest, name: str) -> Reply:
    """Return the resources of a node."""
    return list_reply(request, _find_node(request, name), lambda view: short_resource(view, request.prefix))


def list_jobs_of_node(request: LegacyRequest, name: str, *, view: str = "short") -> Reply | Export:
    """Return the jobs on a node that have not ended, or those that the parameters select."""
    with request.database.snapshot() as tx:
        if name not in tx.resources.nodes():
            raise NoSuchResource(f"there is no node {name!r}")
    return list_jobs(request._replace(parameters={**request.parameters, "node": [name]}), view=view)


def list_jobs_by_property(request: LegacyRequest, name: str) -> Reply:
    """Return the jobs that have not ended, grouped by the values of a property of their resources."""
    with request.database.snapshot() as tx:
        views = resource_views(tx)
    if views and name not in views[0].columns:
        raise NoSuchResource(f"there is no property {name!r}")
    jobs: dict[Any, set[int]] = {}
    for view in views:
        jobs.setdefault(view.columns[name], set()).update(view.jobs)
    items = [
        {name: value, "jobs": jobs_with_links(sorted(ids), request.prefix)}
        for value, ids in sorted(jobs.items(), key=lambda item: (item[0] is None, str(item[0])))
    ]
    return list_reply(request, items)


def count_busy(request: LegacyRequest) -> Reply:
    """Return the number of resources with a job."""
    with request.database.snapshot() as tx:
        return Reply(timed({"busy": sum(bool(view.jobs) for view in resource_views(tx, columns=_SHORT_COLUMNS))}))


def _find(request: LegacyRequest, resource_id: int) -> ResourceView:
    with request.database.snapshot() as tx:
        views = resource_views(tx, ids=[resource_id]) if resource_id < 2**31 else []
    if not views:
        raise NoSuchResource(f"there is no resource {resource_id}")
    return views[0]


def _find_node(request: LegacyRequest, name: str) -> list[ResourceView]:
    views = _select(request, _SHORT_COLUMNS, name)
    if not views:
        raise NoSuchResource(f"there is no node {name!r}")
    return views


# -- changes by administrators ----------------------------------------------------------------------------------------


def add_resources(request: LegacyRequest) -> Reply:
    """Create the resources of the body: an object, or a list of objects."""
    user = request.caller.administering()
    descriptions = _descriptions(request)
    ids: list[int] = []
    with request.database.begin() as tx:
        for description in descriptions:
            node, values = _node_and_properties(description)
            ids += changes.add(tx, user, [node], NodeChange(settings=changes.checked(tx, values)))
    items = [timed({"id": each, "status": "ok"}, [link("self", f"{request.prefix}/resources/{each}")]) for each in ids]
    return Reply({"items": items, "total": len(items), "api_timestamp": now()}, HTTPStatus.CREATED)


def _descriptions(request: LegacyRequest) -> Sequence[object]:
    """Return the resources in the body, in its field ``yaml_array``, or in the parameters."""
    if isinstance(request.body, list):
        return request.body
    fields = request.fields or {name: values[-1] for name, values in request.parameters.items()}
    text = fields.get("yaml_array")
    if not isinstance(text, str):
        return [fields]
    try:
        found = read_yaml(text)
    except ValueError:
        found = None
    if not isinstance(found, list):
        raise BadRequest("yaml_array: must be a YAML list").of("yaml_array")
    return found


def _node_and_properties(description: object) -> tuple[str, dict[str, str | None]]:
    if not isinstance(description, Mapping):
        raise BadRequest("a resource must be an object with its properties")
    values = {str(name): value for name, value in description.items()}
    properties = _parse_properties(values.pop("properties", None))
    values |= dict(properties) if isinstance(properties, Mapping) else {}
    node = values.pop("hostname", None) or values.pop("network_address", None)
    if not isinstance(node, str):
        raise BadRequest("hostname: a resource needs the name of its node").of("hostname")
    values.pop("network_address", None)
    return node, {key: None if value is None else str(value) for key, value in values.items()}


def _parse_properties(value: object) -> object:
    try:
        return json.loads(value) if isinstance(value, str) else value
    except ValueError:
        raise BadRequest("properties: must be a JSON object").of("properties") from None


def generate_resources(request: LegacyRequest) -> Reply:
    """Return the resources that ``oar_resources_add`` would create. Changes nothing."""
    request.caller.administering()
    values = {name.replace("-", "_"): value for name, value in request.fields.items() if name != "resources"}
    values["number_on"] = is_on(values.pop("auto_offset", None))
    values |= _parse_machine_options(str(request.fields.get("resources") or ""))
    values["properties"] = _parse_properties(values.get("properties") or {})
    try:
        machines = NewMachines.model_validate(values, strict=False)
    except ValidationError as error:
        raise bad_request_of(error.errors()) from None
    with request.database.snapshot() as tx:
        units = topology.units(machines.machines(tx))
    return Reply(
        plain_list([{"network_address": unit.host, **dict(unit.properties), **machines.properties} for unit in units])
    )


def _parse_machine_options(text: str) -> dict[str, str]:
    try:
        words = shell_words(text)
    except BadRequest as error:
        raise BadRequest(f"resources: {error}").of("resources") from None
    if len(words) % 2 or any(word not in _MACHINE_OPTIONS for word in words[::2]):
        options = ", ".join(_MACHINE_OPTIONS)
        raise BadRequest(f"resources: the options are {options}, each with a value").of("resources")
    return {_MACHINE_OPTIONS[name]: value for name, value in zip(words[::2], words[1::2], strict=True)}


def set_state_of_resource(request: LegacyRequest, resource_id: int) -> Reply:
    """Request another state of a resource."""
    request.caller.administering()
    return _set_state(request, [_find(request, resource_id).id], str(resource_id))


def set_state_of_node(request: LegacyRequest, name: str) -> Reply:
    """Request another state of all resources of a node."""
    request.caller.administering()
    return _set_state(request, [view.id for view in _find_node(request, name)], f"nodes/{segment(name)}")


def _set_state(request: LegacyRequest, ids: Sequence[int], address: str) -> Reply:
    state = str(request.fields.get("state", ""))
    if state not in list(ResourceState):
        raise BadRequest(f"Bad state: {state!r} is not one of {', '.join(ResourceState)}").of("state")
    with request.service.warnings(), request.database.begin() as tx:
        changes.change_resources(tx, request.caller.administering(), ids, NodeChange(ResourceState(state)))
    uri = f"{request.prefix}/resources/{address}"
    return Reply(timed({"id": address, "uri": uri, "status": "Change state request registered"}), HTTPStatus.ACCEPTED)


def remove_by_cpuset(request: LegacyRequest, node: str, cpuset: str) -> Reply:
    """Delete the Dead resource of a node that has a cpuset."""
    request.caller.administering()
    with request.database.snapshot() as tx:
        found = [view.id for view in resource_views(tx, nodes=[node]) if str(view.columns.get("cpuset")) == cpuset]
    if len(found) != 1:
        raise NoSuchResource(
            f"{len(found)} resources of {node!r} have the cpuset {cpuset!r}: use the id of the resource"
        )
    return remove(request, found[0])


def remove(request: LegacyRequest, resource_id: int) -> Reply:
    """Delete a Dead resource."""
    user = request.caller.administering()
    with request.database.begin() as tx:
        found = changes.remove(tx, user, min(resource_id, 2**31 - 1), purge_jobs=False)
    if found.refusal is RemovalRefusal.UNKNOWN:
        raise NoSuchResource(f"there is no resource {resource_id}")
    if found.refusal is RemovalRefusal.NOT_DEAD:
        raise NotAllowed(f"the state of resource {resource_id} must be set to Dead before")
    if found.refusal:
        raise WrongState(f"resource {resource_id} is used by jobs")
    return Reply(timed({"id": resource_id, "status": "deleted"}))


# -- accounting -------------------------------------------------------------------------------------------------------


def show_accounting(request: LegacyRequest, user: str | None = None) -> Reply:
    """Return the requested and the used resources of a period, by project and user."""
    begin, end = request.date("from"), request.date("to")
    if begin is None or end is None:
        missing = "from" if begin is None else "to"
        raise BadRequest("from and to: both are required, such as from=2026-11-01").of(missing)
    caller = request.caller.user
    if request.config.api_accounting_private and not (caller and caller.is_admin):
        own = request.caller.identified().name
        if user not in (None, own):
            raise NotAllowed("the usage of other users is private (API_ACCOUNTING_PRIVATE)")
        user = own
    with request.database.snapshot() as tx:
        rows = tx.accounting.between(begin, end, user)
    projects: dict[str, dict[str, dict[str, int]]] = {}
    for row in rows:
        consumptions = projects.setdefault(row.project, {"ASKED": {}, "USED": {}})
        consumptions["ASKED"][row.user] = row.asked
        consumptions["USED"][row.user] = row.used
    items = [{"project": name, "consumptions": projects[name]} for name in sorted(projects)]
    return Reply(Page(0, max(1, len(items))).collection(request, items, len(items)))
