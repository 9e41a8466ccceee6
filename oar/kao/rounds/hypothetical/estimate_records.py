"""Estimates for jobs that are not submitted: start, resources, and the reason for waiting.  Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from oar.kao.facts.plan import JobForecast, Placement
from oar.kao.facts.snapshot import Snapshot
from oar.kao.rounds.reading.situation import HypotheticalJob, Situation
from oar.lib.jobs.end_codes import EndCode
from oar.lib.jobs.reason_texts import is_overdue, reason_sentence
from oar.lib.jobs.records import WaitReason
from oar.lib.nodes.states import ResourceState
from oar.lib.submission.resource_request import JobTypes


@dataclass(frozen=True, slots=True)
class Estimate:
    """The estimate of one job."""

    start: int | None  #: None = it would not start, or it is not known when
    walltime: int
    resources: tuple[int, ...]
    hosts: tuple[str, ...]
    reason: WaitReason | None  #: why it would not start now, or not at all
    refusal: str = ""  #: of a reservation, or of a job that can never run: what it would be told
    not_before: int | None = None  #: it is not known when it would start, but not before this date

    @property
    def is_feasible(self) -> bool | None:
        """Return whether the job would start; return None if the start is unknown."""
        return None if self.not_before is not None else self.start is not None

    @property
    def why(self) -> str:
        """Return why the job would not start now, as a sentence."""
        return reason_sentence(self.reason) if self.reason else self.refusal

    @property
    def record(self) -> dict[str, object]:
        """Return the fields of all machine-readable formats."""
        reason = self.reason
        waiting = {"code": reason.code, "text": reason.text, "data": reason.data} if reason else None
        refused = {"code": EndCode.REFUSED, "text": self.refusal, "data": {}} if self.refusal else None
        return {
            "feasible": self.is_feasible,
            "start": self.start,
            "not_before": self.not_before,
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


def estimates_from(
    situation: Situation, forecasts: Mapping[int, JobForecast], jobs: Sequence[HypotheticalJob]
) -> list[Estimate]:
    """Return the estimates of hypothetical jobs, in their order, from their forecasts."""
    return [_estimate(situation.snapshot, forecasts[job.row.id], job) for job in jobs]


def _estimate(snapshot: Snapshot, forecast: JobForecast, job: HypotheticalJob) -> Estimate:
    placement, reason = forecast.placement, forecast.reason
    why = WaitReason(snapshot.now, reason.code, reason.text, reason.data) if reason else None
    if placement is None:
        walltime = job.moldables[0].walltime
        return Estimate(None, walltime, (), (), why, forecast.refusal, _not_before(forecast))
    if why and is_overdue(why):
        return Estimate(None, placement.walltime, (), (), why, forecast.refusal, placement.start)
    resources = snapshot.resources
    ids, hosts = resources.ids_of(placement.resources), resources.nodes_of(placement.resources)
    earliest = 0 if job.row.start_time else _boot_date(snapshot, job, placement)
    start = max(placement.start, earliest)
    return Estimate(start, placement.walltime, tuple(ids), tuple(hosts), why, forecast.refusal)


def _not_before(forecast: JobForecast) -> int | None:
    """Return the date before which a job without a placement does not start, if it may start later."""
    latest = forecast.reason.data.get("latest") if forecast.reason else None
    return latest if isinstance(latest, int) else forecast.not_before


def _boot_date(snapshot: Snapshot, job: HypotheticalJob, placement: Placement) -> int:
    """Return when the last sleeping node of a placement has booted; return 0 if no node has to be woken."""
    settings, resources = snapshot.settings, snapshot.resources
    if not settings.may_wake or JobTypes(job.types).is_standby:
        return 0
    asleep = resources.nodes_of(placement.resources & resources.where(resources.states, ResourceState.ABSENT))
    earliest = snapshot.now - settings.boot_limit  # nodes woken earlier are woken again
    woken = (snapshot.woken.get(node, 0) for node in asleep)
    return max((settings.wakeup_time + (date if date > earliest else snapshot.now) for date in woken), default=0)
