"""The person who acts under the account root or oar: the login user of the process, and the user of sudo.

A variable counts only if root has set it: sudo sets ``SUDO_USER`` for the processes of root, and a wrapper that root
runs passes it on to the account oar (``setup/installer/programs.py``). A process without a login user may set its own
login user; therefore a different user of sudo is recorded as well.

Under root and oar themselves nothing of this is proof: a shell of these accounts can set all variables, and be root for
OAR by them. The login user of the kernel is recorded before every variable, and such a shell keeps it: a site that sets
it at each login knows who has lied. Where it is not set, a shell of oar or root can name anybody.
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


def login_uid() -> int | None:
    """Return the uid of the login that started this process; None if there is none.

    The kernel keeps it over sudo and su.
    """
    return _read_login_uid("self")


def login_uid_of(process: int, uid: int) -> int | None:
    """Return the uid of the login that started the process of a peer; None if there is none, or if it is unknown.

    ``process``, ``uid``: as the kernel names the peer of a socket; process 0 is in another PID namespace.
    The process may have ended, and its id be that of another one: that of another account is not asked.
    """
    if process <= 0:
        return None
    login = _read_login_uid(str(process))
    return login if uid in _uids_of(process) else None  # the account is read last


def _read_login_uid(process: str) -> int | None:
    try:
        with open(f"/proc/{process}/loginuid", encoding="ascii") as file:
            uid = int(file.read())
    except (OSError, ValueError):
        return None
    return None if uid == UNSET else uid


def _uids_of(process: int) -> frozenset[int]:
    """Return the real, the effective and the saved uid of a process; none if it has ended."""
    try:
        with open(f"/proc/{process}/status", "rb") as file:
            line = next((line for line in file if line.startswith(b"Uid:")), b"")
        return frozenset(map(int, line.split()[1:4]))
    except (OSError, ValueError):
        return frozenset()
