"""The lists of queues and hosts that ``-q`` and ``-masterq`` take: ``queue``, ``queue@host``, ``queue@@hostgroup``.

Each part may be a pattern.  See docs/design/reservations.rst, "What is asked for".
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from typing import NamedTuple

from oar.lib.facts.records import Queue
from oar.lib.facts.states import QueueState
from oar.lib.reservations.environments import SiteEnvironments
from oar.lib.reservations.preparation import BadReservation

_ENTRY = re.compile(
    r"(?P<queue>[A-Za-z0-9_.:+*?\[\]!^-]*)(?:@(?P<is_group>@)?(?P<host>[A-Za-z0-9_.:+*?\[\]!^-]+))?", re.ASCII
)


#: A refusal tells so many names that there are.
SHOWN_NAMES = 10


class QueueCandidate(NamedTuple):
    """A queue that suits a list."""

    queue: str  #: '' = that of the rules of the site
    condition: str = ""  #: on the resources that the list allows in it; '' = all


class SiteQueues(NamedTuple):
    """What a list may name."""

    queues: Sequence[Queue]
    hosts: frozenset[str]
    environments: SiteEnvironments


class _Entry(NamedTuple):
    text: str
    queues: frozenset[str]
    condition: str


def candidates(text: str, site: SiteQueues) -> list[QueueCandidate]:
    """Return the queues that a list allows, the one of the highest priority first.  Raises BadReservation."""
    entries = _read(text, site)
    if not entries:
        return [QueueCandidate("")]
    named = frozenset[str]().union(*(entry.queues for entry in entries))
    queues = sorted(
        (queue for queue in site.queues if queue.name in named), key=lambda queue: (-queue.priority, queue.name)
    )
    return [
        QueueCandidate(queue.name, any_of([entry.condition for entry in entries if queue.name in entry.queues]))
        for queue in queues
    ]


def hosts_condition(text: str, site: SiteQueues) -> str:
    """Return the condition on resources that lie on a host of a list; '' = all.  Raises BadReservation."""
    return any_of([entry.condition for entry in _read(text, site)])


def any_of(conditions: Sequence[str]) -> str:
    """Return the condition that one of some conditions is satisfied; '' among them is always."""
    if not all(conditions):
        return ""
    different = list(dict.fromkeys(conditions))
    return different[0] if len(different) == 1 else " OR ".join(f"({each})" for each in different)


def of_slots(condition: str) -> str:
    """Return a condition that says nothing of resources that are no slots, as licences."""
    return f"type <> 'default' OR ({condition})" if condition else ""


def hosts_among(names: Sequence[str]) -> str:
    """Return the condition on resources that lie on some hosts, whose names hold no quote."""
    quoted = ", ".join(f"'{name}'" for name in names)
    return f"network_address IN ({quoted})"


def _read(text: str, site: SiteQueues) -> list[_Entry]:
    return [_entry(word.strip(), site) for word in text.split(",") if word.strip()]


def _entry(word: str, site: SiteQueues) -> _Entry:
    match = _ENTRY.fullmatch(word)
    if not match:
        raise _unknown(word, "write queue, queue@host or queue@@hostgroup, with commas")
    queues = frozenset(_queues(match["queue"], site))
    if not queues:
        raise _unknown(word, f"the queues are {listed(_usable_queues(site))}")
    condition = _condition(match["host"], is_group=bool(match["is_group"]), site=site)
    if condition is None and match["is_group"]:
        groups = listed(site.environments.hostgroups)
        raise _unknown(word, f"the host groups are {groups}" if groups else "this site has no host groups")
    if condition is None:
        raise _unknown(word, f'no host matches "{match["host"]}"')
    return _Entry(word, queues, condition)


def _queues(pattern: str, site: SiteQueues) -> Iterator[str]:
    """Return the queues of a pattern; one that is removed takes no new reservation."""
    meant = site.environments.queue_aliases.get(pattern, pattern)
    return (name for name in _usable_queues(site) if fnmatchcase(name, meant))


def _usable_queues(site: SiteQueues) -> Iterator[str]:
    return (queue.name for queue in site.queues if queue.state is not QueueState.ORPHANED)


def _condition(pattern: str | None, *, is_group: bool, site: SiteQueues) -> str | None:
    """Return the condition of the part of an entry behind ``@``; None if it means no host."""
    if pattern is None:
        return ""
    if is_group:
        groups = site.environments.hostgroups
        names = sorted(name for name in groups if fnmatchcase(name, pattern))
        return any_of([groups[name] for name in names]) if names else None
    hosts = sorted(host for host in site.hosts if host and "'" not in host and fnmatchcase(host, pattern))
    return hosts_among(hosts) if hosts else None


def _unknown(word: str, way_out: str) -> BadReservation:
    return BadReservation(f'Job was rejected because job requests unknown queue "{word}"', way_out)


def listed(names: Iterable[str]) -> str:
    """Return the first of some names, ascending."""
    shown = sorted(names)
    return ", ".join(shown[:SHOWN_NAMES]) + (", ..." if len(shown) > SHOWN_NAMES else "")
