"""Records of jobs and resources with the keys of OAR 2.5 and of OAR 3.

``oar/lib/jobs/fields.py`` declares the keys of jobs.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from oar.api.legacy.requests import segment
from oar.api.legacy.responses import link, now
from oar.lib.base.times import format_duration, format_signed_duration
from oar.lib.jobs.fields import FIELDS
from oar.lib.jobs.formats import legacy_details

if TYPE_CHECKING:
    from oar.lib.jobs.privacy import Privacy
    from oar.lib.jobs.records import Job
    from oar.lib.jobs.views import JobView
    from oar.lib.jobs.walltime import WalltimeStatus
    from oar.lib.nodes.views import ResourceView

_FIELD_OF = {key: field.name for field in FIELDS for key in field.legacy}
#: Keys of jobs in lists.
_SHORT_KEYS = (
    *("id", "job_id", "name", "state", "owner", "user", "queue", "queue_name", "project", "type", "array_id"),
    *("submission", "submission_time", "start_time", "stop_time", "exit_code"),
)


def short_job(job: "Job", prefix: str) -> dict[str, Any]:
    """Return a job of ``/jobs``."""
    return {**{key: getattr(job, _FIELD_OF[key]) for key in _SHORT_KEYS}, **_job_links(job, prefix)}


def _job_links(job: "Job", prefix: str) -> dict[str, Any]:
    own = f"{prefix}/jobs/{job.id}"
    parts = [link("collection", f"{own}/{name}", name) for name in ("resources", "nodes")]
    return {"api_timestamp": now(), "links": [link("self", own), *parts]}


def table_row(job: "Job", privacy: "Privacy") -> dict[str, Any]:
    """Return a job of ``/jobs/table``: the columns of the table ``jobs``, empty where the caller may not read them."""
    hidden = {
        "env": None,
        "notify": privacy.notify(job),
        "command": privacy.command(job),
        "initial_request": privacy.initial_request(job),
    }
    return {**job._asdict(), **hidden, "job_id": job.id, "job_user": job.user, "queue_name": job.queue}


def full_job(view: "JobView", prefix: str) -> dict[str, Any]:
    """Return a job of ``/jobs/ID``."""
    code = view.job.exit_code
    chosen = [each for each in view.moldables if each.id == view.job.assigned_moldable] or view.moldables[:1]
    return {
        **legacy_details(view),
        **_job_links(view.job, prefix),
        "properties": view.job.properties or "",
        "actual_resources": [
            [group.filter, [list(level) for level in group.levels]] for moldable in chosen for group in moldable.groups
        ],
        "exit_status_code": None if code is None else code >> 8 & 255,
    }


def detailed_job(view: "JobView", columns: Mapping[int, Mapping[str, Any]], prefix: str) -> dict[str, Any]:
    """Return a job of ``/jobs/ID/details``; ``columns``: the columns to show of its resources."""
    ids, status = held_resources(view)
    resources = [
        {
            **{name: value for name, value in columns.get(resource, {}).items() if name != "resource_id"},
            "id": resource,
            "resource_id": resource,
            "status": status,
            "links": [link("self", f"{prefix}/resources/{resource}")],
        }
        for resource in ids
    ]
    assigned = status == "assigned"
    names = view.assigned.nodes if assigned else [str(columns[resource]["network_address"]) for resource in ids]
    nodes = [
        {"network_address": name, "status": status, "links": [node_link("self", name, prefix)]}
        for name in dict.fromkeys(filter(None, names))
    ]
    return {**full_job(view, prefix), "resources": resources, "nodes": nodes}


def held_resources(view: "JobView") -> tuple[Sequence[int], str]:
    """Return the ids of the resources of a job, and whether they are ``assigned`` or ``reserved``."""
    if view.reserved_resources is not None:
        return [resource.id for resource in view.reserved_resources], "reserved"
    return view.assigned.resources, "assigned"


def walltime_change(status: "WalltimeStatus") -> dict[str, Any]:
    """Return the key ``walltime-change`` of a job."""
    change, possible = status.change, status.possible
    return {
        "walltime": format_duration(status.walltime),
        "possible": "UNLIMITED" if possible is None else format_signed_duration(possible),
        "pending": format_signed_duration(change.pending),
        "force": "YES" if change.force else "NO",
        "delay_next_jobs": "YES" if change.delay_next_jobs else "NO",
        "whole": "YES" if change.whole else "NO",
        "granted": format_signed_duration(change.granted),
        "granted_with_force": format_signed_duration(change.granted_with_force),
        "granted_with_delay_next_jobs": format_signed_duration(change.granted_with_delay_next_jobs),
        "granted_with_whole": format_signed_duration(change.granted_with_whole),
        "timeout": change.timeout,
    }


def short_resource(view: "ResourceView", prefix: str) -> dict[str, Any]:
    """Return a resource of ``/resources``."""
    return {
        "id": view.id,
        "state": view.state,
        "available_upto": view.columns["available_upto"],
        "network_address": view.node,
        **_resource_links(view, prefix),
    }


def full_resource(view: "ResourceView", prefix: str, *, with_jobs: bool = False) -> dict[str, Any]:
    """Return a resource with all its columns; ``cpuset`` is a number if it has only digits."""
    columns = {name: value for name, value in view.columns.items() if name != "resource_id"}
    cpuset = str(columns.get("cpuset", ""))
    if cpuset.isascii() and cpuset.isdigit():
        columns["cpuset"] = int(cpuset)
    jobs = {"jobs": jobs_with_links(view.jobs, prefix)} if with_jobs else {}
    return {**columns, "id": view.id, **jobs, **_resource_links(view, prefix)}


def jobs_with_links(ids: Iterable[int], prefix: str) -> list[dict[str, Any]]:
    return [{"id": job_id, "links": [link("self", f"{prefix}/jobs/{job_id}")]} for job_id in ids]


def node_link(rel: str, name: str, prefix: str, title: str = "") -> dict[str, str]:
    return link(rel, f"{prefix}/resources/nodes/{segment(name)}", title)


def _resource_links(view: "ResourceView", prefix: str) -> dict[str, Any]:
    own = f"{prefix}/resources/{view.id}"
    node = [node_link("member", view.node, prefix, "node")] if view.node else []
    return {"api_timestamp": now(), "links": [*node, link("self", own), link("collection", f"{own}/jobs", "jobs")]}
