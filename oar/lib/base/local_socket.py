"""A socket in the file system on which a daemon listens: everybody on this machine may use it."""

import errno
import os
import socket
from contextlib import suppress


def listening(path: str, kind: socket.SocketKind, backlog: int) -> socket.socket:
    """Listen at a path; the socket that a daemon has left there is replaced.  Raises OSError.

    Where somebody still listens the path stays his: nobody would reach him any more, and nobody would tell him.
    """
    if is_in_use(path, kind):
        raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
    listener = socket.socket(socket.AF_UNIX, kind)
    try:
        with suppress(FileNotFoundError):
            os.unlink(path)
        listener.bind(path)
        os.chmod(path, 0o666)
        listener.listen(backlog)
    except OSError:
        listener.close()
        raise
    return listener


def is_in_use(path: str, kind: socket.SocketKind) -> bool:
    """Whether somebody listens at a path."""
    with socket.socket(socket.AF_UNIX, kind) as asking:
        asking.setblocking(False)
        try:
            asking.connect(path)
        except BlockingIOError:  # so many have called that none more can
            return True
        except OSError:
            return False
    return True
