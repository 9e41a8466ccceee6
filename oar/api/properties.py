"""Properties of resources: their values, their selection (``props=cluster=a``), and what oarproperty changes."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from http import HTTPStatus
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, Field
from starlette.requests import Request
from typing_extensions import TypedDict

from oar.api.parameters import PRINTABLE, STRICT, Force, IfMatch
from oar.api.records import NamedResult
from oar.api.responses import Answer, answer, created
from oar.api.routing import Router
from oar.api.service import AdminAct, administering, asking, check_seen, version_of_values
from oar.lib.base.errors import BadRequest
from oar.lib.bus.messages import Tag, Topic, Wake
from oar.lib.nodes import properties
from oar.lib.nodes.properties import NoProperty
from oar.lib.nodes.records import SYSTEM_PROPERTIES

if TYPE_CHECKING:
    from oar.lib.db.transaction import Transaction

reading = Router("nodes")


PropertyValueList = TypedDict("PropertyValueList", {"name": str, "values": list[str], "more": int})
PropertyValues = TypedDict("PropertyValues", {"items": list[PropertyValueList]})


class PropertyItem(TypedDict):
    name: str
    type: str
    values: int | None
    resources_without: int | None
    version: str


PropertyPage = TypedDict("PropertyPage", {"items": list[PropertyItem]})
Property = TypedDict("Property", {"name": str, "type": str, "largest": int | str | None, "version": str})
RenamedProperty = TypedDict("RenamedProperty", {"name": str, "done": str, "jobs": Sequence[int], "warnings": list[str]})


#: Values of a property in a response, at most.
MAX_VALUES = 100
_Text = Annotated[str, Field(max_length=400, pattern=PRINTABLE)]
Properties = Annotated[
    list[_Text],
    Field(
        max_length=200,
        description="`NAME=VALUE`; repeat a property to match any of its values; all named properties must match.",
    ),
]
#: The accepted values of each property.
Choice = Mapping[str, Collection[str]]


@reading.get(
    "/v1/property-values",
    "property_values",
    "Values of resource properties",
    topics=frozenset({Topic.RESOURCES}),
)
def property_values(request: Request) -> PropertyValues:
    """Return the properties in which resources differ, with their values. `more` is the number of values left out."""
    with asking(request).database.snapshot() as tx:
        names = property_names(tx)
        rows = tx.listings.resources(columns=["network_address", *(f'"{name}"' for name in names)])
    values_of = {name: {row[name] for row in rows if row["network_address"]} for name in names}
    values = {name: sorted(of_it - {None}) for name, of_it in values_of.items() if len(of_it) > 1}
    items: list[PropertyValueList] = [
        {"name": name, "values": [str(value) for value in of_it[:MAX_VALUES]], "more": len(of_it[MAX_VALUES:])}
        for name, of_it in values.items()
    ]
    return {"items": items}


def property_names(tx: "Transaction") -> list[str]:
    """Return the names of the properties that pages can filter by, sorted."""
    return sorted(name for name in tx.resources.columns() if name not in SYSTEM_PROPERTIES)


def choice_of(texts: Iterable[str], known: Collection[str]) -> Choice:
    """Return the choice of ``NAME=VALUE`` texts.  Raises BadRequest.

    >>> choice_of(["gpu=YES", "gpu=NO"], ["gpu"])["gpu"]
    ['YES', 'NO']
    """
    choice: dict[str, list[str]] = defaultdict(list)
    for text in texts:
        name, equals, value = text.partition("=")
        check_property(name, known)
        if not equals:
            raise BadRequest(f"props={text}: must be {name}=VALUE")
        choice[name].append(value)
    return choice


def check_property(name: str, known: Collection[str]) -> None:
    """Refuse a property that resources do not have.  Raises BadRequest."""
    if name not in known:
        raise BadRequest(f"resources have no property {name!r}: {', '.join(known)}")


def is_chosen(columns: Mapping[str, Any], choice: Choice) -> bool:
    """Whether a resource has one of the chosen values of each property."""
    return all(str(columns[name]) in values for name, values in choice.items())


router = Router("administration")

#: What a name may look like is decided below; here it is something that a path can hold.
_NAME = r"^[A-Za-z][A-Za-z0-9_]*$"
PropertyName = Annotated[str, Field(max_length=63, pattern=_NAME)]
PathName = Annotated[str, Field(max_length=63, pattern=_NAME, description="Property name.")]


class NewProperty(BaseModel):
    """A new resource property."""

    model_config = STRICT

    name: PropertyName = Field(description="Name.")
    type: Literal["int", "varchar"] = Field("int", description="Type of the values: number or text.")


class PropertyUpdate(BaseModel):
    """A new name of a property."""

    model_config = STRICT

    name: PropertyName = Field(description="New name.")
    force: bool = Field(
        default=False, description="Rename even if jobs, rules or advance reservations use the property."
    )


@router.get("/v1/properties", "properties_list", "List resource properties", exports=True)
def properties_list(request: Request) -> PropertyPage:
    """Return the properties with type, number of values, and number of resources without a value."""
    who = asking(request)
    with who.database.snapshot() as tx:
        columns = tx.resources.columns()
        names = properties.shown(columns)
        counts = tx.nodes.property_counts(names)
    items: list[PropertyItem] = [
        {
            "name": name,
            "type": properties.type_name(columns[name]),
            "values": counts[name][0],
            "resources_without": counts[name][1],
            "version": version_of_values(name, columns[name]),
        }
        for name in names
    ]
    return {"items": items}


@router.get("/v1/properties/{name}", "property", "Get a property")
def get_property(request: Request, name: PathName) -> Property:
    """Return a property and its largest value; new resources are numbered from there."""
    who = asking(request)
    name = name.lower()
    with who.database.snapshot() as tx:
        column = _column(tx, name)
        largest = tx.nodes.largest_value(name)
    version = version_of_values(name, column)
    return {"name": name, "type": properties.type_name(column), "largest": largest, "version": version}


@router.post(
    "/v1/properties",
    "property_add",
    "Create a property",
    status=HTTPStatus.CREATED,
    record=NamedResult,
    has_location=True,
    or_status=HTTPStatus.OK,
)
def property_add(request: Request, body: NewProperty) -> Answer:
    """Create a resource property, as `oarproperty -a` does. An existing property is kept. Administrators only."""
    with administering(request) as act:
        is_new = properties.add_column(act.tx, act.user, body.name, is_text=body.type == "varchar")
        act.tx.outbox.append(Wake(Tag.TERM))
    record = {"name": body.name.lower(), "done": "added" if is_new else "existed", "warnings": act.warnings}
    return created(record, "properties", body.name.lower()) if is_new else answer(record)


@router.patch("/v1/properties/{name}", "property_rename", "Rename a property")
def property_rename(request: Request, name: PathName, body: PropertyUpdate, match: IfMatch = None) -> RenamedProperty:
    """Rename a property, as `oarproperty -r` does. `jobs` still use the old name. Administrators only."""
    with administering(request) as act:
        _check_seen(act, name, match)
        jobs = properties.rename_column(act.tx, act.user, name, body.name, force=body.force)
        act.tx.outbox.append(Wake(Tag.TERM))
    return {"name": body.name.lower(), "done": "renamed", "jobs": jobs, "warnings": act.warnings}


@router.delete("/v1/properties/{name}", "property_remove", "Delete a property")
def property_remove(request: Request, name: PathName, force: Force = False, match: IfMatch = None) -> NamedResult:
    """Delete a property and all its values, as `oarproperty -d` does. Administrators only."""
    with administering(request) as act:
        _check_seen(act, name, match)
        properties.drop_column(act.tx, act.user, name, force=force)
        act.tx.outbox.append(Wake(Tag.TERM))
    return {"name": name.lower(), "done": "removed", "warnings": act.warnings}


def _check_seen(act: AdminAct, name: str, match: str | None) -> None:
    check_seen(match, f"property {name}", lambda: version_of_values(name.lower(), _column(act.tx, name.lower())))


def _column(tx: "Transaction", name: str) -> str:
    """Return the type of the column that a property is.  Raises NoProperty."""
    columns = tx.resources.columns()
    if name not in properties.shown(columns):
        raise NoProperty(f"unknown property '{name}'")
    return columns[name]
