"""Lines sent over TCP to the oarsub that waits for its job."""

import errno
import os
import socket

#: The error of an address at which no program listens: the oarsub has ended, and is not only out of reach.
REFUSED = os.strerror(errno.ECONNREFUSED)


def tell_oarsub(address: str, line: str, timeout: float) -> str:
    """Send one line to the oarsub that waits at ``host:port``; return the error text, '' if the line was sent.

    The error is ``REFUSED`` if oarsub has ended.
    """
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        return f"'{address}' is not host:port"
    text = "".join(character if character.isprintable() else " " for character in line)
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout) as connection:
            connection.sendall(text.encode("utf-8", "replace") + b"\n")
    except ConnectionRefusedError:
        return REFUSED
    except (OSError, UnicodeError) as error:
        return str(error) or type(error).__name__
    return ""
