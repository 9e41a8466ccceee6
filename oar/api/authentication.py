"""Authentication: the caller of each request.  See docs/api.rst, "Who is asking".

The peer of the socket, as the kernel reports it, decides.  A header counts only from a proxy that oar.conf names.
"""

import base64
import json
import logging
import re
import threading
import time
from collections.abc import Callable, Collection
from contextlib import ExitStack
from datetime import datetime, timedelta
from enum import StrEnum
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from starlette.requests import Request

from oar.api.clients import client_of
from oar.api.concurrency import FairPlaces, present_holder
from oar.api.errors import TooMany, Unidentified
from oar.lib.access import accounts
from oar.lib.access.accounts import PRIVILEGED
from oar.lib.access.acting import Origin, find_person
from oar.lib.access.records import User, Via
from oar.lib.access.scopes import EVERYTHING, SESSION, JobAct, Scopes
from oar.lib.access.tokens import digest_of
from oar.lib.base.errors import NotAllowed, Unavailable
from oar.lib.runtime import FileVersion, file_version

if TYPE_CHECKING:
    from oar.api.passwords import Passwords
    from oar.lib.access.sql_access import ApiToken
    from oar.lib.config.files import Config
    from oar.lib.db.database import Database


_DATE = "%Y-%m-%d %H:%M:%S"
#: Other algorithms would accept a public key, or no signature.
_ALGORITHMS = frozenset({"HS256", "HS384", "HS512"})
_MAX_BYTES = 4096


def make_signed_token(user: str, config: "Config", now: datetime) -> str | None:
    """Return a new token of a user, None if they are disabled."""
    import jwt

    if not _is_on(config):
        return None
    expires = now + timedelta(minutes=config.api_access_token_expire_minutes)
    claims = {"user": user, "date": now.strftime(_DATE), "exp": int(expires.timestamp())}
    return jwt.encode(claims, config.api_secret_key or "", config.api_secret_algorithm)


def signed_token_user(token: str, config: "Config") -> str | None:
    """Return the user of a token, None if it is invalid, expired or revoked, or if tokens are disabled."""
    import jwt

    if not _is_on(config) or len(token) > _MAX_BYTES:
        return None
    try:
        claims = jwt.decode(
            token,
            config.api_secret_key or "",
            algorithms=[config.api_secret_algorithm],
            options={"require": ["exp", "user", "date"]},
        )
        user, date = str(claims["user"]), datetime.strptime(str(claims["date"]), _DATE)
    except (jwt.InvalidTokenError, ValueError):
        return None
    return None if _is_revoked(user, date, config) else user


def _is_on(config: "Config") -> bool:
    return bool(config.api_secret_key) and config.api_secret_algorithm in _ALGORITHMS


def _is_revoked(user: str, date: datetime, config: "Config") -> bool:
    """Return whether tokens of this date are revoked; a file that cannot be read revokes all."""
    path = config.api_revoked_tokens
    if not path:
        return False
    try:
        dates = _revocations(path, file_version(path))
        ends = [dates.get("global"), (dates.get("revoked") or {}).get(user)]
        return any(date < datetime.strptime(end, _DATE) for end in ends if end)
    except (OSError, ValueError, TypeError, AttributeError):
        return True


@lru_cache(maxsize=1)
def _revocations(path: str, version: FileVersion) -> dict[str, Any]:
    dates: dict[str, Any] = json.loads(Path(path).read_text())
    return dates


#: Seconds that a look-up may take, and seconds for which its result counts.  The C library may query a name service on
#: another machine (LDAP, SSSD), and does so without a timeout.
ANSWER_SECONDS, KEPT_SECONDS = 5.0, 5.0
#: Look-ups that may wait at once: a thread that waits in the C library cannot be ended.
MAX_WAITING = 8

_places = FairPlaces(MAX_WAITING, "too many other look-ups wait for the name service (LDAP, SSSD)", ANSWER_SECONDS)
#: The accounts that were looked up, each with the time until which it counts.
_kept: dict[tuple[object, ...], tuple[User, float]] = {}


def user_of(uid: int, config: "Config") -> User:
    """Do as ``accounts.user_of``.  Raises NotAllowed, Unavailable."""
    return _look_up((uid, config.api_admin_group), lambda: accounts.user_of(uid, config))


def user_named(name: str, config: "Config", *, administers: bool) -> User:
    """Do as ``accounts.user_named``.  Raises NotAllowed, Unavailable."""
    key = (name, administers, config.api_admin_group)
    return _look_up(key, lambda: accounts.user_named(name, config, administers=administers))


def _look_up(key: tuple[object, ...], find: Callable[[], User]) -> User:
    now = time.monotonic()
    kept = _kept.get(key)
    if kept and kept[1] > now:
        return kept[0]
    user = _find_in_time(find, str(key[0]))
    for old in [old for old, (_, until) in list(_kept.items()) if until <= now]:
        _kept.pop(old, None)
    _kept[key] = user, now + KEPT_SECONDS
    return user


def _find_in_time(find: Callable[[], User], name: str) -> User:
    """Look up an account in a separate thread.  Raises the errors of the look-up, Unavailable and TooMany."""
    result: list[User | Exception] = []
    place = ExitStack()

    def run() -> None:
        with place:
            try:
                result.append(find())
            except Exception as error:  # noqa: BLE001 - the caller gets it
                result.append(error)

    try:
        place.enter_context(_places.place(present_holder()))
    except TooMany as error:
        raise TooMany(_describe_failure(name, str(error))) from None
    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(ANSWER_SECONDS)
    if not result:
        reason = f"the name service (LDAP, SSSD) did not answer within {ANSWER_SECONDS:.0f} s"
        raise Unavailable(_describe_failure(name, reason))
    if isinstance(result[0], Exception):
        raise result[0]
    return result[0]


def _describe_failure(name: str, reason: str) -> str:
    return f"cannot look up the account: {name}: {reason}. Try again later."


__all__ = ["AgentToken", "Caller", "Identities", "JobAct", "Way", "check_meant"]

_log = logging.getLogger(__name__)

#: Headers in which a trusted proxy sends the name of the user, by precedence.
IDENTITY_HEADERS = ("x-remote-ident", "x_remote_ident")
#: The header of programs that name their users themselves, such as CiGri: web servers drop underscores.
OWN_NAMING = "x_remote_ident"
#: Names that proxies send for anonymous requests.
NOBODY = frozenset({"", "unknown", "(null)"})
#: The cookie of the login page.
COOKIE = "oar_session"
#: A valid prefix of the addresses of the API.
PATH = re.compile(r"(/[A-Za-z0-9._~-]+)*/?")
#: Methods that change nothing.
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
#: Seconds for which a session is one of an administrator after he has given his password again.
ELEVATED_SECONDS = 15 * 60
#: Seconds for which a token of one job is valid after its end.
VALID_AFTER_END = 3600
#: Seconds between two updates of the last use of a token.
WRITTEN_EVERY = 60
#: Types of bodies that any page can let a browser send.
_OF_FORMS = frozenset({"application/x-www-form-urlencoded", "multipart/form-data", "text/plain"})


class Way(StrEnum):
    """How the caller was authenticated."""

    NOT = "not"
    SOCKET = "socket"
    TOKEN = "token"
    PASSWORD = "password"
    SESSION = "session"
    PROXY = "proxy"


#: Credentials that browsers send by themselves, also for pages of other sites.
BROWSERS_OWN = frozenset({Way.PASSWORD, Way.SESSION, Way.PROXY})


class Caller(NamedTuple):
    """The caller of a request, and the credentials of the request."""

    user: User | None = None  #: None: nobody known
    way: Way = Way.NOT
    scopes: Scopes = EVERYTHING
    token: int | None = None  #: id of the token or session that was shown
    rests_on_token: bool = False  #: a token was shown, now or when the session began
    origin: int | None = None  #: id of that token, if it is stored
    find_submitted: Callable[[Collection[int]], frozenset[int]] | None = None  #: those of some jobs that are its own

    def recorded(self, person: str) -> "Caller":
        """Return the caller of a change, with what the audit log records; of a token its id only."""
        if self.user is None:
            return self
        via = Via.PAGE if self.way is Way.SESSION else Via.API
        token = (f"token {self.origin}" if self.origin else "signed token") if self.rests_on_token else ""
        return self._replace(user=self.user._replace(via=via, token=token, person=person))

    def identified(self) -> User:
        """Return the user.  Raises Unidentified."""
        if self.user is None:
            raise Unidentified("the request names no user. Send a token (oar-token create), or use the local socket.")
        return self.user

    def submitting(self) -> User:
        """Return the user for a submission.  Raises Unidentified, NotAllowed."""
        user = self.identified()
        self._check(self.scopes.submits, "submit jobs")
        return user

    def changing(self) -> User:
        """Return the user for a change of anything but jobs.  Raises Unidentified, NotAllowed."""
        user = self.identified()
        self._check(self.scopes.changes_all, "make this change")
        return user

    def creating_tokens(self) -> User:
        """Return the user for the creation of tokens, which outlive the credentials of the request.

        Raises Unidentified, NotAllowed.
        """
        user = self.changing()
        if self.rests_on_token:
            raise NotAllowed(
                "cannot create a token with a token, or in a session that began with one. Run: oar-token create"
            )
        return user

    @property
    def can_create_tokens(self) -> bool:
        """Whether ``creating_tokens`` returns the user."""
        return self.user is not None and self.scopes.changes_all and not self.rests_on_token

    def reading_all(self) -> User:
        """Return the user for reading private data.  Raises Unidentified, NotAllowed."""
        user = self.identified()
        self._check(self.scopes.reads_all, "read private data", "ro")
        return user

    def administering(self) -> User:
        """Return the administrator.  Raises Unidentified, NotAllowed."""
        user = self.changing()
        if not user.is_admin:
            raise NotAllowed("only administrators may do this, by the local socket or with a token of scope admin.")
        return user

    def acting(self, act: JobAct, jobs: Collection[int]) -> User:
        """Return the user for an action on jobs; the owners of the jobs are not checked.

        Raises Unidentified, NotAllowed for a job with which the token allows nothing of the kind.
        """
        user = self.identified()
        submitted = self.submitted(jobs)
        for job in jobs:
            is_allowed = self.scopes.allows(act, job, was_submitted=job in submitted)
            self._check(is_allowed, f"{act} job {job}")
        return user

    def submitted(self, jobs: Collection[int]) -> frozenset[int]:
        """Return the jobs that were submitted with this token, if its scope is limited to them."""
        if self.find_submitted is None or "submit" not in self.scopes.words:
            return frozenset()
        return self.find_submitted(jobs)

    @property
    def remembering(self) -> int | None:
        """The token to record with the jobs that it submits, if its scope is limited to them."""
        return None if self.scopes.changes_all else self.origin

    def _check(self, is_allowed: bool, what: str, sufficient: str = "rw") -> None:
        """``sufficient``: a scope that allows it."""
        if not is_allowed:
            way_out = f"Create a token with the scope {sufficient}: oar-token create --scope {sufficient}"
            raise NotAllowed(f"cannot {what}: the token has the scope {self.scopes}. {way_out}")


class AgentToken(NamedTuple):
    """The token of an agent of desktop computers."""

    id: int
    scopes: Scopes


class Identities:
    """Authenticates the requests of a process."""

    def __init__(self, database: "Database", passwords: "Passwords") -> None:
        self._database = database
        self.passwords = passwords

    def identify(self, request: Request, config: "Config") -> Caller:
        """Return the caller of a request.

        Raises Unidentified for a token or a password that is not valid, NotAllowed for an unknown user and for a
        request that a page of another site has sent.
        """
        caller = self._identify(request, config)
        if request.method in SAFE_METHODS:
            return caller
        if caller.way in BROWSERS_OWN:
            check_meant(request)
        person = _login_name(client_of(request).peer.login, config) if caller.way is Way.SOCKET else ""
        return caller.recorded(person)

    def _identify(self, request: Request, config: "Config") -> Caller:
        client = client_of(request)
        authorization = request.headers.get("authorization", "")
        if authorization:
            caller = self._by_authorization(authorization, request, config)
            _note_other(caller, request, config)
            return caller
        if client.is_trusted:
            caller = _by_proxy(request, config) if config.api_trust_ident else Caller()
            return caller if caller.user else self._by_cookie(request, config)
        if session_in(request) is not None:
            return self._by_cookie(request, config)
        if client.peer.uid is None or client.is_forwarded:
            return Caller()
        return Caller(user_of(client.peer.uid, config), Way.SOCKET)

    def _by_authorization(self, authorization: str, request: Request, config: "Config") -> Caller:
        kind, _, shown = authorization.partition(" ")
        if kind.lower() == "basic":
            return self._by_password(shown.strip(), request, config)
        if kind.lower() != "bearer":
            raise Unidentified("the Authorization header has neither a token (Bearer oar_...) nor a password (Basic).")
        return self.by_token(shown.strip(), config)

    def by_token(self, token: str, config: "Config") -> Caller:
        """Return whose token this is.  Raises Unidentified, NotAllowed."""
        if "." in token and (name := signed_token_user(token, config)):
            return Caller(_named(name, config), Way.TOKEN, rests_on_token=True)
        stored = self._find(token)
        if stored is None or SESSION in Scopes.parse(stored.scope).words:
            raise Unidentified(
                "the token is not valid: it is unknown, revoked or expired. Create another one: oar-token create"
            )
        scopes = self._of_live_jobs(Scopes.parse(stored.scope))
        if scopes.agents:
            raise NotAllowed("a token of an agent is valid for /oar-cgi only. Create another one: oar-token create")
        self._write_use(stored, stored.expires)
        user = user_named(stored.user, config, administers=scopes.administers)
        return self._caller(stored, user, Way.TOKEN, scopes)

    def identify_agent(self, request: Request, config: "Config") -> AgentToken:
        """Return what the token of an agent allows that a request shows; it is valid while its maker administers.

        Raises Unidentified, NotAllowed.
        """
        kind, _, shown = request.headers.get("authorization", "").partition(" ")
        stored = self._find(shown.strip()) if kind.lower() == "bearer" else None
        if stored is None:
            raise Unidentified(
                "the agent has no valid token. An administrator creates one: oar-token create --agent NAME"
            )
        scopes = Scopes.parse(stored.scope)
        if not scopes.agents:
            raise NotAllowed(
                f"the token is not one of an agent: its scope is {scopes}. Run: oar-token create --agent NAME"
            )
        if not user_named(stored.user, config, administers=True).is_admin:
            raise NotAllowed(
                f"the token is not valid: {stored.user}, who created it, is not an administrator any more."
                " Another administrator creates one: oar-token create --agent NAME"
            )
        self._write_use(stored, stored.expires)
        return AgentToken(stored.id, scopes)

    def _by_password(self, shown: str, request: Request, config: "Config") -> Caller:
        try:
            name, _, password = base64.b64decode(shown, validate=True).decode().partition(":")
        except ValueError:
            raise Unidentified("the Authorization header has no name and password.") from None
        return Caller(self.check_password(name, password, request, config), Way.PASSWORD)

    def check_password(self, name: str, password: str, request: Request, config: "Config") -> User:
        """Return the user whose password this is, no administrator yet.

        Raises Unidentified, NotAllowed, TooOften, Unavailable.
        """
        check_encrypted(request, "a password")
        self.passwords.check(name, password, client_of(request).key, config)
        return _named(name, config)

    def _by_cookie(self, request: Request, config: "Config") -> Caller:
        """Return the caller of a session; without a valid session the caller is anonymous and may log in."""
        secret = session_in(request) or ""
        if "." in secret and (name := signed_token_user(secret, config)):
            return Caller(_named(name, config), Way.SESSION, rests_on_token=True)
        stored = self._find(secret)
        if stored is None:
            return Caller()
        scopes = Scopes.parse(stored.scope)
        if SESSION not in scopes.words:
            return Caller()  # a token is no cookie
        with_password = stored.proved > int(time.time()) - ELEVATED_SECONDS
        whole = config.api_session_hours * 3600
        is_half_over = stored.parent == 0 and stored.expires - time.time() < whole / 2
        self._write_use(stored, int(time.time()) + whole if is_half_over else stored.expires)
        user = user_named(stored.user, config, administers=scopes.administers or with_password)
        allowed = scopes._replace(words=scopes.words - {SESSION})
        return self._caller(stored, user, Way.SESSION, self._of_live_jobs(allowed))

    def _caller(self, shown: "ApiToken", user: User, way: Way, scopes: Scopes) -> Caller:
        origin = shown.id if way is Way.TOKEN else shown.parent
        find_submitted = self._find_submitted(origin)
        return Caller(user, way, scopes, shown.id, bool(origin), origin or None, find_submitted)

    def _find(self, token: str) -> "ApiToken | None":
        digest = digest_of(token)
        if digest is None:
            return None
        return self._database.look(lambda tx: tx.access.find_token(digest))

    def _find_submitted(self, token_id: int) -> Callable[[Collection[int]], frozenset[int]]:
        def submitted(jobs: Collection[int]) -> frozenset[int]:
            return self._database.look(lambda tx: tx.access.jobs_submitted_with(token_id, jobs))

        return submitted

    def _of_live_jobs(self, scopes: Scopes) -> Scopes:
        """Return the scopes without jobs that ended long ago.  Raises Unidentified if nothing is left."""
        if not scopes.jobs:
            return scopes
        with self._database.snapshot() as tx:
            live = tx.access.live_jobs(scopes.jobs, ended_since=tx.now - VALID_AFTER_END)
        if not live and not scopes.words:
            raise Unidentified("the token is not valid: its job has ended.")
        return scopes._replace(jobs=live)

    def _write_use(self, token: "ApiToken", expires: int) -> None:
        if expires == token.expires and token.last_used > time.time() - WRITTEN_EVERY:
            return
        with self._database.begin() as tx:
            tx.access.use_token(token.id, expires=expires)


def _login_name(uid: int | None, config: "Config") -> str:
    """Return the login user of a process of root, '' if it is root itself or unknown.  Raises Unavailable."""

    def name_of(number: int) -> str:
        try:
            return user_of(number, config).name
        except NotAllowed:
            raise KeyError(number) from None

    return find_person(Origin(0, uid, {}), "root", name_of)


def check_encrypted(request: Request, what: str) -> None:
    """Check that the request with a secret was encrypted or local.  Raises NotAllowed."""
    client = client_of(request)
    if not (client.is_local or client.is_trusted):
        raise NotAllowed(
            f"the API accepts {what} over TLS only. Use the https address of the site's web server.\n"
            f"# The request comes from {client}."
        )


def outer_path(request: Request, config: "Config") -> str:
    """Return the external prefix of addresses: the one that a trusted proxy sends, else API_ROOT_PATH."""
    prefix = request.headers.get("x-api-path-prefix") or request.headers.get("x_api_path_prefix") or ""
    is_valid = prefix and client_of(request).is_trusted and PATH.fullmatch(prefix)
    return (prefix if is_valid else config.api_root_path).rstrip("/")


def session_in(request: Request) -> str | None:
    """Return the secret of a session; the first of several, which browsers send for the longest path."""
    cookies = (cookie.strip().partition("=") for cookie in request.headers.get("cookie", "").split(";"))
    return next((value for name, _, value in cookies if name == COOKIE), None)


def _name_by_proxy(request: Request) -> str:
    return next((request.headers[header] for header in IDENTITY_HEADERS if header in request.headers), "")


def _note_other(caller: Caller, request: Request, config: "Config") -> None:
    """Log that a trusted proxy names another user than the credentials of the request, which take precedence."""
    name = _name_by_proxy(request)
    if name in NOBODY or not (config.api_trust_ident and client_of(request).is_trusted):
        return
    if caller.user and caller.user.name != name:
        shown = (request.state.request_id, caller.user.name, caller.way, name)
        _log.warning("request %s: %s by %s counts, and not %.32r, whom the proxy names", *shown)


def _by_proxy(request: Request, config: "Config") -> Caller:
    name = _name_by_proxy(request)
    if name in NOBODY or name in PRIVILEGED or not _is_name(name, config):
        return Caller()
    return Caller(user_named(name, config, administers=config.api_admin_by_proxy), Way.PROXY)


def _named(name: str, config: "Config") -> User:
    """Return the user of a password or a signed token.  Raises NotAllowed for names that cannot log in this way."""
    if name in PRIVILEGED:
        reason = "root and oar have no password login. Use the local socket, or a token of scope admin."
        raise NotAllowed(f"cannot log in: {name}: {reason}")
    if not _is_name(name, config):
        reason = "the name does not match API_USER_REGEX in oar.conf. Use a token: oar-token create"
        raise NotAllowed(f"cannot log in: {name!r}: {reason}")
    return user_named(name, config, administers=False)


def _is_name(name: str, config: "Config") -> bool:
    return any(re.search(pattern, name) for pattern in config.api_user_regex)


def check_meant(request: Request) -> None:
    """Reject cross-site requests: check the origin of the page that sends the request.  Raises NotAllowed.

    Pages of other sites cannot send such headers, nor bodies of other types, nor other methods, unless this site lets
    them (API_CORS_ORIGINS).
    """
    site = request.headers.get("sec-fetch-site")
    if site is not None:
        is_meant = site in ("same-origin", "none")
    else:
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        is_free = kind not in _OF_FORMS if kind else request.method != "POST"
        is_meant = is_free or "x-oar-request" in request.headers
    if not is_meant:
        raise NotAllowed("the request may come from a page of another site. Send the header X-OAR-Request: 1")
