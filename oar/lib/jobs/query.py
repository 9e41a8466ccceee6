"""Which jobs a page shows: conditions that hold together, and where the page begins."""

from typing import NamedTuple

from oar.lib.jobs.states import FINAL, JobState

#: The states of the jobs that have not ended.
LIVE_STATES = frozenset(JobState) - FINAL


class JobQuery(NamedTuple):
    """Jobs that satisfy everything that is given; None and empty tuples restrict nothing.  Dates are epoch seconds."""

    states: frozenset[JobState] | None = LIVE_STATES  #: None: all
    ids: tuple[int, ...] | None = None
    arrays: tuple[int, ...] = ()
    users: tuple[str, ...] = ()
    queues: tuple[str, ...] = ()
    projects: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    types: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()  #: network addresses of nodes, of which a job has or had one
    reservations: frozenset[int] | None = None  #: ids of advance reservations, of which a job is in one
    text: str | None = None  #: an id, or a part of a name or a user
    between: tuple[int, int] | None = None  #: the life of the job, from its submission to its end, meets this period
    ended_since: int | None = None  #: jobs that ended earlier are left out
    with_frames: bool = False  #: frames of advance reservations, too


class JobPlace(NamedTuple):
    """A piece of the jobs, in the order of their ids."""

    limit: int
    after: int | None = None  #: the id behind which the piece begins
    newest_first: bool = False
