"""The heads of requests and answers as ASGI has them: pairs of bytes, gone through once.

Starlette's own ``Headers`` encode and decode at each look, which for the layers round every request cost as much as
the request itself.
"""

from collections.abc import Mapping

from starlette.types import Message, Scope

#: Headers as ASGI has them; the names have small letters.
Pairs = list[tuple[bytes, bytes]]


def asked_in(scope: Scope) -> Mapping[bytes, bytes]:
    """Return the headers of a request; of several with one name the first."""
    return dict(reversed(scope["headers"]))


def with_headers(message: Message, more: Mapping[bytes, bytes], unless_there: Mapping[bytes, bytes]) -> Message:
    """Return the beginning of an answer with other values of some headers, and some that it may have already."""
    kept: Pairs = [pair for pair in message.get("headers", ()) if pair[0] not in more]
    names = {name for name, _ in kept}
    missing = [pair for pair in unless_there.items() if pair[0] not in names]
    return {**message, "headers": [*kept, *more.items(), *missing]}
