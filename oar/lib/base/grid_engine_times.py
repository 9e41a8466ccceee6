"""Parse and format dates and durations of the reservation commands: the formats of Grid Engine, and others.

Dates are in the local time of this machine.  A plain number means seconds, never hours as in OAR's own durations.
"""

import re
import time
from datetime import datetime

from oar.lib.base.errors import BadRequest
from oar.lib.base.times import parse_date

#: A date without a year that lies further back than this belongs to the next year.
LONGEST_PAST = 180 * 86400

#: Two-digit years from here on are of the last century.
FIRST_YEAR = 69

_GRID_ENGINE = re.compile(r"(?:(?P<century>\d\d)?(?P<year>\d\d))?(?P<rest>\d{8})(?:\.(?P<second>\d\d))?", re.ASCII)
_CLOCK = re.compile(r"(?=.*\d)(\d{0,7}):([0-5]?\d|):([0-5]?\d|)", re.ASCII)  # a zero may be omitted: 1::30
_SECONDS = re.compile(r"\d{1,10}", re.ASCII)
_EPOCH = re.compile(r"@(\d{1,12})", re.ASCII)
_UNITS = re.compile(r"(?:(\d{1,5})d)?(?:(\d{1,6})h)?(?:(\d{1,7})m)?(?:(\d{1,9})s)?", re.ASCII)
_UNIT_SECONDS = (86400, 3600, 60, 1)


class NoSuchDay(BadRequest):
    """The format of a date is correct, but the day or time does not exist."""

    def __init__(self, year: int, text: str) -> None:
        super().__init__(f'{year} has no such day or time: "{text}"')
        self.year = year


def read_date(text: str, now: int) -> int:
    """Return the epoch of ``[[CC]YY]MMDDhhmm[.SS]``, ``YYYY-MM-DD hh:mm[:ss]``, ``now``, ``+<duration>``, ``@<epoch>``.

    If a local time occurs twice, the first occurrence is meant.  Raises BadRequest.
    """
    if text == "now":
        return now
    if match := _EPOCH.fullmatch(text):
        return int(match[1])
    if text.startswith("+"):
        return now + read_duration(text[1:])
    if "-" in text:
        return parse_date(text)
    match = _GRID_ENGINE.fullmatch(text)
    if not match:
        raise BadRequest(f'"{text}" is not a date')
    rest = match["rest"]
    parts = [int(rest[place : place + 2]) for place in (0, 2, 4, 6)] + [int(match["second"] or 0)]
    if match["year"]:
        year = int(match["year"])
        century = int(match["century"]) if match["century"] else 19 if year >= FIRST_YEAR else 20
        return _epoch(text, 100 * century + year, *parts)
    this_year = time.localtime(now).tm_year
    date = _epoch(text, this_year, *parts)
    return date if date >= now - LONGEST_PAST else _epoch(text, this_year + 1, *parts)


def _epoch(text: str, *fields: int) -> int:
    """Return the epoch of a local date.  Raises NoSuchDay if the day or time does not exist."""
    year, month, day, hour, minute, second = fields
    if not (1 <= month <= 12 and 1 <= day <= 31 and hour <= 23 and minute <= 59 and second <= 59):
        raise NoSuchDay(year, text)
    try:
        date = int(datetime(year, month, day, hour, minute, second).timestamp())
    except (OverflowError, ValueError):  # 31 April
        raise NoSuchDay(year, text) from None
    if time.localtime(date).tm_mday != day:
        raise NoSuchDay(year, text)
    return date


def read_duration(text: str) -> int:
    """Return the seconds of ``3600``, ``1:00:00``, ``1::``, ``60m``, ``2h`` or ``1d12h``.  Raises BadRequest."""
    if _SECONDS.fullmatch(text):
        return int(text)
    if match := _CLOCK.fullmatch(text):
        hours, minutes, seconds = (int(digits or 0) for digits in match.groups())
        return 3600 * hours + 60 * minutes + seconds
    match = _UNITS.fullmatch(text)
    if not match or not text:
        raise BadRequest(f'"{text}" is not a duration')
    return sum(int(value or 0) * seconds for value, seconds in zip(match.groups(), _UNIT_SECONDS, strict=True))


def write_date(date: int) -> str:
    """Return a date as ``12/14/2006 14:47:23``."""
    return time.strftime("%m/%d/%Y %H:%M:%S", time.localtime(date))


def write_option_date(date: int) -> str:
    """Return a date in the format of option ``-a``: ``200612141447.23``.

    Return ``@<epoch>`` for the second occurrence of a local time that occurs twice.
    """
    text = time.strftime("%Y%m%d%H%M.%S", time.localtime(date))
    return text if read_date(text, date) == date else f"@{date}"


def write_long_date(date: int) -> str:
    """Return a date as ``Mon Nov 27 17:11:34 2006``."""
    return time.ctime(date)
