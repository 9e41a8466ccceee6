"""x"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from oar.cli.common.options import Stop
from oar.cli.common.render import padded, places, visible
from oar.lib.base.times import format_date, format_duration
from oar.lib.jobs.fields import FIELDS, Kind

Record = Mapping[str, object]

#: Fields by the keys that a record of a job may have.
_FIELDS = {key: field for field in FIELDS for key in field.records}
KEYS = tuple(_FIELDS)
#: Other words for them.
_ALIASES = {
    "job_id": "id",
    "user": "owner",
    "job_name": "name",
    "queue_name": "queue",
    "nodes": "assigned_network_address",
    "hosts": "assigned_network_address",
    "resources": "assigned_resources",
}


class Field(NamedTuple):
    """A column: the key of the record, and what stands above it."""

    key: str
    label: str


def read_fields(text: str) -> list[Field]:
    """Return the fields of ``key[:label],...``.  Raises Stop."""
    fields = []
    for part in text.split(","):
        name, _, label = (each.strip() for each in part.partition(":"))
        key = _ALIASES.get(name, name)
        if key not in KEYS:
            from oar.lib.base.did_you_mean import did_you_mean

            raise Stop(f'# Error: jobs have no field "{name}"{did_you_mean(name, [*KEYS, *_ALIASES])}')
        fields.append(Field(key, label or name))
    return fields


def chosen(records: Mapping[int, Record], fields: Sequence[Field]) -> dict[int, dict[str, object]]:
    """Return the records with these fields only, under their labels."""
    return {job_id: {field.label: record.get(field.key) for field in fields} for job_id, record in records.items()}


def table(records: Mapping[int, Record], fields: Sequence[Field], *, header: bool) -> str:
    """Return a line for each record; columns are as wide as they need to be, '' if there is no record."""
    if not records:
        return ""
    rows = [[_shown(field.key, record.get(field.key)) for field in fields] for _, record in records.items()]
    if header:
        rows.insert(0, [visible(field.label) for field in fields])
    widths = [max(map(places, column)) for column in zip(*rows, strict=True)]
    return "".join(
        " ".join(padded(cell, width) for cell, width in zip(row, widths, strict=True)).rstrip() + "\n" for row in rows
    )


def _shown(key: str, value: object) -> str:
    """Return a value in one word where that can be: ``-`` for nothing, so that columns can be counted."""
    kind = _FIELDS[key].kind
    if isinstance(value, int) and kind is Kind.DATE:
        text = format_date(value)
    elif isinstance(value, int) and kind is Kind.DURATION:
        text = format_duration(value)
    elif isinstance(value, Mapping):
        text = ",".join(f"{name}={'' if each is None else each}" for name, each in value.items())
    elif isinstance(value, Sequence) and not isinstance(value, str):
        text = str(len(value)) if key == "events" else ",".join(map(str, value))
    else:
        text = "" if value is None else str(value)
    return visible(text) or "-"
