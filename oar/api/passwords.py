"""Names and passwords: checked by PAM in a program that runs as root, or in a file of ``htpasswd``."""

import base64
import hashlib
import hmac
import logging
import secrets
import shlex
import subprocess
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

from oar.api import password_check
from oar.api.concurrency import Failures, FairPlaces
from oar.api.errors import Unidentified
from oar.lib.base.errors import Unavailable

if TYPE_CHECKING:
    from oar.lib.config.files import Config

_MAGIC = b"$apr1$"
_ALPHABET = "./0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
#: Order of the bytes of the digest in Apache's format, three at a time.
_ORDER = ((0, 6, 12), (1, 7, 13), (2, 8, 14), (3, 9, 15), (4, 10, 5))
_TURNS = 1000
#: Compared with the password of an unknown user, so that this takes as long.
_OF_NOBODY = "$2b$10$RahFtZL.pyvKXnnjhtAYEOlkctJ1RpZv/V5TVCI5B64It0VslRJzW"


def is_in_htpasswd(path: str, name: str, password: str) -> bool:
    """Return whether a file has a user with this password.  Raises OSError."""
    hashes = dict(line.split(":", 1) for line in Path(path).read_text().splitlines() if ":" in line)
    return matches(password, hashes.get(name, _OF_NOBODY).strip()) and name in hashes


def matches(password: str, stored: str) -> bool:
    """Return whether a password matches a stored hash."""
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
    """Return the MD5 hash of a password in Apache's format."""
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
    text = "".join(_ALPHABET[number >> 6 * index & 63] for number, places in numbers for index in range(places))
    return f"{_MAGIC.decode()}{salt.decode()}${text}"


_log = logging.getLogger(__name__)

#: In OARDIR.
PROGRAM = "oar-password-check"
#: Passwords that are looked at together: PAM may take seconds, and other requests need threads too.
AT_A_TIME = 4
#: Seconds that a request waits until its password is looked at.
PATIENCE = 5.0
#: Seconds for which a correct password is not checked again: clients send it with each request.
KEPT_SECONDS = 30.0
_LONGEST = 1024
_PATIENCE = 30


class Passwords:
    """Checks passwords for a process."""

    def __init__(self, oardir: str) -> None:
        self.failures = Failures()
        self.program = f"{oardir}/{PROGRAM}"
        refusal = f"too many password checks at the same time: the limit is {AT_A_TIME}. Try again."
        self._places = FairPlaces(AT_A_TIME, refusal, PATIENCE)
        self._key = secrets.token_bytes(32)
        self._lock = threading.Lock()
        self._right: dict[bytes, float] = {}  # sums of what was right, with this process's key, and until when

    def check(self, name: str, password: str, address: str, config: "Config") -> None:
        """Check that a password is a user's.  Raises Unidentified, TooOften, TooMany, Unavailable."""
        if config.api_basic_auth == "no":
            raise Unidentified("the site does not accept passwords: use a token (oar-token create)")
        self.failures.check(name, address)
        proof = hmac.new(self._key, f"{name}\0{password}".encode(), hashlib.sha256).digest()
        if self._right.get(proof, 0.0) > time.monotonic():
            return
        with self._places.place(address):
            is_right = self._is_right(name, password, config)
        if not is_right:
            self.failures.count(name, address)
            _log.warning("wrong password for %.32r from %s", name, address)
            raise Unidentified("the name or the password is wrong")
        self._keep(proof)

    def _is_right(self, name: str, password: str, config: "Config") -> bool:
        if not 0 < len(name) <= _LONGEST or len(password) > _LONGEST or "\0" in name + password:
            return False
        if config.api_basic_auth == "htpasswd":
            try:
                return is_in_htpasswd(config.htpasswd_file, name, password)
            except OSError as error:
                raise Unavailable(f"HTPASSWD_FILE cannot be read: {error.strerror}") from None
        return self._is_right_for_pam(name, password, config)

    def _is_right_for_pam(self, name: str, password: str, config: "Config") -> bool:
        command = [*shlex.split(config.oar_privilege_cmd), self.program]
        try:
            done = subprocess.run(
                command, input=f"{name}\0{password}".encode(), capture_output=True, timeout=_PATIENCE, check=False
            )
        except (OSError, subprocess.TimeoutExpired):
            raise Unavailable("passwords cannot be checked now") from None
        if done.returncode not in (password_check.RIGHT, password_check.WRONG):
            _log.error("%s ended with %d: %.500s", PROGRAM, done.returncode, done.stderr.decode(errors="replace"))
            raise Unavailable("passwords cannot be checked now: see the log of the API")
        return done.returncode == password_check.RIGHT

    def _keep(self, proof: bytes) -> None:
        now = time.monotonic()
        with self._lock:
            self._right = {digest: until for digest, until in self._right.items() if until > now}
            self._right[proof] = now + KEPT_SECONDS
