"""The state shared by the parts of the planner in a round: its input, and the results so far."""

from collections.abc import Mapping
from dataclasses import dataclass

from oar.kao.facts.job_types import ParsedTypes
from oar.kao.facts.snapshot import Settings, Snapshot
from oar.kao.planner.placement.bookings import Bookings
from oar.kao.planner.placement.decisions import Decisions
from oar.kao.planner.resources.compiled_requests import CompiledRequests
from oar.kao.planner.resources.spaces import Spaces
from oar.kao.planner.resources.usable_resources import UsableResources


@dataclass(frozen=True, slots=True)
class RoundContext:
    """The context of one round."""

    snapshot: Snapshot  #: without the jobs whose types cannot be read
    types: Mapping[int, ParsedTypes]  #: by job id
    requests: CompiledRequests
    bookings: Bookings
    decisions: Decisions

    @property
    def now(self) -> int:
        """Return the date of the round."""
        return self.snapshot.now

    @property
    def settings(self) -> Settings:
        """Return the settings of the planner."""
        return self.snapshot.settings

    @property
    def spaces(self) -> Spaces:
        """Return the spaces with all bookings."""
        return self.bookings.spaces

    @property
    def usable(self) -> UsableResources:
        """Return the resources, grouped by usability."""
        return self.bookings.spaces.usable
