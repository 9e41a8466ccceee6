"""The resources on which each class of jobs may be placed, depending on the states of resources.

See docs/design/planner.rst, "Resources of a job".
"""

from oar.kao.facts.job_types import ParsedTypes
from oar.kao.facts.snapshot import Snapshot
from oar.lib.base.resource_set import ResourceSet, from_positions, positions
from oar.lib.nodes.states import ResourceState


class UsableResources:
    """The resources of a snapshot, grouped by usability."""

    def __init__(self, snapshot: Snapshot) -> None:
        resources = snapshot.resources
        shared_type = snapshot.settings.always_assigned_type
        #: assigned to every job besides its own resources; in no space
        self.shared = resources.where(resources.types, shared_type) if shared_type else 0
        self.alive = resources.where(resources.states, ResourceState.ALIVE)
        self.absent = resources.where(resources.states, ResourceState.ABSENT)
        self.suspected = resources.where(resources.states, ResourceState.SUSPECTED)
        self.not_dead = self.alive | self.absent | self.suspected
        self.present = self.not_dead & ~self.shared
        upto = resources.available_upto
        self.wakeable: ResourceSet = 0  #: Absent, but can be woken
        if snapshot.settings.may_wake:
            self.wakeable = from_positions(bit for bit in positions(self.absent) if upto[bit] > snapshot.now)
        self.ordinary = (self.alive | self.wakeable) & self.present
        #: the classes of resources that the planner distinguishes; wakeable resources count as Alive
        self.classes = self.ordinary, self.present, self.suspected, self.absent & ~self.wakeable
        self.limits = resources.leaving()  #: dates at which resources leave -> the resources that leave then

    def by(self, types: ParsedTypes, *, is_reservation: bool) -> tuple[str, ResourceSet]:
        """Return the name and the resources of a job's class."""
        if is_reservation or types.is_permissive:
            return "any", self.present
        return "ordinary", self.ordinary

    def last_limit_before(self, date: int) -> int:
        """Return the last date before ``date`` at which resources are withdrawn; return 0 if there is none."""
        return max((limit for limit in self.limits if limit < date), default=0)

    def leaving_before(self, date: int) -> ResourceSet:
        leaving = 0
        for limit, resources in self.limits.items():
            leaving |= resources if limit < date else 0
        return leaving
