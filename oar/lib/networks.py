"""Which hosts may speak to the server and submit jobs: ALLOWED_NETWORKS (server.md 11)."""

import ipaddress
import socket
from collections.abc import Sequence

from oar.lib.errors import NotAllowed


class Networks:
    """Some networks."""

    def __init__(self, texts: Sequence[str]) -> None:
        self._networks = [ipaddress.ip_network(text, strict=False) for text in texts]

    def has(self, host: str) -> bool:
        """Whether a numeric address, as the system tells it of a connection, is in one of them."""
        address = ipaddress.ip_address(host.partition("%")[0])
        if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
            address = address.ipv4_mapped
        return any(address in network for network in self._networks)


def check_this_host(allowed: Sequence[str], server: str, port: int) -> None:
    """Refuse to go on if the server would see this host outside the allowed networks.  Raises NotAllowed."""
    try:
        address = _own_address(server, port)
    except OSError as error:
        reason = f"there is no way to the server {server}: {error.strerror}"
        raise NotAllowed(f"it cannot be told whether this host is in ALLOWED_NETWORKS, {reason}.") from None
    if not Networks(allowed).has(address):
        raise NotAllowed(f"jobs cannot be submitted from this host: {address} is not in ALLOWED_NETWORKS.")


def _own_address(host: str, port: int) -> str:
    """Return the address that another host would see of this one; nothing is sent.  Raises OSError."""
    family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind) as unconnected:
        unconnected.connect(address)
        name: str = unconnected.getsockname()[0]
        return name
