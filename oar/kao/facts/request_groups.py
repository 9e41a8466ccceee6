"""A group of a request, as jobs and advance reservations have it in a snapshot."""

from typing import NamedTuple

from oar.lib.jobs.records import Level


class RequestGroup(NamedTuple):
    """A group of a request: number of its pool in ``Snapshot.pools``, and its levels.

    A tuple: each job is looked up by its groups several times in a round.
    """

    pool: int
    levels: tuple[Level, ...]
