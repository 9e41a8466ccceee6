"""The columns of ``resources`` that administrators add, rename and remove while the system runs.

Changes of the table take an advisory lock and give up after a while: behind a waiting ALTER TABLE everybody waits.
"""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import psycopg2.errors

from oar.lib.db.engine import SCHEMA_LOCK
from oar.lib.db.resources import quoted
from oar.lib.errors import Busy
from oar.lib.model import Job, Moldable

if TYPE_CHECKING:
    from oar.lib.db.engine import Transaction

#: How long a change of the table waits for those who read it.
LOCK_TIMEOUT = "10s"

#: Rules that run.
_RULES = "SELECT id, rule FROM admission_rules WHERE enabled = 'YES'"
_RESERVED = "SELECT 1 FROM pg_get_keywords() WHERE word = %s AND catcode IN ('R', 'T')"


class ColumnUse(NamedTuple):
    """Who would miss a column."""

    jobs: tuple[int, ...]
    rules: tuple[int, ...]


class Columns:
    """Columns of ``resources``."""

    def __init__(self, tx: "Transaction") -> None:
        self._tx = tx

    def lock(self) -> None:
        """Keep others from changing the schema until the end of the transaction.  Raises Busy."""
        if not self._tx.value("SELECT pg_try_advisory_xact_lock(%s, %s)", SCHEMA_LOCK):
            raise Busy("the table is busy, try again")
        self._tx.execute(f"SET LOCAL lock_timeout TO '{LOCK_TIMEOUT}'")

    def is_reserved_word(self, name: str) -> bool:
        """Whether a name would have to be quoted wherever it is written in SQL."""
        return self._tx.row(_RESERVED, (name,)) is not None

    def add(self, name: str, *, is_text: bool) -> None:
        """Add a column.  Raises Busy."""
        self._alter(f"ADD COLUMN {quoted(name)} {'varchar(255)' if is_text else 'integer'}")

    def drop(self, name: str) -> None:
        """Remove a column; its history stays.  Raises Busy."""
        self._alter(f"DROP COLUMN {quoted(name)}")

    def rename(self, old: str, new: str) -> None:
        """Give a column another name, in its history and in the levels of requests too.  Raises Busy."""
        self._alter(f"RENAME COLUMN {quoted(old)} TO {quoted(new)}")
        self._tx.execute(
            "UPDATE job_resource_descriptions SET res_job_resource_type = %s WHERE res_job_resource_type = %s",
            (new, old),
        )
        self._tx.execute("UPDATE resource_logs SET attribute = %s WHERE attribute = %s", (new, old))

    def use(self, name: str) -> ColumnUse:
        """Return the live jobs and the rules whose texts have the name as a word."""
        word = re.compile(rf"\b{re.escape(name)}\b", re.IGNORECASE)
        live = self._tx.jobs.live()
        moldables = self._tx.jobs.moldables([job.id for job in live])
        jobs = [job.id for job in live if word.search(_texts(job, moldables.get(job.id, ())))]
        rules = {row[0] for row in self._tx.rows(_RULES) if word.search(row[1])}
        return ColumnUse(tuple(jobs), tuple(sorted(rules)))

    def counts(self, names: Sequence[str]) -> dict[str, tuple[int, int]]:
        """Return for each column the number of its distinct values, and how many resources have none."""
        if not names:
            return {}
        counted = ", ".join(
            f"count(DISTINCT {quoted(name)}), count(*) FILTER (WHERE {quoted(name)} IS NULL)" for name in names
        )
        row = self._tx.row(f"SELECT {counted} FROM resources") or ()
        return {name: (row[2 * at], row[2 * at + 1]) for at, name in enumerate(names)}

    def largest(self, name: str) -> str | int | None:
        """Return the largest value of a column (its name has been checked), None if there is none."""
        value: str | int | None = self._tx.value(f"SELECT max({quoted(name)}) FROM resources")
        return value

    def _alter(self, change: str) -> None:
        try:
            self._tx.execute(f"ALTER TABLE resources {change}")
        except psycopg2.errors.LockNotAvailable as error:
            raise Busy("the table is busy, try again") from error
        self._tx.topics.add("resources")


def _texts(job: Job, moldables: Sequence[Moldable]) -> str:
    """Return what a job says of the resources that it wants."""
    groups = [group for moldable in moldables for group in moldable.groups]
    names = [level.property for group in groups for level in group.levels]
    return " ".join([job.properties or "", *(group.filter for group in groups), *names])
