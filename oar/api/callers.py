"""Who is asking: decided once for each request.  See docs/api.rst, "Who is asking".

What decides is the socket: its peer, as the kernel knows it.  A header counts only from a proxy that oar.conf names.
"""

import pwd
import re
from collections.abc import Collection
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from fastapi import Request

from oar.api.problems import Unidentified
from oar.lib.access.tokens import digest_of
from oar.lib.facts.errors import NotAllowed
from oar.lib.facts.records import User
from oar.lib.io.allowed_networks import Networks

if TYPE_CHECKING:
    from oar.lib.config.files import Config
    from oar.lib.db.database import Database

#: Headers in which a trusted proxy tells who was identified, in this order.
IDENTITY_HEADERS = ("x-remote-ident", "x_remote_ident")
#: What proxies write for nobody.
NOBODY = frozenset({"", "unknown", "(null)"})
#: Who is served by the socket and by tokens of administrators only.
PRIVILEGED = frozenset({"root", "oar"})


class Peer(NamedTuple):
    """The other end of a connection, as the kernel knows it."""

    address: str = ""  #: '' on the local socket
    uid: int | None = None  #: of a process on this machine, on the local socket


class Way(StrEnum):
    """How somebody was identified."""

    NOT = "not"
    SOCKET = "socket"
    TOKEN = "token"
    PROXY = "proxy"


class JobAct(StrEnum):
    """What can be done with a job that exists."""

    DELETE = "delete"
    SIGNAL = "signal"
    CHECKPOINT = "checkpoint"
    WALLTIME = "walltime"
    HOLD = "hold"
    RESUME = "resume"
    RESUBMIT = "resubmit"
    ALTER = "alter"
    READ_OUTPUT = "read the output of"


class Caller(NamedTuple):
    """Who is asking."""

    user: User | None = None  #: None: nobody known
    way: Way = Way.NOT
    scope: str = "rw"

    def identified(self) -> User:
        """Return the user.  Raises Unidentified."""
        if self.user is None:
            raise Unidentified("tell who you are: a token (oar-token create), or the local socket")
        return self.user

    def submitting(self) -> User:
        """Return the user, if he may submit jobs with what he shows.  Raises Unidentified, NotAllowed."""
        if self.scope == "ro":
            raise NotAllowed("your token is for reading only: it cannot submit jobs")
        return self.identified()

    def acting(self, act: JobAct, jobs: Collection[int]) -> User:
        """Return the user, if he may do this with these jobs by what he shows; whose they are is not looked at.

        Raises Unidentified, NotAllowed.
        """
        if self.scope == "ro" and act is not JobAct.READ_OUTPUT:
            raise NotAllowed(f"your token is for reading only: it cannot {act} job {min(jobs, default='')}")
        return self.identified()


def identify(request: Request, config: "Config", database: "Database") -> Caller:
    """Return who is asking.  Raises Unidentified for a token that is not valid, NotAllowed for an unknown user."""
    peer: Peer = getattr(request.state, "peer", Peer())
    authorization = request.headers.get("authorization", "")
    if authorization:
        return _by_token(authorization, database)
    if peer.uid is not None and not _is_trusted(peer, config):
        return Caller(_user_of(peer.uid), Way.SOCKET)
    if _is_trusted(peer, config) and config.api_trust_ident:
        return _by_proxy(request, config)
    return Caller()


def _by_token(authorization: str, database: "Database") -> Caller:
    kind, _, token = authorization.partition(" ")
    digest = digest_of(token.strip()) if kind.lower() == "bearer" else None
    if digest is None:
        raise Unidentified("the Authorization header holds no token of ours: Bearer oar_...")
    with database.snapshot() as tx:
        found = tx.api_tokens.find(digest)
    if found is None:
        raise Unidentified("the token is unknown, revoked or has expired: oar-token create")
    return Caller(_user_named(found.user), Way.TOKEN, found.scope)


def _by_proxy(request: Request, config: "Config") -> Caller:
    name = next((request.headers[header] for header in IDENTITY_HEADERS if header in request.headers), "")
    if name in NOBODY or name in PRIVILEGED or not any(re.search(each, name) for each in config.api_user_regex):
        return Caller()
    return Caller(_user_named(name), Way.PROXY)


def _is_trusted(peer: Peer, config: "Config") -> bool:
    return bool(peer.address) and Networks(config.api_trusted_proxies).has(peer.address)


def _user_of(uid: int) -> User:
    try:
        return User(pwd.getpwuid(uid).pw_name, uid)
    except KeyError:
        raise NotAllowed(f"nobody has the user id {uid} on this machine") from None


def _user_named(name: str) -> User:
    try:
        return User(name, pwd.getpwnam(name).pw_uid)
    except KeyError:
        raise NotAllowed(f"there is no user {name!r} on this machine") from None
