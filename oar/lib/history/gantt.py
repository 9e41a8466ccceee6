"""The Gantt diagram: jobs and resources between two dates, as one record."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from oar.lib.history.views_events import event_record
from oar.lib.jobs.privacy import Privacy
from oar.lib.jobs.sql_listings import Assigned, PlannedResource
from oar.lib.jobs.views import JobView, job_views

if TYPE_CHECKING:
    from oar.lib.db.transaction import Transaction


def gantt(tx: "Transaction", start: int, stop: int, privacy: Privacy) -> dict[str, object]:
    """Return jobs and resources between two dates."""
    views = job_views(tx, tx.jobs.select(tx.listings.jobs_between(start, stop)), privacy)
    foreseen = {view.prediction.moldable: view for view in views if view.prediction and not view.job.started}
    planned = tx.listings.planned(list(foreseen))
    resources = tx.listings.resources()
    return {
        "jobs": {view.job.id: _gantt_job(view, planned) for view in views},
        "resources": resources,
        "dead_resources": dict(sorted(tx.listings.unavailable_between(start, stop).items())),
    }


def _gantt_job(view: JobView, planned: Mapping[int, Sequence[PlannedResource]]) -> dict[str, object]:
    job, assigned = view.job, view.assigned
    start, walltime = view.job.started, view.walltime or 0
    if not start and view.prediction:
        start = view.prediction.start
        resources = planned.get(view.prediction.moldable, ())
        nodes = sorted({resource.node for resource in resources if resource.node})
        assigned = Assigned(tuple(resource.id for resource in resources), tuple(nodes))
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
        "foreseen_at": view.foreseen_at or None,
        "stop_time": job.stop_time or (start + walltime if start else 0),
        "walltime": walltime,
        "resource_id": assigned.resources,
        "network_address": assigned.nodes,
        "dependencies": [resource.required for resource in view.dependencies],
        "events": [event_record(resource) for resource in view.events],
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
