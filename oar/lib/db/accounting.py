"""Consumption windows (``tx.accounting``): what users and projects asked for and used."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from oar.lib.db.engine import Transaction

_BY_USER = """
    SELECT accounting_user, accounting_project, min(window_start), max(window_stop),
        COALESCE(sum(consumption) FILTER (WHERE consumption_type = 'ASKED'), 0)::bigint,
        COALESCE(sum(consumption) FILTER (WHERE consumption_type = 'USED'), 0)::bigint
    FROM accounting WHERE window_stop >= %s AND window_start < %s AND (%s::text IS NULL OR accounting_user = %s)
    GROUP BY accounting_user, accounting_project ORDER BY accounting_user, accounting_project"""


@dataclass(frozen=True, slots=True)
class Consumption:
    """What one user asked for and used in one project: resource seconds, and the windows that were looked at."""

    user: str
    project: str
    first_window_start: int
    last_window_stop: int
    asked: int
    used: int


class Accounting:
    """Rows of ``accounting``."""

    def __init__(self, tx: "Transaction") -> None:
        self._tx = tx

    def between(self, start: int, stop: int, user: str | None = None) -> list[Consumption]:
        """Return the consumption in the windows that overlap ``[start, stop)``, by user and project."""
        return [Consumption(*row) for row in self._tx.rows(_BY_USER, (start, stop, user, user))]

    def last_karma(self, user: str, project: str) -> float | None:
        """Return the fair-share value that the last job of a user in a project had."""
        karma: float | None = self._tx.value(
            "SELECT last_karma FROM jobs WHERE job_user = %s AND project = %s AND last_karma IS NOT NULL"
            " ORDER BY job_id DESC LIMIT 1",
            (user, project),
        )
        return karma
