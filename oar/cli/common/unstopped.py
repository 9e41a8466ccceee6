"""Transactions of commands are not stopped at a terminal: others would wait for the rows that they have locked."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager

#: ^Z, and what stops a program in the background that writes to its terminal.
_STOPS = (signal.SIGTSTP, signal.SIGTTOU)


@contextmanager
def unstopped() -> Iterator[None]:
    """Do not let the terminal stop this process meanwhile; a thread beside the main one can do nothing about it."""
    try:
        former = [signal.signal(number, signal.SIG_IGN) for number in _STOPS]
    except ValueError:
        yield
        return
    try:
        yield
    finally:
        for number, handler in zip(_STOPS, former, strict=True):
            signal.signal(number, handler)
