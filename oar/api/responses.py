"""Finished answers: records become bytes here, once."""

import hashlib
from collections.abc import Iterable, Mapping
from http import HTTPStatus
from urllib.parse import quote

import orjson
from fastapi import Request, Response

Answer = Response
_JSON = "application/json"
#: ``Cache-Control`` of answers that are asked for again each time.
REVALIDATED = "private, no-cache"
#: Stands in a tag between that of the body and that of the state from which it was made.
MARK = "~"


def answer(record: object, *, status: int = HTTPStatus.OK, headers: Mapping[str, str] | None = None) -> Answer:
    """Return a record as the body of an answer."""
    return Response(encoded(record), status, headers, _JSON)


def made(record: object, *place: object) -> Answer:
    """Return the answer that tells what was made; ``place``: the words of its address behind ``/v1``."""
    address = "/".join(("/v1", *(quote(str(word), safe="") for word in place)))
    return answer(record, status=HTTPStatus.CREATED, headers={"Location": address})


def encoded(record: object) -> bytes:
    """Return a record as JSON."""
    return orjson.dumps(record, default=_plain, option=orjson.OPT_NON_STR_KEYS)


def answer_unless_known(request: Request, record: Mapping[str, object]) -> Answer:
    """Return a record, or 304 if the client names its tag and so has it already.

    The tag of a record with a version begins with it: ``If-Match`` looks at nothing else.  Behind the mark it tells the
    state from which it was made (``state_tags``).
    """
    body = encoded(record)
    version = f"{record['version']}-" if "version" in record else ""
    state = request.scope["state"].get("state_tag")
    mark = f"{MARK}{state}" if state else ""
    tag = tag_of(body, version, mark)
    headers = validators(tag)
    if is_known(request, tag):
        return Response(status_code=HTTPStatus.NOT_MODIFIED, headers=headers)
    return Response(body, HTTPStatus.OK, headers, _JSON)


def tag_of(body: bytes, before: str = "", behind: str = "") -> str:
    """Return the tag of a body, with what stands before and behind its digest."""
    return f'W/"{before}{hashlib.blake2b(body, digest_size=12).hexdigest()}{behind}"'


def validators(tag: str) -> dict[str, str]:
    """Return the headers of an answer that is asked for again each time, and then sent only if its tag is another."""
    return {"ETag": tag, "Cache-Control": REVALIDATED}


def is_known(request: Request, tag: str) -> bool:
    """Whether a client names a tag, and so has what it stands for; from which state it was made does not matter.

    ``*`` stands for every tag.
    """
    known = request.headers.get("if-none-match", "")
    if known.strip() == "*":
        return True
    return _of_body(tag) in {_of_body(each.strip()) for each in known.split(",")}


def _of_body(tag: str) -> str:
    return tag.removesuffix('"').partition(MARK)[0]


def _plain(value: object) -> object:
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Iterable):
        return list(value)
    raise TypeError(f"{type(value).__name__} is no part of a record")
