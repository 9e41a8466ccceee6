"""Mails about advance reservations: add recipients and texts to ``tx.outbox``."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from oar.lib.base.times import format_date, zone_offset
from oar.lib.bus.messages import ReservationMail
from oar.lib.reservations.records import AdvanceReservation, ReservationUsage
from oar.lib.reservations.states import STARTED, ReservationEvent, ReservationState
from oar.lib.reservations.views import granted_text

if TYPE_CHECKING:
    from oar.lib.db.transaction import Transaction

#: Mails for events: the word in the subject, the letter of ``-m`` that requests it, and the first line, after "Advance
#: reservation 12 (name) of alice".
_MAILS: Mapping[ReservationEvent, tuple[str, str, str]] = {
    ReservationEvent.STARTED: ("BEGIN", "b", "has begun."),
    ReservationEvent.TERMINATED: ("END", "e", "has ended."),
    ReservationEvent.UNSATISFIED: ("ERROR", "a", "is in error."),
    ReservationEvent.SATISFIED: ("VALID", "a", "is valid again."),
    ReservationEvent.REPLACED: ("REPLACED", "a", "has other resources now."),
    ReservationEvent.SKIPPED: ("SKIPPED", "a", "was skipped."),
}


def send(
    tx: "Transaction",
    reservation: AdvanceReservation,
    event: ReservationEvent,
    message: str,
    bill: Sequence[ReservationUsage] = (),
) -> None:
    """Add the mails about an event that the mail options request to the outbox; errors always go to the owner, too.

    ``reservation``: after the event.  Resources lost before the start are reported at the start, not earlier.
    """
    events = [event]
    if event is ReservationEvent.STARTED and reservation.state is ReservationState.ERROR:
        events.append(ReservationEvent.UNSATISFIED)
    elif event in (ReservationEvent.UNSATISFIED, ReservationEvent.SATISFIED) and reservation.state not in STARTED:
        events = []
    mailed = [event for event in events if event in _MAILS and _MAILS[event][1] in reservation.mail_options]
    granted = granted_text(tx, reservation) if mailed else ""
    name = f" ({reservation.name})" if reservation.name else ""
    for word, letter, news in (_MAILS[event] for event in mailed):
        is_deleted = word == "END" and reservation.deleted_by
        first = f"was deleted by {reservation.deleted_by}." if is_deleted else news
        lines = [f"Advance reservation {reservation.number}{name} of {reservation.owner} {first}"]
        if word in ("ERROR", "REPLACED", "SKIPPED"):
            lines += (reservation.message or message).split("\n")
        if word == "ERROR":
            lines.append(_consequence(reservation))
        if word == "END" and bill:
            reserved, used, unusable = (sum(column) for column in zip(*(row[3:6] for row in bill), strict=True))
            unused = reserved - used - unusable
            lines.append(f"Reserved {reserved}, used {used}, unusable {unusable}, unused {unused} slot seconds.")
        lines += [
            "",
            f"Start:     {_date(reservation.start)}",
            f"End:       {_date(reservation.real_end)}",
            f"Resources: {granted}",
        ]
        topic = f"[AR {word}]: {reservation.number}{name}"
        tx.outbox.append(
            ReservationMail(
                reservation.frame_id, reservation.owner, _recipients(reservation, letter), topic, "\n".join(lines)
            )
        )


def _recipients(reservation: AdvanceReservation, letter: str) -> tuple[str, ...]:
    named = [address for address in reservation.mail_list.split(",") if address]
    owner = [reservation.owner] if letter == "a" or not named else []
    return tuple(dict.fromkeys([*owner, *named]))


def _date(date: int) -> str:
    """Return a date with its UTC offset, because the reader may be in another time zone."""
    return f"{format_date(date)} {zone_offset(date)}"


def _consequence(reservation: AdvanceReservation) -> str:
    if reservation.is_hard:
        return "No job of it starts until it is satisfied again (hard error handling)."
    total, present = len(reservation.resources), len(reservation.present)
    if not present:
        return f"No job of it starts: none of its {total} slots is left (soft error handling)."
    return f"Its jobs go on with {present} of {total} slots (soft error handling)."
