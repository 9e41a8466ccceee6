"""Tokens of the site, such as licences (``oarsub -t token:<name>=<number>``): a job that starts takes some.

See docs/design/planner.rst, "Types of jobs".
"""

from collections.abc import Mapping

from oar.kao.facts import reasons
from oar.kao.facts.job_types import ParsedTypes
from oar.kao.facts.plan import Reason


class FreeTokens:
    """The tokens that jobs may still take in a round."""

    def __init__(self, counts: Mapping[str, int | None]) -> None:
        """``counts``: the free tokens by name; None = unknown.  A name that is not there has no script."""
        self._counts = dict(counts)

    def take(self, types: ParsedTypes) -> None:
        """Let a job that starts now take its tokens."""
        for name, count in types.tokens:
            free = self._counts.get(name)
            if free is not None:
                self._counts[name] = free - count

    def shortage(self, types: ParsedTypes) -> Reason | None:
        """Return the reason why a job has too few tokens to start now; None if it has enough."""
        for name, count in types.tokens:
            if name not in self._counts:
                return reasons.no_script(name)
            free = self._counts[name]
            if free is None:
                return reasons.no_tokens(name)
            if free < count:
                return reasons.few_tokens(name, free, count)
        return None
