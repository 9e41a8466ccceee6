"""What an advance reservation asks for, as ``reservations.request`` holds it: alternatives, the best one first.

A condition that many alternatives have is stored once: on a large cluster one may name all nodes.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from oar.lib.base.errors import BrokenRow
from oar.lib.jobs.records import Group, Level

#: No number in a request is larger: there are not so many resources, and no column for them.
MOST = 2**31 - 1

#: The condition that an admission rule adds to keep jobs off drained nodes.
_NOT_DRAINED = re.compile(r"\bdrain\s*=\s*'NO'", re.IGNORECASE)

#: What a stored value has to be.
Stored = TypeVar("Stored")


class ReservationAlternative(NamedTuple):
    """One way to satisfy a reservation: a request in one queue, after admission."""

    groups: tuple[Group, ...]
    pe: str = ""  #: the parallel environment by which the request was made; '' = none
    slots: int = 0  #: the slots that it was made for; 0 = what it takes


def encode(alternatives: Sequence[ReservationAlternative]) -> str:
    """Return alternatives as JSON."""
    numbers: dict[str, int] = {}
    stored = [
        {"groups": [(numbers.setdefault(group.filter, len(numbers)), group.levels) for group in each.groups]}
        | ({"pe": each.pe} if each.pe else {})
        | ({"slots": each.slots} if each.slots else {})
        for each in alternatives
    ]
    return json.dumps({"filters": list(numbers), "alternatives": stored})


def decode(text: str) -> tuple[ReservationAlternative, ...]:
    """Return the alternatives in a stored JSON text; none if nothing was stored.  Raises BrokenRow."""
    try:
        return _alternatives(json.loads(text) or {"filters": [], "alternatives": []})
    except (ValueError, LookupError, TypeError, AttributeError):
        raise BrokenRow(f"what an advance reservation asks for cannot be read: {text[:60]}") from None


def decode_readable(text: str) -> tuple[ReservationAlternative, ...]:
    """Return what ``decode`` returns, nothing if the text cannot be read; for those who look at many reservations."""
    try:
        return decode(text)
    except BrokenRow:
        return ()


def granted_groups(alternative: ReservationAlternative) -> tuple[Group, ...]:
    """Return the groups of a granted request; they do not depend on drains, which the reservation precedes."""
    return tuple(
        group._replace(filter=_NOT_DRAINED.sub("drain IN ('YES', 'NO')", group.filter)) for group in alternative.groups
    )


def _alternatives(stored: Mapping[str, Any]) -> tuple[ReservationAlternative, ...]:
    """Return stored alternatives; anything else than their form raises a ValueError, LookupError or TypeError."""
    filters = [_of_type(str, each) for each in stored["filters"]]
    return tuple(
        ReservationAlternative(
            tuple(
                Group(filters[number], tuple(Level(_of_type(str, name), _number(n)) for name, n in levels))
                for number, levels in each["groups"]
            ),
            _of_type(str, each.get("pe", "")),
            _number(each.get("slots", 0)),
        )
        for each in stored["alternatives"]
    )


def _number(value: object) -> int:
    if abs(number := _of_type(int, value)) > MOST:
        raise ValueError(f"{number} is too large")
    return number


def _of_type(type_: type[Stored], value: object) -> Stored:
    if not isinstance(value, type_) or isinstance(value, bool):
        raise TypeError(f"{value!r} is no {type_.__name__}")
    if "\0" in str(value):
        raise ValueError("no column holds a NUL")
    return value
