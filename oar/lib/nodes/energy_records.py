"""Energy saving (pure functions): nodes that are kept awake, and time limits for booting nodes."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

#: A part of ENERGY_SAVING_NODES_KEEPALIVE: a condition, and how many idle nodes that satisfy it are kept awake.
KeptGroup = tuple[str, int]
#: A limit for woken nodes, in seconds, behind the number of nodes that boot from which on it holds.
BootLimit = tuple[int, int]


class KeptNodes(NamedTuple):
    """The nodes of a kept group; ``number`` idle nodes of them stay awake."""

    nodes: frozenset[str]
    number: int


class NodePower(NamedTuple):
    """The power state of a node, derived from its resources of type default."""

    name: str
    is_alive: bool  #: all of them, and nothing else is asked for
    is_asleep: bool  #: all are Absent, and nothing else is asked for
    is_leaving: bool  #: one is asked to be Absent
    is_held: bool  #: a job or an advance reservation has one
    earliest_upto: int  #: the least ``available_upto``
    latest_upto: int  #: the greatest

    @property
    def is_idle(self) -> bool:
        """Whether the node can start a job immediately."""
        return self.is_alive and not self.is_held


def may_sleep(names: Iterable[str], idle: Collection[str], groups: Sequence[KeptNodes]) -> list[str]:
    """Return the nodes that may be halted so that enough idle nodes of each group stay awake."""
    spare = [len(group.nodes.intersection(idle)) - group.number for group in groups]
    allowed = []
    for name in names:
        concerned = [place for place, group in enumerate(groups) if name in group.nodes]
        if all(spare[place] > 0 for place in concerned):
            allowed.append(name)
            for place in concerned:
                spare[place] -= name in idle
    return allowed


def nodes_missing(awake: Collection[str], wakeable: Iterable[str], groups: Sequence[KeptNodes]) -> list[str]:
    """Return the sleeping nodes that must be woken for the groups; ``awake``: idle nodes and booting nodes."""
    chosen: list[str] = []
    candidates = list(wakeable)
    for group in groups:
        there = group.nodes.intersection([*awake, *chosen])
        sleeping = [name for name in candidates if name in group.nodes and name not in there]
        chosen += sleeping[: max(0, group.number - len(there))]
    return chosen


def boot_seconds(limits: Sequence[BootLimit], booting: int) -> int:
    """Return the time limit for booting nodes, in seconds, when ``booting`` nodes boot at the same time."""
    return next((seconds for number, seconds in reversed(limits) if number <= booting), limits[0][1])


def overdue_boots(woken: Mapping[str, int], limits: Sequence[BootLimit], now: int) -> tuple[list[str], int | None]:
    """Return the nodes whose boot time limit has passed, and the next limit of the other nodes.

    ``woken``: the booting nodes, with the date of the wake-up.
    """
    seconds = boot_seconds(limits, len(woken))
    late = sorted(name for name, date in woken.items() if date + seconds <= now)
    return late, min((date + seconds for date in woken.values() if date + seconds > now), default=None)
