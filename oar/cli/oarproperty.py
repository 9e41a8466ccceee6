"""oarproperty: the properties that administrators add to the resources."""

from collections.abc import Sequence

import click

from oar.cli.common.administration import note
from oar.cli.common.command import Context, oar_command
from oar.cli.common.job_selection import show_usage
from oar.cli.common.options import ADMIN, OneOf, Stop, option
from oar.lib.bus.messages import Tag, Wake
from oar.lib.nodes import properties
from oar.lib.nodes.properties import BadName, ExistsWithOtherType, InUse
from oar.lib.nodes.reserved import WouldBreak

BAD, OTHER_TYPE, USED = 1, 2, 3


@oar_command(
    "oarproperty",
    summary="List, add, remove and rename properties of resources.",
    examples={
        "oarproperty --list --full": "List the properties with their types.",
        "oarproperty --add rack --varchar": "Add a text property.",
    },
    style=ADMIN,
)
@option("-l", "--list", "list_", is_flag=True, help="List the properties.")
@option("--full", is_flag=True, help="With --list: also show types and numbers of values.")
@option("-a", "--add", "added", multiple=True, metavar="NAME", help="Add a property (default type: integer).")
@option("-c", "--varchar", is_flag=True, help="Type of the added properties: text.")
@option("-t", "--type", "type_", type=OneOf(["int", "varchar"]), help="Type of the added properties.")
@option("-d", "--delete", "deleted", multiple=True, metavar="NAME", help="Remove a property.")
@option(
    "-f",
    "--force",
    is_flag=True,
    help="Remove or rename a property even if jobs, rules or advance reservations use it.",
)
@option("-r", "--rename", "renamed", multiple=True, metavar="OLD,NEW", help="Rename a property.")
@option("-q", "--quiet", is_flag=True, help="Print errors only.")
def main(
    context: Context,
    *,
    list_: bool,
    full: bool,
    added: tuple[str, ...],
    varchar: bool,
    type_: str | None,
    deleted: tuple[str, ...],
    force: bool,
    renamed: tuple[str, ...],
    quiet: bool,
) -> int:
    """List, remove, add, rename, in this order."""
    pairs = [tuple(name.strip() for name in text.split(",")) for text in renamed]
    if any(len(pair) != 2 or not all(pair) for pair in pairs):
        return show_usage(f'-r takes OLD,NEW, not "{renamed[-1]}"')
    if not (list_ or added or deleted or renamed):
        return show_usage()
    if added or deleted or renamed:
        context.require_admin()
    if list_:
        _list(context, full)
    if added or deleted or renamed:
        lines = _change(context, deleted, added, pairs, is_text=varchar or type_ == "varchar", force=force)
        note(context)
        if not quiet:
            click.echo("\n".join(lines))
    return 0


def _list(context: Context, full: bool) -> None:
    """Print the properties, under the login that may only read."""
    with context.database.readonly() as tx:
        columns = tx.resources.columns()
        names = properties.shown(columns)
        counts = tx.nodes.property_counts(names) if full else {}
    if full:
        click.echo("property\ttype\tvalues\tresources without")
    for name in names:
        if full:
            click.echo(f"{name}\t{properties.type_name(columns[name])}\t{counts[name][0]}\t{counts[name][1]}")
        else:
            click.echo(name)


def _change(
    context: Context,
    deleted: Sequence[str],
    added: Sequence[str],
    pairs: Sequence[tuple[str, ...]],
    *,
    is_text: bool,
    force: bool,
) -> list[str]:
    """Change the columns in one transaction; return the messages.  Raises Stop."""
    lines = []
    try:
        with context.database.begin() as tx:
            for name in deleted:
                properties.drop_column(tx, context.user, name, force=force)
                lines.append(f"Removed property: {name.lower()}")
            for name in added:
                is_new = properties.add_column(tx, context.user, name, is_text=is_text)
                text = f"Added property: {name.lower()}" if is_new else f"Property '{name.lower()}' already exists."
                lines.append(text)
            for old, new in pairs:
                users = properties.rename_column(tx, context.user, old, new, force=force)
                if users:
                    jobs = ", ".join(map(str, users))
                    context.warn(f"filters of live jobs still contain '{old.lower()}': {jobs}")
                lines.append(f"Rename property {old.lower()} into {new.lower()}")
            tx.outbox.append(Wake(Tag.TERM))
    except BadName as error:
        raise Stop(f"Error: {error}", BAD) from None
    except ExistsWithOtherType as error:
        raise Stop(str(error), OTHER_TYPE) from None
    except WouldBreak as error:
        raise Stop(str(error), error.exit_code) from None
    except InUse as error:
        raise Stop(f"/!\\ {error}\nTo do it anyway, add --force.", USED) from None
    return lines
