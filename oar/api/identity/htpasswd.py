"""Files of ``htpasswd``: who may enter with which password, as a web server writes it.

Taken are bcrypt (``htpasswd -B``), the MD5 of Apache (its default) and SHA-1 (``-s``).  Passwords in clear and those of
``crypt`` are not: they are no secrets any more.
"""

import base64
import hashlib
import hmac
from pathlib import Path

_MAGIC = b"$apr1$"
_ALPHABET = "./0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
#: Bytes of the sum in the order in which Apache writes them, three at a time.
_ORDER = ((0, 6, 12), (1, 7, 13), (2, 8, 14), (3, 9, 15), (4, 10, 5))
_TURNS = 1000
#: Is compared with where there is no such user: that takes as long.
_OF_NOBODY = "$2b$10$RahFtZL.pyvKXnnjhtAYEOlkctJ1RpZv/V5TVCI5B64It0VslRJzW"


def is_right(path: str, name: str, password: str) -> bool:
    """Whether a file holds a user with this password.  Raises OSError."""
    known = dict(line.split(":", 1) for line in Path(path).read_text().splitlines() if ":" in line)
    return fits(password, known.get(name, _OF_NOBODY).strip()) and name in known


def fits(password: str, stored: str) -> bool:
    """Whether a password is the one of which a sum was stored."""
    secret = password.encode()
    if stored.startswith(("$2a$", "$2b$", "$2y$")):
        return _fits_bcrypt(secret, stored)
    if stored.startswith(_MAGIC.decode()):
        salt = stored.removeprefix(_MAGIC.decode()).partition("$")[0][:8]
        return hmac.compare_digest(apache_md5(secret, salt.encode()), stored)
    if stored.startswith("{SHA}"):
        digest = hashlib.sha1(secret, usedforsecurity=False).digest()
        return hmac.compare_digest("{SHA}" + base64.b64encode(digest).decode(), stored)
    return False


def _fits_bcrypt(secret: bytes, stored: str) -> bool:
    import bcrypt

    try:
        return bcrypt.checkpw(secret[:72], stored.encode())  # it looks at no more bytes
    except ValueError:
        return False


def apache_md5(secret: bytes, salt: bytes) -> str:
    """Return what ``htpasswd`` stores of a password."""
    inner = hashlib.md5(secret + salt + secret, usedforsecurity=False).digest()
    mixed = hashlib.md5(secret + _MAGIC + salt, usedforsecurity=False)
    mixed.update((inner * (len(secret) // len(inner) + 1))[: len(secret)])
    length = len(secret)
    while length:
        mixed.update(b"\0" if length & 1 else secret[:1])
        length >>= 1
    digest = mixed.digest()
    for turn in range(_TURNS):
        parts = [secret if turn & 1 else digest]
        parts += [salt] if turn % 3 else []
        parts += [secret] if turn % 7 else []
        parts += [digest if turn & 1 else secret]
        digest = hashlib.md5(b"".join(parts), usedforsecurity=False).digest()
    numbers = [(digest[a] << 16 | digest[b] << 8 | digest[c], 4) for a, b, c in _ORDER] + [(digest[11], 2)]
    text = "".join(_ALPHABET[number >> 6 * place & 63] for number, places in numbers for place in range(places))
    return f"{_MAGIC.decode()}{salt.decode()}${text}"
