"""Accounts of this machine for authenticated users."""

from typing import TYPE_CHECKING

from oar.lib.access import name_service
from oar.lib.access.records import User
from oar.lib.base.errors import NotAllowed

if TYPE_CHECKING:
    import pwd

    from oar.lib.config.files import Config

#: Who is served by the socket and by tokens of administrators only.
PRIVILEGED = frozenset({"root", "oar"})


def user_of(uid: int, config: "Config") -> User:
    """Return the user of a process, by the uid that the kernel reports.  Raises NotAllowed."""
    try:
        account = name_service.account(uid)
    except KeyError:
        reason = f"no account on this machine has it. Check the name service: getent passwd {uid}"
        raise NotAllowed(f"cannot identify the user: uid {uid}: {reason}") from None
    return User(account.pw_name, uid, is_administrator(account, config))


def user_named(name: str, config: "Config", *, administers: bool) -> User:
    """Return a user; ``administers``: the user authenticated well enough for administration.  Raises NotAllowed."""
    try:
        account = name_service.account(name)
    except (KeyError, ValueError):  # not a valid name: with NUL or a lone surrogate
        reason = f"no account on this machine has this name. Check the name service: getent passwd {name!r}"
        raise NotAllowed(f"cannot identify the user: {name!r}: {reason}") from None
    return User(name, account.pw_uid, administers and is_administrator(account, config))


def has_account(name: str) -> bool:
    """Return whether this machine has an account with this name."""
    try:
        name_service.account(name)
    except (KeyError, ValueError):  # not a valid name: with NUL or a lone surrogate
        return False
    return True


def with_rights(user: User, config: "Config") -> User:
    """Return the user of a command, as an administrator if the account is one."""
    try:
        account = name_service.account(user.name)
    except KeyError:
        return user
    return user._replace(administers=is_administrator(account, config))


def is_administrator(account: "pwd.struct_passwd", config: "Config") -> bool:
    """Return whether an account is oar, root, or a member of the administrators' group."""
    if account.pw_name in PRIVILEGED:
        return True
    if not config.api_admin_group:
        return False
    try:
        group = name_service.group(config.api_admin_group).gr_gid
    except KeyError:
        return False
    return group in name_service.groups_of(account.pw_name, account.pw_gid)
