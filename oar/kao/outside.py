"""Schedulers of the site, as a round sees them: each is asked for the places of a queue's jobs (scheduling.md 3.2).

What they answer is looked at and entered by the round; how they are run is in ``oar.kao.external``.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from oar.kao.model import Answer, Placement, WaitingJob
from oar.lib.model import Queue


@dataclass(frozen=True, slots=True)
class Proposal:
    """What a scheduler of the site decided for the jobs of a queue."""

    scheduler: str  #: its name
    placements: tuple[Placement, ...] = ()  #: as it gave them, unchecked
    rejected: Mapping[int, str] = field(default_factory=dict)  #: jobs whose places cannot even be read, and why
    said: Mapping[int, str] = field(default_factory=dict)  #: what it says about jobs (``scheduler_info``)
    messages: Mapping[int, str] = field(default_factory=dict)  #: messages of its own for jobs
    given_up: tuple[Answer, ...] = ()  #: jobs that it put into toError
    gone: frozenset[int] = frozenset()  #: jobs that do not wait any more
    is_failed: bool = False  #: it did not end as it should: there is nothing else from it


class Outside(Protocol):
    """The schedulers of the site."""

    def plans(self, queue: Queue) -> bool:
        """Whether the jobs of a queue are planned by a scheduler of the site."""

    def plan(self, queue: Queue, jobs: Sequence[WaitingJob], placed: Collection[Placement]) -> Proposal:
        """Let it plan jobs, behind what has been placed before."""
