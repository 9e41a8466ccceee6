"""Estimates for the current situation: of a submission, and of the smallest change that lets a job start now.

The database is read in one read-only transaction, as by a round; nothing is written.  Limits of a round do not apply,
except for reservations, which the next round decides; ESTIMATE_TIMEOUT limits the time.  Programs of the site are not
run: the numbers of free tokens come from the reasons of the last round.
"""

import json
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from oar.kao.facts.plan import JobForecast, Placement
from oar.kao.facts.snapshot import Snapshot
from oar.kao.planner.schedule import Round
from oar.kao.rounds.hypothetical import what_if
from oar.kao.rounds.hypothetical.what_if import NoTime, without_limits
from oar.kao.rounds.reading.situation import HypotheticalJob, Situation, TokenCounts
from oar.kao.rounds.reading.snapshot_reader import SnapshotReader
from oar.kao.rounds.site import plugins
from oar.lib.config.files import Config
from oar.lib.db.database import Database
from oar.lib.jobs.ends import EndCode
from oar.lib.jobs.queue_policies import policy_of
from oar.lib.jobs.reasons import ReasonCode, WaitReason, is_overdue, reason_sentence
from oar.lib.jobs.records import Dependency
from oar.lib.jobs.states import JobState, JobType, Reservation
from oar.lib.nodes.states import ResourceState
from oar.lib.planning.sql_rounds import GroupRow, JobRow, MoldableRow
from oar.lib.submission.dependencies import find_for_each_job
from oar.lib.submission.preparation import Proposal
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
    """Return the earliest date at which a job without a placement may start; None if it is unknown."""
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


#: Alternatives of hypothetical jobs are numbered from here; no real one is.
_FIRST_ALTERNATIVE = 2**61


#: No job has so many.
_MOST_ALTERNATIVES = 2**16


def hypothetical_jobs(
    proposal: Proposal, first: int, dependencies: Iterable[Sequence[Dependency]], now: int
) -> list[HypotheticalJob]:
    """Return the jobs of a proposal; ``first``: the id of the first one, ``dependencies``: those of each job."""
    return [_job(proposal, first, index, own, now) for index, own in enumerate(dependencies)]


def _job(proposal: Proposal, first: int, index: int, dependencies: Sequence[Dependency], now: int) -> HypotheticalJob:
    """Return one job; ``first``: the id of the first job of its array, ``index``: its index in the array, from 0."""
    spec, number = proposal.spec, first + index
    row = JobRow(
        id=number,
        queue=spec.queue,
        user=spec.user,
        project=spec.project,
        name=spec.name or "",
        state=JobState.WAITING,
        reservation=Reservation.TO_SCHEDULE if proposal.start else Reservation.NONE,
        is_interactive=proposal.job_type is JobType.INTERACTIVE,
        array_id=first,
        array_limit=spec.array_limit or 0,
        properties=proposal.stored_properties,
        submission_time=now,
        start_time=proposal.start,
        checkpoint=spec.checkpoint,
    )
    moldables = tuple(
        MoldableRow(
            _FIRST_ALTERNATIVE + number * _MOST_ALTERNATIVES + choice,
            number,
            request.walltime or 0,
            tuple(GroupRow(group.filter, group.levels) for group in request.groups),
            proposal.default_walltimes[choice],
            memory=request.memory,
        )
        for choice, request in enumerate(proposal.requests)
    )
    own_dependencies = tuple(dependency._replace(job_id=number) for dependency in dependencies)
    return HypotheticalJob(row, spec.types, moldables, own_dependencies)


#: Of a token of which nothing is known, there are enough.
ENOUGH = 2**31


OWN_SCHEDULER = "cannot predict a start in the queue {}: its external scheduler {} makes no predictions"


def present(database: Database, config: Config, hypothetical: Sequence[HypotheticalJob] = ()) -> Situation:
    """Return the current situation, including hypothetical jobs."""
    return SnapshotReader(database, config).read(_tokens(database, config.scheduler_token_scripts or {}), hypothetical)


def _tokens(database: Database, scripts: Collection[str]) -> TokenCounts:
    """Return what tells the free tokens of ``scripts``, according to the reasons of waiting jobs."""
    with database.snapshot() as tx:
        reasons = [
            json.loads(each.data) for each in tx.job_waits.stored_reasons().values() if each.code == ReasonCode.TOKEN
        ]
    counts = {reason["token"]: reason.get("have") for reason in reasons}

    def tokens(names: Iterable[str]) -> Mapping[str, int | None]:
        return {name: counts.get(name, ENOUGH) for name in names if name in scripts}

    return tokens


def smallest_changes(database: Database, config: Config, jobs: Collection[int]) -> dict[int, str | None]:
    """Return the smallest change of each waiting job's request with which the job starts now.

    The text is '' if no change is sufficient, and None if ESTIMATE_TIMEOUT ended the search.
    """
    elapsed = _stopwatch()
    snapshot, site = present(database, config).snapshot, plugins.site_of(config)
    planned_here = {queue.name for queue in snapshot.queues if policy_of(queue.policy) is not None}
    queues = {job.id: job.queue for job in snapshot.waiting}
    changes: dict[int, str | None] = dict.fromkeys(sorted(jobs), "")
    for job_id in changes:
        if queues.get(job_id) in planned_here:
            try:
                change = what_if.smallest_change(snapshot, job_id, site, elapsed, config.estimate_timeout)
            except NoTime:
                changes[job_id] = None
            else:
                changes[job_id] = change.text if change else ""
    return changes


def _stopwatch() -> Callable[[], float]:
    begin = time.monotonic()
    return lambda: time.monotonic() - begin


def submissions(database: Database, config: Config, proposal: Proposal) -> Estimates:
    """Return the estimates of the jobs of an admitted submission, in their order. Raises BadSubmission."""
    elapsed = _stopwatch()
    jobs = supposed(database, proposal)
    return _estimates(present(database, config, jobs), config, proposal, jobs, elapsed)


def supposed(database: Database, proposal: Proposal, number: int = 0) -> list[HypotheticalJob]:
    """Return the jobs of a submission behind ``number`` other hypothetical jobs.  Raises BadSubmission."""
    with database.snapshot() as tx:
        first = tx.rounds.next_job() + number
        return hypothetical_jobs(proposal, first, find_for_each_job(tx, proposal.spec), tx.now)


class ComparedSubmissions:
    """Compare submissions: the situation is read once, and each submission is planned without the others."""

    def __init__(self, database: Database, config: Config, jobs: Sequence[Sequence[HypotheticalJob]]) -> None:
        self._config = config
        self._all = frozenset(job.row.id for each in jobs for job in each)
        self._situation = present(database, config, [job for each in jobs for job in each])

    def estimates(self, proposal: Proposal, jobs: Sequence[HypotheticalJob]) -> Estimates:
        others = self._all - {job.row.id for job in jobs}
        snapshot = self._situation.snapshot
        alone = replace(snapshot, waiting=tuple(job for job in snapshot.waiting if job.id not in others))
        situation = replace(self._situation, snapshot=alone)
        return _estimates(situation, self._config, proposal, jobs, _stopwatch())


def _estimates(
    situation: Situation,
    config: Config,
    proposal: Proposal,
    jobs: Sequence[HypotheticalJob],
    elapsed: Callable[[], float],
) -> Estimates:
    warnings = tuple(mail.text for mail in situation.mails)
    queue = next((queue for queue in situation.snapshot.queues if queue.name == proposal.spec.queue), None)
    if queue and policy_of(queue.policy) is None:
        text = OWN_SCHEDULER.format(queue.name, queue.policy)
        now = situation.snapshot.now
        reason = WaitReason(now, ReasonCode.EXTERNAL, text, {})
        unknown = [Estimate(None, job.moldables[0].walltime, (), (), reason, not_before=now) for job in jobs]
        return Estimates(tuple(unknown), warnings)
    is_reservation = proposal.start > 0
    snapshot = situation.snapshot if is_reservation else without_limits(situation.snapshot, config.estimate_timeout)
    planning = Round(snapshot, elapsed, site=plugins.site_of(config))
    forecasts = planning.forecast([job.row.id for job in jobs])
    return Estimates(tuple(estimates_from(situation, forecasts, jobs)), warnings)
