"""Look-ups of accounts by commands, with a message after 1 s and a limit of 30 s."""

import threading
from collections.abc import Callable

from oar.lib.access.name_service import Found, NameServiceSilent, Watch

#: Seconds after which the command prints a message, and after which it fails.
PATIENCE, MOST_SECONDS = 1.0, 30.0


def in_time(tell: Callable[[str], None]) -> Watch:
    """Return a watch that limits the time of look-ups; ``tell`` prints the message about a slow one."""

    def watch(what: str, find: Callable[[], Found], /) -> Found:
        return _in_time(what, find, tell)

    return watch


def _in_time(what: str, find: Callable[[], Found], tell: Callable[[str], None]) -> Found:
    """Run a look-up in its own thread, or in this one if RLIMIT_NPROC allows no other; return its result.

    Raises the error of the look-up, and NameServiceSilent.
    """
    found: list[Found] = []
    failed: list[Exception] = []

    def run() -> None:
        try:
            found.append(find())
        except Exception as error:  # noqa: BLE001 - raised again below
            failed.append(error)

    thread = threading.Thread(target=run, daemon=True)
    try:
        thread.start()
    except RuntimeError:
        return find()
    thread.join(PATIENCE)
    if thread.is_alive():
        tell(f"waiting for the name service ({what}), at most {MOST_SECONDS:.0f} s.")
        thread.join(MOST_SECONDS - PATIENCE)
    if failed:
        raise failed[0]
    if found:
        return found[0]
    reason = f"the name service did not answer within {MOST_SECONDS:.0f} s"
    raise NameServiceSilent(f"cannot look up: {what}: {reason}. Try again later.")
