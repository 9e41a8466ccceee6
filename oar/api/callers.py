"""Who is asking: decided once for each request.  See docs/api.rst, "Who is asking".

What decides is the socket: its peer, as the kernel knows it.  A header counts only from a proxy that oar.conf names.
"""

import logging
import pwd
import re
from collections.abc import Callable, Collection
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from fastapi import Request

from oar.api.statuses import Unidentified
from oar.lib.access.accounts import PRIVILEGED, user_named, user_of
from oar.lib.access.scopes import EVERYTHING, SESSION, JobAct, Scopes
from oar.lib.access.tokens import digest_of
from oar.lib.facts.errors import NotAllowed
from oar.lib.facts.records import User
from oar.lib.io.allowed_networks import Networks

if TYPE_CHECKING:
    from oar.lib.config.files import Config
    from oar.lib.db.api_tokens import ApiToken
    from oar.lib.db.database import Database

__all__ = ["Caller", "JobAct", "Peer", "Way", "identify", "is_trusted"]

_log = logging.getLogger(__name__)

#: Headers in which a trusted proxy tells who was identified, in this order.
IDENTITY_HEADERS = ("x-remote-ident", "x_remote_ident")
#: What proxies write for nobody.
NOBODY = frozenset({"", "unknown", "(null)"})
#: The cookie of the login page.
COOKIE = "oar_session"
#: Prefix of a trusted proxy that is a local account.
LOCAL_PROXY = "unix:"
#: Methods that change nothing.
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
#: Seconds for which a session is one of an administrator after he has given his password again.
ELEVATED_SECONDS = 15 * 60


class Peer(NamedTuple):
    """The other end of a connection, as the kernel knows it."""

    address: str = ""  #: '' on the local socket
    uid: int | None = None  #: of a process on this machine, on the local socket


class Way(StrEnum):
    """How somebody was identified."""

    NOT = "not"
    SOCKET = "socket"
    TOKEN = "token"
    PASSWORD = "password"
    SESSION = "session"
    PROXY = "proxy"


#: Ways that browsers take by themselves, whoever wrote the page that lets them.
BROWSERS_OWN = frozenset({Way.PASSWORD, Way.SESSION, Way.PROXY})


class Caller(NamedTuple):
    """Who is asking, and what he has shown."""

    user: User | None = None  #: None: nobody known
    way: Way = Way.NOT
    scopes: Scopes = EVERYTHING
    token: int | None = None  #: number of the token that was shown
    find_submitted: Callable[[Collection[int]], frozenset[int]] | None = None  #: those of some jobs that are its own

    def identified(self) -> User:
        """Return the user.  Raises Unidentified."""
        if self.user is None:
            raise Unidentified("tell who you are: a token (oar-token create), or the local socket")
        return self.user

    def submitting(self) -> User:
        """Return the user who submits jobs.  Raises Unidentified, NotAllowed."""
        user = self.identified()
        self._check(self.scopes.submits, "to submit")
        return user

    def changing(self) -> User:
        """Return the user who changes what is no job.  Raises Unidentified, NotAllowed."""
        user = self.identified()
        self._check(self.scopes.changes_all, "to change anything")
        return user

    def administering(self) -> User:
        """Return the administrator.  Raises Unidentified, NotAllowed."""
        user = self.changing()
        if not user.is_admin:
            raise NotAllowed("this is for administrators, by the local socket or with a token of scope admin")
        return user

    def acting(self, act: JobAct, jobs: Collection[int]) -> User:
        """Return the user who does something with jobs; whose they are is not looked at.

        Raises Unidentified, NotAllowed for a job with which the token allows nothing of the kind.
        """
        user = self.identified()
        submitted = self.submitted(jobs)
        for job in jobs:
            is_allowed = self.scopes.allows(act, job, was_submitted=job in submitted)
            self._check(is_allowed, f"to {act} job {job}")
        return user

    def submitted(self, jobs: Collection[int]) -> frozenset[int]:
        """Return those of some jobs that were submitted by this very token, if it allows nothing else."""
        if self.find_submitted is None or "submit" not in self.scopes.words:
            return frozenset()
        return self.find_submitted(jobs)

    @property
    def remembering(self) -> int | None:
        """The token that has to be remembered with the jobs that it submits: one that allows nothing else."""
        return None if self.scopes.changes_all else self.token

    def _check(self, is_allowed: bool, what: str) -> None:
        if not is_allowed:
            raise NotAllowed(f"the scope of this token ({self.scopes}) does not allow {what}")


def identify(request: Request, config: "Config", database: "Database") -> Caller:
    """Return who is asking.  Raises Unidentified for a token that is not valid, NotAllowed for an unknown user."""
    caller = _identify(request, config, database)
    if caller.way in BROWSERS_OWN and request.method not in SAFE_METHODS and not _is_meant(request):
        raise NotAllowed("the request comes from a page of another site: send the header X-OAR-Request: 1")
    return caller


def _identify(request: Request, config: "Config", database: "Database") -> Caller:
    peer: Peer = getattr(request.state, "peer", Peer())
    authorization = request.headers.get("authorization", "")
    if authorization:
        return _by_token(authorization, config, database)
    if peer.uid is not None and not is_trusted(peer, config):
        return Caller(user_of(peer.uid, config), Way.SOCKET)
    if is_trusted(peer, config) and config.api_trust_ident:
        return _by_proxy(request, config)
    return Caller()


def _by_token(authorization: str, config: "Config", database: "Database") -> Caller:
    kind, _, token = authorization.partition(" ")
    digest = digest_of(token.strip()) if kind.lower() == "bearer" else None
    found = _token(digest, database) if digest else None
    if found is None:
        raise Unidentified("the token is unknown, revoked or has expired: oar-token create")
    scopes = Scopes.parse(found.scope)
    if SESSION in scopes.words:
        raise Unidentified("this is the secret of a session of a browser, no token")

    def submitted(jobs: Collection[int]) -> frozenset[int]:
        with database.snapshot() as tx:
            return tx.api_tokens.submitted(found.id, jobs)

    user = user_named(found.user, config, administers=scopes.administers)
    return Caller(user, Way.TOKEN, scopes, found.id, submitted)


def _token(digest: str, database: "Database") -> "ApiToken | None":
    with database.snapshot() as tx:
        return tx.api_tokens.find(digest)


def _by_proxy(request: Request, config: "Config") -> Caller:
    name = next((request.headers[header] for header in IDENTITY_HEADERS if header in request.headers), "")
    if name in NOBODY or name in PRIVILEGED or not any(re.search(each, name) for each in config.api_user_regex):
        return Caller()
    return Caller(user_named(name, config, administers=config.api_admin_by_proxy), Way.PROXY)


def is_trusted(peer: Peer, config: "Config") -> bool:
    """Whether oar.conf names the other end of a connection as a proxy."""
    accounts = {text.removeprefix(LOCAL_PROXY) for text in config.api_trusted_proxies if text.startswith(LOCAL_PROXY)}
    if peer.uid is not None:
        return any(peer.uid == _uid(account) for account in accounts)
    networks = [text for text in config.api_trusted_proxies if not text.startswith(LOCAL_PROXY)]
    return bool(peer.address) and Networks(networks).has(peer.address)


def _uid(account: str) -> int | None:
    try:
        return pwd.getpwnam(account).pw_uid
    except KeyError:
        return None


def _is_meant(request: Request) -> bool:
    """Whether the page that asks is ours, or no page can have asked: forms of other sites cannot send such headers."""
    site = request.headers.get("sec-fetch-site")
    if site is not None:
        return site in ("same-origin", "none")
    return "x-oar-request" in request.headers or request.headers.get("content-type", "").startswith("application/json")
