"""The review of an external scheduler's proposal: its placements are checked, booked and started.

See docs/design/planner.rst, "Schedulers of the site".
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from oar.kao.facts import reasons
from oar.kao.facts.plan import Placement
from oar.kao.facts.snapshot import WaitingJob
from oar.kao.planner.placement.round_context import RoundContext
from oar.kao.planner.placement.site_extensions import SchedulerProposal, choice_fault
from oar.kao.planner.placement.starts import Starts
from oar.kao.planner.resources.spaces import Containers


class ProposalReview:
    """Adopts the valid placements that an external scheduler proposes."""

    def __init__(self, context: RoundContext, containers: Containers, starts: Starts) -> None:
        self._snapshot = context.snapshot
        self._now = context.now
        self._dependency_condition = context.settings.dependency_condition
        self._types = context.types
        self._bookings = context.bookings
        self._decisions = context.decisions
        self._containers = containers
        self._starts = starts

    def adopt(self, jobs: Sequence[WaitingJob], proposal: SchedulerProposal) -> None:
        """Decide on the jobs of a queue according to the proposal of its scheduler."""
        decisions = self._decisions
        decisions.refused.extend(proposal.given_up)
        decisions.messages.update(proposal.messages)
        placements: dict[int, Placement] = {}
        for placement in proposal.placements:
            placements.setdefault(placement.job_id, placement)
        given_up = {answer.job_id for answer in proposal.given_up}
        for job in sorted(jobs, key=lambda job: job.id):
            if job.id in given_up or job.id in proposal.gone:
                continue
            if proposal.is_failed:
                decisions.reasons[job.id] = reasons.external_failed(proposal.scheduler)
            else:
                decisions.guard(job, partial(self._adopt, proposal, placements.get(job.id)))

    def _adopt(self, proposal: SchedulerProposal, placement: Placement | None, job: WaitingJob) -> None:
        decisions, said = self._decisions, proposal.said.get(job.id, "")
        fault = proposal.rejected.get(job.id, "")
        if placement is None and not fault:
            decisions.reasons[job.id] = reasons.external(proposal.scheduler, said)
            return
        if placement:
            placement = replace(placement, resources=placement.resources & ~self._bookings.spaces.usable.shared)
            types = self._types[job.id]
            space, present = self._containers.space_of(types), self._bookings.spaces.usable.present
            fault = choice_fault(self._snapshot, job, types, placement, space=space, begin=self._now, usable=present)
        if fault or placement is None:
            decisions.reasons[job.id] = reasons.rejected(proposal.scheduler, fault)
            decisions.troubles.append(f"[{job.id}] rejected placement of the scheduler {proposal.scheduler}: {fault}")
            return
        self._book(job, placement)
        if placement.start > self._now:
            decisions.reasons.setdefault(job.id, reasons.external(proposal.scheduler, said, placement.start))

    def _book(self, job: WaitingJob, placement: Placement) -> None:
        """Book a placement; start the job if it is due and nothing prevents the start."""
        types = self._types[job.id]
        obstacle = self._bookings.start_obstacle(job, types) if placement.start <= self._now else None
        self._bookings.enter(job, placement, types)
        self._decisions.placements[job.id] = placement
        self._decisions.external.add(job.id)
        if obstacle:
            self._decisions.reasons[job.id] = obstacle
        else:
            self._starts.start_if_due(job, placement, self._dependency_condition)
