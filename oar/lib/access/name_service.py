"""Look up accounts and groups in the name service (NSS), such as LDAP; the C library waits without a limit.

Commands limit the time of look-ups (``oar/cli/common/process.py``), and so does the API
(``oar/api/authentication.py``).  Other programs wait until the name service answers.
"""

import os
from _thread import allocate_lock  # commands import "threading" only when they need it
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol, TypeVar

from oar.lib.base.errors import Unavailable

if TYPE_CHECKING:
    import grp
    import pwd

Found = TypeVar("Found")

#: The lock of the C library's position in the list of all accounts.
_listing = allocate_lock()
#: Length of the first buffer for the groups of an account.
_GROUPS = 64


class NameServiceSilent(Unavailable):
    """The name service does not answer."""


class Watch(Protocol):
    """Runs a look-up; ``what`` is its description for messages."""

    def __call__(self, what: str, find: Callable[[], Found], /) -> Found:
        """Return the result of the look-up.  Raises its error, and NameServiceSilent."""


def _unwatched(_: str, find: Callable[[], Found], /) -> Found:
    return find()


_watch: Watch = _unwatched


@contextmanager
def watched(watch: Watch) -> Iterator[None]:
    """Run the look-ups in this block with ``watch``, which may raise NameServiceSilent."""
    global _watch  # noqa: PLW0603 - a process runs one command at a time
    former, _watch = _watch, watch
    try:
        yield
    finally:
        _watch = former


def account(who: int | str) -> "pwd.struct_passwd":
    """Return an account by number or name.  Raises KeyError, NameServiceSilent; ValueError for an invalid name."""
    import pwd

    return _watch(f"account {who}", lambda: pwd.getpwuid(who) if isinstance(who, int) else pwd.getpwnam(who))


def group(which: int | str) -> "grp.struct_group":
    """Return a group by number or name.  Raises KeyError, NameServiceSilent; ValueError for an invalid name."""
    import grp

    return _watch(f"group {which}", lambda: grp.getgrgid(which) if isinstance(which, int) else grp.getgrnam(which))


def groups_of(name: str, main: int) -> list[int]:
    """Return the group ids of an account, including its main group.  Raises NameServiceSilent."""
    return _watch(f"groups of {name}", lambda: _group_list(name, main))


def accounts() -> "list[pwd.struct_passwd]":
    """Return all accounts that the name service lists.  Raises NameServiceSilent, OSError."""
    return _watch("all accounts", _all_accounts)


def _all_accounts() -> "list[pwd.struct_passwd]":
    """Return the same as ``pwd.getpwall``, which blocks all other threads because it holds the interpreter lock."""
    import ctypes
    import pwd

    text, number, fields = ctypes.c_char_p, ctypes.c_uint32, "npugcds"

    class Entry(ctypes.Structure):
        _fields_ = tuple(zip(fields, (text, text, number, number, text, text, text), strict=True))  # as in pwd.h

    library, found = ctypes.CDLL(None), []
    library.getpwent.restype = ctypes.c_void_p
    with _listing:  # the C library has only one position in the list and one entry buffer
        library.setpwent()
        try:
            while address := library.getpwent():
                entry = Entry.from_address(address)
                found.append(pwd.struct_passwd(_as_python(getattr(entry, field)) for field in fields))
        finally:
            library.endpwent()
    return found


def _as_python(value: int | bytes | None) -> int | str:
    return value if isinstance(value, int) else os.fsdecode(value or b"")


def _group_list(name: str, main: int) -> list[int]:
    """Return the same as ``os.getgrouplist``, which blocks all other threads.  Raises OSError."""
    import ctypes

    size, room = 0, ctypes.c_int(_GROUPS)
    while size < room.value:
        size = room.value
        numbers = (ctypes.c_uint32 * size)()
        if ctypes.CDLL(None).getgrouplist(os.fsencode(name), ctypes.c_uint32(main), numbers, ctypes.byref(room)) >= 0:
            return numbers[: room.value]
    raise OSError(f"cannot look up: groups of {name}: the C library returned none. Try again later.")
