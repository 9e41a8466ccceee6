"""What may stand in the query of a request: what its route does not know is refused.

Whoever writes ``?dry_run=true`` to a route that has no such parameter would change what he only wanted to try, and who
writes ``?form=`` for ``?from=`` would take the answer for that of his question.
"""

import inspect
from collections.abc import Iterator
from urllib.parse import parse_qsl

from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import BaseModel
from starlette.types import Scope

#: The first word of the addresses of the document; older clients send what they like.
_OURS = "v1"


def check_query(scope: Scope) -> None:
    """Check the query of a request whose route is found.  Raises RequestValidationError."""
    if not scope["query_string"] or scope["path"].split("/", 2)[1] != _OURS:
        return
    known = query_names(scope["route"])
    for name, _ in parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True):
        if name not in known:
            raise RequestValidationError([{"type": "extra_forbidden", "loc": ("query", name), "msg": ""}])


def query_names(route: APIRoute) -> frozenset[str]:
    """Return the names that a route takes from the query."""
    return frozenset(_names(route))


def _names(route: APIRoute) -> Iterator[str]:
    for parameter in route.dependant.query_params:
        kind = parameter.field_info.annotation
        if inspect.isclass(kind) and issubclass(kind, BaseModel):
            yield from (field.alias or name for name, field in kind.model_fields.items())
        else:
            yield parameter.alias
