"""The end of a command that runs long: it ends with the process that its user has started."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

from oar.cli.common.command import hang_up

#: How long it takes at most, in seconds, to see that the caller is gone.
LOOK = 1.0
_DEPARTURES = (signal.SIGTERM, signal.SIGHUP)


@contextmanager
def ending_with_caller(*, once: bool = False) -> Iterator[None]:
    """Run with these signals: ^C raises KeyboardInterrupt; SIGTERM, SIGHUP and the end of the caller raise Hangup.

    ``once``: what follows the first ^C, as the withdrawal of a request, is not disturbed by another.
    """
    former = {number: signal.signal(number, _hang_up_once) for number in _DEPARTURES}
    # What a shell starts in the background ignores these; the terminal's are meant for it all the same.
    former[signal.SIGINT] = signal.signal(signal.SIGINT, _interrupt_once if once else signal.default_int_handler)
    former[signal.SIGQUIT] = signal.signal(signal.SIGQUIT, signal.SIG_DFL)
    is_over = threading.Event()
    watch = threading.Thread(target=_hang_up_without, args=(os.getppid(), is_over), daemon=True)
    watch.start()
    try:
        yield
    finally:
        is_over.set()
        watch.join()
        for number, handler in former.items():
            signal.signal(number, handler)


def _hang_up_once(number: int, frame: object) -> NoReturn:
    """The terminal and the caller mostly go together: the second signal must not disturb what the first lets do."""
    _ignore_departures()
    hang_up(number, frame)


def _interrupt_once(number: int, frame: object) -> NoReturn:
    """Whoever loses patience types ^C again."""
    _ignore_departures()
    raise KeyboardInterrupt


def _ignore_departures() -> None:
    for departure in (*_DEPARTURES, signal.SIGINT):
        signal.signal(departure, signal.SIG_IGN)


def _hang_up_without(caller: int, is_over: threading.Event) -> None:
    """Hang up the main thread once its parent is another than the caller."""
    while not is_over.wait(LOOK):
        if os.getppid() != caller:
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGHUP)
            return
