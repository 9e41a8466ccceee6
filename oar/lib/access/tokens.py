"""Create, list and revoke API tokens.  Only their digests are stored; see docs/api.rst, "Tokens"."""

import hashlib
import re
import secrets
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from oar.lib.access.accounts import PRIVILEGED, user_named
from oar.lib.access.records import User
from oar.lib.access.scopes import EVERYTHING, SESSION, Scopes
from oar.lib.base.errors import BadRequest, NotAllowed
from oar.lib.base.texts import enumerated
from oar.lib.history import audit
from oar.lib.history.audit import AuditAction, Values

if TYPE_CHECKING:
    from oar.lib.access.sql_access import ApiToken
    from oar.lib.config.files import Config
    from oar.lib.db.transaction import Transaction

#: Days for which a token is valid if none are asked.
DEFAULT_DAYS = 90
#: Tokens that a user may have at the same time.
MOST_TOKENS = 100
LONGEST_COMMENT = 200
_DAY = 86400
#: What expired so long ago is not shown to anybody any more.
_FORGOTTEN_AFTER = 30 * _DAY
_SHAPE = re.compile(r"oar_[A-Za-z0-9_-]{43}")


def digest_of(token: str) -> str | None:
    """Return the stored digest of a token; None if the text is not a token."""
    return hashlib.sha256(token.encode()).hexdigest() if _SHAPE.fullmatch(token) else None


def create(
    tx: "Transaction",
    user: User,
    *,
    scope: str = "rw",
    days: int = DEFAULT_DAYS,
    comment: str = "",
    maker: User | None = None,
) -> tuple[int, str]:
    """Create a token of a user; return its id and the token, which is never shown again.

    ``maker``: who creates it, if not the user.  Raises BadRequest, NotAllowed.
    """
    _check_scope(scope, user)
    if len(comment) > LONGEST_COMMENT or not comment.isprintable():
        raise BadRequest(f"a comment must have at most {LONGEST_COMMENT} characters, all of them printable")
    if sum(SESSION not in Scopes.parse(token.scope).words for token in tx.access.tokens_of(user.name)) >= MOST_TOKENS:
        raise BadRequest(f"{user.name} has {MOST_TOKENS} tokens: revoke one first")
    token, digest = _new()
    expires = tx.now + days * _DAY
    token_id = tx.access.insert_token(user.name, digest, scope=scope, comment=comment, expires=expires)
    values = Values(new=f"scope {scope}, {days} days")
    audit.record(tx, maker or user, AuditAction.ADD, f"token {token_id} ({user.name})", values, reason=comment)
    return token_id, token


def days_of(asked: int | None, config: "Config") -> int:
    """Return the validity of a new token in days; ``asked`` None means the default.  Raises BadRequest."""
    most: int = config.api_token_days
    if asked is None:
        return min(DEFAULT_DAYS, most)
    if not 1 <= asked <= most:
        raise BadRequest(f"the lifetime of a token must be 1 to {most} days (API_TOKEN_DAYS), not {asked}")
    return asked


def owner_of(maker: User, name: str | None, config: "Config") -> User:
    """Return the owner of a new token; return ``maker`` if no name is given.  Raises NotAllowed.

    Only oar and root may create tokens for other users.  A token gives the permissions of its user, and oar and root
    can act as any user anyway.
    """
    if name is None or name == maker.name:
        return maker
    if not (maker.is_admin and maker.name in PRIVILEGED):
        raise NotAllowed("only oar and root may create tokens for other users")
    return user_named(name, config, administers=True)


def begin_session(
    tx: "Transaction", user: User, seconds: int, *, scopes: Scopes = EVERYTHING, token: int | None = None
) -> str:
    """Create a browser session and return its secret.

    ``token``: id of the token used to log in, None for a password.  The session is valid as long as the token.
    """
    secret, digest = _new()
    tx.access.forget_tokens(user.name, expired_before=tx.now - _FORGOTTEN_AFTER)
    tx.access.insert_token(
        user.name,
        digest,
        scope=f"{scopes},{SESSION}",
        comment="browser",
        expires=tx.now + seconds,
        proved=tx.now if token is None else 0,
        parent=token or 0,
    )
    return secret


def _new() -> tuple[str, str]:
    token = f"oar_{secrets.token_urlsafe(32)}"
    digest = digest_of(token)
    assert digest
    return token, digest


def _check_scope(text: str, user: User) -> None:
    scopes = Scopes.parse(text)
    if SESSION in scopes.words:
        raise BadRequest(f"bad scope: {text}: only the login page creates sessions. Use rw, ro or submit.")
    if scopes.agents and (scopes.words or scopes.jobs):
        raise BadRequest(f"bad scope: {text}: an agent token has no other scope. Create two tokens.")
    if scopes.agents and not user.is_admin:
        raise NotAllowed("only administrators may create agent tokens")
    if scopes.administers and not user.is_admin:
        raise NotAllowed("only administrators may have tokens of scope admin")


def listed(tx: "Transaction", user: User, *, everybody: bool = False) -> list["ApiToken"]:
    """Return the valid tokens of a user, or of all users.  Raises NotAllowed."""
    if everybody and not user.is_admin:
        raise NotAllowed("only oar and root may list the tokens of other users")
    return tx.access.tokens_of(None if everybody else user.name)


def revoke(tx: "Transaction", user: User, ids: Collection[int] | None) -> Sequence[int]:
    """Revoke tokens of a user, or all of them for None; return their ids.

    oar and root may revoke tokens of all users by id.  Raises BadRequest if the user may not revoke one of the tokens.
    """
    own = {token.id: token for token in tx.access.tokens_of(None if user.is_admin and ids is not None else user.name)}
    unknown = sorted(set(ids or ()) - own.keys())
    if unknown:
        raise BadRequest(f"you have no token {unknown[0]}: oar-token list")
    chosen = sorted(own if ids is None else ids)
    tx.access.revoke_token(chosen)
    if tokens := [own[id_] for id_ in chosen if SESSION not in Scopes.parse(own[id_].scope).words]:
        owners = enumerated(sorted({token.user for token in tokens}))
        name = f"{audit.numbered('token', [token.id for token in tokens])} ({owners})"
        audit.record(tx, user, AuditAction.REVOKE, name)
    return chosen
