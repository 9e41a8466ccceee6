"""The lists of queues and hosts of ``-q`` and ``-masterq``: ``queue``, ``queue@host``, ``queue@@hostgroup``.

Each part may be a pattern.  See docs/design/reservations.rst, "What is asked for".
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from typing import NamedTuple

from oar.lib.base.errors import BadRequest
from oar.lib.base.name_patterns import check_number, matching
from oar.lib.jobs.records import Queue
from oar.lib.jobs.states import QueueState
from oar.lib.reservations.environments import SiteEnvironments
from oar.lib.reservations.preparation import BadReservation

_ENTRY = re.compile(
    r"(?P<queue>[A-Za-z0-9_.:+*?\[\]!^-]*)(?:@(?P<is_group>@)?(?P<host>[A-Za-z0-9_.:+*?\[\]!^-]+))?", re.ASCII
)


#: A refusal tells so many names that there are.
SHOWN_NAMES = 10


class QueueCandidate(NamedTuple):
    """A queue that matches a list."""

    queue: str  #: '' = that of the rules of the site
    condition: str = ""  #: on the resources that the list allows in it; '' = all


class SiteQueues(NamedTuple):
    """The queues, hosts and environments that a list may name."""

    queues: Sequence[Queue]
    hosts: frozenset[str]
    environments: SiteEnvironments


class _Entry(NamedTuple):
    queues: frozenset[str]
    hosts: frozenset[str] = frozenset()
    condition: str = ""  #: of groups of hosts


def candidates(text: str, site: SiteQueues) -> list[QueueCandidate]:
    """Return the queues that a list allows, highest priority first.  Raises BadReservation."""
    entries = _read(text, site)
    if not entries:
        return [QueueCandidate("")]
    named = frozenset[str]().union(*(entry.queues for entry in entries))
    queues = sorted(
        (queue for queue in site.queues if queue.name in named), key=lambda queue: (-queue.priority, queue.name)
    )
    return [
        QueueCandidate(queue.name, _joined([entry for entry in entries if queue.name in entry.queues], site))
        for queue in queues
    ]


class ListedHosts(NamedTuple):
    """The hosts of a list."""

    condition: str  #: on the resources that lie on them; '' = all
    number: int | None  #: how many they are; None = the conditions of host groups decide


def listed_hosts(text: str, site: SiteQueues) -> ListedHosts:
    """Return the hosts of a list.  Raises BadReservation."""
    entries = _read(text, site)
    names = frozenset[str]().union(*(entry.hosts for entry in entries))
    return ListedHosts(_joined(entries, site), len(names) if all(entry.hosts for entry in entries) else None)


def _joined(entries: Sequence[_Entry], site: SiteQueues) -> str:
    """Return the condition on the resources that at least one entry allows; '' means all."""
    hosts = frozenset[str]().union(*(entry.hosts for entry in entries))
    others = [entry.condition for entry in entries if not entry.hosts]
    return any_of([*others, _hosts_among(hosts, site)] if hosts else others)


def any_of(conditions: Sequence[str]) -> str:
    """Return the conditions joined with OR; '' if one of them is '', which is always true."""
    if not all(conditions):
        return ""
    different = list(dict.fromkeys(conditions))
    return different[0] if len(different) == 1 else " OR ".join(f"({each})" for each in different)


def of_slots(condition: str) -> str:
    """Return a condition that applies only to slots, not to other resources such as licences."""
    return f"type <> 'default' OR ({condition})" if condition else ""


def _hosts_among(names: frozenset[str], site: SiteQueues) -> str:
    """Return the condition that selects resources of these hosts; their names contain no quote."""
    if names >= site.hosts - {""}:
        return "network_address <> ''"
    quoted = ", ".join(f"'{name}'" for name in sorted(names))
    return f"network_address IN ({quoted})"


def _read(text: str, site: SiteQueues) -> list[_Entry]:
    words = list(dict.fromkeys(word.strip() for word in text.split(",") if word.strip()))
    try:
        check_number(words)
    except BadRequest as error:
        raise BadReservation(f"denied: {error} of queues", "write names, or fewer patterns") from None
    return [_entry(word, site) for word in words]


def _entry(word: str, site: SiteQueues) -> _Entry:
    match = _ENTRY.fullmatch(word)
    if not match:
        raise _unknown(word, "write queue, queue@host or queue@@hostgroup, with commas")
    queues, host = frozenset(_queues(match["queue"], site)), match["host"]
    if not queues:
        raise _unknown(word, f"the queues are {listed(_usable_queues(site))}")
    if host is None:
        return _Entry(queues)
    if match["is_group"]:
        return _Entry(queues, condition=_groups_condition(word, host, site))
    hosts = frozenset(name for name in matching([host], site.hosts) if name and "'" not in name)
    if not hosts:
        raise _unknown(word, f'no host matches "{host}"')
    return _Entry(queues, hosts)


def _groups_condition(word: str, pattern: str, site: SiteQueues) -> str:
    groups = site.environments.hostgroups
    names = sorted(matching([pattern], groups))
    if not names:
        known = listed(groups)
        raise _unknown(word, f"the host groups are {known}" if known else "this site has no host groups")
    return any_of([groups[name] for name in names])


def _queues(pattern: str, site: SiteQueues) -> Iterator[str]:
    """Return the queues that match a pattern, without removed queues, which accept no new reservation."""
    meant = site.environments.queue_aliases.get(pattern, pattern)
    return (name for name in _usable_queues(site) if fnmatchcase(name, meant))


def _usable_queues(site: SiteQueues) -> Iterator[str]:
    return (queue.name for queue in site.queues if queue.state is not QueueState.ORPHANED)


def _unknown(word: str, way_out: str) -> BadReservation:
    return BadReservation(f'Job was rejected because job requests unknown queue "{word}"', way_out)


def listed(names: Iterable[str]) -> str:
    """Return the first names in ascending order, as a comma-separated text."""
    shown = sorted(names)
    return ", ".join(shown[:SHOWN_NAMES]) + (", ..." if len(shown) > SHOWN_NAMES else "")
