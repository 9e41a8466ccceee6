"""Check whether the reservations of a changed series would overlap.

See docs/design/reservations.rst, "Series".
"""

from oar.kao.rounds.hypothetical import reservation_trials
from oar.lib.config.files import Config
from oar.lib.db.database import Database
from oar.lib.reservations.grid_engine_times import write_date
from oar.lib.reservations.preparation import BadReservation
from oar.lib.reservations.series_changes import ChangedSeries
from oar.lib.reservations.states import ReservationState


def check_overlaps(database: Database, config: Config, changed: ChangedSeries) -> None:
    """Raise BadReservation if occurrences of the changed series conflict with each other."""
    if not (together := changed.together):
        return
    series, ids = changed.series, [each.id for each in changed.to_begin]
    steps = reservation_trials.answers(database, config, together, skips_conflicts=True, without=ids)
    refused = {step.reservation_id for step in steps if step.state is ReservationState.REFUSED}
    for step, occurrence in zip(steps, together, strict=True):
        others = [
            each
            for other, each in zip(steps, together, strict=True)
            if other.reservation_id not in refused and each.start < occurrence.end and occurrence.start < each.end
        ]
        if step.reservation_id in refused and others:
            raise BadReservation(
                f"denied: Series {series.id} can't be altered\n"
                f"  occurrence {occurrence.series_index}, {write_date(occurrence.start)}: there is no place for it"
                f" beside occurrence {others[0].series_index}, until {write_date(others[0].end)}",
                "nothing was changed; write a duration (-d) that ends before the next one begins, or ask for less",
            )
