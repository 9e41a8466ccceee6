"""Bookings: what the jobs placed so far take from the jobs placed later.

A placement takes resources in a space.  It also counts in quotas, in the limit of its array, and in the tokens of the
site.
"""

from collections.abc import Collection, Hashable, Mapping, Sequence

from oar.kao.facts import reasons
from oar.kao.facts.job_types import ParsedTypes
from oar.kao.facts.plan import Placement, Reason
from oar.kao.facts.snapshot import Snapshot, WaitingJob
from oar.kao.planner.limits.array_limits import ArrayLimits
from oar.kao.planner.limits.counter_differences import CountedJob
from oar.kao.planner.limits.quota_usage import QuotaUsage
from oar.kao.planner.limits.tokens import FreeTokens
from oar.kao.planner.resources.endings import Occupation
from oar.kao.planner.resources.frames import FrameWindow
from oar.kao.planner.resources.spaces import Spaces
from oar.lib.base.resource_set import union
from oar.lib.jobs.states import Reservation


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
        self._now = snapshot.now
        self._security_time = snapshot.settings.security_time

    @property
    def logs(self) -> Sequence[Sequence[CountedJob]]:
        """Return the logs of the jobs counted by quotas and by arrays; the logs grow with the bookings."""
        return self.quotas.log, self.arrays.log

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
            occupation = Occupation(job_id, first.start, end, first.resources)
        else:
            taken = union(placement.resources for placement in placements.values())
            occupation = Occupation(job_id, first.start, end, taken, placements)
        self.spaces.of(types).enter(occupation, types)
        if types.container:
            self.spaces.open(types, occupation)

    def enter_frame(self, job: WaitingJob, window: FrameWindow, types: ParsedTypes) -> None:
        """Book an advance reservation that is granted in this round."""
        self.reservations.add(job.id)
        self.spaces.enter_frame(job.id, window, types)

    def counters_of(
        self, job: WaitingJob, types: ParsedTypes, *, has_quotas: bool
    ) -> tuple[Collection[Hashable], Collection[Hashable]]:
        """Return the counters that limit a job, in the order of ``logs``."""
        quotas = self.quotas.counters_of(job, types) if has_quotas else ()
        return quotas, self.arrays.counters_of(job)

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
