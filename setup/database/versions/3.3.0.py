"""Schema changes of release 3.3.0."""

from alembic import op

revision = "3.3.0"
down_revision = "3.2.0"
#: The oldest release whose programs can use the new schema.
oldest = "3.2.0"


def upgrade():
    """Create what new installations have."""
    op.execute("ALTER TABLE public.schema ADD COLUMN revision varchar(32) NOT NULL DEFAULT ''")
    op.execute(
        "CREATE TABLE public.task_runs (task varchar(32) PRIMARY KEY, last_success bigint NOT NULL DEFAULT 0)"
    )


def downgrade():
    """Refuse: the way back is the backup."""
    raise NotImplementedError("there is no way back: restore the backup")
