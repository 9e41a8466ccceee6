"""Why something of a job failed on this node: data that the server turns into words (``oar/lib/jobs/ends.py``).

A fault is ``{"kind": ..., "errno": "ENOENT", "path": ..., "link": ..., "home": ...}`` with what is known of it; the
kinds are ``FaultKind``.  All is looked at as the user.
"""

import contextlib
import errno
import os

import node_base
from node_protocol import FaultKind

TYPE_CHECKING = False
if TYPE_CHECKING:
    import pwd
    from collections.abc import Iterable

    Fault = dict[str, str]

#: Errors of a home that is not mounted, or whose file server does not answer.
ABSENT = (errno.ENOENT, errno.ENOTDIR, errno.ESTALE, errno.EHOSTDOWN, errno.ETIMEDOUT, errno.EIO)
FULL = (errno.ENOSPC, errno.EDQUOT)
#: What is written to see whether there is room.
SAMPLE = b"\0" * 4096


def fault(kind: str, error: "OSError | None" = None, path: str = "") -> "Fault":
    """Return a fault: the kind (``FaultKind``), the name of the error number, the path."""
    fields = {"kind": kind, "path": path}
    if error is not None:
        fields["errno"] = errno.errorcode.get(error.errno or 0, "")
    return fields


def of_directory(error: OSError, path: str, account: "pwd.struct_passwd") -> "Fault":
    """Return why the working directory cannot be entered: is the home of the user there at all?"""
    return with_home(fault(FaultKind.DIRECTORY, error, path), path, account)


def with_home(fields: "Fault", path: str, account: "pwd.struct_passwd") -> "Fault":
    """Return a fault that names the home of the user, if ``path`` is in it and it is not there."""
    home = account.pw_dir
    if (path + "/").startswith(home.rstrip("/") + "/") and not is_home(home, account.pw_uid):
        fields["home"] = home
    return fields


def is_home(home: str, uid: int) -> bool:
    """Return whether a directory is there and belongs to the user."""
    try:
        return os.stat(node_base.encode(home)).st_uid == uid
    except OSError as error:
        return error.errno not in ABSENT


def of_output(error: OSError, path: str, directory: str, account: "pwd.struct_passwd") -> "Fault":
    """Return why an output file, named from the working directory, cannot be opened."""
    fields = with_home(fault(FaultKind.OUTPUT, error, path), os.path.join(directory, path), account)
    with contextlib.suppress(OSError):
        fields["link"] = os.fsdecode(os.readlink(node_base.encode(path)))
    return fields


def of_shell(error: OSError, path: str) -> "Fault":
    """Return why a shell cannot be executed."""
    return fault(FaultKind.PROCESSES if error.errno == errno.EAGAIN else FaultKind.SHELL, error, path)


def of_space(directory: str, names: "Iterable[str]", temporary: str) -> "Fault | None":
    """Return the first directory without room among those to which a job writes; None if all have some."""
    with contextlib.suppress(OSError):
        os.chdir(node_base.encode(directory))
    titles = {".": directory, temporary: temporary}
    for name in names:
        titles.setdefault(os.path.dirname(name) or ".", name)
    for path, title in titles.items():
        if not has_room(node_base.encode(path)):
            return fault(FaultKind.FULL, None, title)
    return None


def has_room(directory: bytes) -> bool:
    """Return whether the user can write a page in this directory; True where nothing tells.

    Nothing is flushed: file systems refuse what has no room when it is written, and a busy disk is not waited for.
    """
    try:
        fd = os.open(directory, os.O_TMPFILE | os.O_WRONLY | os.O_CLOEXEC, 0o600)
    except OSError as error:
        return error.errno not in FULL and has_free_blocks(directory)
    try:
        os.write(fd, SAMPLE)
    except OSError as error:
        return error.errno not in FULL
    finally:
        os.close(fd)
    return True


def has_free_blocks(directory: bytes) -> bool:
    """Return whether the figures of a file system tell of room: for those that have no files without a name."""
    try:
        figures = os.statvfs(directory)
    except OSError:
        return True
    return (figures.f_blocks == 0 or figures.f_bavail > 0) and (figures.f_files == 0 or figures.f_favail > 0)
