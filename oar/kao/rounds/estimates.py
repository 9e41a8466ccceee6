"""What would be, asked of the present situation: the start of a job that is not submitted, the change that helps one.

The database is read in one read-only transaction, as by a round, and nothing is written.  The site's programs are not
run: how many tokens are free is taken from the reasons of the last round.
"""

import json
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from oar.kao.facts.plan import Placement, Plan
from oar.kao.facts.queue_policies import policy_of
from oar.kao.facts.snapshot import Snapshot
from oar.kao.planner.schedule import schedule
from oar.kao.rounds import plugins, what_if
from oar.kao.rounds.situation import HypotheticalJob, Situation, TokenCounts
from oar.kao.rounds.snapshot_reader import SnapshotReader
from oar.lib.config.files import Config
from oar.lib.db.database import Database
from oar.lib.db.rounds import GroupRow, JobRow, MoldableRow
from oar.lib.db.transaction import Transaction
from oar.lib.facts.records import Dependency, WaitReason
from oar.lib.facts.request import JobTypes
from oar.lib.facts.states import EndCode, JobState, JobType, ReasonCode, Reservation, ResourceState
from oar.lib.rules.wait_reason_texts import reason_sentence
from oar.lib.submission.dependencies import find_for_each_job
from oar.lib.submission.proposal import Proposal

#: Of a token of which nothing is known, there are enough.
ENOUGH = 2**31

OWN_SCHEDULER = "the queue {} has a scheduler of its own, {}, which cannot be asked beforehand"

#: Alternatives of supposed jobs are numbered from here; no real one is.
_FIRST_ALTERNATIVE = 2**61


@dataclass(frozen=True, slots=True)
class Estimate:
    """What would become of one job."""

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
        """All of it."""
        reason = self.reason
        told = {"code": reason.code, "text": reason.text, "data": reason.data} if reason else None
        refused = {"code": EndCode.REFUSED, "text": self.refusal, "data": {}} if self.refusal else None
        return {
            "feasible": self.start is not None,
            "start": self.start,
            "walltime": self.walltime,
            "resources": self.resources,
            "hosts": self.hosts,
            "reasons": [each for each in (refused, told) if each],
            "sentence": self.why,
        }


def present(database: Database, config: Config, supposed: Sequence[HypotheticalJob] = ()) -> Situation:
    """Return the present situation, with jobs that are only supposed."""
    return SnapshotReader(database, config).read(_tokens(database, config.scheduler_token_scripts or {}), supposed)


def _tokens(database: Database, scripts: Collection[str]) -> TokenCounts:
    """Return who says how many tokens are free, as far as the reasons of waiting jobs tell.

    ``scripts``: the names of the tokens that are counted.
    """
    with database.snapshot() as tx:
        reasons = [
            json.loads(each.data) for each in tx.job_waits.stored_reasons().values() if each.code == ReasonCode.TOKEN
        ]
    known = {each["token"]: each.get("have") for each in reasons}

    def tokens(names: Iterable[str]) -> Mapping[str, int | None]:
        return {name: known.get(name, ENOUGH) for name in names if name in scripts}

    return tokens


def plan_of(situation: Situation, config: Config) -> Plan:
    """Plan as a round would, with the limits of a round."""
    begin = time.monotonic()
    return schedule(situation.snapshot, lambda: time.monotonic() - begin, site=plugins.site_of(config))


def smallest_changes(database: Database, config: Config, jobs: Collection[int]) -> dict[int, str]:
    """Return the smallest change of a request with which each of some waiting jobs starts now; '' if none is enough."""
    snapshot, site = present(database, config).snapshot, plugins.site_of(config)
    planned_here = {queue.name for queue in snapshot.queues if policy_of(queue.policy) is not None}
    queues = {job.id: job.queue for job in snapshot.waiting}
    found = dict.fromkeys(sorted(jobs), "")
    for job_id in found:
        if queues.get(job_id) in planned_here:
            change = what_if.smallest_change(snapshot, job_id, site)
            found[job_id] = change.text if change else ""
    return found


# ---------------------------------------------------------------------------------------------------------- submissions


@dataclass(frozen=True, slots=True)
class Estimates:
    """What would become of a submission."""

    jobs: tuple[Estimate, ...]
    warnings: tuple[str, ...] = ()  #: what could not be taken into account


def submissions(database: Database, config: Config, proposal: Proposal) -> Estimates:
    """Return what would become of the jobs of a submission that rules have passed, in their order.

    Raises BadSubmission.
    """
    with database.snapshot() as tx:
        supposed = _supposed(tx, proposal)
    situation = present(database, config, supposed)
    warnings = tuple(mail.text for mail in situation.mails)
    own = next((each for each in situation.snapshot.queues if each.name == proposal.spec.queue), None)
    if own and policy_of(own.policy) is None:
        reason = WaitReason(situation.snapshot.now, ReasonCode.EXTERNAL, OWN_SCHEDULER.format(own.name, own.policy), {})
        return Estimates(tuple(Estimate(None, each.moldables[0].walltime, (), (), reason) for each in supposed))
    return Estimates(tuple(_estimates(situation, plan_of(situation, config), supposed)), warnings)


def _estimates(situation: Situation, plan: Plan, supposed: Sequence[HypotheticalJob]) -> list[Estimate]:
    """Return what a plan says of supposed jobs."""
    refused = {answer.job_id: answer.message for answer in plan.refused}
    places = {place.job_id: place for place in plan.placements}
    resources = situation.snapshot.resources
    found = []
    for job in supposed:
        place, reason = places.get(job.row.id), plan.reasons.get(job.row.id)
        refusal = refused.get(job.row.id, "")
        why = WaitReason(plan.now, reason.code, reason.text, reason.data) if reason and not refusal else None
        if place:
            ids, hosts = resources.ids_of(place.resources), resources.nodes_of(place.resources)
            start = place.start if job.row.start_time else max(place.start, _awake(situation.snapshot, job, place))
            found.append(Estimate(start, place.walltime, tuple(ids), tuple(hosts), why, refusal))
        else:
            found.append(Estimate(None, job.moldables[0].walltime, (), (), why, refusal))
    return found


def _awake(snapshot: Snapshot, job: HypotheticalJob, place: Placement) -> int:
    """Return when the last node of a place that sleeps has booted; 0 if the job needs none to be woken."""
    settings, resources = snapshot.settings, snapshot.resources
    if not settings.may_wake or JobTypes(job.types).is_standby:
        return 0
    asleep = resources.nodes_of(place.resources & resources.where(resources.states, ResourceState.ABSENT))
    earliest = snapshot.now - settings.wakeup_time  # who was woken before that is woken again
    woken = (snapshot.woken.get(node, 0) for node in asleep)
    return max((settings.wakeup_time + (date if date > earliest else snapshot.now) for date in woken), default=0)


def _supposed(tx: Transaction, proposal: Proposal) -> list[HypotheticalJob]:
    """Return the jobs of a submission as rows that could be in the database."""
    first = tx.rounds.next_job()
    return [
        _job(proposal, first, index, dependencies, tx.now)
        for index, dependencies in enumerate(find_for_each_job(tx, proposal.spec))
    ]


def _job(proposal: Proposal, first: int, index: int, dependencies: Sequence[Dependency], now: int) -> HypotheticalJob:
    """Return a job; ``first``: number of the first job of its array, ``index``: its place there, from 0."""
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
            _FIRST_ALTERNATIVE + index * len(proposal.requests) + choice,
            number,
            request.walltime or 0,
            tuple(GroupRow(group.filter, group.levels) for group in request.groups),
        )
        for choice, request in enumerate(proposal.requests)
    )
    own_dependencies = tuple(dependency._replace(job_id=number) for dependency in dependencies)
    return HypotheticalJob(row, spec.types, moldables, own_dependencies)
