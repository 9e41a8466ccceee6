"""Each plan is looked at before it is written; what it must not hold is taken out, and the round saved for replay."""

import logging
from pathlib import Path

from oar.kao.check import violations, without
from oar.kao.model import Placement, Plan, Snapshot
from oar.kao.requests import Requests
from oar.kao.saving import keep

log = logging.getLogger(__name__)

#: So many saved rounds are kept.
KEPT = 5


class Guard:
    """Looks at the plans of one scheduler; remembers which placements it has seen."""

    def __init__(self, directory: str) -> None:
        self._directory = Path(directory)
        self._requests: Requests | None = None
        self._seen: dict[int, Placement] = {}
        self._refused: dict[int, str] = {}
        self._troubles: tuple[str, ...] = ()
        self._causes: set[str] = set()

    def passed(self, snapshot: Snapshot, plan: Plan, requests: Requests) -> Plan:
        """Return the plan without what is wrong in it; the same plan if nothing is.

        The same ``requests`` as the last time mean the same resources and filters.
        """
        known = self._seen if requests is self._requests else None
        found = violations(snapshot, plan, requests, known)
        self._requests = requests
        self._seen = {place.job_id: place for place in plan.placements if place.job_id not in found}
        if found and found != self._refused:
            self._save(snapshot)
        self._refused = found
        return without(plan, found) if found else plan

    def tell(self, snapshot: Snapshot, plan: Plan) -> None:
        """Write into the log what is new of the troubles of a round; a new failure of ours is saved for replay."""
        for line in plan.troubles:
            if line not in self._troubles:
                log.warning("%s", line)
        self._troubles = plan.troubles
        new = {failure.cause: failure for failure in plan.failures if failure.cause not in self._causes}
        if not new:
            return
        self._causes |= new.keys()
        path = keep(snapshot, self._directory, "failed-round", KEPT)
        for failure in new.values():
            log.error("[%d] cannot be planned; the round is saved in %s\n%s", failure.job_id, path, failure.trace)

    def _save(self, snapshot: Snapshot) -> None:
        path = keep(snapshot, self._directory, "refused-round", KEPT)
        log.error("a plan is wrong%s", f": please send {path} with a bug report" if path else "")
