"""Why jobs wait or waited, for users: the reason, the predicted start, the parts of the waiting time, advice.

The scheduler stores the reason of each waiting job with its data (``job_reasons``), and a row whenever the code of the
reason changes (``job_waits``). With the state log, these rows show how the waiting time of a job was spent, also for
ended jobs.
"""

from bisect import bisect_left
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from oar.lib.base.times import format_date
from oar.lib.jobs.advice import Advice, LostNode, advise_on_dependencies, advise_on_lost_nodes, advise_on_request
from oar.lib.jobs.reason_codes import ReasonCode
from oar.lib.jobs.reason_texts import is_overdue, reason_label, reason_sentence
from oar.lib.jobs.records import Job, Queue, WaitReason
from oar.lib.jobs.sql_waits import AwaitedJob, Errors
from oar.lib.jobs.states import CURRENT, NOT_STARTED, JobPriority, JobState, JobTypeName, QueueState, Reservation
from oar.lib.jobs.wait_times import BEFORE_ITS_START, Waits, divide_waiting_time
from oar.lib.nodes.states import ResourceState
from oar.lib.submission.resource_request import JobTypes

if TYPE_CHECKING:
    from oar.lib.config.files import Config
    from oar.lib.db.transaction import Transaction
    from oar.lib.jobs.sql_listings import Prediction

#: Of fewer jobs nothing is said of how far predictions were off.
LEAST_MEASURED = 20
#: The errors of the predictions are measured over so many seconds.
MEASURED = 30 * 86400


class Firmness(StrEnum):
    """How likely a predicted start is to change."""

    FIXED = "fixed"  #: a reservation: it moves only if its nodes are missing
    LATEST = "latest"  #: no later job is placed before it
    TENTATIVE = "tentative"  #: other jobs may be placed before it


@dataclass(frozen=True, slots=True)
class PredictedStart:
    date: int
    hosts: tuple[str, ...]
    resources: int  #: number
    firmness: Firmness
    because: str  #: why it is no firmer; '' if it is fixed
    measured: Errors | None  #: the errors of the predictions of its queue
    before: int  #: number of waiting jobs with an earlier predicted start
    foreseen_at: int  #: the prediction may be as old as this date; 0: it is that of the last round


@dataclass(frozen=True, slots=True)
class Outlook:
    """The predicted start of a job and the reason for which it waits."""

    job: Job
    start: int | None
    reason: WaitReason | None
    foreseen_at: int = 0  #: the start may have been predicted as early as then; 0: by the last round

    @property
    def why(self) -> str:
        """The reason in a few words; '' before the first scheduling pass that considered the job."""
        return reason_label(self.reason) if self.reason else ""

    @property
    def record(self) -> dict[str, object]:
        """The fields for machine formats."""
        reason = self.reason
        return {
            "scheduled_start": self.start,
            "foreseen_at": self.foreseen_at or None,
            "why": self.why,
            "code": reason.code if reason else None,
            "reason": reason.text if reason else None,
            "data": reason.data if reason else {},
        }


#: Sentences for jobs without a reason of the scheduler.
_STATE_SENTENCES = {
    JobState.WAITING: "The scheduler has not looked at it yet.",
    JobState.HOLD: "It is on hold until it is released with oarresume.",
    JobState.SUSPENDED: "It is suspended until it is resumed with oarresume.",
    JobState.RESUMING: "It is resumed as soon as its resources are free.",
}


@dataclass(frozen=True, slots=True)
class Explanation:
    """Explanation of the waiting time of a job."""

    job: Job
    reason: WaitReason | None
    start: PredictedStart | None
    in_front: tuple[AwaitedJob, ...]  #: the jobs that its reason names
    waited: Mapping[str, int]  #: seconds of waiting by code of the reason, the longest first
    advice: Advice
    lost_nodes: tuple[LostNode, ...]
    frame_of: int = 0  #: the number of the advance reservation that it keeps a place for; 0 = it is a job

    @property
    def sentence(self) -> str:
        """A sentence that explains why the job does not start or resume now; '' for a job that does not wait."""
        if self.frame_of:
            date = f", which begins on {format_date(self.job.start_time)}" * (self.job.state is JobState.WAITING)
            return f"It is the frame of the advance reservation {self.frame_of}{date}: see qrstat -ar {self.frame_of}."
        if self.reason:
            return reason_sentence(self.reason)
        if self.job.state is JobState.WAITING and self.job.reservation is Reservation.SCHEDULED:
            return f"It is a reservation, and its date is {format_date(self.job.start_time)}."
        return _STATE_SENTENCES.get(self.job.state, "")

    @property
    def record(self) -> dict[str, object]:
        """The fields for machine formats."""
        reason = self.reason
        return {
            "job_id": self.job.id,
            "state": self.job.state,
            "queue": self.job.queue,
            "submission_time": self.job.submission_time,
            "start_time": self.job.started,
            "code": reason.code if reason else None,
            "since": reason.date if reason else None,
            "reason": reason.text if reason else None,
            "sentence": self.sentence,
            "data": reason.data if reason else {},
            "trouble": self.advice.trouble or None,
            "advice": self.advice.solution or None,
            "lost_nodes": [item._asdict() for item in self.lost_nodes],
            "start": _start_record(self.start) if self.start else None,
            "in_front": [
                {"job_id": item.id, "owner": item.user, "state": item.state, "end": item.end or None}
                for item in self.in_front
            ],
            "waited": sum(self.waited.values()),
            "waited_for": dict(self.waited),
        }


def _start_record(start: PredictedStart) -> dict[str, object]:
    measured = start.measured
    return {
        "date": start.date,
        "hosts": start.hosts,
        "resources": start.resources,
        "firmness": start.firmness,
        "because": start.because,
        "jobs_before": start.before,
        "foreseen_at": start.foreseen_at or None,
        "half_off_by": measured.half if measured else None,
        "most_off_by": measured.most if measured else None,
    }


def explain(tx: "Transaction", jobs: Sequence[Job], config: "Config") -> list[Explanation]:
    """Return the explanations of jobs, in their order."""
    ids = [job.id for job in jobs]
    reasons, history, states = tx.job_waits.reasons(ids), tx.job_waits.history(ids), tx.jobs.state_changes(ids)
    waiting = [job for job in jobs if job.state in BEFORE_ITS_START]
    outside = {job_id for job_id, reason in reasons.items() if reason.code == ReasonCode.EXTERNAL}
    starts = _starts(tx, [job for job in waiting if not _is_blocked(reasons.get(job.id))], config, outside)
    awaited_ids = {job_id for reason in reasons.values() for job_id in jobs_of(reason)}
    awaited = tx.job_waits.awaited_jobs(sorted(awaited_ids))
    lost_nodes = _lost_nodes(tx, jobs)
    silent = tx.listings.silent_heads([job.id for job in jobs if job.state in CURRENT])
    frames = tx.reservations.of_frames(ids)
    advice = _advice(tx, jobs, reasons, lost_nodes, silent, config=config)
    return [
        Explanation(
            job,
            reasons.get(job.id),
            starts.get(job.id),
            tuple(awaited[other_id] for other_id in jobs_of(reasons.get(job.id)) if other_id in awaited),
            divide_waiting_time(states.get(job.id, ()), history.get(job.id, Waits()), tx.now),
            advice[job.id],
            tuple(lost_nodes.get(job.id, ())),
            frames.get(job.id, (0, 0))[1],
        )
        for job in jobs
    ]


def _is_blocked(reason: WaitReason | None) -> bool:
    """Return whether the start cannot be predicted, whatever the plan contains.

    The advance reservation of the job is in state error, or other jobs hold its resources past their walltime.
    """
    if reason is None:
        return False
    return is_overdue(reason) or (reason.code == ReasonCode.ADVANCE and "error" in reason.data)


def _lost_nodes(tx: "Transaction", jobs: Sequence[Job]) -> dict[int, list[LostNode]]:
    """Return the nodes of running jobs that are not Alive, by job."""
    nodes_by_job = tx.listings.not_alive([job.id for job in jobs if job.state in CURRENT])
    return {
        job_id: [LostNode(name, ResourceState(state), since) for name, state, since in nodes]
        for job_id, nodes in nodes_by_job.items()
    }


def _advice(
    tx: "Transaction",
    jobs: Sequence[Job],
    reasons: Mapping[int, WaitReason],
    lost_nodes: Mapping[int, Sequence[LostNode]],
    silent: Mapping[int, str],
    *,
    config: "Config",
) -> dict[int, Advice]:
    depending = [job_id for job_id, reason in reasons.items() if reason.code == ReasonCode.DEPENDENCY]
    dependencies = tx.jobs.dependencies(depending) if depending else {}
    required = {
        job.id: job
        for job in tx.jobs.select(
            {dependency.required for job_dependencies in dependencies.values() for dependency in job_dependencies}
        )
    }
    advice = {}
    for job in jobs:
        reason = reasons.get(job.id)
        if job.id in lost_nodes or job.id in silent:
            advice[job.id] = advise_on_lost_nodes(job, lost_nodes.get(job.id, ()), silent.get(job.id, ""))
        elif job.id in dependencies:
            default = config.dependency_condition
            advice[job.id] = advise_on_dependencies(job, reason, dependencies[job.id], required, default)
        else:
            advice[job.id] = advise_on_request(job, reason)
    return advice


def outlooks(tx: "Transaction", jobs: Sequence[Job]) -> list[Outlook]:
    """Return the predicted start and the reason of each job that has not started."""
    waiting = [job for job in jobs if job.state in NOT_STARTED]
    ids = [job.id for job in waiting]
    reasons, foreseen = tx.job_waits.reasons(ids), tx.listings.predictions(ids)
    return [
        Outlook(job, foreseen[job.id].start, reasons.get(job.id), _age(job, foreseen[job.id]))
        if job.id in foreseen and not _is_blocked(reasons.get(job.id))
        else Outlook(job, None, reasons.get(job.id))
        for job in waiting
    ]


def _age(job: Job, prediction: "Prediction") -> int:
    """Return the time from which a prediction may date.

    Return 0 for predictions of the last scheduling pass, and for reservations.
    """
    return prediction.foreseen_at if job.reservation is Reservation.NONE else 0


def jobs_of(reason: WaitReason | None) -> list[int]:
    """Return the jobs that a reason names, jobs of reservations first; ignore values that are no job ids."""
    if reason is None:
        return []
    lists = [reason.data.get("reservations"), reason.data.get("jobs"), [reason.data.get("job")]]
    values = [value for each in lists if isinstance(each, list) for value in each]
    return list(dict.fromkeys(value for value in values if type(value) is int))


# ----------------------------------------------------------------------------------------------------- predicted starts


#: On them nothing starts, whatever was agreed.  A node that sleeps is woken.
_LOST = frozenset({ResourceState.SUSPECTED, ResourceState.DEAD})
#: So many nodes are named as lost.
MAX_LOST = 5


def _starts(
    tx: "Transaction", jobs: Sequence[Job], config: "Config", outside: Collection[int]
) -> dict[int, PredictedStart]:
    """Return the predicted starts by job. ``outside``: jobs that an external scheduler plans."""
    foreseen = tx.listings.predictions([job.id for job in jobs])
    if not foreseen:
        return {}
    planned = tx.listings.planned([prediction.moldable for prediction in foreseen.values()])
    types = tx.jobs.types(list(foreseen))
    inside = tx.reservations.of_jobs(list(foreseen))
    queues, dates = tx.queues.all(), tx.job_waits.foreseen_starts()
    measured = tx.job_waits.prediction_errors(tx.now - MEASURED)
    errors = {each.queue: each for each in measured if each.jobs >= LEAST_MEASURED}
    starts = {}
    for job in jobs:
        if job.id in foreseen:
            date, moldable, _ = foreseen[job.id]
            resources = planned.get(moldable, ())
            hosts = tuple(dict.fromkeys(prediction.node for prediction in resources if prediction.node))
            firm, because = firmness(
                job, types.get(job.id, ()), queues, is_fifo=_is_fifo(config), is_reserved=job.id in inside
            )
            if firm is Firmness.LATEST and _has_depth(config, job.queue):
                firm, because = Firmness.TENTATIVE, "jobs before it that have no planned start may get one"
            lost = dict.fromkeys(each.node or f"resource {each.id}" for each in resources if each.state in _LOST)
            if firm is Firmness.FIXED and lost:
                firm, because = Firmness.TENTATIVE, f"{', '.join(list(lost)[:MAX_LOST])} must answer again"
            if job.id in outside:
                firm, because = Firmness.TENTATIVE, "its queue has a scheduler of its own"
            before = bisect_left(dates, date)
            starts[job.id] = PredictedStart(
                *(date, hosts, len(resources), firm, because, errors.get(job.queue), before),
                foreseen_at=_age(job, foreseen[job.id]),
            )
    return starts


def _is_fifo(config: "Config") -> bool:
    return config.job_priority == JobPriority.FIFO and not config.fairsharing_enabled


def _has_depth(config: "Config", queue: str) -> bool:
    depths = config.scheduler_backfill_depth
    return depths.get(queue, depths.get("_", 0)) > 0


def firmness(
    job: Job, types: Sequence[str], queues: Sequence[Queue], *, is_fifo: bool, is_reserved: bool = False
) -> tuple[Firmness, str]:
    """Return the firmness of the predicted start of a job, and why the start is not firmer.

    ``is_fifo``: the site starts jobs in the order of submission only. ``is_reserved``: the job uses the resources of an
    advance reservation, to which other jobs have no access.
    """
    if job.reservation is not Reservation.NONE:
        return Firmness.FIXED, ""
    if JobTypeName.BESTEFFORT in JobTypes(types):
        return Firmness.TENTATIVE, "every other job may take the place of a besteffort job"
    own_queue = next((queue for queue in queues if queue.name == job.queue), None)
    if own_queue is None or not is_fifo or "fairsharing" in own_queue.policy:
        return Firmness.TENTATIVE, "later jobs may be better placed in the order of its queue"
    higher = sorted(
        queue.name for queue in queues if queue.priority > own_queue.priority and queue.state is QueueState.ACTIVE
    )
    if higher:
        where = " in its advance reservation" if is_reserved else ""
        return Firmness.TENTATIVE, f"jobs of the queue {' or '.join(higher)}{where} may go before it"
    return Firmness.LATEST, "nobody who comes later goes before it"
