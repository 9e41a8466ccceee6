"""The database as a whole (``tx.system``): schema version, sequences, advisory locks, state of the server."""

from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple

import psycopg2

from oar.lib.base.version import StoredSchema
from oar.lib.db.lock_keys import SERVER_LOCK
from oar.lib.db.statements import Table

_HOLDER = """
    SELECT a.application_name, a.pid FROM pg_locks l JOIN pg_stat_activity a USING (pid)
    WHERE l.locktype = 'advisory' AND l.classid = %s AND l.objid = %s AND l.granted LIMIT 1"""

#: Since when a lock in this database is held, at the earliest; a standby keeps its connection while it waits.
_HELD_SINCE = """
    SELECT GREATEST(FLOOR(EXTRACT(EPOCH FROM a.backend_start))::bigint, (SELECT max(since) FROM server_generation))
    FROM pg_locks l JOIN pg_stat_activity a USING (pid)
    WHERE l.locktype = 'advisory' AND l.classid = %s AND l.objid = %s AND l.objsubid = 2 AND l.granted
      AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())"""

#: Before 3.3 there was no column ``revision``: programs and schema had the same version.
_FIND = "SELECT COALESCE(NULLIF(to_jsonb(s) ->> 'revision', ''), version), version FROM schema s"

_UNDEFINED_TABLE = "42P01"

#: The sequence of job numbers: files on nodes, bills and mails name jobs by them.
JOBS = "jobs_job_id_seq"

#: All whose numbers are known outside of the database, or order what is followed.
SEQUENCES = (
    JOBS,
    "moldable_job_descriptions_moldable_id_seq",
    "job_resource_groups_res_group_id_seq",
    "job_state_logs_job_state_log_id_seq",
    "event_logs_event_id_seq",
    "files_file_id_seq",
    "reservations_reservation_id_seq",
)

_PRESENT = """
    SELECT sequencename::text, COALESCE(last_value, 0) FROM pg_sequences
    WHERE schemaname = 'public' AND sequencename = ANY(%s)"""

_ADVANCE = "SELECT setval(%s::regclass, %s)"

_LARGEST = 2**63 - 1

#: So many numbers are left out if some may have been used: more than a site gives between two dumps.
MARGIN = 100_000

#: The timeline of PostgreSQL: a promotion of a replica increases it.
_TIMELINE = "('x' || left(pg_walfile_name(pg_current_wal_insert_lsn()), 8))::bit(32)::int"

_REPLICATION = f"""
    SELECT {_TIMELINE}, current_setting('synchronous_standby_names') = ''
        OR current_setting('synchronous_commit') IN ('off', 'local')"""

#: Modes of ``Replication``.
SYNCHRONOUS, ASYNCHRONOUS, LOST = "synchronous", "asynchronous", "lost"

#: Condition: a replica was promoted that may lack commits, and the server has not noticed it yet.
_PROMOTED = f"""
    name = 'database' AND split_part(value, ' ', 2) = '{ASYNCHRONOUS}'
    AND split_part(value, ' ', 1)::int < {_TIMELINE}"""
UNNOTICED_PROMOTION = f"EXISTS (SELECT FROM server_state WHERE {_PROMOTED})"

#: Leave out numbers that may have been used, once after a promotion, before the server notices it.
SKIP_LOST_NUMBERS = f"""
    WITH promoted AS (
        UPDATE server_state SET value = {_TIMELINE} || ' {LOST}' WHERE {_PROMOTED} RETURNING name)
    SELECT setval(quote_ident(sequencename)::regclass, COALESCE(last_value, 0) + {MARGIN}) FROM promoted, pg_sequences
    WHERE schemaname = 'public' AND sequencename IN ({", ".join(f"'{name}'" for name in SEQUENCES)})"""

_STORE_STATE = """
    INSERT INTO server_state (name, value) VALUES (%s, %s) ON CONFLICT (name) DO UPDATE SET value = EXCLUDED.value"""


class ServerState(StrEnum):
    """State that a program of the server continues from, on any server; ``server_state.name``."""

    CLOCK = "clock"  #: oar/lib/base/clock_watch.py
    PHOENIX = "phoenix"  #: oar/lib/nodes/phoenix.py
    DATABASE = "database"  #: ``Replication``


class Replication(NamedTuple):
    """What decides after a promotion whether commits may be lost. Stored as ``timeline mode``."""

    timeline: int
    mode: str  #: of the commits on this timeline, or LOST: they follow a promotion that has to be treated as a loss

    def __str__(self) -> str:
        return f"{self.timeline} {self.mode}"


class System(Table):
    """The schema version, sequences, stored state, and locks of sessions. The keys of locks are in ``lock_keys.py``."""

    def take_lock(self, key: tuple[int, int]) -> None:
        """Wait for a lock, and hold it until the end of the transaction."""
        self._tx.execute("SELECT pg_advisory_xact_lock(%s, %s)", key)

    def take_named_lock(self, lock_class: int, name: str) -> None:
        """Wait for the lock of a class with a name, and hold it until the end of the transaction."""
        self._tx.execute("SELECT pg_advisory_xact_lock(%s, hashtext(%s))", (lock_class, name))

    def lock_holder(self, key: tuple[int, int]) -> str:
        """Return the holder of a lock as ``application (pid n)``, '' if it is free."""
        row = self._tx.row(_HOLDER, key)
        return f"{row[0]} (pid {row[1]})" if row else ""

    def active_since(self) -> int | None:
        """Return since when a server is active, None if none is."""
        start: int | None = self._tx.value(_HELD_SINCE, SERVER_LOCK)
        return start

    def schema_version(self) -> StoredSchema | None:
        """Return the schema, None if the database has none. In that case the transaction can no longer be used."""
        try:
            row = self._tx.row(_FIND)
        except psycopg2.Error as error:
            if error.pgcode == _UNDEFINED_TABLE:
                return None
            raise
        return StoredSchema(*row) if row else None

    def id_sequences(self) -> dict[str, int]:
        """Return the last number of each sequence, 0 if no number was used."""
        return dict(self._tx.rows(_PRESENT, (list(SEQUENCES),)))

    def newest_job(self, up_to: int = _LARGEST) -> int:
        """Return the largest existing job number up to a number, 0 if there is no such job."""
        number: int = self._tx.value("SELECT COALESCE(max(job_id), 0) FROM jobs WHERE job_id <= %s", (up_to,))
        return number

    def advance_sequence(self, numbers: Mapping[str, int]) -> None:
        """Make sequences continue above these numbers."""
        for sequence, number in numbers.items():
            self._tx.execute(_ADVANCE, (sequence, number))

    def replication(self) -> Replication:
        """Return the present timeline and kind of replication."""
        timeline, is_asynchronous = self._tx.row(_REPLICATION) or (0, True)
        return Replication(timeline, ASYNCHRONOUS if is_asynchronous else SYNCHRONOUS)

    def lock_state(self, name: ServerState) -> str:
        """Return a stored state as ``read_state`` does, and lock its row."""
        return str(self._tx.value("SELECT value FROM server_state WHERE name = %s FOR UPDATE", (name,)) or "")

    def read_state(self, name: ServerState) -> str:
        """Return a stored state, '' if there is none."""
        return str(self._tx.value("SELECT value FROM server_state WHERE name = %s", (name,)) or "")

    def store_state(self, name: ServerState, value: str) -> None:
        self._tx.execute(_STORE_STATE, (name, value))
