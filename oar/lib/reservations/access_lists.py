"""Access lists: who may use an advance reservation (docs/design/reservations.rst, "Access lists").  Pure."""

import re
from collections.abc import Collection, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import NamedTuple

from oar.lib.base.errors import BadRequest
from oar.lib.base.name_patterns import check_number, is_pattern
from oar.lib.reservations.records import AccessEntry

#: The entry that means: nobody.  For maintenance.
NOBODY = "NONE"

MAX_ENTRIES = 1000
LONGEST_ENTRY = 255

_NAME = re.compile(r"[A-Za-z0-9_.][A-Za-z0-9_.@+-]*\$?")
_PATTERN = re.compile(r"[A-Za-z0-9_.@+*?\[\]!^$-]+")

Usersets = Mapping[str, Sequence[str]]


class Visitor(NamedTuple):
    """A user who requests access to a reservation."""

    user: str
    groups: Collection[str] = ()  #: his groups on the server
    project: str = ""  #: of his job


class ListedNames(NamedTuple):
    """The names in an access list that must exist."""

    users: tuple[str, ...]
    groups: tuple[str, ...]  #: of usersets, or of groups of the server


def parse(text: str, asker: str) -> tuple[AccessEntry, ...]:
    """Return the entries of a comma-separated list; ``$user`` stands for ``asker``.  Raises BadRequest."""
    words = [word.strip() for word in text.split(",")]
    entries = tuple(_entry(word, asker) for word in words if word)
    if not entries:
        raise BadRequest(f'the user list "{text}" is empty')
    if len(entries) > MAX_ENTRIES:
        raise BadRequest(f"the user list has more than {MAX_ENTRIES} entries")
    check_number(entry.text for entry in entries)
    return tuple(dict.fromkeys(entries))


def _entry(word: str, asker: str) -> AccessEntry:
    denied, name = word.startswith("!"), word.removeprefix("!")
    name = asker if name == "$user" else name
    body = name[1:] if name.startswith(("@", "%")) else name
    pattern = _NAME if name != body or not is_pattern(name) else _PATTERN
    if len(name) > LONGEST_ENTRY or not pattern.fullmatch(body):
        raise BadRequest(f'"{word}" is no user, @group, %project or pattern')
    return AccessEntry(name, denied)


def names_of(entries: Sequence[AccessEntry]) -> ListedNames:
    """Return the users and groups in an access list that must exist; skip patterns and projects."""
    texts = [entry.text for entry in entries if entry.text != NOBODY]
    users = [text for text in texts if not text.startswith(("@", "%")) and not is_pattern(text)]
    return ListedNames(tuple(users), tuple(text[1:] for text in texts if text.startswith("@")))


def allows(entries: Sequence[AccessEntry], visitor: Visitor, usersets: Usersets) -> bool:
    """Return whether the visitor may use the reservation: an entry allows it, and no entry denies it.

    A list that contains only denials allows all other users.  ``usersets``: the existing usersets that the entries
    name.
    """
    if any(entry.denied and _matches(entry.text, visitor, usersets) for entry in entries):
        return False
    allowing = [entry.text for entry in entries if not entry.denied]
    return not allowing or any(_matches(text, visitor, usersets) for text in allowing)


def is_member(visitor: Visitor, members: Sequence[str]) -> bool:
    """Return whether the visitor is in a userset.

    An entry of a userset is a user, a pattern, or ``@group`` for a group of the server.
    """
    return any(
        entry[1:] in visitor.groups if entry.startswith("@") else fnmatchcase(visitor.user, entry) for entry in members
    )


def _matches(text: str, visitor: Visitor, usersets: Usersets) -> bool:
    if text == NOBODY:
        return False
    if text.startswith("%"):
        return visitor.project == text[1:]
    if text.startswith("@"):
        members = usersets.get(text[1:])
        return text[1:] in visitor.groups if members is None else is_member(visitor, members)
    return fnmatchcase(visitor.user, text) if is_pattern(text) else visitor.user == text
