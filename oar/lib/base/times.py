"""Durations and dates as text. All times inside OAR are whole seconds; no function here reads a clock.

Durations are parsed as ``h[:m[:s]]`` and printed without padding. Dates are in the local time of the machine.
"""

import re
import time
from datetime import datetime, timedelta

from oar.lib.base.errors import BadRequest

_DURATION = re.compile(r"(\d{1,9})(?::(\d{1,9})(?::(\d{1,9}))?)?\Z", re.ASCII)
_DATE = re.compile(r"(\d{4})-(\d{1,2})-(\d{1,2})(?:(?:\s+|T)(\d{1,2}):(\d{1,2})(?::(\d{1,2}))?)?\Z", re.ASCII)


def parse_duration(text: str) -> int:
    """Return the seconds of ``h[:m[:s]]``; minutes and seconds above 59 add up.

    >>> parse_duration("1:30"), parse_duration("0:90"), parse_duration("2")
    (5400, 5400, 7200)

    Raises BadRequest.
    """
    match = _DURATION.match(text.strip())
    if not match:
        raise BadRequest(f'"{text}" is not a duration (h[:m[:s]])')
    hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return hours * 3600 + minutes * 60 + seconds


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


def parse_date(text: str) -> int:
    """Return the Unix time of ``YYYY-MM-DD[ hh:mm[:ss]]`` in local time (a date alone: its midnight).

    Raises BadRequest.
    """
    match = _DATE.match(text.strip())
    if not match:
        raise BadRequest(f'"{text}" is not a date (YYYY-MM-DD hh:mm:ss)')
    year, month, day, hour, minute, second = (int(part or 0) for part in match.groups())
    try:
        return int(datetime(year, month, day, hour, minute, second).timestamp())
    except (ValueError, OverflowError, OSError):
        raise BadRequest(f'"{text}" is not a date (no calendar has it)') from None


def local_midnight(date: int, days: int = 0) -> tuple[datetime, int]:
    """Return midnight of the day that is ``days`` days after a date, and its day of the week (Monday is 0)."""
    day = datetime.fromtimestamp(date).replace(hour=0, minute=0, second=0, microsecond=0) + timedelta(days=days)
    return day, day.weekday()


def local_minute(midnight: datetime, minute: int) -> int:
    """Return the Unix time of a minute of a day in local time. Minutes from 1440 on are on the next day."""
    days, minute_of_day = divmod(minute, 1440)
    shown = midnight + timedelta(days=days)
    return int(shown.replace(hour=minute_of_day // 60, minute=minute_of_day % 60).timestamp())
