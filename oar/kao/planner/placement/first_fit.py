"""Find the shortest prefix of a list of resources that satisfies a request."""

from bisect import bisect_left
from collections.abc import Sequence

from oar.lib.base.resource_set import ResourceSet, from_positions
from oar.lib.nodes.hierarchy import RequestFit


def fit_first(request: RequestFit, ranks: Sequence[int], kept: ResourceSet = 0) -> ResourceSet:
    """Return where a request fits in ``kept`` and the shortest sufficient prefix of ``ranks``; return 0 if nowhere."""

    def fit(count: int) -> ResourceSet:
        return request.fit(kept | from_positions(ranks[:count]))

    if not fit(len(ranks)):
        return 0
    return fit(bisect_left(range(len(ranks)), True, key=lambda count: bool(fit(count))))
