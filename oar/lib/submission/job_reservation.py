"""Reservations of single jobs (``oarsub -r start[,end]``): the dates as users write them, the scheduler's decision."""

import re
import time
from typing import TYPE_CHECKING, NamedTuple

from oar.lib.base.errors import BadRequest
from oar.lib.base.times import format_date, format_duration, local_midnight, parse_date
from oar.lib.jobs.states import JobState, Reservation
from oar.lib.submission.checks import BadSubmission, Code

if TYPE_CHECKING:
    from oar.lib.jobs.records import Job

_TIME = r"([0-9]{1,2})(?::([0-9]{1,2})(?::([0-9]{1,2}))?)?\Z"
_RELATIVE = r"\+([0-9]{1,6})(?::([0-9]{1,2})(?::([0-9]{1,2}))?)?\Z"
_UNITS = r"\+(?:([0-9]{1,4})d)?(?:([0-9]{1,5})h)?(?:([0-9]{1,7})m(?:in)?)?\Z"
#: Days that are named by how far they are from today, and those of the week, Monday first.
_NEAR_DAYS = {"yesterday": -1, "today": 0, "tomorrow": 1}
_WEEK = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_NAMED_DAY = rf"(?i)({'|'.join([*_NEAR_DAYS, *_WEEK])})(?:\s+([0-9:]+))?\Z"
_DAY = 86400


class ReservationDates(NamedTuple):
    """The dates of a reservation; ``stop`` 0 means no end, ``late`` is the number of seconds since a past start."""

    start: int
    stop: int = 0
    late: int = 0

    @property
    def walltime(self) -> int | None:
        """The duration; None without an end."""
        return self.stop - self.start if self.stop else None

    def guess(self) -> str:
        """Return the sentence of oarsub -v about the dates."""
        return (
            f"Guessed reservation start: {format_date(self.start)} end: {format_date(self.stop)}"
            f" (computed walltime: {format_duration(self.stop - self.start)})."
        )


def parse(text: str, now: int) -> ReservationDates:
    """Parse ``start[,end]`` of ``-r``; a start in the past becomes now.  Raises BadSubmission.

    A time without a date means today.  An end time that is not after the start means the next day.  A weekday as the
    end means the next such day after the start.
    """
    start_text, comma, stop_text = text.partition(",")
    start = _date(start_text, now, now, "start")
    if not comma:
        return ReservationDates(max(start, now), late=max(0, now - start))
    stop = _end(stop_text, start, now)
    if stop <= start:
        raise BadSubmission(Code.RESERVATION, "reservation end date must be after start date.")
    late = max(0, now - start)
    return ReservationDates(start + late, stop + late, late)


def parse_interval(text: str, now: int) -> tuple[int, int]:
    """Parse ``start,end`` in the formats of ``-r``; the end may be ``now``, and both may be in the past.

    Raises BadRequest.
    """
    start_text, _, stop_text = text.partition(",")
    start = _date(start_text, now, now, "start")
    stop = now if stop_text.strip() == "now" else _end(stop_text, start, now)
    if start > stop:
        raise BadRequest("the end must not be before the start")
    return start, stop


def _end(text: str, start: int, now: int) -> int:
    text = text.strip()
    if re.match(_TIME, text):
        stop = _date(text, start, start, "end")
        return stop if stop > start else _date(text, _midnight(start, 1), start, "end")
    named = re.match(_NAMED_DAY, text)
    if not named or named[1].lower() in _NEAR_DAYS:
        return _date(text, now, start, "end")
    stop = _date(text, _midnight(start, -1), start, "end")
    return stop if stop > start else _date(text, start, start, "end")


def _day_of(name: str, today: int) -> int:
    """Return midnight of a day near today, or of the next weekday with that name."""
    _, weekday = local_midnight(today)
    days = _NEAR_DAYS[name] if name in _NEAR_DAYS else (_WEEK.index(name) - weekday - 1) % 7 + 1
    return _midnight(today, days)


def _midnight(date: int, days: int) -> int:
    """Return the midnight at the beginning of the day, ``days`` days after a date; days may not have 24 hours.

    Raises BadSubmission beyond the calendar.
    """
    try:
        return int(local_midnight(date, days)[0].timestamp())
    except (OverflowError, ValueError):
        raise BadSubmission(Code.RESERVATION, f"no calendar has the days round {format_date(date)}.") from None


def _date(text: str, day: int, origin: int, which: str) -> int:
    """Return the epoch of a date, a time on the day of ``day``, ``now``, or an offset from ``origin``.

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


class Decision(NamedTuple):
    """The scheduler's decision on a reservation."""

    is_granted: bool
    reason: str = ""

    def __str__(self) -> str:
        """Return the message for users."""
        return "Reservation valid --> OK" if self.is_granted else f"Reservation not valid --> KO ({self.reason})"


def decision_on(job: "Job | None") -> Decision | None:
    """Return the decision on the reservation of a job; None if it is not decided yet."""
    if job is None:
        return Decision(False, "the job does not exist any more")
    if job.state in (JobState.TO_ERROR, JobState.ERROR):
        return Decision(False, job.scheduler_info or job.message)
    return Decision(True) if job.reservation is Reservation.SCHEDULED else None
