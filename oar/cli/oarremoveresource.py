"""oarremoveresource: removes resources that are Dead."""

import click

from oar.cli.common.administration import note, warn
from oar.cli.common.command import Context, oar_command
from oar.cli.common.job_selection import show_usage
from oar.cli.common.options import ADMIN, Join, option
from oar.lib.nodes import changes
from oar.lib.nodes.changes import RemovalRefusal
from oar.lib.nodes.reserved import WouldBreak

UNKNOWN, NOT_ADMIN = 1, 4
#: Exit code and message of each refusal.
_REFUSALS = {
    RemovalRefusal.UNKNOWN: (UNKNOWN, "The resource {id} does not exist in OAR database."),
    RemovalRefusal.NOT_DEAD: (2, "The state of the resource {id} must be set to Dead before."),
    RemovalRefusal.USED: (5, "The resource {id} is used by job {jobs[0]}."),
    RemovalRefusal.NOT_ACCOUNTED: (6, "{number} job(s) not yet accounted: run oaraccounting first."),
}
LONGEST_ID = 9


@oar_command(
    "oarremoveresource",
    summary="Remove resources in state Dead.",
    examples={
        "oarremoveresource 17 18": "Remove two resources in state Dead.",
    },
    style=ADMIN,
    admins_only=True,
    not_admin=NOT_ADMIN,
)
@option("--purge-jobs", is_flag=True, help="Also delete all jobs that ran on them, with their history.")
@option("-f", "--force", is_flag=True, help="Also remove resources of advance reservations.")
@option("--sql", join=Join.CONDITION, metavar="SQL", help="Also remove resources that match this SQL condition.")
@click.argument("identifiers", nargs=-1, metavar="[RESOURCE_ID]...")
def main(context: Context, *, purge_jobs: bool, force: bool, sql: str | None, identifiers: tuple[str, ...]) -> int:
    """Remove them one by one."""
    if not identifiers and sql is None:
        return show_usage()
    ids = list(identifiers)
    if sql is not None:
        from oar.lib.db.user_sql import Subject, evaluate

        matching = evaluate(context.database, Subject.RESOURCES, sql, context.asker)
        ids += [str(resource) for resource in matching]
    code = 0
    for identifier in dict.fromkeys(ids):
        try:
            code = _remove(context, identifier, purge_jobs, force) or code
        except WouldBreak as refused:
            click.echo(str(refused), err=True)
            code = refused.exit_code
    note(context)
    return code


def _remove(context: Context, identifier: str, purge_jobs: bool, force: bool) -> int:
    """Remove a resource; return the exit code.  Raises WouldBreak."""
    click.echo(f"Resource to remove: {identifier}")
    if not (identifier.isascii() and identifier.isdigit() and len(identifier) <= LONGEST_ID):
        warn([f"The resource {identifier} does not exist in OAR database."])
        return UNKNOWN
    with context.database.begin() as tx:
        result = changes.remove(tx, context.user, int(identifier), purge_jobs=purge_jobs, force=force)
    for job in result.purged:
        click.echo(f"\tRemove the job {job}, it was run on the resource {identifier}")
    if result.refusal:
        code, text = _REFUSALS[result.refusal]
        warn([text.format(id=identifier, jobs=result.jobs, number=len(result.jobs))])
        return code
    click.echo(f"Resource {identifier} removed.")
    return 0
