"""Resources by the values of their properties, chosen as in the addresses of Monika: ``props=cluster=a``."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Query, Request

from oar.api.parameters import PRINTABLE
from oar.api.responses import Answer, answer_unless_known
from oar.api.routing import ApiRoute
from oar.api.service import asking
from oar.lib.facts.errors import BadRequest
from oar.lib.facts.records import SYSTEM_PROPERTIES

if TYPE_CHECKING:
    from oar.lib.db.transaction import Transaction

router = APIRouter(tags=["nodes"], route_class=ApiRoute)

#: Values of a property that are named: of what every resource has another one, the first are enough.
MOST_VALUES = 100
_Text = Annotated[str, Query(max_length=400, pattern=PRINTABLE)]
Properties = Annotated[
    list[_Text],
    Query(
        max_length=200,
        description="`NAME=VALUE`; repeat a property to match any of its values; all named properties must match.",
    ),
]
#: The values of which a resource has one, by property.
Choice = Mapping[str, Collection[str]]


@router.get("/v1/property-values", operation_id="property_values", summary="Values of resource properties")
def property_values(request: Request) -> Answer:
    """Return the properties in which resources differ, with their values. `more` is the number of values left out."""
    with asking(request).database.snapshot() as tx:
        names = property_names(tx)
        rows = tx.listings.resources(columns=["network_address", *(f'"{name}"' for name in names)])
    found = {name: {row[name] for row in rows if row["network_address"]} for name in names}
    values = {name: sorted(of_it - {None}) for name, of_it in found.items() if len(of_it) > 1}
    items = [
        {"name": name, "values": [str(value) for value in of_it[:MOST_VALUES]], "more": len(of_it[MOST_VALUES:])}
        for name, of_it in values.items()
    ]
    return answer_unless_known(request, {"items": items})


def property_names(tx: "Transaction") -> list[str]:
    """Return the properties that pages choose by, by name."""
    return sorted(name for name in tx.resources.columns() if name not in SYSTEM_PROPERTIES)


def choice_of(texts: Iterable[str], known: Collection[str]) -> Choice:
    """Return what texts choose among properties that there are.  Raises BadRequest.

    >>> choice_of(["gpu=YES", "gpu=NO"], ["gpu"])["gpu"]
    ['YES', 'NO']
    """
    choice: dict[str, list[str]] = defaultdict(list)
    for text in texts:
        name, equals, value = text.partition("=")
        check_property(name, known)
        if not equals:
            raise BadRequest(f"props={text}: write {name}=VALUE")
        choice[name].append(value)
    return choice


def check_property(name: str, known: Collection[str]) -> None:
    """Refuse a property that resources do not have.  Raises BadRequest."""
    if name not in known:
        raise BadRequest(f"resources have no property {name!r}: {', '.join(known)}")


def is_chosen(columns: Mapping[str, Any], choice: Choice) -> bool:
    """Whether a resource has one of the chosen values of each property."""
    return all(str(columns[name]) in values for name, values in choice.items())
