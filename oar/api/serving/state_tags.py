"""Tags by which a client is told that nothing has changed, without a look at the database.

What changes the database tells so by its topics, which the hub counts.  An answer depends on some of them, on who asks
what, and on the configuration; while all of these are as they were, so is the answer.  What only time changes (a node
that will be woken, a job that is late) is read anew each minute.  See docs/api.rst, "Records".
"""

import hashlib
import secrets
import time
from typing import TYPE_CHECKING

from oar.lib.facts.topics import Topic

if TYPE_CHECKING:
    from oar.api.hub import Hub

#: Seconds for which an answer counts as the same at most.
LONGEST_SECONDS = 60
#: Seconds without a look at the database after which nobody knows whether anything has changed.
_LONGEST_SILENCE = 15.0


class StateTags:
    """Makes the tags of a process."""

    def __init__(self, hub: "Hub") -> None:
        self._hub = hub
        self._start = secrets.token_hex(4)
        self._own = 0

    def count_change(self) -> None:
        """Count a change by this process itself: what it answers from now on is new, before anybody tells so."""
        self._own += 1

    def of(self, topics: frozenset[Topic], *asked: object) -> str:
        """Return the tag of what is known now, '' while nobody tells of changes; ``asked``: all that answers depend on.

        To be asked for before anything is read: what is committed later is told later.
        """
        hub, now = self._hub, time.monotonic()
        if not hub.is_told or now - hub.told_at > _LONGEST_SILENCE:
            return ""
        counted = [hub.counters[topic] for topic in sorted(topics)]
        place = hub.position if topics & {Topic.JOBS, Topic.EVENTS} else None
        known = (self._start, self._own, int(now // LONGEST_SECONDS), counted, place, asked)
        return hashlib.blake2b(repr(known).encode(), digest_size=9).hexdigest()
