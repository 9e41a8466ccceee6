"""qrdel: delete advance reservations."""

import sys
from fnmatch import fnmatchcase

import click

from oar.cli.common.command import Context, oar_command
from oar.cli.common.options import RESERVATIONS
from oar.lib.db.transaction import Transaction
from oar.lib.facts.advance_reservations import AdvanceReservation
from oar.lib.reservations import deletion, rights
from oar.lib.reservations.deletion import Deletion


@oar_command("qrdel", summary="Delete advance reservations.", style=RESERVATIONS, help_names=("-help",))
@click.argument("words", nargs=-1, metavar="AR_LIST")
def main(context: Context, words: tuple[str, ...]) -> int:
    """Delete the reservations that are named, in their order, each in a transaction of its own."""
    names = [name for word in words for name in word.split(",") if name]
    if not names:
        click.echo(context.command.get_help(click.get_current_context()))
        return 1
    code = 0
    for name in names:
        with context.database.begin() as tx:
            targets = _targets(tx, context, name)
        if not targets:
            click.echo(f'denied: advance_reservation "{name}" does not exist', err=True)
            code = 1
        for target in targets:
            code = _delete(context, target) or code
    return code


def _targets(tx: Transaction, context: Context, name: str) -> list[AdvanceReservation]:
    """Return the live reservations of a number, a name, or a pattern; a pattern means one's own, for operators all."""
    if name.isascii() and name.isdigit() and len(name) <= 7:
        own = tx.advance_reservations.by_numbers([int(name)]).get(int(name))
        return [own] if own and own.is_live else []
    live = tx.advance_reservations.live()
    if not any(letter in name for letter in "*?["):
        return [each for each in live if each.name == name]
    is_operator = rights.is_operator(tx, context.user)
    mine = [each for each in live if is_operator or each.owner == context.user.name]
    return [each for each in mine if name == "*" or (each.name and fnmatchcase(each.name, name))]


def _delete(context: Context, target: AdvanceReservation) -> int:
    with context.database.begin() as tx:
        answer = deletion.delete(tx, context.user, target, target.number)
    text, code = _text(answer.outcome, context.user.name, target.number)
    click.echo(text, err=code != 0)
    return code


def _text(outcome: Deletion, user: str, number: int) -> tuple[str, int]:
    """Return what is said of an outcome, and the exit code."""
    return {
        Deletion.DELETED: (f"{user} has deleted advance_reservation {number}", 0),
        Deletion.REGISTERED: (f"{user} has registered the advance_reservation {number} for deletion", 0),
        Deletion.ALREADY: (f"advance_reservation {number} is already registered for deletion", 0),
        Deletion.UNKNOWN: (f'denied: advance_reservation "{number}" does not exist', 1),
        Deletion.DENIED: (f'denied: "{user}" is not allowed to delete advance_reservation {number}', 1),
    }[outcome]


if __name__ == "__main__":
    sys.exit(main())
