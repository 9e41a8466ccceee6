"""What advance reservations may be given: one answer for requests, changes and replacements.

See docs/design/reservations.rst, "Granting".
"""

from collections.abc import Iterator, Mapping

from oar.kao.facts.job_types import ParsedTypes
from oar.kao.facts.planned_reservations import PlannedReservation
from oar.kao.facts.snapshot import RunningJob, Snapshot
from oar.kao.planner.placement.first_fit import fit_first
from oar.kao.planner.resources.reservation_health import is_inside
from oar.kao.planner.resources.usable_resources import UsableResources
from oar.lib.base.resource_set import ResourceSet, positions, union
from oar.lib.jobs.states import JobState
from oar.lib.nodes.hierarchy import RequestFit

#: A job in them has no date at which it is over.
_ASLEEP = (JobState.SUSPENDED, JobState.RESUMING)


class ReservableResources:
    """The resources of a snapshot as those of advance reservations."""

    def __init__(self, snapshot: Snapshot, types: Mapping[int, ParsedTypes], usable: UsableResources) -> None:
        self._now = snapshot.now
        self._types = types
        self._usable = usable
        self._maintained = snapshot.maintenance
        self._sleepers = [job for job in snapshot.running if job.state in _ASLEEP]
        self._asleep = union(job.resources for job in self._sleepers)
        self._held = {job.id: job.resources for job in snapshot.running} if snapshot.reservations else {}

    def bound(self, reservation: PlannedReservation) -> ResourceSet:
        """Return what a reservation cannot give up, since its jobs hold it; of a flexible one nothing."""
        if reservation.is_flexible:
            return 0
        return reservation.resources & union(self._held.get(number, 0) for number in reservation.live_jobs)

    def asleep(self, reservation: PlannedReservation | None = None) -> ResourceSet:
        """Return what suspended jobs keep from every reservation but the one that they are in."""
        if reservation is None:
            return self._asleep
        return union(job.resources for job in self._sleepers_outside(reservation))

    def sleepers(self, resources: ResourceSet, reservation: PlannedReservation | None = None) -> list[str]:
        """Return the names of the jobs that keep some of these resources so, in the order of their ids."""
        jobs = self._sleepers_outside(reservation)
        return [f"suspended job {number}" for number in sorted(job.id for job in jobs if job.resources & resources)]

    def healthy(self, start: int) -> ResourceSet:
        """Return what no reservation that begins at ``start`` would miss: before it a sleeping node can be woken."""
        present = self._usable.ordinary if start > self._now else self._usable.alive & self._usable.present
        return present & ~self._maintained

    def choose(self, request: RequestFit, free: ResourceSet, start: int) -> ResourceSet:
        """Return where a request fits: on healthy resources, or else with as few others as possible; 0 if nowhere."""
        healthy = free & self.healthy(start)
        return request.fit(healthy) or fit_first(request, self.ranks(free & ~healthy, start), healthy)

    def ranks(self, resources: ResourceSet, start: int) -> list[int]:
        """Return resources in the order in which they are taken: healthy ones, those to be woken, others."""
        healthy = resources & self.healthy(start)
        to_wake = resources & self._usable.wakeable & ~healthy
        return [bit for each in (healthy, to_wake, resources & ~healthy & ~to_wake) for bit in sorted(positions(each))]

    def _sleepers_outside(self, reservation: PlannedReservation | None) -> Iterator[RunningJob]:
        for job in self._sleepers:
            if reservation is None or not is_inside(self._types[job.id], reservation):
                yield job
