"""Reasons of administrators for a state, a drain or a maintenance of nodes."""

import re

from oar.lib.base.errors import BadRequest

#: Characters of a reason, at most.
LONGEST = 255
#: What stands before the reason; names of hosts and users hold no blank.
_BEFORE = ": "
#: The user with the person who acts under the account: ``root (anna)``.
_AUTHOR = re.compile(r"User (\S+(?: \([^()]*\))?) ")


def checked(text: str) -> str:
    """Return a reason without leading and trailing blanks. Raises BadRequest.

    >>> checked(" a disk is changed ")
    'a disk is changed'
    """
    reason = text.strip()
    if not reason.isprintable():
        raise BadRequest("bad reason: it has a line break or a control character. Write one line of text.")
    if len(reason) > LONGEST:
        raise BadRequest(f"bad reason: it has {len(reason)} characters: the limit is {LONGEST}. Shorten it.")
    return reason


def with_reason(text: str, reason: str) -> str:
    """Return the text of an event with the reason; a reason '' adds nothing.

    >>> with_reason("User root began the drain of node-1", "a disk is changed")
    'User root began the drain of node-1: a disk is changed'
    """
    return f"{text}{_BEFORE}{reason}" if reason else text


def reason_of(text: str) -> str:
    """Return the reason from the text of an event; return '' if there is none.

    >>> reason_of("User root began the drain of node-1: disk: changed")
    'disk: changed'
    """
    author = _AUTHOR.match(text)  # it may hold a colon
    return text[author.end() if author else 0 :].partition(_BEFORE)[2]


def author_of(text: str) -> str:
    """Return the user from the text of an event; return '' if there is none.

    >>> author_of("User root (anna) began the drain of node-1: disk: changed")
    'root (anna)'
    """
    match = _AUTHOR.match(text)
    return match[1] if match else ""
