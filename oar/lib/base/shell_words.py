"""Split a text into words like a shell."""

import shlex

from oar.lib.base.errors import BadRequest


def shell_words(text: str) -> list[str]:
    """Return the words of a text.  Raises BadRequest.

    >>> shell_words("a 'b c'")
    ['a', 'b c']
    """
    try:
        return shlex.split(text)
    except ValueError:
        end = "a backslash stands at its end" if text.endswith("\\") else "a quote is not closed"
        raise BadRequest(end) from None
