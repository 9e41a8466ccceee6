"""qrdel: delete advance reservations."""

import sys
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from typing import NamedTuple

import click

from oar.cli.common.command import Context, oar_command
from oar.cli.common.options import RESERVATIONS, Stop, machine_formats, option
from oar.cli.common.render import visible
from oar.cli.common.reservation_commands import OutcomePrinter, listed, nothing_named
from oar.lib.base.formats import Format
from oar.lib.db.transaction import Transaction
from oar.lib.reservations import deletion, rights
from oar.lib.reservations.deletion import Deletion, DeletionAnswer
from oar.lib.reservations.records import AdvanceReservation, is_number
from oar.lib.reservations.states import ReservationState


@oar_command(
    "qrdel",
    summary="Delete advance reservations.",
    examples={
        "qrdel 5": "Delete reservation 5.",
        "qrdel -series 2": "Delete the remaining reservations of series 2.",
    },
    style=RESERVATIONS,
    help_names=("-help",),
)
@option("-f", "-force", "force", is_flag=True, help="End the jobs immediately even if their nodes do not respond.")
@option(
    "-u",
    "-user",
    "owners",
    multiple=True,
    metavar="LIST",
    help="Only reservations of these owners ($user: you; patterns allowed).",
)
@option(
    "-series",
    "series",
    multiple=True,
    metavar="LIST",
    help="Series numbers: delete all remaining reservations of these series.",
)
@machine_formats
@click.argument("words", nargs=-1, metavar="AR_LIST")
def main(
    context: Context,
    *,
    force: bool,
    owners: tuple[str, ...],
    series: tuple[str, ...],
    words: tuple[str, ...],
    machine: Format | None,
) -> int:
    """Delete the reservations that are named, in their order, each in a transaction of its own.

    A series is deleted as a whole; a name or pattern selects the series of the matching reservations.
    """
    if not (words or owners or series):
        return nothing_named(context)
    with OutcomePrinter(machine) as answers:
        names, numbers = listed("qrdel", words), listed("qrdel", series, "-series", kind="numbers")
        users = [context.user.name if word == "$user" else word for word in listed("qrdel", owners, "-u", kind="users")]
        if users:
            _check_users(context, users)
        options = _DeleteOptions(context, answers, users, force)
        codes = [code for number in numbers for code in _delete_series(options, number)]
        for name in names or (["*"] if users and not numbers else []):
            codes += _delete_named(options, name, must_exist=bool(names))
        if users and not codes:
            listed_users = visible(",".join(users))
            raise Stop(f"There is no advance_reservation registered for the following users: {listed_users}")
    return next((code for code in reversed(codes) if code), 0)


class _DeleteOptions(NamedTuple):
    """What goes for all that is named."""

    context: Context
    answers: OutcomePrinter
    users: Sequence[str]  #: only what belongs to them; () = to anybody
    force: bool


def _delete_named(options: _DeleteOptions, name: str, *, must_exist: bool) -> Iterator[int]:
    """Delete what a word means; iterate over an exit code for each of it.

    A number means an occurrence of a series alone, a name and a pattern the whole series.
    """
    targets, is_known = _targets(options.context, name, options.users)
    if not is_known and must_exist:
        options.answers.refused(name, f'denied: advance_reservation "{visible(name)}" does not exist')
        yield 1
    for target in targets:
        if is_number(name) or not target.series_id:
            yield _delete(options, target)
    for series_id in (
        ()
        if is_number(name)
        else dict.fromkeys(reservation.series_id for reservation in targets if reservation.series_id)
    ):
        yield from _delete_series(options, str(series_id))


def _check_users(context: Context, users: Sequence[str]) -> None:
    """Reject the deletion of others' reservations, except by operators.  Raises Stop."""
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
    return [reservation for reservation in found if any(fnmatchcase(reservation.owner, user) for user in users)], bool(
        found
    )


def _named(tx: Transaction, context: Context, name: str, *, others: bool) -> list[AdvanceReservation]:
    """Return the live reservations of a number, a name, or a pattern, by number.

    A pattern means one's own, for operators everybody's.  A name means one's own, if there are some.
    ``others``: the owners were checked.
    """
    if is_number(name):
        own = tx.reservations.by_numbers([int(name)]).get(int(name))
        return [own] if own and own.is_live and own.state is not ReservationState.ASKED else []
    is_pattern = any(letter in name for letter in "*?[")
    live = tx.reservations.planned() if is_pattern else tx.reservations.live_by_name(name)
    named = sorted(
        (reservation for reservation in live if fnmatchcase(reservation.name, name)),
        key=lambda reservation: reservation.number,
    )
    asked = {reservation.id for reservation in named if reservation.state is ReservationState.ASKED}
    following = deletion.following(tx, [reservation for reservation in named if reservation.id in asked])
    granted = [reservation for reservation in named if reservation.id not in asked or reservation.id in following]
    if others or rights.is_operator(tx, context.user):
        return granted
    mine = [reservation for reservation in granted if reservation.owner == context.user.name]
    return mine if is_pattern else mine or granted


def _delete(options: _DeleteOptions, target: AdvanceReservation) -> int:
    user = options.context.user
    with options.context.database.begin() as tx:
        answer = deletion.delete(tx, user, target, target.number, force=options.force)
    return _tell(options, answer)


def _tell(options: _DeleteOptions, answer: DeletionAnswer) -> int:
    """Print the outcome for one reservation; return its exit code."""
    text, code = _text(answer.outcome, options.context.user.name, answer.number)
    (options.answers.refused if code else options.answers.done)(str(answer.number), text)
    return code


def _delete_series(options: _DeleteOptions, word: str) -> Iterator[int]:
    """Delete a series with all that is left of it, in one transaction; iterate over exit codes.

    Ignore a series that belongs to none of the given users.
    """
    user, name = options.context.user.name, visible(word)
    with options.context.database.begin() as tx:
        number = int(word) if is_number(word) else 0
        series = tx.reservations.select_series([number]).get(number)
        if series and options.users and not any(fnmatchcase(series.owner, pattern) for pattern in options.users):
            return
        answer = deletion.delete_series(tx, options.context.user, number, force=options.force)
    for deleted in answer.reservations:
        yield _tell(options, deleted)
    if answer.outcome is Deletion.DELETED:
        options.answers.done(f"series {name}", f"{user} has deleted series {name}")
        yield 0
        return
    denied = f'denied: "{user}" is not allowed to delete series {name}'
    unknown = f'denied: series "{name}" does not exist'
    options.answers.refused(f"series {name}", denied if answer.outcome is Deletion.DENIED else unknown)
    yield 1


def _text(outcome: Deletion, user: str, number: int) -> tuple[str, int]:
    """Return the message and the exit code of an outcome."""
    return {
        Deletion.DELETED: (f"{user} has deleted advance_reservation {number}", 0),
        Deletion.REGISTERED: (f"{user} has registered the advance_reservation {number} for deletion", 0),
        Deletion.ALREADY: (f"advance_reservation {number} is already registered for deletion", 0),
        Deletion.UNKNOWN: (f'denied: advance_reservation "{number}" does not exist', 1),
        Deletion.DENIED: (f'denied: "{user}" is not allowed to delete advance_reservation {number}', 1),
    }[outcome]


if __name__ == "__main__":
    sys.exit(main())
