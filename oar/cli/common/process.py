"""The process of a command: signals, streams, slow look-ups, and the end with the process that its user has started.

The command runs as the account oar, to whose processes a user can send no signal.  What the user has started is a
shell of his own that waits for the command (setup/installer/programs.py writes it).  When kill or timeout ends this
shell, the command sees that its parent is gone.  The kernel would not report it: a signal at the death of a parent
needs the parent's right to send it.
"""

import gc
import os
import signal
import sys
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import NoReturn

from oar.lib.access.name_service import Found, NameServiceSilent, Watch
from oar.lib.db.connections import use_own_waits

#: How long it takes at most, in seconds, to see that the caller is gone.
CALLER_CHECK_PERIOD = 1.0
_DEPARTURES = (signal.SIGTERM, signal.SIGHUP)


class Hangup(BaseException):
    """The terminal is gone (SIGHUP)."""


def prepare_process(kept_variables: Collection[str] = ()) -> None:
    """Set umask, streams, signals and environment to the same values for all users.

    ``kept_variables``: variables of PostgreSQL that are not deleted.
    """
    os.umask(os.umask(0o077) & 0o077 | 0o022)  # what it makes in our directories is for the next user's command, too
    gc.disable()  # a command lives for moments; looking for cycles among ten thousand jobs costs a third of them
    for name in [name for name in os.environ if name.startswith("PG") and name not in kept_variables]:
        del os.environ[name]
    for stream in (sys.stdout, sys.stderr):
        if reconfigure := getattr(stream, "reconfigure", None):
            reconfigure(encoding="utf-8", errors="surrogateescape")
    signal.signal(signal.SIGHUP, hang_up)
    use_own_waits()


def hang_up(number: int, frame: object) -> NoReturn:
    """Handle a signal that reports the end of the terminal or of the caller.  Raises Hangup."""
    raise Hangup


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
    caller = os.getppid()

    def hang_up_without_caller() -> None:
        while not is_over.wait(CALLER_CHECK_PERIOD):
            if os.getppid() != caller:
                signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGHUP)
                return

    watch = threading.Thread(target=hang_up_without_caller, daemon=True)
    watch.start()
    try:
        yield
    finally:
        is_over.set()
        watch.join()
        for number, handler in former.items():
            signal.signal(number, handler)


def _hang_up_once(number: int, frame: object) -> NoReturn:
    """Handle the first signal only: terminal and caller often end together, and nothing may interrupt the clean-up."""
    _ignore_departures()
    hang_up(number, frame)


def _interrupt_once(number: int, frame: object) -> NoReturn:
    """Whoever loses patience types ^C again."""
    _ignore_departures()
    raise KeyboardInterrupt


def _ignore_departures() -> None:
    for departure in (*_DEPARTURES, signal.SIGINT):
        signal.signal(departure, signal.SIG_IGN)


#: Seconds after which the command prints a message, and after which it fails.
LOOKUP_PATIENCE, LOOKUP_TIMEOUT = 1.0, 30.0


def limited_lookups(tell: Callable[[str], None]) -> Watch:
    """Return a watch that limits the time of look-ups; ``tell`` prints the message about a slow one."""

    def watch(what: str, find: Callable[[], Found], /) -> Found:
        """Run a look-up in its own thread, or in this one if RLIMIT_NPROC allows no other; return its result.

        Raises the error of the look-up, and NameServiceSilent.
        """
        results: list[Found] = []
        failed: list[Exception] = []

        def run() -> None:
            try:
                results.append(find())
            except Exception as error:  # noqa: BLE001 - raised again below
                failed.append(error)

        thread = threading.Thread(target=run, daemon=True)
        try:
            thread.start()
        except RuntimeError:
            return find()
        thread.join(LOOKUP_PATIENCE)
        if thread.is_alive():
            tell(f"waiting for the name service ({what}), at most {LOOKUP_TIMEOUT:.0f} s.")
            thread.join(LOOKUP_TIMEOUT - LOOKUP_PATIENCE)
        if failed:
            raise failed[0]
        if results:
            return results[0]
        reason = f"the name service did not answer within {LOOKUP_TIMEOUT:.0f} s"
        raise NameServiceSilent(f"cannot look up: {what}: {reason}. Try again later.")

    return watch


#: ^Z, and what stops a program in the background that writes to its terminal.
_STOPS = (signal.SIGTSTP, signal.SIGTTOU)


@contextmanager
def ignoring_terminal_stops() -> Iterator[None]:
    """Ignore the stop signals of the terminal meanwhile; has no effect in a thread other than the main one."""
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
