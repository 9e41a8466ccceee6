"""Change the template of a series of advance reservations, and find the live occurrences that must change too.

The commands and the API both use this module, in this order: ``rehearse``; check whether the occurrences conflict with
each other (``oar/kao/rounds/hypothetical/reservation_trials.py``); ``change``; then change each reservation separately.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from oar.lib.reservations import alteration, listed_users, occurrences, preparation
from oar.lib.reservations.change_requests import Changer, ChangeWish
from oar.lib.reservations.records import AdvanceReservation, NewReservation, Series
from oar.lib.reservations.states import STARTED

if TYPE_CHECKING:
    from oar.lib.db.transaction import Transaction

_PROGRAM = "qralter"


class ChangedSeries(NamedTuple):
    """A series with its new template, and its live reservations from the given one on."""

    series: Series
    coming: Sequence[AdvanceReservation]

    @property
    def to_begin(self) -> list[AdvanceReservation]:
        """The reservations that have not begun."""
        return [each for each in self.coming if each.state not in STARTED]

    @property
    def together(self) -> list[NewReservation]:
        """The next occurrences with the new template if some of them overlap; else []."""
        return occurrences.overlapping(self.series, self.to_begin)


class _RehearsedSeries(Exception):
    """Ends a rehearsal and rolls its transaction back."""

    def __init__(self, changed: ChangedSeries) -> None:
        super().__init__()
        self.changed = changed


def rehearse(changer: Changer, wish: ChangeWish, name: str) -> ChangedSeries:
    """Return the result that ``change`` would have, without storing it.  Raises UserError."""
    try:
        with changer.database.begin() as tx:
            raise _RehearsedSeries(_change(changer, tx, wish, name))
    except _RehearsedSeries as rehearsed:
        return rehearsed.changed


def change(changer: Changer, wish: ChangeWish, name: str) -> ChangedSeries:
    """Change the template of a series; return the series and its live reservations.

    ``name``: number or name of one of its reservations.  ``wish``: its dates are ignored.  Raises UserError.
    """
    with changer.database.begin() as tx:
        return _change(changer, tx, wish, name)


def _change(changer: Changer, tx: "Transaction", wish: ChangeWish, name: str) -> ChangedSeries:
    attributes = wish.attributes(changer.user.name)
    if attributes.access is not None:
        listed_users.expand(tx, attributes.access, limit=0, known=(changer.user.name,))
    _, other = changer.other_resources(tx, wish, name, attributes.access, of_series=True)
    first = changer.locked(tx, name)
    duration = preparation.read_dates(None, None, wish.duration, tx.now, _PROGRAM).duration
    preparation.check_horizon(tx.now + (duration or 0), tx.now)
    asked = {"request": other.request, **other.columns} if other else {}
    series = alteration.change_series(tx, first, attributes, duration, asked)
    behind = tx.reservations.of_series([first.series_id])
    coming = [each for each in behind if each.is_live and each.series_index >= first.series_index]
    return ChangedSeries(series, coming)
