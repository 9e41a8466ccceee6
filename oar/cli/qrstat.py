"""qrstat: show advance reservations."""

import sys
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase

import click

from oar.cli.common.command import Context, oar_command
from oar.cli.common.options import RESERVATIONS, machine_formats, option
from oar.lib.db.transaction import Transaction
from oar.lib.facts.advance_reservations import AdvanceReservation
from oar.lib.facts.formats import Format, dump
from oar.lib.facts.grid_engine_times import write_date, write_long_date
from oar.lib.facts.reservation_states import ReservationState
from oar.lib.facts.times import format_duration
from oar.lib.views.reservations import ShownReservation, reservation_record, shown

UNKNOWN = "Following advance reservations do not exist:"
HEAD = (
    "AR-ID   name       owner        state start at            end at              duration\n"
    "---------------------------------------------------------------------------------------"
)
RULE = "=" * 62
#: States that no listing shows.
HIDDEN = frozenset({ReservationState.ASKED, ReservationState.REFUSED})


@oar_command("qrstat", summary="Show advance reservations.", style=RESERVATIONS, help_names=("-help",))
@option("-ar", "wanted", multiple=True, metavar="LIST", help="Numbers, names, patterns of names: in detail.")
@option("-u", "owners", multiple=True, metavar="LIST", help="Those of these owners; $user is you, patterns too.")
@option("-explain", "explains", is_flag=True, help="Print why resources are missing.")
@machine_formats
def main(
    context: Context, wanted: tuple[str, ...], owners: tuple[str, ...], explains: bool, machine: Format | None
) -> int:
    """Show reservations."""
    names, users = _words(wanted), [context.user.name if word == "$user" else word for word in _words(owners)]
    with context.database.snapshot() as tx:
        reservations, unknown = _select(tx, names)
        chosen = [each for each in reservations if not users or any(fnmatchcase(each.owner, user) for user in users)]
        items = shown(tx, chosen)
    if machine is not None:
        click.echo(dump({str(item.reservation.number): reservation_record(item) for item in items}, machine), nl=False)
    elif items:
        lines = _details(items) if names else _overview(items, explains=explains)
        click.echo("\n".join(lines))
    if unknown:
        click.echo("\n".join([UNKNOWN, *unknown]), err=True)
    return 1 if unknown else 0


def _words(texts: Sequence[str]) -> list[str]:
    return [word for text in texts for word in text.split(",") if word]


def _select(tx: Transaction, names: Sequence[str]) -> tuple[list[AdvanceReservation], list[str]]:
    """Return the reservations that are meant, by number, and the words that mean none."""
    live = [each for each in tx.advance_reservations.live() if each.state not in HIDDEN]
    if not names:
        return sorted(live, key=lambda each: each.number), []
    numbers = tx.advance_reservations.by_numbers([int(name) for name in names if _is_number(name)])
    chosen: dict[int, AdvanceReservation] = {}
    unknown = []
    for name in names:
        if _is_number(name):
            own = numbers.get(int(name))
            found = [own] if own and own.state not in HIDDEN else []
        else:
            found = [each for each in live if each.name and fnmatchcase(each.name, name)]
        chosen |= {each.id: each for each in found}
        unknown += [] if found else [name]
    return sorted(chosen.values(), key=lambda each: each.number), unknown


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 7


def _overview(items: Sequence[ShownReservation], *, explains: bool) -> Iterator[str]:
    yield HEAD
    for item in items:
        each = item.reservation
        yield (
            f"{each.number:7d} {each.name:<10.10} {each.owner:<12.12} {each.state:<5.5} {write_date(each.start)}"
            f" {write_date(each.end)} {format_duration(each.duration)}"
        )
        if explains:
            yield from (f"       {reason}" for reason in item.reasons)


def _details(items: Sequence[ShownReservation]) -> Iterator[str]:
    for item in items:
        yield RULE
        for key, value in _fields(item):
            if value or key == "ar_name":
                yield f"{f'{key}:':<28}{value}"


def _fields(item: ShownReservation) -> Iterator[tuple[str, str]]:
    """Iterate over the fields of the detailed text, in their order."""
    each = item.reservation
    yield from (
        ("id", str(each.number)),
        ("ar_name", each.name),
        ("submission_time", write_long_date(each.submission_time)),
        ("owner", each.owner),
        ("acl_list", ",".join(entry.text for entry in item.access if not entry.denied)),
        ("start_time", write_long_date(each.start)),
        ("end_time", write_long_date(each.end)),
        ("duration", format_duration(each.duration)),
        ("granted_slots", ",".join(f"{granted.place}={granted.slots}" for granted in item.granted)),
        ("state", str(each.state)),
    )
    yield from (("message", reason) for reason in item.reasons)
    yield from (
        ("group", each.owner_group),
        ("account", each.account),
        ("project", each.project),
        ("time_limit", format_duration(each.duration - each.time_offset)),
        ("error_handling", "hard" if each.is_hard else "soft"),
        ("replace", "yes" if each.replaces_lost else "no"),
        ("xacl_list", ",".join(entry.text for entry in item.access if entry.denied)),
        ("granted_parallel_environment", f"{each.granted_pe} slots {each.granted_slots}" if each.granted_pe else ""),
        ("mail_options", each.mail_options if each.mail_options != "n" else ""),
        ("mail_list", each.mail_list),
        ("jobs", _jobs(item)),
        ("revision", str(each.revision)),
    )


def _jobs(item: ShownReservation) -> str:
    running, waiting = len(item.jobs.running), len(item.jobs.waiting)
    return f"running={running},waiting={waiting}" if running or waiting else ""


if __name__ == "__main__":
    sys.exit(main())
