"""How many commands of a user have connections to the database, on one machine: the kernel counts.

A place is a byte of a file that only the account of OAR may open.  Who has it locks it: the kernel gives it back when
its process ends, however that comes.  See docs/design/commands.rst, "Connections to the database".
"""

import fcntl
import os
import pwd

#: Places of one user, and of all.
OF_ONE, OF_ALL = 8, 24
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

    def take(self) -> bool:
        """Take a place, if there is one; where places cannot be counted there always is."""
        if self._held:
            return True
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
        for first, number in ((self._uid * OF_ONE, OF_ONE), (_OF_ALL_FROM, OF_ALL)):
            place = next((each for each in range(first, first + number) if self._locks(each)), None)
            if place is None:
                self.give_back()
                return False
            self._held.append(place)
        return True

    def give_back(self) -> None:
        """Give it back; the second time nothing happens."""
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
