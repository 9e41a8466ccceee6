"""What users are told of their jobs: the text of ``oarsub --notify`` and the words of the notices (server.md 8.2)."""

import re
from typing import Literal, NamedTuple

from oar.lib.errors import BadRequest

#: Tag -> what the notice says.
TEXTS = {
    "RUNNING": "Job is running.",
    "END": "Job stopped normally.",
    "ERROR": "Job stopped abnormally or an OAR error occured.",
    "INFO": "",
    "SUSPENDED": "Job is suspended.",
    "RESUMING": "Job is resuming.",
}
#: Not a tag: mails for each job of an array, where otherwise the array has one of each kind.
EACH = "EACH"
LONGEST = 255
_OLDER = {"START": "RUNNING"}
# Texts of expressions: most programs that know the words above read no subscription.
_FORM = r"(?:\[(?P<tags>[^\]]*)\]\s*)?(?P<way>mail|exec)\s*:(?P<rest>.+)\Z"
_ADDRESS = r"[A-Za-z0-9._%+-]+@[A-Za-z0-9.-]+\Z"
_COMMAND = r"[a-zA-Z0-9_./ -]+\Z"
_USAGE = "write [TAG,...]mail:address[,address] or [TAG,...]exec:/path arguments"


class UnsafeCommand(BadRequest):
    """The command of a notification has characters that are not allowed."""


class Subscription(NamedTuple):
    """Whom to tell, how, and of what."""

    way: Literal["mail", "exec"]
    targets: tuple[str, ...]  #: addresses, or a path and its arguments
    tags: frozenset[str]  #: none = all
    is_each: bool = False  #: of each job of an array, too

    def wants(self, tag: str) -> bool:
        """Whether a notice of this kind is to be sent."""
        return not self.tags or tag in self.tags


def parse_subscription(text: str) -> Subscription:
    """Read ``jobs.notify``.  Raises BadRequest, UnsafeCommand.

    >>> parse_subscription("[END,error]mail:alice@site.org").targets
    ('alice@site.org',)
    """
    match = re.match(_FORM, text.strip(), re.ASCII | re.IGNORECASE)
    if match is None or not text.isprintable():
        raise BadRequest(_USAGE)
    if len(text) > LONGEST:
        raise BadRequest(f"it is longer than {LONGEST} characters")
    is_mail = match["way"].lower() == "mail"
    targets = (_addresses if is_mail else _command)(match["rest"].strip())
    words = frozenset() if match["tags"] is None else frozenset(_tag(word) for word in match["tags"].split(","))
    return Subscription("mail" if is_mail else "exec", targets, words - {EACH}, EACH in words)


def _addresses(text: str) -> tuple[str, ...]:
    addresses = tuple(word.strip() for word in text.split(","))
    for address in addresses:
        if not re.match(_ADDRESS, address, re.ASCII):
            raise BadRequest(f"'{address}' is no mail address")
    return addresses


def _command(text: str) -> tuple[str, ...]:
    if not re.match(_COMMAND, text, re.ASCII):
        raise UnsafeCommand(
            r"insecure characters found in notification method (the allowed regexp is: [a-zA-Z0-9_.\/ -]+)."
        )
    if not text.startswith("/"):
        raise BadRequest(f"'{text.split(maxsplit=1)[0]}' is no absolute path")
    return tuple(text.split())


def _tag(word: str) -> str:
    tag = word.strip().upper()
    tag = _OLDER.get(tag, tag)
    if tag not in TEXTS and tag != EACH:
        raise BadRequest(f"unknown tag '{word.strip()}': use {', '.join(TEXTS)} or {EACH}")
    return tag


def mail_subject(tag: str, job_id: int, job_name: str, instance: str) -> str:
    """Subject of a mail to a user; never more than one line."""
    subject = f"*OAR* [{tag}]: {job_id} ({job_name}) on {instance}"
    return "".join(character if character.isprintable() else " " for character in subject)
