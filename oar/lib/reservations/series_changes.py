"""Changes of a series of advance reservations: what is asked for with the coming ones, and who has to be changed now.

Commands and the API call it alike, in this order: ``rehearse``, then whether its occurrences would be in each other's
way (``oar/kao/rounds/hypothetical/series_trials.py``), ``change``, and then a change of each reservation by itself.
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
    """A series with its new template, and its live reservations from the one that was named on."""

    series: Series
    coming: Sequence[AdvanceReservation]

    @property
    def to_begin(self) -> list[AdvanceReservation]:
        """Those of them that have not begun."""
        return [each for each in self.coming if each.state not in STARTED]

    @property
    def together(self) -> list[NewReservation]:
        """The next occurrences as they are wished, if some of them overlap; [] = none does."""
        return occurrences.overlapping(self.series, self.to_begin)


class _RehearsedSeries(Exception):
    """The end of a rehearsal: nothing of it is committed."""

    def __init__(self, changed: ChangedSeries) -> None:
        super().__init__()
        self.changed = changed


def rehearse(changer: Changer, wish: ChangeWish, name: str) -> ChangedSeries:
    """Return what ``change`` would make of the series of a reservation; nothing is stored.  Raises UserError."""
    try:
        with changer.database.begin() as tx:
            raise _RehearsedSeries(_change(changer, tx, wish, name))
    except _RehearsedSeries as rehearsed:
        return rehearsed.changed


def change(changer: Changer, wish: ChangeWish, name: str) -> ChangedSeries:
    """Change what is asked for with the coming reservations of a series; return those that are there already.

    ``name``: number or name of one of them.  ``wish``: its dates count for nothing.  Raises UserError.
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
