"""Advance reservations as objects: their tables and views.  Since when a node says nothing of a job.

Which walltimes are defaults of the site.

The tables and views of earlier versions that have the same names were never written to, and are dropped.
"""

from pathlib import Path

from alembic import op

from oar.lib.db import schema
from oar.lib.db.schema_tables import creation

revision = "3.2.0"
down_revision = "3.1.0"

#: In an order in which no view is dropped before one that reads it.
_OLD_VIEWS = ("view_ar_time_usage", "view_ar_jobs", "view_ar_usage", "view_ar_log", "view_ar_attribute")
_OLD_TABLES = ("reservation_usage", "reservation_logs")
#: Created as they are declared now: a later migration that changes one of them moves its former statement to here.
_NEW_TABLES = (
    *("reservations", "reservation_acl", "reservation_jobs", "reservation_revisions", "reservation_changes"),
    *("reservation_logs", "reservation_intervals", "reservation_usage", "reservation_series"),
    *("usersets", "userset_entries", "sge_version"),
)


def upgrade():
    """Create what new installations have."""
    for view in _OLD_VIEWS:
        op.execute(f"DROP VIEW IF EXISTS public.{view}")
    for table in _OLD_TABLES:
        op.execute(f"DROP TABLE IF EXISTS public.{table}")
    op.execute("SET LOCAL search_path = public")
    for table in schema.TABLES:
        if table.name in _NEW_TABLES:
            for statement in creation(table):
                op.execute(statement)
    views = Path(__file__).resolve().parents[1] / "reservation_views.sql"
    op.execute(views.read_text(encoding="utf-8"))
    op.execute(
        "INSERT INTO usersets (userset_name, description) VALUES ('arusers', 'may create advance reservations'),"
        " ('aroperators', 'may alter and delete every advance reservation')"
    )
    op.execute("INSERT INTO userset_entries (userset_name, entry) VALUES ('arusers', 'oar')")
    op.execute("INSERT INTO sge_version (v_id, v_version, v_time) VALUES (5, '6.2', CURRENT_TIMESTAMP)")
    op.execute("ALTER TABLE public.api_tokens ADD COLUMN proved bigint NOT NULL DEFAULT 0")
    op.execute("ALTER TABLE public.api_tokens ADD COLUMN parent bigint NOT NULL DEFAULT 0")
    op.execute("CREATE TABLE public.token_jobs (job_id bigint PRIMARY KEY, token_id bigint NOT NULL DEFAULT 0)")
    op.execute(
        "CREATE TABLE public.submission_keys (key_user varchar(255) NOT NULL, key_hash varchar(64) NOT NULL,"
        " request_hash varchar(64) NOT NULL, answer text NOT NULL DEFAULT '', created bigint NOT NULL DEFAULT 0,"
        " PRIMARY KEY (key_user, key_hash))"
    )
    op.execute("CREATE INDEX submission_keys_created ON public.submission_keys (created)")
    op.execute(
        "CREATE TABLE public.history_positions (reader varchar(32) PRIMARY KEY, state_log bigint NOT NULL DEFAULT 0,"
        " event bigint NOT NULL DEFAULT 0)"
    )
    op.execute(
        "CREATE TABLE public.policy_log (log_id bigserial PRIMARY KEY, date bigint NOT NULL DEFAULT 0,"
        " author varchar(255) NOT NULL DEFAULT '', kind varchar(16) NOT NULL DEFAULT '',"
        " name varchar(255) NOT NULL DEFAULT '', former text, value text)"
    )
    op.execute("CREATE INDEX policy_log_name ON public.policy_log (kind, name, log_id)")
    op.execute("ALTER TABLE public.moldable_job_descriptions ADD COLUMN default_walltime bigint NOT NULL DEFAULT 0")
    op.execute("ALTER TABLE public.job_runs RENAME COLUMN next_try TO silent_since")
    op.execute("UPDATE public.job_runs SET silent_since = 0 WHERE silent_since <> 0")
    op.execute("ALTER TABLE public.queues DROP CONSTRAINT queues_state_check")
    op.execute(
        "ALTER TABLE public.queues ADD CONSTRAINT queues_state_check"
        " CHECK (state IN ('Active', 'notActive', 'orphaned'))"
    )


def downgrade():
    """Refuse: the way back is the backup."""
    raise NotImplementedError("there is no way back: restore the backup")
