"""What an advance reservation asks for, as ``reservations.request`` holds it: alternatives, the best one first."""

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
    return json.dumps(
        [
            {"groups": [{"filter": group.filter, "levels": group.levels} for group in each.groups]}
            | ({"pe": each.pe} if each.pe else {})
            | ({"slots": each.slots} if each.slots else {})
            for each in alternatives
        ]
    )


def decode(text: str) -> tuple[ReservationAlternative, ...]:
    """Return the alternatives in a stored JSON text."""
    return tuple(
        ReservationAlternative(
            tuple(
                Group(group["filter"], tuple(Level(name, quantity) for name, quantity in group["levels"]))
                for group in each["groups"]
            ),
            each.get("pe", ""),
            each.get("slots", 0),
        )
        for each in json.loads(text)
    )
