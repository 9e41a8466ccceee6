"""The check of a plan before it is written: nothing twice, requests satisfied, resources of the right kind.

It shares no search with the planner.  What it finds is a fault of ours; the job concerned is left out of the plan, so
that the fault costs that job a round and nobody a resource.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from oar.kao import explain
from oar.kao.model import Placement, Plan, PlannedJob, Snapshot, WaitingJob
from oar.kao.requests import Requests
from oar.kao.spaces import Usable, held_resources, reserved
from oar.kao.traits import Traits, traits_of
from oar.lib.errors import BadRequest
from oar.lib.hierarchy import RequestFit
from oar.lib.resource_set import ResourceSet
from oar.lib.states import Reservation

#: Types by which a plug-in chooses, whatever the request says.
_CHOSEN_BY_PLUGIN = ("find=", "assign=")


@dataclass(frozen=True, slots=True)
class _Stay:
    """A job on resources from when to when."""

    job_id: int
    start: int
    end: int
    resources: ResourceSet
    traits: Traits
    is_new: bool


def violations(
    snapshot: Snapshot, plan: Plan, requests: Requests, known: Mapping[int, Placement] | None = None
) -> dict[int, str]:
    """Return what is wrong with a plan, by job; ``known`` placements have been looked at by themselves before."""
    jobs = {job.id: job for job in snapshot.waiting}
    new = [place for place in plan.placements if place.job_id in jobs and jobs[place.job_id].granted is None]
    checker = _Checker(snapshot, requests)
    found: dict[int, str] = {}
    for place in new:
        if known is None or known.get(place.job_id) is not place:
            trouble = checker.trouble(jobs[place.job_id], place, is_free=place.job_id in plan.outside)
            if trouble:
                found[place.job_id] = trouble
    stays = [stay for stay in checker.stays(jobs, new) if stay.job_id not in found]
    spaces = _spaces(stays)
    for job_id, other in _collisions(stays, spaces):
        found.setdefault(job_id, f"it meets job {other} on the same resources")
    for stay in _outside(stays, spaces, _rectangles(snapshot, stays)):
        found.setdefault(stay.job_id, f"it leaves its container {stay.traits.inner}")
    return found


def without(plan: Plan, bad: Mapping[int, str]) -> Plan:
    """Return a plan that leaves jobs where they are."""
    reasons = {**plan.reasons, **{job_id: explain.internal(plan.now, text) for job_id, text in bad.items()}}
    return replace(
        plan,
        placements=tuple(each for each in plan.placements if each.job_id not in bad),
        reasons={job_id: reasons[job_id] for job_id in sorted(reasons)},
        launches=tuple(each for each in plan.launches if each.placement.job_id not in bad),
        kills=tuple(each for each in plan.kills if each.for_job not in bad),
        accepted=tuple(each for each in plan.accepted if each.job_id not in bad),
        troubles=(*plan.troubles, *(f"[{job_id}] its place is refused: {text}" for job_id, text in bad.items())),
    )


class _Checker:
    def __init__(self, snapshot: Snapshot, requests: Requests) -> None:
        self._snapshot = snapshot
        self._usable = Usable(snapshot)
        self._requests = requests
        self._gap = snapshot.settings.security_time

    def trouble(self, job: WaitingJob, place: Placement, *, is_free: bool) -> str:
        """Return what is wrong with a place by itself; '' if nothing is.

        ``is_free``: a scheduler of the site chose it, which need not give what is asked.
        """
        resources = place.resources & ~self._usable.shared
        alternative = next((each for each in job.alternatives if each.id == place.alternative), None)
        if alternative is None or place.walltime > alternative.walltime:
            return f"{place.alternative} is no alternative of the job with that walltime"
        if not resources or place.start < self._snapshot.now:
            return "it has no resources, or begins in the past"
        is_reservation = job.reservation is not Reservation.NONE
        usable = self._usable.present if is_free else self._usable.by(_traits(job), is_reservation=is_reservation)[1]
        if resources & ~usable:
            return f"resources {self._snapshot.resources.ids_of(resources & ~usable)} are not for this job"
        if any(resources & gone and place.end + self._gap > date for date, gone in self._usable.limits.items()):
            return "it ends after a resource is gone"
        if is_free or any(text.startswith(_CHOSEN_BY_PLUGIN) for text in job.types):
            return ""
        request = self._requests.get(alternative.groups)
        is_satisfied = isinstance(request, RequestFit) and self._fits(request, resources)
        return "" if is_satisfied else "its request is not satisfied"

    def _fits(self, request: RequestFit, resources: ResourceSet) -> bool:
        """Whether the request takes these resources of themselves; half of a half is less."""
        found = request.fit(resources)
        return found == resources if request.is_steady else bool(found)

    def stays(self, jobs: Mapping[int, WaitingJob], new: Iterable[Placement]) -> list[_Stay]:
        """Return where everybody is.  Besteffort jobs are left out: they are in nobody's way."""
        snapshot, gap, own = self._snapshot, self._gap, ~self._usable.shared
        found = []
        for job in snapshot.running:
            end = max(job.start_time + job.walltime + job.suspended_time, snapshot.now) + gap
            held = held_resources(job, snapshot.resources, snapshot.settings) & own
            found.append(_Stay(job.id, job.start_time, end, held, _traits(job), is_new=False))
        for waiting in jobs.values():
            if waiting.granted:
                place = reserved(waiting, snapshot.settings)
                held = place.resources & own
                found.append(_Stay(waiting.id, place.start, place.end, held, _traits(waiting), is_new=False))
        for each in new:
            traits = _traits(jobs[each.job_id])
            found.append(_Stay(each.job_id, each.start, each.end + gap, each.resources & own, traits, is_new=True))
        return [stay for stay in found if not stay.traits.is_besteffort]


def _traits(job: PlannedJob) -> Traits:
    """Return what the types of a job mean; those of a running job may mean nothing."""
    try:
        return traits_of(job)
    except BadRequest:
        return Traits()


def _spaces(stays: Iterable[_Stay]) -> dict[str, str]:
    """Return the space of each name that inner jobs may use."""
    names: dict[str, str] = {}
    for stay in stays:
        if stay.traits.container:
            names[stay.traits.container] = names[str(stay.job_id)] = stay.traits.container
    return names


def _rectangles(snapshot: Snapshot, stays: Iterable[_Stay]) -> dict[str, list[tuple[int, int, ResourceSet]]]:
    """Return the dates and resources of each space that containers open; a suspended one lends none of its own."""
    whole = {job.id: job.resources for job in snapshot.running}
    found: dict[str, list[tuple[int, int, ResourceSet]]] = {}
    for stay in stays:
        if stay.traits.container:
            rectangle = stay.start, stay.end, whole.get(stay.job_id, stay.resources)
            found.setdefault(stay.traits.container, []).append(rectangle)
    return found


def _outside(
    stays: Iterable[_Stay],
    spaces: Mapping[str, str],
    rectangles: Mapping[str, Sequence[tuple[int, int, ResourceSet]]],
) -> Iterator[_Stay]:
    """Go through the new inner jobs that are somewhere, at some time, where their containers are not."""
    for stay in stays:
        if not (stay.is_new and stay.traits.inner):
            continue
        there = rectangles.get(spaces.get(stay.traits.inner, ""), ())
        changes = {date for begin, end, _ in there for date in (begin, end)}
        for date in (stay.start, *(date for date in changes if stay.start < date < stay.end)):
            if stay.resources & ~_union_of(members for begin, end, members in there if begin <= date < end):
                yield stay
                break


def _collisions(stays: Sequence[_Stay], spaces: Mapping[str, str]) -> Iterator[tuple[int, int]]:
    """Go through the pairs of jobs, the one to be refused first, that are on a resource at the same time."""
    events = [(stay.start, 1, number) for number, stay in enumerate(stays)]
    events += [(stay.end, 0, number) for number, stay in enumerate(stays)]
    there: dict[str, dict[int, _Stay]] = {}
    held: dict[str, ResourceSet] = {}
    shared: set[str] = set()  #: spaces in which several jobs hold a resource
    for _, is_start, number in sorted(events):
        stay = stays[number]
        space = spaces.get(stay.traits.inner, "")
        inside = there.setdefault(space, {})
        if not is_start:
            inside.pop(number, None)
            held[space] = held.get(space, 0) & ~stay.resources
            if space in shared:
                held[space] = _union(inside.values())
            continue
        if held.get(space, 0) & stay.resources:
            shared.add(space)
            yield from _pairs(number, stay, inside)
        inside[number] = stay
        held[space] = held.get(space, 0) | stay.resources


def _pairs(number: int, stay: _Stay, inside: Mapping[int, _Stay]) -> Iterator[tuple[int, int]]:
    for other_number, other in inside.items():
        is_apart = not (other.resources & stay.resources) or not (stay.is_new or other.is_new)
        if not is_apart and not _may_share(stay, other):
            late, early = (stay, other) if number > other_number else (other, stay)
            yield late.job_id, early.job_id


def _may_share(one: _Stay, other: _Stay) -> bool:
    return one.traits.occupies_as in other.traits.shares or other.traits.occupies_as in one.traits.shares


def _union(stays: Iterable[_Stay]) -> ResourceSet:
    return _union_of(stay.resources for stay in stays)


def _union_of(sets: Iterable[ResourceSet]) -> ResourceSet:
    members = 0
    for each in sets:
        members |= each
    return members
