"""Series of advance reservations as users see them: records, of which all formats are made."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from oar.lib.base.errors import BrokenRow
from oar.lib.reservations.series_records import Series
from oar.lib.reservations.states import ReservationState

if TYPE_CHECKING:
    from oar.lib.db.transaction import Transaction


class ShownSeries(NamedTuple):
    """A series with what is shown with it."""

    series: Series
    name: str  #: of the reservations to come
    live: tuple[int, ...]  #: the numbers of those that are granted and have not ended

    @property
    def left(self) -> int:
        """How many occurrences were not asked for."""
        return self.series.occurrences - self.series.next_index + 1 if self.series.next_start else 0


def shown_series(tx: "Transaction", series: Sequence[Series]) -> list[ShownSeries]:
    """Return series with what is shown with them, in a fixed number of queries."""
    live: dict[int, list[int]] = {}
    for each in tx.reservations.of_series([each.id for each in series]):
        if each.is_live and each.state is not ReservationState.ASKED:
            live.setdefault(each.series_id, []).append(each.number)
    return [ShownSeries(each, _name(each), tuple(live.get(each.id, ()))) for each in series]


def _name(series: Series) -> str:
    """Return the name of the reservations to come, '' of a series that cannot be read."""
    try:
        return series.read_template.new.name
    except BrokenRow:
        return ""


def series_record(item: ShownSeries) -> dict[str, Any]:
    """Return the fields for machine formats."""
    each = item.series
    return {
        "id": each.id,
        "name": item.name,
        "owner": each.owner,
        "rule": each.rule,
        "time_zone": each.time_zone,
        "first_start": each.first_start,
        "duration": each.duration,
        "depth": each.depth,
        "conflict": "skip" if each.skips_conflicts else "fail",
        "occurrences": each.occurrences,
        "left": item.left,
        "next_start": each.next_start,
        "reservations": list(item.live),
        "ended": each.ended,
    }
