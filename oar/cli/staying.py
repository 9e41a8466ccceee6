"""Commands that stay for a while: they end with the process that their user has started.

They run as oar, to whom a user can send no signal.  What he has started is a shell of his own that waits for the
command (``setup/installer.py`` writes it); when that is ended, by ``kill`` or ``timeout``, the command sees that it is
gone.
"""

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager

from oar.cli.command import Hangup, hang_up

#: How long it takes at most, in seconds, to see that the caller is gone.
LOOK = 1.0


class Stay:
    """Made when the command begins to stay."""

    def __init__(self) -> None:
        self._caller = os.getppid()
        # A shell starts with SIGINT ignored what it waits for in the background; the terminal's ^C is meant for it.
        signal.signal(signal.SIGINT, signal.default_int_handler)

    def pause(self, seconds: float) -> None:
        """Sleep.  Raises Hangup when the caller is gone."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            time.sleep(min(left, LOOK))
            if os.getppid() != self._caller:
                raise Hangup


@contextmanager
def ended_by_sigterm() -> Iterator[None]:
    """Let SIGTERM end a command that stays as the loss of the terminal does: with Hangup."""
    former = signal.signal(signal.SIGTERM, hang_up)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, former)
