"""A rate limit: a maximum number of uses of a name within an hour. Times are those of a monotonic clock."""

from collections import deque

HOUR = 3600.0


class HourlyLimit:
    """Allow ``limit`` uses of a name within an hour, and count the refused ones."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._uses: dict[str, deque[float]] = {}
        self._refused: dict[str, int] = {}

    def allows(self, name: str, now: float) -> bool:
        """Return whether another use is allowed at ``now``, and count it."""
        uses = self._recent(name, now)
        if len(uses) < self._limit:
            uses.append(now)
            return True
        self._refused[name] = self._refused.get(name, 0) + 1
        return False

    def digests(self, now: float, *, everything: bool = False) -> list[tuple[str, int]]:
        """Return and reset the counts of refused uses, for the names that may be used again."""
        ready = [name for name in self._refused if everything or len(self._recent(name, now)) < self._limit]
        return [(name, self._refused.pop(name)) for name in ready]

    def next_digest(self, now: float) -> float | None:
        """Return the seconds until a refused name may be used again, None if none was refused."""
        return min((max(0.0, self._uses[name][0] + HOUR - now) for name in self._refused), default=None)

    def _recent(self, name: str, now: float) -> deque[float]:
        uses = self._uses.setdefault(name, deque())
        while uses and uses[0] <= now - HOUR:
            uses.popleft()
        return uses
