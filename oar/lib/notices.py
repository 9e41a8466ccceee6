"""What users are told of their jobs: the text of ``oarsub --notify`` and the words of the notices (server.md 8.2)."""

import re
from dataclasses import dataclass
from typing import Literal

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
_OLDER = {"START": "RUNNING"}
_FORM = re.compile(r"(?:\[(?P<tags>[^\]]*)\])?(?P<way>mail|exec):(?P<rest>.*)\Z", re.ASCII | re.IGNORECASE)
_ADDRESS = re.compile(r"[A-Za-z0-9._%+-]+@[A-Za-z0-9.-]+\Z", re.ASCII)
_COMMAND = re.compile(r"/[a-zA-Z0-9_./ -]*\Z", re.ASCII)
_USAGE = "write [TAG,...]mail:address[,address] or [TAG,...]exec:/path arguments"


@dataclass(frozen=True, slots=True)
class Subscription:
    """Whom to tell, how, and of what."""

    way: Literal["mail", "exec"]
    targets: tuple[str, ...]  #: addresses, or a path and its arguments
    tags: frozenset[str]  #: none = all

    def wants(self, tag: str) -> bool:
        """Whether a notice of this kind is to be sent."""
        return not self.tags or tag in self.tags


def parse_subscription(text: str) -> Subscription:
    """Read ``jobs.notify``.

    >>> parse_subscription("[END,error]mail:alice@site.org").targets
    ('alice@site.org',)
    """
    match = _FORM.match(text.strip())
    if match is None:
        raise BadRequest(f"bad notify option '{text}': {_USAGE}")
    tags = frozenset(_tag(word, text) for word in (match["tags"] or "").split(",") if word.strip())
    if match["way"].lower() == "mail":
        addresses = tuple(word.strip() for word in match["rest"].split(","))
        for address in addresses:
            if not _ADDRESS.match(address):
                raise BadRequest(f"bad mail address '{address}' in the notify option")
        return Subscription("mail", addresses, tags)
    if not _COMMAND.match(match["rest"]):
        raise BadRequest("bad command in the notify option: a path, then letters, digits and _ . / - only")
    return Subscription("exec", tuple(match["rest"].split()), tags)


def _tag(word: str, text: str) -> str:
    tag = word.strip().upper()
    tag = _OLDER.get(tag, tag)
    if tag not in TEXTS:
        raise BadRequest(f"unknown tag '{word.strip()}' in the notify option '{text}': use {', '.join(TEXTS)}")
    return tag


def mail_subject(tag: str, job_id: int, job_name: str, instance: str) -> str:
    """Subject of a mail to a user; never more than one line."""
    subject = f"*OAR* [{tag}]: {job_id} ({job_name}) on {instance}"
    return "".join(character if character.isprintable() else " " for character in subject)
