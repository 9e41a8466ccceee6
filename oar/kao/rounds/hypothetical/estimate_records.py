"""What a plan says of jobs that are not submitted: when they would start, where, and why not now.  Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from oar.kao.facts.plan import Placement, Plan
from oar.kao.facts.snapshot import Snapshot
from oar.kao.rounds.reading.situation import HypotheticalJob, Situation
from oar.lib.facts.records import WaitReason
from oar.lib.facts.request import JobTypes
from oar.lib.facts.states import EndCode, ResourceState
from oar.lib.rules.wait_reason_texts import reason_sentence


@dataclass(frozen=True, slots=True)
class Estimate:
    """The estimate of one job."""

    start: int | None  #: None = it would not start
    walltime: int
    resources: tuple[int, ...]
    hosts: tuple[str, ...]
    reason: WaitReason | None  #: why it would not start now, or not at all
    refusal: str = ""  #: of a reservation, or of a job that can never run: what it would be told

    @property
    def why(self) -> str:
        """Why it would not start now, as a sentence."""
        return reason_sentence(self.reason) if self.reason else self.refusal

    @property
    def record(self) -> dict[str, object]:
        """The fields of all machine formats."""
        reason = self.reason
        waiting = {"code": reason.code, "text": reason.text, "data": reason.data} if reason else None
        refused = {"code": EndCode.REFUSED, "text": self.refusal, "data": {}} if self.refusal else None
        return {
            "feasible": self.start is not None,
            "start": self.start,
            "walltime": self.walltime,
            "resources": self.resources,
            "hosts": self.hosts,
            "reasons": [each for each in (refused, waiting) if each],
            "sentence": self.why,
        }


@dataclass(frozen=True, slots=True)
class Estimates:
    """The estimates of the jobs of a submission."""

    jobs: tuple[Estimate, ...]
    warnings: tuple[str, ...] = ()  #: what could not be taken into account


def estimates_from(situation: Situation, plan: Plan, jobs: Sequence[HypotheticalJob]) -> list[Estimate]:
    """Return what a plan says of hypothetical jobs, in their order."""
    refused = {answer.job_id: answer.message for answer in plan.refused}
    placements = {placement.job_id: placement for placement in plan.placements}
    resources = situation.snapshot.resources
    estimates = []
    for job in jobs:
        placement, reason = placements.get(job.row.id), plan.reasons.get(job.row.id)
        refusal = refused.get(job.row.id, "")
        why = WaitReason(plan.now, reason.code, reason.text, reason.data) if reason and not refusal else None
        if placement:
            ids, hosts = resources.ids_of(placement.resources), resources.nodes_of(placement.resources)
            earliest = 0 if job.row.start_time else _boot_date(situation.snapshot, job, placement)
            start = max(placement.start, earliest)
            estimates.append(Estimate(start, placement.walltime, tuple(ids), tuple(hosts), why, refusal))
        else:
            estimates.append(Estimate(None, job.moldables[0].walltime, (), (), why, refusal))
    return estimates


def _boot_date(snapshot: Snapshot, job: HypotheticalJob, placement: Placement) -> int:
    """Return when the last sleeping node of a placement has booted; 0 if the job needs none to be woken."""
    settings, resources = snapshot.settings, snapshot.resources
    if not settings.may_wake or JobTypes(job.types).is_standby:
        return 0
    asleep = resources.nodes_of(placement.resources & resources.where(resources.states, ResourceState.ABSENT))
    earliest = snapshot.now - settings.wakeup_time  # who was woken before that is woken again
    woken = (snapshot.woken.get(node, 0) for node in asleep)
    return max((settings.wakeup_time + (date if date > earliest else snapshot.now) for date in woken), default=0)
