"""qrstat: show advance reservations."""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, NamedTuple

import click

from oar.cli.common.command import Context, oar_command
from oar.cli.common.options import RESERVATIONS, Join, Stop, machine_formats, option
from oar.cli.common.render import visible
from oar.cli.common.reservation_commands import listed, owners_option
from oar.lib.base.formats import Format, dump
from oar.lib.base.grid_engine_times import write_date, write_long_date
from oar.lib.base.times import format_date, format_duration
from oar.lib.db.transaction import Transaction
from oar.lib.reservations import permissions
from oar.lib.reservations.records import AdvanceReservation, ReservationChange, ReservationLog, is_number
from oar.lib.reservations.states import HIDDEN, ReservationState
from oar.lib.reservations.views import (
    ShownReservation,
    change_text,
    details,
    log_record,
    open_changes,
    reasons,
    reservation_record,
    shown,
)

if TYPE_CHECKING:
    from oar.lib.reservations.views import ShownSeries

UNKNOWN = "Following advance reservations do not exist:"
#: Message about given reservations that have ended.
ENDED = "  some of these have ended: -all shows them, too"
HEAD = (
    "AR-ID   name       owner        state start at            end at              duration\n"
    "---------------------------------------------------------------------------------------"
)
LOG_HEAD = "AR-ID   date                state event                  author       message\n" + "-" * 87
SERIES_HEAD = "SERIES  name       owner        live left next is asked for   duration     rule\n" + "-" * 87
RULE = "=" * 62
#: Indentation of reasons.
INDENT = " " * 7
LETTERS = "".join(state for state in ReservationState if state not in HIDDEN)


class QrstatOptions(NamedTuple):
    """The options of qrstat."""

    wanted: tuple[str, ...]
    owners: tuple[str, ...]
    states: str | None
    ended: bool
    explains: bool
    log: bool
    series: bool
    is_terse: bool
    is_iso: bool
    machine: Format | None


@oar_command(
    "qrstat",
    summary="Show advance reservations.",
    examples={
        "qrstat -u '$user'": "List your reservations.",
        "qrstat -ar 5 -explain": "Show reservation 5 and why resources are missing.",
    },
    style=RESERVATIONS,
    help_names=("-help",),
)
@option(
    "-ar",
    "wanted",
    multiple=True,
    metavar="LIST",
    help="Show details of these reservations (numbers, names, name patterns).",
)
@owners_option
@option(
    "-s",
    "-state",
    "states",
    join=Join.LETTERS,
    metavar="LETTERS",
    help=f"Only reservations in one of these states ({LETTERS}).",
)
@option("-all", "ended", is_flag=True, help="Also show ended reservations.")
@option("-explain", "explains", is_flag=True, help="Show why resources are missing, and requested changes.")
@option("-log", "log", is_flag=True, help="Show the history of the reservations.")
@option("-series", "series", is_flag=True, help="Show series instead of reservations.")
@option("-terse", "is_terse", is_flag=True, help="Print only the numbers.")
@option("-iso", "is_iso", is_flag=True, help="Print dates as YYYY-MM-DD hh:mm:ss.")
@machine_formats
def main(context: Context, **values: object) -> int:
    """Show reservations; XML is in the layout of Grid Engine."""
    options = _read(QrstatOptions(**values))  # type: ignore[arg-type]
    if options.series:
        return _show_series(context, options)
    with context.database.snapshot() as tx:
        reservations, unknown = _select(tx, options.wanted, ended=options.ended)
        chosen = [
            reservation
            for reservation in reservations
            if (not options.states or reservation.state in options.states)
            and _has_owner(reservation.owner, options, context)
        ]
        text = _text(context, tx, options, chosen, unknown)
        has_ended = not options.ended and any(tx.reservations.ids_of(name) for name in unknown)
    click.echo(text, nl=False)
    if unknown:
        click.echo("\n".join([UNKNOWN, *map(visible, unknown)]), err=True)
    if has_ended:
        click.echo(ENDED, err=True)
    return 1 if unknown else 0


def _read(options: QrstatOptions) -> QrstatOptions:
    """Return the options with the single words of their lists.  Raises Stop."""
    if options.states is not None and (not options.states or set(options.states) - set(LETTERS)):
        raise Stop(f'qrstat: invalid option argument "-s {visible(options.states)}"\n  write letters of {LETTERS}')
    if options.is_terse and options.machine:
        raise Stop(f"qrstat: the options -terse and -{options.machine} exclude each other")
    if options.log and options.machine is Format.XML:
        raise Stop("qrstat: the XML format of Grid Engine has no log: use -json or -yaml")
    wanted, owners = listed("qrstat", options.wanted, "-ar"), listed("qrstat", options.owners, "-u", kind="users")
    return options._replace(wanted=tuple(wanted), owners=tuple(owners))


def _has_owner(owner: str, options: QrstatOptions, context: Context) -> bool:
    owners = [context.user.name if word == "$user" else word for word in options.owners]
    return not owners or any(fnmatchcase(owner, pattern) for pattern in owners)


def _select(tx: Transaction, names: Sequence[str], *, ended: bool) -> tuple[list[AdvanceReservation], list[str]]:
    """Return the reservations with these names, by number, and the names without a reservation."""
    needs_all = not names or not all(map(is_number, names))
    rows = (tx.reservations.ever_granted() if ended else tx.reservations.planned()) if needs_all else []
    candidates = [reservation for reservation in rows if reservation.state not in HIDDEN]
    numbers = tx.reservations.by_numbers([int(name) for name in names if is_number(name)])
    chosen = {} if names else {reservation.id: reservation for reservation in candidates}
    unknown = []
    for name in names:
        if is_number(name):
            own = numbers.get(int(name))
            matching = [own] if own and own.state not in HIDDEN else []
        else:
            matching = [reservation for reservation in candidates if fnmatchcase(reservation.name, name)]
        chosen |= {reservation.id: reservation for reservation in matching}
        unknown += [] if matching else [name]
    return sorted(chosen.values(), key=lambda reservation: (reservation.number, reservation.id)), unknown


def _text(
    context: Context,
    tx: Transaction,
    options: QrstatOptions,
    chosen: Sequence[AdvanceReservation],
    unknown: Sequence[str],
) -> str:
    """Return the output on stdout."""
    if options.machine is None and options.is_terse:
        lines: Iterator[str] = (str(reservation.number) for reservation in chosen)
    elif options.machine is None and options.log:
        lines = _history(chosen, _logs(tx, chosen), _dates(options, write_date))
    elif options.machine is None and not options.wanted:
        changes = {}
        if options.explains:
            changes = open_changes(tx, chosen, permissions.reader(tx, context.user, is_private=False))
        lines = _overview(chosen, _dates(options, write_date), changes, explains=options.explains)
    else:
        reader = permissions.reader(tx, context.user, is_private=context.runtime.config.oarstat_private)
        items = shown(tx, chosen, reader)
        if options.machine is not None:
            return _machine(tx, options, items, unknown, options.machine)
        lines = _details(items, _dates(options, write_long_date), explains=options.explains)
    return "".join(f"{line}\n" for line in lines)


def _dates(options: QrstatOptions, write: Callable[[int], str]) -> Callable[[int], str]:
    return format_date if options.is_iso else write


def _machine(
    tx: Transaction, options: QrstatOptions, items: Sequence[ShownReservation], unknown: Sequence[str], machine: Format
) -> str:
    if machine is Format.XML:
        from oar.lib.reservations.xml import reservations_xml

        return reservations_xml(items, unknown, explains=options.explains)
    names = _record_names([item.reservation for item in items])
    records = {names[item.reservation.id]: reservation_record(item) for item in items}
    if options.log:
        logs = _logs(tx, [item.reservation for item in items])
        for item in items:
            rows = logs.get(item.reservation.id, [])
            records[names[item.reservation.id]]["log"] = [log_record(row) for row in rows]
    return dump(records, machine)


def _record_names(reservations: Sequence[AdvanceReservation]) -> dict[int, str]:
    """Return the name of the record of each reservation: its number if that is unique among these.

    Numbers are reused: the name of an older reservation also has its submission time, as in the reporting of Grid
    Engine: ``12@1166104043``.
    """
    by_age = sorted(reservations, key=lambda reservation: (reservation.is_live, reservation.id))
    named = {reservation.number: reservation.id for reservation in by_age}
    return {
        reservation.id: str(reservation.number)
        if named[reservation.number] == reservation.id
        else f"{reservation.number}@{reservation.submission_time}"
        for reservation in reservations
    }


# ------------------------------------------------------------------------------------------------------------- series


def _show_series(context: Context, options: QrstatOptions) -> int:
    if options.wanted or options.states or options.log:
        raise Stop("qrstat: the options -ar, -s and -log cannot be used with -series")
    if options.machine is Format.XML:
        raise Stop("qrstat: the XML format of Grid Engine has no series: use -json or -yaml")
    from oar.lib.reservations.views import series_record, shown_series

    with context.database.snapshot() as tx:
        series = tx.reservations.all_series(ended=options.ended)
        items = shown_series(tx, [each for each in series if _has_owner(each.owner, options, context)])
    if options.machine is not None:
        text = dump({str(item.series.id): series_record(item) for item in items}, options.machine)
    else:
        text = "".join(f"{line}\n" for line in _series_lines(items, options))
    click.echo(text, nl=False)
    return 0


def _series_lines(items: "Sequence[ShownSeries]", options: QrstatOptions) -> Iterator[str]:
    if options.is_terse:
        yield from (str(item.series.id) for item in items)
        return
    date = _dates(options, write_date)
    if items:
        yield SERIES_HEAD
    for item in items:
        series = item.series
        coming = date(series.next_start) if series.next_start else "-"
        yield (
            f"{series.id:7d} {visible(item.name):<10.10} {visible(series.owner):<12.12} {len(item.live):4d}"
            f" {item.left:4d} {coming:<19} {format_duration(series.duration):<12} {visible(series.rule)}"
        )


# --------------------------------------------------------------------------------------------------------------- text


def _overview(
    reservations: Sequence[AdvanceReservation],
    date: Callable[[int], str],
    changes: Mapping[int, ReservationChange],
    *,
    explains: bool,
) -> Iterator[str]:
    if reservations:
        yield HEAD
    for reservation in reservations:
        yield (
            f"{reservation.number:7d} {visible(reservation.name):<10.10} {visible(reservation.owner):<12.12}"
            f" {reservation.state:<5.5} {date(reservation.start)} {date(reservation.real_end)}"
            f" {format_duration(reservation.real_end - reservation.start)}"
        )
        if explains:
            yield from (INDENT + visible(reason) for reason in reasons(reservation))
        if reservation.id in changes:
            yield f"{INDENT}change asked: {visible(change_text(changes[reservation.id]))}"


def _logs(tx: Transaction, reservations: Sequence[AdvanceReservation]) -> dict[int, list[ReservationLog]]:
    logs: dict[int, list[ReservationLog]] = {}
    for row in tx.reservation_logs.logs([reservation.id for reservation in reservations]):
        logs.setdefault(row.reservation_id, []).append(row)
    return logs


def _history(
    reservations: Sequence[AdvanceReservation], logs: Mapping[int, Sequence[ReservationLog]], date: Callable[[int], str]
) -> Iterator[str]:
    if reservations:
        yield LOG_HEAD
    for reservation in reservations:
        for row in logs.get(reservation.id, ()):
            message = visible(row.message.replace("\n", "; "))
            start = f"{reservation.number:7d} {date(row.date)} {row.state:<5} {row.event:<22} {visible(row.author):<12}"
            yield f"{start} {message}".rstrip()


def _details(items: Sequence[ShownReservation], date: Callable[[int], str], *, explains: bool) -> Iterator[str]:
    for item in items:
        yield RULE
        yield from (f"{f'{label}:':<27} {visible(text)}" for label, text in details(item, date, explains=explains))


if __name__ == "__main__":
    sys.exit(main())
