"""What may stand in the query of a request that changes something: what its route does not know is refused.

Whoever writes ``?dry_run=true`` to a route that has no such parameter would change what he only wanted to try.
"""

import inspect
from collections.abc import Callable, Iterator
from functools import cache
from typing import Annotated, Any, get_args, get_origin, get_type_hints
from urllib.parse import parse_qsl

from fastapi import Request, params
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel
from starlette.types import Scope

from oar.api.identity.callers import SAFE_METHODS

#: Below it stand the routes of the document; older clients send what they like.
_ROOT = "/v1/"


def check_query(scope: Scope) -> None:
    """Check the query of a request whose route is found.  Raises RequestValidationError."""
    if not scope["query_string"] or scope["method"] in SAFE_METHODS or not scope["path"].startswith(_ROOT):
        return
    known = query_names(scope["route"].endpoint)
    for name, _ in parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True):
        if name not in known:
            raise RequestValidationError([{"type": "extra_forbidden", "loc": ("query", name), "msg": ""}])


@cache
def query_names(call: Callable[..., Any]) -> frozenset[str]:
    """Return the names that a handler takes from the query."""
    hints = get_type_hints(call, include_extras=True)
    return frozenset(name for each, hint in hints.items() for name in _names(each, hint))


def _names(name: str, hint: Any) -> Iterator[str]:
    kind, *more = get_args(hint) if get_origin(hint) is Annotated else (hint,)
    told = next((each for each in more if isinstance(each, params.Param | params.Body)), None)
    is_model = inspect.isclass(kind) and issubclass(kind, BaseModel)
    if name == "return" or kind is Request or (told and not isinstance(told, params.Query)):
        return
    if not is_model:
        yield str(told.alias or name) if told else name
    elif told:
        yield from (field.alias or each for each, field in kind.model_fields.items())
