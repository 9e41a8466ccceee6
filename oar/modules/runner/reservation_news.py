"""Events of advance reservations since the start of the Runner, for mails and for the site's script.

The log lines of one reservation are written while its row is locked, so their numbers are in commit order. This does
not hold between reservations.
"""

from collections.abc import Collection

from oar.lib.db.transaction import Transaction
from oar.lib.reservations import mails
from oar.lib.reservations.records import LogLine
from oar.lib.reservations.states import ReservationEvent
from oar.modules.runner.dispatch import Action, ActionKind


class ReservationNewsfeed:
    """Report each line of the log at most once. Lines written while no Runner was running are not reported."""

    def __init__(self) -> None:
        self._first = 0  #: the newest line when the Runner began
        self._told: dict[int, int] = {}  #: by reservation, the newest line that was told

    def begin(self, tx: Transaction) -> None:
        """Skip the existing lines."""
        self._first = tx.reservation_logs.last_line()

    def tell(self, tx: Transaction, frame_ids: Collection[int]) -> list[Action]:
        """Add the mails about ended reservations to the outbox.

        Return the actions that notify the site of all new lines.
        """
        lines = tx.reservation_logs.new_lines(frame_ids, self._first)
        new = [line for line in lines if line.line > self._told.get(line.reservation_id, 0)]
        self._told |= {line.reservation_id: line.line for line in new}
        _mail_ends(tx, {line.reservation_id for line in new if line.event == ReservationEvent.TERMINATED})
        return [_action(line) for line in new]


def _mail_ends(tx: Transaction, ids: Collection[int]) -> None:
    usages = tx.reservation_logs.select_bills(ids) if ids else {}
    for reservation in tx.reservations.select(ids):
        mails.send(tx, reservation, ReservationEvent.TERMINATED, "", usages[reservation.id])


def _action(line: LogLine) -> Action:
    words = (line.line, line.reservation_id, line.number, line.event, line.state)
    return Action(ActionKind.AR_EVENT, line.frame_id, args=tuple(map(str, words)))
