"""Lists that are all there: a page, or a JSON text in each line, with all fields of each item or some."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from fastapi import Request, Response

from oar.api.answers.exports import LINES, wants_lines
from oar.api.responses import Answer, answer_unless_known, encoded
from oar.lib.facts.did_you_mean import nearest
from oar.lib.facts.errors import BadRequest


def list_answer(request: Request, record: Mapping[str, Any]) -> Answer:
    """Return a list that is all there; as lines to who accepts these alone."""
    if wants_lines(request):
        body = b"".join(encoded(item) + b"\n" for item in record["items"])
        return Response(body, media_type=LINES, headers={"Cache-Control": "no-store"})
    return answer_unless_known(request, record)


def only(items: Sequence[Mapping[str, Any]], fields: str | None, known: Collection[str]) -> list[Mapping[str, Any]]:
    """Return some fields of each item, all for None; ``known``: those that there are.  Raises BadRequest."""
    if fields is None:
        return list(items)
    names = [name for name in dict.fromkeys(fields.split(",")) if name]
    for name in names:
        if name not in known:
            near = nearest(name, known)
            raise BadRequest(f"fields: there is no field {name!r}" + (f"\ndid you mean {near!r}?" if near else ""))
    return [{name: item[name] for name in names if name in item} for item in items]
