"""Advance reservations as objects: tables and views of ``reservations.sql``.  Since when a node says nothing of a job.

Which walltimes are defaults of the site.

The tables and views of earlier versions that have the same names were never written to, and are dropped.
"""

from pathlib import Path

from alembic import op

revision = "3.2.0"
down_revision = "3.1.0"

#: In an order in which no view is dropped before one that reads it.
_OLD_VIEWS = ("view_ar_time_usage", "view_ar_jobs", "view_ar_usage", "view_ar_log", "view_ar_attribute")
_OLD_TABLES = ("reservation_usage", "reservation_logs")


def upgrade():
    """Create what new installations have."""
    for view in _OLD_VIEWS:
        op.execute(f"DROP VIEW IF EXISTS public.{view}")
    for table in _OLD_TABLES:
        op.execute(f"DROP TABLE IF EXISTS public.{table}")
    text = Path(__file__).resolve().parents[1].joinpath("reservations.sql").read_text(encoding="utf-8")
    op.execute(text)
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
