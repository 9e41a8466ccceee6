"""Why something of a job failed on this node: data that the server turns into words (``oar/lib/causes.py``).

A reason is ``{"kind": ..., "errno": "ENOENT", "path": ..., "link": ..., "home": ...}`` with what is known of it.
Kinds: ``directory``, ``output``, ``shell``, ``processes`` (no more of them), ``full`` (no room for what the job
writes), ``session`` (nobody came), ``hook`` (that of the site forbade it).  All is looked at as the user.
"""

import contextlib
import errno
import os

import node_base

#: Errors of a home that is not mounted, or whose file server does not answer.
ABSENT = (errno.ENOENT, errno.ENOTDIR, errno.ESTALE, errno.EHOSTDOWN, errno.ETIMEDOUT, errno.EIO)
FULL = (errno.ENOSPC, errno.EDQUOT)
#: What is written to see whether there is room.
SAMPLE = b"\0" * 4096


def reason(kind, error=None, path=""):
    found = {"kind": kind, "path": path}
    if error is not None:
        found["errno"] = errno.errorcode.get(error.errno, "")
    return found


def of_directory(error, path, account):
    """The working directory cannot be entered: is the home of the user there at all?"""
    return with_home(reason("directory", error, path), path, account)


def with_home(found, path, account):
    """A reason that names the home of the user, if the place is in it and it is not there."""
    home = account.pw_dir
    if (path + "/").startswith(home.rstrip("/") + "/") and not is_home(home, account.pw_uid):
        found["home"] = home
    return found


def is_home(home, uid):
    try:
        return os.stat(node_base.encode(home)).st_uid == uid
    except OSError as error:
        return error.errno not in ABSENT


def of_output(error, path, directory, account):
    found = with_home(reason("output", error, path), os.path.join(directory, path), account)
    with contextlib.suppress(OSError):
        found["link"] = os.fsdecode(os.readlink(node_base.encode(path)))
    return found


def of_shell(error, path):
    return reason("processes" if error.errno == errno.EAGAIN else "shell", error, path)


def of_space(directory, names, temporary):
    """The first place without room among those to which a job writes; None if all have some."""
    with contextlib.suppress(OSError):
        os.chdir(node_base.encode(directory))
    places = {".": directory, temporary: temporary}
    for name in names:
        places.setdefault(os.path.dirname(name) or ".", name)
    for place, shown in places.items():
        if not has_room(node_base.encode(place)):
            return reason("full", None, shown)
    return None


def has_room(directory):
    """Can the user write a page in this directory?  True where nothing tells.

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


def has_free_blocks(directory):
    """For file systems that have no files without a name."""
    try:
        found = os.statvfs(directory)
    except OSError:
        return True
    return (found.f_blocks == 0 or found.f_bavail > 0) and (found.f_files == 0 or found.f_favail > 0)
