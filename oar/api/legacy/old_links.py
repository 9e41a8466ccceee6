"""Links of Monika and DrawGantt, which people have in mails and bookmarks: where the pages show the same."""

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from urllib.parse import quote, urlencode

_DAY = 86400
#: Lengths of time as the first DrawGantt wrote them in its addresses.
_RANGES = {
    "1/6 day": _DAY // 6,
    "1/2 day": _DAY // 2,
    "1 day": _DAY,
    "3 days": 3 * _DAY,
    "week": 7 * _DAY,
    "month": 31 * _DAY,
}
_NODE, _NODES = "network_address", frozenset({"network_address", "host"})
#: The name of a property.
_NAME = re.compile(r"[a-z_][a-z0-9_]{0,62}")
#: A filter of DrawGantt that can be had here: one value of one property, or how it begins.
_FILTER = re.compile(rf"\s*(?:resources\.)?({_NAME.pattern})\s*(?:=|like)\s*'([^'%]+)%?'\s*", re.IGNORECASE)
#: The filter that most sites had by default: all nodes.
_EVERYTHING = ("type", "default")
#: The latest date that the diagram knows.
_LATEST = 2**32 - 1


def monika_place(asked: Mapping[str, str], props: Sequence[str] = ()) -> str:
    """Return the page that shows what a link of Monika did, from where Monika was; ``props``: ``NAME=VALUE`` each."""
    kind = next((kind for kind in ("job", "node") if asked.get(kind)), None)
    return (
        f"{kind}s/{quote(asked[kind], safe='')}"
        if kind
        else f"nodes?{urlencode([('props', each) for each in props])}".rstrip("?")
    )


def drawgantt_place(asked: Mapping[str, str], now: int) -> str:
    """Return the view of the diagram that a link of DrawGantt, of either generation, showed."""
    begin, end = _period(asked, now)
    values = _rows(asked)
    if begin is not None and end is not None and 0 <= begin < end <= _LATEST:
        values |= {"from": str(begin), "to": str(end)}
    return f"gantt?{urlencode(values)}" if values else "gantt"


def _rows(asked: Mapping[str, str]) -> dict[str, str]:
    """Return by what there are rows, and which ones; nothing for what is usual."""
    name, word = _filter(asked.get("filter", ""))
    base = asked.get("resource_base", "")
    levels = dict.fromkeys((*([] if name in _NODES else [name]), _NODE, *([base] if _NAME.fullmatch(base) else [])))
    values = {"rows": ",".join(filter(None, levels)), "node": word}
    return {key: value for key, value in values.items() if value not in ("", _NODE)}


def _filter(condition: str) -> tuple[str, str]:
    """Return the property and the value that a filter asks for; '' and '' for another one, and for all nodes."""
    found = _FILTER.fullmatch(condition)
    chosen = (found[1].lower(), found[2]) if found else ("", "")
    return ("", "") if chosen == _EVERYTHING else chosen


def _period(asked: Mapping[str, str], now: int) -> tuple[int | None, int | None]:
    if asked.get("year"):
        begin = _first_generation(asked)
        return begin, None if begin is None else begin + _RANGES.get(asked.get("range", ""), _DAY)
    begin = _date(asked, "start", "relative_start", now)
    end = _date(asked, "stop", "relative_stop", now)
    span = _number(asked.get("timespan", ""))
    if begin is not None and end is None and span:
        end = begin + span
    return begin, end


def _date(asked: Mapping[str, str], name: str, relative_name: str, now: int) -> int | None:
    """Return a date that is given in epoch seconds, or in seconds from now on."""
    found = _number(asked.get(name, ""))
    relative = _number(asked.get(relative_name, ""))
    return found if found or relative is None else now + relative


def _first_generation(asked: Mapping[str, str]) -> int | None:
    """Return the date that is written as a year, a month such as ``Nov`` or ``11``, a day, an hour, local time."""
    words = [asked.get(name) or usual for name, usual in (("year", ""), ("month", "1"), ("day", "1"), ("hour", "0"))]
    text = " ".join(words)
    for form in ("%Y %m %d %H", "%Y %b %d %H", "%Y %m %d %H:%M", "%Y %b %d %H:%M"):
        try:
            return int(datetime.strptime(text, form).astimezone().timestamp())
        except (ValueError, OverflowError):
            continue
    return None


def _number(text: str) -> int | None:
    return int(text) if re.fullmatch(r"[+-]?[0-9]{1,12}", text) else None
