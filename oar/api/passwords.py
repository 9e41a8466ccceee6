"""Names and passwords: checked by PAM in a program that runs as root, or in a file of ``htpasswd``."""

import hashlib
import hmac
import logging
import secrets
import shlex
import subprocess
import threading
import time
from typing import TYPE_CHECKING

from oar.api import password_check
from oar.api.concurrency import Failures, FairPlaces
from oar.api.errors import Unidentified
from oar.api.identity import htpasswd
from oar.lib.facts.errors import Unavailable

if TYPE_CHECKING:
    from oar.lib.config.files import Config

_log = logging.getLogger(__name__)

#: In OARDIR.
PROGRAM = "oar-password-check"
#: Passwords that are looked at together: PAM may take seconds, and other requests need threads too.
AT_A_TIME = 4
#: Seconds that a request waits until its password is looked at.
PATIENCE = 5.0
#: Seconds for which a password that was right is not asked for again: clients send it with each request.
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
            raise Unidentified("names and passwords are not taken here: use a token (oar-token create)")
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
                return htpasswd.is_right(config.htpasswd_file, name, password)
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
            raise Unavailable("passwords cannot be checked now: the log of the API tells more")
        return done.returncode == password_check.RIGHT

    def _keep(self, proof: bytes) -> None:
        now = time.monotonic()
        with self._lock:
            self._right = {each: until for each, until in self._right.items() if until > now}
            self._right[proof] = now + KEPT_SECONDS
