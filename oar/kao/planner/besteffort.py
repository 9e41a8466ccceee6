"""Orders to besteffort jobs to leave their resources to other jobs.

Besteffort jobs are placed last, in a copy of each space, and occupy nothing for other jobs
(``oar.kao.planner.resources.spaces``).  They can use a gap that is shorter than their walltime
(``Settings.besteffort_gap``).

See docs/design/planner.rst, "Besteffort jobs".
"""

from oar.kao.facts.plan import Kill, KillAction
from oar.kao.facts.snapshot import RunningJob
from oar.lib.jobs.states import JobState


def order_to_leave(job: RunningJob, for_job: int, now: int) -> Kill | None:
    """Return the order to a besteffort job to leave its resources to another job.

    Return None while the job writes its checkpoint, or if it is already ending.
    """
    if job.is_killed or job.state is JobState.FINISHING:
        return None
    if not job.checkpoint:
        return Kill(job.id, for_job, KillAction.KILL)
    if not job.checkpoint_asked:
        return Kill(job.id, for_job, KillAction.CHECKPOINT)
    if now <= job.checkpoint_asked + job.checkpoint:
        return None
    return _end(job, for_job)


def order_to_be_gone(job: RunningJob, for_job: int, now: int, date: int) -> Kill | None:
    """Return the order to a besteffort job that must have left its resources by ``date``.

    The order is to write a checkpoint before that date, or to end at that date.  A checkpoint that was requested too
    late does not extend the time.  Return None if no order is due.
    """
    if job.is_killed or job.state is JobState.FINISHING:
        return None
    if now >= date:
        return _end(job, for_job)
    if job.checkpoint and not job.checkpoint_asked and now >= date - job.checkpoint:
        return Kill(job.id, for_job, KillAction.CHECKPOINT)
    return None


def _end(job: RunningJob, for_job: int) -> Kill:
    """Return the order to end.  The checkpoint timeout is reported only once."""
    is_news = job.checkpoint_asked and not job.is_checkpoint_over
    return Kill(job.id, for_job, KillAction.CHECKPOINT_TIMEOUT if is_news else KillAction.KILL)
