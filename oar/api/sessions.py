"""Browser sessions and tokens."""

from http import HTTPStatus
from typing import TYPE_CHECKING, Annotated
from urllib.parse import SplitResult, urlsplit

from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request
from typing_extensions import TypedDict

from oar.api.authentication import COOKIE, PATH, Way, check_meant, outer_path
from oar.api.clients import client_of
from oar.api.errors import Unidentified
from oar.api.parameters import LARGEST_ID
from oar.api.responses import Answer, answer
from oar.api.routing import Router
from oar.api.service import asking, note, service_of
from oar.lib.access import tokens
from oar.lib.access.records import User
from oar.lib.base.errors import BadRequest, NotAllowed

if TYPE_CHECKING:
    from oar.api.service import Service
    from oar.lib.access.sql_access import ApiToken

router = Router("access")


Session = TypedDict("Session", {"user": str})


class Token(TypedDict):
    id: int
    user: str
    scope: str
    comment: str
    created: int
    expires: int | None
    last_used: int | None


TokenPage = TypedDict("TokenPage", {"items": list[Token]})
NewToken = TypedDict("NewToken", {"id": int, "token": str, "user": str, "scope": str, "expires": int})


Secret = Annotated[str | None, Field(max_length=1024)]
#: Names of this machine, to which browsers send cookies of TLS without it.
_LOCAL_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})
#: The path of the pages.
_PAGES = "/ui/"


class Login(BaseModel):
    """Credentials: user and password, or a token."""

    model_config = ConfigDict(extra="forbid")

    user: str | None = Field(None, max_length=100, description="User name, with password.")
    password: Secret = Field(None, description="Password, if `API_BASIC_AUTH` allows passwords.")
    token: Secret = Field(None, description="Token, instead of user and password.")
    sudo: bool = Field(default=False, description="Give the current session administrator rights.")


class TokenRequest(BaseModel):
    """Request for a token."""

    model_config = ConfigDict(extra="forbid")

    user: str | None = Field(
        None, max_length=100, description="User of the token, if not the caller (oar and root only)."
    )
    scope: str = Field("rw", max_length=200, description="Scope: `rw`, `ro`, `submit`, `job:ID` or `admin`.")
    days: int | None = Field(None, ge=1, description="Validity in days, at most `API_TOKEN_DAYS`; default: 90.")
    comment: str = Field("", max_length=tokens.LONGEST_COMMENT, description="Comment.")


@router.post("/v1/session", "session_begin", "Log in", status=HTTPStatus.CREATED, record=Session)
def session_begin(request: Request, login: Login) -> Answer:
    """Start a browser session. With `sudo`, authenticate the user of the current session again."""
    check_meant(request)
    service = service_of(request)
    if login.sudo:
        return _elevate(request, service, login)
    path, is_secure = _cookie_path(request, service), _is_secure(request)
    seconds = service.runtime.config.api_session_hours * 3600
    if login.token is not None:
        user, secret = _by_token(service, login.token, seconds)
    else:
        user = _by_password(request, service, login)
        with service.runtime.database.begin() as tx:
            secret = tokens.begin_session(tx, user, seconds)
    response = answer({"user": user.name}, status=HTTPStatus.CREATED)
    response.set_cookie(COOKIE, secret, max_age=seconds, path=path, httponly=True, samesite="lax", secure=is_secure)
    return response


@router.delete("/v1/session", "session_end", "Log out", status=HTTPStatus.NO_CONTENT)
def session_end(request: Request) -> Answer:
    """End the session of the cookie."""
    caller = asking(request).caller
    if caller.way is Way.SESSION and caller.token:
        with service_of(request).runtime.database.begin() as tx:
            tx.access.revoke_token([caller.token])
    response = Answer(status_code=HTTPStatus.NO_CONTENT)
    response.delete_cookie(COOKIE, path=_cookie_path(request, service_of(request)))
    return response


@router.get("/v1/tokens", "tokens_list", "List tokens")
def tokens_list(
    request: Request,
    everybody: Annotated[bool, Field(description="List the tokens of all users (administrators only).")] = False,
) -> TokenPage:
    """Return the caller's valid tokens, without their secrets."""
    who = asking(request)
    with who.database.snapshot() as tx:
        listed = tokens.listed(tx, who.caller.reading_all(), everybody=everybody)
    return {"items": [_token_item(token) for token in listed]}


@router.post("/v1/tokens", "token_create", "Create a token", status=HTTPStatus.CREATED, record=NewToken)
def token_create(request: Request, body: TokenRequest) -> Answer:
    """Create a token. This response is the only one with its secret. A token cannot create tokens."""
    who = asking(request)
    maker = who.caller.creating_tokens()
    user = tokens.owner_of(maker, body.user, who.config)
    days = tokens.days_of(body.days, who.config)
    with who.database.begin() as tx:
        token_id, token = tokens.create(tx, user, scope=body.scope, days=days, comment=body.comment, maker=maker)
    if user.name != maker.name:
        note(request, maker)
    record = {
        "id": token_id,
        "token": token,
        "user": user.name,
        "scope": body.scope,
        "expires": tx.now + days * 86400,
    }
    return answer(record, status=HTTPStatus.CREATED, headers={"Cache-Control": "no-store"})


@router.delete("/v1/tokens/{token_id}", "token_revoke", "Revoke a token", status=HTTPStatus.NO_CONTENT)
def token_revoke(
    request: Request, token_id: Annotated[int, Field(ge=1, le=LARGEST_ID, description="Token id.")]
) -> Answer:
    """Revoke a token and close its streams. Administrators can revoke all tokens."""
    who = asking(request)
    user = who.caller.identified() if who.caller.token == token_id else who.caller.changing()
    with who.database.begin() as tx:
        tokens.revoke(tx, user, [token_id])
    return Answer(status_code=HTTPStatus.NO_CONTENT)


def _elevate(request: Request, service: "Service", login: Login) -> Answer:
    caller = asking(request).caller
    user = caller.identified()
    if caller.way is not Way.SESSION or caller.rests_on_token or not caller.token:
        raise BadRequest("sudo must be used in a session that began with a password")
    if login.user not in (None, user.name):
        raise NotAllowed(f"the session belongs to {user.name}: log out to log in as {login.user}")
    _by_password(request, service, login.model_copy(update={"user": user.name}))
    with service.runtime.database.begin() as tx:
        tx.access.prove_token(caller.token)
    return answer({"user": user.name}, status=HTTPStatus.CREATED)


def _by_token(service: "Service", token: str, seconds: int) -> tuple[User, str]:
    """Return the user of a token and the secret of a session that begins with it.

    The secret of a signed token is the token itself: nothing that is stored would end with it.
    """
    caller = service.identities.by_token(token, service.runtime.config)
    user = caller.identified()
    if caller.origin is None:
        return user, token
    with service.runtime.database.begin() as tx:
        return user, tokens.begin_session(tx, user, seconds, scopes=caller.scopes, token=caller.origin)


def _by_password(request: Request, service: "Service", login: Login) -> User:
    if not login.user or login.password is None:
        raise Unidentified("use a user name and a password, or a token")
    return service.identities.check_password(login.user, login.password, request, service.runtime.config)


def _cookie_path(request: Request, service: "Service") -> str:
    """Return the path of the cookie: it is not sent to other services of the host.

    The page that sends the request may have been served through a web server or directly.
    """
    before, separator, _ = _header_address(request, "referer").path.rpartition(_PAGES)
    if separator and PATH.fullmatch(before):
        return f"{before}/"
    return f"{outer_path(request, service.runtime.config)}/"


def _is_secure(request: Request) -> bool:
    """Return whether the cookie requires TLS: always, except on this machine without a proxy.

    Raises NotAllowed if the page was loaded without TLS: its browser would silently drop the cookie.
    """
    client, page = client_of(request), _header_address(request, "origin")
    is_secure = client.is_trusted or not client.is_local
    if is_secure and page.scheme == "http" and page.hostname not in _LOCAL_NAMES:
        raise NotAllowed("a session needs TLS: log in at the https address of the site's web server")
    return is_secure


def _header_address(request: Request, header: str) -> SplitResult:
    """Return the address in a header of a browser; an empty one if there is none."""
    try:
        return urlsplit(request.headers.get(header, ""))
    except ValueError:
        return urlsplit("")


def _token_item(token: "ApiToken") -> Token:
    return {
        "id": token.id,
        "user": token.user,
        "scope": token.scope,
        "comment": token.comment,
        "created": token.created,
        "expires": token.expires or None,
        "last_used": token.last_used or None,
    }
