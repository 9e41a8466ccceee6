"""What an advance reservation asks for, as ``reservations.request`` holds it: alternatives, the best one first.

A condition that many alternatives have is stored once: on a large cluster one may name all nodes.
"""

import json
from collections.abc import Sequence
from typing import NamedTuple

from oar.lib.facts.records import Group, Level


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
    """Return the alternatives in a stored JSON text; none if nothing was stored."""
    stored = json.loads(text) or {"filters": [], "alternatives": []}
    filters = stored["filters"]
    return tuple(
        ReservationAlternative(
            tuple(
                Group(filters[number], tuple(Level(name, quantity) for name, quantity in levels))
                for number, levels in each["groups"]
            ),
            each.get("pe", ""),
            each.get("slots", 0),
        )
        for each in stored["alternatives"]
    )
