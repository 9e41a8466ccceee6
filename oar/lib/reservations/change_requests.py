"""Requests to change advance reservations: parse, admit and store them for the scheduler.

The commands and the API both use this module.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from oar.lib.access.records import User
from oar.lib.config.files import Config
from oar.lib.reservations import alteration, drafts, listed_users, preparation
from oar.lib.reservations import drafts as asked_before
from oar.lib.reservations.alteration import AttributeChange, WantedChange
from oar.lib.reservations.drafts import OtherResources
from oar.lib.reservations.preparation import BadReservation, ReservationWish
from oar.lib.reservations.records import AccessEntry, AdvanceReservation, is_number
from oar.lib.reservations.states import GRANTED

if TYPE_CHECKING:
    from oar.lib.db.database import Database
    from oar.lib.db.transaction import Transaction

_PROGRAM = "qralter"


class ChangeWish(NamedTuple):
    """Changes of a reservation, as the texts of the options of qralter; None and empty mean unchanged."""

    start: str | None = None
    duration: str | None = None
    end: str | None = None
    name: str | None = None
    account: str | None = None
    hard: str | None = None
    mail_options: str | None = None
    mail_list: tuple[str, ...] = ()
    users: tuple[str, ...] = ()
    replace: str | None = None
    idle: str | None = None
    resources: tuple[str, ...] = ()
    pe: tuple[str, str] | None = None
    allocation: tuple[str, str] | None = None
    queues: str = ""
    properties: str = ""
    is_forced: bool = False

    def attributes(self, asker: str) -> AttributeChange:
        """Return the changes that do not need the scheduler.  Raises BadReservation."""
        wish = ReservationWish(
            name=self.name or "",
            account=self.account or "",
            users=self.users,
            hard=self.hard,
            mail_options="n" if self.mail_options is None else self.mail_options,
            mail_list=self.mail_list,
            replace=self.replace,
            idle=self.idle,
        )
        preparation.check_texts(wish)
        read = preparation.read_attributes(wish, asker, _PROGRAM)
        return AttributeChange(
            name=None if self.name is None else read.name,
            account=None if self.account is None else read.account,
            mail_options=None if self.mail_options is None else read.mail_options,
            mail_list=read.mail_list if self.mail_list else None,
            is_hard=None if self.hard is None else read.is_hard,
            replaces_lost=read.replaces_lost,
            idle_limit=None if self.idle is None else read.idle_limit,
            access=read.access if self.users else None,
        )

    def window(self, reservation: AdvanceReservation, now: int) -> WantedChange | None:
        """Return the new window; return None if neither start, end nor duration changes.  Raises BadReservation."""
        if self.start is None and self.duration is None and self.end is None:
            return None
        dates = preparation.read_dates(self.start, self.end, self.duration, now, _PROGRAM)
        start = dates.start
        if start is not None:
            preparation.check_agreement(start, dates.end, dates.duration)
        if start is not None and start != reservation.start and now - now % 60 <= start:
            start = max(start, now)  # as in a request for a reservation, the current minute means now
        if dates.end is not None:
            end = dates.end
            if dates.duration is not None and start is None:
                start = end - dates.duration
        else:
            duration = reservation.duration if dates.duration is None else dates.duration
            end = (reservation.start if start is None else start) + duration
        if end > reservation.end:
            preparation.check_horizon(end, now)
        return WantedChange(start, end, self.is_forced)

    @property
    def other(self) -> ReservationWish:
        """The requested new resources."""
        return ReservationWish(
            resources=self.resources,
            pe=self.pe,
            allocation=self.allocation,
            queues=self.queues,
            properties=self.properties,
        )


class AskedChange(NamedTuple):
    """The stored change of one reservation."""

    reservation: AdvanceReservation
    wanted: WantedChange | None  #: what the scheduler answers
    change_id: int  #: of it; 0 = none
    lost: list[int]  #: waiting jobs whose owner loses his access


class _RehearsedChange(Exception):
    """Ends a rehearsal and rolls its transaction back."""

    def __init__(self, asked: AskedChange) -> None:
        super().__init__()
        self.asked = asked


class Changer(NamedTuple):
    """Change reservations on behalf of a user."""

    database: "Database"
    config: Config
    user: User

    def ask(self, wish: ChangeWish, name: str, note: Callable[[AskedChange], object]) -> None:
        """Store a change of the reservation with this name or number.  Raises UserError.

        ``note`` is called with the change before the commit.
        """
        attributes = wish.attributes(self.user.name)
        with self.database.begin() as tx:
            if attributes.access is not None:
                listed_users.keep_usersets(tx, attributes.access)
                listed_users.expand(tx, attributes.access, limit=0, known=(self.user.name,))
            seen, other = self.other_resources(tx, wish, name, attributes.access)
            reservation = self.locked(tx, name)
            wanted = wish.window(reservation, tx.now)
            if other:
                if (reservation.id, reservation.revision) != (seen.id, seen.revision):
                    raise BadReservation(f"denied: advance_reservation {seen.number} was changed meanwhile: try again")
                wanted = (wanted or WantedChange())._replace(request=other.request, asked=other.columns)
            note(self._write(tx, reservation, wanted, attributes))

    def rehearse(self, wish: ChangeWish, name: str) -> AskedChange:
        """Return the change that ``ask`` would store, without storing it.  Raises UserError."""

        def stop(asked: AskedChange) -> None:
            raise _RehearsedChange(asked)

        try:
            self.ask(wish, name, stop)
        except _RehearsedChange as rehearsed:
            return rehearsed.asked
        raise AssertionError("a change was written that nobody was told of")

    def _write(
        self,
        tx: "Transaction",
        reservation: AdvanceReservation,
        wanted: WantedChange | None,
        attributes: AttributeChange,
    ) -> AskedChange:
        if wanted:
            wanted = wanted._replace(attributes=attributes)
            patience = self.config.reservation_answer_timeout
            change_id = alteration.ask_change(tx, self.user, reservation, wanted, patience=patience)
            lost = alteration.jobs_without_access(tx, reservation, attributes)
            return AskedChange(reservation, wanted, change_id, lost)
        if attributes == AttributeChange():
            raise BadReservation("qralter: nothing is to be changed")
        return AskedChange(reservation, None, 0, alteration.change_attributes(tx, self.user, reservation, attributes))

    def other_resources(
        self,
        tx: "Transaction",
        wish: ChangeWish,
        name: str,
        access: Sequence[AccessEntry] | None,
        *,
        of_series: bool = False,
    ) -> tuple[AdvanceReservation, OtherResources | None]:
        """Return the reservation with this name or number, and its requested new resources; None if they do not change.

        The reservation is not locked: admission rules may take long, and scheduling passes would have to wait.
        ``access``: a new access list.  ``of_series``: use the template of its series instead of its own resources.
        Raises UserError.
        """
        found = _find(tx, self.user, name)
        reservation = alteration.check(tx, self.user, found, _number(found, name))
        if wish.other == ReservationWish():
            if access is not None:
                drafts.check_new_users(tx, self.database, self.config, reservation, access)
            return reservation, None
        if access is None:
            access = tx.reservations.access([reservation.id])[reservation.id]
        if of_series and reservation.series_id:
            series = tx.reservations.select_series([reservation.series_id])[reservation.series_id]
            reservation = asked_before.as_template(reservation, series.read_template.new)
        other = drafts.other_resources(tx, self.database, self.config, wish.other, reservation, access=access)
        return reservation, other

    def locked(self, tx: "Transaction", name: str) -> AdvanceReservation:
        """Return the reservation with this name or number, locked.  Raises UserError."""
        found = _find(tx, self.user, name)
        return alteration.lock(tx, self.user, found, _number(found, name))


def _number(found: AdvanceReservation | None, name: str) -> int:
    return found.number if found else int(name) if name.isascii() and name.isdigit() else 0


def _find(tx: "Transaction", user: User, name: str) -> AdvanceReservation | None:
    """Return the reservation with this number or name; prefer one that the user owns.  Raises BadReservation."""
    if is_number(name):
        return tx.reservations.by_numbers([int(name)]).get(int(name))
    named = [each for each in tx.reservations.live_by_name(name) if each.state in GRANTED]
    if not named:
        raise BadReservation(f'denied: advance_reservation "{name}" does not exist')
    return min(named, key=lambda each: (each.owner != user.name, each.number))
