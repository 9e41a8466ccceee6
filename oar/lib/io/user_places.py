"""How many commands of a user have connections to the database, on one machine: the kernel counts.

A place is a byte of a file that only the account of OAR may open.  Who has it locks it: the kernel gives it back when
its process ends, however that comes.  See docs/design/commands.rst, "Connections to the database".
"""

import fcntl
import os
import pwd
from _thread import RLock  # commands load no "threading" before they need it

#: Places of one user, and of all.
OF_ONE, OF_ALL = 8, 24
#: Of those of all so many are for any place of a user; the others are for the first one of each.
OF_FURTHER = 16
#: The file, in the home directory of the account.
FILE = "command-connections"
#: Where the places of all are; those of users begin at multiples of their uids, which are smaller.
_OF_ALL_FROM = 1 << 40


class UserPlace:
    """A place of one process of a user."""

    def __init__(self, uid: int, path: str) -> None:
        self._uid = uid
        self._path = path
        self._file = -1
        self._held: list[int] = []
        self._mutex = RLock()
        self.is_own_missing = False  #: whether the user had all of his own, when there was none the last time

    def take(self) -> bool:
        """Take a place, if there is one; where places cannot be counted there always is."""
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
        """Lock the first place that nobody has."""
        return next((each for each in places if self._locks(each)), None)

    def give_back(self) -> None:
        """Give it back; the second time nothing happens."""
        with self._mutex:
            while self._held:
                fcntl.lockf(self._file, fcntl.LOCK_UN, 1, self._held.pop())

    def _locks(self, place: int) -> bool:
        try:
            fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, place)
        except (BlockingIOError, PermissionError):  # somebody has it: the one or the other, says POSIX
            return False
        return True


def place_of(uid: int) -> UserPlace:
    """Return a place of a command that runs for a user, not taken yet."""
    return UserPlace(uid, os.path.join(pwd.getpwuid(os.geteuid()).pw_dir, FILE))
