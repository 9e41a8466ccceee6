"""Proposals of external schedulers: programs of the site that plan the jobs of a queue.

``oar.kao.rounds.site.external_schedulers`` runs them; ``oar.kao.planner.proposal_review`` checks and books their
placements.

See docs/design/planner.rst, "Schedulers of the site".
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from oar.kao.facts.plan import Answer, Placement
from oar.kao.facts.snapshot import WaitingJob
from oar.lib.jobs.records import Queue


@dataclass(frozen=True, slots=True)
class SchedulerProposal:
    """The decisions of an external scheduler on the jobs of a queue, by job id where they concern one job."""

    scheduler: str  #: name of the program
    placements: tuple[Placement, ...] = ()  #: not checked yet
    rejected: Mapping[int, str] = field(default_factory=dict)  #: why a placement could not even be read
    said: Mapping[int, str] = field(default_factory=dict)  #: what the program wrote to ``scheduler_info``
    messages: Mapping[int, str] = field(default_factory=dict)  #: what it wrote to ``jobs.message``
    given_up: tuple[Answer, ...] = ()  #: jobs that it put into toError
    gone: frozenset[int] = frozenset()  #: jobs that no longer wait
    is_failed: bool = False  #: it ended with an error: nothing of the above is filled


class ExternalPlanner(Protocol):
    """All external schedulers of a site."""

    def plans(self, queue: Queue) -> bool:
        """Return whether an external scheduler plans the jobs of a queue."""

    def plan(self, queue: Queue, jobs: Sequence[WaitingJob], placed: Collection[Placement]) -> SchedulerProposal:
        """Return the proposal for the jobs of a queue; ``placed`` are the placements of the round so far."""
