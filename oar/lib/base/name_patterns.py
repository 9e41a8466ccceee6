"""Names and patterns (``*``, ``?``, ``[...]``) in lists from users, matched in bounded time. Pure."""

import re
from collections.abc import Collection, Iterable
from fnmatch import translate

from oar.lib.base.errors import BadRequest

#: A list has so many different patterns at most, and any number of names.
MAX_PATTERNS = 64

_STARS = re.compile(r"\*+")


def is_pattern(text: str) -> bool:
    return any(letter in text for letter in "*?[")


def check_number(texts: Iterable[str]) -> None:
    """Raise BadRequest if a list has too many patterns."""
    if sum(map(is_pattern, dict.fromkeys(texts))) > MAX_PATTERNS:
        raise BadRequest(f"more than {MAX_PATTERNS} patterns in one list")


def matching(texts: Iterable[str], names: Collection[str]) -> set[str]:
    """Return the names that match a list of names and patterns. Raises BadRequest for too many patterns."""
    different = dict.fromkeys(texts)
    check_number(different)
    matched = set(names).intersection(different)
    patterns = dict.fromkeys(_STARS.sub("*", text) for text in different if is_pattern(text))
    for matches in (re.compile(translate(pattern)).match for pattern in patterns):
        matched.update(name for name in names if name not in matched and matches(name))
    return matched
