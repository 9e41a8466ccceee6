"""Addresses: clients that may connect and submit jobs (ALLOWED_NETWORKS), and the grouping of addresses for limits."""

import ipaddress
import socket
from collections.abc import Sequence
from functools import lru_cache

from oar.lib.base.errors import NotAllowed

#: This machine, by all addresses of its loopback.
THIS_MACHINE = "127.0.0.1"


@lru_cache(maxsize=4096)
def _parsed(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """Return a numeric address without its zone, as IPv4 if it is a mapped one. Raises ValueError.

    Each end of a job is a new connection of a node: the addresses of nodes are kept.
    """
    address = ipaddress.ip_address(text.partition("%")[0])
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address


class Networks:
    def __init__(self, texts: Sequence[str]) -> None:
        self._networks = [ipaddress.ip_network(text, strict=False) for text in texts]

    def has(self, host: str) -> bool:
        """Return whether a numeric address is in one of the networks."""
        address = _parsed(host)
        return any(address in network for network in self._networks)


def holder_of(address: str) -> str:
    """Return the group of an address for limits: all loopback addresses are this machine, a /64 of IPv6 is one host.

    >>> [holder_of(address) for address in ("127.9.9.9", "::1", "192.0.2.7", "2001:db8::1:2", "testclient")]
    ['127.0.0.1', '127.0.0.1', '192.0.2.7', '2001:db8::/64', 'testclient']
    """
    try:
        number = _parsed(address)
    except ValueError:
        return address
    if number.is_loopback:
        return THIS_MACHINE
    if isinstance(number, ipaddress.IPv6Address):
        return str(ipaddress.ip_network((number, 64), strict=False))
    return str(number)


def check_this_host(allowed: Sequence[str], server: str, port: int) -> None:
    """Check that the address of this host, as the server receives it, is in an allowed network. Raises NotAllowed."""
    try:
        address = _own_address(server, port)
    except OSError as error:
        text = f"the server {server} cannot be reached: {error.strerror}"
        raise NotAllowed(f"it is unknown whether this host is in ALLOWED_NETWORKS, {text}.") from None
    if not Networks(allowed).has(address):
        raise NotAllowed(f"jobs cannot be submitted from this host: {address} is not in ALLOWED_NETWORKS.")


def _own_address(host: str, port: int) -> str:
    """Return the local address used to reach another host, without sending anything. Raises OSError."""
    family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind) as unconnected:
        unconnected.connect(address)
        name: str = unconnected.getsockname()[0]
        return name
