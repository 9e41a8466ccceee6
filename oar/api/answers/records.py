"""The records of ``/v1``: one name for one thing, dates in epoch seconds, null for what is not known."""

from oar.lib.db.jobs.job_pages import FoldedJobs, ListedJob
from oar.lib.facts.records import Job
from oar.lib.facts.states import NOT_STARTED
from oar.lib.views.gantt_chunks import ranges
from oar.lib.views.history import event_item
from oar.lib.views.jobs import JobView


def job_item(job: Job | ListedJob) -> dict[str, object]:
    """Return what lists show of a job: what its own row tells."""
    return {
        "id": job.id,
        "name": job.name,
        "user": job.user,
        "project": job.project,
        "queue": job.queue,
        "state": job.state,
        "array": job.array_id,
        "array_index": job.array_index,
        "kind": job.job_type,
        "reservation": job.reservation,
        "submitted": job.submission_time,
        "started": job.started or None,
        "ended": job.stop_time if job.is_final and job.stop_time else None,
        "exit_code": job.exit_code,
        "message": job.message,
    }


def members_record(row: FoldedJobs) -> dict[str, object]:
    """Return the jobs of a row of a folded list, named as those of an array."""
    return {"total": len(row.ids), "jobs": list(ranges(row.ids)), "started": row.started or None}


def job_details(view: JobView) -> dict[str, object]:
    """Return everything of a job that users see."""
    job, end = view.job, view.end
    return {
        **job_item(job),
        "version": view.version,
        "types": view.types,
        "resources_asked": view.wanted_resources,
        "properties": job.properties or None,
        "walltime": view.walltime,
        "planned": view.scheduled_start if job.state in NOT_STARTED else None,
        "foreseen_at": view.foreseen_at or None,
        "nodes": view.assigned.nodes,
        "resources": view.assigned.resources,
        "reserved_resources": [resource.id for resource in view.reserved_resources or ()],
        "advance_reservation": view.advance_reservation or None,
        "dependencies": [dependency.required for dependency in view.dependencies],
        "command": view.command or None,
        "initial_request": view.initial_request or None,
        "directory": job.launching_directory,
        "stdout": view.stdout_file,
        "stderr": view.stderr_file,
        "resubmitted_from": job.resubmit_job_id or None,
        "resubmitted_as": view.resubmitted_as,
        "events": [event_item(event) for event in view.events],
        "end": end.record if end else None,
        **job_used(view),
    }


def job_used(view: JobView) -> dict[str, object]:
    """Return what a job used, once it has ended."""
    usage = view.usage
    fullest = usage.fullest if usage else None
    return {
        "cpu_seconds": usage.cpu_seconds if usage else None,
        "cpu_efficiency": usage.efficiency if usage else None,
        "max_rss": fullest.memory_peak if fullest else None,
    }
