"""The lists of queues and hosts that ``-q`` and ``-masterq`` take: ``queue``, ``queue@host``, ``queue@@hostgroup``.

Each part may be a pattern.  See docs/design/reservations.rst, "What is asked for".
"""

import re
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from typing import NamedTuple

from oar.lib.facts.records import Queue
from oar.lib.facts.states import QueueState
from oar.lib.reservations.environments import SiteEnvironments
from oar.lib.reservations.preparation import BadReservation

_ENTRY = re.compile(
    r"(?P<queue>[A-Za-z0-9_.:+*?\[\]!^-]*)(?:@(?P<is_group>@)?(?P<host>[A-Za-z0-9_.:+*?\[\]!^-]+))?", re.ASCII
)


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
        raise _unknown(word)
    queues = frozenset(_queues(match["queue"], site))
    condition = _condition(match["host"], is_group=bool(match["is_group"]), site=site)
    if not queues or condition is None:
        raise _unknown(word)
    return _Entry(word, queues, condition)


def _queues(pattern: str, site: SiteQueues) -> Iterator[str]:
    """Iterate over the queues of a pattern; one that is removed takes no new reservation."""
    meant = site.environments.queue_aliases.get(pattern, pattern)
    for queue in site.queues:
        if queue.state is not QueueState.ORPHANED and fnmatchcase(queue.name, meant):
            yield queue.name


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


def _unknown(word: str) -> BadReservation:
    return BadReservation(f'Job was rejected because job requests unknown queue "{word}"')
