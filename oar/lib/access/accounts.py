"""Accounts of this machine, as identities name them."""

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
    """Return the user whose process the kernel has named.  Raises NotAllowed."""
    try:
        account = name_service.account(uid)
    except KeyError:
        reason = f"no account on this machine has it. Check the name service: getent passwd {uid}"
        raise NotAllowed(f"cannot identify the user: uid {uid}: {reason}") from None
    return User(account.pw_name, uid, is_administrator(account, config))


def user_named(name: str, config: "Config", *, administers: bool) -> User:
    """Return a user; ``administers``: he has shown enough to be an administrator, if he is one.  Raises NotAllowed."""
    try:
        account = name_service.account(name)
    except (KeyError, ValueError):  # no name at all: with NUL, or half a character
        reason = f"no account on this machine has this name. Check the name service: getent passwd {name!r}"
        raise NotAllowed(f"cannot identify the user: {name!r}: {reason}") from None
    return User(name, account.pw_uid, administers and is_administrator(account, config))


def has_account(name: str) -> bool:
    """Whether there is an account of that name on this machine."""
    try:
        name_service.account(name)
    except (KeyError, ValueError):  # no name at all: with NUL, or half a character
        return False
    return True


def with_rights(user: User, config: "Config") -> User:
    """Return a user of a command, as an administrator if he is in their group."""
    try:
        account = name_service.account(user.name)
    except KeyError:
        return user
    return user._replace(administers=is_administrator(account, config))


def is_administrator(account: "pwd.struct_passwd", config: "Config") -> bool:
    """Whether an account is oar, root, or a member of the group of administrators."""
    if account.pw_name in PRIVILEGED:
        return True
    if not config.api_admin_group:
        return False
    try:
        group = name_service.group(config.api_admin_group).gr_gid
    except KeyError:
        return False
    return group in name_service.groups_of(account.pw_name, account.pw_gid)
