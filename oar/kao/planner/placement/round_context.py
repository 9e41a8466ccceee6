"""The state shared by the parts of the planner in a round: its input, the bookings and the decisions so far.

A booking is what a placed job takes from the jobs placed later: resources in a space, and room in quotas, in the limit
of its array and among the tokens of the site (docs/design/planner.rst, "Types of jobs").
"""

import traceback
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from oar.kao.facts import reasons
from oar.kao.facts.job_types import ParsedTypes
from oar.kao.facts.plan import Answer, Failure, JobStart, Kill, Placement, Reason
from oar.kao.facts.snapshot import Snapshot, WaitingJob
from oar.kao.planner.limits.array_limits import ArrayLimits, CountedJob
from oar.kao.planner.limits.quotas import QuotaUsage
from oar.kao.planner.placement.placement_task import GiveWay
from oar.kao.planner.placement.site_extensions import MissingPlugin
from oar.kao.planner.resources.compiled_requests import CompiledRequests
from oar.kao.planner.resources.resource_holders import Occupation
from oar.kao.planner.resources.spaces import FrameWindow, Spaces
from oar.lib.base.resource_set import union
from oar.lib.jobs.reasons import ReasonCode
from oar.lib.jobs.states import Reservation


class FreeTokens:
    """The tokens that are still free in a round."""

    def __init__(self, counts: Mapping[str, int | None]) -> None:
        """``counts``: the free tokens by name; None = unknown.  A name without an entry has no script."""
        self._counts = dict(counts)

    def take(self, types: ParsedTypes) -> None:
        for name, count in types.tokens:
            free = self._counts.get(name)
            if free is not None:
                self._counts[name] = free - count

    def shortage(self, types: ParsedTypes) -> Reason | None:
        """Return the reason why there are too few tokens for a job to start now; return None if there are enough."""
        for name, count in types.tokens:
            if name not in self._counts:
                return reasons.no_script(name)
            free = self._counts[name]
            if free is None:
                return reasons.no_tokens(name)
            if free < count:
                return reasons.few_tokens(name, free, count)
        return None


class Bookings:
    """All bookings of a round, initially those of the running jobs and the accepted reservations."""

    def __init__(
        self, snapshot: Snapshot, types: Mapping[int, ParsedTypes], frames: Mapping[int, FrameWindow] | None = None
    ) -> None:
        """``frames``: the windows of the frames of advance reservations, by job id."""
        self.placements: dict[int, Placement] = {}  #: by job id; of the jobs placed in this round
        self.spaces = Spaces(snapshot, types, frames)
        self.quotas = QuotaUsage(snapshot, types)
        self.arrays = ArrayLimits(snapshot)
        self.tokens = FreeTokens(snapshot.tokens)
        self.reservations = {job.id for job in snapshot.waiting if job.granted}
        #: the jobs counted by quotas and by arrays; they grow with the bookings
        self.logs: Sequence[Sequence[CountedJob]] = (self.quotas.log, self.arrays.log)
        self._now = snapshot.now
        self._security_time = snapshot.settings.security_time

    def enter(self, job: WaitingJob, placement: Placement, types: ParsedTypes) -> None:
        if job.reservation is not Reservation.NONE:
            self.reservations.add(job.id)
        self.count(job, placement, types)
        self.occupy({job.id: placement}, types)

    def enter_wave(self, jobs: Sequence[WaitingJob], placements: Mapping[int, Placement], types: ParsedTypes) -> None:
        """Book the placements of one job or of a wave, by job id."""
        if self.quotas.has_rules or jobs[0].array_limit:
            for job in jobs:
                self.count(job, placements[job.id], types)
        self.occupy(placements, types)

    def count(self, job: WaitingJob, placement: Placement, types: ParsedTypes) -> None:
        """Count a placement in quotas, in the limit of its array, and in the tokens of the site."""
        self.quotas.enter(job, types, placement.start, placement.end, placement.resources)
        self.arrays.enter(job, placement.start, placement.end + self._security_time)
        if placement.start <= self._now:
            self.tokens.take(types)

    def occupy(self, placements: Mapping[int, Placement], types: ParsedTypes) -> None:
        """Occupy the resources of the placements of one job or of a wave, by job id."""
        self.placements.update(placements)
        job_id, first = next(iter(placements.items()))
        end = first.end + self._security_time
        if len(placements) == 1:
            memory = self.spaces.memory.use(job_id, first.alternative, first.resources) if self.spaces.memory else None
            occupation = Occupation(job_id, first.start, end, first.resources, memory=memory)
        else:
            taken = union(placement.resources for placement in placements.values())
            occupation = Occupation(job_id, first.start, end, taken, placements)
        self.spaces.of(types).enter(occupation, types)
        if types.container:
            self.spaces.open(types, occupation)

    def enter_frame(self, job: WaitingJob, window: FrameWindow, types: ParsedTypes) -> None:
        self.reservations.add(job.id)
        self.spaces.enter_frame(job.id, window, types)

    def counters_of(
        self, job: WaitingJob, types: ParsedTypes, *, has_quotas: bool
    ) -> tuple[Collection[Hashable], Collection[Hashable]]:
        """Return the counters that limit a job, of quotas and of its array."""
        quotas = self.quotas.counters_of(job, types) if has_quotas else ()
        return quotas, (job.array_id,) if job.array_limit else ()

    def allow(self, job: WaitingJob, types: ParsedTypes, placement: Placement, *, has_quotas: bool) -> bool:
        """Return whether the quotas and the limit of the array allow a placement."""
        if self.arrays.first_start(job, placement.start, placement.walltime) != placement.start:
            return False
        return not has_quotas or self.quotas.refusal(job, types, placement) is None

    def start_obstacle(self, job: WaitingJob, types: ParsedTypes) -> Reason | None:
        """Return why a job may not start now on any resources (limit of its array, tokens); return None if it may."""
        if self.arrays.first_start(job, self._now, job.shortest_walltime) > self._now:
            return reasons.array_limit(job.array_id, job.array_limit, self.arrays.overdue(job))
        return self.tokens.shortage(types)


Result = TypeVar("Result")


class TimeIsUp(Exception):
    """An urgent pass has no time left to decide whether a job may start now."""


@dataclass(slots=True)
class Decisions:
    """All decisions so far, by job id where they concern one job."""

    now: int
    last_reasons: Mapping[int, Reason] = field(default_factory=dict)  #: those of the last round
    placements: dict[int, Placement] = field(default_factory=dict)
    reasons: dict[int, Reason] = field(default_factory=dict)
    karma: dict[int, float] = field(default_factory=dict)
    shares: dict[int, Mapping[str, float]] = field(default_factory=dict)  #: fair share, for the data of the reason
    #: jobs planned after those of other users, with the number of their user's jobs planned before
    turns: dict[int, int] = field(default_factory=dict)
    started: list[JobStart] = field(default_factory=list)
    kills: dict[int, Kill] = field(default_factory=dict)
    accepted: list[Answer] = field(default_factory=list)
    refused: list[Answer] = field(default_factory=list)
    expired: list[Answer] = field(default_factory=list)
    regained: list[int] = field(default_factory=list)
    lost: list[int] = field(default_factory=list)
    external: set[int] = field(default_factory=set)  #: jobs placed by external schedulers
    messages: dict[int, str] = field(default_factory=dict)  #: in place of the usual messages
    troubles: list[str] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)

    def guard(self, job: WaitingJob, decide: Callable[[WaitingJob], Result]) -> Result | None:
        """Decide on one job; return None if an exception was raised.

        The exception is recorded as the reason of this job only.  Raises TimeIsUp, GiveWay.
        """
        try:
            return decide(job)
        except (TimeIsUp, GiveWay):
            raise
        except MissingPlugin as error:
            self.reasons[job.id] = reasons.no_plugin(str(error))
        except Exception as error:  # noqa: BLE001 - one job must not end the round
            detail, last = f"{type(error).__name__}: {error}", self.last_reasons.get(job.id)
            is_same = last is not None and last.code is ReasonCode.INTERNAL and last.data.get("detail") == detail
            # the reason names the first round with this failure
            self.reasons[job.id] = last if last and is_same else reasons.internal(self.now, detail)
            frame = traceback.extract_tb(error.__traceback__)[-1]
            origin = f"{type(error).__name__} at {frame.filename}:{frame.lineno}"
            self.failures.append(Failure(job.id, origin, traceback.format_exc()))
        return None


class RoundContext:
    """The context of one round."""

    __slots__ = ("bookings", "decisions", "now", "requests", "settings", "snapshot", "spaces", "types", "usable")

    def __init__(
        self,
        snapshot: Snapshot,
        types: Mapping[int, ParsedTypes],
        requests: CompiledRequests,
        bookings: Bookings,
        decisions: Decisions,
    ) -> None:
        self.snapshot = snapshot  #: without the jobs whose types cannot be read
        self.now, self.settings = snapshot.now, snapshot.settings
        self.types = types  #: by job id
        self.requests = requests
        self.bookings = bookings
        self.spaces, self.usable = bookings.spaces, bookings.spaces.usable
        self.decisions = decisions
