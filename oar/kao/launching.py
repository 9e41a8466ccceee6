"""Which placements start now, and which besteffort jobs must go for them (scheduling.md 5.1 to 5.3)."""

from collections.abc import Mapping
from dataclasses import dataclass

from oar.kao import explain
from oar.kao.dependencies import Dependencies
from oar.kao.model import Kill, Placement, PlannedJob, Reason, RunningJob, Snapshot, WaitingJob
from oar.kao.spaces import Usable, held_resources
from oar.kao.traits import Traits
from oar.lib.resource_set import ResourceSet, from_positions, positions
from oar.lib.states import JobState

#: States in which a job holds what was given to it against everybody.
HOLDING = frozenset({JobState.TO_LAUNCH, JobState.LAUNCHING, JobState.RUNNING, JobState.FINISHING})


@dataclass(frozen=True, slots=True)
class _Holder:
    job: RunningJob
    traits: Traits
    resources: ResourceSet


class Launching:
    """The jobs that hold resources now, asked for every placement that could start."""

    def __init__(self, snapshot: Snapshot, traits: Mapping[int, Traits], usable: Usable) -> None:
        self._snapshot = snapshot
        self._traits = traits
        self._usable = usable
        self._running = {job.id: job for job in snapshot.running}
        own = ~usable.shared  #: what everybody has is in nobody's way
        self._holders = [
            _Holder(job, traits[job.id], held_resources(job, snapshot.resources, snapshot.settings) & own)
            for job in snapshot.running
        ]
        self._held = 0
        for holder in self._holders:
            self._held |= holder.resources
        self._running_spaces = _running_spaces(snapshot, traits)

    @property
    def shared(self) -> ResourceSet:
        """The resources that every job is given besides its own."""
        return self._usable.shared

    def obstacle(self, job: WaitingJob, dependencies: Dependencies, condition: str) -> Reason | None:
        """Return why a job may not start, whatever its place."""
        inner = self._traits[job.id].inner
        if job.is_killed:
            return explain.killed()
        if inner and inner not in self._running_spaces:
            return explain.waits_for_container(inner)
        if not dependencies.are_met(job, condition):
            return explain.unknown_dependency(job.dependencies[0].required)
        return None

    def holder(self, job: WaitingJob, placement: Placement) -> Reason | None:
        """Return which job still holds a resource of a placement that begins now."""
        victims = self.besteffort_in_the_way(job, placement)
        if victims:
            return explain.waits_for_besteffort([victim.id for victim in victims])
        return next((explain.waits_for_holder(each.job.id) for each in self._in_the_way(job, placement)), None)

    def absent(self, job: WaitingJob, placement: Placement) -> Reason | None:
        """Return which nodes of a placement cannot take the job now."""
        missing = placement.resources & ~self.startable(self._traits[job.id], placement.end)
        return explain.waits_for_nodes(self.names(missing)) if missing else None

    def names(self, resources: ResourceSet) -> list[str]:
        """Return the nodes of some resources; of those that are on no node, the numbers."""
        table = self._snapshot.resources
        return table.nodes_of(resources) or [f"resource {number}" for number in table.ids_of(resources)]

    def startable(self, traits: Traits, end: int) -> ResourceSet:
        """Return the resources on which a job may be started now."""
        usable = self._usable.alive
        if traits.starts_anywhere:
            usable = self._usable.not_dead
        elif traits.is_standby:
            upto = self._snapshot.resources.available_upto
            usable |= from_positions(bit for bit in positions(self._usable.absent) if upto[bit] > end)
        return usable

    def is_waking(self, job: WaitingJob, placement: Placement) -> bool:
        """Whether all resources of a placement are Alive or asleep: they are there as soon as they are needed."""
        usable = self.startable(self._traits[job.id], placement.end) | self._usable.wakeable
        return not placement.resources & ~usable

    def besteffort_in_the_way(self, job: WaitingJob, placement: Placement) -> list[RunningJob]:
        """Return the besteffort jobs that hold resources of a placement of a job that is none."""
        if self._traits[job.id].is_besteffort:
            return []
        return [each.job for each in self._in_the_way(job, placement) if each.traits.is_besteffort]

    def resuming(self) -> list[RunningJob]:
        """Return the jobs that are to go on as soon as they can, in the order of the requests."""
        found = [job for job in self._running.values() if job.state is JobState.RESUMING and not job.is_killed]
        return sorted(found, key=lambda job: (job.turn, job.id))

    def in_the_way_of_resuming(self, job: RunningJob) -> list[tuple[RunningJob, Traits]]:
        """Return the jobs that hold what a job in Resuming gets back, and those before it that get it back too.

        An earlier one may be on its way at this moment: it goes first even if it still waits for another job.
        """
        inside = self._inside(job)
        return [
            (each.job, each.traits)
            for each in self._holders
            if each.resources & job.resources
            and each.job.id != job.id
            and each.job.id not in inside
            and (each.job.state in HOLDING or _is_before(each.job, job))
            and not self._may_share(job, each)
        ]

    def _inside(self, container: RunningJob) -> set[int]:
        """Return the running jobs in a container, and in the containers in it."""
        names = {str(container.id), self._traits[container.id].container} - {""}
        inside: set[int] = set()
        while True:
            new = {each.job.id for each in self._holders if each.traits.inner in names} - inside
            if not new:
                return inside
            inside |= new
            names |= {str(number) for number in new} | {self._traits[number].container for number in new} - {""}

    def _in_the_way(self, job: PlannedJob, placement: Placement) -> list[_Holder]:
        """Return the jobs that hold resources of a placement and do not share them."""
        if not placement.resources & self._held:
            return []
        return [
            holder
            for holder in self._holders
            if holder.resources & placement.resources and not self._may_share(job, holder)
        ]

    def _may_share(self, job: PlannedJob, holder: _Holder) -> bool:
        """Whether a job may be where another is: in another world, or by timesharing or a placeholder."""
        traits = self._traits[job.id]
        if self._world(traits) != self._world(holder.traits):
            return True
        return holder.traits.occupies_as in traits.shares

    def _world(self, traits: Traits) -> str:
        """Return the space in which a running or starting job is; an inner job without container is outside."""
        return self._running_spaces.get(traits.inner, "")


def _is_before(one: RunningJob, other: RunningJob) -> bool:
    return one.state is JobState.RESUMING and (one.turn, one.id) < (other.turn, other.id)


def _running_spaces(snapshot: Snapshot, traits: Mapping[int, Traits]) -> dict[str, str]:
    """Return the spaces of running containers: each name that inner jobs may use -> the name of the space."""
    names: dict[str, str] = {}
    for job in snapshot.running:
        container = traits[job.id].container
        if container and job.state is JobState.RUNNING:
            names[container] = names[str(job.id)] = container
    return names


def kill(victim: RunningJob, for_job: int, now: int) -> Kill | None:
    """Return what is to be done to a besteffort job in the way; None while it writes its checkpoint or is ending."""
    if victim.is_killed or victim.state is JobState.FINISHING:
        return None
    if not victim.checkpoint:
        return Kill(victim.id, for_job, "KILL")
    if not victim.checkpoint_asked:
        return Kill(victim.id, for_job, "CHECKPOINT")
    if now <= victim.checkpoint_asked + victim.checkpoint:
        return None
    return Kill(victim.id, for_job, "KILL" if victim.is_checkpoint_over else "CHECKPOINT_TIMEOUT")
