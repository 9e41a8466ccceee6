"""Texts: suggestions for misspelt names, lists of names in a sentence, storable texts, words of a command line."""

from collections.abc import Iterable, Sequence

from oar.lib.base.errors import BadRequest


def nearest(name: str, names: Iterable[str]) -> str | None:
    """Return the most similar of the names, None if none is similar enough.

    >>> nearest("recource", ["resource", "reservation"])
    'resource'
    """
    import difflib

    by_lower = {name.lower(): name for name in names}
    matches = difflib.get_close_matches(name.lower()[:100], by_lower, 1, 0.7)
    return by_lower[matches[0]] if matches else None


def did_you_mean(name: str, names: Iterable[str], quote: str = '"') -> str:
    """Return ``# Did you mean ...?`` after a newline, '' if no name is similar enough."""
    suggestion = nearest(name, names)
    return f"\n# Did you mean {quote}{suggestion}{quote}?" if suggestion and suggestion != name else ""


#: So many names stand in a sentence.
MAX_NAMED = 10


def enumerated(names: Sequence[object], most: int = MAX_NAMED) -> str:
    """Return names separated by commas; replace those after the first ``most`` by "and others".

    >>> enumerated([5, 3]), enumerated("abc", 2)
    ('5, 3', 'a, b and others')
    """
    return ", ".join(map(str, names[:most])) + (" and others" if len(names) > most else "")


def is_storable(text: str) -> bool:
    """Return whether the database can store a text: UTF-8 (invalid bytes are lone surrogates) without NUL."""
    try:
        return b"\0" not in text.encode()
    except UnicodeEncodeError:
        return False


def shell_words(text: str) -> list[str]:
    """Return the words of a text.  Raises BadRequest.

    >>> shell_words("a 'b c'")
    ['a', 'b c']
    """
    import shlex

    try:
        return shlex.split(text)
    except ValueError:
        end = "it ends with a backslash" if text.endswith("\\") else "a quote is not closed"
        raise BadRequest(end) from None
