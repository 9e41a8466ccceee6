"""The addresses of Monika and DrawGantt, which lead to the pages of OAR with the same content."""

import re
import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from http import HTTPStatus
from urllib.parse import quote, urlencode

from starlette.requests import Request
from starlette.responses import Response

from oar.api.authentication import outer_path
from oar.api.responses import Answer
from oar.api.routing import Router
from oar.api.service import service_of

_DAY = 86400
#: Values of ``range`` in addresses of the first DrawGantt, in seconds.
_RANGES = {
    "1/6 day": _DAY // 6,
    "1/2 day": _DAY // 2,
    "1 day": _DAY,
    "3 days": 3 * _DAY,
    "week": 7 * _DAY,
    "month": 31 * _DAY,
}
_PROPERTY = re.compile(r"[a-z_][a-z0-9_]{0,62}")
#: A filter of DrawGantt that our page supports: one value of a property, or its beginning.
_FILTER = re.compile(rf"\s*(?:resources\.)?({_PROPERTY.pattern})\s*(?:=|like)\s*'([^'%]+)%?'\s*", re.IGNORECASE)
#: The default filter of most sites: all nodes.
_ALL_NODES = ("type", "default")
#: The latest date of the diagram.
_MAX_DATE = 2**32 - 1


def monika_place(parameters: Mapping[str, str], props: Sequence[str] = ()) -> str:
    """Return the page for a link of Monika; ``props``: conditions ``NAME=VALUE``."""
    for kind in ("job", "node"):
        if parameters.get(kind):
            return f"{kind}s/{quote(parameters[kind], safe='')}"
    return f"nodes?{urlencode([('props', condition) for condition in props])}".rstrip("?")


def drawgantt_place(parameters: Mapping[str, str], now: int) -> str:
    """Return the view of the diagram for a link of DrawGantt, of both generations."""
    begin, end = _period(parameters, now)
    values = _rows(parameters)
    if begin is not None and end is not None and 0 <= begin < end <= _MAX_DATE:
        values |= {"from": str(begin), "to": str(end)}
    return f"gantt?{urlencode(values)}" if values else "gantt"


def _rows(parameters: Mapping[str, str]) -> dict[str, str]:
    """Return the parameters that select the rows, without default values."""
    found = _FILTER.fullmatch(parameters.get("filter", ""))
    name, value = (found[1].lower(), found[2]) if found else ("", "")
    if (name, value) == _ALL_NODES:
        name, value = "", ""
    base = parameters.get("resource_base", "")
    levels = [
        "" if name == "host" else name,
        "network_address",
        base if _PROPERTY.fullmatch(base) else "",
    ]
    values = {"rows": ",".join(dict.fromkeys(filter(None, levels))), "node": value}
    return {key: text for key, text in values.items() if text not in ("", "network_address")}


def _period(parameters: Mapping[str, str], now: int) -> tuple[int | None, int | None]:
    if parameters.get("year"):
        begin = _first_generation_begin(parameters)
        return begin, None if begin is None else begin + _RANGES.get(parameters.get("range", ""), _DAY)
    begin = _date(parameters, "start", "relative_start", now)
    end = _date(parameters, "stop", "relative_stop", now)
    span = _number(parameters.get("timespan", ""))
    if begin is not None and end is None and span:
        end = begin + span
    return begin, end


def _date(parameters: Mapping[str, str], name: str, relative_name: str, now: int) -> int | None:
    date, relative = _number(parameters.get(name, "")), _number(parameters.get(relative_name, ""))
    return date if date or relative is None else now + relative


def _first_generation_begin(parameters: Mapping[str, str]) -> int | None:
    """Return the date given by year, month (``Nov`` or ``11``), day and hour, in local time."""
    defaults = {"year": "", "month": "1", "day": "1", "hour": "0"}
    text = " ".join(parameters.get(name) or default for name, default in defaults.items())
    for form in ("%Y %m %d %H", "%Y %b %d %H", "%Y %m %d %H:%M", "%Y %b %d %H:%M"):
        try:
            return int(datetime.strptime(text, form).astimezone().timestamp())
        except (ValueError, OverflowError):
            continue
    return None


def _number(text: str) -> int | None:
    return int(text) if re.fullmatch(r"[+-]?[0-9]{1,12}", text) else None


router = Router()

#: Where Monika was: as Debian has it, as a program by its name, below our own pages.
MONIKA = ("/monika", "/monika.cgi", "/cgi-bin/monika.cgi", "/ui/monika", "/ui/monika.cgi")
#: Where DrawGantt was, of both generations.
DRAWGANTT = (
    *(f"/drawgantt{form}{page}" for form in ("", "-svg") for page in ("", "/index.php", "/drawgantt.php")),
    *("/drawgantt/drawgantt-svg.php", "/drawgantt-svg/drawgantt-svg.php"),
    *("/drawgantt.cgi", "/drawgantt.php", "/cgi-bin/drawgantt.cgi"),
    *("/ui/drawgantt", "/ui/drawgantt.php", "/ui/drawgantt.cgi", "/ui/drawgantt-svg.php"),
)


def monika(request: Request) -> Answer:
    """Lead links of Monika to the pages that show the same."""
    return _moved(
        request, monika_place(request.query_params, request.query_params.getlist("props")), HTTPStatus.MOVED_PERMANENTLY
    )


def drawgantt(request: Request) -> Answer:
    """Lead links of DrawGantt to the view that they showed."""
    return _moved(request, drawgantt_place(request.query_params, int(time.time())), HTTPStatus.FOUND)


for _path in MONIKA:
    router.get(_path)(monika)
for _path in DRAWGANTT:
    router.get(_path)(drawgantt)


def _moved(request: Request, page: str, status: HTTPStatus) -> Answer:
    """Lead to one of our pages: below the prefix that is known, else from the address of the request on."""
    prefix = outer_path(request, service_of(request).runtime.config)
    above = f"{prefix}/" if prefix else "../" * (request.scope["raw_path"].count(b"/") - 1)
    return Response(status_code=status, headers={"Location": f"{above}ui/{page}"})
