"""The last rounds of the scheduler: the server is asked once for all who want to see them."""

import threading
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from oar.lib.facts import frames
from oar.lib.facts.errors import ServerUnavailable
from oar.lib.io import control

if TYPE_CHECKING:
    from oar.lib.config.files import Config

#: So many can be asked for.
MOST = 500
#: Seconds given to the server, and for which its answer, or that there was none, is given again.
PATIENCE, KEPT_SECONDS = 0.5, 1.0


class LastRounds:
    """What the server has told, and when."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._asked = float("-inf")
        self._found: frames.RoundsAnswer | None = None

    def find(self, config: "Config", number: int) -> Sequence[Mapping[str, Any]]:
        """Return what the server tells of so many rounds, the newest first.  Raises ServerUnavailable."""
        with self._lock:
            if time.monotonic() - self._asked > KEPT_SECONDS:
                found = control.ask(config, frames.RoundsQuestion(MOST), frames.RoundsAnswer, PATIENCE)
                self._found = found if isinstance(found, frames.RoundsAnswer) else None
                self._asked = time.monotonic()
            if self._found is None:
                raise ServerUnavailable(f"the OAR server ({control.place(config)}) does not answer: ask again later")
            rounds: Sequence[Mapping[str, Any]] = self._found.state["rounds"]
            return rounds[:number]
