"""Records of state changes and events for output."""

from oar.lib.history.event_texts import event_sentence
from oar.lib.history.records import Event, JobStateChange


def event_item(event: Event, exit_status: int | None = None) -> dict[str, object]:
    """Return the record of an event for the REST API; ``exit_status``: that of the command of its job, if known."""
    return {
        "id": event.id,
        "type": event.type,
        "job": event.job_id or None,
        "date": event.date,
        "text": event.description,
        "nodes": event.hosts,
        "sentence": event_sentence(event, exit_status),
    }


def change_item(change: JobStateChange) -> dict[str, object]:
    """Return the record of a state change for the REST API."""
    return {
        "id": change.id,
        "job": change.job_id,
        "state": change.state,
        "from": change.former,
        "date": change.date,
        "user": change.owner,
        "name": change.name or None,
        "queue": change.queue,
        "array": change.array_id,
    }


def event_record(event: Event) -> dict[str, object]:
    """Return the record of an event for oarstat."""
    return {
        "type": event.type,
        "event_id": event.id,
        "description": event.description,
        "job_id": event.job_id,
        "to_check": "YES" if event.to_check else "NO",
        "date": event.date,
    }
