"""What would be, asked of the present situation: the start of a job that is not submitted, the change that helps one.

The database is read in one read-only transaction, as by a round, and nothing is written.  The site's programs are not
run: how many tokens are free is taken from the reasons of the last round.
"""

import json
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from oar.kao import forecast, plugins
from oar.kao.model import Placement, Plan, Snapshot
from oar.kao.platform import Platform, Situation, Supposed, Tokens
from oar.kao.priority import policy_of
from oar.kao.schedule import Round
from oar.lib.config import Config
from oar.lib.db.engine import Database, Transaction
from oar.lib.db.rounds import GroupRow, JobRow, MoldableRow
from oar.lib.db.waits import Reason
from oar.lib.model import Dependency
from oar.lib.proposal import Proposal
from oar.lib.reason_texts import sentence
from oar.lib.request import JobTypes
from oar.lib.states import JobState, JobType, Reservation, ResourceState
from oar.lib.submission import dependencies_of_each

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
    reason: Reason | None  #: why it would not start now, or not at all
    refusal: str = ""  #: of a reservation, or of a job that can never run: what it would be told

    @property
    def why(self) -> str:
        """Why it would not start now, as a sentence."""
        return sentence(self.reason) if self.reason else self.refusal

    @property
    def record(self) -> dict[str, object]:
        """All of it."""
        reason = self.reason
        told = {"code": reason.code, "text": reason.text, "data": reason.data} if reason else None
        refused = {"code": "REFUSED", "text": self.refusal, "data": {}} if self.refusal else None
        return {
            "feasible": self.start is not None,
            "start": self.start,
            "walltime": self.walltime,
            "resources": self.resources,
            "hosts": self.hosts,
            "reasons": [each for each in (refused, told) if each],
            "sentence": self.why,
        }


def present(database: Database, config: Config, supposed: Sequence[Supposed] = ()) -> Situation:
    """Return the present situation, with jobs that are only supposed."""
    return Platform(database, config).read(_tokens(database), supposed)


def _tokens(database: Database) -> Tokens:
    """Return who says how many tokens are free, as far as the reasons of waiting jobs tell."""
    with database.snapshot() as tx:
        reasons = [json.loads(each.data) for each in tx.gantt.reasons().values() if each.code == "TOKEN"]
    known = {each["token"]: each.get("have") for each in reasons}

    def tokens(names: Iterable[str]) -> Mapping[str, int | None]:
        return {name: known.get(name, ENOUGH) for name in names}

    return tokens


def plan_of(situation: Situation, config: Config) -> Plan:
    """Plan as a round would, with the limits of a round."""
    begin = time.monotonic()
    this = Round(situation.snapshot, lambda: time.monotonic() - begin, site=plugins.site_of(config))
    for queues in this.groups():
        this.plan_queues(queues)
    this.plan_besteffort()
    return this.finish()


def smallest_changes(database: Database, config: Config, jobs: Collection[int]) -> dict[int, str]:
    """Return the smallest change of a request with which each of some waiting jobs starts now; '' if none is enough."""
    snapshot, site = present(database, config).snapshot, plugins.site_of(config)
    planned_here = {queue.name for queue in snapshot.queues if policy_of(queue.policy) is not None}
    queues = {job.id: job.queue for job in snapshot.waiting}
    found = dict.fromkeys(sorted(jobs), "")
    for job_id in found:
        if queues.get(job_id) in planned_here:
            change = forecast.smallest_change(snapshot, job_id, site)
            found[job_id] = change.text if change else ""
    return found


# ---------------------------------------------------------------------------------------------------------- submissions


@dataclass(frozen=True, slots=True)
class Estimates:
    """What would become of a submission."""

    jobs: tuple[Estimate, ...]
    warnings: tuple[str, ...] = ()  #: what could not be taken into account


def submissions(database: Database, config: Config, proposal: Proposal, array_limit: int = 0) -> Estimates:
    """Return what would become of the jobs of a submission that rules have passed, in their order.

    ``array_limit``: so many of them may run at a time; 0 = all.  Raises BadSubmission.
    """
    with database.snapshot() as tx:
        supposed = _supposed(tx, proposal, array_limit)
    situation = present(database, config, supposed)
    warnings = tuple(mail.text for mail in situation.mails)
    own = next((each for each in situation.snapshot.queues if each.name == proposal.queue), None)
    if own and policy_of(own.policy) is None:
        reason = Reason(situation.snapshot.now, "EXTERNAL", OWN_SCHEDULER.format(own.name, own.policy), {})
        return Estimates(tuple(Estimate(None, each.moldables[0].walltime, (), (), reason) for each in supposed))
    return Estimates(tuple(_estimates(situation, plan_of(situation, config), supposed)), warnings)


def _estimates(situation: Situation, plan: Plan, supposed: Sequence[Supposed]) -> list[Estimate]:
    """Return what a plan says of supposed jobs."""
    refused = {answer.job_id: answer.message for answer in plan.refused}
    places = {place.job_id: place for place in plan.placements}
    resources = situation.snapshot.resources
    found = []
    for job in supposed:
        place, reason = places.get(job.row.id), plan.reasons.get(job.row.id)
        refusal = refused.get(job.row.id, "")
        why = Reason(plan.now, reason.code, reason.text, reason.data) if reason and not refusal else None
        if place:
            ids, hosts = resources.ids_of(place.resources), resources.nodes_of(place.resources)
            start = place.start if job.row.start_time else max(place.start, _awake(situation.snapshot, job, place))
            found.append(Estimate(start, place.walltime, tuple(ids), tuple(hosts), why, refusal))
        else:
            found.append(Estimate(None, job.moldables[0].walltime, (), (), why, refusal))
    return found


def _awake(snapshot: Snapshot, job: Supposed, place: Placement) -> int:
    """Return when the last node of a place that sleeps has booted; 0 if the job needs none to be woken."""
    settings, resources = snapshot.settings, snapshot.resources
    if not settings.may_wake or JobTypes(job.types).is_standby:
        return 0
    asleep = resources.nodes_of(place.resources & resources.where(resources.states, ResourceState.ABSENT))
    earliest = snapshot.now - settings.wakeup_time  # who was woken before that is woken again
    woken = (snapshot.woken.get(node, 0) for node in asleep)
    return max((settings.wakeup_time + (date if date > earliest else snapshot.now) for date in woken), default=0)


def _supposed(tx: Transaction, proposal: Proposal, array_limit: int) -> list[Supposed]:
    """Return the jobs of a submission as rows that could be in the database."""
    first = tx.rounds.next_job()
    return [
        _job(proposal, (first, first + index), needed, array_limit, tx.now)
        for index, needed in enumerate(dependencies_of_each(tx, proposal))
    ]


def _job(
    proposal: Proposal, ids: tuple[int, int], needed: Sequence[Dependency], array_limit: int, now: int
) -> Supposed:
    """Return a job; ``ids``: of its array, and its own."""
    array, number = ids
    alternative = _FIRST_ALTERNATIVE + (number - array) * len(proposal.requests)
    is_reservation = proposal.start > 0
    row = JobRow(
        id=number,
        queue=proposal.queue or "",
        user=proposal.user,
        project=proposal.project or "",
        name=proposal.name or "",
        state=JobState.WAITING,
        reservation=Reservation.TO_SCHEDULE if is_reservation else Reservation.NONE,
        is_interactive=proposal.job_type is JobType.INTERACTIVE,
        array_id=array,
        array_limit=array_limit,
        properties=proposal.stored_properties,
        submission_time=now,
        start_time=proposal.start,
        checkpoint=proposal.checkpoint,
    )
    moldables = tuple(
        MoldableRow(
            alternative + place,
            number,
            request.walltime or 0,
            tuple(GroupRow(group.filter, group.levels) for group in request.groups),
        )
        for place, request in enumerate(proposal.requests)
    )
    return Supposed(row, proposal.types, moldables, tuple(each._replace(job_id=number) for each in needed))
