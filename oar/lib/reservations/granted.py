"""The granted resources of an advance reservation as text."""

from collections import Counter
from typing import TYPE_CHECKING

from oar.lib.facts.advance_reservations import AdvanceReservation

if TYPE_CHECKING:
    from oar.lib.db.transaction import Transaction


def granted_text(tx: "Transaction", reservation: AdvanceReservation) -> str:
    """Return the granted resources as ``default@node-1=4,licence=2``."""
    rows = tx.resources.select(reservation.resources)
    places = Counter(f"{reservation.queue}@{row.network_address}" if row.network_address else row.type for row in rows)
    return ",".join(f"{place}={count}" for place, count in sorted(places.items()))
