"""Each plan is looked at before it is written; what it must not hold is taken out, and the round saved for replay."""

import logging
from pathlib import Path

from oar.kao.check import violations, without
from oar.kao.codec import to_json
from oar.kao.model import Placement, Plan, Snapshot
from oar.kao.requests import Requests

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

    def _save(self, snapshot: Snapshot) -> None:
        """Write the snapshot; only the latest few are kept."""
        path = self._directory / f"refused-round-{snapshot.now}.json"
        try:
            path.write_text(to_json(snapshot), encoding="utf-8")
            for old in sorted(self._directory.glob("refused-round-*.json"))[:-KEPT]:
                old.unlink(missing_ok=True)
        except OSError as error:
            log.error("a plan is wrong, and its round cannot be saved: %s", error)
        else:
            log.error("a plan is wrong: please send %s with a bug report", path)
