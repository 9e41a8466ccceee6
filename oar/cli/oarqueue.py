"""oarqueue: lists, adds, changes, removes, enables and disables queues."""

import click

from oar.cli.common.administration import note, warn_of_policies
from oar.cli.common.command import Context, oar_command
from oar.cli.common.options import ADMIN, Stop, option
from oar.lib.access.records import User
from oar.lib.base.texts import enumerated
from oar.lib.bus.messages import Tag, Wake
from oar.lib.db.transaction import Transaction
from oar.lib.jobs import queues
from oar.lib.jobs.queues import QueueProblem
from oar.lib.jobs.records import Queue

NOT_ADMIN = 8


@oar_command(
    "oarqueue",
    summary="List and change the queues.",
    examples={
        "oarqueue": "List the queues.",
        "oarqueue --add night,1,kamelot": "Add a queue with priority 1.",
        "oarqueue --disable night": "Start no jobs of a queue.",
    },
    style=ADMIN,
    not_admin=NOT_ADMIN,
)
@option("-l", "--list", "list_", is_flag=True, help="List the queues (default).")
@option("-e", "--enable", "enabled", multiple=True, metavar="NAME", help="Enable a queue.")
@option("-d", "--disable", "disabled", multiple=True, metavar="NAME", help="Disable a queue: its jobs wait.")
@option("-E", "--enable-all", is_flag=True, help="Enable all queues.")
@option("-D", "--disable-all", is_flag=True, help="Disable all queues.")
@option("--add", "added", multiple=True, metavar="NAME,PRIORITY,POLICY", help="Add a queue.")
@option("--change", "changed", multiple=True, metavar="NAME[,PRIORITY[,POLICY]]", help="Change a queue.")
@option("--remove", "removed", multiple=True, metavar="NAME", help="Remove a queue.")
@option("--force", is_flag=True, help="Remove a queue even if it has jobs that have not ended.")
def main(
    context: Context,
    *,
    list_: bool,
    enabled: tuple[str, ...],
    disabled: tuple[str, ...],
    enable_all: bool,
    disable_all: bool,
    added: tuple[str, ...],
    changed: tuple[str, ...],
    removed: tuple[str, ...],
    force: bool,
) -> None:
    """Change the queues in one transaction; then list them."""
    changes = bool(added or changed or removed or enabled or disabled or enable_all or disable_all)
    if changes:
        context.require_admin()
        try:
            with context.database.begin() as tx:
                lines = _change(tx, context.user, added=added, changed=changed, removed=removed, force=force)
                queues.switch(tx, context.user, enabled, disabled, enable_all=enable_all, disable_all=disable_all)
                tx.outbox.append(Wake(Tag.TERM))
        except QueueProblem as error:
            raise Stop(str(error), error.exit_code) from None
        for line in lines:
            click.echo(line)
        named = [text.partition(",")[0].strip() for text in (*added, *changed, *enabled)]
        warn_of_policies(context, None if enable_all else named)
        note(context)
    if list_ or not changes:
        with context.database.readonly() as tx:
            print_queues(tx.queues.all(), "policy")


def _change(
    tx: Transaction,
    user: User,
    *,
    added: tuple[str, ...],
    changed: tuple[str, ...],
    removed: tuple[str, ...],
    force: bool,
) -> list[str]:
    """Make the changes; return the messages.  Raises QueueProblem."""
    lines: list[str] = []
    for text in added:
        queues.add(tx, user, text)
    for text in changed:
        queues.change(tx, user, text)
    for name in removed:
        left = queues.remove(tx, user, name, force=force)
        if left:
            orphaned = "it is orphaned and goes with the last one."
            lines.append(f"Queue '{name}' is reserved by {len(left)} advance reservation(s): {orphaned}")
            lines.append(f"  {enumerated(left)}")
    return lines


def print_queues(queues: list[Queue], label: str) -> None:
    """Print queues, each with its values below it."""
    for queue in queues:
        click.echo(f"{queue.name}\n\tpriority = {queue.priority}\n\t{label} = {queue.policy}\n\tstate = {queue.state}")
