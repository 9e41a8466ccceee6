"""The history of predictions: predicted starts of jobs, for comparison with the actual starts.

Two predictions are kept for each waiting job: the first one, and the first one that is less than 1 hour ahead.
Reservations are excluded, because their dates are fixed.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from oar.kao.facts.plan import Plan
from oar.kao.facts.snapshot import Snapshot
from oar.lib.db.transaction import Transaction
from oar.lib.jobs.sql_waits import ToldStart
from oar.lib.jobs.states import Reservation

#: A start is near when it is no more seconds away than this.
NEAR = 3600

#: Predictions are removed so many seconds after the start of their job.
RETENTION = 90 * 86400

#: Old predictions are looked for so often, in seconds.
SWEEP_PERIOD = 86400


@dataclass(frozen=True, slots=True)
class NewPredictions:
    """The predictions of a plan to store."""

    first: list[ToldStart] = field(default_factory=list)
    near: list[ToldStart] = field(default_factory=list)


def new_predictions(
    snapshot: Snapshot, plan: Plan, started: Collection[int], pending: Mapping[int, bool]
) -> NewPredictions:
    """Return the predictions to store; ``pending``: the jobs with a prediction, and whether it is a near one."""
    new = NewPredictions()
    starts = {placement.job_id: placement.start for placement in plan.placements}
    for job in snapshot.waiting:
        start = starts.get(job.id)
        if start is None or job.reservation is not Reservation.NONE or job.id in started:
            continue
        prediction = ToldStart(job.id, job.queue, start)
        if job.id not in pending:
            new.first.append(prediction)
        if start - plan.now <= NEAR and not pending.get(job.id):
            new.near.append(prediction)
    return new


class PredictionHistory:
    """Writes predictions; a warm instance knows which jobs have stored predictions."""

    def __init__(self) -> None:
        self._pending: dict[int, bool] | None = None
        self._next_pending: dict[int, bool] = {}
        self._swept_at = 0

    def write(self, tx: Transaction, snapshot: Snapshot, plan: Plan, started: Mapping[int, int]) -> None:
        """Write the new predictions of a plan, and the start dates of jobs (``started``, by job id)."""
        pending = tx.job_waits.pending_predictions() if self._pending is None else self._pending
        new = new_predictions(snapshot, plan, started, pending)
        tx.job_waits.store_first_predictions(new.first)
        tx.job_waits.store_near_predictions(new.near)
        tx.job_waits.store_starts(started)
        if self._is_sweep_due(plan.now):
            tx.job_waits.forget_predictions_before(plan.now - RETENTION)
        waiting = {job.id for job in snapshot.waiting} - started.keys()
        self._next_pending = {job_id: is_near for job_id, is_near in pending.items() if job_id in waiting}
        self._next_pending |= {prediction.job_id: False for prediction in new.first}
        self._next_pending |= {prediction.job_id: True for prediction in new.near}

    def remember(self, plan: Plan) -> None:
        """Store what has been written; call this after the commit."""
        self._pending = self._next_pending
        if self._is_sweep_due(plan.now):
            self._swept_at = plan.now

    def forget(self) -> None:
        """Delete the cached state: the next write reads the table again."""
        self._pending = None

    def _is_sweep_due(self, now: int) -> bool:
        return not 0 <= now - self._swept_at < SWEEP_PERIOD
