"""Names of hosts: validate ``network_address`` and the host names for other programs."""

import re

#: Characters of a name, at most: those of the column.
LONGEST = 100

#: What stands between two dots.  Sites use underscores, although RFC 1123 does not know them.
_LABEL = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?", re.ASCII)
#: What resolvers read as a number, and a name of numbers alone as an address.
_NUMBER = re.compile(r"[0-9]+|0[xX][0-9A-Fa-f]*", re.ASCII)


def is_host_name(text: str) -> bool:
    """Return whether a text is a host name (RFC 1123, with underscores), or an IPv4 or IPv6 address.

    >>> is_host_name("node-1.site"), is_host_name("fd00::1"), is_host_name("bad name;x"), is_host_name("-1")
    (True, True, False, False)
    """
    if len(text) > LONGEST:
        return False
    labels = text.split(".")
    if ":" in text or all(map(_NUMBER.fullmatch, labels)):
        return _is_address(text)
    return all(map(_LABEL.fullmatch, labels))


def _is_address(text: str) -> bool:
    import ipaddress

    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return "%" not in text
