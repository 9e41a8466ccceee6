"""Reservation jobs (``oarsub -r``): new ones are decided, accepted ones start at their date, lost ones are repaired.

See docs/design/planner.rst, "Reservations".
"""

from collections.abc import Sequence
from dataclasses import replace

from oar.kao.facts import reasons
from oar.kao.facts.plan import Answer, JobStart, Placement, Reason
from oar.kao.facts.snapshot import WaitingJob
from oar.kao.planner.placement.placement_search import PlacementSearch
from oar.kao.planner.placement.placement_task import PlacementRules
from oar.kao.planner.placement.round_context import RoundContext
from oar.kao.planner.placement.starts import Starts
from oar.kao.planner.resources.spaces import Containers
from oar.lib.base.times import format_date
from oar.lib.jobs.states import DependencyCondition

#: A sleeping node must stay available so much longer than the reservation that starts on it.
STANDBY_MARGIN = 600

CANNOT_RUN = "This reservation cannot run"
OVER_QUOTAS = "This advance reservation cannot run due to quotas"
EXPIRED = "Reservation expired and couldn't be started."
TOO_OLD = "Reservation too old"
RENEWED = "Renewed resources for reservation"
NO_RESOURCE = "No resource for reservation"


class Reservations:
    """Decides on the reservation jobs of a round."""

    def __init__(self, context: RoundContext, containers: Containers, search: PlacementSearch, starts: Starts) -> None:
        self._now = context.now
        self._settings = context.settings
        self._types = context.types
        self._bookings = context.bookings
        self._decisions = context.decisions
        self._containers = containers
        self._search = search
        self._starts = starts

    def in_order(self, jobs: Sequence[WaitingJob]) -> list[WaitingJob]:
        """Return new reservations ordered by job id, but each after its container."""
        containers = {self._types[job.id].container: job.id for job in jobs if self._types[job.id].container}

        def depth(job: WaitingJob) -> int:
            passed, outer = {job.id}, containers.get(self._types[job.id].inner)
            while outer is not None and outer not in passed:
                passed.add(outer)
                outer = containers.get(self._types[outer].inner)
            return len(passed) - 1

        return sorted(jobs, key=lambda job: (depth(job), job.id))

    def answer(self, job: WaitingJob, *, has_quotas: bool = False) -> None:
        """Accept a new reservation, or refuse it with a message."""
        answer, placement = self._answer(job, has_quotas=has_quotas)
        if placement is None:
            self._decisions.refused.append(answer)
            return
        self._decisions.accepted.append(answer)
        self._decisions.placements[job.id] = placement
        self._decisions.reasons[job.id] = reasons.reservation_date(placement.start)

    def follow(self, job: WaitingJob, dependency_condition: DependencyCondition) -> None:
        """Start an accepted reservation at its date, or record why it waits; expire it after its end."""
        decisions, starts = self._decisions, self._starts
        placement = self._accepted_placement(job)
        longest = max((alternative.walltime for alternative in job.alternatives), default=0)
        if self._now >= job.start_time + (placement.walltime if placement else longest):
            decisions.expired.append(Answer(job.id, EXPIRED))
        elif placement is None:
            decisions.reasons[job.id] = reasons.no_slot("its resources are lost")
        elif job.start_time > self._now:
            decisions.placements[job.id] = placement
            decisions.reasons[job.id] = reasons.reservation_date(job.start_time)
            starts.clear_way(job, placement)
        else:
            delayed = replace(placement, start=self._now + 1)
            obstacle = starts.obstacle(job, dependency_condition)
            obstacle = obstacle or self._bookings.tokens.shortage(self._types[job.id])
            if obstacle is None and (obstacle := starts.holder(job, placement)):
                starts.clear_way(job, delayed)
            if obstacle is None and (obstacle := self._start(job, placement)) is None:
                return
            decisions.placements[job.id], decisions.reasons[job.id] = delayed, obstacle

    def repair(self, job: WaitingJob) -> None:
        """Search for resources for an accepted reservation whose stored placement is lost."""
        start = max(job.start_time, self._now)
        types = self._types[job.id]
        placement = self._search.at(job, types, start, self._rules(start))
        is_repaired = isinstance(placement, Placement)
        if isinstance(placement, Placement):
            self._bookings.enter(job, placement, types)
        (self._decisions.regained if is_repaired else self._decisions.lost).append(job.id)
        self._decisions.messages[job.id] = RENEWED if is_repaired else NO_RESOURCE

    def _answer(self, job: WaitingJob, *, has_quotas: bool) -> tuple[Answer, Placement | None]:
        types = self._types[job.id]
        if self._now >= job.start_time + job.shortest_walltime:
            return Answer(job.id, TOO_OLD), None
        start = max(job.start_time, self._now)
        refusal = CANNOT_RUN if types.is_besteffort else self._containers.reservation_error(job, types)
        if refusal:
            return Answer(job.id, refusal, start), None
        rules = self._rules(start, has_quotas=has_quotas)
        placement = self._search.at(job, types, start, rules)
        if isinstance(placement, Reason):
            return Answer(job.id, OVER_QUOTAS, start), None
        if placement:
            self._bookings.enter(job, placement, types)
            return Answer(job.id, "", start), placement
        later = self._search.first_start(job, types, start + 1, rules)
        message = f"This reservation could run at {format_date(later)}" if later else CANNOT_RUN
        message += self._search.in_the_way(job, types, start, rules)
        return Answer(job.id, message, start), None

    def _start(self, job: WaitingJob, placement: Placement) -> Reason | None:
        """Start a reservation on its present resources; return the reason if it waits for the missing ones."""
        types = self._types[job.id]
        end = placement.end + self._settings.security_time + STANDBY_MARGIN
        present = placement.resources & self._starts.startable(types, end)
        patience = job.start_time + self._settings.reservation_patience - self._now
        if present != placement.resources and (not present or patience > 0 or types.is_hard):
            text = f"[{job.id}] advance reservation is waiting because not all resources are available yet"
            self._decisions.troubles.append(f"{text} (timeout in {max(patience, 0)} seconds)")
            return reasons.waits_for_nodes(self._starts.names(placement.resources & ~present))
        delay = self._now - job.start_time
        started = replace(
            placement, start=self._now, walltime=placement.walltime - delay, resources=present or placement.resources
        )
        is_reduced = present != placement.resources
        self._bookings.tokens.take(types)
        self._decisions.placements[job.id] = started
        self._decisions.started.append(JobStart(started, placement.walltime if delay else 0, is_reduced))
        self._decisions.reasons.pop(job.id, None)
        return None

    def _accepted_placement(self, job: WaitingJob) -> Placement | None:
        """Return the placement of an accepted reservation, without the shared resources; return None if it is lost."""
        granted = job.granted
        if granted is None:
            return self._bookings.placements.get(job.id)
        resources = granted.resources & ~self._bookings.spaces.usable.shared
        return Placement(job.id, granted.alternative, job.start_time, job.walltime_of(granted.alternative), resources)

    def _rules(self, start: int, *, has_quotas: bool = False) -> PlacementRules:
        is_distant = start - self._now >= self._settings.reservation_order_threshold
        return PlacementRules(is_reservation=True, is_distant=is_distant, has_quotas=has_quotas)
