"""Containers and their inner jobs: which containers exist, and which already have a space.

The spaces themselves are in ``oar.kao.planner.resources.spaces``.

See docs/design/planner.rst, "Spaces".
"""

from oar.kao.facts import reasons
from oar.kao.facts.job_types import ParsedTypes
from oar.kao.facts.plan import Reason
from oar.kao.facts.snapshot import WaitingJob
from oar.kao.planner.placement.round_context import RoundContext
from oar.kao.planner.resources.spaces import COMMON, Space
from oar.lib.jobs.states import Reservation

#: In the place of the id of a job: a container on hold.
_ON_HOLD = -1


class Containers:
    """All containers of a snapshot, by the names that inner jobs may use: container names and job ids."""

    def __init__(self, context: RoundContext) -> None:
        self._spaces = context.spaces
        self._ids = dict.fromkeys(context.snapshot.held_containers, _ON_HOLD)
        self._reservations: set[str] = set()
        self._treated: set[int] = set()
        types = context.types
        for job in (*context.snapshot.running, *context.snapshot.waiting):
            if not types[job.id].container:
                continue
            names = types[job.id].container_names(job.id)
            self._ids |= dict.fromkeys(names, job.id)
            if job.reservation is not Reservation.NONE:
                self._reservations.update(names)

    def note_turn(self, job: WaitingJob) -> None:
        """Record that the planner has reached a job, which may be a container."""
        self._treated.add(job.id)

    def space_of(self, types: ParsedTypes) -> Space | Reason:
        """Return the space in which a job is placed; return a Reason if it does not exist yet."""
        space = self._spaces.find(types.inner or COMMON)
        if space is None:
            is_treated = self._ids.get(types.inner, _ON_HOLD) in self._treated
            return reasons.container_unplaced(types.inner, is_treated=is_treated)
        return space.for_besteffort() if types.is_besteffort else space

    def error(self, job: WaitingJob, types: ParsedTypes) -> str:
        """Return why an inner job can never run in its container; return '' if it can."""
        if not types.inner:
            return ""
        if types.inner in (types.container, str(job.id)):
            return "Inner job: job cannot be its own container, setting it to error"
        if types.inner not in self._ids and self._spaces.find(types.inner) is None:
            return _unknown(types.inner)
        return ""

    def reservation_error(self, job: WaitingJob, types: ParsedTypes) -> str:
        """Return why an inner reservation is refused; return '' if it is not.

        Its container must be a reservation that has a space.
        """
        error = self.error(job, types)
        if error or not types.inner:
            return error
        is_accepted = types.inner in self._reservations and self._spaces.find(types.inner) is not None
        return "" if is_accepted else _unknown(types.inner)


def _unknown(container: str) -> str:
    return f"Inner job: container {container} does not exist, inner job will never run, setting it to error"
