"""Durations and dates as text. All times inside OAR are whole seconds; no function here reads a clock.

All commands parse durations and dates here. Durations are printed without padding. Dates are in the local time of the
machine.
"""

import re
import time
from datetime import datetime, timedelta

from oar.lib.base.errors import BadRequest

HOUR, DAY = 3600, 86400

#: Later than every date.
FOREVER = 2**62

#: A part that is zero may be omitted, but not its colon.
_CLOCK = r"(?a)(?=.*\d)(\d{0,10})(?::(\d{0,9})(?::(\d{0,9}))?)?"
_UNITS = r"(?ai)(?=\d)(?:(\d{1,5})w)?(?:(\d{1,6})d)?(?:(\d{1,7})h)?(?:(\d{1,9})m(?:in)?)?(?:(\d{1,10})s)?"
_UNIT_SECONDS = (7 * DAY, DAY, HOUR, 60, 1)
_DATE = r"(?a)(\d{4})-(\d{1,2})-(\d{1,2})(?:(?:\s+|T)(\d{1,2}):(\d{1,2})(?::(\d{1,2}))?)?"
_EPOCH = r"(?a)@(\d{1,12})"
_TIME = r"(?a)(\d{1,2})(?::(\d{1,2})(?::(\d{1,2}))?)?"
#: A date of Grid Engine.
_DIGITS = r"(?a)(?:(?P<century>\d\d)?(?P<year>\d\d))?(?P<rest>\d{8})(?:\.(?P<second>\d\d))?"
#: Days that are named by their distance from today, and weekdays, Monday first.
_NEAR_DAYS = {"yesterday": -1, "today": 0, "tomorrow": 1}
_WEEK = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_NAMED_DAY = rf"(?ai)({'|'.join([*_NEAR_DAYS, *_WEEK])})(?:\s+([0-9:]+))?"

#: A date without a year that is further in the past than this belongs to the next year.
LONGEST_PAST = 180 * DAY
#: Two-digit years from here on are of the last century.
FIRST_YEAR = 69

DURATION_FORMS = "h[:m[:s]], 90m or 1d12h"
DATE_FORMS = "YYYY-MM-DD hh:mm:ss, 18:30, tomorrow 8:00, friday, now, +2h, or 1d (a day ago)"


class NoSuchDay(BadRequest):
    """The format of a date is correct, but the day or time does not exist."""

    def __init__(self, year: int, text: str) -> None:
        super().__init__(f'"{text}" is not a date (no calendar has it)')
        self.year = year


def parse_duration(text: str, unit: int = HOUR) -> int:
    """Return the seconds of ``h[:m[:s]]`` or of a text with units; minutes and seconds above 59 add up.

    ``unit``: seconds of a plain number; Grid Engine counts seconds.

    >>> parse_duration("1:30"), parse_duration("0:90"), parse_duration("2"), parse_duration("1d12h")
    (5400, 5400, 7200, 129600)

    Raises BadRequest.
    """
    written = text.strip()
    if match := re.fullmatch(_UNITS, written):
        return sum(int(value or 0) * seconds for value, seconds in zip(match.groups(), _UNIT_SECONDS, strict=True))
    match = re.fullmatch(_CLOCK, written)
    if not match:
        raise BadRequest(f'"{text}" is not a duration: use {DURATION_FORMS}')
    hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return hours * (HOUR if ":" in written else unit) + minutes * 60 + seconds


def is_age(text: str) -> bool:
    """Return whether a text is a duration with units and without a sign: as a date, it is that long ago."""
    return bool(re.fullmatch(_UNITS, text.strip()))


def format_duration(seconds: int) -> str:
    """Return ``h:m:s`` without padding.

    >>> format_duration(3600), format_duration(45909)
    ('1:0:0', '12:45:9')
    """
    sign = "-" if seconds < 0 else ""
    minutes, seconds_left = divmod(abs(seconds), 60)
    return f"{sign}{minutes // 60}:{minutes % 60}:{seconds_left}"


def format_signed_duration(seconds: int) -> str:
    """Return ``+h:m:s`` or ``-h:m:s``, zero as ``0:0:0`` (oarwalltime)."""
    return ("+" if seconds > 0 else "") + format_duration(seconds)


def seconds_of(number: float, whole: int) -> int:
    """Return the seconds of a value of oar.conf. A number between 0 and 1 is a fraction of ``whole``.

    >>> seconds_of(0.5, 7200), seconds_of(600.0, 7200)
    (3600, 600)
    """
    return int(number * whole) if 0 < number < 1 else int(number)


def format_padded_duration(seconds: int) -> str:
    """Return ``h:mm:ss`` (layout 2 of oarstat).

    >>> format_padded_duration(3909)
    '1:05:09'
    """
    minutes, seconds_left = divmod(max(0, seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{seconds_left:02}"


def format_date(date: int) -> str:
    """Return ``YYYY-MM-DD hh:mm:ss`` in local time, '' for 0 (no date)."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(date)) if date else ""


def zone_offset(date: int) -> str:
    """Return the offset of local time from UTC at a date, in the ISO 8601 format: ``+01:00``."""
    minutes = time.localtime(date).tm_gmtoff // 60
    sign = "-" if minutes < 0 else "+"
    return f"{sign}{abs(minutes) // 60:02d}:{abs(minutes) % 60:02d}"


def parse_date(text: str, now: int | None = None, *, unit: int = HOUR, is_past: bool = False) -> int:
    """Return the Unix time of a date in local time.

    Without ``now`` only a complete date is accepted: ``YYYY-MM-DD[ hh:mm[:ss]]`` (a date alone: its midnight), or
    ``@`` and a Unix time. ``unit``: seconds of a plain number behind ``+`` or ``-``. ``is_past``: a weekday is the last
    one, not the next one. Raises BadRequest.
    """
    return parse_date_near(text, now, now, unit=unit, is_past=is_past)


def parse_date_near(text: str, day: int | None, origin: int | None, *, unit: int = HOUR, is_past: bool = False) -> int:
    """Return the Unix time of a date relative to others.

    ``day``: a date in the day of a time without a date. ``origin``: ``now``, and the date that durations are added to.
    See ``parse_date``. Raises BadRequest.
    """
    written = text.strip()
    if match := re.fullmatch(_EPOCH, written):
        return int(match[1])
    if match := re.fullmatch(_DATE, written):
        return _local_date(text, *(int(part or 0) for part in match.groups()))
    if day is not None and origin is not None:
        date = _relative_date(written, origin, unit)
        date = _day_time(written, day, is_past=is_past) if date is None else date
        date = _grid_engine_date(written, origin, unit) if date is None else date
        if date is not None:
            return date
        raise BadRequest(f'"{text}" is not a date: use {DATE_FORMS}')
    raise BadRequest(f'"{text}" is not a date (YYYY-MM-DD hh:mm:ss)')


def _relative_date(text: str, origin: int, unit: int) -> int | None:
    """Return the Unix time of ``now``, ``+<duration>``, ``-<duration>`` or an age; None for another text."""
    offset = text[3:].strip() if text[:3].lower() == "now" else text
    if text and not offset:
        return origin
    try:
        if offset[:1] in ("+", "-"):
            seconds = parse_duration(offset[1:], unit)
            return origin + seconds if offset[0] == "+" else origin - seconds
        return origin - parse_duration(offset) if is_age(text) else None
    except BadRequest:
        return None


def _day_time(text: str, day: int, *, is_past: bool) -> int | None:
    """Return the Unix time of a time, a named day, or both; None for another text."""
    named = re.fullmatch(_NAMED_DAY, text)
    if named:
        day, text = _named_day(named[1].lower(), day, is_past=is_past), named[2] or "0"
    match = re.fullmatch(_TIME, text)
    if not match:
        return None
    here = time.localtime(day)
    return _local_date(text, here.tm_year, here.tm_mon, here.tm_mday, *(int(part or 0) for part in match.groups()))


def _named_day(name: str, today: int, *, is_past: bool) -> int:
    """Return midnight of a day near today, or of the next or last weekday with that name."""
    try:
        _, weekday = local_midnight(today)
        days = _NEAR_DAYS[name] if name in _NEAR_DAYS else (_WEEK.index(name) - weekday - 1) % 7 + 1
        days -= 7 if is_past and name not in _NEAR_DAYS else 0
        return int(local_midnight(today, days)[0].timestamp())
    except (OverflowError, ValueError):
        raise BadRequest(f'"{name}" is not a date near {format_date(today)} (no calendar has it)') from None


def is_time_of_day(text: str) -> bool:
    """Return whether a text is a time without a date."""
    return bool(re.fullmatch(_TIME, text.strip()))


def is_weekday(text: str) -> bool:
    """Return whether a text is a weekday, perhaps with a time."""
    named = re.fullmatch(_NAMED_DAY, text.strip())
    return bool(named and named[1].lower() in _WEEK)


def _grid_engine_date(text: str, now: int, unit: int) -> int | None:
    """Return the Unix time of ``[[CC]YY]MMDDhhmm[.SS]``, None for another text. Raises NoSuchDay.

    Only the reservation commands, which count seconds, accept ``YYMMDDhhmm``: ten digits look like a Unix time.
    """
    match = re.fullmatch(_DIGITS, text)
    if not match or (unit != 1 and match["year"] and not match["century"]):
        return None
    rest = match["rest"]
    parts = [int(rest[place : place + 2]) for place in (0, 2, 4, 6)] + [int(match["second"] or 0)]
    if match["year"]:
        year = int(match["year"])
        century = int(match["century"]) if match["century"] else 19 if year >= FIRST_YEAR else 20
        return _local_date(text, 100 * century + year, *parts)
    this_year = time.localtime(now).tm_year
    date = _local_date(text, this_year, *parts)
    return date if date >= now - LONGEST_PAST else _local_date(text, this_year + 1, *parts)


def _local_date(text: str, *fields: int) -> int:
    """Return the Unix time of year, month, day, hour, minute, second; the first one if it occurs twice.

    Raises NoSuchDay if the day or time does not exist.
    """
    year, month, day, hour, minute, second = fields
    try:
        return int(datetime(year, month, day, hour, minute, second).timestamp())
    except (ValueError, OverflowError, OSError):
        raise NoSuchDay(year, text) from None


def local_midnight(date: int, days: int = 0) -> tuple[datetime, int]:
    """Return midnight of the day that is ``days`` days after a date, and its day of the week (Monday is 0)."""
    day = datetime.fromtimestamp(date).replace(hour=0, minute=0, second=0, microsecond=0) + timedelta(days=days)
    return day, day.weekday()


def local_minute(midnight: datetime, minute: int) -> int:
    """Return the Unix time of a minute of a day in local time. Minutes from 1440 on are on the next day."""
    days, minute_of_day = divmod(minute, 1440)
    shown = midnight + timedelta(days=days)
    return int(shown.replace(hour=minute_of_day // 60, minute=minute_of_day % 60).timestamp())
