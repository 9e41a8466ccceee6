"""A request group, as stored in the jobs and advance reservations of a snapshot."""

from typing import NamedTuple

from oar.lib.jobs.records import Level


class RequestGroup(NamedTuple):
    """A request group: its pool (index in ``Snapshot.pools``) and its levels.

    A named tuple, because groups are hashed as dictionary keys several times per job and round.
    """

    pool: int
    levels: tuple[Level, ...]
