"""How far those have come that follow the history (``tx.history_positions``)."""

from oar.lib.db.statements import Table
from oar.lib.history.records import Position

_FIND = "SELECT state_log, event FROM history_positions WHERE reader = %s"
_STORE = """
    INSERT INTO history_positions (reader, state_log, event) VALUES (%s, %s, %s)
    ON CONFLICT (reader) DO UPDATE SET state_log = EXCLUDED.state_log, event = EXCLUDED.event"""


class HistoryPositions(Table):
    """Rows of ``history_positions``, one for each reader."""

    def find(self, reader: str) -> Position | None:
        """Return the place up to which a reader has read; None if it never did."""
        row = self._tx.row(_FIND, (reader,))
        return Position(*row) if row else None

    def store(self, reader: str, position: Position) -> None:
        """Note how far a reader has come."""
        self._tx.execute(_STORE, (reader, *position))
