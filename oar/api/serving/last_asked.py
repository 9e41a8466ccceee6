"""What is kept for the keys that were asked for last."""

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


class LastAsked(Generic[_Key, _Value]):
    """A value for each of the last keys; threads may share it."""

    def __init__(self, make: Callable[[], _Value], most: int) -> None:
        """``make``: makes the value of a new key; it takes no time.  ``most``: so many keys are kept."""
        self._make = make
        self._most = most
        self._kept: OrderedDict[_Key, _Value] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, key: _Key) -> _Value:
        """Return the value of a key; the key that was asked for longest ago may be forgotten."""
        with self._lock:
            if key not in self._kept:
                self._kept[key] = self._make()
            self._kept.move_to_end(key)
            while len(self._kept) > self._most:
                self._kept.popitem(last=False)
            return self._kept[key]
