"""Delete jobs, some of which may be frames: deleting a frame deletes its advance reservation."""

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from oar.lib.access.records import User
from oar.lib.jobs import control
from oar.lib.jobs.control import ControlOutcome

if TYPE_CHECKING:
    from oar.lib.db.transaction import Transaction


class JobDeletions(NamedTuple):
    """Outcome of a request to delete jobs."""

    answers: Sequence[ControlOutcome]  #: in the order of the ids
    reservations: Mapping[int, int]  #: by job, the number of the advance reservation that is deleted with it

    @property
    def warnings(self) -> list[str]:
        """The warnings for jobs that are frames of advance reservations."""
        return [
            f"job {job_id} is the frame of the advance reservation {number}, which is deleted."
            for job_id, number in self.reservations.items()
        ]


def delete_jobs(
    tx: "Transaction", user: User, ids: Sequence[int], *, with_inner: bool, managed: Collection[str] = ()
) -> JobDeletions:
    """Request the end of jobs, as ``control.delete``; if a job is a frame, delete its reservation."""
    frames = tx.reservations.of_frames(ids)
    others = [job_id for job_id in ids if job_id not in frames]
    answers: dict[int, ControlOutcome] = {}
    if frames:  # first: reservations are always locked before jobs
        from oar.lib.reservations import deletion

        answers |= {answer.job_id: answer for answer in deletion.delete_with_frames(tx, user, frames)}
    answers |= {
        answer.job_id: answer for answer in control.delete(tx, user, others, with_inner=with_inner, managed=managed)
    }
    new = {job_id for job_id, answer in answers.items() if not answer.refusal and not answer.has_ended}
    deleted = {job_id: number for job_id, (_, number) in frames.items() if job_id in new}
    return JobDeletions([answers[job_id] for job_id in ids], deleted)
