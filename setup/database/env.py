"""Runs the migrations in versions/ on the connection that oar-database gives.

See docs/design/schema.rst, "Migrations".
"""

from collections.abc import Collection, Mapping
from typing import Any

from alembic import context
from alembic.runtime.migration import MigrationContext, MigrationInfo


def keep_schema_equal(
    ctx: MigrationContext, step: MigrationInfo, heads: Collection[Any], run_args: Mapping[str, Any]
) -> None:
    """Write the row of the table ``schema`` in the transaction of the migration.

    A migration that names the oldest release whose programs can use its schema has a revision beside it.
    """
    version = str(step.up_revision_id)
    oldest = getattr(step.up_revision.module, "oldest", "")
    ctx.execute("DELETE FROM schema")
    ctx.execute(f"INSERT INTO schema (version, name) VALUES ('{oldest or version}', '')")
    if oldest:
        ctx.execute(f"UPDATE schema SET revision = '{version.rpartition('.')[0]}'")


def run() -> None:
    """Run each migration in a transaction of its own; without a connection, print them."""
    context.configure(
        connection=context.config.attributes.get("connection"),
        dialect_name="postgresql",
        transaction_per_migration=True,
        on_version_apply=keep_schema_equal,
    )
    with context.begin_transaction():
        context.run_migrations()


run()
