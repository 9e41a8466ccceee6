"""How busy resources are by the values of a property, and when one is free again; those on no node by their type."""

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Query, Request

from oar.api.nodes.chosen_properties import check_property, property_names
from oar.api.resource_states import LETTERS, Property, name_of
from oar.api.responses import Answer, answer_unless_known
from oar.api.routing import ApiRoute
from oar.api.service import Asking, asking, service_of
from oar.lib.facts.states import NOT_STARTED
from oar.lib.rules.next_free import Taken, next_free

if TYPE_CHECKING:
    from oar.lib.db.transaction import Transaction

router = APIRouter(tags=["nodes"], route_class=ApiRoute)

#: Values of a property that are told, at most.
MOST = 50
#: Jobs that run, and that are planned, of which it is known when they end: of more nobody is kept waiting.
MOST_JOBS = 5000
#: The end of all plans.
_END = 2**40
By = Annotated[Property, Query(description="Resource property; default: the one in the site's web.yaml.")]


@router.get("/v1/groups", operation_id="groups", summary="Resources in each state, grouped by a property")
def groups(request: Request, by: By = "") -> Answer:
    """Return for each value of a property the number of resources in each state, and when one becomes free.

    `next_free` is null if a resource is free or no date is known. `pools` are the same figures, by type, for resources
    without a node, such as licences.
    """
    who = asking(request)
    usual = service_of(request).site_file.choices(who.config.web_conf_file).group_by
    return answer_unless_known(request, groups_record(who, by, usual))


def groups_record(who: Asking, by: str, usual: str = "") -> dict[str, Any]:
    """Return groups of resources; ``usual``: the property if none is named, ignored if there is none of this name.

    Raises BadRequest.
    """
    with who.database.snapshot() as tx:
        names = property_names(tx)
        if by:
            check_property(by, names)
        name = by or (usual if usual in names else "")
        items = _groups(tx, name, on_nodes=True) if name else []
        pools = _groups(tx, "type", on_nodes=False)
    return {"by": name or None, "properties": names, "items": items[:MOST], "more": len(items[MOST:]), "pools": pools}


def _groups(tx: "Transaction", column: str, *, on_nodes: bool) -> list[dict[str, Any]]:
    """Return the numbers of resources by the values of a column, and when one is free of those that are all taken."""
    numbers: dict[str, Counter[str]] = {}
    for value, alike in tx.listings.alike_by(column, tx.now, on_nodes=on_nodes):
        numbers.setdefault(value, Counter())[name_of(alike)] += alike.number
    full = [value for value, counted in numbers.items() if not counted["free"]][:MOST]
    dates = _free_again(tx, column, full, on_nodes=on_nodes)
    return [
        {"value": value, "total": counted.total(), **{name: counted[name] for name in LETTERS}}
        | {"next_free": dates.get(value)}
        for value, counted in sorted(numbers.items())
    ]


def _free_again(tx: "Transaction", column: str, full: Sequence[str], *, on_nodes: bool) -> dict[str, int | None]:
    """Return when the first resource of each value is free that could be used."""
    usable = tx.listings.usable_by(column, full, on_nodes=on_nodes) if full else {}
    if not usable:
        return {}
    asked = sorted(number for numbers in usable.values() for number in numbers)
    jobs = [job for job in tx.gantt_days.on(asked, tx.now, _END, MOST_JOBS) if not job.stop]
    planned = [job for job in jobs if job.state in NOT_STARTED]
    if MOST_JOBS in (len(planned), len(jobs) - len(planned)):
        return {}
    taken = [Taken(job.start, job.latest_end, job.resources) for job in jobs]
    taken += [Taken(each.start, each.end, each.resources) for each in tx.advance_reservations.planned()]
    return {value: next_free(numbers, taken, tx.now) for value, numbers in usable.items()}
