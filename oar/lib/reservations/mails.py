"""Mails about what happens to advance reservations, left in ``tx.outbox``."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from oar.lib.bus.messages import ReservationMail
from oar.lib.reservations.granted import granted_text
from oar.lib.reservations.mail_texts import ReservationNews, mails
from oar.lib.reservations.records import AdvanceReservation, ReservationUsage
from oar.lib.reservations.states import ReservationEvent

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
