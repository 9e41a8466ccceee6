"""qrdel: delete advance reservations."""

import sys
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from typing import NamedTuple

import click

from oar.cli.common.command import Context, oar_command
from oar.cli.common.options import RESERVATIONS, Stop, machine_formats, option
from oar.cli.common.render import visible
from oar.cli.common.reservation_commands import OutcomePrinter, listed, nothing_named, owners_option
from oar.lib.base.formats import Format
from oar.lib.db.transaction import Transaction
from oar.lib.reservations import deletion, permissions
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
@owners_option
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
            shown_users = visible(",".join(users))
            raise Stop(f"There is no advance_reservation registered for the following users: {shown_users}")
    return next((code for code in reversed(codes) if code), 0)


class _DeleteOptions(NamedTuple):
    """Options for all given names and numbers."""

    context: Context
    answers: OutcomePrinter
    users: Sequence[str]  #: only reservations of these owners; () = of all
    force: bool


def _delete_named(options: _DeleteOptions, name: str, *, must_exist: bool) -> Iterator[int]:
    """Delete the reservations of a number, a name or a pattern; iterate over their exit codes.

    A number means an occurrence of a series alone, a name and a pattern the whole series.
    """
    with options.context.database.snapshot() as tx:
        named = _select(tx, options.context, name, others=bool(options.users))
    if not named and must_exist:
        options.answers.refused(name, f'denied: advance_reservation "{visible(name)}" does not exist')
        yield 1
    targets = [reservation for reservation in named if _has_owner(options, reservation.owner)]
    for reservation in targets:
        if is_number(name) or not reservation.series_id:
            with options.context.database.begin() as tx:
                answer = deletion.delete(tx, options.context.user, reservation, reservation.number, force=options.force)
            yield _print_outcome(options, answer)
    if not is_number(name):
        for series_id in dict.fromkeys(reservation.series_id for reservation in targets if reservation.series_id):
            yield from _delete_series(options, str(series_id))


def _has_owner(options: _DeleteOptions, owner: str) -> bool:
    return not options.users or any(fnmatchcase(owner, user) for user in options.users)


def _check_users(context: Context, users: Sequence[str]) -> None:
    """Reject the deletion of others' reservations, except by operators.  Raises Stop."""
    if set(users) == {context.user.name}:
        return
    with context.database.snapshot() as tx:
        if not permissions.is_operator(tx, context.user):
            raise Stop(f'denied: "{context.user.name}" must be manager to modify all advance reservations')


def _select(tx: Transaction, context: Context, name: str, *, others: bool) -> list[AdvanceReservation]:
    """Return the live reservations of a number, a name, or a pattern, by number.

    A pattern selects the user's own reservations, for operators those of all users.  A name selects the user's own
    reservations if there are any.  ``others``: reservations of other users are selected, too.
    """
    if is_number(name):
        stored = tx.reservations.by_numbers([int(name)]).values()
        return [each for each in stored if each.is_live and each.state is not ReservationState.ASKED]
    is_pattern = any(letter in name for letter in "*?[")
    live = tx.reservations.planned() if is_pattern else tx.reservations.live_by_name(name)
    named = sorted(
        (reservation for reservation in live if fnmatchcase(reservation.name, name)),
        key=lambda reservation: reservation.number,
    )
    undecided = [reservation for reservation in named if reservation.state is ReservationState.ASKED]
    later = deletion.later_occurrences(tx, undecided)
    granted = [
        reservation
        for reservation in named
        if reservation.state is not ReservationState.ASKED or reservation.id in later
    ]
    if others or permissions.is_operator(tx, context.user):
        return granted
    own = [reservation for reservation in granted if reservation.owner == context.user.name]
    return own if is_pattern else own or granted


def _print_outcome(options: _DeleteOptions, answer: DeletionAnswer) -> int:
    user, number = options.context.user.name, answer.number
    text, code = {
        Deletion.DELETED: (f"{user} has deleted advance_reservation {number}", 0),
        Deletion.REGISTERED: (f"{user} has registered the advance_reservation {number} for deletion", 0),
        Deletion.ALREADY: (f"advance_reservation {number} is already registered for deletion", 0),
        Deletion.UNKNOWN: (f'denied: advance_reservation "{number}" does not exist', 1),
        Deletion.DENIED: (f'denied: "{user}" is not allowed to delete advance_reservation {number}', 1),
    }[answer.outcome]
    (options.answers.refused if code else options.answers.done)(str(number), text)
    return code


def _delete_series(options: _DeleteOptions, word: str) -> Iterator[int]:
    """Delete a series and its remaining reservations, in one transaction; iterate over exit codes.

    Ignore a series that belongs to none of the given users.
    """
    user, name = options.context.user.name, visible(word)
    with options.context.database.begin() as tx:
        number = int(word) if is_number(word) else 0
        series = tx.reservations.select_series([number]).get(number)
        if series and not _has_owner(options, series.owner):
            return
        answer = deletion.delete_series(tx, options.context.user, number, force=options.force)
    for deleted in answer.reservations:
        yield _print_outcome(options, deleted)
    if answer.outcome is Deletion.DELETED:
        options.answers.done(f"series {name}", f"{user} has deleted series {name}")
        yield 0
        return
    denied = f'denied: "{user}" is not allowed to delete series {name}'
    unknown = f'denied: series "{name}" does not exist'
    options.answers.refused(f"series {name}", denied if answer.outcome is Deletion.DENIED else unknown)
    yield 1


if __name__ == "__main__":
    sys.exit(main())
