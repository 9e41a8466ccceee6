"""Match LIKE patterns in memory, in a time of at most pattern length times text length.

A regular expression with many ``.*`` would backtrack excessively.  Here each part between two ``%`` is matched at its
first position, which is always correct.
"""

import re
from collections.abc import Callable


def like(pattern: str, *, ignores_case: bool) -> Callable[[str], bool]:
    """Return the test for a pattern without escapes; ``ignores_case``: only for ASCII patterns and texts.

    >>> like("node-%", ignores_case=False)("node-12"), like("_%b", ignores_case=False)("b")
    (True, False)
    """
    first, *others = (_part(part, ignores_case=ignores_case) for part in pattern.split("%"))
    if not others:
        return lambda text: first.fullmatch(text) is not None
    *inner, last = others
    last_length = len(pattern) - pattern.rfind("%") - 1

    def test(text: str) -> bool:
        begin = first.match(text)
        end = len(text) - last_length
        if begin is None or end < begin.end() or not last.fullmatch(text, end):
            return False
        place = begin.end()
        for part in inner:
            match = part.search(text, place, end)
            if match is None:
                return False
            place = match.end()
        return True

    return test


def _part(part: str, *, ignores_case: bool) -> re.Pattern[str]:
    """Return the regular expression for the text between two ``%``; it has no repetition."""
    text = "".join("." if character == "_" else re.escape(character) for character in part)
    return re.compile(text, re.DOTALL | (re.IGNORECASE if ignores_case else 0))
