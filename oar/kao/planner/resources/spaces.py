"""Spaces: jobs in the same space exclude each other.  There is the common space, and one for each container.

Besteffort jobs occupy nothing for other jobs.  They are placed last, in a copy of each space that also contains the
running besteffort jobs.

See docs/design/planner.rst, "Spaces".
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice

from oar.kao.facts import reasons
from oar.kao.facts.job_types import ParsedTypes, SharingKey
from oar.kao.facts.plan import Reason
from oar.kao.facts.snapshot import FOREVER, PlannedJob, RunningJob, Settings, Snapshot, WaitingJob
from oar.kao.facts.steps import Steps
from oar.kao.planner.resources.memory_requests import MemoryRequest
from oar.kao.planner.resources.node_memory import MemoryLedger, MemorySlots
from oar.kao.planner.resources.resource_holders import Endings, Occupation, held_resources
from oar.kao.planner.resources.sections import Sections, section_bounds
from oar.kao.planner.resources.slot_search import Check, StartBounds, earliest, fit_at
from oar.kao.planner.resources.slots import Occupant, SlotMatch, SlotQuery, SlotSet
from oar.kao.planner.resources.usable_resources import UsableResources
from oar.lib.base.resource_set import ResourceSet
from oar.lib.jobs.states import Reservation
from oar.lib.nodes.block_units import BlockUnits
from oar.lib.nodes.hierarchy import RequestFit

#: They are made when they have been asked for so often for each page of slots: it takes as long as some searches.
ASKED_PER_PAGE = 8


class BlockSlots:
    """The slots in blocks of one kind.  Jobs that may share resources cannot use them."""

    def __init__(self, units: BlockUnits) -> None:
        self._units = units
        self._asked = 0
        self._slots = SlotSet(0, 0)
        self._entered = 0  #: so many occupants of the space are in the slots
        self._usable: dict[str, ResourceSet] = {}  #: the usable blocks, by the name of the usable resources
        self.is_there = False  #: whether the slots have been made

    def ask(self, pages: int) -> bool:
        """Count a request; return whether block slots are worthwhile for this number of pages."""
        self._asked += 1
        return self._asked >= ASKED_PER_PAGE * pages

    def begin(self, slots: SlotSet, occupants: int) -> None:
        self._slots = slots.projected(self._free_blocks, self._units.everything)
        self._entered = occupants
        self.is_there = True

    def updated(self, occupants: Sequence[Occupant]) -> SlotSet:
        """Return the block slots with all occupants of the space, as if none shared resources."""
        for start, end, resources, _ in occupants[self._entered :]:
            self._slots.occupy(start, end, self._units.touched(resources))
        self._entered = len(occupants)
        return self._slots

    def query(self, query: SlotQuery, request: RequestFit) -> SlotQuery:
        """Return the query in blocks; ``request``: its request, compiled for blocks."""
        usable = self._usable.get(query.kind)
        if usable is None:
            usable = self._usable[query.kind] = self._free_blocks(query.usable)
        return SlotQuery(request, usable, query.duration, kind=query.kind)

    def _free_blocks(self, free: ResourceSet) -> ResourceSet:
        """Return the blocks whose resources are all free."""
        return self._units.everything & ~self._units.touched(~free)


@dataclass(frozen=True, slots=True)
class FrameWindow:
    """The resources and dates that a frame takes from the common space and lends to its own space."""

    start: int
    end: int
    resources: ResourceSet  #: all that are granted, missing or not
    lent_end: int  #: what is lent is lent from the start on; at the end the security time of its jobs is over
    lent: ResourceSet


#: Name of the common space.
COMMON = ""


#: The name of a space, and whether it is the copy for besteffort jobs.
SpaceKey = tuple[str, bool]


#: Slots in blocks are kept of so many kinds of blocks.
MOST_KINDS = 4


class Space:
    """One space: its slots and its jobs."""

    def __init__(
        self,
        slots: SlotSet,
        key: SpaceKey = (COMMON, False),
        lent: Sequence[Occupation] = (),
        bounds: Sequence[int] = (),
        memory: MemoryLedger | None = None,
    ) -> None:
        """``lent``: the resources that its containers lend to it; ``bounds``: those of the sections, () without any.

        ``memory``: the memory in use, of all spaces; None: it is not counted.
        """
        self.key = key
        self._memory = memory
        self._empty = slots.copy() if memory else slots  #: the slots before the first occupant, if memory is counted
        self._bounds = bounds
        self._sections = Sections(bounds, slots) if bounds else None
        self.lent = [(each.start, each.end, each.resources) for each in lent]
        self._slots = slots
        self.occupants: list[Occupant] = []  #: all that have entered it so far
        self._in_slots = 0  #: so many of them are in the slots
        self._blocks: dict[BlockUnits, BlockSlots] = {}
        self.bounds = StartBounds()
        self._for_besteffort: Space | None = None
        self.entered: list[tuple[Occupation, ParsedTypes]] = []  #: without besteffort jobs, in the order of entry
        self._besteffort: list[tuple[Occupation, ParsedTypes]] = []
        self._endings = Endings()

    @property
    def slots(self) -> SlotSet:
        """Return the slots with all occupants; occupants added since the last call are entered now."""
        if self._in_slots < len(self.occupants):
            self._slots.occupy_all(self._pending())
        return self._slots

    def entering(self) -> Steps[None]:
        """Enter the new occupants into the slots in steps; the space must not be used between the steps."""
        if self._sections:
            yield from self._sections.entering(self.occupants)
        elif self._in_slots < len(self.occupants):
            yield from self._slots.occupying(self._pending())

    def _pending(self) -> Sequence[Occupant]:
        pending = self.occupants[self._in_slots :]
        self._in_slots = len(self.occupants)
        return pending

    def earliest(
        self, query: SlotQuery, begin: int, latest: int = FOREVER, check: Check | None = None
    ) -> SlotMatch | None:
        """Return the earliest match of a query, as ``slot_search.earliest`` does."""
        if isinstance(query.request, MemoryRequest):
            return earliest(*self.seen_by(query), begin, latest, check)
        if self._sections and self._sections.can_search(query.request):
            return self._sections.updated(self.occupants).earliest(query, begin, latest, check)
        blocks = query.request.blocks
        slots = None if blocks is None or query.keys else self._slots_in(blocks.units)
        if blocks is None or slots is None:
            return earliest(self.slots, query, begin, latest, check)
        match = earliest(slots, self._blocks[blocks.units].query(query, blocks.request), begin, latest, check)
        return SlotMatch(match.start, blocks.units.members(match.resources)) if match else None

    def free_between(self, start: int, end: int, keys: frozenset[SharingKey] = frozenset()) -> ResourceSet:
        """Return the resources that are free from ``start`` to ``end`` for a job with these keys."""
        slots = self._sections.updated(self.occupants) if self._sections else self.slots
        return slots.free_between(start, end, keys)

    def fit_at(self, query: SlotQuery, start: int) -> ResourceSet:
        """Return the resources that the request takes at exactly ``start``; return 0 if it is not satisfied."""
        if isinstance(query.request, MemoryRequest):
            return fit_at(*self.seen_by(query), start)
        return query.request.fit(self.free_between(start, start + query.duration, query.keys) & query.usable)

    def seen_by(self, query: SlotQuery) -> tuple[SlotSet, SlotQuery]:
        """Return the slots in which a query is searched, and the query for them: with memory, these are others."""
        request, ledger = query.request, self._memory
        if not isinstance(request, MemoryRequest) or ledger is None:
            return self.slots, query
        need = request.need
        view = ledger.view(self, need, partial(MemorySlots, self._empty, need, ledger, is_besteffort=self.key[1]))
        usable = query.usable | (need.all_shares if need.has_shares else 0)
        return view.updated(self.occupants), query._replace(request=request.measured, usable=usable)

    def can_give(self, query: SlotQuery, start: int, resources: ResourceSet) -> bool:
        """Return whether a request can have exactly these resources from ``start`` for its duration."""
        end, shares = start + query.duration, 0
        if isinstance(query.request, MemoryRequest):
            slots, query = self.seen_by(query)
            free = slots.free_between(start, end, query.keys) & query.usable
            shares = free & query.request.need.all_shares if isinstance(query.request, MemoryRequest) else 0
        else:
            free = self.free_between(start, end, query.keys) & query.usable
        return not resources & ~free and query.request.fit(resources | shares) == resources

    def has_taken(self, since: int, match: SlotMatch, end: int, keys: frozenset[SharingKey]) -> bool:
        """Return whether an occupant has taken resources of a match between its start and ``end``.

        ``since``: the number of occupants at the time of the match, which was for a job with these keys.
        """
        start, resources = match
        for begin, stop, held, key in islice(self.occupants, since, None):
            if begin < end and stop > start and held & resources and (key is None or key not in keys):
                return True
        return False

    def _slots_in(self, units: BlockUnits) -> SlotSet | None:
        """Return the slots with blocks as units and all occupants; return None if they are not built."""
        in_blocks = self._blocks.get(units)
        if in_blocks is None:
            if len(self._blocks) == MOST_KINDS:
                return None
            in_blocks = self._blocks[units] = BlockSlots(units)
        if not in_blocks.is_there:
            if not in_blocks.ask(len(self._slots.pages)):
                return None
            in_blocks.begin(self.slots, len(self.occupants))
        return in_blocks.updated(self.occupants)

    def enter(self, occupation: Occupation, types: ParsedTypes) -> None:
        """Enter a job; a besteffort job is entered only in the copy for besteffort jobs."""
        if occupation.memory and self._memory:
            self._memory.charge(occupation.start, occupation.end, occupation.memory, types)
        self._enter(occupation, types)

    def _enter(self, occupation: Occupation, types: ParsedTypes) -> None:
        """Enter a job whose memory is counted already."""
        if types.is_besteffort:
            self._besteffort.append((occupation, types))
            if self._for_besteffort:
                self._for_besteffort._take(occupation, types)
        else:
            self._take(occupation, types)

    def _take(self, occupation: Occupation, types: ParsedTypes) -> None:
        self.entered.append((occupation, types))
        self.occupy(occupation, types)

    def occupy(self, occupation: Occupation, types: ParsedTypes) -> None:
        """Remove the resources of a job from the free resources."""
        self.occupants.append((occupation.start, occupation.end, occupation.resources, types.sharing_key))
        self._endings.add(occupation)

    def for_besteffort(self) -> "Space":
        """Return the copy for besteffort jobs; the first call makes it, after all other jobs have been placed."""
        if self._for_besteffort is None:
            self._for_besteffort = self.copy()
            self._for_besteffort.key = self.key[0], True
            for occupation, types in self._besteffort:
                self._for_besteffort._take(occupation, types)
        return self._for_besteffort

    def ending_at(self, date: int, resources: ResourceSet) -> list[int]:
        return self._endings.at(date, resources)

    def copy(self) -> "Space":
        """Return a space with the same jobs, for trial placements."""
        slots = self._slots if self._sections else self.slots
        space = Space(slots.copy(), self.key)
        space._memory, space._empty = self._memory, self._empty
        space.lent, space._bounds = self.lent, self._bounds
        space._sections = self._sections.copy() if self._sections else None
        space.occupants, space._in_slots = list(self.occupants), self._in_slots
        space.entered = list(self.entered)
        space._endings = self._endings.copy()
        return space

    def with_slots(self, slots: SlotSet, lent: Sequence[Occupation]) -> "Space":
        space = Space(slots, self.key, lent, self._bounds, self._memory)
        for occupation, types in (*self.entered, *self._besteffort):
            space._enter(occupation, types)
        return space


class Spaces:
    """All spaces of a round, initially with the running jobs and the accepted reservations."""

    def __init__(
        self, snapshot: Snapshot, types: Mapping[int, ParsedTypes], frames: Mapping[int, FrameWindow] | None = None
    ) -> None:
        """``frames``: the windows of the frames of advance reservations, by job id."""
        self._frames = frames or {}
        self._now = snapshot.now
        self._settings = snapshot.settings
        self._everything = snapshot.resources.everything
        self._bounds = section_bounds(snapshot.resources)
        self.memory = MemoryLedger(snapshot) if snapshot.resources.memory else None
        self.usable = UsableResources(snapshot)
        self.common = self._empty_common()  #: the space of all jobs that are in no container
        self._spaces = {COMMON: self.common}
        self._lent: dict[str, list[Occupation]] = {}  #: space -> what its containers lend to it
        self._names: dict[str, str] = {}  #: job id of a container -> its space
        for job in (*snapshot.running, *snapshot.waiting):
            if types[job.id].container:
                self._open_at_first(job, types[job.id])
        for job in snapshot.running:
            self.of(types[job.id]).enter(self._occupation_of(job, snapshot), types[job.id])
        for reservation in snapshot.waiting:
            if reservation.granted:
                window = self._frames.get(reservation.id)
                occupation = _taken(reservation.id, window) if window else self._reserved(reservation)
                self.of(types[reservation.id]).enter(occupation, types[reservation.id])

    def common_without(self, job_ids: Collection[int]) -> Space:
        space = self._empty_common()
        for occupation, types in self.common.entered:
            if occupation.job_id not in job_ids:
                space._enter(occupation, types)
        return space

    def find(self, name: str) -> Space | None:
        """Return the space of a container by its name or job id; return None if it is not open yet."""
        name = self._names.get(name, name)
        if name not in self._spaces and name in self._lent:
            self._spaces[name] = Space(
                self._lent_slots(name), (name, False), self._lent[name], self._bounds, self.memory
            )
        return self._spaces.get(name)

    def opens_at(self, name: str) -> int:
        """Return the date at which the first container of a space starts."""
        return min((each.start for each in self._lent.get(self._names.get(name, name), ())), default=self._now)

    def size_of(self, name: str) -> int:
        """Return the number of distinct resources that the containers of a space lend to it."""
        members = 0
        for occupation in self._lent.get(self._names.get(name, name), ()):
            members |= occupation.resources
        return members.bit_count()

    def open(self, types: ParsedTypes, occupation: Occupation) -> None:
        """Open a space with the resources of a container, or add them to the existing space of that name."""
        name = types.container
        self._names[str(occupation.job_id)] = name
        self._lent.setdefault(name, []).append(occupation)
        if name in self._spaces:  # made on demand: most reservations have no job yet
            self._spaces[name] = self._spaces[name].with_slots(self._lent_slots(name), self._lent[name])

    def _lent_slots(self, name: str) -> SlotSet:
        slots = SlotSet(self._now, self._everything, 0)
        for lent in self._lent[name]:
            slots.open(lent.start, lent.end, lent.resources)
        return self._without_leaving(slots)

    def _empty_common(self) -> Space:
        slots = SlotSet(self._now, self._everything, self.usable.present)
        return Space(self._without_leaving(slots), bounds=self._bounds, memory=self.memory)

    def _without_leaving(self, slots: SlotSet) -> SlotSet:
        """Occupy the resources that are withdrawn, from that date on."""
        for date, resources in self.usable.limits.items():
            slots.occupy(date, FOREVER, resources)
        return slots

    def enter_frame(self, frame_id: int, window: FrameWindow, types: ParsedTypes) -> None:
        self._frames = {**self._frames, frame_id: window}
        self.of(types).enter(_taken(frame_id, window), types)
        if types.container:
            self.open(types, _lent(frame_id, window))

    def widen_frame(self, occupation: Occupation, types: ParsedTypes) -> None:
        """Also keep the resources that a frame receives in this round from outside jobs."""
        self.common.enter(occupation, types)

    def block(self, resources: ResourceSet, start: int, end: int, name: str = COMMON) -> None:
        """Block resources of a space between two dates, for plug-ins.  Raises ValueError for an unknown space."""
        space = self.find(name)
        if space is None:
            raise ValueError(f'there is no container "{name}"')
        space.occupy(Occupation(0, max(start, self._now), end, resources), ParsedTypes())

    def of(self, types: ParsedTypes) -> Space:
        """Return the space of a job: that of its container, or the common one if the container no longer exists."""
        return (self.find(types.inner) if types.inner else None) or self.common

    def _occupation_of(self, job: RunningJob, snapshot: Snapshot) -> Occupation:
        window = self._frames.get(job.id)
        if window:
            return _taken(job.id, window)
        end = max(job.end, self._now) + self._settings.security_time
        held = held_resources(job, snapshot.resources, snapshot.settings)
        owned = job.resources & ~self.usable.shared
        use = self.memory.nodes.use(job.memory, owned) if job.memory and self.memory else None
        return Occupation(job.id, job.start_time, end, held, memory=use)

    def _reserved(self, job: WaitingJob) -> Occupation:
        """Return the occupation of an accepted reservation, with its memory."""
        occupation = reservation_occupation(job, self._settings)
        if not (self.memory and job.granted):
            return occupation
        owned = occupation.resources & ~self.usable.shared
        return occupation._replace(memory=self.memory.use(job.id, job.granted.alternative, owned))

    def _open_at_first(self, job: PlannedJob, types: ParsedTypes) -> None:
        """Open the space of a container that is running or an accepted reservation."""
        if job.id in self._frames:
            self.open(types, _lent(job.id, self._frames[job.id]))
        elif isinstance(job, RunningJob):
            end = job.end + self._settings.security_time
            self.open(types, Occupation(job.id, job.start_time, end, job.resources))
        elif isinstance(job, WaitingJob) and job.granted:
            self.open(types, reservation_occupation(job, self._settings))


def _taken(frame_id: int, window: FrameWindow) -> Occupation:
    """Return what the frame of an advance reservation keeps from outside jobs."""
    return Occupation(frame_id, window.start, window.end, window.resources)


def _lent(frame_id: int, window: FrameWindow) -> Occupation:
    """Return what the frame of an advance reservation lends to its jobs."""
    return Occupation(frame_id, window.start, window.lent_end, window.lent)


def reservation_occupation(job: WaitingJob, settings: Settings) -> Occupation:
    """Return the occupation of an accepted reservation; a late start does not move its end."""
    walltime = job.walltime_of(job.granted.alternative) if job.granted else 0
    end = job.start_time + walltime + settings.security_time
    return Occupation(job.id, job.start_time, end, job.granted.resources if job.granted else 0)


#: In the place of the id of a job: a container on hold.
_ON_HOLD = -1


class Containers:
    """All containers of a snapshot, by the names that inner jobs may use: container names and job ids."""

    def __init__(self, snapshot: Snapshot, types: Mapping[int, ParsedTypes], spaces: Spaces) -> None:
        self._spaces = spaces
        self._ids = dict.fromkeys(snapshot.held_containers, _ON_HOLD)
        self._reservations: set[str] = set()
        self._treated: set[int] = set()
        for job in (*snapshot.running, *snapshot.waiting):
            if not types[job.id].container:
                continue
            names = types[job.id].container_names(job.id)
            self._ids |= dict.fromkeys(names, job.id)
            if job.reservation is not Reservation.NONE:
                self._reservations.update(names)

    def note_turn(self, job: WaitingJob) -> None:
        """Record that the planner has reached a job, which may be a container."""
        self._treated.add(job.id)

    def space_of(self, types: ParsedTypes) -> Space | Reason:
        """Return the space in which a job is placed; return a Reason if it does not exist yet."""
        space = self._spaces.find(types.inner or COMMON)
        if space is None:
            is_treated = self._ids.get(types.inner, _ON_HOLD) in self._treated
            return reasons.container_unplaced(types.inner, is_treated=is_treated)
        return space.for_besteffort() if types.is_besteffort else space

    def error(self, job: WaitingJob, types: ParsedTypes) -> str:
        """Return why an inner job can never run in its container; return '' if it can."""
        if not types.inner:
            return ""
        if types.inner in (types.container, str(job.id)):
            return "Inner job: job cannot be its own container, setting it to error"
        if types.inner not in self._ids and self._spaces.find(types.inner) is None:
            return _unknown(types.inner)
        return ""

    def reservation_error(self, job: WaitingJob, types: ParsedTypes) -> str:
        """Return why an inner reservation is refused: its container is no accepted reservation; '' if it is."""
        error = self.error(job, types)
        if error or not types.inner:
            return error
        is_accepted = types.inner in self._reservations and self._spaces.find(types.inner) is not None
        return "" if is_accepted else _unknown(types.inner)


def _unknown(container: str) -> str:
    return f"Inner job: container {container} does not exist, inner job will never run, setting it to error"
