"""Jobs on resources over time: days that are over, as chunks that never change, and what goes on."""

import re
import time
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, date, datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Path, Query, Request

from oar.api.gantt_cache import live_record, packed
from oar.api.parameters import PRINTABLE, split_list
from oar.api.responses import REVALIDATED, Answer, answer_unless_known
from oar.api.routing import ApiRoute
from oar.api.service import asking, service_of
from oar.lib.facts.errors import BadRequest, NoSuchResource
from oar.lib.facts.records import SYSTEM_PROPERTIES
from oar.lib.views.gantt_chunks import DAY, chunk_version, day_chunk, ranges

if TYPE_CHECKING:
    from oar.lib.db.history.gantt_days import DayVersion
    from oar.lib.db.transaction import Transaction

router = APIRouter(tags=["gantt"], route_class=ApiRoute)

#: The last day that can be asked for: so far the columns reach.
LAST_DAY = 2**32 // DAY - 1
MOST_DAYS = 366
_UNTOUCHED = "private, max-age=31536000, immutable"
Day = Annotated[str, Path(pattern=r"^\d{4}-\d{2}-\d{2}$", description="Day in UTC, YYYY-MM-DD.")]
Since = Annotated[str | None, Query(max_length=60, pattern=PRINTABLE, description="`cursor` of an earlier response.")]
Version = Annotated[
    str | None,
    Query(
        max_length=60,
        pattern=PRINTABLE,
        description="`version` of the day; with it the response can be cached forever.",
    ),
]
EndedSince = Annotated[
    int,
    Query(
        ge=0, le=LAST_DAY * DAY, description="Only jobs and states that ended at this date (epoch seconds) or later."
    ),
]
Begin = Annotated[int, Query(alias="from", ge=0, le=LAST_DAY * DAY, description="Start of the period, epoch seconds.")]
End = Annotated[int, Query(ge=0, le=LAST_DAY * DAY, description="End of the period, epoch seconds.")]


@router.get("/v1/gantt/index", operation_id="gantt_index", summary="Days with archived chunks")
def gantt_index(request: Request, begin: Begin, to: End) -> Answer:
    """Return the days of a period that have a chunk, with the version to request it with.

    `from` of a day is the earliest start of all jobs and states that ended on it. A date is covered by its own day and
    by each later day whose `from` is not after the date.
    """
    who = asking(request)
    if not begin <= to < begin + MOST_DAYS * DAY:
        raise BadRequest(f"a period goes from a date to a later one, over {MOST_DAYS} days at most")

    def found(tx: "Transaction") -> dict[str, Any]:
        return {"items": [_day_item(each) for each in tx.gantt_days.versions(begin - begin % DAY, to - to % DAY + DAY)]}

    return service_of(request).unchanged.answer(request, who.database, f"days {begin // DAY} {to // DAY}", found)


def _day_item(found: "DayVersion") -> dict[str, object]:
    return {
        "day": _written(found.day),
        "version": chunk_version(found),
        "jobs": found.jobs,
        "states": found.states,
        "from": found.first,
    }


@router.get(
    "/v1/gantt/chunks/{day}",
    operation_id="gantt_chunk",
    summary="Jobs and node states that ended on a day",
    response_class=Answer,
    responses={200: {"content": {"application/octet-stream": {}}}},
)
def gantt_chunk(
    request: Request,
    day: Day,
    v: Version = None,
    since: EndedSince = 0,
) -> Answer:
    """Return the jobs and resource states that ended on a day (UTC), as columns of integers compressed with gzip."""
    who = asking(request)
    number, chunks = _day(day), service_of(request).chunks
    if since > number * DAY:
        with who.database.snapshot() as tx:
            return _packed(packed(day_chunk(tx, number, since)), {"Cache-Control": "private, no-store"})
    kept = chunks.kept(number, v) if v else None
    if kept is not None and (number + 1) * DAY <= time.time():
        return _packed(kept, {"ETag": f'W/"{v}"', "Cache-Control": _UNTOUCHED})
    with who.database.snapshot() as tx:
        found = tx.gantt_days.versions(number * DAY, (number + 1) * DAY)
        version = chunk_version(found[0]) if found else "0"
        tag = f'W/"{version}"'
        is_over = (number + 1) * DAY <= tx.now
        headers = {"ETag": tag, "Cache-Control": _UNTOUCHED if is_over and v == version else REVALIDATED}
        if tag in request.headers.get("if-none-match", ""):
            return Answer(status_code=304, headers=headers)
        body = chunks.packed(tx, number, version, is_over=is_over)
    return _packed(body, headers)


def _packed(body: bytes, headers: dict[str, str]) -> Answer:
    return Answer(body, 200, {**headers, "Content-Encoding": "gzip"}, "application/octet-stream")


@router.get("/v1/gantt/live", operation_id="gantt_live", summary="Running and planned jobs")
def gantt_live(request: Request, since: Since = None) -> Answer:
    """Return the jobs that occupy resources, the planned jobs, and the current states of resources.

    With the `cursor` of an earlier response as `since`: only new and changed jobs, the ids of jobs that are `gone`, and
    null for unchanged parts. `since` of the response is null if the response is complete.
    """
    who, service = asking(request), service_of(request)

    def whole(tx: "Transaction") -> dict[str, Any]:
        return service.moments.answer(live_record(tx), None)

    if since is None:
        return service.unchanged.answer(request, who.database, "live", whole)
    with who.database.snapshot() as tx:
        record = live_record(tx)
    return answer_unless_known(request, service.moments.answer(record, since))


@router.get("/v1/gantt/rows", operation_id="gantt_rows", summary="Rows of the Gantt diagram")
def gantt_rows(
    request: Request,
    rows: Annotated[
        str, Query(max_length=500, pattern=PRINTABLE, description="Grouping properties, outermost first.")
    ] = "",
) -> Answer:
    """Return the resources grouped by the values of some properties, in natural order, as ranges of ids."""
    who, levels = asking(request), split_list(rows) or ("network_address",)
    key = f"rows {','.join(levels)}"
    return service_of(request).unchanged.answer(request, who.database, key, lambda tx: rows_record(tx, levels))


def rows_record(tx: "Transaction", levels: tuple[str, ...]) -> dict[str, Any]:
    """Return the rows.  Raises BadRequest."""
    properties = tx.resources.columns()
    unknown = [level for level in levels if level not in properties]
    if unknown:
        raise BadRequest(f"{unknown[0]!r} is no property of resources")
    found = tx.listings.grouped(("type", *levels))
    items = [
        {"type": kind, "labels": labels, "number": len(ids), "resources": list(ranges(ids))}
        for kind, labels, ids in sorted(_labelled(found), key=lambda row: _natural(row[0], row[1]))
    ]
    named = sorted(name for name in properties if name not in SYSTEM_PROPERTIES)
    return {"levels": levels, "items": items, "properties": named}


def _labelled(found: Iterable[tuple[Sequence[Any], list[int]]]) -> Iterator[tuple[str, tuple[str, ...], list[int]]]:
    """Return resources by their type and by the values of properties as texts; no value is an empty one."""
    rows: dict[tuple[str, tuple[str, ...]], list[int]] = {}
    for (kind, *values), ids in found:
        key = kind, tuple([str(value or "") for value in values])
        rows[key] = sorted([*rows[key], *ids]) if key in rows else ids
    return ((*key, ids) for key, ids in rows.items())


def _natural(kind: str, labels: Iterable[str]) -> tuple[object, ...]:
    """Return what sorts resources as people count them: of the usual type first, n2 before n10."""
    return (
        kind != "default",
        kind,
        *map(_ranks, labels),
    )


@lru_cache(maxsize=100_000)
def _ranks(label: str) -> tuple[tuple[bool, int, str], ...]:
    """Return what sorts a label; those of a site are asked for again and again."""
    return tuple(map(_rank, re.findall(r"[0-9]{1,18}|[^0-9]+", label)))


def _rank(part: str) -> tuple[bool, int, str]:
    is_number = part.isdecimal()
    return not is_number, int(part) if is_number else 0, part


def _day(text: str) -> int:
    try:
        day = (date.fromisoformat(text) - date(1970, 1, 1)).days
    except ValueError:
        day = -1
    if not 0 <= day <= LAST_DAY:
        raise NoSuchResource(f"there is no day {text}")
    return day


def _written(day: int) -> str:
    return datetime.fromtimestamp(day * DAY, UTC).strftime("%Y-%m-%d")
