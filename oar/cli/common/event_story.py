"""Events as sentences, for readers at a terminal; programs get the lines of ``render``."""

from collections.abc import Iterable, Mapping

from oar.cli.common.render import visible
from oar.lib.base.times import format_date
from oar.lib.history.event_texts import group_events
from oar.lib.history.records import Event


def event_story(
    events: Iterable[Event], exit_statuses: Mapping[int, int | None] = {}, *, with_types: bool = False
) -> str:
    """Return a line for each event or group of like events, in the order of time.

    ``exit_statuses``: wait statuses by job.  ``with_types``: also the types, for administrators.
    """
    groups = group_events(sorted(events, key=lambda event: (event.date, event.id)), exit_statuses)
    return "".join(
        f"{format_date(group.first.date)}  {visible(group.sentence)}"
        f"{f' [{visible(group.first.type)}]' if with_types else ''}\n"
        for group in groups
    )


def node_story(events: Mapping[str, Iterable[Event]], *, with_types: bool = False) -> str:
    """Return the events of nodes as ``event_story``; an event of several nodes is one line."""
    by_id: dict[int, Event] = {}
    for node, some in events.items():
        for event in some:
            former = by_id.get(event.id, event._replace(hosts=()))
            by_id[event.id] = former._replace(hosts=(*former.hosts, node))
    return event_story(by_id.values(), with_types=with_types)
