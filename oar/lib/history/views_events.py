"""Events as users see them: records."""

from oar.lib.history.records import Event


def event_record(event: Event) -> dict[str, object]:
    """Return the record of an event."""
    return {
        "type": event.type,
        "event_id": event.id,
        "description": event.description,
        "job_id": event.job_id,
        "to_check": "YES" if event.to_check else "NO",
        "date": event.date,
    }
