"""The last result of work that may take long: a thread does it, and nobody waits for it."""

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Generic, TypeVar

T = TypeVar("T")

#: Seconds for which a result is repeated while the next one is awaited.
PATIENCE_SECONDS = 30.0


class Latest(Generic[T]):
    """The result that a thread has computed last."""

    def __init__(self, none: T, name: str) -> None:
        """``none``: the value without a valid result. ``name``: of the thread."""
        self._none = none
        self._value = none
        self._name = name
        self._thread: threading.Thread | None = None
        self._awaited: float | None = None  #: since when the next result is

    def value(self, compute: Callable[[], T]) -> T:
        """Return the last result, and begin to compute the next one unless this is being done.

        If the next one has been awaited for too long, because ``compute`` hangs or fails, the last one is not repeated.
        """
        present, now = self._value, time.monotonic()
        awaited = self._awaited  # the thread may reset it
        if awaited is None:
            awaited = self._awaited = now
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=self._run, args=(compute,), name=self._name, daemon=True)
            with suppress(RuntimeError):  # no thread can be started now
                self._thread.start()
        return present if now - awaited < PATIENCE_SECONDS else self._none

    def _run(self, compute: Callable[[], T]) -> None:
        self._value = compute()
        self._awaited = None
