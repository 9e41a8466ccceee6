"""Suggestions for misspelt names."""

from collections.abc import Iterable


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
