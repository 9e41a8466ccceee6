"""Lists of names in a sentence, limited in length."""

from collections.abc import Sequence

#: So many names stand in a sentence.
MAX_NAMED = 10


def enumerated(names: Sequence[object], most: int = MAX_NAMED) -> str:
    """Return names separated by commas; replace those after the first ``most`` by "and others".

    >>> enumerated([5, 3]), enumerated("abc", 2)
    ('5, 3', 'a, b and others')
    """
    return ", ".join(map(str, names[:most])) + (" and others" if len(names) > most else "")
