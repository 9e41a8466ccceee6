"""Adopt the database of an older OAR (``oar-database --adopt``): read its rows and write them to this database.

The work is one transaction here and one snapshot in the old database.  It succeeds completely or not at all, and an
interrupted adoption starts again from the beginning.  Rows are streamed in PostgreSQL's COPY format, so that ten
million jobs need no more memory than ten.  Before the commit, the rows are counted on both sides.
"""

import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import IO, NamedTuple

from oar.lib.adoption.report import AdoptedQueue, AdoptionReport, TableCount
from oar.lib.adoption.rules import AdoptedRule, OldRule, adopt_rules
from oar.lib.adoption.sql_copies import NewColumn, Property, TableCopy, copies, losses, properties, wide_columns
from oar.lib.adoption.sql_old_databases import OldDatabase, error_line
from oar.lib.base.errors import SchemaError
from oar.lib.base.version import SCHEMA
from oar.lib.db.statements import psycopg2, quoted
from oar.lib.db.transaction import Transaction

#: Told of a table, of the rows that were taken of it, and of how many there are.
Progress = Callable[[str, int, int], None]

#: Bytes that are read at a time.
_PIECE = 1 << 16
#: The largest number of a column of type integer.
_LARGEST = 2**31 - 1
#: Rows that a new database has: others mean that somebody works with it.
_FIRST_ROWS = {"gantt_jobs_predictions": 1, "gantt_jobs_predictions_visu": 1}
_NOT_ASKED = {"schema", "alembic_version", "queues", "scheduler", "admission_rules", "admission_rules_log"}
_NOT_ASKED |= {"policy_log", "history_positions", "outbox", "server_generation", "server_state", "servers", "task_runs"}
_NOT_ASKED |= {"audit_log", "announcements", "api_tokens", "usersets", "userset_entries", "sge_version"}

_COLUMNS = """
    SELECT c.relname, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull,
           COALESCE(pg_get_expr(d.adbin, d.adrelid), '')
    FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
    LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
    WHERE c.relnamespace = 'public'::regnamespace AND c.relkind = 'r' AND a.attnum > 0
      AND NOT a.attisdropped AND a.attgenerated = '' ORDER BY c.relname, a.attnum"""
#: Indexes that are made when all rows are there, which is much faster.  Those on parts of a table are small, and stay:
#: PostgreSQL does not write their conditions as it would read them.
_PLAIN_INDEXES = """
    SELECT i.indexrelid::regclass::text, pg_get_indexdef(i.indexrelid) FROM pg_index i
    WHERE i.indrelid = ANY(%s::regclass[]) AND i.indpred IS NULL
      AND NOT EXISTS (SELECT FROM pg_constraint p WHERE p.conindid = i.indexrelid)
    ORDER BY 1"""
_SERIALS = """
    SELECT c.relname, a.attname, pg_get_serial_sequence('public.' || quote_ident(c.relname), a.attname)
    FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
    WHERE c.relnamespace = 'public'::regnamespace AND c.relkind = 'r' AND a.attnum > 0 AND NOT a.attisdropped
      AND pg_get_serial_sequence('public.' || quote_ident(c.relname), a.attname) IS NOT NULL"""

#: Why old jobs ended, as far as their events and their exit codes tell.
_ENDS = """
    INSERT INTO job_ends (job_id, date, code, data)
    SELECT job_id, stop_time, code, CASE code
        WHEN 'SIGNAL' THEN jsonb_build_object('signal', exit_code & 127)
        WHEN 'EXIT_STATUS' THEN jsonb_build_object('status', exit_code >> 8)
        WHEN 'NOT_EXECUTABLE' THEN jsonb_build_object('status', exit_code >> 8)
        WHEN 'NOT_FOUND' THEN jsonb_build_object('status', exit_code >> 8)
        WHEN 'UNKNOWN' THEN CASE WHEN message <> '' THEN jsonb_build_object('text', left(message, 500)) ELSE '{}' END
        WHEN 'WALLTIME' THEN jsonb_build_object('walltime', COALESCE(walltime, stop_time - start_time),
                                                'ran', greatest(0, stop_time - start_time))
        ELSE '{}' END::text
    FROM (
        SELECT j.*, m.moldable_walltime AS walltime, CASE
            WHEN e.walltime THEN 'WALLTIME' WHEN e.evicted THEN 'EVICTED' WHEN e.deleted THEN 'DELETED'
            WHEN j.exit_code & 127 > 0 THEN 'SIGNAL' WHEN j.exit_code >> 8 = 126 THEN 'NOT_EXECUTABLE'
            WHEN j.exit_code >> 8 = 127 THEN 'NOT_FOUND' WHEN j.exit_code > 0 THEN 'EXIT_STATUS'
            WHEN j.state = 'Error' OR j.start_time = 0 THEN 'UNKNOWN'
            WHEN j.job_type = 'INTERACTIVE' THEN 'SESSION_OVER'
            WHEN j.exit_code = 0 THEN 'SUCCESS' ELSE 'UNKNOWN' END AS code
        FROM jobs j
        LEFT JOIN moldable_job_descriptions m ON m.moldable_id = j.assigned_moldable_job
        LEFT JOIN (
            SELECT job_id, bool_or(type = 'WALLTIME') AS walltime, bool_or(type = 'BESTEFFORT_KILL') AS evicted,
                   bool_or(type = 'FRAG_JOB_REQUEST') AS deleted
            FROM event_logs WHERE job_id <> 0 AND type IN ('WALLTIME', 'BESTEFFORT_KILL', 'FRAG_JOB_REQUEST')
            GROUP BY job_id) e ON e.job_id = j.job_id
        WHERE j.state IN ('Terminated', 'Error')) ended"""
#: What must be there of everything that lives: its present state in the logs.
_OPEN_STATES = """
    INSERT INTO job_state_logs (job_id, job_state, date_start)
    SELECT j.job_id, j.state, greatest(j.submission_time, 1) FROM jobs j
    WHERE j.state NOT IN ('Terminated', 'Error')
      AND NOT EXISTS (SELECT FROM job_state_logs l WHERE l.job_id = j.job_id AND l.date_stop = 0)"""
_RESOURCE_STATES = """
    WITH closed AS (
        UPDATE resource_logs l SET date_stop = greatest(%(now)s, l.date_start) FROM resources r
        WHERE l.resource_id = r.resource_id AND l.attribute = 'state' AND l.date_stop = 0 AND l.value <> r.state
        RETURNING r.resource_id)
    INSERT INTO resource_logs (resource_id, attribute, value, date_start, finaud_decision)
    SELECT r.resource_id, 'state', r.state, %(now)s, r.finaud_decision FROM resources r
    WHERE r.resource_id IN (SELECT resource_id FROM closed) OR NOT EXISTS (SELECT FROM resource_logs l
        WHERE l.resource_id = r.resource_id AND l.attribute = 'state' AND l.date_stop = 0)"""


#: Projects of the old jobs.
_PROJECTS = """
    INSERT INTO projects (project_name) SELECT DISTINCT project FROM jobs WHERE project <> '' ON CONFLICT DO NOTHING"""


class AdoptionChoices(NamedTuple):
    """Values from the caller that this package cannot determine."""

    policies: frozenset[str]  #: of queues
    own_columns: frozenset[str]  #: names that properties of resources cannot have
    shipped: Mapping[str, OldRule]  #: the rules of this version, by name; none if the site does not want them
    is_python: Callable[[str], bool]  #: whether a text compiles


class Adoption(NamedTuple):
    """The planned adoption and its report."""

    copies: Sequence[TableCopy]
    properties: Sequence[Property]
    report: AdoptionReport


def require_empty(tx: Transaction) -> None:
    """Raise SchemaError if the new database is in use or does not have the current schema."""
    schema = tx.system.schema_version()
    if schema is None or schema.is_outdated or schema.is_newer:
        problem = f"has the schema {schema.revision}" if schema else "has no schema"
        raise SchemaError(f"The new database {problem}, not {SCHEMA}: create it first (oar-database --create).")
    names = tx.column(
        "SELECT relname::text FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind = 'r'"
    )
    for name in sorted(set(names) - _NOT_ASKED):
        count = tx.value(f"SELECT count(*) FROM (SELECT FROM {quoted(name)} LIMIT 1000) t")
        if count > _FIRST_ROWS.get(name, 0):
            raise SchemaError(
                f"The new database is not empty ({name} has rows): take over into a new one (--create with another"
                " --db-name), or empty it (--reset)."
            )


def plan(tx: Transaction, old: OldDatabase, choices: AdoptionChoices) -> Adoption:
    """Plan the adoption without changing anything.  Raises SchemaError."""
    tx.execute("SET LOCAL idle_in_transaction_session_timeout TO 0")  # counting in the old database may take long
    new = _columns(tx)
    ours = frozenset(column.name for column in new["resources"]) | choices.own_columns
    added = properties(old.tables["resources"], ours, _narrow(old, ours))
    new["resources"] += [NewColumn(column.name, column.type, required=False) for column in added]
    chosen = list(copies(old.tables, new, old.schema))
    queues = list(_queues(old, choices.policies))
    kept = sorted({queue.name for queue in tx.queues.all()} - {queue.name for queue in queues})
    report = AdoptionReport(
        old.name,
        old.version,
        [_count(old, copy) for copy in chosen],
        [f"{column.name} ({'a number' if column.type == 'integer' else 'a text'})" for column in added],
        queues,
        kept,
        adopt_rules(
            _rules(old),
            choices.shipped,
            choices.is_python,
            is_before_2_5_5="priority" not in old.tables.get("admission_rules", {}),
        ),
        [
            f"the column {loss.table}.{loss.column}"
            if loss.column
            else f"the table {loss.table} ({old.count(loss.table)} rows)"
            for loss in losses(old.tables, new)
        ],
    )
    return Adoption(chosen, added, report)


def carry_out(tx: Transaction, old: OldDatabase, adoption: Adoption, progress: Progress) -> None:
    """Execute the adoption inside the caller's transaction.  Raises SchemaError; the caller must then roll back."""
    for added in adoption.properties:
        tx.execute(f"ALTER TABLE resources ADD COLUMN {quoted(added.name)} {added.type}")
    tables = [copy.table for copy in adoption.copies]
    indexes = tx.rows(_PLAIN_INDEXES, (tables,))
    for name, _ in indexes:
        tx.execute(f"DROP INDEX {name}")
    for copy, count in zip(adoption.copies, adoption.report.counts, strict=True):
        _copy(tx, old, copy, count, progress)
    _write_queues(tx, adoption.report.queues)
    _write_rules(tx, adoption.report.rules)
    _advance(tx, old)
    progress("indexes", 0, 0)
    for _, statement in indexes:
        tx.execute(statement)
    _compare(tx, adoption)
    progress("causes of ends", 0, 0)
    tx.execute(f"ANALYZE {', '.join(tables)}")
    tx.execute(_ENDS)
    tx.execute(_PROJECTS)
    tx.execute(_OPEN_STATES)
    tx.execute(_RESOURCE_STATES, {"now": tx.now})


# -- reading -----------------------------------------------------------------------------------------------------------


def _columns(tx: Transaction) -> dict[str, list[NewColumn]]:
    columns: dict[str, list[NewColumn]] = {}
    for table, name, kind, required, default in tx.rows(_COLUMNS):
        own_default = "" if default.startswith("nextval") else default
        columns.setdefault(table, []).append(NewColumn(name, kind, required, own_default))
    return columns


def _narrow(old: OldDatabase, ours: frozenset[str]) -> frozenset[str]:
    """Return the added columns of large types whose values all fit into an integer."""
    narrow = set[str]()
    for name in wide_columns(old.tables["resources"], ours):
        question = f"SELECT COALESCE(max(abs({quoted(name)})), 0) <= {_LARGEST} AND"
        question += f" COALESCE(bool_and({quoted(name)} = floor({quoted(name)})), true) FROM {old.quoted('resources')}"
        if old.rows(question)[0][0]:
            narrow.add(name)
    return frozenset(narrow)


def _count(old: OldDatabase, copy: TableCopy) -> TableCount:
    rows = old.count(copy.source)
    if not copy.condition:
        return TableCount(copy.source, rows, rows)
    taken = old.rows(f"SELECT count(*) FROM {old.quoted(copy.source)} t WHERE {copy.condition}")[0][0]
    return TableCount(copy.source, rows, taken, copy.why_not)


def _queues(old: OldDatabase, policies: frozenset[str]) -> Iterator[AdoptedQueue]:
    question = f"SELECT queue_name, priority, scheduler_policy, state::text FROM {old.quoted('queues')} ORDER BY 1"
    for name, priority, former, state in old.rows(question):
        policy = former if former in policies else os.path.basename(former or "")
        is_known = policy in policies
        yield AdoptedQueue(
            name, priority, policy if is_known else former, state if is_known else "notActive", former, is_known
        )


def _rules(old: OldDatabase) -> list[OldRule]:
    columns = old.tables.get("admission_rules", {})
    if not columns:
        return []
    priority = "priority" if "priority" in columns else "id"
    enabled = "enabled::text" if "enabled" in columns else "'YES'"
    question = f"SELECT id, COALESCE({priority}, 0), COALESCE({enabled}, 'YES'), COALESCE(rule, '')"
    rows = old.rows(f"{question} FROM {old.quoted('admission_rules')} ORDER BY id")
    return [OldRule(row[0], row[1], row[2] == "YES", row[3].replace("\r\n", "\n")) for row in rows]


# -- writing -----------------------------------------------------------------------------------------------------------


class _CountingReader:
    """The reading end of a pipe; counts the rows that pass."""

    def __init__(self, file: IO[bytes], tell: Callable[[int], None]) -> None:
        self._file = file
        self._tell = tell
        self.rows = 0

    def read(self, size: int = -1) -> bytes:
        return self._counted(self._file.read(size))

    def readline(self, size: int = -1) -> bytes:
        """Return the next line, or its first ``size`` bytes."""
        return self._counted(self._file.readline(size))

    def _counted(self, piece: bytes) -> bytes:
        self.rows += piece.count(b"\n")
        self._tell(self.rows)
        return piece


def _copy(tx: Transaction, old: OldDatabase, copy: TableCopy, count: TableCount, progress: Progress) -> None:
    """Copy the rows of a table.  Raises SchemaError."""
    receiving, sending = os.pipe()
    failures: list[Exception] = []

    def send() -> None:
        try:
            with os.fdopen(sending, "wb") as file:
                old.copy_to(copy.query, file)
        except (psycopg2.Error, OSError) as error:
            failures.append(error)

    sender = threading.Thread(target=send, name="oar-adopt", daemon=True)
    columns = ", ".join(map(quoted, copy.columns))
    with os.fdopen(receiving, "rb") as file:
        reader = _CountingReader(file, lambda rows: progress(copy.source, rows, count.taken))
        sender.start()
        try:
            with tx.connection.cursor() as cursor:
                cursor.copy_expert(f"COPY {quoted(copy.table)} ({columns}) FROM STDIN", reader)
        except psycopg2.Error as error:
            old.cancel()
            text = error_line(error)
            if "invalid byte sequence" in text:
                text += (
                    "; the old database does not know its encoding: load its dump into one WITH ENCODING, and take that"
                )
            raise SchemaError(f"A row of {copy.source} cannot be taken over: {text}.") from None
        except BaseException:
            old.cancel()
            raise
        finally:
            while file.read(_PIECE):  # discard data that the stopped sender has already written
                pass
            sender.join()
    if failures:
        raise SchemaError(f"Cannot read {copy.source} of the old database: {error_line(failures[0])}.")


def _write_queues(tx: Transaction, queues: Sequence[AdoptedQueue]) -> None:
    for queue in queues:
        tx.execute(
            "INSERT INTO queues (queue_name, priority, scheduler_policy, state) VALUES (%s, %s, %s, %s)"
            " ON CONFLICT (queue_name) DO UPDATE SET priority = EXCLUDED.priority,"
            " scheduler_policy = EXCLUDED.scheduler_policy, state = EXCLUDED.state",
            (queue.name, queue.priority, queue.policy, queue.state),
        )


def _write_rules(tx: Transaction, rules: Sequence[AdoptedRule]) -> None:
    tx.execute("DELETE FROM admission_rules")
    for adopted in rules:
        tx.execute(
            "INSERT INTO admission_rules (id, priority, enabled, rule) VALUES (%s, %s, %s, %s)",
            (adopted.rule.id, adopted.rule.priority, "YES" if adopted.rule.enabled else "NO", adopted.rule.text),
        )
        if adopted.former and adopted.former != adopted.rule.text:
            tx.execute(
                "INSERT INTO admission_rules_log (id, date, author, action, rule) VALUES (%s, %s, 'oar', 'adopt', %s)",
                (adopted.rule.id, tx.now, adopted.former),
            )


def _advance(tx: Transaction, old: OldDatabase) -> None:
    """Set each sequence to continue after the last number of the old database."""
    for table, column, sequence in tx.rows(_SERIALS):
        last = tx.value(f"SELECT COALESCE(max({quoted(column)}), 0) FROM {quoted(table)}")
        if column in old.tables.get(table, {}):
            last = max(last, old.last_number(table, column))
        if last:
            tx.execute("SELECT setval(%s::regclass, %s)", (sequence, last))


def _compare(tx: Transaction, adoption: Adoption) -> None:
    """Raise SchemaError if a table does not have as many rows as expected."""
    for copy, count in zip(adoption.copies, adoption.report.counts, strict=True):
        rows = tx.value(f"SELECT count(*) FROM {quoted(copy.counted_as or copy.table)}")
        rows -= _FIRST_ROWS.get(copy.table, 0)
        if rows != count.taken:
            raise SchemaError(f"{copy.source} has {count.taken} rows to take, and {rows} came: nothing is changed.")
