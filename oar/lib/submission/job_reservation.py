"""Reservations of single jobs (``oarsub -r start[,end]``): the dates as users write them, the scheduler's decision."""

from typing import TYPE_CHECKING, NamedTuple

from oar.lib.base.errors import BadRequest
from oar.lib.base.times import (
    DAY,
    LONGEST_PAST,
    format_date,
    format_duration,
    is_age,
    is_time_of_day,
    is_weekday,
    local_midnight,
    parse_date_near,
)
from oar.lib.jobs.states import JobState, Reservation
from oar.lib.submission.checks import BadSubmission, Code, quote

if TYPE_CHECKING:
    from oar.lib.jobs.records import Job


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
    if is_age(start_text):
        way_out = f"{start_text.strip()} from now is +{start_text.strip()}."
        raise BadSubmission(Code.RESERVATION, f"the start {start_text.strip()} is in the past: {way_out}")
    start = _date(start_text, now, now, "start")
    if start < now - LONGEST_PAST:
        raise BadSubmission(Code.RESERVATION, f"the start {format_date(start)} is in the past: check the year.")
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
    """Return the end: a time or a weekday means the first one after the start. Raises BadSubmission."""
    if is_time_of_day(text):
        stop = _date(text, start, start, "end")
        return stop if stop > start else _date(text, _next_midnight(start), start, "end")
    if not is_weekday(text):
        return _date(text, now, start, "end")
    stop = _date(text, start - DAY, start, "end")
    return stop if stop > start else _date(text, start, start, "end")


def _next_midnight(date: int) -> int:
    """Return the end of a day, which may not have 24 hours. Raises BadSubmission beyond the calendar."""
    try:
        return int(local_midnight(date, 1)[0].timestamp())
    except (OverflowError, ValueError):
        raise BadSubmission(Code.RESERVATION, f"no calendar has the day after {format_date(date)}.") from None


def _date(text: str, day: int, origin: int, which: str) -> int:
    """Return the Unix time of a date; ``which``: start or end. Raises BadSubmission.

    ``day``: in the day of a time; ``origin``: what durations are added to.
    """
    try:
        if which == "start" or text.strip().lower() != "now":
            return parse_date_near(text, day, origin)
    except BadRequest:
        pass
    raise BadSubmission(
        Code.RESERVATION,
        f"syntax error in <{which} date> for the -r or --reservation option."
        ' It takes a date as argument with the format: "YYYY-MM-DD hh:mm:ss".'
        f"\n# {quote(text)} is none. Or write: now, 18:30, tomorrow 8:00, friday 18:30, +2h, +1d, +1:30.",
    )


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
