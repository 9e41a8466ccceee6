"""qrdel: delete advance reservations."""

import sys
from collections.abc import Sequence
from fnmatch import fnmatchcase

import click

from oar.cli.common.command import Context, oar_command
from oar.cli.common.options import RESERVATIONS, Stop, option
from oar.cli.common.render import visible
from oar.lib.db.transaction import Transaction
from oar.lib.facts.advance_reservations import AdvanceReservation
from oar.lib.facts.reservation_states import ReservationState
from oar.lib.reservations import deletion, rights
from oar.lib.reservations.deletion import Deletion


@oar_command("qrdel", summary="Delete advance reservations.", style=RESERVATIONS, help_names=("-help",))
@option("-f", "-force", "force", is_flag=True, help="Their jobs end at once, whether their nodes answer or not.")
@option("-u", "-user", "owners", multiple=True, metavar="LIST", help="Of these owners; $user is you, patterns too.")
@option("-series", "series", multiple=True, metavar="LIST", help="The series of these numbers, with all that is left.")
@click.argument("words", nargs=-1, metavar="AR_LIST")
def main(
    context: Context, force: bool, owners: tuple[str, ...], series: tuple[str, ...], words: tuple[str, ...]
) -> int:
    """Delete the reservations that are named, in their order, each in a transaction of its own.

    A series is deleted as a whole; with a name or a pattern the series of what it means.
    """
    names, users = _split(words), [context.user.name if word == "$user" else word for word in _split(owners)]
    if not names and not users and not series:
        click.echo(context.command.get_help(click.get_current_context()))
        return 1
    if users:
        _check_users(context, users)
    code, has_found = 0, False
    for number in _split(series):
        code = _delete_series(context, number, force=force) or code
    for name in names or (["*"] if users else []):
        targets, is_known = _targets(context, name, users)
        if not is_known and names:
            click.echo(f'denied: advance_reservation "{visible(name)}" does not exist', err=True)
            code = 1
        for target in targets if _is_number(name) else _without_series(targets):
            has_found = True
            code = _delete(context, target, force=force) or code
        for series_id in () if _is_number(name) else dict.fromkeys(each.series_id for each in targets):
            if series_id:
                has_found = True
                code = _delete_series(context, str(series_id), force=force) or code
    if users and not has_found and not code and not series:
        listed = visible(",".join(users))
        raise Stop(f"There is no advance_reservation registered for the following users: {listed}")
    return code


def _without_series(targets: Sequence[AdvanceReservation]) -> list[AdvanceReservation]:
    return [each for each in targets if not each.series_id]


def _is_number(word: str) -> bool:
    return word.isascii() and word.isdigit() and len(word) <= 7


def _split(texts: Sequence[str]) -> list[str]:
    return [word.strip() for text in texts for word in text.split(",") if word.strip()]


def _check_users(context: Context, users: Sequence[str]) -> None:
    """Refuse to delete the reservations of others, unless an operator asks.  Raises Stop."""
    if set(users) == {context.user.name}:
        return
    with context.database.snapshot() as tx:
        if not rights.is_operator(tx, context.user):
            raise Stop(f'denied: "{context.user.name}" must be manager to modify all advance reservations')


def _targets(context: Context, name: str, users: Sequence[str]) -> tuple[list[AdvanceReservation], bool]:
    """Return the live reservations that a word means, and whether there is any of it, whoever owns it."""
    with context.database.snapshot() as tx:
        found = _named(tx, context, name, others=bool(users))
    if not users:
        return found, bool(found)
    return [each for each in found if any(fnmatchcase(each.owner, user) for user in users)], bool(found)


def _named(tx: Transaction, context: Context, name: str, *, others: bool) -> list[AdvanceReservation]:
    """Return the live reservations of a number, a name, or a pattern, by number.

    A pattern means one's own, for operators everybody's.  A name means one's own, if there are some.
    ``others``: the owners were checked.
    """
    if _is_number(name):
        own = tx.advance_reservations.by_numbers([int(name)]).get(int(name))
        return [own] if own and own.is_live and own.state is not ReservationState.ASKED else []
    is_pattern = any(letter in name for letter in "*?[")
    live = tx.advance_reservations.live() if is_pattern else tx.advance_reservations.live_by_name(name)
    granted = [each for each in live if each.state is not ReservationState.ASKED and fnmatchcase(each.name, name)]
    granted.sort(key=lambda each: each.number)
    if others or rights.is_operator(tx, context.user):
        return granted
    mine = [each for each in granted if each.owner == context.user.name]
    return mine if is_pattern else mine or granted


def _delete(context: Context, target: AdvanceReservation, *, force: bool) -> int:
    with context.database.begin() as tx:
        answer = deletion.delete(tx, context.user, target, target.number, force=force)
    text, code = _text(answer.outcome, context.user.name, target.number)
    click.echo(text, err=code != 0)
    return code


def _delete_series(context: Context, word: str, *, force: bool) -> int:
    """Delete a series with all that is left of it, in one transaction."""
    user, name, code = context.user.name, visible(word), 0
    with context.database.begin() as tx:
        number = int(word) if _is_number(word) else 0
        answer = deletion.delete_series(tx, context.user, number, force=force)
    for each in answer.reservations:
        text, code_of_one = _text(each.outcome, user, each.number)
        click.echo(text, err=code_of_one != 0)
        code = code_of_one or code
    texts = {
        Deletion.DELETED: f"{user} has deleted series {name}",
        Deletion.DENIED: f'denied: "{user}" is not allowed to delete series {name}',
    }
    if answer.outcome is Deletion.DELETED:
        click.echo(texts[answer.outcome])
        return code
    click.echo(texts.get(answer.outcome, f'denied: series "{name}" does not exist'), err=True)
    return 1


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
