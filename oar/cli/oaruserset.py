"""oaruserset: list and change the named lists of users that advance reservations know."""

import sys
from collections.abc import Sequence

import click

from oar.cli.common.command import Context, no_argument, oar_command
from oar.cli.common.options import RESERVATIONS, Stop, option
from oar.cli.common.render import visible
from oar.lib.access import userset_changes
from oar.lib.base.formats import Format, dump

Pairs = tuple[tuple[str, str], ...]


@oar_command(
    "oaruserset",
    summary="List and change usersets.",
    examples={
        "oaruserset -a alice,bob course": "Create the userset course, or add users to it.",
        "oaruserset -s course": "Show its users.",
    },
    style=RESERVATIONS,
    help_names=("-help",),
)
@option("-l", "lists", is_flag=True, help="List the names of all usersets.")
@option("-s", "shown", multiple=True, metavar="NAME", help="Show a userset.")
@option(
    "-a", "added", nargs=2, multiple=True, metavar="USERS NAME", help="Add users to a userset; create it if needed."
)
@option("-d", "removed", nargs=2, multiple=True, metavar="USERS NAME", help="Remove users from a userset.")
@option("-D", "deleted", multiple=True, metavar="NAME", help="Delete a userset.")
@option("-f", "--force", "force", is_flag=True, help="Even if users lose access to an active advance reservation.")
@option("-J", "as_json", is_flag=True, help="Print JSON.")
def main(
    context: Context,
    *,
    lists: bool,
    shown: tuple[str, ...],
    added: Pairs,
    removed: Pairs,
    deleted: tuple[str, ...],
    force: bool,
    as_json: bool,
) -> None:
    """Change the usersets in one transaction; then show them."""
    if not (lists or shown or added or removed or deleted):
        raise no_argument(context.command)
    if added or removed or deleted:
        if not context.user.is_admin:
            raise Stop(f'denied: "{context.user.name}" must be manager for this operation')
        lines = _change(context, added, removed, deleted, force=force)
        click.echo("\n".join(map(visible, lines)))
        for text, name in added:
            for sentence in userset_changes.unknown_names(text):
                context.warn(f'{visible(sentence)}, but was added to the access list "{name}"')
    if lists or shown:
        with context.database.snapshot() as tx:
            names = tx.access.userset_names() if lists else []
            usersets = {name: userset_changes.entries_of(tx, name) for name in dict.fromkeys((*names, *shown))}
        if as_json:
            click.echo(dump({name: list(entries) for name, entries in usersets.items()}, Format.JSON), nl=False)
            return
        for name, entries in usersets.items():
            if name in shown:
                click.echo(f"name    {name}\ntype    ACL\nentries {','.join(entries) or 'NONE'}")
            else:
                click.echo(name)


def _change(context: Context, added: Pairs, removed: Pairs, deleted: Sequence[str], *, force: bool) -> list[str]:
    """Make the changes; return the messages."""
    lines = []
    with context.database.begin() as tx:
        for text, name in added:
            for entry, is_new in userset_changes.add(tx, context.user, text, name, force=force):
                done = f'added "{entry}" to' if is_new else f'"{entry}" is already in'
                lines.append(f'{done} access list "{name}"')
        for text, name in removed:
            for entry, was_there in userset_changes.remove(tx, context.user, text, name, force=force):
                done = f'deleted user "{entry}" from' if was_there else f'"{entry}" is not in'
                lines.append(f'{done} access list "{name}"')
        for name in deleted:
            userset_changes.delete(tx, context.user, name, force=force)
            lines.append(f'deleted userset "{name}"')
    return lines


if __name__ == "__main__":
    sys.exit(main())
