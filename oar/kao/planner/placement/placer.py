"""The placement of one job: checks, search or reuse, and booking. See docs/design/planner.rst, "Placement"."""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple

from oar.kao.facts import reasons
from oar.kao.facts.job_types import NO_TYPES, ParsedTypes, has_plugin
from oar.kao.facts.plan import Placement, Reason
from oar.kao.facts.snapshot import WaitingJob
from oar.kao.planner.limits.dependencies import MISSED_WINDOW, Dependencies, StartWindow
from oar.kao.planner.placement.placement_reuse import PlacementReuse
from oar.kao.planner.placement.placement_search import PlacementSearch
from oar.kao.planner.placement.placement_task import NO_PROGRESS, PlacementRules, PlacementTask, Upcoming
from oar.kao.planner.placement.round_context import RoundContext
from oar.kao.planner.placement.round_memory import SearchRecord
from oar.kao.planner.resources.spaces import Containers

#: No placements, or no reasons.
_NONE: Mapping[int, Any] = MappingProxyType({})


class PlacementOutcome(NamedTuple):
    """The result for a job or a wave: for each job a placement, a reason why it does not start now, or both."""

    placements: Mapping[int, Placement] = _NONE
    reasons: Mapping[int, Reason] = _NONE
    error: str = ""  #: the job can never run: it goes to toError with this message
    jobs: Sequence[WaitingJob] = ()  #: those for which it is the outcome; ``placements`` are in their order

    @classmethod
    def refused(cls, job: WaitingJob, reason: Reason) -> "PlacementOutcome":
        return cls(reasons={job.id: reason}, jobs=(job,))

    @property
    def start(self) -> int:
        return next(iter(self.placements.values())).start


class Placer:
    """Places jobs one after the other; each booking leaves less to later jobs."""

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
        self._common = context.spaces.common
        self._requests = context.requests
        self._containers = containers
        self._dependencies = dependencies
        self._search = search
        self._placement_reasons = search.reasons
        self._reuse = reuse

    def place(
        self, job: WaitingJob, types: ParsedTypes, rules: PlacementRules, upcoming: Upcoming | None = None
    ) -> PlacementOutcome:
        """Place a job, and equal jobs of ``upcoming``; book and return the placements, or return the reasons."""
        task = self.checked(job, types, rules, upcoming)
        return self.place_checked(task) if isinstance(task, PlacementTask) else task

    def checked(
        self, job: WaitingJob, types: ParsedTypes, rules: PlacementRules, upcoming: Upcoming | None = None
    ) -> PlacementTask | PlacementOutcome:
        """Return the task for the search; return an outcome if the job gets no placement."""
        upcoming = upcoming or Upcoming((job,), 0)
        if types is NO_TYPES and not (job.dependencies or rules.not_before):  # most jobs need no checks
            return PlacementTask(job, types, rules, self._common, self._dependencies.any_time, upcoming)
        return self._checked(job, types, rules, upcoming)

    def _checked(
        self, job: WaitingJob, types: ParsedTypes, rules: PlacementRules, upcoming: Upcoming
    ) -> PlacementTask | PlacementOutcome:
        """Check a job with types, dependencies or a first date, as ``checked`` does."""
        self._containers.note_turn(job)
        error = self.error(job, types)
        if error:
            return PlacementOutcome(error=error)
        space = self._containers.space_of(types)
        if isinstance(space, Reason):
            return PlacementOutcome.refused(job, space)
        window = self._dependencies.window(job, rules.dependency_condition)
        if window is None:
            return PlacementOutcome(error=MISSED_WINDOW)
        if isinstance(window, Reason):
            return PlacementOutcome.refused(job, window)
        if rules.not_before:
            window = window.intersected(StartWindow(rules.not_before))
        shortage = self._bookings.tokens.shortage(types)
        if shortage:
            return PlacementOutcome.refused(job, shortage)
        return PlacementTask(job, types, rules, space, window, upcoming)

    def note_turn(self, job: WaitingJob) -> None:
        """Record the turn of a job that is not checked now."""
        self._containers.note_turn(job)

    def earliest(self, job: WaitingJob, types: ParsedTypes, rules: PlacementRules) -> int | Reason:
        """Return the earliest possible start of a job with the current bookings, without booking it.

        Later bookings cannot make it earlier.  Return a Reason if the job can never start.
        """
        space = self._containers.space_of(types)
        window = self._dependencies.window(job, rules.dependency_condition)
        if isinstance(space, Reason) or not isinstance(window, StartWindow):
            return self._now  # the container or the required job may be planned later
        return self._search.earliest(PlacementTask(job, types, rules, space, window, Upcoming((job,), 0)))

    def error(self, job: WaitingJob, types: ParsedTypes) -> str:
        """Return why a job can never run; return '' if it may."""
        if types.unreadable_date:
            return f"Cannot read the date of type {types.unreadable_date}"
        if types.expire and self._now > types.expire:
            return f"Job will never run (expire={types.expire_text}), setting it to error"
        if types.deadline and self._now + job.shortest_walltime > types.deadline:
            return f"Job will never run (deadline={types.deadline_text}), setting it to error"
        return self._containers.error(job, types)

    def place_checked(self, task: PlacementTask) -> PlacementOutcome:
        """Book the last round's placement of a job or wave again, or search for the best one."""
        if task.rules.depth:
            return self._place_now(task)
        is_new = task.progress is NO_PROGRESS  # a resumed search has checked for reuse before
        last = None
        if is_new and self._reuse.had_search(task):
            job, types, has_quotas = task.job, task.types, task.rules.has_quotas
            counters = self._bookings.counters_of(job, types, has_quotas=has_quotas)
            is_allowed = partial(self._bookings.allow, job, types, has_quotas=has_quotas)
            last = self._reuse.find(task, counters, is_allowed)
        record = self._again(task, last) if last else self._searched(task)
        self._reuse.record(task, record)
        return PlacementOutcome(record.placements, record.reasons, jobs=record.jobs)

    def _searched(self, task: PlacementTask) -> SearchRecord:
        """Search for the best placement and book it, with those of equal jobs; return the record for the next round."""
        best, obstacle = self._search.last(task)
        refusal = self._refusal(task, best, obstacle)
        if best is None or refusal:
            refused = (task.job, *task.upcoming.equal(task.types))
            refusals = dict.fromkeys([job.id for job in refused], refusal or reasons.no_slot())
            return self._record_of(task, refused, best, {}, refusals)
        jobs, placements, later = self._book(task, self._search.wave(task, best), {})
        return self._record_of(task, jobs, best, placements, later)

    def _again(self, task: PlacementTask, last: SearchRecord) -> SearchRecord:
        """Book the placements of the last round; return the record for the next round."""
        if self._reuse.has_same_reasons(task, last):
            if last.placements:
                self._bookings.enter_wave(last.jobs, last.placements, task.types)
            return last
        best = last.best
        refusal = self._refusal(task, best, next(iter(last.reasons.values()), None))
        if best is None or refusal:
            refusals = dict.fromkeys(last.reasons, refusal or reasons.no_slot())
            return last._replace(window=task.window, reasons=refusals)
        places = zip(last.jobs, last.placements.values() or (best,), strict=True)
        jobs, placements, later = self._book(task, places, last.reasons)
        return last._replace(jobs=jobs, window=task.window, placements=placements, reasons=later)

    def _place_now(self, task: PlacementTask) -> PlacementOutcome:
        found = self._search.now(task)
        if not isinstance(found, Placement):
            return PlacementOutcome.refused(task.job, found or reasons.behind_depth(task.rules.depth))
        refusal = self._refusal(task, found, None)
        if refusal:
            return PlacementOutcome.refused(task.job, refusal)
        jobs, placements, later = self._book(task, [(task.job, found)], {})
        return PlacementOutcome(placements, later, jobs=jobs)

    def _record_of(
        self,
        task: PlacementTask,
        jobs: Sequence[WaitingJob],
        best: Placement | None,
        placements: Mapping[int, Placement],
        later: Mapping[int, Reason],
    ) -> SearchRecord:
        """Return the record of a search for the next round."""
        # for a besteffort job, the lasting resources depend on each start tried
        has_lasting_resources = task.types.is_besteffort and not self._requests.are_robust(task.job)
        is_by_rule = not (task.date_dependent or task.job.promised or has_plugin(task.job))
        # memory that others free or use is not among the differences that are recorded
        is_by_rule &= not any(alternative.memory for alternative in task.job.alternatives)
        return SearchRecord(
            jobs,
            task.window,
            best,
            placements,
            later,
            is_reusable=is_by_rule and not has_lasting_resources,
            possible_from=task.possible_from,
        )

    def _refusal(self, task: PlacementTask, best: Placement | None, obstacle: Reason | None) -> Reason | None:
        """Return why ``best`` is not valid, or ``obstacle`` if nothing was found; return None if it is valid."""
        if best is None:
            return obstacle or reasons.no_slot()
        if best.start > task.window.latest:
            return reasons.broken_dependency(task.window.latest_job)
        if task.types.deadline and best.end > task.types.deadline:
            return reasons.deadline(best.end, task.types.deadline)
        if task.types.expire and best.start > task.types.expire:
            return reasons.no_slot(f"it expires at {task.types.expire_text}")
        return self._placement_reasons.lack_of_memory(task.job, task.types, best)

    def _book(
        self, task: PlacementTask, places: Iterable[tuple[WaitingJob, Placement]], last: Mapping[int, Reason]
    ) -> tuple[Sequence[WaitingJob], Mapping[int, Placement], Mapping[int, Reason]]:
        """Book the placement of a job, or those of a wave.

        Return the jobs, the placements, and the reasons why they start later.  ``last``: the reasons of the last round,
        if the placements are those of the last round.
        """
        jobs: list[WaitingJob] = []
        placements: dict[int, Placement] = {}
        later: dict[int, Reason] = {}
        are_quotas_same = self._reuse.are_limits_same
        for job, placement in places:
            jobs.append(job)
            if placement.start > self._now:
                later[job.id] = self._placement_reasons.later_start(
                    task, placement, last.get(job.id), are_quotas_same=are_quotas_same
                )
                if task.rules.is_now_only:
                    return jobs, {}, later
            placements[job.id] = placement
            self._bookings.count(job, placement, task.types)
        self._bookings.occupy(placements, task.types)
        return jobs, placements, later
