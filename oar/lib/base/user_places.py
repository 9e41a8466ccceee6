"""Limits on the number of each user's commands that have database connections, on one machine.

A place is a locked byte of a file that only the account of OAR can open. The kernel releases the lock when the process
ends. See docs/design/commands.rst, "Connections to the database".
"""

import fcntl
import os
import pwd
from _thread import RLock  # commands load no "threading" before they need it

#: Places of one user, and of all users.
OF_ONE, OF_ALL = 8, 24
#: The part of the places of all users that further places of a user can use; the rest is for first places.
OF_FURTHER = 16
#: The file, in the home directory of the account.
FILE = "command-connections"
#: Offset of the places of all users, above those of single users (uid * OF_ONE).
_OF_ALL_FROM = 1 << 40


class UserPlace:
    """The place of one process, for a user."""

    def __init__(self, uid: int, path: str) -> None:
        self._uid = uid
        self._path = path
        self._file = -1
        self._held: list[int] = []
        self._mutex = RLock()
        self.is_own_missing = False  #: whether the last failure was the limit of the user

    def take(self) -> bool:
        """Take a place. Return True if one was free, or if the file system does not support locks."""
        with self._mutex:
            return bool(self._held) or self._taken()

    def _taken(self) -> bool:
        if self._file < 0:
            try:
                self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            except OSError:
                return True
        try:
            return self._takes()
        except OSError:  # a file system without locks
            self.give_back()
            return True

    def _takes(self) -> bool:
        own = self._first_free(range(self._uid * OF_ONE, (self._uid + 1) * OF_ONE))
        self.is_own_missing = own is None
        if own is None:
            return False
        self._held.append(own)
        most = OF_FURTHER if own % OF_ONE else OF_ALL
        common = self._first_free(range(_OF_ALL_FROM + most - 1, _OF_ALL_FROM - 1, -1))
        if common is None:
            self.give_back()
            return False
        self._held.append(common)
        return True

    def _first_free(self, places: range) -> int | None:
        """Lock the first free place and return it, None if all are taken."""
        return next((place for place in places if self._locks(place)), None)

    def give_back(self) -> None:
        with self._mutex:
            while self._held:
                fcntl.lockf(self._file, fcntl.LOCK_UN, 1, self._held.pop())

    def _locks(self, place: int) -> bool:
        try:
            fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, place)
        except (BlockingIOError, PermissionError):  # another process has locked it; POSIX permits both errors
            return False
        return True


def place_of(uid: int) -> UserPlace:
    """Return a place, not taken yet, for a command that runs for a user."""
    return UserPlace(uid, os.path.join(pwd.getpwuid(os.geteuid()).pw_dir, FILE))
