"""Notices to the owners of jobs: their texts, and the subscription language of ``oarsub --notify``.

See docs/design/events.rst, "Notices".
"""

import re
from collections.abc import Mapping
from typing import Literal, NamedTuple

from oar.lib.base.errors import BadRequest
from oar.lib.bus.messages import NoticeTag

#: Tag -> text of the notice.
TEXTS: Mapping[str, str] = {
    NoticeTag.RUNNING: "Job is running.",
    NoticeTag.END: "Job stopped normally.",
    NoticeTag.ERROR: "Job stopped abnormally or an OAR error occured.",
    NoticeTag.INFO: "",
    NoticeTag.SUSPENDED: "Job is suspended.",
    NoticeTag.RESUMING: "Job is resuming.",
}
#: Not a tag: a mail for each job of an array, where otherwise the array gets one of each kind.
EACH = "EACH"
LONGEST = 255
_OLDER = {"START": NoticeTag.RUNNING.value}
# Texts of expressions, not compiled: most programs that use the names above do not parse subscriptions.
_FORM = r"(?:\[(?P<tags>[^\]]*)\]\s*)?(?P<way>mail|exec)\s*:(?P<rest>.+)\Z"
_ADDRESS = r"[A-Za-z0-9._%+-]+@[A-Za-z0-9.-]+\Z"
_COMMAND = r"[a-zA-Z0-9_./ -]+\Z"
_USAGE = "write [TAG,...]mail:address[,address] or [TAG,...]exec:/path arguments"


class UnsafeCommand(BadRequest):
    """The command of a notification contains forbidden characters."""


class Subscription(NamedTuple):
    """The notices about a job that a user has subscribed to, and how they are sent."""

    way: Literal["mail", "exec"]
    targets: tuple[str, ...]  #: addresses, or a path and its arguments
    tags: frozenset[NoticeTag]  #: empty: all tags
    is_each: bool = False  #: about each job of an array, too

    def wants(self, tag: NoticeTag) -> bool:
        """Return whether a notice with this tag must be sent."""
        return not self.tags or tag in self.tags


def parse_subscription(text: str) -> Subscription:
    """Parse ``jobs.notify``. Raises BadRequest, UnsafeCommand.

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
    options = [] if match["tags"] is None else [_option(tag) for tag in match["tags"].split(",")]
    tags = frozenset(NoticeTag(option) for option in options if option != EACH)
    return Subscription("mail" if is_mail else "exec", targets, tags, EACH in options)


def _addresses(text: str) -> tuple[str, ...]:
    addresses = tuple(part.strip() for part in text.split(","))
    for address in addresses:
        if not re.match(_ADDRESS, address, re.ASCII):
            raise BadRequest(f"'{address}' is not a mail address")
    return addresses


def _command(text: str) -> tuple[str, ...]:
    if not re.match(_COMMAND, text, re.ASCII):
        raise UnsafeCommand(
            r"insecure characters found in notification method (the allowed regexp is: [a-zA-Z0-9_.\/ -]+)."
        )
    if not text.startswith("/"):
        raise BadRequest(f"'{text.split(maxsplit=1)[0]}' is not an absolute path")
    return tuple(text.split())


def _option(text: str) -> str:
    """Return a tag, or EACH, in upper case and in the spelling of this version. Raises BadRequest."""
    option = text.strip().upper()
    option = _OLDER.get(option, option)
    if option not in TEXTS and option != EACH:
        raise BadRequest(f"unknown tag '{text.strip()}': use {', '.join(NoticeTag)} or {EACH}")
    return option


def mail_subject(tag: NoticeTag, job_id: int, job_name: str, instance: str) -> str:
    """Return the subject of a mail to a user, in one line."""
    return one_line(f"*OAR* [{tag}]: {job_id} ({job_name}) on {instance}")


def one_line(text: str) -> str:
    """Return a text for the header of a mail: non-printable characters are replaced by spaces."""
    return "".join(character if character.isprintable() else " " for character in text)
