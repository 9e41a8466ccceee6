"""Why a job gets no placement, or why its placement does not start earlier; and the names of those in the way.

The texts are in ``oar/kao/facts/reasons.py``.

See docs/design/planner.rst, "Reasons".
"""

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from oar.kao.facts import reasons
from oar.kao.facts.job_types import ParsedTypes, has_plugin
from oar.kao.facts.plan import Placement, Reason
from oar.kao.facts.snapshot import Alternative, PlannedReservation, RequestGroup, WaitingJob
from oar.kao.planner.placement.placement_task import PlacementTask
from oar.kao.planner.placement.round_context import RoundContext
from oar.kao.planner.resources.memory_requests import MemoryRequest
from oar.kao.planner.resources.slots import SlotQuery
from oar.kao.planner.resources.spaces import Space
from oar.lib.base.resource_set import ResourceSet
from oar.lib.base.texts import enumerated
from oar.lib.jobs.reasons import ReasonCode
from oar.lib.jobs.records import Level
from oar.lib.nodes.hierarchy import RequestFit

#: So many obstacles are named in a refusal.
MAX_NAMED = 5


class Obstacles:
    """Lists the names of the jobs and advance reservations that hold resources."""

    def __init__(self, context: RoundContext) -> None:
        self._numbers = {each.frame_id: each.number for each in context.snapshot.reservations}

    def named(self, space: Space, resources: ResourceSet, start: int, end: int, asleep: Sequence[str] = ()) -> str:
        """Return the holders of these resources between two dates, in brackets; return '' if there are none.

        ``asleep``: the names of the suspended jobs that keep some of the resources.
        """
        holders = dict.fromkeys(
            self._name(job_id)
            for occupation, _ in space.entered
            if occupation.start < end and occupation.end > start and occupation.resources & resources
            for job_id, held in occupation.holders()
            if held & resources and f"suspended {self._name(job_id)}" not in asleep
        )
        names = [*holders, *asleep]
        return f" ({enumerated(names, MAX_NAMED)})" if names else ""

    def _name(self, job_id: int) -> str:
        if job_id not in self._numbers:
            return f"job {job_id}"
        number = self._numbers[job_id]
        return f"advance reservation {number}" if number else "another one of its series"


class PlacementReasons:
    """Computes the reasons for the results of searches."""

    def __init__(self, context: RoundContext) -> None:
        self._snapshot = context.snapshot
        self._bookings = context.bookings
        self._spaces = context.spaces
        self._usable = context.usable
        self._requests = context.requests
        self._frames = {each.frame_id: each for each in context.snapshot.reservations}
        self._overdue = context.snapshot.overdue()
        self._behind: Collection[int] = ()  #: as in ``without``
        #: class of jobs, container, request, its groups (two filters may have one pool) -> the obstacle
        self._obstacles: dict[tuple[object, ...], Reason | None] = {}

    # -------------------------------------------------------------------------------------------------- no placement

    def obstacle(self, query: SlotQuery, alternative: Alternative, types: ParsedTypes) -> Reason | None:
        """Return why a request is not satisfied even if all resources are free; return None if it is satisfied."""
        key = query.kind, types.inner, id(query.request), alternative.groups
        try:
            return self._obstacles[key]
        except KeyError:
            obstacle = self._obstacles[key] = self._find_obstacle(query, alternative, types)
            return obstacle

    def never_free(self, query: SlotQuery, types: ParsedTypes) -> Reason:
        """Return why the resources of a query are never free for its duration."""
        if reservation := self._reservation_around(types):
            left = reservation.latest_job_end - max(self._snapshot.now, reservation.start)
            if query.duration > left + self._snapshot.settings.security_time:
                return reasons.reservation_short(reservation.number, max(left, 0))
            return reasons.reservation_full(reservation.number)
        if types.inner:
            return reasons.container_full(types.inner)
        limits = [date for date, resources in self._usable.limits.items() if resources & query.usable]
        return reasons.leaving(min(limits)) if limits else reasons.no_slot()

    def _reservation_around(self, types: ParsedTypes) -> PlannedReservation | None:
        """Return the advance reservation whose frame is the container of a job; return None if there is none."""
        return self._frames.get(int(types.inner)) if types.inner.isdecimal() else None

    def _find_obstacle(self, query: SlotQuery, alternative: Alternative, types: ParsedTypes) -> Reason | None:
        usable = self._usable
        if not query.request.fit(usable.present):
            lack = self._lack_of_memory(alternative)
            return lack or self._impossible(alternative)
        if query.usable != usable.present and not query.request.fit(query.usable):
            return self._not_alive(alternative)
        if types.inner and self._spaces.size_of(types.inner) < query.request.least:
            size, reservation = self._spaces.size_of(types.inner), self._reservation_around(types)
            if reservation:
                return reasons.reservation_small(reservation.number, size)
            return reasons.container_small(types.inner, size)
        return None

    def _not_alive(self, alternative: Alternative) -> Reason:
        resources, usable = self._snapshot.resources, self._usable
        members = 0
        for group in alternative.groups:
            members |= self._snapshot.pools[group.pool].members
        suspected, absent = members & usable.suspected, members & usable.absent & ~usable.wakeable
        counts = suspected.bit_count(), absent.bit_count()
        return reasons.not_alive(resources.nodes_of(suspected), resources.nodes_of(absent), counts)

    def _lack_of_memory(self, alternative: Alternative) -> Reason | None:
        """Return the reason of a request that could be satisfied if memory were not counted."""
        memory, ledger = alternative.memory, self._spaces.memory
        if not (memory and ledger and self._is_satisfied(alternative.groups)):
            return None
        return reasons.too_little_memory(memory, max(ledger.nodes.capacities, default=0))

    def _impossible(self, alternative: Alternative) -> Reason:
        """Name the first group that cannot be satisfied with those before it, and the quantity that could be."""
        groups = alternative.groups
        count = next((size for size in range(1, len(groups)) if not self._is_satisfied(groups[:size])), len(groups))
        group = groups[count - 1]
        matching = (self._snapshot.pools[group.pool].members & self._usable.present).bit_count()
        nearest = self._nearest_level(groups[: count - 1], group) if matching else None
        return reasons.impossible(self._requests.filter_text(group), group.levels, matching, nearest)

    def _is_satisfied(self, groups: tuple[RequestGroup, ...]) -> bool:
        """Return whether the present resources satisfy these groups if all are free."""
        request = self._requests.get(groups)
        return isinstance(request, RequestFit) and bool(request.fit(self._usable.present))

    def _nearest_level(self, groups_before: tuple[RequestGroup, ...], group: RequestGroup) -> Level | None:
        """Return the level of a group, with the largest quantity that can be satisfied; return None if none can.

        If several levels do, return the level with the smallest relative reduction.
        """
        nearest: list[tuple[float, Level]] = []
        for index, level in enumerate(group.levels):
            low, high = 0, level.quantity
            while high - low > 1:
                middle = Level(level.property, (low + high) // 2)
                levels = (*group.levels[:index], middle, *group.levels[index + 1 :])
                is_satisfied = self._is_satisfied((*groups_before, RequestGroup(group.pool, levels)))
                low, high = (middle.quantity, high) if is_satisfied else (low, middle.quantity)
            if low > 0:
                nearest.append((low / level.quantity, Level(level.property, low)))
        return max(nearest, key=lambda candidate: candidate[0])[1] if nearest else None

    # ------------------------------------------------------------------------------------------------ a later start

    @contextmanager
    def without(self, behind: Collection[int]) -> Iterator[None]:
        """Ignore the jobs ``behind`` in the reasons of a job: they are placed, but later in the planning order."""
        self._behind = behind
        try:
            yield
        finally:
            self._behind = ()

    def later_start(
        self, task: PlacementTask, placement: Placement, last: Reason | None, *, are_quotas_same: bool
    ) -> Reason:
        """Return why a job does not start now.

        ``last``: the reason of the last round, if the placement is reused.  ``are_quotas_same``: the quota in ``last``
        is still valid.  That is so if the same jobs are counted and the same jobs are past their planned end as in the
        last round.
        """
        start = placement.start
        rule = self._rule_of_job(task, placement) or self._quota(task, placement, last if are_quotas_same else None)
        if rule:
            return rule
        jobs = task.space.ending_at(start, placement.resources)
        if self._behind:
            jobs = [job for job in jobs if job not in self._behind]
        if not self._overdue.isdisjoint(jobs):
            frames = [self._frames[job].number for job in jobs if job in self._frames]
            return reasons.overdue(frames, [job for job in jobs if job not in self._frames])
        if around := self._reservation_around(task.types):
            if start == around.start:
                return reasons.before_reservation(around.number, start)
            return reasons.reservation_busy(around.number, start, jobs)
        if not jobs and task.types.inner:
            return reasons.container_until(task.types.inner, start)
        return self._too_little_memory(task, placement) or self._until_others_end(start, jobs, last)

    def _too_little_memory(self, task: PlacementTask, placement: Placement) -> Reason | None:
        """Return the reason of a job that could start now if memory were not counted, with the node of most use."""
        ledger = self._spaces.memory
        if ledger is None or placement.job_id != task.job.id:  # jobs with memory are in no wave
            return None
        alternative = task.job.alternative(placement.alternative)
        request = self._requests.of_alternative(alternative)
        if not (alternative.memory and isinstance(request, MemoryRequest)):
            return None
        is_reservation = task.rules.is_reservation
        usable = self._usable.by(task.types, is_reservation=is_reservation)[1] & self._usable.alive
        now = self._snapshot.now
        end = now + alternative.walltime + self._snapshot.settings.security_time
        free = task.space.free_between(now, end, task.types.shared_keys) & usable & request.base.reach
        if not request.base.fit(free):
            return None
        number, count = ledger.nodes.nodes_of(free).most_common(1)[0]
        mib = ledger.free(number, now, end, with_besteffort=task.types.is_besteffort)
        node = ledger.nodes.names[number]
        return reasons.waits_for_memory(placement.start, alternative.memory, node, (count, max(mib, 0)))

    def lack_of_memory(self, job: WaitingJob, types: ParsedTypes, placement: Placement) -> Reason | None:
        """Return the reason if a plug-in chose resources whose nodes have too little memory for the job."""
        memory, ledger = job.alternative(placement.alternative).memory, self._spaces.memory
        if not (memory and ledger and has_plugin(job)):
            return None
        end, nodes = placement.end + self._snapshot.settings.security_time, ledger.nodes
        counts = nodes.nodes_of(placement.resources)
        for number, mib in nodes.use(memory, placement.resources).items():
            free = ledger.free(number, placement.start, end, with_besteffort=types.is_besteffort)
            if free < mib:
                return reasons.plugin_without_memory(memory, nodes.names[number], (counts[number], max(free, 0)))
        return None

    def not_yet(self, task: PlacementTask, begin: int) -> Reason:
        """Return why a job may not start before ``begin``, regardless of free resources."""
        if begin == task.types.postpone:
            return reasons.postponed(begin)
        if begin == task.window.begin:
            return self._after_required(task.window.begin_job, begin)
        if around := self._reservation_around(task.types):
            return reasons.before_reservation(around.number, begin)
        return reasons.container_until(task.types.inner, begin)

    def _until_others_end(self, start: int, jobs: Sequence[int], last: Reason | None) -> Reason:
        """Return the reason of a job that waits for the jobs ending at ``start``; reuse ``last`` if it is equal."""
        booked = self._bookings.reservations
        if not self._frames.keys().isdisjoint(jobs):
            frames = [self._frames[job].number for job in jobs if job in self._frames]
            return reasons.reserved_for_others(start, frames, [job for job in jobs if job not in self._frames])
        if not booked.isdisjoint(jobs):
            reservations = [job for job in jobs if job in booked]
            return reasons.behind(start, reservations, [job for job in jobs if job not in booked])
        return last if last and reasons.is_busy(last, start, jobs) else reasons.busy(start, jobs)

    def _rule_of_job(self, task: PlacementTask, placement: Placement) -> Reason | None:
        """Return why no earlier start is allowed (type, dependency or array limit); return None if it is."""
        start = placement.start
        if start == task.types.postpone:
            return reasons.postponed(start)
        if start == task.window.begin:
            return self._after_required(task.window.begin_job, start)
        if task.job.array_limit and self._bookings.arrays.first_start(task.job, start - 1, placement.walltime) >= start:
            overdue = self._bookings.arrays.overdue(task.job)
            return reasons.array_limit(task.job.array_id, task.job.array_limit, overdue)
        return None

    def _after_required(self, job: int, date: int) -> Reason:
        return reasons.overdue_dependency(job) if job in self._overdue else reasons.dependency_until(job, date)

    def _quota(self, task: PlacementTask, placement: Placement, last: Reason | None) -> Reason | None:
        """Return the quota that forbids a start one second earlier, that of ``last`` if given; None without one."""
        if not task.rules.has_quotas:
            return None
        if last:
            return last if last.code is ReasonCode.QUOTA else None
        earlier = replace(placement, start=placement.start - 1)
        excess = self._bookings.quotas.refusal(task.job, task.types, earlier)
        if not excess:
            return None
        overdue = self._bookings.quotas.overdue(excess.rule, task.job)
        return reasons.quota(excess.rule, excess.usage, placement.start, overdue)
