"""oar-password-check: checks a user's password with PAM.  The only program of the API that runs as root.

It reads ``NAME NUL PASSWORD`` from its standard input and ends with one of the codes below.  It takes no argument but
its own configuration directory in tests, prints nothing, and loads nothing of the package: what runs as root is this
file alone.
"""

import ctypes
import re
import sys
from typing import Any

RIGHT, WRONG, BROKEN = 0, 1, 2
#: Of /etc/pam.d.
SERVICE = "oar-api"
MAX_BYTES = 4096

_NAME = re.compile(rb"[a-z_][a-z0-9_.-]{0,31}")
#: Accounts whose passwords are never checked here.
_NEVER = frozenset({b"root", b"oar"})
_PROMPT_ECHO_OFF = 1
_PROMPT_ECHO_ON = 2
_SILENT = 0x8000
_DISALLOW_NULL_PASSWORD = 0x0001


class _Message(ctypes.Structure):
    _fields_ = [("style", ctypes.c_int), ("text", ctypes.c_char_p)]


class _Response(ctypes.Structure):
    _fields_ = [("text", ctypes.c_void_p), ("code", ctypes.c_int)]


_Converse = ctypes.CFUNCTYPE(
    ctypes.c_int,
    ctypes.c_int,
    ctypes.POINTER(ctypes.POINTER(_Message)),
    ctypes.POINTER(ctypes.c_void_p),
    ctypes.c_void_p,
)


class _Conversation(ctypes.Structure):
    _fields_ = [("converse", _Converse), ("data", ctypes.c_void_p)]


def is_right(name: bytes, password: bytes, directory: str | None = None) -> bool:
    """Return whether PAM accepts a password and the account.  ``directory``: instead of /etc/pam.d.

    Raises OSError where there is no PAM.
    """
    pam, libc = ctypes.CDLL("libpam.so.0"), ctypes.CDLL(None)
    libc.calloc.restype = ctypes.c_void_p
    libc.strdup.restype = ctypes.c_void_p

    def converse(number: int, messages: Any, responses: Any, data: object) -> int:
        """Answer every question with the password; PAM frees what it is given."""
        place = libc.calloc(ctypes.c_size_t(number), ctypes.c_size_t(ctypes.sizeof(_Response)))
        answers = ctypes.cast(place, ctypes.POINTER(_Response))
        for index in range(number):
            if messages[index].contents.style in (_PROMPT_ECHO_OFF, _PROMPT_ECHO_ON):
                answers[index].text = libc.strdup(password)
        responses[0] = place
        return 0

    conversation = _Conversation(_Converse(converse), None)
    handle = ctypes.c_void_p()
    begin = (SERVICE.encode(), name, ctypes.byref(conversation))
    if directory is None:
        code = pam.pam_start(*begin, ctypes.byref(handle))
    else:
        code = pam.pam_start_confdir(*begin, directory.encode(), ctypes.byref(handle))
    if code:
        raise OSError(code, "PAM does not start")
    flags = ctypes.c_int(_SILENT | _DISALLOW_NULL_PASSWORD)
    code = pam.pam_authenticate(handle, flags) or pam.pam_acct_mgmt(handle, flags)
    pam.pam_end(handle, ctypes.c_int(code))
    return bool(code == 0)


def main(directory: str | None = None) -> int:
    """Answer one question; return the exit code."""
    name, separator, password = sys.stdin.buffer.read(MAX_BYTES).partition(b"\0")
    if not separator or b"\0" in password or not _NAME.fullmatch(name) or name in _NEVER:
        return WRONG
    try:
        return RIGHT if is_right(name, password, directory) else WRONG
    except (OSError, AttributeError):
        return BROKEN


if __name__ == "__main__":
    sys.exit(main())
