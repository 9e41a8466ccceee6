"""Schema changes of release 3.3.0."""

from alembic import op

revision = "3.3.0"
down_revision = "3.2.0"


def upgrade():
    """Create what new installations have."""
    op.execute("COMMENT ON COLUMN public.schema.version IS NULL")


def downgrade():
    """Refuse: the way back is the backup."""
    raise NotImplementedError("there is no way back: restore the backup")
