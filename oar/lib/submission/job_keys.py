"""Challenges and SSH keys of jobs: generated, or imported from the user.  Keys are never logged or shown."""

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from oar.lib.base.errors import BadRequest
from oar.lib.jobs.records import JobKeys
from oar.lib.submission.checks import BadSubmission, Code
from oar.lib.submission.options import JobOptions

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes

LEAST_RSA_BITS = 2048
#: Random bytes of a challenge.
_CHALLENGE_BYTES = 20
BAD_KEY = "fail to extract the public key. Please verify that the job key to import is valid."

NO_KEY_OPTION = "you must set the --use-job-key (or -k) option in order to use other job key related options."


class ImportedKey(NamedTuple):
    """A private key that the user provides for the job, and optionally its public key."""

    private: str
    public: str | None = None

    def __repr__(self) -> str:
        """Return a text without the key, which is secret."""
        return "ImportedKey()"


class KeyPair(NamedTuple):
    """A private and a public key in OpenSSH format."""

    private: str
    public: str


def is_key_requested(options: JobOptions, *, forced: bool) -> bool:
    """Return whether the job gets a key; ``forced``: every job gets one.  Raises BadRequest."""
    if options.public_key is not None and options.key_inline is None:
        raise BadRequest("--ssh_public_key needs --ssh_private_key.")
    if options.use_job_key or forced:
        return True
    if options.key_inline or options.key_file or options.key_export:
        hint = "\n# -e exports the key of the job; the file for standard error is -E FILE" if options.key_export else ""
        raise BadRequest(f"{NO_KEY_OPTION}{hint}")
    return False


def generate() -> KeyPair:
    """Return a new Ed25519 pair without passphrase."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    return _pair(Ed25519PrivateKey.generate())


def read(private: str, public: str | None = None) -> KeyPair:
    """Return the key pair of a user's private key; a given public key must match it.

    RSA of at least 2048 bits, ECDSA and Ed25519 are accepted, without passphrase.  Raises BadSubmission.
    """
    pair = _pair(_load(private))
    if public is not None and public.split()[:2] != pair.public.split()[:2]:
        raise BadSubmission(Code.REQUEST, BAD_KEY)
    return pair


def with_challenges(keys: Sequence[KeyPair], count: int) -> list[JobKeys]:
    """Return a new challenge for each of ``count`` jobs, with its key pair if there is one."""
    random = os.urandom(_CHALLENGE_BYTES * count)
    challenges = [
        str(int.from_bytes(random[start : start + _CHALLENGE_BYTES], "big"))
        for start in range(0, len(random), _CHALLENGE_BYTES)
    ]
    if not keys:
        return [JobKeys(challenge, None, None) for challenge in challenges]
    return [JobKeys(challenge, key.private, key.public) for challenge, key in zip(challenges, keys, strict=True)]


def _load(text: str) -> "PrivateKeyTypes":
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key, load_ssh_private_key

    data = (text.strip() + "\n").encode("utf-8", "replace")
    load = load_ssh_private_key if b"OPENSSH PRIVATE KEY" in data else load_pem_private_key
    try:
        key: PrivateKeyTypes = load(data, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):  # TypeError: the key has a passphrase
        raise BadSubmission(Code.REQUEST, BAD_KEY) from None
    if isinstance(key, RSAPrivateKey) and key.key_size >= LEAST_RSA_BITS:
        return key
    if isinstance(key, EllipticCurvePrivateKey | Ed25519PrivateKey):
        return key
    raise BadSubmission(Code.REQUEST, BAD_KEY)


def _pair(key: "PrivateKeyTypes") -> KeyPair:
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

    private = key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())
    public = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    return KeyPair(private.decode(), public.decode())
