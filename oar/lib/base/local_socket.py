"""A Unix socket on which a daemon listens. All users of this machine may connect to it."""

import errno
import os
import socket
from contextlib import suppress


def listening(path: str, kind: socket.SocketKind, backlog: int) -> socket.socket:
    """Listen at a path. Replace a socket file that a former daemon has left. Raises OSError.

    Raise OSError if another process still listens there: replacing its socket would make it unreachable without notice.
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
    """Return whether a process listens at a path."""
    with socket.socket(socket.AF_UNIX, kind) as asking:
        asking.setblocking(False)
        try:
            asking.connect(path)
        except BlockingIOError:  # the queue of connections is full
            return True
        except OSError:
            return False
    return True
