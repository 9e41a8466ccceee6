"""Besteffort jobs: how they are told to leave their resources to another job.

They are placed last, in a copy of each space, and occupy nothing for other jobs
(``oar.kao.planner.resources.spaces``).  A gap that is shorter than their walltime is enough for them
(``Settings.besteffort_gap``).

See docs/design/planner.rst, "Besteffort jobs".
"""

from oar.kao.facts.plan import Kill, KillAction
from oar.kao.facts.snapshot import RunningJob
from oar.lib.facts.states import JobState


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
    return Kill(job.id, for_job, KillAction.KILL if job.is_checkpoint_over else KillAction.CHECKPOINT_TIMEOUT)
