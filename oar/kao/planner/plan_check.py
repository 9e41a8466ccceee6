"""The check of a plan before it is written: no collisions, requests satisfied, resources of the right class.

It shares no search with the planner, so a fault is a bug of the planner.  The job with the fault is removed from the
plan: it loses one round, and no resource is given twice.

See docs/design/planner.rst, "Invariants".
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from oar.kao.facts import reasons
from oar.kao.facts.job_types import ParsedTypes, has_plugin, parse_types_or_none
from oar.kao.facts.plan import Placement, Plan
from oar.kao.facts.snapshot import Snapshot, WaitingJob
from oar.kao.facts.steps import Steps, portions, result_of
from oar.kao.planner.resources.compiled_requests import CompiledRequests
from oar.kao.planner.resources.node_memory import MemoryUse, NodeMemory
from oar.kao.planner.resources.resource_holders import held_resources
from oar.kao.planner.resources.spaces import reservation_occupation
from oar.kao.planner.resources.usable_resources import UsableResources
from oar.lib.base.resource_set import ResourceSet, union
from oar.lib.jobs.records import Memory
from oar.lib.jobs.states import Reservation
from oar.lib.nodes.hierarchy import RequestFit


class HolderCounts:
    """The counts of the holders of resources."""

    def __init__(self) -> None:
        self._planes: list[ResourceSet] = []

    @property
    def held(self) -> ResourceSet:
        return union(self._planes)

    def add(self, resources: ResourceSet) -> None:
        for index, plane in enumerate(self._planes):
            if not resources:
                return
            self._planes[index], resources = plane ^ resources, plane & resources
        if resources:
            self._planes.append(resources)

    def remove(self, resources: ResourceSet) -> None:
        """Remove one holder from each of these resources, which must have one."""
        for index, plane in enumerate(self._planes):
            if not resources:
                return
            self._planes[index], resources = plane ^ resources, ~plane & resources


@dataclass(frozen=True, slots=True)
class _Stay:
    """The occupation of resources by a job, from its start to the end of the security time."""

    job_id: int
    start: int
    end: int
    resources: ResourceSet
    types: ParsedTypes
    is_new: bool  #: by this plan; else it runs or is an accepted reservation
    is_running_job: bool = False  #: and no frame
    ignores_jobs: bool = False  #: a frame that may meet running jobs
    memory: MemoryUse = field(default_factory=dict)

    def may_meet(self, other: "_Stay") -> bool:
        """Return whether both jobs may use a resource at the same time."""
        is_ignored = (self.ignores_jobs and other.is_running_job) or (other.ignores_jobs and self.is_running_job)
        return is_ignored or self.types.may_share_with(other.types)


#: The dates and the resources that a container lends to its space.
_Loan = tuple[int, int, ResourceSet]


def faults_of(
    snapshot: Snapshot, plan: Plan, requests: CompiledRequests, checked: Mapping[int, Placement] | None = None
) -> dict[int, str]:
    """Return the faults of a plan by job id; ``checked``: placements of earlier rounds that are known to be right."""
    return result_of(looking_for_faults(snapshot, plan, requests, checked))


def looking_for_faults(
    snapshot: Snapshot, plan: Plan, requests: CompiledRequests, checked: Mapping[int, Placement] | None = None
) -> Steps[dict[int, str]]:
    """Find the faults of a plan in steps; the result is that of ``faults_of``."""
    jobs = {job.id: job for job in snapshot.waiting}
    new = [place for place in plan.placements if place.job_id in jobs and jobs[place.job_id].granted is None]
    check = _Check(snapshot, requests)
    outside = set(plan.outside)
    faults: dict[int, str] = {}
    for portion in portions(new):
        yield
        for placement in portion:
            if checked is None or checked.get(placement.job_id) is not placement:
                is_external = placement.job_id in outside
                fault = check.fault(jobs[placement.job_id], placement, is_external=is_external)
                if fault:
                    faults[placement.job_id] = fault
    all_stays = yield from check.stays(jobs, new)
    yield
    stays = [stay for stay in all_stays if stay.job_id not in faults]
    spaces = {name: stay.types.container for stay in stays for name in stay.types.container_names(stay.job_id)}
    for collision in _collisions(stays, spaces):
        if collision is None:
            yield
        else:
            faults.setdefault(collision[0], f"it meets job {collision[1]} on the same resources")
    for job_id, node in _without_memory(stays, check.nodes) if any(stay.memory for stay in stays) else ():
        faults.setdefault(job_id, f"{node} has too little memory for it")
    for stay in _outside_container(stays, spaces, _loans(snapshot, stays)):
        faults.setdefault(stay.job_id, f"it leaves its container {stay.types.inner}")
    return faults


def without(plan: Plan, faults: Mapping[int, str]) -> Plan:
    """Return the plan without the decisions on jobs with faults; these jobs get a reason."""
    internal = {job_id: reasons.internal(plan.now, fault) for job_id, fault in faults.items()}
    steps = {step.frame_id: step for step in plan.reservations if step.alternative >= 0}
    dropped = {id(steps[job_id]) for job_id in faults if job_id in steps}
    refusals = (f"[{job_id}] its place is refused: {fault}" for job_id, fault in faults.items())
    return replace(
        plan,
        placements=tuple(placement for placement in plan.placements if placement.job_id not in faults),
        reasons=dict(sorted({**plan.reasons, **internal}.items())),
        started=tuple(start for start in plan.started if start.placement.job_id not in faults),
        kills=tuple(kill for kill in plan.kills if kill.for_job not in faults),
        reservations=tuple(step for step in plan.reservations if id(step) not in dropped),
        accepted=tuple(answer for answer in plan.accepted if answer.job_id not in faults),
        troubles=(*plan.troubles, *refusals),
    )


class _Check:
    """Checks single placements, and collects the stays of all jobs."""

    def __init__(self, snapshot: Snapshot, requests: CompiledRequests) -> None:
        self._frames = {reservation.frame_id: reservation for reservation in snapshot.reservations}
        self._snapshot = snapshot
        self._usable = UsableResources(snapshot)
        self._requests = requests
        self._security_time = snapshot.settings.security_time

    @property
    def nodes(self) -> NodeMemory:
        return self._snapshot.resources.once(NodeMemory)

    def fault(self, job: WaitingJob, placement: Placement, *, is_external: bool) -> str:
        """Return the fault of a single placement; return '' if there is none.

        ``is_external``: an external scheduler chose it, so it need not satisfy the request.
        """
        resources = placement.resources & ~self._usable.shared
        alternative = next((each for each in job.alternatives if each.id == placement.alternative), None)
        if alternative is None or placement.walltime > alternative.walltime:
            return f"{placement.alternative} is no alternative of the job with that walltime"
        if not resources or placement.start < self._snapshot.now:
            return "it has no resources, or begins in the past"
        is_reservation = job.reservation is not Reservation.NONE
        usable = self._usable.by(parse_types_or_none(job), is_reservation=is_reservation)[1]
        unusable = resources & ~(self._usable.present if is_external else usable)
        if unusable:
            return f"resources {self._snapshot.resources.ids_of(unusable)} are not for this job"
        if resources & self._usable.leaving_before(self._end(placement)):
            return "it ends after a resource is gone"
        if is_external or has_plugin(job):
            return ""
        request = self._requests.of_alternative(alternative)
        fit = request.fit(resources) if isinstance(request, RequestFit) else 0
        is_steady = isinstance(request, RequestFit) and request.is_steady  # BESTHALF may take fewer
        return "" if fit and (fit == resources or not is_steady) else "its request is not satisfied"

    def _end(self, placement: Placement) -> int:
        """Return when other jobs may use the resources of a placement; no security time follows a frame."""
        return placement.end + (0 if placement.job_id in self._frames else self._security_time)

    def stays(self, jobs: Mapping[int, WaitingJob], new: Iterable[Placement]) -> Steps[list[_Stay]]:
        """Return the stays of all jobs except besteffort jobs, which may overlap with others."""
        snapshot, not_shared = self._snapshot, ~self._usable.shared
        stays = []
        for job in snapshot.running:
            end = max(job.end, snapshot.now) + self._security_time
            if job.id in self._frames:
                end = self._frames[job.id].end
            held = held_resources(job, snapshot.resources, snapshot.settings) & not_shared
            types, is_job = parse_types_or_none(job), job.id not in self._frames
            use = self._use(job.memory, job.resources & not_shared)
            stays.append(
                _Stay(job.id, job.start_time, end, held, types, is_new=False, is_running_job=is_job, memory=use)
            )
        for waiting in jobs.values():
            if waiting.granted:
                accepted = reservation_occupation(waiting, snapshot.settings)
                end = self._frames[waiting.id].end if waiting.id in self._frames else accepted.end
                held, types = accepted.resources & not_shared, parse_types_or_none(waiting)
                use = self._asked(waiting, waiting.granted.alternative, held)
                stays.append(_Stay(waiting.id, accepted.start, end, held, types, is_new=False, memory=use))
        for portion in portions(new):
            yield
            stays += [self._new_stay(jobs[placement.job_id], placement) for placement in portion]
        return [stay for stay in stays if not stay.types.is_besteffort]

    def _new_stay(self, job: WaitingJob, placement: Placement) -> _Stay:
        held = placement.resources & ~self._usable.shared
        frame = self._frames.get(job.id)
        ignores = frame is not None and frame.ignores_jobs
        types, end = parse_types_or_none(job), self._end(placement)
        use = self._asked(job, placement.alternative, held)
        return _Stay(job.id, placement.start, end, held, types, is_new=True, ignores_jobs=ignores, memory=use)

    def _asked(self, job: WaitingJob, alternative: int, resources: ResourceSet) -> MemoryUse:
        memory = next((each.memory for each in job.alternatives if each.id == alternative), None)
        return self._use(memory, resources)

    def _use(self, memory: Memory | None, resources: ResourceSet) -> MemoryUse:
        return self.nodes.use(memory, resources) if memory and self._snapshot.resources.memory else {}


def _loans(snapshot: Snapshot, stays: Iterable[_Stay]) -> dict[str, list[_Loan]]:
    """Return the loans of the containers by space; a suspended container lends all its resources."""
    all_resources = {job.id: job.resources for job in snapshot.running}
    loans: dict[str, list[_Loan]] = {}
    for stay in stays:
        if stay.types.container:
            loan = stay.start, stay.end, all_resources.get(stay.job_id, stay.resources)
            loans.setdefault(stay.types.container, []).append(loan)
    return loans


def _outside_container(
    stays: Iterable[_Stay], spaces: Mapping[str, str], loans: Mapping[str, Sequence[_Loan]]
) -> Iterator[_Stay]:
    for stay in stays:
        if not (stay.is_new and stay.types.inner):
            continue
        space = loans.get(spaces.get(stay.types.inner, ""), ())
        changes = {date for begin, end, _ in space for date in (begin, end)}
        for date in (stay.start, *(date for date in changes if stay.start < date < stay.end)):
            if stay.resources & ~union(members for begin, end, members in space if begin <= date < end):
                yield stay
                break


def _without_memory(stays: Sequence[_Stay], nodes: NodeMemory) -> Iterator[tuple[int, str]]:
    """Iterate over the new jobs for which a node has too little memory, with the node."""
    users: dict[int, list[_Stay]] = defaultdict(list)  #: by node, in the order of their starts
    for stay in sorted((stay for stay in stays if stay.memory), key=lambda stay: (stay.start, not stay.is_new)):
        for number in stay.memory:
            users[number].append(stay)
    for number, there in users.items():
        present: list[_Stay] = []
        for stay in there:
            present = [each for each in present if each.end > stay.start] + [stay]
            used = sum(each.memory[number] for each in present)
            latest = next((each for each in reversed(present) if each.is_new), None)
            if latest and used > nodes.capacities[number]:
                present.remove(latest)
                yield latest.job_id, nodes.names[number]


def _collisions(stays: Sequence[_Stay], spaces: Mapping[str, str]) -> Iterator[tuple[int, int] | None]:
    """Iterate over the pairs of jobs that meet, the one to refuse first; None marks the end of a step."""
    events = [(stay.start, 1, index) for index, stay in enumerate(stays)]
    events += [(stay.end, 0, index) for index, stay in enumerate(stays)]
    yield None
    events.sort()
    present: dict[str, dict[int, _Stay]] = defaultdict(dict)  #: by space
    holders: dict[str, HolderCounts] = defaultdict(HolderCounts)
    for portion in portions(events):
        yield None
        for _, is_start, index in portion:
            stay = stays[index]
            space = spaces.get(stay.types.inner, "")
            others = present[space]
            if not is_start:
                if others.pop(index, None):
                    holders[space].remove(stay.resources)
                continue
            if holders[space].held & stay.resources:
                yield from _pairs(index, stay, others)
            others[index] = stay
            holders[space].add(stay.resources)


def _pairs(index: int, stay: _Stay, others: Mapping[int, _Stay]) -> Iterator[tuple[int, int]]:
    for other_index, other in others.items():
        is_collision = bool(other.resources & stay.resources) and (stay.is_new or other.is_new)
        if is_collision and not stay.may_meet(other):
            late, early = (stay, other) if index > other_index else (other, stay)
            yield late.job_id, early.job_id
