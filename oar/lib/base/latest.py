"""The last result of work that may take long: a thread does it, and nobody waits for it."""

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Generic, TypeVar

T = TypeVar("T")


class Latest(Generic[T]):
    """The result that a thread has computed last."""

    def __init__(self, first: T, name: str) -> None:
        """``first``: the value before the first result. ``name``: of the thread."""
        self._value = first
        self._name = name
        self._thread: threading.Thread | None = None

    def value(self, compute: Callable[[], T]) -> T:
        """Return the last result, and begin to compute the next one unless this is being done."""
        present = self._value
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=self._run, args=(compute,), name=self._name, daemon=True)
            with suppress(RuntimeError):  # no thread can be started now
                self._thread.start()
        return present

    def _run(self, compute: Callable[[], T]) -> None:
        self._value = compute()
