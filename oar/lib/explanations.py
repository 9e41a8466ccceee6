"""Why a job waits or waited: its reason, its start and how firm it is, how its waiting time divides.

The scheduler leaves the reason of each waiting job with its numbers (``job_reasons``) and a row whenever the code of
the reason changes (``job_waits``); together with the log of states that tells where the time of every job went, ended
ones too.
"""

from bisect import bisect_left
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from oar.lib import ways_out
from oar.lib.db import listings, predictions, waits
from oar.lib.db.predictions import Errors
from oar.lib.db.waits import Other, Reason
from oar.lib.model import Job, Queue
from oar.lib.reason_texts import sentence, words
from oar.lib.request import JobTypes
from oar.lib.states import CURRENT, NOT_STARTED, JobState, QueueState, Reservation, ResourceState
from oar.lib.waiting import BEFORE_ITS_START, Waits, divided
from oar.lib.ways_out import Advice, LostNode

if TYPE_CHECKING:
    from oar.lib.config import Config
    from oar.lib.db.engine import Transaction

#: Predictions of the last so many seconds tell how good they are.
MEASURED = 30 * 86400


class Firmness(StrEnum):
    """How firm a predicted start is."""

    FIXED = "fixed"  #: a reservation: it moves only if its nodes are missing
    LATEST = "latest"  #: nobody who comes later goes before it
    TENTATIVE = "tentative"  #: others may go before it


@dataclass(frozen=True, slots=True)
class Start:
    """A predicted start."""

    date: int
    hosts: tuple[str, ...]
    resources: int  #: number
    firmness: Firmness
    because: str  #: why it is no firmer; '' if it is fixed
    measured: Errors | None  #: how good the predictions of its queue were
    before: int  #: so many waiting jobs are foreseen to start earlier


@dataclass(frozen=True, slots=True)
class Outlook:
    """When a job that has not started is foreseen to start, and what it waits for."""

    job: Job
    start: int | None
    reason: Reason | None

    @property
    def why(self) -> str:
        """What it waits for, in a word or two; '' if nobody has looked at it yet."""
        return words(self.reason) if self.reason else ""

    @property
    def record(self) -> dict[str, object]:
        """All of it."""
        reason = self.reason
        return {
            "scheduled_start": self.start,
            "why": self.why,
            "code": reason.code if reason else None,
            "reason": reason.text if reason else None,
            "data": reason.data if reason else {},
        }


#: Why a job stands still of which the scheduler says nothing.
_STANDING = {
    JobState.WAITING: "The scheduler has not looked at it yet.",
    JobState.HOLD: "It is on hold until somebody lets it go with oarresume.",
    JobState.SUSPENDED: "It is suspended until somebody lets it go on with oarresume.",
    JobState.RESUMING: "It goes on as soon as its resources are free.",
}


@dataclass(frozen=True, slots=True)
class Explanation:
    """All there is to say of the waiting of a job."""

    job: Job
    reason: Reason | None
    start: Start | None
    in_front: tuple[Other, ...]  #: the jobs that its reason names
    waited: Mapping[str, int]  #: seconds by code, the longest first
    advice: Advice
    lost_nodes: tuple[LostNode, ...]

    @property
    def sentence(self) -> str:
        """Why it does not start, or go on, now; '' for a job that waits no more."""
        if self.reason:
            return sentence(self.reason)
        return _STANDING.get(self.job.state, "")

    @property
    def record(self) -> dict[str, object]:
        """All of it."""
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
            "advice": self.advice.way_out or None,
            "lost_nodes": [each._asdict() for each in self.lost_nodes],
            "start": _start_record(self.start) if self.start else None,
            "in_front": [
                {"job_id": each.id, "owner": each.user, "state": each.state, "end": each.end or None}
                for each in self.in_front
            ],
            "waited": sum(self.waited.values()),
            "waited_for": dict(self.waited),
        }


def _start_record(start: Start) -> dict[str, object]:
    measured = start.measured
    return {
        "date": start.date,
        "hosts": start.hosts,
        "resources": start.resources,
        "firmness": start.firmness,
        "because": start.because,
        "jobs_before": start.before,
        "half_off_by": measured.half if measured else None,
        "most_off_by": measured.most if measured else None,
    }


def explain(tx: "Transaction", jobs: Sequence[Job], config: "Config") -> list[Explanation]:
    """Return what there is to say of jobs, in their order."""
    ids = [job.id for job in jobs]
    reasons, history, states = waits.reasons(tx, ids), waits.history(tx, ids), tx.jobs.state_changes(ids)
    waiting = [job for job in jobs if job.state in BEFORE_ITS_START]
    outside = {job_id for job_id, reason in reasons.items() if reason.code == "EXTERNAL"}
    starts = _starts(tx, waiting, config, outside)
    named = {job_id for reason in reasons.values() for job_id in jobs_of(reason)}
    others = waits.others(tx, sorted(named))
    lost = _lost_nodes(tx, jobs)
    silent = listings.silent_heads(tx, [job.id for job in jobs if job.state in CURRENT])
    advice = _advice(tx, jobs, reasons, lost, silent, config=config)
    return [
        Explanation(
            job,
            reasons.get(job.id),
            starts.get(job.id),
            tuple(others[each] for each in jobs_of(reasons.get(job.id)) if each in others),
            divided(states.get(job.id, ()), history.get(job.id, Waits()), tx.now),
            advice[job.id],
            tuple(lost.get(job.id, ())),
        )
        for job in jobs
    ]


def _lost_nodes(tx: "Transaction", jobs: Sequence[Job]) -> dict[int, list[LostNode]]:
    """Return the nodes that jobs hold and that are not Alive."""
    found = listings.not_alive(tx, [job.id for job in jobs if job.state in CURRENT])
    return {
        job_id: [LostNode(name, ResourceState(state), since) for name, state, since in nodes]
        for job_id, nodes in found.items()
    }


def _advice(
    tx: "Transaction",
    jobs: Sequence[Job],
    reasons: Mapping[int, Reason],
    lost: Mapping[int, Sequence[LostNode]],
    silent: Mapping[int, str],
    *,
    config: "Config",
) -> dict[int, Advice]:
    """Return what can be done about jobs."""
    depending = [job_id for job_id, reason in reasons.items() if reason.code == "DEPENDENCY"]
    needed = tx.jobs.dependencies(depending) if depending else {}
    required = {job.id: job for job in tx.jobs.select({each.required for some in needed.values() for each in some})}
    found = {}
    for job in jobs:
        reason = reasons.get(job.id)
        if job.id in lost or job.id in silent:
            found[job.id] = ways_out.of_lost_nodes(job, lost.get(job.id, ()), silent.get(job.id, ""))
        elif job.id in needed:
            default = config.dependency_condition
            found[job.id] = ways_out.of_dependencies(job, reason, needed[job.id], required, default)
        else:
            found[job.id] = ways_out.of_request(job, reason)
    return found


def outlooks(tx: "Transaction", jobs: Sequence[Job]) -> list[Outlook]:
    """Return when those of some jobs that have not started are foreseen to start."""
    waiting = [job for job in jobs if job.state in NOT_STARTED]
    ids = [job.id for job in waiting]
    reasons, foreseen = waits.reasons(tx, ids), listings.predictions(tx, ids)
    return [
        Outlook(job, foreseen[job.id].start if job.id in foreseen else None, reasons.get(job.id)) for job in waiting
    ]


def jobs_of(reason: Reason | None) -> list[int]:
    """Return the jobs that a reason names, those of reservations first."""
    if reason is None:
        return []
    named = [*reason.data.get("reservations", ()), *reason.data.get("jobs", ()), reason.data.get("job")]
    return list(dict.fromkeys(each for each in named if isinstance(each, int)))


# ----------------------------------------------------------------------------------------------------- predicted starts


def _starts(tx: "Transaction", jobs: Sequence[Job], config: "Config", outside: Collection[int]) -> dict[int, Start]:
    """Return the predicted starts.  ``outside``: jobs that are planned by a scheduler of the site."""
    foreseen = listings.predictions(tx, [job.id for job in jobs])
    if not foreseen:
        return {}
    planned = listings.planned(tx, [each.moldable for each in foreseen.values()])
    types = tx.jobs.types(list(foreseen))
    queues, dates = tx.queues.all(), waits.foreseen_starts(tx)
    errors = {each.queue: each for each in predictions.errors(tx, tx.now - MEASURED)}
    found = {}
    for job in jobs:
        if job.id in foreseen:
            date, moldable = foreseen[job.id]
            resources = planned.get(moldable, ())
            hosts = tuple(dict.fromkeys(each.node for each in resources if each.node))
            firm, because = firmness(job, types.get(job.id, ()), queues, is_fifo=_is_fifo(config))
            if job.id in outside:
                firm, because = Firmness.TENTATIVE, "its queue has a scheduler of its own"
            before = bisect_left(dates, date)
            found[job.id] = Start(date, hosts, len(resources), firm, because, errors.get(job.queue), before)
    return found


def _is_fifo(config: "Config") -> bool:
    return config.job_priority == "FIFO" and not config.fairsharing_enabled


def firmness(job: Job, types: Sequence[str], queues: Sequence[Queue], *, is_fifo: bool) -> tuple[Firmness, str]:
    """Return how firm the predicted start of a job is, and why it is no firmer.

    ``is_fifo``: the site has no other order than that of submission.
    """
    if job.reservation is not Reservation.NONE:
        return Firmness.FIXED, ""
    if "besteffort" in JobTypes(types):
        return Firmness.TENTATIVE, "every other job may take the place of a besteffort job"
    own = next((queue for queue in queues if queue.name == job.queue), None)
    if own is None or not is_fifo or "fairsharing" in own.policy:
        return Firmness.TENTATIVE, "later jobs may be better placed in the order of its queue"
    higher = sorted(
        queue.name for queue in queues if queue.priority > own.priority and queue.state is QueueState.ACTIVE
    )
    if higher:
        return Firmness.TENTATIVE, f"jobs of the queue {' or '.join(higher)} may go before it"
    return Firmness.LATEST, "nobody who comes later goes before it"
