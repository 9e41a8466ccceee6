"""Tokens of the API: made, listed, revoked.  Only their sums are stored; see docs/api.rst, "Tokens"."""

import hashlib
import re
import secrets
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from oar.lib.access.scopes import SESSION, Scopes
from oar.lib.facts.errors import BadRequest, NotAllowed
from oar.lib.facts.records import User

if TYPE_CHECKING:
    from oar.lib.db.api_tokens import ApiToken
    from oar.lib.db.transaction import Transaction

#: Days of validity: if none are asked, and at most.
DEFAULT_DAYS, MOST_DAYS = 90, 365
#: Tokens that a user may have at the same time.
MOST_TOKENS = 100
LONGEST_COMMENT = 200
_DAY = 86400
_SHAPE = re.compile(r"oar_[A-Za-z0-9_-]{43}")


def digest_of(token: str) -> str | None:
    """Return the sum by which a token is found, None for a text that is no token."""
    return hashlib.sha256(token.encode()).hexdigest() if _SHAPE.fullmatch(token) else None


def create(
    tx: "Transaction", user: User, *, scope: str = "rw", days: int = DEFAULT_DAYS, comment: str = ""
) -> tuple[int, str]:
    """Make a token of a user; return its id and the token, which nobody sees again.  Raises BadRequest."""
    _check_scope(scope, user)
    if not 1 <= days <= MOST_DAYS:
        raise BadRequest(f"a token is valid for 1 to {MOST_DAYS} days, not for {days}")
    if len(comment) > LONGEST_COMMENT or not comment.isprintable():
        raise BadRequest(f"a comment has at most {LONGEST_COMMENT} characters, all of them printable")
    if len(tx.api_tokens.of(user.name)) >= MOST_TOKENS:
        raise BadRequest(f"you have {MOST_TOKENS} tokens: revoke one first")
    token = f"oar_{secrets.token_urlsafe(32)}"
    expires = tx.now + days * _DAY
    digest = digest_of(token)
    assert digest
    return tx.api_tokens.insert(user.name, digest, scope=scope, comment=comment, expires=expires), token


def _check_scope(text: str, user: User) -> None:
    scopes = Scopes.parse(text)
    if SESSION in scopes.words:
        raise BadRequest("a session is what the login page makes")
    if scopes.administers and not user.is_admin:
        raise NotAllowed("only administrators may have tokens of scope admin")


def listed(tx: "Transaction", user: User, *, everybody: bool = False) -> list["ApiToken"]:
    """Return the valid tokens of a user, or of everybody.  Raises NotAllowed."""
    if everybody and not user.is_admin:
        raise NotAllowed("the tokens of others are shown to oar and root only")
    return [token for token in tx.api_tokens.of(None if everybody else user.name) if token.expires > tx.now]


def revoke(tx: "Transaction", user: User, ids: Collection[int] | None) -> Sequence[int]:
    """Let tokens be valid no more, all of the user for None; return which.  Raises BadRequest for one that is not his.

    oar and root may revoke those of everybody, by their ids.
    """
    own = {token.id for token in tx.api_tokens.of(None if user.is_admin and ids is not None else user.name)}
    unknown = sorted(set(ids or ()) - own)
    if unknown:
        raise BadRequest(f"you have no token {unknown[0]}: oar-token list")
    chosen = sorted(own if ids is None else ids)
    tx.api_tokens.revoke(chosen)
    return chosen
