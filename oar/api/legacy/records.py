"""Jobs and resources with the keys that clients of OAR 2.5 and OAR 3 read: those of both."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from oar.api.legacy.requests import link, now, segment
from oar.lib.base.times import format_duration, format_signed_duration
from oar.lib.jobs.fields import FIELDS
from oar.lib.jobs.formats import legacy_details

_FIELD_OF = {key: field.name for field in FIELDS for key in field.legacy}
#: The keys of jobs in lists.
_LISTED = (
    *("id", "job_id", "name", "state", "owner", "user", "queue", "queue_name", "project", "type", "array_id"),
    *("submission", "submission_time", "start_time", "stop_time", "exit_code"),
)

if TYPE_CHECKING:
    from oar.lib.jobs.privacy import Privacy
    from oar.lib.jobs.records import Job
    from oar.lib.jobs.views import JobView
    from oar.lib.jobs.walltime import WalltimeStatus
    from oar.lib.nodes.views import ResourceView


def short_job(job: "Job", prefix: str) -> dict[str, Any]:
    """Return what lists show of a job."""
    return {**{key: getattr(job, _FIELD_OF[key]) for key in _LISTED}, **_links_of_job(job, prefix)}


def _links_of_job(job: "Job", prefix: str) -> dict[str, Any]:
    here = f"{prefix}/jobs/{job.id}"
    return {
        "api_timestamp": now(),
        "links": [
            link("self", here),
            link("collection", f"{here}/resources", "resources"),
            link("collection", f"{here}/nodes", "nodes"),
        ],
    }


def table_row(job: "Job", privacy: "Privacy") -> dict[str, Any]:
    """Return a job as a row of the table; what others may not know is empty."""
    hidden = {
        "env": None,
        "notify": privacy.notify(job),
        "command": privacy.command(job),
        "initial_request": privacy.initial_request(job),
    }
    return {**job._asdict(), **hidden, "job_id": job.id, "job_user": job.user, "queue_name": job.queue}


def full_job(view: "JobView", prefix: str) -> dict[str, Any]:
    """Return everything of a job that users see."""
    code = view.job.exit_code
    return {
        **legacy_details(view),
        **_links_of_job(view.job, prefix),
        "properties": view.job.properties or "",
        "actual_resources": _asked(view),
        "exit_status_code": None if code is None else code >> 8 & 255,
    }


def _asked(view: "JobView") -> list[list[object]]:
    """Return the alternative that was chosen, else the first one: each part's condition, and its levels."""
    chosen = [each for each in view.moldables if each.id == view.job.assigned_moldable] or view.moldables[:1]
    return [[part.filter, [list(level) for level in part.levels]] for each in chosen for part in each.groups]


def job_resources(view: "JobView", columns: Mapping[int, Mapping[str, Any]], prefix: str) -> list[dict[str, Any]]:
    """Return the resources of a job: those that it has, or that a reservation is to have."""
    ids, status = _held(view)
    return [
        {
            **{name: value for name, value in columns.get(each, {}).items() if name != "resource_id"},
            "id": each,
            "resource_id": each,
            "status": status,
            "links": [link("self", f"{prefix}/resources/{each}")],
        }
        for each in ids
    ]


def job_nodes(view: "JobView", columns: Mapping[int, Mapping[str, Any]], prefix: str) -> list[dict[str, Any]]:
    """Return the nodes of a job, each once."""
    ids, status = _held(view)
    names = view.assigned.nodes if status == "assigned" else [str(columns[each]["network_address"]) for each in ids]
    return [
        {
            "network_address": name,
            "status": status,
            "links": [link("self", f"{prefix}/resources/nodes/{segment(name)}")],
        }
        for name in dict.fromkeys(filter(None, names))
    ]


def held_by(view: "JobView") -> Sequence[int]:
    """Return the ids of the resources that a job has, or is to have."""
    return _held(view)[0]


def _held(view: "JobView") -> tuple[Sequence[int], str]:
    if view.reserved_resources is not None:
        return [each.id for each in view.reserved_resources], "reserved"
    return view.assigned.resources, "assigned"


def walltime_change(standing: "WalltimeStatus") -> dict[str, Any]:
    """Return how it stands with the walltime of a job, as texts."""
    change, possible = standing.change, standing.possible
    return {
        "walltime": format_duration(standing.walltime),
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
    """Return what lists show of a resource."""
    return {
        "id": view.id,
        "state": view.state,
        "available_upto": view.columns["available_upto"],
        "network_address": view.node,
        "api_timestamp": now(),
        "links": _resource_links(view, prefix),
    }


def full_resource(view: "ResourceView", prefix: str, *, with_jobs: bool = False) -> dict[str, Any]:
    """Return all columns of a resource; ``cpuset`` is a number where it can be one."""
    columns = {name: value for name, value in view.columns.items() if name != "resource_id"}
    cpuset = str(columns.get("cpuset", ""))
    if cpuset.isascii() and cpuset.isdigit():
        columns["cpuset"] = int(cpuset)
    jobs = {"jobs": [{"id": each, "links": [link("self", f"{prefix}/jobs/{each}")]} for each in view.jobs]}
    return {
        **columns,
        "id": view.id,
        **(jobs if with_jobs else {}),
        "api_timestamp": now(),
        "links": _resource_links(view, prefix),
    }


def _resource_links(view: "ResourceView", prefix: str) -> list[dict[str, str]]:
    here = f"{prefix}/resources/{view.id}"
    node = [link("member", f"{prefix}/resources/nodes/{segment(view.node)}", "node")] if view.node else []
    return [*node, link("self", here), link("collection", f"{here}/jobs", "jobs")]
