"""What somebody probably meant who wrote a name that nobody knows."""

from collections.abc import Iterable


def nearest(word: str, known: Iterable[str]) -> str | None:
    """Return the known name that is most like a word; None if none is much like it.

    >>> nearest("recource", ["resource", "reservation"])
    'resource'
    """
    import difflib

    names = {name.lower(): name for name in known}
    found = difflib.get_close_matches(word.lower()[:100], names, 1, 0.7)
    return names[found[0]] if found else None


def did_you_mean(word: str, known: Iterable[str], quote: str = '"') -> str:
    """Return a line that asks for the nearest known name, with the end of the line before it; '' if none is near."""
    name = nearest(word, known)
    return f"\n# Did you mean {quote}{name}{quote}?" if name and name != word else ""
