"""How the database is (``tx.database_figures``): what PostgreSQL tells of it."""

from typing import NamedTuple

from oar.lib.db.statements import Prepared, Table

_FIGURES = Prepared("""
    SELECT current_setting('server_version'), pg_database_size(current_database()),
        (SELECT numbackends FROM pg_stat_database WHERE datname = current_database()),
        current_setting('max_connections')::int""")

_READ_ONLY = Prepared("SELECT current_setting('transaction_read_only')::boolean")


class DatabaseFigure(NamedTuple):
    """Figures of the database in which the tables are."""

    postgresql: str  #: version of the server
    size: int  #: bytes
    connections: int
    most_connections: int  #: of all databases of the server together


class DatabaseFigures(Table):
    """What PostgreSQL tells of the database."""

    def find(self) -> DatabaseFigure:
        """Return the figures of this moment."""
        (row,) = self._tx.rows(_FIGURES)
        return DatabaseFigure(*row)

    def is_read_only(self) -> bool:
        """Whether a transaction that was begun to write may not: on a standby, or where somebody has set it so."""
        return bool(self._tx.column(_READ_ONLY)[0])
