"""The person who acts under the account root or oar: the login user of the process, and the user of sudo.

A variable counts only if root has set it: sudo sets ``SUDO_USER`` for the processes of root, and a wrapper that root
runs passes it on to the account oar (``setup/installer/programs.py``). A process without a login user may set its own
login user; therefore a different user of sudo is recorded as well.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

#: The variable in which a wrapper of root passes on its ``SUDO_USER``: sudo sets that of the command to root.
PASSED_ON = "OAR_SUDO_USER"
#: The login user of a process that no login has started.
UNSET = 4294967295
_LONGEST = 64


class Origin(NamedTuple):
    """What the kernel and the environment say about the origin of a process."""

    uid: int  #: the real uid
    login_uid: int | None  #: None: no login has started it
    environment: Mapping[str, str]


def find_person(origin: Origin, account: str, name_of: Callable[[int], str]) -> str:
    """Return who acts under an account of administrators; '' if the account itself is all that is known.

    ``name_of`` raises KeyError for a uid without a name.

    >>> names = {1001: "anna"}.__getitem__
    >>> find_person(Origin(0, 1001, {"SUDO_USER": "anna"}), "root", names)
    'anna'
    >>> find_person(Origin(0, 1001, {"SUDO_USER": "bob"}), "root", names)
    'anna, sudo: bob'
    >>> find_person(Origin(1001, None, {"SUDO_USER": "bob"}), "oar", names)
    ''
    """
    login = _login_name(origin.login_uid, name_of)
    sudo = _sudo_user(origin)
    people = [name for name in (login, sudo) if name and name != account]
    if len(people) == 2 and login != sudo:
        return f"{login}, sudo: {sudo}"
    return people[0] if people else ""


def _login_name(uid: int | None, name_of: Callable[[int], str]) -> str:
    if uid is None:
        return ""
    try:
        return name_of(uid)
    except (KeyError, OverflowError):
        return f"uid {uid}"


def _sudo_user(origin: Origin) -> str:
    """Return the user of sudo if root has set the variable, else ''."""
    environment = origin.environment
    if origin.uid == 0:
        name = environment.get("SUDO_USER", "")
    elif environment.get("SUDO_UID") == "0":  # sudo has set it: root runs the command as oar
        name = environment.get(PASSED_ON, "")
    else:
        return ""
    is_name = name.isprintable() and len(name) <= _LONGEST and not set(name) & set(" (),:")
    return name if is_name else ""


def login_uid(process: int | None = None) -> int | None:
    """Return the uid of the login that started a process (default: this one); None if there is none.

    The kernel keeps it over sudo and su.
    """
    try:
        with open(f"/proc/{process or 'self'}/loginuid", encoding="ascii") as file:
            uid = int(file.read())
    except (OSError, ValueError):
        return None
    return None if uid == UNSET else uid
