"""The worlds in which jobs exclude each other: the common one, and one for each container (scheduling.md 0, 2, 9.3).

Besteffort jobs occupy nothing for the others.  They are planned last, in a copy of each space as it is then, to which
the running besteffort jobs are added.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from operator import le

from oar.kao.model import FOREVER, Resources, RunningJob, Settings, Snapshot, WaitingJob
from oar.kao.slots import Ask, Key, SlotSet
from oar.kao.traits import Traits
from oar.lib.resource_set import ResourceSet, from_positions, positions
from oar.lib.states import HALTED_NEVER_WOKEN, STANDBY_FOR_EVER, JobState, ResourceState

#: Name of the common space.
COMMON = ""

#: So many earlier results are kept to begin searches behind them.
KEPT_BOUNDS = 64


@dataclass(frozen=True, slots=True)
class Occupation:
    """Resources of one job from when to when."""

    job_id: int
    start: int
    end: int
    resources: ResourceSet


class Bounds:
    """Dates before which asks cannot be met, learnt from earlier searches.

    Resources only get scarcer while a plan is made: an ask that wants nothing less than an earlier one of its family,
    and not for less time, cannot begin before it.
    """

    def __init__(self) -> None:
        self._known: dict[object, list[tuple[tuple[int, ...], int, int]]] = {}

    def of(self, ask: Ask) -> int:
        """Return a date before which the ask cannot begin; 0 if nothing is known."""
        if ask.keys or not ask.request.is_monotone:
            return 0
        bound, wanted = 0, ask.request.quantities
        for quantities, duration, start in self._known.get((ask.request.family, ask.kind), ()):
            if start > bound and duration <= ask.duration and all(map(le, quantities, wanted)):
                bound = start
        return bound

    def learn(self, ask: Ask, start: int) -> None:
        """Remember the earliest start of an ask that was free to begin at once."""
        if ask.keys or not ask.request.is_monotone:
            return
        known = self._known.setdefault((ask.request.family, ask.kind), [])
        wanted = ask.request.quantities
        known[:] = [
            (quantities, duration, date)
            for quantities, duration, date in known[-KEPT_BOUNDS:]
            if date > start or duration < ask.duration or not all(map(le, wanted, quantities))
        ]
        known.append((wanted, ask.duration, start))


class Space:
    """One world: its slots, and what is in them."""

    def __init__(self, slots: SlotSet) -> None:
        self._slots = slots
        self._pending: list[tuple[int, int, ResourceSet, Key | None]] = []  #: occupants that are not in the slots yet
        self.bounds = Bounds()
        self._for_besteffort: Space | None = None
        self._entered: list[tuple[Occupation, Traits]] = []
        self._besteffort: list[tuple[Occupation, Traits]] = []
        self._ends: dict[int, list[Occupation]] = {}

    @property
    def slots(self) -> SlotSet:
        """What is free when.  Occupants are entered together, as late as possible."""
        if self._pending:
            pending, self._pending = self._pending, []
            self._slots.occupy_all(pending)
        return self._slots

    @property
    def entered(self) -> Sequence[tuple[Occupation, Traits]]:
        """The jobs in this world, besteffort ones left out, in the order in which they were entered."""
        return self._entered

    def enter(self, occupation: Occupation, traits: Traits) -> None:
        """Enter a job.  A besteffort one is seen by besteffort jobs only."""
        if traits.is_besteffort:
            self._besteffort.append((occupation, traits))
            if self._for_besteffort:
                self._for_besteffort.occupy(occupation, traits)
        else:
            self._entered.append((occupation, traits))
            self.occupy(occupation, traits)

    def occupy(self, occupation: Occupation, traits: Traits) -> None:
        """Take the resources of a job out of the slots."""
        self._pending.append((occupation.start, occupation.end, occupation.resources, traits.occupies_as))
        self._ends.setdefault(occupation.end, []).append(occupation)

    def for_besteffort(self) -> "Space":
        """Return this world as besteffort jobs see it, when all others have been planned."""
        if self._for_besteffort is None:
            self._for_besteffort = Space(self.slots.copy())
            self._for_besteffort._ends = {end: list(jobs) for end, jobs in self._ends.items()}
            for occupation, traits in self._besteffort:
                self._for_besteffort.occupy(occupation, traits)
        return self._for_besteffort

    def ending_at(self, date: int, resources: ResourceSet) -> list[int]:
        """Return the jobs that give back some of these resources at a date."""
        return sorted(each.job_id for each in self._ends.get(date, ()) if each.resources & resources)

    def grown(self, slots: SlotSet) -> "Space":
        """Return the same world with other slots, on which its jobs are entered again."""
        space = Space(slots)
        for occupation, traits in (*self._entered, *self._besteffort):
            space.enter(occupation, traits)
        return space


class Spaces:
    """All worlds of a round."""

    def __init__(self, snapshot: Snapshot, traits: dict[int, Traits]) -> None:
        self._now = snapshot.now
        self._everything = snapshot.resources.everything
        self.usable = Usable(snapshot)
        self._spaces = {COMMON: Space(SlotSet(self._now, self._everything, self.usable.present))}
        self._rectangles: dict[str, list[Occupation]] = {}
        self._names: dict[str, str] = {}
        for date, resources in self.usable.limits.items():
            self._spaces[COMMON].slots.occupy(date, FOREVER, resources)
        for job in snapshot.running:
            self._open_running(job, traits[job.id], snapshot.settings)
        for reservation in snapshot.waiting:
            self._open_reservation(reservation, traits[reservation.id], snapshot.settings)
        for job in snapshot.running:
            self._enter_running(job, traits[job.id], snapshot)
        for reservation in snapshot.waiting:
            self._enter_reservation(reservation, traits[reservation.id], snapshot.settings)

    @property
    def common(self) -> Space:
        """The space of all jobs that are in no container."""
        return self._spaces[COMMON]

    def find(self, name: str) -> Space | None:
        """Return the space that a container opened; None if there is none yet."""
        return self._spaces.get(self._names.get(name, name))

    def opens_at(self, name: str) -> int:
        """Return when a space begins."""
        rectangles = self._rectangles.get(self._names.get(name, name), ())
        return min((each.start for each in rectangles), default=self._now)

    def size_of(self, name: str) -> int:
        """Return the number of resources in a container's space."""
        members = 0
        for each in self._rectangles.get(self._names.get(name, name), ()):
            members |= each.resources
        return members.bit_count()

    def open(self, traits: Traits, occupation: Occupation) -> None:
        """Make the resources of a container a space, or a part of the space of that name."""
        name = traits.container
        self._names[str(occupation.job_id)] = name
        self._rectangles.setdefault(name, []).append(occupation)
        slots = SlotSet(self._now, self._everything, 0)
        for each in self._rectangles[name]:
            slots.open(each.start, each.end, each.resources)
        for date, resources in self.usable.limits.items():
            slots.occupy(date, FOREVER, resources)
        before = self._spaces.get(name)
        self._spaces[name] = before.grown(slots) if before else Space(slots)

    def block(self, resources: ResourceSet, start: int, end: int, name: str = COMMON) -> None:
        """Keep resources from all jobs of a world for a while: what a plug-in of the site may do."""
        space = self.find(name)
        if space is None:
            raise ValueError(f'there is no container "{name}"')
        space.occupy(Occupation(0, max(start, self._now), end, resources), Traits())

    def of(self, traits: Traits) -> Space:
        """Return the space in which a job is: that of its container, or the common one when that is gone."""
        return (self.find(traits.inner) if traits.inner else None) or self._spaces[COMMON]

    def _open_running(self, job: RunningJob, traits: Traits, settings: Settings) -> None:
        if traits.container:
            end = job.start_time + job.walltime + job.suspended_time + settings.security_time
            self.open(traits, Occupation(job.id, job.start_time, end, job.resources))

    def _open_reservation(self, job: WaitingJob, traits: Traits, settings: Settings) -> None:
        if traits.container and job.granted:
            self.open(traits, reserved(job, settings))

    def _enter_running(self, job: RunningJob, traits: Traits, snapshot: Snapshot) -> None:
        end = max(job.start_time + job.walltime + job.suspended_time, self._now) + snapshot.settings.security_time
        held = held_resources(job, snapshot.resources, snapshot.settings)
        self.of(traits).enter(Occupation(job.id, job.start_time, end, held), traits)

    def _enter_reservation(self, job: WaitingJob, traits: Traits, settings: Settings) -> None:
        if job.granted:
            self.of(traits).enter(reserved(job, settings), traits)


def reserved(job: WaitingJob, settings: Settings) -> Occupation:
    """Return what an accepted reservation occupies: its end does not move, whenever it starts."""
    granted = job.granted
    walltime = next((each.walltime for each in job.alternatives if granted and each.id == granted.alternative), 0)
    end = job.start_time + walltime + settings.security_time
    return Occupation(job.id, job.start_time, end, granted.resources if granted else 0)


def held_resources(job: RunningJob, resources: Resources, settings: Settings) -> ResourceSet:
    """Return what a job keeps from others: a Suspended one only what it does not lend."""
    if job.state is not JobState.SUSPENDED or not settings.suspended_types:
        return job.resources
    return job.resources & ~resources.where(resources.types, *settings.suspended_types)


class Usable:
    """Which resources each class of jobs may be planned on (scheduling.md 2.2)."""

    def __init__(self, snapshot: Snapshot) -> None:
        resources = snapshot.resources
        always = snapshot.settings.always_assigned_type
        self.shared = resources.where(resources.types, always) if always else 0
        self.alive = resources.where(resources.states, ResourceState.ALIVE)
        self.absent = resources.where(resources.states, ResourceState.ABSENT)
        self.suspected = resources.where(resources.states, ResourceState.SUSPECTED)
        self.not_dead = self.alive | self.absent | self.suspected
        self.present = self.not_dead & ~self.shared
        self.wakeable = self._wakeable(resources, snapshot.now) if snapshot.settings.may_wake else 0
        self.ordinary = (self.alive | self.wakeable) & self.present
        self.limits = _limits(resources)

    def by(self, traits: Traits, *, is_reservation: bool) -> tuple[str, ResourceSet]:
        """Return the name of a job's class, and its resources."""
        if is_reservation or traits.is_permissive:
            return "any", self.present
        return "ordinary", self.ordinary

    def _wakeable(self, resources: Resources, now: int) -> ResourceSet:
        upto = resources.available_upto
        return from_positions(bit for bit in positions(self.absent) if upto[bit] > now)


def _limits(resources: Resources) -> dict[int, ResourceSet]:
    """Return the dates from which resources are gone, with these."""
    gone: dict[int, ResourceSet] = {}
    for bit, date in enumerate(resources.available_upto):
        if HALTED_NEVER_WOKEN < date < STANDBY_FOR_EVER:
            gone[date] = gone.get(date, 0) | 1 << bit
    return gone
