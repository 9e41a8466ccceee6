"""Besteffort jobs: how they are told to leave their resources to another job.

They are placed last, in a copy of each space, and occupy nothing for other jobs
(``oar.kao.planner.resources.spaces``).  A gap that is shorter than their walltime is enough for them
(``Settings.besteffort_gap``).

See docs/design/planner.rst, "Besteffort jobs".
"""

from oar.kao.facts.plan import Kill, KillAction
from oar.kao.facts.snapshot import RunningJob
from oar.lib.jobs.states import JobState


def order_to_leave(job: RunningJob, for_job: int, now: int) -> Kill | None:
    """Return the order to a besteffort job to leave its resources to another job.

    None while it writes its checkpoint, and if it is ending already.
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
    """Return the order to a besteffort job that has to leave at a date: to write its checkpoint before, or to end.

    Nothing is longer than the time until then: not its checkpoint either, if that is asked for too late.
    """
    if job.is_killed or job.state is JobState.FINISHING:
        return None
    if now >= date:
        return _end(job, for_job)
    if job.checkpoint and not job.checkpoint_asked and now >= date - job.checkpoint:
        return Kill(job.id, for_job, KillAction.CHECKPOINT)
    return None


def _end(job: RunningJob, for_job: int) -> Kill:
    """Return the order to end; that the time for a checkpoint is over is told once."""
    is_news = job.checkpoint_asked and not job.is_checkpoint_over
    return Kill(job.id, for_job, KillAction.CHECKPOINT_TIMEOUT if is_news else KillAction.KILL)
