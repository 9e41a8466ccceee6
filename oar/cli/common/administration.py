"""What the administrators' commands have in common: the line in the server's log, and warnings."""

import logging
from collections.abc import Collection, Iterable

import click

from oar.cli.common.command import Context

log = logging.getLogger(__name__)


def note(context: Context) -> None:
    """Write one line about a change in the server's log: who did it, by which command."""
    from oar.lib.logs import logging_to

    parameters = click.get_current_context().params
    parts = [f"{name}={value}" for name, value in sorted(parameters.items()) if value not in ((), None, False)]
    with logging_to(context.runtime.config, "Admin"):
        log.info("[admin] user=%s command=%s %s", context.user.name, context.command.name, " ".join(parts))


def warn(lines: Iterable[str]) -> None:
    """Print what is wrong, each line behind the mark of warnings."""
    for line in lines:
        click.echo(f"/!\\ {line}", err=True)


def warn_of_policies(context: Context, names: Collection[str] | None) -> None:
    """Warn of each named queue, of every queue for None, whose policy schedules no job."""
    from oar.kao.rounds.site.scheduler_programs import policy_warnings

    if names is not None and not names:
        return
    with context.database.readonly() as tx:
        queues = [queue for queue in tx.queues.all() if names is None or queue.name in names]
    warn(policy_warnings(context.runtime, queues))
