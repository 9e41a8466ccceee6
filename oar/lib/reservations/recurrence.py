"""Recurrence rules of advance reservations (RFC 5545): parse a rule strictly, and compute its dates.

The dates keep the wall-clock time of a zone when summer time begins and ends.  A local time that does not exist moves
forward; a local time that occurs twice means the first.

See docs/design/reservations.rst, "Series".
"""

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from oar.lib.base.errors import BadRequest
from oar.lib.reservations.records import MAX_OCCURRENCES

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo

#: The beginning of a time zone that is described.
_DESCRIPTION = re.compile(r"([A-Za-z]{3,}|<[A-Za-z0-9+-]{3,}>)[+-]?\d", re.ASCII)

LONGEST_RULE = 1000

_DAY = r"[+-]?[1-5]?(MO|TU|WE|TH|FR|SA|SU)"
_MONTH_DAY = r"[+-]?([1-9]|[12]\d|3[01])"
_HOUR = r"([01]?\d|2[0-3])"


def _list_of(pattern: str) -> "re.Pattern[str]":
    return re.compile(f"{pattern}(,{pattern})*", re.ASCII)


#: What each part of a rule may be.
_PARTS: Mapping[str, "re.Pattern[str]"] = {
    "FREQ": re.compile("HOURLY|DAILY|WEEKLY|MONTHLY"),
    "INTERVAL": re.compile(r"[1-9]\d{0,3}", re.ASCII),
    "BYDAY": _list_of(_DAY),
    "BYMONTHDAY": _list_of(_MONTH_DAY),
    "BYHOUR": _list_of(_HOUR),
    "WKST": re.compile("MO|TU|WE|TH|FR|SA|SU"),
    "COUNT": re.compile(r"[1-9]\d{0,3}", re.ASCII),
    "UNTIL": re.compile(r"\d{8}(T\d{6}Z?)?", re.ASCII),
}
#: The same, in words.
_FORMS: Mapping[str, str] = {
    "FREQ": "HOURLY, DAILY, WEEKLY or MONTHLY",
    "INTERVAL": "a number from 1 to 9999",
    "BYDAY": "days with commas, as MO,TH, with MONTHLY also 1MO or -1FR",
    "BYMONTHDAY": "days of the month with commas, as 1,15,-1",
    "BYHOUR": "hours with commas, as 8,14",
    "WKST": "a day, as SU",
    "COUNT": f"a number from 1 to {MAX_OCCURRENCES}",
    "UNTIL": "a date, as 20270131 or 20270131T180000",
}
#: The library looks for dates until the year 9999.  The calendar is the same every 400 years, so a rule that gives no
#: date, or very rare ones, is evaluated in the last of them: the search is short, whatever the rule.
_CYCLE, _LAST_YEAR = 400, 9999


class RecurrenceRule(NamedTuple):
    """A parsed rule."""

    pattern: str  #: without its end
    longest: int  #: it gives so many dates at most; 0 = there is no such end
    until: str  #: '' = no such end


def parse(text: str) -> RecurrenceRule:
    """Parse a rule.  Raises BadRequest."""
    parts = _parts(text)
    if "FREQ" not in parts:
        raise BadRequest("FREQ is missing")
    if "COUNT" in parts and "UNTIL" in parts:
        raise BadRequest("COUNT and UNTIL exclude each other")
    if parts["FREQ"] == "WEEKLY" and "BYMONTHDAY" in parts:
        raise BadRequest("BYMONTHDAY cannot be used with FREQ=WEEKLY")
    if parts["FREQ"] != "MONTHLY" and re.search(r"\d", parts.get("BYDAY", "")):
        raise BadRequest("a number in BYDAY needs FREQ=MONTHLY")
    until = parts.pop("UNTIL", "")
    if until:
        _read_until(until)
    count = int(parts.pop("COUNT", "0"))
    if count > MAX_OCCURRENCES:
        raise BadRequest(f"a series has at most {MAX_OCCURRENCES} occurrences")
    return RecurrenceRule(";".join(f"{name}={value}" for name, value in parts.items()), count, until)


def _parts(text: str) -> dict[str, str]:
    if len(text) > LONGEST_RULE:
        raise BadRequest(f"it is longer than {LONGEST_RULE} characters")
    parts: dict[str, str] = {}
    for part in text.strip().upper().removeprefix("RRULE:").rstrip(";").split(";"):
        name, _, value = part.partition("=")
        if name not in _PARTS:
            raise BadRequest(f"unknown part {name or '(empty)'}: use {', '.join(_PARTS)}")
        if name in parts:
            raise BadRequest(f"{name} is given twice")
        if not _PARTS[name].fullmatch(value):
            raise BadRequest(f"{name} cannot be {value}: write {_FORMS[name]}")
        parts[name] = value
    return parts


def _read_until(text: str) -> datetime:
    """Return the last instant of a rule, in the time zone of the text.  Raises BadRequest."""
    form = "%Y%m%dT%H%M%S" if "T" in text else "%Y%m%d"
    try:
        until = datetime.strptime(text.rstrip("Z"), form)
    except ValueError:
        raise BadRequest(f"UNTIL cannot be {text}") from None
    return until if "T" in text else until.replace(hour=23, minute=59, second=59)


def dates(text: str, first: int, zone: str) -> Iterator[int]:
    """Iterate over the dates of a rule from ``first``, in ascending order, at most ``MAX_OCCURRENCES``.

    ``zone``: name of the zone whose wall-clock time is kept; '' means the zone of this machine.  Raises BadRequest,
    also if this machine does not know the zone.
    """
    rule, clock = parse(text), WallClock(zone)
    last = clock.until(rule.until) if rule.until else None
    for date in islice(_dates(rule.pattern, first, clock), rule.longest or MAX_OCCURRENCES):
        if last is not None and date > last:
            return
        yield date


def _dates(pattern: str, first: int, clock: "WallClock") -> Iterator[int]:
    """Iterate over all dates of a pattern; local times that are the same instant give one date."""
    from dateutil.rrule import rrulestr

    try:
        begin, latest = clock.read(first), first - 1
        years = (_LAST_YEAR - begin.year) // _CYCLE * _CYCLE
        moments = rrulestr(pattern, dtstart=begin.replace(year=begin.year + years))
    except (ValueError, OverflowError, OSError):
        raise BadRequest("it matches no date") from None
    for moment in _within_the_calendar(moments):
        local = moment.replace(year=moment.year - years)
        date = first if local == begin else clock.write(local)
        if date > latest:
            latest = date
            yield date


def _within_the_calendar(moments: Iterable[datetime]) -> Iterator[datetime]:
    """Iterate over dates up to the last year; stop when the library exceeds it and raises ValueError."""
    try:
        yield from moments
    except ValueError:
        return


def local_zone() -> str:
    """Return the name of the local time zone; '' if it has none."""
    text = os.environ.get("TZ")
    name = "UTC" if text == "" else (text or "").removeprefix(":")  # an empty TZ means UTC
    if not name or name.startswith("/"):
        name = os.path.realpath(name or "/etc/localtime").partition("/zoneinfo/")[2]
    try:
        return _zone(name).key if name else ""
    except BadRequest:
        return ""


def unknown_zone() -> str:
    """Return TZ if it neither names nor describes a time zone; the C library then uses UTC.  Return '' otherwise.

    A description has the POSIX format, for example ``CET-1CEST``.
    """
    text = os.environ.get("TZ") or ""
    name = text.removeprefix(":")
    is_known = local_zone() or _DESCRIPTION.match(name) or (name.startswith("/") and os.path.exists(name))
    return "" if not name or is_known else text


def lasting_zone() -> str:
    """Return the name of the zone of a new series; '' means the zone of this machine, which has no name.

    Raises BadRequest if TZ describes a zone instead of naming it: the server would continue the series in another zone.
    """
    zone, text = local_zone(), os.environ.get("TZ")
    if text and not zone:
        raise BadRequest(f'the time zone TZ="{text}" has no name')
    return zone


class WallClock:
    """Local time of a zone."""

    def __init__(self, zone: str) -> None:
        """``zone``: its name; '' means the zone of this machine.  Raises BadRequest if the zone is unknown."""
        self._zone = _zone(zone) if zone else None

    def read(self, date: int) -> datetime:
        """Return the local time at a date."""
        return datetime.fromtimestamp(date, self._zone).replace(tzinfo=None, fold=0)

    def write(self, local: datetime) -> int:
        """Return the first date with this local time; move a skipped local time forward by the length of the gap."""
        return round(local.replace(tzinfo=self._zone, fold=0).timestamp())

    def until(self, text: str) -> int:
        local = _read_until(text)
        if not text.endswith("Z"):
            return self.write(local)
        from datetime import UTC

        return round(local.replace(tzinfo=UTC).timestamp())


def _zone(name: str) -> "ZoneInfo":
    """Return a zone.  Raises BadRequest if this machine does not have its zone file."""
    from zoneinfo import ZoneInfo

    try:
        return ZoneInfo(name)
    except (ValueError, LookupError, OSError):
        raise BadRequest(f'this machine has no time zone "{name}"') from None
