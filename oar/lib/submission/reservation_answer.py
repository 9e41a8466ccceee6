"""The scheduler's decision on a reservation (oarsub -r), derived from the state of its job."""

from typing import TYPE_CHECKING, NamedTuple

from oar.lib.jobs.states import JobState, Reservation

if TYPE_CHECKING:
    from oar.lib.jobs.records import Job


class ReservationAnswer(NamedTuple):
    """The scheduler's decision on a reservation."""

    is_granted: bool
    reason: str = ""

    def __str__(self) -> str:
        """Return the message for users."""
        return "Reservation valid --> OK" if self.is_granted else f"Reservation not valid --> KO ({self.reason})"


def answer_in(job: "Job | None") -> ReservationAnswer | None:
    """Return the decision on the reservation of a job; None if it is not decided yet."""
    if job is None:
        return ReservationAnswer(False, "the job does not exist any more")
    if job.state in (JobState.TO_ERROR, JobState.ERROR):
        return ReservationAnswer(False, job.scheduler_info or job.message)
    return ReservationAnswer(True) if job.reservation is Reservation.SCHEDULED else None
