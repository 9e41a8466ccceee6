"""The start predictions that waiting interactive jobs receive in each round."""

from collections.abc import Sequence
from typing import NamedTuple

from oar.kao.facts.plan import Plan
from oar.kao.facts.snapshot import WaitingJob
from oar.lib.base.times import format_date
from oar.lib.jobs.states import JobState, Reservation

#: An interactive job hears its prediction when it changes, and at least so often.
PREDICTION_PERIOD = 60


class PredictionLine(NamedTuple):
    """A line for the oarsub process that waits for a job."""

    job_id: int
    text: str


class InteractivePredictions:
    """Decides which jobs receive their prediction; stores the last prediction sent to each."""

    def __init__(self) -> None:
        self._last_told: dict[int, tuple[str, int]] = {}  #: by job id: the prediction, and the date

    def lines(self, waiting: Sequence[WaitingJob], plan: Plan) -> list[PredictionLine]:
        """Return a line for each interactive job whose prediction has changed, or is older than PREDICTION_PERIOD."""
        starts = {placement.job_id: placement.start for placement in plan.placements}
        started = {start.placement.job_id for start in plan.started}
        told: dict[int, tuple[str, int]] = {}
        lines = []
        for job in waiting:
            is_listening = job.is_interactive and job.reservation is Reservation.NONE and job.state is JobState.WAITING
            if not is_listening or job.id in started or job.id not in plan.messages:
                continue
            prediction = prediction_text(plan, job.id, starts.get(job.id))
            last_prediction, date = self._last_told.get(job.id, ("", 0))
            if prediction == last_prediction and plan.now - date < PREDICTION_PERIOD:
                told[job.id] = prediction, date
                continue
            told[job.id] = prediction, plan.now
            lines.append(PredictionLine(job.id, f"[{format_date(plan.now)}] Start prediction: {prediction}"))
        self._last_told = told
        return lines


def prediction_text(plan: Plan, job_id: int, start: int | None) -> str:
    """Return the expected start of an interactive job and its message, or why the start is unknown."""
    reason = plan.reasons.get(job_id)
    if start is None or (reason and reason.data.get("overdue")):
        return f"undefined ({reason.text if reason else ''})"
    return f"{format_date(start)} ({plan.messages[job_id]})"
