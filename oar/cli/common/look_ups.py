"""Look-ups of accounts by commands: the user is told what is waited for, and it is not waited for ever."""

import threading
from collections.abc import Callable

from oar.lib.access.name_service import Found, NameServiceSilent, Watch

#: Seconds after which a user is told, and after which his command gives up.
PATIENCE, MOST_SECONDS = 1.0, 30.0


def in_time(tell: Callable[[str], None]) -> Watch:
    """Return what carries out look-ups within a limit of time, and ``tell``s when one takes long."""

    def watch(what: str, find: Callable[[], Found], /) -> Found:
        return _in_time(what, find, tell)

    return watch


def _in_time(what: str, find: Callable[[], Found], tell: Callable[[str], None]) -> Found:
    """Return what a look-up finds, in a thread of its own if there can be one (RLIMIT_NPROC).

    Raises what it raises, and NameServiceSilent.
    """
    found: list[Found] = []
    failed: list[Exception] = []

    def run() -> None:
        try:
            found.append(find())
        except Exception as error:  # noqa: BLE001 - the caller gets it
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
