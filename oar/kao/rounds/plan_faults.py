"""Faults of plans: their jobs are removed before the plan is written, and the round is saved for a bug report.

Troubles and failures of the planner are logged.
"""

import logging
from pathlib import Path

from oar.kao.facts.plan import Placement, Plan
from oar.kao.facts.snapshot import Snapshot
from oar.kao.facts.steps import Steps, result_of
from oar.kao.planner.plan_check import looking_for_faults, without
from oar.kao.planner.resources.compiled_requests import CompiledRequests
from oar.kao.rounds.snapshot_files import save_latest

log = logging.getLogger(__name__)

#: So many saved rounds of each kind stay.
MAX_SAVED_ROUNDS = 5


class PlanGuard:
    """Checks the plans of one scheduler; an unchanged placement is checked only once."""

    def __init__(self, directory: str) -> None:
        """``directory``: for saved rounds."""
        self._directory = Path(directory)
        self._requests: CompiledRequests | None = None
        self._checked: dict[int, Placement] = {}
        self._faults: dict[int, str] = {}
        self._troubles: tuple[str, ...] = ()
        self._failure_origins: set[str] = set()

    def without_faults(self, snapshot: Snapshot, plan: Plan, requests: CompiledRequests) -> Plan:
        """Return the plan without the jobs that have faults; return the same object if there are none.

        Placements of earlier rounds are not checked again as long as ``requests`` is the same object.  Resources and
        pools are then the same, too.
        """
        return result_of(self.leaving_out_faults(snapshot, plan, requests))

    def leaving_out_faults(self, snapshot: Snapshot, plan: Plan, requests: CompiledRequests) -> Steps[Plan]:
        """Do the same as ``without_faults`` in steps."""
        checked = self._checked if requests is self._requests else None
        faults = yield from looking_for_faults(snapshot, plan, requests, checked)
        self._requests = requests
        self._checked = {place.job_id: place for place in plan.placements if place.job_id not in faults}
        if faults and faults != self._faults:
            path = save_latest(snapshot, self._directory, "refused-round", MAX_SAVED_ROUNDS)
            log.error("a plan is wrong%s", f": please send {path} with a bug report" if path else "")
        self._faults = faults
        return without(plan, faults) if faults else plan

    def log_troubles(self, snapshot: Snapshot, plan: Plan) -> None:
        """Log troubles that the last round did not have, and failures of new origin; save the round of the latter."""
        for line in plan.troubles:
            if line not in self._troubles:
                log.warning("%s", line)
        self._troubles = plan.troubles
        failures = {failure.origin: failure for failure in plan.failures if failure.origin not in self._failure_origins}
        if not failures:
            return
        self._failure_origins |= failures.keys()
        path = save_latest(snapshot, self._directory, "failed-round", MAX_SAVED_ROUNDS)
        for failure in failures.values():
            log.error("[%d] cannot be planned; the round is saved in %s\n%s", failure.job_id, path, failure.trace)
