"""Look-ups of accounts with a timeout.

For an account, the C library may query a name service on another machine (LDAP, SSSD), and does so without a timeout.
"""

import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING

from oar.api.concurrency import FairPlaces, present_holder
from oar.api.errors import TooMany
from oar.lib.access import accounts
from oar.lib.access.records import User
from oar.lib.base.errors import Unavailable

if TYPE_CHECKING:
    from oar.lib.config.files import Config

#: Seconds for which a look-up may take, and for which its result counts.
ANSWER_SECONDS, KEPT_SECONDS = 5.0, 5.0
#: Look-ups that may wait at once: a thread that waits in the C library cannot be ended.
MAX_WAITING = 8

_places = FairPlaces(MAX_WAITING, "too many other look-ups wait for the name service (LDAP, SSSD)", ANSWER_SECONDS)
#: The accounts that were looked up, each with the time until which it counts.
_kept: dict[tuple[object, ...], tuple[User, float]] = {}


def user_of(uid: int, config: "Config") -> User:
    """Do as ``accounts.user_of``.  Raises NotAllowed, Unavailable."""
    return _look_up((uid, config.api_admin_group), lambda: accounts.user_of(uid, config))


def user_named(name: str, config: "Config", *, administers: bool) -> User:
    """Do as ``accounts.user_named``.  Raises NotAllowed, Unavailable."""
    key = (name, administers, config.api_admin_group)
    return _look_up(key, lambda: accounts.user_named(name, config, administers=administers))


def _look_up(key: tuple[object, ...], find: Callable[[], User]) -> User:
    now = time.monotonic()
    kept = _kept.get(key)
    if kept and kept[1] > now:
        return kept[0]
    user = _find_in_time(find, str(key[0]))
    for old in [old for old, (_, until) in list(_kept.items()) if until <= now]:
        _kept.pop(old, None)
    _kept[key] = user, now + KEPT_SECONDS
    return user


def _find_in_time(find: Callable[[], User], name: str) -> User:
    """Look up an account in a separate thread.  Raises the errors of the look-up, Unavailable and TooMany."""
    result: list[User | Exception] = []
    place = ExitStack()

    def run() -> None:
        with place:
            try:
                result.append(find())
            except Exception as error:  # noqa: BLE001 - the caller gets it
                result.append(error)

    try:
        place.enter_context(_places.place(present_holder()))
    except TooMany as error:
        raise TooMany(_describe_failure(name, str(error))) from None
    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(ANSWER_SECONDS)
    if not result:
        reason = f"the name service (LDAP, SSSD) did not answer within {ANSWER_SECONDS:.0f} s"
        raise Unavailable(_describe_failure(name, reason))
    if isinstance(result[0], Exception):
        raise result[0]
    return result[0]


def _describe_failure(name: str, reason: str) -> str:
    return f"cannot look up the account: {name}: {reason}. Try again later."
