"""Mails about what happens to advance reservations, left in ``tx.outbox``."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from oar.lib.facts.advance_reservations import AdvanceReservation, ReservationUsage
from oar.lib.facts.messages import ReservationMail
from oar.lib.facts.reservation_states import ReservationEvent
from oar.lib.reservations.granted import granted_text
from oar.lib.rules.reservation_mails import ReservationNews, mails

if TYPE_CHECKING:
    from oar.lib.db.transaction import Transaction


def tell(
    tx: "Transaction",
    reservation: AdvanceReservation,
    event: ReservationEvent,
    message: str,
    bill: Sequence[ReservationUsage] = (),
) -> None:
    """Leave the mails about an event in the outbox, if somebody asked for any."""
    if reservation.mail_options == "n":
        return
    news = ReservationNews(reservation, event, message, granted_text(tx, reservation), len(reservation.present), bill)
    for mail in mails(news):
        tx.outbox.append(
            ReservationMail(reservation.frame_id, reservation.owner, mail.recipients, mail.topic, mail.text)
        )
