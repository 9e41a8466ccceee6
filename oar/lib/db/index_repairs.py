"""The repairs of ``oar-database --fix-index``: liveness marks of ended jobs, and missing indexes.

They run on a connection in autocommit mode, not in a transaction: a repair is committed batch by batch.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from sqlalchemy.schema import CreateIndex

from oar.lib.db import schema
from oar.lib.db.invariants import DIALECT, MARKED, VALID_INDEXES
from oar.lib.db.predicates import ENDED
from oar.lib.db.statements import Connection

#: Rows that one statement of a repair touches at most.
BATCH = 10_000


@dataclass(frozen=True, slots=True)
class Repair:
    """A change to a table that is repeated until no row needs it."""

    table: str
    effect: str
    statement: str


def _repairs() -> Iterator[Repair]:
    batch = f"ctid = ANY (ARRAY(SELECT t.ctid FROM {{}} t {{}} LIMIT {BATCH}))"
    for table, column, way in MARKED:
        rows = batch.format(table, f"{way} WHERE t.{column} = 'CURRENT' AND {ENDED}")
        yield Repair(table, "set to LOG, the job has ended", f"UPDATE {table} SET {column} = 'LOG' WHERE {rows}")
    rows = batch.format("job_state_logs", f"JOIN jobs j USING (job_id) WHERE t.date_stop = 0 AND {ENDED}")
    stop = "(SELECT greatest(l.date_start, j.stop_time) FROM jobs j WHERE j.job_id = l.job_id)"
    yield Repair(
        "job_state_logs",
        "closed, the job has ended",
        f"UPDATE job_state_logs l SET date_stop = {stop} WHERE l.{rows}",
    )
    yield Repair(
        "job_ends",
        "added, nobody knows why the job ended",
        "INSERT INTO job_ends (job_id, date, code) SELECT j.job_id, j.stop_time, 'UNKNOWN' FROM jobs j"
        f" WHERE {ENDED} AND NOT EXISTS (SELECT FROM job_ends t WHERE t.job_id = j.job_id) LIMIT {BATCH}",
    )
    rows = batch.format(
        "frag_jobs", f"JOIN jobs j ON j.job_id = t.frag_id_job WHERE t.frag_state <> 'FRAGGED' AND {ENDED}"
    )
    yield Repair("frag_jobs", "closed, the job has ended", f"UPDATE frag_jobs SET frag_state = 'FRAGGED' WHERE {rows}")


REPAIRS = tuple(_repairs())


def run(connection: Connection, repair: Repair) -> int:
    """Run a repair, and commit each batch. Return the number of changed rows."""
    total = 0
    with connection.cursor() as cursor:
        while True:
            cursor.execute(repair.statement)
            total += cursor.rowcount
            if cursor.rowcount < BATCH:
                return total


def missing_indexes(connection: Connection) -> list[tuple[str, str]]:
    """Return the name of each missing or invalid index, and the statement that creates it.

    The statements do not block other readers and writers. They run outside of transactions.
    """
    with connection.cursor() as cursor:
        cursor.execute(VALID_INDEXES)
        present = {row[0] for row in cursor.fetchall()}
    statements = []
    for table in schema.metadata.sorted_tables:
        for index in table.indexes:
            if index.name not in present:
                text = " ".join(str(CreateIndex(index).compile(dialect=DIALECT)).split())
                statements.append((str(index.name), text.replace(" INDEX ", " INDEX CONCURRENTLY ", 1)))
    return sorted(statements)
