"""All resources of all nodes in few bytes: a letter for the condition of each, and the jobs on them."""

import time
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Annotated

from fastapi import APIRouter, Query, Request

from oar.api.answers import Answer, answer_unless_known
from oar.api.jobs import PRINTABLE
from oar.api.service import Asking, asking
from oar.lib.facts.errors import BadRequest
from oar.lib.views.nodes import ResourceView, resource_views
from oar.lib.views.occupancy import Condition, condition_of

router = APIRouter(tags=["nodes"])

STANDBY = "standby"
#: The letter of each condition; an absent resource that is woken when a job needs it has one of its own.
LETTERS = {
    Condition.FREE: "f",
    Condition.USED: "u",
    Condition.RESERVED: "r",
    Condition.DRAINING: "d",
    STANDBY: "z",
    Condition.ABSENT: "a",
    Condition.SUSPECTED: "s",
    Condition.DEAD: "x",
}
Property = Annotated[str, Query(max_length=100, pattern=PRINTABLE, description="A property of resources.")]


@router.get("/grid", operation_id="grid", summary="The condition of every resource, and the jobs on it")
def grid(request: Request, group: Property = "") -> Answer:
    """Return the nodes: the letter of each resource by id, the jobs on them, the value of a property.

    `held` of a node names jobs on neighbouring resources: the first of these, their number, the job.
    """
    return answer_unless_known(request, grid_record(asking(request), group))


def grid_record(who: Asking, group: str = "") -> dict[str, object]:
    """Return all resources of nodes.  Raises BadRequest."""
    with who.database.snapshot() as tx:
        views = [view for view in resource_views(tx) if view.node]
        jobs = tx.jobs.select(sorted({job for view in views for job in view.jobs}))
    properties = [name for name, _ in views[0].user_columns] if views else []
    if group and views and group not in properties:
        raise BadRequest(f"resources have no property {group!r}: {', '.join(properties)}")
    now = int(time.time())
    nodes = [
        _node(name, sorted(of_node, key=lambda view: view.id), group, now)
        for name, of_node in groupby(views, key=lambda view: view.node)
    ]
    numbers: Counter[str] = Counter()
    for view in views:
        numbers[_condition(view, now)] += 1
    return {
        "items": nodes,
        "letters": {letter: condition for condition, letter in LETTERS.items()},
        "total": {condition: numbers[condition] for condition in LETTERS},
        "jobs": [{"id": job.id, "user": job.user, "name": job.name, "queue": job.queue} for job in jobs],
        "properties": properties,
    }


def _condition(view: ResourceView, now: int) -> str:
    return STANDBY if view.is_standby(now) else condition_of(view)


def _node(name: str, views: Sequence[ResourceView], group: str, now: int) -> dict[str, object]:
    value = views[0].columns.get(group) if group else None
    return {
        "name": name,
        "marks": "".join(LETTERS[_condition(view, now)] for view in views),
        "held": list(_runs(views)),
        "group": None if value is None else str(value),
    }


def _runs(views: Sequence[ResourceView]) -> Iterable[tuple[int, int, int]]:
    """Give each job on neighbouring resources: the place of the first, how many, the job."""
    for job in sorted({job for view in views for job in view.jobs}):
        places = [place for place, view in enumerate(views) if job in view.jobs]
        for _, run in groupby(enumerate(places), key=lambda each: each[1] - each[0]):
            first, *others = (place for _, place in run)
            yield first, 1 + len(others), job
