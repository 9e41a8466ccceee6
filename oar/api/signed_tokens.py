"""Signed tokens (JWT), as in the API of OAR 3: they are not stored, the key in oar.conf validates them."""

import json
from datetime import datetime, timedelta
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oar.lib.runtime import FileVersion, file_version

if TYPE_CHECKING:
    from oar.lib.config.files import Config

_DATE = "%Y-%m-%d %H:%M:%S"
#: Other algorithms would accept a public key, or no signature.
_ALGORITHMS = frozenset({"HS256", "HS384", "HS512"})
_MAX_BYTES = 4096


def make(user: str, config: "Config", now: datetime) -> str | None:
    """Return a new token of a user, None if they are disabled."""
    import jwt

    if not _is_on(config):
        return None
    expires = now + timedelta(minutes=config.api_access_token_expire_minutes)
    claims = {"user": user, "date": now.strftime(_DATE), "exp": int(expires.timestamp())}
    return jwt.encode(claims, config.api_secret_key or "", config.api_secret_algorithm)


def user_of(token: str, config: "Config") -> str | None:
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
