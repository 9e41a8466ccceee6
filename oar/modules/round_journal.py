"""The last scheduling passes, in the memory of the server."""

from collections import deque
from collections.abc import Mapping
from typing import Any

from oar.modules.automaton import Module, result_of

#: So many rounds are remembered.
MOST_ROUNDS = 500


class RoundJournal:
    """A record of each of the last passes. It is lost with the process; nothing depends on it."""

    def __init__(self) -> None:
        self._records: deque[dict[str, Any]] = deque(maxlen=MOST_ROUNDS)

    def note(self, code: int | None, starts: int, told: Mapping[str, Any], *, duration: float, ended: float) -> None:
        """Store a pass that ended at a Unix time.

        ``code`` is None if it failed. ``told``: the record from the scheduler.
        """
        self._records.append(
            {
                **told,
                "date": int(ended - duration),
                "duration": round(duration, 3),
                "result": result_of(Module.META_SCHED, code),
                "started": starts,
            }
        )

    def last(self, number: int) -> list[dict[str, Any]]:
        """Return the records of the last ``number`` passes, the newest first."""
        return list(self._records)[: -number - 1 : -1] if number > 0 else []
