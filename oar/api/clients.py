"""The client of a request: the address that permissions, limits, metrics and the log use.

The kernel reports the peer of the connection.  Headers count only if the peer is a proxy that oar.conf names.
"""

import pwd
from collections.abc import Sequence
from functools import cache
from ipaddress import ip_address
from typing import TYPE_CHECKING, NamedTuple

from starlette.types import Scope

from oar.lib.base.allowed_networks import THIS_MACHINE, Networks, holder_of

if TYPE_CHECKING:
    from starlette.requests import Request

    from oar.lib.config.files import Config

#: Prefix of a trusted proxy that is a local account.
LOCAL_PROXY = "unix:"
_FORWARDED_FOR = b"x-forwarded-for"
#: Headers of requests that a proxy forwards.
_FORWARDING = frozenset({_FORWARDED_FOR, b"forwarded", b"via"})
_LOOPBACK = Networks(["127.0.0.0/8", "::1/128"])


def _account_of(uid: int | None) -> str:
    """Return the name of an account; its number if it has none."""
    try:
        return pwd.getpwuid(-1 if uid is None else uid).pw_name
    except (KeyError, OverflowError):
        return str(uid)


class Peer(NamedTuple):
    """The other end of a connection, as the kernel knows it."""

    address: str = ""  #: '' on the local socket
    uid: int | None = None  #: of a process on this machine, on the local socket
    login: int | None = None  #: the login user of a process of root

    @property
    def key(self) -> str:
        """The key for counting connections."""
        return holder_of(self.address) if self.address else str(self)

    @property
    def name(self) -> str:
        """How messages name it: by its address, or as the account of a local process."""
        return self.address or f"account {_account_of(self.uid)}"

    @property
    def proxy_name(self) -> str:
        """How API_TRUSTED_PROXIES names it."""
        return self.address or f"{LOCAL_PROXY}{_account_of(self.uid)}"

    def __str__(self) -> str:
        return self.address or f"uid:{self.uid}"


class Client(NamedTuple):
    """The client that sent a request."""

    peer: Peer = Peer()
    is_trusted: bool = False  #: the peer is a proxy that API_TRUSTED_PROXIES names
    is_forwarded: bool = False  #: the peer says that it forwards the request of somebody else
    address: str = ""  #: of who sent the request, '' if it is unknown: a proxy is not named, or does not tell it

    @property
    def is_local(self) -> bool:
        """Whether a process of this machine sent the request."""
        return self.is_in(_LOOPBACK)

    @property
    def is_one_of_many(self) -> bool:
        """Whether many clients share this address, because a trusted proxy does not send theirs."""
        return self.is_trusted and not (self.is_forwarded and self.address)

    @property
    def key(self) -> str:
        """What requests without a user are counted by: the account of a local process, else who has the address."""
        is_process = self.peer.uid is not None and not self.is_trusted
        return self.peer.key if is_process or not self.address else holder_of(self.address)

    def is_in(self, networks: Networks) -> bool:
        """Return whether the address is known and belongs to a network."""
        return bool(self.address) and networks.has(self.address)

    def __str__(self) -> str:
        if self.address:
            return self.address
        proxy = f"the proxy {self.peer.name}"
        if self.is_trusted:
            return f"an unknown address ({proxy} sends none in X-Forwarded-For)"
        return f"an unknown address ({proxy} is not in API_TRUSTED_PROXIES: add {self.peer.proxy_name})"


def find_client(scope: Scope, config: "Config") -> Client:
    """Return the client of a request."""
    peer: Peer = scope["state"].get("peer", Peer())
    is_forwarded = any(name in _FORWARDING for name, _ in scope["headers"])
    own_address = THIS_MACHINE if peer.uid is not None else peer.address
    if not _is_trusted(peer, config):
        return Client(peer, False, is_forwarded, "" if is_forwarded else own_address)
    if is_forwarded:
        forwarded_for = b",".join(value for name, value in scope["headers"] if name == _FORWARDED_FOR)
        hops = forwarded_for.decode("latin-1").split(",")
        return Client(peer, True, True, _last_stranger(hops, _trusted_networks(config)))
    return Client(peer, True, False, peer.address)


def client_of(request: "Request") -> Client:
    """Return the client of a request."""
    client: Client = getattr(request.state, "client", Client())
    return client


def _last_stranger(hops: Sequence[str], trusted: Networks) -> str:
    """Return the last address that does not belong to a trusted proxy, '' if a trusted proxy sends none."""
    address = ""
    for hop in reversed(hops):
        try:
            address = str(ip_address(hop.strip()))
        except ValueError:
            return ""
        if not trusted.has(address):
            break
    return address


def _is_trusted(peer: Peer, config: "Config") -> bool:
    if not config.api_trusted_proxies:
        return False
    if peer.uid is None:
        return bool(peer.address) and _trusted_networks(config).has(peer.address)
    return any(peer.uid == _uid(text.removeprefix(LOCAL_PROXY)) for text in _trusted_accounts(config))


def _trusted_accounts(config: "Config") -> list[str]:
    return [text for text in config.api_trusted_proxies if text.startswith(LOCAL_PROXY)]


def _trusted_networks(config: "Config") -> Networks:
    return Networks([text for text in config.api_trusted_proxies if not text.startswith(LOCAL_PROXY)])


def _uid(account: str) -> int | None:
    try:
        return _known_uid(account)
    except KeyError:
        return None


@cache
def _known_uid(account: str) -> int:
    """Return the uid of an account, cached: it is needed for every request.  Raises KeyError."""
    return pwd.getpwnam(account).pw_uid
