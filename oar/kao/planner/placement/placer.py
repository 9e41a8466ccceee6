"""The placement of one job: the checks before the search, the search or its reuse, and the booking.

See docs/design/planner.rst, "Placement".
"""

from dataclasses import dataclass, replace
from functools import partial

from oar.kao.facts import reasons
from oar.kao.facts.job_types import ParsedTypes, has_plugin
from oar.kao.facts.plan import Placement, Reason
from oar.kao.facts.snapshot import WaitingJob
from oar.kao.planner.limits.dependencies import MISSED_WINDOW, Dependencies, MissedWindow, StartWindow
from oar.kao.planner.placement.containers import Containers
from oar.kao.planner.placement.placement_reuse import PlacementReuse
from oar.kao.planner.placement.placement_search import PlacementSearch
from oar.kao.planner.placement.placement_task import PlacementRules, PlacementTask
from oar.kao.planner.placement.round_context import RoundContext
from oar.kao.planner.placement.round_memory import SearchRecord


@dataclass(frozen=True, slots=True)
class PlacementOutcome:
    """A placement, the reason why there is none or why it does not start now, or both."""

    placement: Placement | None = None
    reason: Reason | None = None
    error: str = ""  #: the job can never run: it goes to toError with this message


class Placer:
    """Places jobs one after the other; each booking leaves less to the jobs after it."""

    def __init__(
        self,
        context: RoundContext,
        containers: Containers,
        dependencies: Dependencies,
        search: PlacementSearch,
        reuse: PlacementReuse,
    ) -> None:
        self._now = context.now
        self._bookings = context.bookings
        self._requests = context.requests
        self._containers = containers
        self._dependencies = dependencies
        self._search = search
        self._placement_reasons = search.reasons
        self._reuse = reuse

    def place(self, job: WaitingJob, types: ParsedTypes, rules: PlacementRules) -> PlacementOutcome:
        """Place a job and book its placement, or return why it gets none."""
        task = self.checked(job, types, rules)
        return self.place_checked(task) if isinstance(task, PlacementTask) else task

    def checked(self, job: WaitingJob, types: ParsedTypes, rules: PlacementRules) -> PlacementTask | PlacementOutcome:
        """Return what is to be searched for, or why the job gets no placement."""
        self._containers.note_turn(job)
        error = self.error(job, types)
        if error:
            return PlacementOutcome(error=error)
        space = self._containers.space_of(types)
        if isinstance(space, Reason):
            return PlacementOutcome(reason=space)
        window = self._dependencies.window(job, rules.dependency_condition)
        if isinstance(window, MissedWindow):
            return PlacementOutcome(error=MISSED_WINDOW)
        if isinstance(window, Reason):
            return PlacementOutcome(reason=window)
        window = window.intersected(StartWindow(rules.not_before))
        shortage = self._bookings.tokens.shortage(types)
        if shortage:
            return PlacementOutcome(reason=shortage)
        return PlacementTask(job, types, rules, space, window)

    def earliest(self, job: WaitingJob, types: ParsedTypes, rules: PlacementRules) -> int | Reason:
        """Return the first date at which a job could start beside what is booked so far; nothing is booked.

        Whatever is booked later makes it no earlier.  A reason: it could never start.
        """
        space = self._containers.space_of(types)
        window = self._dependencies.window(job, rules.dependency_condition)
        if isinstance(space, Reason) or not isinstance(window, StartWindow):
            return self._now  # the container or the required job may be planned later
        return self._search.earliest(PlacementTask(job, types, rules, space, window))

    def error(self, job: WaitingJob, types: ParsedTypes) -> str:
        """Return why a job can never run; '' if it may."""
        if types.unreadable_date:
            return f"Cannot read the date of type {types.unreadable_date}"
        if types.expire and self._now > types.expire:
            return f"Job will never run (expire={types.expire_text}), setting it to error"
        if types.deadline and self._now + job.shortest_walltime > types.deadline:
            return f"Job will never run (deadline={types.deadline_text}), setting it to error"
        return self._containers.error(job, types)

    def place_checked(self, task: PlacementTask) -> PlacementOutcome:
        """Give a job its placement of the last round again, or search for the best one."""
        if task.rules.depth:
            return self._place_now(task)
        job, types, has_quotas = task.job, task.types, task.rules.has_quotas
        counters = self._bookings.counters_of(job, types, has_quotas=has_quotas)
        is_allowed = partial(self._bookings.allow, job, types, has_quotas=has_quotas)
        last = self._reuse.find(task, counters, is_allowed)
        best, refusal = (last.best, last.refusal) if last else self._search.best(task)
        outcome = self._book(task, best, refusal, last.reason if last else None)
        is_same = last is not None and last.reason is outcome.reason and last.window == task.window
        self._reuse.record(task, last if last and is_same else self._record_of(task, best, refusal, outcome, last))
        return outcome

    def _place_now(self, task: PlacementTask) -> PlacementOutcome:
        """Place a job behind the depth of its queue: it begins now, or has no place."""
        found = self._search.now(task)
        if isinstance(found, Placement):
            return self._book(task, found, None)
        return PlacementOutcome(reason=found or reasons.behind_depth(task.rules.depth))

    def _record_of(
        self,
        task: PlacementTask,
        best: Placement | None,
        refusal: Reason | None,
        outcome: PlacementOutcome,
        last: SearchRecord | None,
    ) -> SearchRecord:
        """Return what the next round is told of a search; ``last``: what this one was told, if it was used."""
        if last:
            return replace(last, job=task.job, window=task.window, best=best, refusal=refusal, reason=outcome.reason)
        requests = [self._requests.get(alternative.groups) for alternative in task.job.alternatives]
        is_robust = all(isinstance(each, Reason) or (each.is_monotone and each.is_steady) for each in requests)
        has_lasting_resources = task.types.is_besteffort and not is_robust  # what lasts depends on each start tried
        is_by_rule = not (task.date_dependent or task.job.promised or has_plugin(task.job))
        return SearchRecord(
            task.job,
            task.window,
            best,
            refusal,
            outcome.reason,
            is_reusable=is_by_rule and not has_lasting_resources,
            is_robust=is_robust,
            possible_from=task.possible_from,
        )

    def _book(
        self, task: PlacementTask, best: Placement | None, refusal: Reason | None, last: Reason | None = None
    ) -> PlacementOutcome:
        """Book the best placement, unless a date forbids it.  ``last``: the reason of the last round, if reused."""
        if best is None:
            return PlacementOutcome(reason=refusal or reasons.no_slot())
        reason = self._too_late(task, best)
        if reason:
            return PlacementOutcome(reason=reason)
        if best.start > self._now:
            are_quotas_same = not self._reuse.has_counted_more
            reason = self._placement_reasons.later_start(task, best, last, are_quotas_same=are_quotas_same)
        if reason and task.rules.is_now_only:
            return PlacementOutcome(reason=reason)
        self._bookings.enter(task.job, best, task.types)
        return PlacementOutcome(best, reason)

    def _too_late(self, task: PlacementTask, placement: Placement) -> Reason | None:
        """Return the dependency or the type whose date a placement does not meet."""
        if placement.start > task.window.latest:
            return reasons.broken_dependency(task.window.latest_job)
        if task.types.deadline and placement.end > task.types.deadline:
            return reasons.deadline(placement.end, task.types.deadline)
        if task.types.expire and placement.start > task.types.expire:
            return reasons.no_slot(f"it expires at {task.types.expire_text}")
        return None
