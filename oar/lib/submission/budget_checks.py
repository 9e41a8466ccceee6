"""The budgets of projects at submission: refuse a job, make it besteffort, or say that it waits."""

from typing import TYPE_CHECKING

from oar.lib.accounts import budgets
from oar.lib.accounts.budgets import BESTEFFORT, Exhaustion, NewRequest, Replaced
from oar.lib.accounts.states import OnExhaustion
from oar.lib.base.times import format_date
from oar.lib.jobs.states import JobTypeName
from oar.lib.submission import admission
from oar.lib.submission.admission import Admission
from oar.lib.submission.checks import BadSubmission, Code
from oar.lib.submission.resource_request import JobTypes

if TYPE_CHECKING:
    from oar.lib.config.files import Config
    from oar.lib.db.database import Database
    from oar.lib.db.transaction import Transaction
    from oar.lib.jobs.records import JobSpec
    from oar.lib.submission.feasibility import Cluster
    from oar.lib.submission.preparation import Proposal


def limited(
    tx: "Transaction",
    database: "Database",
    cluster: "Cluster",
    config: "Config",
    *,
    proposal: "Proposal",
    admitted: Admission,
) -> tuple[Admission, list[str]]:
    """Return the admission as budgets allow it, and what the user must know.

    ``proposal``: before the rules, which run again if the job becomes a besteffort job.  Raises BadSubmission,
    RuleRefused, RuleFailed.
    """
    spec, reservation = admitted.proposal.spec, admitted.reservation
    seconds = admitted.seconds * spec.array_size
    is_accounted = budgets.is_accounted(
        config, JobTypes(spec.types).names, is_flexible=reservation.is_flexible if reservation else None
    )
    new = NewRequest(spec.queue, spec.project, seconds, is_accounted, _windows(admitted.proposal), spec.user)
    exhaustion = budgets.exhaustion_of(tx, config, new)
    if exhaustion is None:
        return admitted, []
    mode = exhaustion.use.budget.on_exhaustion
    is_plain = not (reservation or proposal.start or JobTypeName.CONTAINER in JobTypes(spec.types))
    if mode is OnExhaustion.REFUSE or reservation or proposal.start:
        raise refused(exhaustion, may_be_besteffort=is_plain)
    text = exhaustion.text
    if mode is OnExhaustion.WAIT:
        return admitted, [f"{text} The job waits {waiting_text(exhaustion)}."]
    if not is_plain:
        raise refused(exhaustion)
    types = (*proposal.spec.types, JobTypeName.BESTEFFORT)
    besteffort = proposal._replace(spec=proposal.spec._replace(types=types))
    admitted = admission.admit(tx, database, cluster, config, besteffort)
    return _in_besteffort_queue(tx, admitted), [f"{text} The job becomes a besteffort job."]


def check(
    tx: "Transaction",
    config: "Config",
    spec: "JobSpec",
    seconds: int,
    *,
    is_accounted: bool = True,
    replaced_job: int = 0,
) -> None:
    """Raise BadSubmission if a budget refuses an altered or resubmitted job, which cannot become a besteffort job.

    ``seconds``: resource seconds that it requests.  ``replaced_job``: a waiting job that it replaces.
    """
    new = NewRequest(spec.queue, spec.project, seconds, is_accounted, user=spec.user)
    exhaustion = budgets.exhaustion_of(tx, config, new, replaced=Replaced(job=replaced_job))
    if exhaustion and exhaustion.use.budget.on_exhaustion is not OnExhaustion.WAIT:
        raise refused(exhaustion)


def _windows(proposal: "Proposal") -> list[tuple[int, int]]:
    """Return the start and the end of a reservation job; nothing for other jobs."""
    longest = max((request.walltime or 0 for request in proposal.requests), default=0)
    return [(proposal.start, proposal.start + longest)] if proposal.start else []


def waiting_text(exhaustion: Exhaustion) -> str:
    """Return until when a job waits."""
    return f"until {format_date(exhaustion.resumes)}" if exhaustion.resumes else "until there is a new budget"


def refused(exhaustion: Exhaustion, *, may_be_besteffort: bool = False) -> BadSubmission:
    """Return the error that refuses a job; ``may_be_besteffort``: as such it would be accepted."""
    choose = "Submit with -t besteffort, choose" if may_be_besteffort else "Choose"
    way_out = f"{choose} another project (--project), or ask a manager of the project for hours."
    return BadSubmission(Code.REQUEST, f"{exhaustion.text} {way_out}", verify=False)


def _in_besteffort_queue(tx: "Transaction", admitted: Admission) -> Admission:
    """Return a besteffort job in the queue besteffort, also if no rule chooses it.  Raises BadSubmission."""
    spec = admitted.proposal.spec
    if spec.queue == BESTEFFORT:
        return admitted
    admission.check_queue(tx, BESTEFFORT)
    return admitted._replace(proposal=admitted.proposal._replace(spec=spec._replace(queue=BESTEFFORT)))
