"""Answers that a client has already: it is told so before anything is read, where its tag tells the state of things."""

from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any

from fastapi import Request, Response

from oar.api.responses import MARK, accepts_lines, validators
from oar.api.service import asking, service_of
from oar.lib.facts.topics import Topic

_OF_RESOURCES = frozenset({Topic.RESOURCES, Topic.JOBS, Topic.GANTT, Topic.RESERVATIONS})
_OF_QUEUES = frozenset({Topic.QUEUES, Topic.JOBS})
#: On what the answers of operations depend, of those of which all is told.
TOPICS: Mapping[str, frozenset[Topic]] = {
    "jobs_list": _OF_RESOURCES | _OF_QUEUES | {Topic.EVENTS},
    "nodes_list": _OF_RESOURCES | {Topic.EVENTS},
    "resources_list": _OF_RESOURCES,
    "grid": _OF_RESOURCES | {Topic.EVENTS},
    "property_values": frozenset({Topic.RESOURCES}),
    "queues_list": _OF_QUEUES,
    "queue": _OF_QUEUES,
    "site": frozenset({Topic.QUEUES, Topic.RESOURCES}),
    "properties_list": frozenset({Topic.RESOURCES}),
    "property": frozenset({Topic.RESOURCES}),
    "event_log": frozenset({Topic.EVENTS, Topic.JOBS}),
}


def unless_known(call: Callable[..., Response], request_name: str, topics: frozenset[Topic]) -> Callable[..., Response]:
    """Return a handler that answers 304 at once to who has what it would answer."""

    def answer(**values: Any) -> Response:
        request: Request = values[request_name]
        if accepts_lines(request):
            return call(**values)
        who = asking(request)
        caller, url = who.caller, request.url
        asked = (url.path, url.query, caller.user, str(caller.scopes), who.privacy, id(who.config))
        tag = service_of(request).state_tags.of(topics, *asked)
        request.scope["state"] |= {"asked": who, "state_tag": tag}
        known = request.headers.get("if-none-match", "")
        same = [each for each in map(str.strip, known.split(",")) if tag and each.endswith(f'{MARK}{tag}"')]
        if same:
            return Response(status_code=HTTPStatus.NOT_MODIFIED, headers=validators(same[0]))
        return call(**values)

    return answer
