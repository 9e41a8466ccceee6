"""Jobs over time on a few nodes: what pages draw small, beside what they tell of a node or of a job to come."""

from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Query, Request

from oar.api.gantt_ import Begin, End
from oar.api.parameters import PRINTABLE, split_list
from oar.api.responses import Answer, answer_unless_known
from oar.api.routing import ApiRoute
from oar.api.service import Asking, asking
from oar.lib.facts.errors import BadRequest
from oar.lib.facts.states import NOT_STARTED
from oar.lib.views.gantt_chunks import DAY, ranges

if TYPE_CHECKING:
    from oar.lib.db.history.gantt_days import DrawnJob

router = APIRouter(tags=["gantt"], route_class=ApiRoute)

#: Nodes, days, and jobs of each kind (ended, running, planned) of an answer, at most.
MOST_NODES, MOST_DAYS, MOST_JOBS = 16, 31, 500
Names = Annotated[
    str, Query(min_length=1, max_length=5000, pattern=PRINTABLE, description=f"Nodes, {MOST_NODES} at most.")
]


@router.get("/v1/gantt/nodes", operation_id="gantt_nodes", summary="Jobs on some nodes over time")
def gantt_nodes(request: Request, node: Names, begin: Begin, to: End) -> Answer:
    """Return the past, running and planned jobs on some nodes, and the periods in which the nodes were unavailable.

    Resources of a job on other nodes are left out. `end` is null for a running job without walltime.
    """
    names = split_list(node)
    if not begin < to <= begin + MOST_DAYS * DAY:
        raise BadRequest(f"a period goes from a date to a later one, over {MOST_DAYS} days at most")
    if len(names) > MOST_NODES:
        raise BadRequest(f"{len(names)} nodes: {MOST_NODES} at most")
    return answer_unless_known(request, strip_record(asking(request), names, begin, to))


def strip_record(who: Asking, names: tuple[str, ...], begin: int, end: int) -> dict[str, Any]:
    """Return what some nodes do in a period.  Raises BadRequest."""
    with who.database.snapshot() as tx:
        by_node = tx.resources.ids_of_nodes(names)
        unknown = [name for name in names if name not in by_node]
        if unknown:
            raise BadRequest(f"there is no node {unknown[0]!r}")
        here = {number for name in names for number in by_node[name]}
        jobs = tx.gantt_days.on(sorted(here), begin, end, MOST_JOBS)
        states = tx.gantt_days.states_on(sorted(here), begin, end)
    return {
        "from": begin,
        "to": end,
        "nodes": [{"name": name, "resources": list(ranges(sorted(by_node[name])))} for name in names],
        "jobs": [_item(job, here) for job in sorted(jobs, key=lambda job: (job.start, job.id))],
        "states": [
            {
                "state": each.state,
                "from": each.start,
                "to": each.stop or None,
                "resources": list(ranges(each.resources)),
            }
            for each in states
        ],
    }


def _item(job: "DrawnJob", here: set[int]) -> dict[str, object]:
    return {
        "id": job.id,
        "name": job.name or None,
        "user": job.user,
        "state": job.state,
        "start": job.start,
        "end": job.stop or job.latest_end,
        "is_over": bool(job.stop),
        "is_planned": job.state in NOT_STARTED,
        "resources": list(ranges(sorted(here.intersection(job.resources)))),
    }
