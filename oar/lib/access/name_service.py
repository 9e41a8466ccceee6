"""Look-ups of accounts and groups: the C library may ask a directory (NSS, LDAP) and waits as long as it likes.

A command watches them (``oar/cli/common/look_ups.py``); elsewhere they take as long as they take, and the API has a
limit of its own (``oar/api/identity/directory.py``).
"""

import os
from _thread import allocate_lock  # commands load no "threading" before they need it
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol, TypeVar

from oar.lib.facts.errors import Unavailable

if TYPE_CHECKING:
    import grp
    import pwd

Found = TypeVar("Found")

#: Is held by whoever reads the list of all accounts.
_listing = allocate_lock()
#: Groups of an account for which there is room at first.
_GROUPS = 64


class NameServiceSilent(Unavailable):
    """The name service does not answer."""


class Watch(Protocol):
    """Carries out a look-up; ``what`` says what is looked up."""

    def __call__(self, what: str, find: Callable[[], Found], /) -> Found:
        """Return what is found.  Raises what the look-up raises, and NameServiceSilent."""


def _unwatched(_: str, find: Callable[[], Found], /) -> Found:
    return find()


_watch: Watch = _unwatched


@contextmanager
def watched(watch: Watch) -> Iterator[None]:
    """Have look-ups carried out by ``watch``, which may raise NameServiceSilent."""
    global _watch  # noqa: PLW0603 - a process runs one command at a time
    former, _watch = _watch, watch
    try:
        yield
    finally:
        _watch = former


def account(who: int | str) -> "pwd.struct_passwd":
    """Return an account by its number or name.  Raises KeyError, NameServiceSilent; ValueError for what is no name."""
    import pwd

    return _watch(f"account {who}", lambda: pwd.getpwuid(who) if isinstance(who, int) else pwd.getpwnam(who))


def group(which: int | str) -> "grp.struct_group":
    """Return a group by its number or name.  Raises KeyError, NameServiceSilent; ValueError for what is no name."""
    import grp

    return _watch(f"group {which}", lambda: grp.getgrgid(which) if isinstance(which, int) else grp.getgrnam(which))


def groups_of(name: str, main: int) -> list[int]:
    """Return the numbers of the groups of an account, its main group among them.  Raises NameServiceSilent."""
    return _watch(f"groups of {name}", lambda: _group_list(name, main))


def accounts() -> "list[pwd.struct_passwd]":
    """Return all accounts that the name service lists.  Raises NameServiceSilent, OSError."""
    return _watch("all accounts", _all_accounts)


def _all_accounts() -> "list[pwd.struct_passwd]":
    """Do as ``pwd.getpwall``, which lets no other thread run meanwhile."""
    import ctypes
    import pwd

    text, number, fields = ctypes.c_char_p, ctypes.c_uint32, "npugcds"

    class Entry(ctypes.Structure):
        _fields_ = tuple(zip(fields, (text, text, number, number, text, text, text), strict=True))  # as in pwd.h

    library, found = ctypes.CDLL(None), []
    library.getpwent.restype = ctypes.c_void_p
    with _listing:  # the C library has one place in the list, and one entry
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
    """Do as ``os.getgrouplist``, which lets no other thread run meanwhile.  Raises OSError."""
    import ctypes

    size, room = 0, ctypes.c_int(_GROUPS)
    while size < room.value:
        size = room.value
        numbers = (ctypes.c_uint32 * size)()
        if ctypes.CDLL(None).getgrouplist(os.fsencode(name), ctypes.c_uint32(main), numbers, ctypes.byref(room)) >= 0:
            return numbers[: room.value]
    raise OSError(f"cannot look up: groups of {name}: the C library names none. Try again later.")
