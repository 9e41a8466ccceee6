"""Advance reservations: new ones are answered, due ones start, lost ones are looked for (scheduling.md 4)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from oar.kao import explain
from oar.kao.launching import Launching
from oar.kao.model import Answer, Launch, Placement, Reason, Snapshot, WaitingJob
from oar.kao.placement import Placer, Policy
from oar.kao.traits import Traits
from oar.lib.states import Reservation
from oar.lib.times import format_date

#: A sleeping node must stay available so much longer than the reservation that starts on it.
STANDBY_MARGIN = 600

CANNOT_RUN = "This reservation cannot run"
OVER_QUOTAS = "This advance reservation cannot run due to quotas"
EXPIRED = "Reservation expired and couldn't be started."
TOO_OLD = "Reservation too old"
RENEWED = "Renewed resources for reservation"
NO_RESOURCE = "No resource for reservation"


@dataclass(frozen=True, slots=True)
class Due:
    """What an accepted reservation does in this round."""

    placement: Placement | None = None  #: its row in the prediction
    reason: Reason | None = None  #: why it does not start
    launch: Launch | None = None
    is_expired: bool = False
    may_kill: bool = False  #: besteffort jobs in its way must go
    log: str = ""


class Reservations:
    """The reservations of a round."""

    def __init__(self, snapshot: Snapshot, placer: Placer, launching: Launching, traits: Mapping[int, Traits]) -> None:
        self._now = snapshot.now
        self._settings = snapshot.settings
        self._placer = placer
        self._launching = launching
        self._traits = traits
        self._containers = _reserved_containers(snapshot, traits)

    def in_order(self, jobs: Sequence[WaitingJob]) -> list[WaitingJob]:
        """Return new reservations by id, but each behind the container in which it is."""
        by_name = {self._traits[job.id].container: job.id for job in jobs if self._traits[job.id].container}

        def depth(job: WaitingJob, seen: frozenset[int] = frozenset()) -> tuple[int, int]:
            outer = by_name.get(self._traits[job.id].inner)
            if outer is None or outer in seen or outer == job.id:
                return 0, job.id
            return depth(jobs_by_id[outer], seen | {job.id})[0] + 1, job.id

        jobs_by_id = {job.id: job for job in jobs}
        return sorted(jobs, key=depth)

    def answer(self, job: WaitingJob, *, has_quotas: bool = False) -> tuple[Answer, Placement | None]:
        """Accept a new reservation (with its placement) or refuse it (with a message)."""
        traits = self._traits[job.id]
        shortest = min((each.walltime for each in job.alternatives), default=0)
        if self._now >= job.start_time + shortest:
            return Answer(job.id, TOO_OLD), None
        start = max(job.start_time, self._now)
        refusal = CANNOT_RUN if traits.is_besteffort else self._container_error(job, traits)
        if refusal:
            return Answer(job.id, refusal, start), None
        policy = self._policy(start, has_quotas=has_quotas)
        placement = self._placer.fit_reservation(job, traits, start, policy)
        if isinstance(placement, Reason):
            return Answer(job.id, OVER_QUOTAS, start), None
        if placement:
            self._placer.enter(job, placement, traits)
            return Answer(job.id, "", start), placement
        later = self._placer.next_start(job, traits, start + 1, policy)
        message = f"This reservation could run at {format_date(later)}" if later else CANNOT_RUN
        return Answer(job.id, message, start), None

    def regain(self, job: WaitingJob) -> Placement | None:
        """Look again for the resources of a reservation whose predictions were lost."""
        start = max(job.start_time, self._now)
        traits = self._traits[job.id]
        placement = self._placer.fit_reservation(job, traits, start, self._policy(start))
        if not isinstance(placement, Placement):
            return None
        self._placer.enter(job, placement, traits)
        return placement

    def due(self, job: WaitingJob, condition: str) -> Due:
        """Decide what an accepted reservation does now."""
        placement = self._granted(job)
        if placement is None:
            longest = max((each.walltime for each in job.alternatives), default=0)
            return Due(is_expired=self._now >= job.start_time + longest)
        if self._now >= job.start_time + placement.walltime:
            return Due(is_expired=True)
        if job.start_time > self._now:
            return Due(placement, explain.reservation_date(job.start_time), may_kill=True)
        waiting = replace(placement, start=self._now + 1)
        obstacle = self._launching.obstacle(job, self._placer.dependencies, condition)
        obstacle = obstacle or self._placer.few_tokens(self._traits[job.id])
        if obstacle:
            return Due(waiting, obstacle)
        held = self._launching.holder(job, placement)
        return Due(waiting, held, may_kill=True) if held else self._start(job, placement, waiting)

    def _start(self, job: WaitingJob, placement: Placement, waiting: Placement) -> Due:
        """Start a reservation with what it has, or wait for what is missing."""
        traits = self._traits[job.id]
        end = placement.end + self._settings.security_time + STANDBY_MARGIN
        present = placement.resources & self._launching.startable(traits, end)
        left = job.start_time + self._settings.reservation_patience - self._now
        if present != placement.resources and (not present or left > 0 or traits.is_hard):
            names = self._launching.names(placement.resources & ~present)
            log = f"[{job.id}] advance reservation is waiting because not all resources are available yet"
            return Due(waiting, explain.waits_for_nodes(names), log=f"{log} (timeout in {max(left, 0)} seconds)")
        late = self._now - job.start_time
        started = replace(
            placement, start=self._now, walltime=placement.walltime - late, resources=present or placement.resources
        )
        is_reduced = present != placement.resources
        self._placer.take_tokens(traits)
        return Due(started, launch=Launch(started, placement.walltime if late else 0, is_reduced))

    def _granted(self, job: WaitingJob) -> Placement | None:
        granted = job.granted
        if granted is None:
            return self._placer.placed.get(job.id)
        walltime = next((each.walltime for each in job.alternatives if each.id == granted.alternative), 0)
        own = granted.resources & ~self._launching.shared
        return Placement(job.id, granted.alternative, job.start_time, walltime, own)

    def _policy(self, start: int, *, has_quotas: bool = False) -> Policy:
        is_distant = start - self._now >= self._settings.reservation_order_threshold
        return Policy(is_reservation=True, is_distant=is_distant, has_quotas=has_quotas)

    def _container_error(self, job: WaitingJob, traits: Traits) -> str:
        error = self._placer.container_error(job, traits)
        if error or not traits.inner or (traits.inner in self._containers and self._placer.is_open(traits.inner)):
            return error
        return f"Inner job: container {traits.inner} does not exist, inner job will never run, setting it to error"


def _reserved_containers(snapshot: Snapshot, traits: Mapping[int, Traits]) -> set[str]:
    """Return the names of the containers that are reservations."""
    names: set[str] = set()
    for job in (*snapshot.running, *snapshot.waiting):
        if traits[job.id].container and job.reservation is not Reservation.NONE:
            names |= {traits[job.id].container, str(job.id)}
    return names
