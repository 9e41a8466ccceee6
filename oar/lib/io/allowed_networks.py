"""ALLOWED_NETWORKS: the hosts that may connect to the server and submit jobs."""

import ipaddress
import socket
from collections.abc import Sequence

from oar.lib.facts.errors import NotAllowed


class Networks:
    """A list of networks."""

    def __init__(self, texts: Sequence[str]) -> None:
        self._networks = [ipaddress.ip_network(text, strict=False) for text in texts]

    def has(self, host: str) -> bool:
        """Whether a numeric address is in one of the networks."""
        address = ipaddress.ip_address(host.partition("%")[0])
        if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
            address = address.ipv4_mapped
        return any(address in network for network in self._networks)


def check_this_host(allowed: Sequence[str], server: str, port: int) -> None:
    """Check that the server sees this host in an allowed network.  Raises NotAllowed."""
    try:
        address = _own_address(server, port)
    except OSError as error:
        text = f"the server {server} cannot be reached: {error.strerror}"
        raise NotAllowed(f"it is unknown whether this host is in ALLOWED_NETWORKS, {text}.") from None
    if not Networks(allowed).has(address):
        raise NotAllowed(f"jobs cannot be submitted from this host: {address} is not in ALLOWED_NETWORKS.")


def _own_address(host: str, port: int) -> str:
    """Return the address of this host as another host sees it; nothing is sent.  Raises OSError."""
    family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind) as unconnected:
        unconnected.connect(address)
        name: str = unconnected.getsockname()[0]
        return name
