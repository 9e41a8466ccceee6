"""Invariants of the database (``tx.invariants``) for ``oar-database --check``, and repairs at the start of the server.

There are no foreign keys between job tables. The programs keep the rows consistent, and the check verifies this after a
crash or for a bug report.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from sqlalchemy.schema import CreateIndex

from oar.lib.bus.messages import Topic
from oar.lib.db import schema
from oar.lib.db.predicates import ENDED, LIVE, NO_FRAME
from oar.lib.db.schema_tables import DIALECT
from oar.lib.db.statements import Connection, Table
from oar.lib.jobs.states import CURRENT, JobState
from oar.lib.reservations.sql_faults import FAULTS

_HOLDING = "j.state IN ('toLaunch', 'Launching', 'Running', 'Suspended', 'Resuming', 'Finishing')"

#: Types of job that may stand on the resources of another one.
_SHARING = "^(timesharing|inner=|placeholder=|set_placeholder=|allowed=|use_placeholder=|allow=)"

_OF_MOLDABLE = "JOIN moldable_job_descriptions m ON m.moldable_id = t.{} JOIN jobs j ON j.job_id = m.moldable_job_id"

#: Tables with a mark of liveness: its column, and the way from a row t to its job j.
_MARKED = (
    ("moldable_job_descriptions", "moldable_index", "JOIN jobs j ON j.job_id = t.moldable_job_id"),
    ("job_resource_groups", "res_group_index", _OF_MOLDABLE.format("res_group_moldable_id")),
    (
        "job_resource_descriptions",
        "res_job_index",
        "JOIN job_resource_groups g ON g.res_group_id = t.res_job_group_id "
        + _OF_MOLDABLE.replace("t.{}", "g.res_group_moldable_id"),
    ),
    ("job_types", "types_index", "JOIN jobs j ON j.job_id = t.job_id"),
    ("job_dependencies", "job_dependency_index", "JOIN jobs j ON j.job_id = t.job_id"),
    ("assigned_resources", "assigned_resource_index", _OF_MOLDABLE.format("moldable_job_id")),
)


@dataclass(frozen=True, slots=True)
class Violation:
    """Rows, or parts of the schema, that violate an invariant."""

    table: str
    count: int
    problem: str

    def __str__(self) -> str:
        return f"{self.table}: {self.count} rows: {self.problem}"


@dataclass(frozen=True, slots=True)
class Invariant:
    """A query about a table. Its result, a number of rows, must be 0."""

    table: str
    problem: str
    question: str


def _ended_but_current() -> Iterator[Invariant]:
    for table, column, way in _MARKED:
        question = f"SELECT count(*) FROM {table} t {way} WHERE t.{column} = 'CURRENT' AND {ENDED}"
        yield Invariant(table, "CURRENT, but the job has ended", question)


def _of_reservations() -> Iterator[Invariant]:
    """Yield the invariants of advance reservations, their frames and their jobs."""
    for fault, (table, find) in FAULTS.items():
        yield Invariant(table, fault, f"SELECT count(*) FROM ({find}) t")
    yield Invariant(
        "reservation_series",
        "it is live, but has no live reservation",
        "SELECT count(*) FROM reservation_series s WHERE s.ended = 0 AND NOT EXISTS"
        " (SELECT FROM reservations v WHERE v.series_id = s.series_id AND v.series_id <> 0 AND v.ended = 0)",
    )
    orphans = "SELECT count(*) FROM queues q WHERE q.state = 'orphaned' AND NOT EXISTS"
    no_live = "(SELECT FROM reservations v WHERE v.queue_name = q.queue_name AND v.ended = 0)"
    yield Invariant("queues", "orphaned, and without advance reservation", f"{orphans} {no_live}")


#: What must be true of the rows, whatever program died at whatever moment.
INVARIANTS = (
    *_of_reservations(),
    *_ended_but_current(),
    Invariant("schema", "there must be one row", "SELECT greatest(count(*) - 1, 1 - count(*)) FROM schema"),
    Invariant(
        "alembic_version",
        "differs from schema",
        "SELECT count(*) FROM alembic_version a"
        " WHERE NOT EXISTS (SELECT FROM schema s WHERE a.version_num LIKE s.revision || '.%%')",
    ),
    Invariant(
        "jobs",
        "live, but without a request",
        f"SELECT count(*) FROM jobs j WHERE NOT {ENDED}"
        " AND NOT EXISTS (SELECT FROM moldable_job_descriptions WHERE moldable_job_id = j.job_id)",
    ),
    Invariant(
        "jobs",
        "not ended nor Finishing, but with a stop date",
        f"SELECT count(*) FROM jobs j WHERE NOT {ENDED} AND j.state <> 'Finishing' AND j.stop_time <> 0",
    ),
    Invariant("jobs", "ended without a stop date", f"SELECT count(*) FROM jobs j WHERE {ENDED} AND j.stop_time = 0"),
    Invariant(
        "jobs",
        "live, in a queue that does not exist",
        f"SELECT count(*) FROM jobs j WHERE NOT {ENDED}"
        " AND NOT EXISTS (SELECT FROM queues q WHERE q.queue_name = j.queue_name)",
    ),
    Invariant(
        "job_state_logs",
        "more than one open row of a job",
        "SELECT count(*) FROM (SELECT FROM job_state_logs WHERE date_stop = 0 GROUP BY job_id HAVING count(*) > 1) t",
    ),
    Invariant(
        "job_state_logs",
        "open, but the job has another state",
        "SELECT count(*) FROM job_state_logs t JOIN jobs j USING (job_id)"
        " WHERE t.date_stop = 0 AND t.job_state <> j.state",
    ),
    Invariant(
        "job_state_logs",
        "a live job has no open row",
        f"SELECT count(*) FROM jobs j WHERE NOT {ENDED}"
        " AND NOT EXISTS (SELECT FROM job_state_logs t WHERE t.job_id = j.job_id AND t.date_stop = 0)",
    ),
    Invariant(
        "job_state_logs",
        "open, but the job has ended",
        f"SELECT count(*) FROM job_state_logs t JOIN jobs j USING (job_id) WHERE t.date_stop = 0 AND {ENDED}",
    ),
    Invariant(
        "assigned_resources",
        "CURRENT, but no job holds them",
        "SELECT count(*) FROM assigned_resources t WHERE t.assigned_resource_index = 'CURRENT' AND NOT EXISTS"
        f" (SELECT FROM jobs j WHERE j.assigned_moldable_job = t.moldable_job_id AND {_HOLDING})",
    ),
    Invariant(
        "assigned_resources",
        "a resource has two jobs that cannot share it",
        "SELECT count(*) FROM (SELECT FROM assigned_resources t"
        " JOIN jobs j ON j.assigned_moldable_job = t.moldable_job_id"
        f" WHERE t.assigned_resource_index = 'CURRENT' AND {_HOLDING} AND j.state NOT IN ('Suspended', 'Resuming')"
        f" AND {NO_FRAME} AND NOT EXISTS (SELECT FROM job_types y WHERE y.job_id = j.job_id AND y.type ~ '{_SHARING}')"
        " GROUP BY t.resource_id HAVING count(*) > 1) twice",
    ),
    Invariant(
        "resource_logs",
        "the state of a resource has no open row",
        "SELECT count(*) FROM resources r WHERE NOT EXISTS (SELECT FROM resource_logs t WHERE t.date_stop = 0"
        " AND t.resource_id = r.resource_id AND t.attribute = 'state' AND t.value = r.state)",
    ),
    Invariant(
        "frag_jobs",
        "the kill request of an ended job is open",
        "SELECT count(*) FROM frag_jobs t JOIN jobs j ON j.job_id = t.frag_id_job"
        f" WHERE t.frag_state <> 'FRAGGED' AND {ENDED}",
    ),
    Invariant(
        "job_runs",
        "the Runner has a row of an ended job",
        f"SELECT count(*) FROM job_runs t JOIN jobs j USING (job_id) WHERE {ENDED}",
    ),
    Invariant(
        "job_reasons",
        "a waiting reason of an ended job",
        f"SELECT count(*) FROM job_reasons t JOIN jobs j USING (job_id) WHERE {ENDED}",
    ),
    Invariant(
        "job_ends",
        "end cause of a job that has not ended",
        f"SELECT count(*) FROM job_ends t JOIN jobs j USING (job_id) WHERE NOT {ENDED}",
    ),
    Invariant(
        "jobs",
        "ended without an end cause",
        f"SELECT count(*) FROM jobs j WHERE {ENDED} AND NOT EXISTS (SELECT FROM job_ends t WHERE t.job_id = j.job_id)",
    ),
    *(
        Invariant(
            table,
            "the job does not exist",
            f"SELECT count(*) FROM {table} t WHERE NOT EXISTS (SELECT FROM jobs j WHERE j.job_id = t.job_id)",
        )
        for table in ("job_ends", "job_usage", "job_curves")
    ),
    Invariant(
        "challenges",
        "the challenge of an ended job",
        f"SELECT count(*) FROM challenges t JOIN jobs j USING (job_id) WHERE t.challenge <> '' AND {ENDED}",
    ),
    Invariant(
        "gantt_jobs_predictions",
        "the prediction of an ended job",
        f"SELECT count(*) FROM gantt_jobs_predictions t {_OF_MOLDABLE.format('moldable_job_id')} WHERE {ENDED}",
    ),
    Invariant(
        "gantt_jobs_predictions",
        "the date of the last round is missing",
        "SELECT 1 - count(*) FROM gantt_jobs_predictions WHERE moldable_job_id = 0",
    ),
)

#: The indexes that are not left half made.
_VALID_INDEXES = """
    SELECT c.relname FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
    WHERE i.indisvalid AND c.relnamespace = 'public'::regnamespace
"""

_RELATIONS = "SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'v')"

_COLUMNS = """
    SELECT c.relname, a.attname, format_type(a.atttypid, a.atttypmod) FROM pg_attribute a
    JOIN pg_class c ON c.oid = a.attrelid
    WHERE c.relnamespace = 'public'::regnamespace AND c.relkind = 'r' AND a.attnum > 0 AND NOT a.attisdropped
"""

_CHECKS = "SELECT conname FROM pg_constraint WHERE connamespace = 'public'::regnamespace AND contype = 'c'"

_LOGIN = "SELECT count(*) FROM pg_roles WHERE rolname = %s"

_MAY_READ = "SELECT has_table_privilege(%s, %s, 'SELECT')"


def _type_name(text: str) -> str:
    """Return a type name of SQLAlchemy in the notation of PostgreSQL."""
    return re.sub(r"float\(53\)", "double precision", text.lower().replace("varchar", "character varying"))


#: The open row of a live job's state log says its state; an ended job has none.
_STATE_LOGS = f"""
    UPDATE job_state_logs l SET date_stop = %(now)s FROM jobs j
        WHERE l.job_id = j.job_id AND l.date_stop = 0 AND ({ENDED} OR l.job_state <> j.state);
    INSERT INTO job_state_logs (job_id, job_state, date_start)
        SELECT j.job_id, j.state, %(now)s FROM jobs j WHERE {LIVE}
        AND NOT EXISTS (SELECT 1 FROM job_state_logs l WHERE l.job_id = j.job_id AND l.date_stop = 0)"""

#: Nothing that describes an ended job is current, and nobody wants it killed any more.
_ENDED_JOBS = f"""
    UPDATE assigned_resources a SET assigned_resource_index = 'LOG'
        FROM moldable_job_descriptions m JOIN jobs j ON j.job_id = m.moldable_job_id
        WHERE a.moldable_job_id = m.moldable_id AND a.assigned_resource_index = 'CURRENT' AND {ENDED};
    UPDATE moldable_job_descriptions m SET moldable_index = 'LOG' FROM jobs j
        WHERE m.moldable_index = 'CURRENT' AND j.job_id = m.moldable_job_id AND {ENDED};
    UPDATE job_types t SET types_index = 'LOG' FROM jobs j
        WHERE t.types_index = 'CURRENT' AND j.job_id = t.job_id AND {ENDED};
    UPDATE job_dependencies d SET job_dependency_index = 'LOG' FROM jobs j
        WHERE d.job_dependency_index = 'CURRENT' AND j.job_id = d.job_id AND {ENDED};
    UPDATE frag_jobs f SET frag_state = 'FRAGGED' FROM jobs j
        WHERE f.frag_state <> 'FRAGGED' AND j.job_id = f.frag_id_job AND {ENDED};
    DELETE FROM job_runs r USING jobs j WHERE j.job_id = r.job_id AND {ENDED}"""

#: The plan speaks of waiting and current jobs only, and has its reference date.
_PLAN = f"""
    DELETE FROM gantt_jobs_predictions p WHERE p.moldable_job_id <> 0 AND NOT EXISTS (
        SELECT 1 FROM moldable_job_descriptions m JOIN jobs j ON j.job_id = m.moldable_job_id
        WHERE m.moldable_id = p.moldable_job_id AND {LIVE});
    DELETE FROM gantt_jobs_sets p WHERE NOT EXISTS (
        SELECT 1 FROM moldable_job_descriptions m JOIN jobs j ON j.job_id = m.moldable_job_id
        WHERE m.moldable_id = p.moldable_job_id AND {LIVE});
    INSERT INTO gantt_jobs_predictions (moldable_job_id, start_time) VALUES (0, %(now)s) ON CONFLICT DO NOTHING;
    INSERT INTO gantt_jobs_predictions_visu (moldable_job_id, start_time) VALUES (0, %(now)s) ON CONFLICT DO NOTHING"""

#: Jobs that should have resources and have none.
_WITHOUT_RESOURCES = f"""
    SELECT j.job_id, j.state FROM jobs j
    WHERE {LIVE} AND j.state = ANY(%s) AND NOT EXISTS (
        SELECT 1 FROM assigned_resources a
        WHERE a.moldable_job_id = j.assigned_moldable_job AND a.assigned_resource_index = 'CURRENT')
      AND {NO_FRAME}
    ORDER BY j.job_id"""


class Invariants(Table):
    """The checks of ``oar-database --check`` (schema) and ``--deep`` (rows), and the repairs when the server starts."""

    def violations(self, ro_user: str) -> list[Violation]:
        """Return all violations: those of the schema and, if every table exists, those of the rows."""
        return [*self.of_schema(ro_user), *(() if [*self._missing_tables()] else self.of_rows())]

    def of_schema(self, ro_user: str) -> list[Violation]:
        """Return what is missing in the schema, and which secret tables are readable."""
        if missing := [*self._missing_tables()]:
            return missing
        return [*self._wrong_columns(), *self._missing_parts(), *self._open_secrets(ro_user)]

    def of_rows(self) -> list[Violation]:
        """Return the violations in the rows. Every table must exist."""
        violations = []
        for invariant in INVARIANTS:
            count = self._tx.value(invariant.question)
            if count:
                violations.append(Violation(invariant.table, count, invariant.problem))
        return violations

    def _missing_tables(self) -> Iterator[Violation]:
        present = set(self._tx.column(_RELATIONS))
        for name in sorted({*(table.name for table in schema.TABLES), *schema.VIEWS} - present):
            yield Violation(name, 1, "the view is missing" if name in schema.VIEWS else "the table is missing")

    def _wrong_columns(self) -> Iterator[Violation]:
        present = {(table, column): kind for table, column, kind in self._tx.rows(_COLUMNS)}
        for table in schema.TABLES:
            for column in table.columns:
                kind = present.get((table.name, column.name))
                if kind is None:
                    yield Violation(table.name, 1, f"the column {column.name} is missing")
                elif kind != _type_name(str(column.type.compile(dialect=DIALECT))):
                    yield Violation(table.name, 1, f"the column {column.name} is of type {kind}")

    def _missing_parts(self) -> Iterator[Violation]:
        indexes, checks = set(self._tx.column(_VALID_INDEXES)), set(self._tx.column(_CHECKS))
        for table in schema.TABLES:
            for index in sorted(str(index.name) for index in table.indexes):
                if index not in indexes:
                    yield Violation(table.name, 1, f"the index {index} is missing")
            for name in sorted(str(part.name) for part in table.constraints if str(part.name).endswith("_check")):
                if name not in checks:
                    yield Violation(table.name, 1, f"the constraint {name} is missing")

    def _open_secrets(self, ro_user: str) -> Iterator[Violation]:
        if not self._tx.value(_LOGIN, (ro_user,)):
            yield Violation("resources", 1, f"the login {ro_user} does not exist")
            return
        for table in schema.SECRET:
            if self._tx.value(_MAY_READ, (ro_user, f"public.{table}")):
                yield Violation(table, 1, f"{ro_user} may read it")

    def make_consistent(self) -> None:
        """Make state logs, liveness marks, kill requests and plan consistent with the states of the jobs."""
        for sql in (_STATE_LOGS, _ENDED_JOBS, _PLAN):
            self._tx.execute(sql, {"now": self._tx.now})
        self._changed(Topic.JOBS, Topic.GANTT)

    def without_resources(self) -> list[tuple[int, JobState]]:
        """Return the jobs that have no resources although their state requires some, by id."""
        rows = self._tx.rows(_WITHOUT_RESOURCES, ([str(state) for state in sorted(CURRENT)],))
        return [(row[0], JobState(row[1])) for row in rows]


# -- repairs of oar-database --fix-index: on a connection in autocommit mode, batch by batch --------------------------

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
    for table, column, way in _MARKED:
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
        "added with the end cause unknown",
        "INSERT INTO job_ends (job_id, date, code) SELECT j.job_id, j.stop_time, 'UNKNOWN' FROM jobs j"
        f" WHERE {ENDED} AND NOT EXISTS (SELECT FROM job_ends t WHERE t.job_id = j.job_id) LIMIT {BATCH}",
    )
    rows = batch.format(
        "frag_jobs", f"JOIN jobs j ON j.job_id = t.frag_id_job WHERE t.frag_state <> 'FRAGGED' AND {ENDED}"
    )
    yield Repair("frag_jobs", "closed, the job has ended", f"UPDATE frag_jobs SET frag_state = 'FRAGGED' WHERE {rows}")


REPAIRS = tuple(_repairs())


def run_repair(connection: Connection, repair: Repair) -> int:
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
        cursor.execute(_VALID_INDEXES)
        present = {row[0] for row in cursor.fetchall()}
    missing = [index for table in schema.TABLES for index in table.indexes if index.name not in present]
    return sorted(
        (
            str(index.name),
            str(CreateIndex(index).compile(dialect=DIALECT)).replace(" INDEX ", " INDEX CONCURRENTLY ", 1),
        )
        for index in missing
    )
