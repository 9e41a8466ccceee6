"""Texts about the jobs and reservations that conflict with an advance reservation."""

from collections.abc import Sequence

from oar.kao.planner.placement.round_context import RoundContext
from oar.kao.planner.resources.spaces import Space
from oar.lib.base.enumerations import enumerated
from oar.lib.base.resource_set import ResourceSet

#: So many obstacles are named in a refusal.
MAX_NAMED = 5


class Obstacles:
    """Lists the names of the jobs and advance reservations that hold resources."""

    def __init__(self, context: RoundContext) -> None:
        self._numbers = {each.frame_id: each.number for each in context.snapshot.reservations}

    def named(self, space: Space, resources: ResourceSet, start: int, end: int, asleep: Sequence[str] = ()) -> str:
        """Return the holders of these resources between two dates, in brackets; return '' if there are none.

        ``asleep``: the names of the suspended jobs that keep some of the resources.
        """
        holders = dict.fromkeys(
            self._name(job_id)
            for occupation, _ in space.entered
            if occupation.start < end and occupation.end > start and occupation.resources & resources
            for job_id, held in occupation.holders()
            if held & resources and f"suspended {self._name(job_id)}" not in asleep
        )
        names = [*holders, *asleep]
        return f" ({enumerated(names, MAX_NAMED)})" if names else ""

    def _name(self, job_id: int) -> str:
        if job_id not in self._numbers:
            return f"job {job_id}"
        number = self._numbers[job_id]
        return f"advance reservation {number}" if number else "another one of its series"
