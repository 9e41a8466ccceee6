"""Why jobs wait or waited, for users: the reason, the predicted start, the parts of the waiting time, advice.

The scheduler stores the reason of each waiting job with its data (``job_reasons``), and a row whenever the code of the
reason changes (``job_waits``). With the state log, these rows show how the waiting time of a job was spent, also for
ended jobs.
"""

from bisect import bisect_left
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from oar.lib.base.times import format_date
from oar.lib.jobs.ends import describe_exit
from oar.lib.jobs.reasons import (
    BEFORE_ITS_START,
    ReasonCode,
    WaitReason,
    Waits,
    divide_waiting_time,
    is_overdue,
    reason_label,
    reason_sentence,
)
from oar.lib.jobs.records import Dependency, Job, Queue
from oar.lib.jobs.sql_waits import AwaitedJob, Errors
from oar.lib.jobs.states import (
    CURRENT,
    NOT_STARTED,
    DependencyCondition,
    JobPriority,
    JobState,
    JobType,
    JobTypeName,
    QueueState,
    Reservation,
)
from oar.lib.nodes.states import ResourceState
from oar.lib.submission.resource_request import JobTypes

if TYPE_CHECKING:
    from oar.lib.config.files import Config
    from oar.lib.db.transaction import Transaction
    from oar.lib.jobs.sql_listings import Prediction

#: The errors of predictions are shown if they are known of at least so many jobs within so many seconds.
MIN_MEASURED_JOBS, MEASURED_SECONDS = 20, 30 * 86400


class Firmness(StrEnum):
    """How likely a predicted start is to change."""

    FIXED = "fixed"  #: a reservation: it moves only if its nodes are missing
    LATEST = "latest"  #: no later job is placed before it
    TENTATIVE = "tentative"  #: other jobs may be placed before it


class LostNode(NamedTuple):
    """A node of a job whose state is not Alive."""

    name: str
    state: ResourceState
    since: int  #: 0 = not known


class Advice(NamedTuple):
    """The problem of a job in one sentence, and the commands that solve it; both are empty if there is none."""

    trouble: str = ""
    solution: str = ""


@dataclass(frozen=True, slots=True)
class PredictedStart:
    date: int
    hosts: tuple[str, ...]
    resources: int  #: number
    firmness: Firmness
    because: str  #: why it is no firmer; '' if it is fixed
    measured: Errors | None  #: the errors of the predictions of its queue
    before: int  #: number of waiting jobs with an earlier predicted start
    foreseen_at: int  #: the prediction may be as old as this date; 0: it is that of the last scheduling pass

    @property
    def record(self) -> dict[str, object]:
        """The fields for machine formats."""
        return {
            "date": self.date,
            "hosts": self.hosts,
            "resources": self.resources,
            "firmness": self.firmness,
            "because": self.because,
            "jobs_before": self.before,
            "foreseen_at": self.foreseen_at or None,
            "half_off_by": self.measured.half if self.measured else None,
            "most_off_by": self.measured.most if self.measured else None,
        }


@dataclass(frozen=True, slots=True)
class Outlook:
    """The predicted start of a job and the reason for which it waits."""

    job: Job
    start: int | None
    reason: WaitReason | None
    foreseen_at: int = 0  #: the start may have been predicted as early as then; 0: by the last scheduling pass

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
    JobState.WAITING: "The scheduler has not considered it yet.",
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
            "start": self.start.record if self.start else None,
            "in_front": [
                {"job_id": item.id, "owner": item.user, "state": item.state, "end": item.end or None}
                for item in self.in_front
            ],
            "waited": sum(self.waited.values()),
            "waited_for": dict(self.waited),
        }


def explain(tx: "Transaction", jobs: Sequence[Job], config: "Config") -> list[Explanation]:
    """Return the explanations of jobs, in their order."""
    ids = [job.id for job in jobs]
    reasons, history, states = tx.job_waits.reasons(ids), tx.job_waits.history(ids), tx.jobs.state_changes(ids)
    waiting = [job for job in jobs if job.state in BEFORE_ITS_START]
    external = {job_id for job_id, reason in reasons.items() if reason.code == ReasonCode.EXTERNAL}
    starts = _predicted_starts(tx, [job for job in waiting if not _is_blocked(reasons.get(job.id))], config, external)
    awaited_ids = {job_id for reason in reasons.values() for job_id in jobs_of(reason)}
    awaited = tx.job_waits.awaited_jobs(sorted(awaited_ids))
    current_ids = [job.id for job in jobs if job.state in CURRENT]
    lost_nodes = {
        job_id: tuple(LostNode(name, ResourceState(state), since) for name, state, since in nodes)
        for job_id, nodes in tx.listings.not_alive(current_ids).items()
    }
    silent = tx.listings.silent_heads(current_ids)
    advice = _advise(tx, jobs, reasons, lost_nodes, silent, default_condition=config.dependency_condition)
    frames = tx.reservations.of_frames(ids)
    return [
        Explanation(
            job,
            reasons.get(job.id),
            starts.get(job.id),
            tuple(awaited[other_id] for other_id in jobs_of(reasons.get(job.id)) if other_id in awaited),
            divide_waiting_time(states.get(job.id, ()), history.get(job.id, Waits()), tx.now),
            advice[job.id],
            lost_nodes.get(job.id, ()),
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
    """Return the time from which a prediction may date; 0: the last scheduling pass made it, or it is a reservation."""
    return prediction.foreseen_at if job.reservation is Reservation.NONE else 0


def jobs_of(reason: WaitReason | None) -> list[int]:
    """Return the jobs that a reason names, jobs of reservations first; ignore values that are no job ids."""
    if reason is None:
        return []
    lists = [reason.data.get("reservations"), reason.data.get("jobs"), [reason.data.get("job")]]
    values = [value for ids in lists if isinstance(ids, list) for value in ids]
    return list(dict.fromkeys(value for value in values if type(value) is int))


# -- predicted starts -------------------------------------------------------------------------------------------------


#: States of nodes on which nothing starts. A node that sleeps is woken.
_LOST = frozenset({ResourceState.SUSPECTED, ResourceState.DEAD})
#: At most so many nodes are named as lost.
MAX_LOST = 5


def _predicted_starts(
    tx: "Transaction", jobs: Sequence[Job], config: "Config", external: Collection[int]
) -> dict[int, PredictedStart]:
    """Return the predicted starts by job. ``external``: jobs that an external scheduler plans."""
    predictions = tx.listings.predictions([job.id for job in jobs])
    if not predictions:
        return {}
    planned = tx.listings.planned([prediction.moldable for prediction in predictions.values()])
    types = tx.jobs.types(list(predictions))
    inside = tx.reservations.of_jobs(list(predictions))
    queues, dates = tx.queues.all(), tx.job_waits.foreseen_starts()
    measured = tx.job_waits.prediction_errors(tx.now - MEASURED_SECONDS)
    errors = {row.queue: row for row in measured if row.jobs >= MIN_MEASURED_JOBS}
    is_fifo = config.job_priority == JobPriority.FIFO and not config.fairsharing_enabled
    depths = config.scheduler_backfill_depth
    starts = {}
    for job in jobs:
        if job.id not in predictions:
            continue
        date, moldable, _ = predictions[job.id]
        resources = planned.get(moldable, ())
        firm, because = firmness(job, types.get(job.id, ()), queues, is_fifo=is_fifo, is_reserved=job.id in inside)
        if firm is Firmness.LATEST and depths.get(job.queue, depths.get("_", 0)) > 0:
            firm, because = Firmness.TENTATIVE, "jobs before it that have no planned start may get one"
        lost = dict.fromkeys(
            resource.node or f"resource {resource.id}" for resource in resources if resource.state in _LOST
        )
        if firm is Firmness.FIXED and lost:
            firm, because = Firmness.TENTATIVE, f"{', '.join(list(lost)[:MAX_LOST])} must answer again"
        if job.id in external:
            firm, because = Firmness.TENTATIVE, "its queue has a scheduler of its own"
        starts[job.id] = PredictedStart(
            date,
            tuple(dict.fromkeys(resource.node for resource in resources if resource.node)),
            len(resources),
            firm,
            because,
            errors.get(job.queue),
            bisect_left(dates, date),
            _age(job, predictions[job.id]),
        )
    return starts


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
    return Firmness.LATEST, "no later job is placed before it"


# -- advice -----------------------------------------------------------------------------------------------------------

_CONDITION_TEXTS = {
    DependencyCondition.OK: "ends well",
    DependencyCondition.NOT_OK: "fails",
    DependencyCondition.ANY: "ends",
    DependencyCondition.START: "starts",
}
_NODE_STATE_TEXTS = {
    ResourceState.ABSENT: "it was switched off or taken out of service",
    ResourceState.SUSPECTED: "it does not answer, or something failed on it",
    ResourceState.DEAD: "it was given up",
}


def _advise(
    tx: "Transaction",
    jobs: Sequence[Job],
    reasons: Mapping[int, WaitReason],
    lost_nodes: Mapping[int, Sequence[LostNode]],
    silent: Mapping[int, str],
    *,
    default_condition: DependencyCondition,
) -> dict[int, Advice]:
    depending = [job_id for job_id, reason in reasons.items() if reason.code == ReasonCode.DEPENDENCY]
    dependencies = tx.jobs.dependencies(depending) if depending else {}
    required_ids = {dependency.required for rows in dependencies.values() for dependency in rows}
    required = {job.id: job for job in tx.jobs.select(required_ids)} if required_ids else {}
    advice = {}
    for job in jobs:
        reason = reasons.get(job.id)
        if job.id in lost_nodes or job.id in silent:
            advice[job.id] = advise_on_lost_nodes(job, lost_nodes.get(job.id, ()), silent.get(job.id, ""))
        elif job.id in dependencies:
            advice[job.id] = advise_on_dependencies(job, reason, dependencies[job.id], required, default_condition)
        else:
            advice[job.id] = advise_on_request(job, reason)
    return advice


def advise_on_lost_nodes(job: Job, nodes: Sequence[LostNode], silent: str = "") -> Advice:
    """Return the advice for a job with nodes that are not Alive.

    ``silent``: the head node of the job if it did not answer the last check, else ''.
    """
    texts = []
    for node in nodes:
        since = f" since {format_date(node.since)}" if node.since else ""
        texts.append(f"{node.name} is {node.state}{since}, {_NODE_STATE_TEXTS[node.state]}")
    if silent and silent not in [node.name for node in nodes]:
        texts.append(f"{silent}, which runs its command, did not answer the last probe")
    if not texts:
        return Advice()
    text = "; ".join(texts)
    again = f", and oarsub --resubmit {job.id} submits it again" if _can_be_resubmitted(job) else ""
    return Advice(f"Of its nodes, {text}.", f"If it does not go on without: oardel {job.id} ends it{again}.")


def advise_on_request(job: Job, reason: WaitReason | None) -> Advice:
    """Return the advice for a job whose request can never be satisfied, or whose queue, project or budget stops it."""
    code, data = (reason.code, reason.data) if reason else ("", {})
    if code == ReasonCode.QUEUE:
        return Advice("", f"oaralter {job.id} -q QUEUE moves it to another queue.")
    if code == ReasonCode.PROJECT_CLOSED:
        return Advice("", f"oaralter {job.id} --project NAME moves it to another project.")
    if code == ReasonCode.BUDGET:
        hours = "a manager of the project can give it more hours: oarproject --budget"
        return Advice("", f"oaralter {job.id} --project NAME moves it to another project; {hours}.")
    if code == ReasonCode.TOKEN and not data.get("has_script", True):
        helps = "An administrator can name a script for the token in SCHEDULER_TOKEN_SCRIPTS"
        return Advice("", f"{helps}; oardel {job.id} deletes the job.")
    is_about_resources = code in (ReasonCode.IMPOSSIBLE, ReasonCode.CONDITION)
    is_hopeless = (
        is_about_resources
        or (code == ReasonCode.QUOTA and "date" not in data and "latest" not in data)
        or (code == ReasonCode.CONTAINER and "resources" in data)
    )
    if not is_hopeless or job.reservation is not Reservation.NONE:
        return Advice()
    other = f", oaralter {job.id} -p CONDITION sets other conditions" if is_about_resources else ""
    return Advice("", f"oaralter {job.id} -l REQUEST requests other resources{other}; oardel {job.id} deletes it.")


def advise_on_dependencies(
    job: Job,
    reason: WaitReason | None,
    dependencies: Sequence[Dependency],
    jobs: Mapping[int, Job],
    default: DependencyCondition,
) -> Advice:
    """Return the advice for a job whose dependencies can never be satisfied.

    ``jobs``: the required jobs by id; ``default``: the condition of dependencies that specify none.
    """
    if reason is None or reason.code != ReasonCode.DEPENDENCY or "date" in reason.data:
        return Advice()
    if "jobs" in reason.data:
        return Advice("", f"oaralter {job.id} -a '' removes all its dependencies, oardel {job.id} deletes it.")
    broken = [dependency for dependency in dependencies if dependency.required == reason.data.get("job")]
    required = jobs.get(broken[0].required) if broken else None
    if required is None or not required.is_final:
        return Advice()
    condition = DependencyCondition(broken[0].condition) if broken[0].condition else default
    outcome = describe_exit(required.exit_code)
    how = f"{required.state}, {outcome}" if outcome else required.state
    trouble = (
        f"It can start only if job {required.id} {_CONDITION_TEXTS[condition]}, and job {required.id} has ended: {how}."
    )
    ways = [f"oaralter {job.id} {_oaralter_options(dependencies, broken[0])} lets it start all the same"]
    if condition is DependencyCondition.OK and job.user == required.user and _can_be_resubmitted(required):
        ways.append(f"oarsub --resubmit {required.id} runs that one again, and this one waits for the copy")
    return Advice(trouble, "; ".join([*ways, f"oardel {job.id} deletes it"]) + ".")


def _oaralter_options(dependencies: Sequence[Dependency], broken: Dependency) -> str:
    """Return the oaralter options that set these dependencies again, with ``:any`` for the broken one."""
    options = []
    for dependency in dependencies:
        condition = f":{dependency.condition}" if dependency.condition else ""
        shifts = f",{dependency.min_shift},{dependency.max_shift}".rstrip(",")
        if dependency is broken:
            options.append(f"-a {dependency.required}:any")
        elif shifts:
            options.append(f"-a '{dependency.required}{condition}{shifts}'")
        else:
            options.append(f"-a {dependency.required}{condition}")
    return " ".join(options)


def _can_be_resubmitted(job: Job) -> bool:
    return job.job_type is JobType.PASSIVE and job.reservation is Reservation.NONE
