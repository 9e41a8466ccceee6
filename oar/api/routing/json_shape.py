"""Bodies of JSON that no reader should have to take apart: lists in lists without end, more keys than anything has."""

import re
from http import HTTPStatus

from oar.api.errors import UnfitBody

DEEPEST = 64
MOST_KEYS = 100_000
#: A text, up to the end of the body if it has none of its own, so that each byte is looked at once.
_TEXT = re.compile(rb'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)', re.DOTALL)
_OTHERS = bytes(set(range(256)) - set(b"[]{}:"))
_ALIKE = bytes.maketrans(b"{}", b"[]")


def is_json(content_type: bytes) -> bool:
    """Whether a body of this type is read as JSON, as one without a type is.

    >>> is_json(b"application/merge-patch+json"), is_json(b"text/yaml")
    (True, False)
    """
    return not content_type.strip() or b"json" in content_type.lower()


def check_shape(data: bytes) -> None:
    """Check how deep a body is and how many keys it has; whether it is JSON is not looked at.  Raises UnfitBody."""
    plain = data.replace(b"\0", b"")  # of UTF-16, which is read as well, every other byte
    marks = _TEXT.sub(b"", plain).translate(_ALIKE, _OTHERS)
    if marks.count(b":") > MOST_KEYS:
        text = f"the body has more than {MOST_KEYS} keys"
        raise UnfitBody(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, text, "send it in several requests")
    if _is_deep(marks.replace(b":", b"")):
        text = f"the body has lists and records in one another, more than {DEEPEST} deep"
        raise UnfitBody(HTTPStatus.BAD_REQUEST, text, "docs/api.rst and /openapi.json show what a request looks like")


def _is_deep(marks: bytes) -> bool:
    """Whether brackets lie too deep in one another; those that are never closed count, too."""
    for _ in range(DEEPEST):
        inner = marks.replace(b"[]", b"")  # takes away the innermost pairs
        if inner == marks:
            break
        marks = inner
    return b"[]" in marks or marks.count(b"[") > DEEPEST
