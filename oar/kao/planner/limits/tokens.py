"""Tokens of the site, such as licences (``oarsub -t token:<name>=<number>``): jobs take tokens when they start.

See docs/design/planner.rst, "Types of jobs".
"""

from collections.abc import Mapping

from oar.kao.facts import reasons
from oar.kao.facts.job_types import ParsedTypes
from oar.kao.facts.plan import Reason


class FreeTokens:
    """The tokens that are still free in a round."""

    def __init__(self, counts: Mapping[str, int | None]) -> None:
        """``counts``: the free tokens by name; None = unknown.  A name without an entry has no script."""
        self._counts = dict(counts)

    def take(self, types: ParsedTypes) -> None:
        """Subtract the tokens of a job that starts now."""
        for name, count in types.tokens:
            free = self._counts.get(name)
            if free is not None:
                self._counts[name] = free - count

    def shortage(self, types: ParsedTypes) -> Reason | None:
        """Return the reason why there are too few tokens for a job to start now; return None if there are enough."""
        for name, count in types.tokens:
            if name not in self._counts:
                return reasons.no_script(name)
            free = self._counts[name]
            if free is None:
                return reasons.no_tokens(name)
            if free < count:
                return reasons.few_tokens(name, free, count)
        return None
