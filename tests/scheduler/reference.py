"""A second planner, as slow and plain as the text of the rules: every instant at which anything changes is tried."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from oar.kao.facts.job_types import ParsedTypes, SharingKey, parse_types
from oar.kao.facts.plan import Placement
from oar.kao.facts.snapshot import FOREVER, Alternative, Snapshot, WaitingJob
from oar.lib.base.resource_set import positions
from oar.lib.jobs.records import Memory
from oar.lib.jobs.states import JobState, Reservation
from oar.lib.nodes.hierarchy import PooledGroup
from oar.lib.nodes.records import PropertyValue
from oar.lib.nodes.states import ResourceState
from tests.unit.test_hierarchy import naive_fit


@dataclass(frozen=True)
class Occupation:
    """A job somewhere from when to when."""

    job: int
    space: str
    start: int
    end: int
    resources: int
    key: SharingKey | None = None
    is_besteffort: bool = False


@dataclass(frozen=True)
class Use:
    """The memory of a job: MiB by node."""

    start: int
    end: int
    mib: Mapping[str, int]
    is_besteffort: bool


@dataclass
class Reference:
    """The plan of a snapshot by trying everything.  Containers and required jobs must come before who needs them."""

    snapshot: Snapshot
    placed: dict[int, Placement] = field(default_factory=dict)
    there: list[Occupation] = field(default_factory=list)
    rectangles: list[Occupation] = field(default_factory=list)
    uses: list[Use] = field(default_factory=list)
    #: queue, container and whether it is about besteffort jobs -> how many wait and have a place
    waiting: Counter[tuple[str, str, bool]] = field(default_factory=Counter)
    is_forbidden: Callable[[WaitingJob, Placement, Mapping[int, Placement]], bool] = lambda *_: False

    def plan(self) -> dict[int, Placement]:
        """Return the placements of all jobs but new reservations."""
        self._fill()
        jobs = self.snapshot.waiting
        priorities = {queue.name: queue.priority for queue in self.snapshot.queues}
        ordinary = [job for job in jobs if job.reservation is Reservation.NONE]
        for wants_besteffort in (False, True):
            for job in sorted(ordinary, key=lambda job: (-priorities[job.queue], job.id)):
                if parse_types(job).is_besteffort is wants_besteffort:
                    self._place(job)
        return self.placed

    def _fill(self) -> None:
        now, gap = self.snapshot.now, self.snapshot.settings.security_time
        for job in self.snapshot.running:
            types, end = parse_types(job), job.start_time + job.walltime + job.suspended_time
            lent = self.snapshot.settings.suspended_types if job.state is JobState.SUSPENDED else ()
            kept = sum(1 << bit for bit in positions(job.resources) if self.snapshot.resources.types[bit] not in lent)
            self._enter(job.id, types, job.start_time, max(end, now) + gap, kept)
            self._use(job.memory, types, job.start_time, max(end, now) + gap, job.resources)
            if types.container:
                self._open(job.id, types, job.start_time, end + gap, job.resources)
        for job_ in self.snapshot.waiting:
            if job_.granted:
                walltime = job_.alternatives[0].walltime
                self._enter(
                    job_.id,
                    parse_types(job_),
                    job_.start_time,
                    job_.start_time + walltime + gap,
                    job_.granted.resources,
                )
                memory, end = job_.alternatives[0].memory, job_.start_time + walltime + gap
                self._use(memory, parse_types(job_), job_.start_time, end, job_.granted.resources)

    def _use(self, memory: Memory | None, types: ParsedTypes, start: int, end: int, resources: int) -> None:
        if memory and self.snapshot.resources.memory:
            counts = Counter(self.snapshot.resources.addresses[bit] for bit in positions(resources))
            mib = {node: memory.mib * (count if memory.is_per_core else 1) for node, count in counts.items()}
            self.uses.append(Use(start, end, mib, types.is_besteffort))

    def _enter(self, job: int, types: ParsedTypes, start: int, end: int, resources: int) -> None:
        known = {each.space for each in self.rectangles} | {types.inner}
        space = types.inner if types.inner in known else ""
        self.there.append(Occupation(job, space, start, end, resources, types.sharing_key, types.is_besteffort))

    def _open(self, job: int, types: ParsedTypes, start: int, end: int, resources: int) -> None:
        self.rectangles.append(Occupation(job, types.container, max(start, self.snapshot.now), end, resources))

    def _place(self, job: WaitingJob) -> None:
        types = parse_types(job)
        now, settings = self.snapshot.now, self.snapshot.settings
        begin, latest, waits_for_jobs = max(now, types.postpone), FOREVER, now
        for dependency in job.dependencies:
            end = self._end_of(dependency.required)
            if end is None:
                return
            waits_for_jobs = max(waits_for_jobs, end + settings.security_time)
        begin = max(begin, waits_for_jobs)
        if types.inner:
            rectangles = [each for each in self.rectangles if each.space == types.inner]
            if not rectangles:
                return
            begin = max(begin, min(each.start for each in rectangles))
        found = [self._earliest(job, types, alternative, begin) for alternative in job.alternatives]
        line, depth = (job.queue, types.inner, types.is_besteffort), settings.backfill_depth(job.queue)
        if 0 < depth <= self.waiting[line]:
            found = [each for each in found if each and each.start == now]
        best = min((each for each in found if each), key=lambda placement: placement.end, default=None)
        if best is None or (types.deadline and best.end > types.deadline) or best.start > latest:
            return
        if types.expire and best.start > types.expire:
            return
        self.placed[job.id] = best
        self.waiting[line] += best.start not in (now, types.postpone, waits_for_jobs)
        self._enter(job.id, types, best.start, best.end + settings.security_time, best.resources)
        memory = job.alternative(best.alternative).memory
        self._use(memory, types, best.start, best.end + settings.security_time, best.resources)
        if types.container:
            self._open(job.id, types, best.start, best.end + settings.security_time, best.resources)

    def _end_of(self, job: int) -> int | None:
        for running in self.snapshot.running:
            if running.id == job:
                return max(running.start_time + running.walltime + running.suspended_time, self.snapshot.now)
        return self.placed[job].end if job in self.placed else None

    def _earliest(self, job: WaitingJob, types: ParsedTypes, alternative: Alternative, begin: int) -> Placement | None:
        settings = self.snapshot.settings
        duration = alternative.walltime + settings.security_time
        if types.is_besteffort and settings.besteffort_duration:
            duration = min(duration, max(settings.besteffort_duration, settings.security_time))
        duration = max(duration, settings.hole_minimum)
        groups = tuple(
            PooledGroup(self.snapshot.pools[group.pool].members, group.levels) for group in alternative.groups
        )
        for start in (begin, *(date for date in self._dates() if date > begin)):
            free = self.free(types, start, start + duration)
            if types.is_besteffort:  # a short gap is enough, but the resources must stay
                free &= self._staying(start + alternative.walltime + settings.security_time)
            if alternative.memory and self.snapshot.resources.memory:
                pools, able = self.with_memory(alternative.memory, groups, types, start, start + duration)
                resources = naive_fit(self._columns(), self.snapshot.resources.order, pools, able(free))
            else:
                resources = naive_fit(self._columns(), self.snapshot.resources.order, groups, free)
            place = Placement(job.id, alternative.id, start, alternative.walltime, resources)
            if resources and not self.is_forbidden(job, place, self.placed):
                return place
        return None

    def _columns(self) -> Mapping[str, Sequence[PropertyValue]]:
        return self.snapshot.resources.columns

    def _dates(self) -> list[int]:
        limits = [date for date in self.snapshot.resources.available_upto if 1 < date < 2147483646]
        everything = (*self.there, *self.rectangles)
        periods = [each.begin for each in self.snapshot.quotas.periods] if self.snapshot.quotas else []
        gap = self.snapshot.settings.security_time
        counted = [each.end - gap for each in everything]  # without the gap a job does not count in quotas
        dates = {date for each in everything for date in (each.start, each.end)}
        return sorted(dates | {*limits, *periods, *counted})

    def free(self, types: ParsedTypes, start: int, end: int) -> int:
        """Return what is free for a job at every instant."""
        free = self._usable(types)
        for date in (start, *(each for each in self._dates() if start < each < end)):
            free &= self._room(types.inner, date)
            for each in self.there:
                is_seen = each.space == types.inner and each.start <= date < each.end
                if is_seen and (types.is_besteffort or not each.is_besteffort) and each.key not in types.shared_keys:
                    free &= ~each.resources
        return free

    def with_memory(
        self, memory: Memory, groups: tuple[PooledGroup, ...], types: ParsedTypes, start: int, end: int
    ) -> tuple[tuple[PooledGroup, ...], Callable[[int], int]]:
        """Return the pools of the groups, and a function that leaves of what is free what has memory all the time."""
        resources = self.snapshot.resources
        bits: dict[str, list[int]] = {}
        for bit in resources.order:
            bits.setdefault(resources.addresses[bit], []).append(bit)
        capacity = {node: min(resources.memory[bit] for bit in each) for node, each in bits.items()}
        left = {node: capacity[node] - self._most_used(node, types, start, end) for node in bits}
        counts = _known_counts(memory, groups, bits)
        needs = {node: memory.mib * (counts[node] if counts else 1) for node in bits}
        rich = sum(1 << bit for node, each in bits.items() if capacity[node] >= needs[node] for bit in each)
        pools = tuple(PooledGroup(group.pool & rich, group.levels) for group in groups)

        def able(free: int) -> int:
            kept = 0
            for node, each in bits.items():
                there = [bit for bit in each if free >> bit & 1]
                most = len(there) * (left[node] >= needs[node]) if counts else max(0, left[node]) // memory.mib
                kept |= sum(1 << bit for bit in there[:most])
            return kept

        return pools, able

    def _most_used(self, node: str, types: ParsedTypes, start: int, end: int) -> int:
        seen = [each for each in self.uses if types.is_besteffort or not each.is_besteffort]
        dates = {start, *(each.start for each in seen if start < each.start < end)}
        return max(sum(each.mib.get(node, 0) for each in seen if each.start <= date < each.end) for date in dates)

    def _room(self, space: str, date: int) -> int:
        """Return what there is at all in a space."""
        if space:
            inside = [each for each in self.rectangles if each.space == space and each.start <= date < each.end]
            return _union(each.resources for each in inside) & self._staying(date + 1)
        limits = enumerate(self.snapshot.resources.available_upto)
        return sum(1 << bit for bit, upto in limits if not (1 < upto < 2147483646 and date >= upto))

    def _staying(self, end: int) -> int:
        limits = enumerate(self.snapshot.resources.available_upto)
        return sum(1 << bit for bit, upto in limits if not 1 < upto < min(end, 2147483646))

    def _usable(self, types: ParsedTypes) -> int:
        usable = {ResourceState.ALIVE}
        if types.is_permissive:
            usable |= {ResourceState.ABSENT, ResourceState.SUSPECTED}
        states = enumerate(self.snapshot.resources.states)
        return sum(1 << bit for bit, state in states if state in usable)


def _known_counts(
    memory: Memory, groups: Sequence[PooledGroup], bits: Mapping[str, Sequence[int]]
) -> Mapping[str, int] | None:
    """Return how many resources a request takes of each node; None if that is not known before."""
    if not memory.is_per_core:
        return dict.fromkeys(bits, 1)
    names = [level.property for level in groups[0].levels]
    if len(groups) > 1 or "node" not in names or "core" in names[: names.index("node")]:
        return None
    inner = groups[0].levels[names.index("node") + 1 :]
    if not inner:
        return {node: sum(groups[0].pool >> bit & 1 for bit in each) for node, each in bits.items()}
    return dict.fromkeys(bits, inner[0].quantity) if inner[0].quantity > 0 else None


def _union(sets: Iterator[int]) -> int:
    total = 0
    for each in sets:
        total |= each
    return total
