"""The check of a placement from a plug-in or an external scheduler, before it is booked."""

from oar.kao.facts import reasons
from oar.kao.facts.job_types import ParsedTypes
from oar.kao.facts.plan import Placement, Reason
from oar.kao.facts.snapshot import Snapshot, WaitingJob
from oar.kao.planner.resources.spaces import Space
from oar.lib.base.resource_set import ResourceSet


class ChoiceCheck:
    """Finds faults of placements."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._resources = snapshot.resources
        self._security_time = snapshot.settings.security_time

    def fault(
        self,
        job: WaitingJob,
        types: ParsedTypes,
        placement: Placement,
        *,
        space: Space | Reason,
        begin: int,
        usable: ResourceSet,
    ) -> str:
        """Return why a placement must not be booked; return '' if it may be.

        ``space``: the space of the job, or the reason why there is none.  ``begin``: the earliest start.  The check
        does not include whether the request is satisfied.
        """
        alternative = next((each for each in job.alternatives if each.id == placement.alternative), None)
        is_known = alternative is not None and placement.walltime == alternative.walltime_from(placement.start)
        if not is_known or placement.job_id != job.id:
            return f"{placement.alternative} is no alternative of the job with that walltime"
        if isinstance(space, Reason):
            return space.text
        if placement.start < begin:
            return f"it begins at {placement.start}, before {begin}"
        if not is_resource_set(placement.resources) or not placement.resources:
            return "it has no resources"
        unusable = placement.resources & ~usable
        if unusable:
            return f"the resources {self._listed(unusable)} cannot be used"
        end = placement.end + self._security_time
        occupied = placement.resources & ~space.slots.free_between(placement.start, end, types.shared_keys)
        return f"the resources {self._listed(occupied)} are not free" if occupied else ""

    def _listed(self, resources: ResourceSet) -> str:
        ids = self._resources.ids_of(resources)
        return ",".join(map(str, ids[: reasons.NAMED])) + (",..." if len(ids) > reasons.NAMED else "")


def is_resource_set(value: object) -> bool:
    """Return whether a value from a plug-in is a set of resources."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
