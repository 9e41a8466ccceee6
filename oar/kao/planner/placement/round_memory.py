"""The record of a round for the next one, so that only jobs that may have changed are planned again.

``PlacementReuse`` in ``oar.kao.planner.placement.placement_reuse`` uses it.

See docs/design/planner.rst, "Memory between rounds".
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from oar.kao.facts.job_types import ParsedTypes
from oar.kao.facts.plan import Placement, Reason
from oar.kao.facts.snapshot import FOREVER, Snapshot, WaitingJob
from oar.kao.planner.limits.counter_differences import CountedJob
from oar.kao.planner.limits.dependencies import StartWindow
from oar.kao.planner.resources.compiled_requests import CompiledRequests
from oar.kao.planner.resources.endings import Occupation
from oar.kao.planner.resources.spaces import SpaceKey
from oar.lib.base.resource_set import ResourceSet, union

#: A job in a space.
Entry = tuple[Occupation, ParsedTypes]


class SearchRecord(NamedTuple):
    """The result of the search for one job, or for a wave."""

    jobs: Sequence[WaitingJob]
    window: StartWindow
    best: Placement | None  #: the placement of the first job, even if a deadline or a dependency forbids it
    placements: Mapping[int, Placement]  #: what was booked
    reasons: Mapping[int, Reason]  #: by job id, as the placements: why there is none, or why it does not start now
    is_reusable: bool  #: the placement depends on nothing but the request and the occupied resources
    possible_from: int = FOREVER  #: the first start that was tried for a request whose groups compete

    @property
    def taken(self) -> ResourceSet:
        """Return the resources found for all jobs together."""
        if len(self.placements) > 1:
            return union(placement.resources for placement in self.placements.values())
        return self.best.resources if self.best else 0


class RoundEvent(NamedTuple):
    """One step of a round in a space: a search (or none) and the entries that it added."""

    search: SearchRecord | None
    entries: Sequence[Entry]
    counted: tuple[int, ...]  #: the length of each log of counters before the step
    turn: int  #: number of searches before it, in all spaces


@dataclass(frozen=True, slots=True)
class SpaceMemory:
    """The entries and events in a space."""

    first_entries: Sequence[Entry]  #: the jobs in it before the first event
    events: Sequence[RoundEvent]  #: in the order of planning
    lent: Sequence[tuple[int, int, ResourceSet]] = ()  #: start, end and resources of its containers


@dataclass(frozen=True, slots=True)
class RoundMemory:
    """The record of a round for the next one."""

    snapshot: Snapshot
    usable: tuple[ResourceSet, ...]  #: the resources by what may be planned on them
    spaces: Mapping[SpaceKey, SpaceMemory]
    reservations: frozenset[int]  #: the ids of accepted reservations and of frames
    logs: Sequence[Sequence[CountedJob]]  #: the jobs counted by quotas and by limits of arrays
    requests: tuple[Snapshot, CompiledRequests] | None = None
    jobs: Mapping[int, WaitingJob] = field(default_factory=dict)
    placements: Mapping[int, Placement] = field(default_factory=dict)
    reasons: Mapping[int, Reason] = field(default_factory=dict)
    messages: Mapping[int, str] = field(default_factory=dict)
    karma: Mapping[int, float] = field(default_factory=dict)
