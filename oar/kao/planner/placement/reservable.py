"""The resources that advance reservations may get; shared by requests, changes and replacements.

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
    """Classifies the resources of a snapshot for advance reservations."""

    def __init__(self, snapshot: Snapshot, types: Mapping[int, ParsedTypes], usable: UsableResources) -> None:
        self._now = snapshot.now
        self._types = types
        self._usable = usable
        self._maintained = snapshot.maintenance
        self._sleepers = [job for job in snapshot.running if job.state in _ASLEEP]
        self._asleep = union(job.resources for job in self._sleepers)
        self._held = {job.id: job.resources for job in snapshot.running} if snapshot.reservations else {}

    def bound(self, reservation: PlannedReservation) -> ResourceSet:
        """Return the resources that a reservation must keep because its jobs hold them; 0 for a flexible one."""
        if reservation.is_flexible:
            return 0
        return reservation.resources & union(self._held.get(number, 0) for number in reservation.live_jobs)

    def asleep(self, reservation: PlannedReservation | None = None) -> ResourceSet:
        """Return the resources of suspended jobs that a reservation cannot use (those of its own jobs excluded)."""
        if reservation is None:
            return self._asleep
        return union(job.resources for job in self._sleepers_outside(reservation))

    def sleepers(self, resources: ResourceSet, reservation: PlannedReservation | None = None) -> list[str]:
        """Return texts for the suspended jobs that keep some of these resources, ordered by job id."""
        jobs = self._sleepers_outside(reservation)
        return [f"suspended job {number}" for number in sorted(job.id for job in jobs if job.resources & resources)]

    def healthy(self, start: int) -> ResourceSet:
        """Return the resources that would not be missing in a reservation starting at ``start``.

        For a start in the future, sleeping nodes count because they can be woken.
        """
        present = self._usable.ordinary if start > self._now else self._usable.alive & self._usable.present
        return present & ~self._maintained

    def choose(self, request: RequestFit, free: ResourceSet, start: int) -> ResourceSet:
        """Return where a request fits: on healthy resources, or with as few others as possible; return 0 if nowhere."""
        healthy = free & self.healthy(start)
        return request.fit(healthy) or fit_first(request, self.ranks(free & ~healthy, start), healthy)

    def ranks(self, resources: ResourceSet, start: int) -> list[int]:
        """Return the resources in order of preference: healthy ones, those to be woken, others."""
        healthy = resources & self.healthy(start)
        to_wake = resources & self._usable.wakeable & ~healthy
        return [bit for each in (healthy, to_wake, resources & ~healthy & ~to_wake) for bit in sorted(positions(each))]

    def _sleepers_outside(self, reservation: PlannedReservation | None) -> Iterator[RunningJob]:
        for job in self._sleepers:
            if reservation is None or not is_inside(self._types[job.id], reservation):
                yield job
