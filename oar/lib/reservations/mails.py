"""Mails about advance reservations: add recipients and texts to ``tx.outbox``."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from oar.lib.base.times import format_date, zone_offset
from oar.lib.bus.messages import ReservationMail
from oar.lib.reservations.records import AdvanceReservation, ReservationUsage
from oar.lib.reservations.revisions import granted_text
from oar.lib.reservations.states import ReservationEvent, ReservationState

if TYPE_CHECKING:
    from oar.lib.db.transaction import Transaction


def tell(
    tx: "Transaction",
    reservation: AdvanceReservation,
    event: ReservationEvent,
    message: str,
    bill: Sequence[ReservationUsage] = (),
) -> None:
    """Add the mails about an event to the outbox, if the reservation has mail options."""
    if reservation.mail_options == "n":
        return
    news = ReservationNews(reservation, event, message, granted_text(tx, reservation), len(reservation.present), bill)
    for mail in mails(news):
        tx.outbox.append(
            ReservationMail(reservation.frame_id, reservation.owner, mail.recipients, mail.topic, mail.text)
        )


#: The word in the subject of each event that is told, and the letter of ``-m`` that asks for it.
_TOLD: Mapping[ReservationEvent, tuple[str, str]] = {
    ReservationEvent.STARTED: ("BEGIN", "b"),
    ReservationEvent.TERMINATED: ("END", "e"),
    ReservationEvent.UNSATISFIED: ("ERROR", "a"),
    ReservationEvent.SATISFIED: ("VALID", "a"),
    ReservationEvent.REPLACED: ("REPLACED", "a"),
    ReservationEvent.SKIPPED: ("SKIPPED", "a"),
}
#: The first line of each kind of mail, after "Advance reservation 12 (name) of alice".
_FIRST_LINES = {
    "BEGIN": "has begun.",
    "END": "has ended.",
    "ERROR": "is in error.",
    "VALID": "is valid again.",
    "REPLACED": "has other resources now.",
    "SKIPPED": "was skipped.",
}


class ReservationNews(NamedTuple):
    """An event of a reservation, and the reservation after the event."""

    reservation: AdvanceReservation
    event: ReservationEvent
    message: str
    granted: str  #: the granted resources as text
    present: int = 0  #: how many of them are not missing
    bill: Sequence[ReservationUsage] = ()


class WrittenMail(NamedTuple):
    """A mail without its sender."""

    recipients: tuple[str, ...]
    topic: str
    text: str


def mails(news: ReservationNews) -> list[WrittenMail]:
    """Return the mails that the mail options request; mails about errors always go to the owner, too.

    Resources lost before the start are reported at the start, not earlier.
    """
    reservation, event = news.reservation, news.event
    kinds = [event]
    if event is ReservationEvent.STARTED and reservation.state is ReservationState.ERROR:
        kinds.append(ReservationEvent.UNSATISFIED)
    written = []
    for kind in kinds:
        word, letter = _TOLD.get(kind, ("", "-"))
        if letter not in reservation.mail_options or _is_early(reservation, kind):
            continue
        name = f" ({reservation.name})" if reservation.name else ""
        topic = f"[AR {word}]: {reservation.number}{name}"
        written.append(WrittenMail(_recipients(reservation, letter), topic, _text(news, word)))
    return written


def _is_early(reservation: AdvanceReservation, kind: ReservationEvent) -> bool:
    started = (ReservationState.RUNNING, ReservationState.ERROR)
    return kind in (ReservationEvent.UNSATISFIED, ReservationEvent.SATISFIED) and reservation.state not in started


def _recipients(reservation: AdvanceReservation, letter: str) -> tuple[str, ...]:
    named = [address for address in reservation.mail_list.split(",") if address]
    owner = [reservation.owner] if letter == "a" or not named else []
    return tuple(dict.fromkeys([*owner, *named]))


def _text(news: ReservationNews, word: str) -> str:
    reservation = news.reservation
    name = f" ({reservation.name})" if reservation.name else ""
    first = _FIRST_LINES[word]
    if word == "END" and reservation.deleted_by:
        first = f"was deleted by {reservation.deleted_by}."
    lines = [f"Advance reservation {reservation.number}{name} of {reservation.owner} {first}"]
    if word in ("ERROR", "REPLACED", "SKIPPED"):
        lines += (reservation.message or news.message).split("\n")
    if word == "ERROR":
        lines.append(_consequence(news))
    if word == "END" and news.bill:
        lines.append(_bill(news.bill))
    return "\n".join(
        [
            *lines,
            "",
            f"Start:     {_date(reservation.start)}",
            f"End:       {_date(reservation.real_end)}",
            f"Resources: {news.granted}",
        ]
    )


def _date(date: int) -> str:
    """Return a date with its UTC offset, because the reader may be in another time zone."""
    return f"{format_date(date)} {zone_offset(date)}"


def _consequence(news: ReservationNews) -> str:
    if news.reservation.is_hard:
        return "No job of it starts until it is satisfied again (hard error handling)."
    total = len(news.reservation.resources)
    if not news.present:
        return f"No job of it starts: none of its {total} slots is left (soft error handling)."
    return f"Its jobs go on with {news.present} of {total} slots (soft error handling)."


def _bill(rows: Sequence[ReservationUsage]) -> str:
    reserved, used, unusable = (sum(column) for column in zip(*((row[3:6]) for row in rows), strict=True))
    return f"Reserved {reserved}, used {used}, unusable {unusable}, unused {reserved - used - unusable} slot seconds."
