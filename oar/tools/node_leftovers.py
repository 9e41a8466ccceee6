"""Removes what a user leaves behind on a node when his last job there has ended: files, memory, queues."""

import contextlib
import errno
import os
import stat
import time

import node_kernel

TYPE_CHECKING = False
if TYPE_CHECKING:
    import pwd
    from collections.abc import Iterable

CLEAR_SECONDS = 60.0
DEEPEST = 200
DIRECTORY_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
FIRST_USER_UID = 1000
#: Kinds of System V objects: name of the column with their number in /proc/sysvipc, function that removes one.
IPC_KINDS = {"msg": ("msqid", "msgctl"), "shm": ("shmid", "shmctl"), "sem": ("semid", "semctl")}
IPC_RMID = 0


def clear_user(account: "pwd.struct_passwd", directories: "Iterable[str]") -> None:
    """Remove IPC objects and files of a user, unless he runs anything here: he may be logged in."""
    if account.pw_uid < FIRST_USER_UID or has_processes(account.pw_uid):
        return
    remove_ipc(account.pw_uid)
    clearing = Clearing(account.pw_uid)
    for path in directories:
        with contextlib.suppress(OSError):
            clearing.clear(path)


def has_processes(uid: int) -> bool:
    """Return whether a user runs anything; who has ended and waits to be buried does not count."""
    return any(node_kernel.owner_of(pid) == uid and not node_kernel.has_ended(pid) for pid in node_kernel.all_pids())


class Clearing:
    """Removes what a user owns below a directory: by descriptor, no link followed, one file system, within a time."""

    def __init__(self, uid: int) -> None:
        self.uid = uid
        self.limit = time.monotonic() + CLEAR_SECONDS
        self.device = -1

    def clear(self, path: str) -> None:
        """Clear a directory; raise OSError if it cannot be opened."""
        fd = os.open(path, DIRECTORY_FLAGS)
        try:
            self.device = os.fstat(fd).st_dev
            self.clear_entries(fd, 0)
        finally:
            os.close(fd)

    def clear_entries(self, directory: int, depth: int) -> None:
        """Clear an open directory that is so deep below the first one."""
        for name in os.listdir(directory):
            if time.monotonic() > self.limit:
                return
            with contextlib.suppress(FileNotFoundError, NotADirectoryError, PermissionError):
                status = os.stat(name, dir_fd=directory, follow_symlinks=False)
                if stat.S_ISDIR(status.st_mode):
                    self.clear_below(directory, name, depth)
                elif status.st_uid == self.uid:
                    os.unlink(name, dir_fd=directory)

    def clear_below(self, parent: int, name: str, depth: int) -> None:
        """Clear a directory in an open one, and remove it if it is the user's and empty then."""
        try:
            fd = os.open(name, DIRECTORY_FLAGS, dir_fd=parent)
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.EACCES, errno.ENOENT, errno.ENOTDIR):
                return
            raise
        try:
            status = os.fstat(fd)
            if status.st_dev != self.device or depth > DEEPEST or not self.may_have_written(status):
                return
            self.clear_entries(fd, depth + 1)
        finally:
            os.close(fd)
        if status.st_uid == self.uid:
            with contextlib.suppress(OSError):
                os.rmdir(name, dir_fd=parent)

    def may_have_written(self, directory: os.stat_result) -> bool:
        """Return whether anything of the user may be there: others cannot hold up the clean-up by what is theirs."""
        return directory.st_uid == self.uid or bool(directory.st_mode & (stat.S_IWGRP | stat.S_IWOTH))


def remove_ipc(uid: int) -> None:
    for kind, (_, function) in IPC_KINDS.items():
        for identifier in ipc_objects(kind, uid):
            import ctypes

            libc = ctypes.CDLL(None, use_errno=True)
            arguments = (identifier, 0, IPC_RMID) if kind == "sem" else (identifier, IPC_RMID, None)
            getattr(libc, function)(*arguments)


def ipc_objects(kind: str, uid: int) -> "list[int]":
    """Return the identifiers of a user's System V objects of a kind."""
    lines = node_kernel.read("/proc/sysvipc/" + kind).splitlines()
    if not lines:
        return []
    heads = lines[0].split()
    identifier, owner = heads.index(IPC_KINDS[kind][0]), heads.index("uid")
    rows = (line.split() for line in lines[1:])
    return [int(row[identifier]) for row in rows if int(row[owner]) == uid]
