"""The first version of this generation: ``oar-database`` created it; migrations follow it."""

revision = "3.1.0"
down_revision = None


def upgrade():
    """Leave everything as it is: a database is created at this version or a later one."""


def downgrade():
    """Refuse: the way back is the backup."""
    raise NotImplementedError("there is no way back: restore the backup")
