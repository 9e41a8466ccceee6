"""The dates of a reservation (``oarsub -r start[,end]``), in the forms in which people write them."""

import re
import time
from typing import NamedTuple

from oar.lib.facts.errors import BadRequest
from oar.lib.facts.times import format_date, format_duration, local_midnight, parse_date
from oar.lib.submission.checks import BadSubmission, Code

_TIME = r"([0-9]{1,2})(?::([0-9]{1,2})(?::([0-9]{1,2}))?)?\Z"
_RELATIVE = r"\+([0-9]{1,6})(?::([0-9]{1,2})(?::([0-9]{1,2}))?)?\Z"
_UNITS = r"\+(?:([0-9]{1,4})d)?(?:([0-9]{1,5})h)?(?:([0-9]{1,7})m(?:in)?)?\Z"
_DAYS = ("today", "tomorrow", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_NAMED_DAY = rf"(?i)({'|'.join(_DAYS)})(?:\s+([0-9:]+))?\Z"
_DAY = 86400


class ReservationDates(NamedTuple):
    """The dates of a reservation; ``stop`` 0 = no end, ``late`` = seconds by which its start was over."""

    start: int
    stop: int = 0
    late: int = 0

    @property
    def walltime(self) -> int | None:
        """Its length, None if it has no end."""
        return self.stop - self.start if self.stop else None

    def guess(self) -> str:
        """Return the sentence of oarsub -v about the dates."""
        return (
            f"Guessed reservation start: {format_date(self.start)} end: {format_date(self.stop)}"
            f" (computed walltime: {format_duration(self.stop - self.start)})."
        )


def parse(text: str, now: int) -> ReservationDates:
    """Read ``start[,end]`` of ``-r``; a start in the past is now.  Raises BadSubmission.

    A time alone is today's; an end that is a time not after the start is the next day's.
    """
    start_text, comma, stop_text = text.partition(",")
    start = _date(start_text, now, now, "start")
    if not comma:
        return ReservationDates(max(start, now), late=max(0, now - start))
    stop = _date(stop_text, start, start, "end")
    if re.match(_TIME, stop_text.strip()) and stop <= start:
        stop += _DAY
    if stop <= start:
        raise BadSubmission(Code.RESERVATION, "reservation end date must be after start date.")
    late = max(0, now - start)
    return ReservationDates(start + late, stop + late, late)


def parse_interval(text: str, now: int) -> tuple[int, int]:
    """Read two dates, ``start,end``, in the forms of ``-r``; the end may be ``now``, and both may lie in the past.

    Raises BadRequest.
    """
    start_text, _, stop_text = text.partition(",")
    start = _date(start_text, now, now, "start")
    if stop_text.strip() == "now":
        stop = now
    else:
        stop = _date(stop_text, start, start, "end")
        if re.match(_TIME, stop_text.strip()) and stop <= start:
            stop += _DAY
    if start > stop:
        raise BadRequest("the end must not be before the start")
    return start, stop


def _day_of(name: str, today: int) -> int:
    """Return midnight of today, of tomorrow, or of the next day of the week with that name."""
    _, weekday = local_midnight(today)
    ahead = _DAYS.index(name) if name in _DAYS[:2] else (_DAYS.index(name) - 2 - weekday - 1) % 7 + 1
    return int(local_midnight(today, ahead)[0].timestamp())


def _date(text: str, day: int, origin: int, which: str) -> int:
    """Return the date that a text means: a date, a time of the day of ``day``, ``now``, a distance from ``origin``.

    ``which``: start or end.  Raises BadSubmission.
    """
    text = text.strip()
    named = re.match(_NAMED_DAY, text)
    if named:
        day, text = _day_of(named[1].lower(), day), named[2] or "0"
    relative, hour = re.match(_RELATIVE, text), re.match(_TIME, text)
    units = re.match(_UNITS, text)
    try:
        if text == "now" and which == "start":
            return origin
        if units and any(units.groups()):
            days, hours, minutes = (int(part or 0) for part in units.groups())
            return origin + days * _DAY + hours * 3600 + minutes * 60
        if relative:
            hours, minutes, seconds = (int(part or 0) for part in relative.groups())
            return origin + hours * 3600 + minutes * 60 + seconds
        if hour:
            parts = ":".join(f"{int(part or 0):02}" for part in hour.groups())
            return parse_date(f"{time.strftime('%Y-%m-%d', time.localtime(day))} {parts}")
        return parse_date(text)
    except BadRequest:
        raise BadSubmission(
            Code.RESERVATION,
            f"syntax error in <{which} date> for the -r or --reservation option."
            ' It takes a date as argument with the format: "YYYY-MM-DD hh:mm:ss".'
            "\n# Or write: now, 18:30, tomorrow 8:00, friday 18:30, +2h, +1d, +1:30.",
        ) from None
