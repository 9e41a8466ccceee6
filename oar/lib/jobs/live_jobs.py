"""Jobs that have not ended: the fields that the job row and the entry in a plan have in common."""

from collections.abc import Callable
from dataclasses import dataclass, fields
from operator import attrgetter

from oar.lib.jobs.states import JobState, Reservation


@dataclass(frozen=True, slots=True)
class LiveJob:
    """The fields of a job that a scheduling pass needs in every state."""

    id: int
    queue: str
    user: str
    project: str
    name: str
    state: JobState
    reservation: Reservation = Reservation.NONE
    is_interactive: bool = False
    array_id: int = 0
    array_limit: int = 0  #: so many jobs of its array may run at a time; 0 = all


_Values = tuple[int, str, str, str, str, JobState, Reservation, bool, int, int]
#: The values of a job in the order of the fields above, with which another record of the same job begins.
shared: Callable[[LiveJob], _Values] = attrgetter(*(field.name for field in fields(LiveJob)))
