"""oar-audit: print the audit log, who changed what."""

import sys
from collections.abc import Iterator, Sequence

import click

from oar.cli.common.command import Context, oar_command
from oar.cli.common.options import ADMIN, COUNT, OneOf, machine_formats, option
from oar.cli.common.render import visible
from oar.lib.base.formats import Format, dump
from oar.lib.base.texts import is_storable
from oar.lib.base.times import format_date
from oar.lib.config.files import quoted
from oar.lib.history import audit
from oar.lib.history.audit import AuditAction
from oar.lib.history.sql_audit import AuditEntry, AuditFilter

DEFAULT_ROWS, MOST_ROWS = 1000, 1_000_000
#: Characters of an object and of a value in a line; the machine formats have all.
_LONGEST = 200


@oar_command(
    "oar-audit",
    summary="Show who changed what.",
    examples={
        "oar-audit --since 7d": "Print the changes of the last 7 days.",
        "oar-audit --by anna --action delete": "Print what a person deleted.",
        "oar-audit --object node-12": "Print the changes of a node; others are: queue, job 4711, project physics.",
    },
    style=ADMIN,
)
@option("--since", metavar="DATE", help="Only changes since this date.")
@option("--until", metavar="DATE", help="Only changes until this date.")
@option("--by", "person", metavar="PERSON", help="Only changes by this person or under this account.")
@option("--object", "name", metavar="OBJECT", help="Only changes of these objects: KIND, NAME, or 'KIND NAME'.")
@option("--action", type=OneOf([*AuditAction]), help="Only changes of this kind.")
@option(
    "-n",
    "--number",
    type=COUNT,
    default=DEFAULT_ROWS,
    metavar="NUMBER",
    help=f"The newest NUMBER changes (default: {DEFAULT_ROWS}).",
)
@machine_formats
def main(
    context: Context,
    *,
    since: str | None,
    until: str | None,
    person: str | None,
    name: str | None,
    action: str | None,
    number: int,
    machine: Format | None,
) -> None:
    """Print the selected rows, oldest first."""
    context.require_admin()
    _check_texts(number, person, name)
    first, last = (context.past_date(text) if text else None for text in (since, until))
    number = min(number, MOST_ROWS)
    with context.database.snapshot() as tx:
        found = audit.find(tx, AuditFilter(first, last, person, action, name), number + 1)
    entries = found[:number][::-1]
    if machine:
        click.echo(dump([entry._asdict() for entry in entries], machine), nl=False)
    else:
        click.echo("".join(f"{line}\n" for line in _lines(entries)), nl=False)
    if len(found) > number:
        context.warn(f"These are the newest {number} changes. To see others, use -n or --until.")


def _check_texts(number: int, *texts: str | None) -> None:
    """Raise UsageError for a number or a text that selects nothing."""
    if number == 0:
        raise click.UsageError("-n 0 prints nothing: write a number from 1 on")
    for text in texts:
        if text is not None and not (text and is_storable(text)):
            raise click.UsageError(f"{visible(text)!r} is no name of a person or an object")


def _lines(entries: Sequence[AuditEntry]) -> Iterator[str]:
    for entry in entries:
        values = [f"{quoted(_short(value))}" if value else "(none)" for value in entry[5:7]]
        change = f": {values[0]} -> {values[1]}" if entry.former_value or entry.new_value else ""
        reason = f"  # {visible(entry.reason)}" if entry.reason else ""
        head = f"{format_date(entry.date)}  {visible(entry.person)}  {entry.via}  {entry.action}"
        yield f"{head}  {_short(entry.object)}{change}{reason}"


def _short(text: str) -> str:
    shown = visible(text)
    return shown if len(shown) <= _LONGEST else f"{shown[: _LONGEST - 3]}..."


if __name__ == "__main__":
    sys.exit(main())
