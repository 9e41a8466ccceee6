"""A group of a request, as jobs and advance reservations have it in a snapshot."""

from dataclasses import dataclass

from oar.lib.facts.records import Level


@dataclass(frozen=True, slots=True)
class RequestGroup:
    """A group of a request: number of its pool in ``Snapshot.pools``, and its levels."""

    pool: int
    levels: tuple[Level, ...]
