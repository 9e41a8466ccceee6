"""oarnotify: rings the server; announces to users; changes queues as older versions did; shows the server's state."""

import json
from collections.abc import Mapping

import click

from oar.cli.common.administration import note, warn_of_policies
from oar.cli.common.command import Context, oar_command
from oar.cli.common.options import ADMIN, NUMBER, Stop, option
from oar.cli.oarqueue import print_queues
from oar.lib.access.records import User
from oar.lib.base.errors import ServerUnavailable
from oar.lib.base.times import format_date, parse_date
from oar.lib.bus.messages import Ask, Tag, Wake
from oar.lib.db.transaction import Transaction
from oar.lib.history import announcements
from oar.lib.jobs import queues
from oar.lib.jobs.queues import QueueProblem

UNREACHABLE, TOO_LATE = 2, 3

#: Values shown as dates in text.
_DATES = frozenset({"start", "last_start"})


@oar_command(
    "oarnotify",
    summary="Send a tag to the server, announce something to users, or change queues.",
    examples={
        "oarnotify --status": "Show the state of the server and its modules.",
        'oarnotify --announce "Maintenance on Friday from 8:00" --until "friday 18:00"': (
            "Show a text to all users, on the pages and after oarsub."
        ),
        "oarnotify Scheduling --wait": "Run a scheduling pass now and wait until it has ended.",
    },
    style=ADMIN,
    version_names=("-v", "-V", "--version"),
)
@option("-e", "--enable-queue", "enabled", multiple=True, metavar="NAME", help="Enable a queue.")
@option("-d", "--disable-queue", "disabled", multiple=True, metavar="NAME", help="Disable a queue: its jobs wait.")
@option("-E", "--Enable-all-queues", "enable_all", is_flag=True, help="Enable all queues.")
@option("-D", "--Disable-all-queues", "disable_all", is_flag=True, help="Disable all queues.")
@option("--add-queue", "added", multiple=True, metavar="NAME[,PRIORITY[,SCHEDULER]]", help="Add a queue.")
@option("--remove-queue", "removed", multiple=True, metavar="NAME", help="Remove a queue.")
@option("-l", "--list-queues", "list_", is_flag=True, help="List the queues.")
@option("--status", is_flag=True, help="Show the status of the server.")
@option("--json", "as_json", is_flag=True, help="With --status: print JSON.")
@option("--wait", is_flag=True, help="Wait for the end of a scheduling pass that starts after the tag.")
@option("--announce", metavar="TEXT", help="Show TEXT to all users, on the pages and after oarsub.")
@option("--until", metavar="DATE", help="With --announce: show it until DATE.")
@option("--announcements", "list_announcements", is_flag=True, help="List the announcements.")
@option("--withdraw", multiple=True, type=NUMBER, metavar="ID", help="Withdraw an announcement.")
@click.argument("tag", required=False)
def main(
    context: Context,
    *,
    enabled: tuple[str, ...],
    disabled: tuple[str, ...],
    enable_all: bool,
    disable_all: bool,
    added: tuple[str, ...],
    removed: tuple[str, ...],
    list_: bool,
    status: bool,
    as_json: bool,
    wait: bool,
    announce: str | None,
    until: str | None,
    list_announcements: bool,
    withdraw: tuple[int, ...],
    tag: str | None,
) -> int:
    """Change the queues, list them, announce, ring the server."""
    if until is not None and announce is None:
        raise Stop("--until needs --announce TEXT.")
    if announce is not None or withdraw or list_announcements:
        context.require_admin()
        _announce(context, announce, until, withdraw, shows=list_announcements)
        if tag is None and not (status or list_):
            return 0
    changes = bool(added or removed or enabled or disabled or enable_all or disable_all)
    if changes or status or tag or not list_:
        context.require_admin()
    from oar.lib.bus import frames

    effect = frames.effect_of(None if tag == "TERM" else tag)
    if effect is None:
        raise Stop(f"Unknown tag '{tag}'.\n# Write one of: {', '.join([*Tag, 'TERM'])}")
    if changes:
        with context.database.begin() as tx:
            try:
                lines = _change(tx, context.user, added, removed)
                queues.switch(tx, context.user, enabled, disabled, enable_all=enable_all, disable_all=disable_all)
            except QueueProblem as error:
                raise Stop(str(error), error.exit_code) from None
        lines += [f"Enable queue {name}." for name in enabled] + [f"Disable queue {name}." for name in disabled]
        lines += ["Enable all queues."] * enable_all + ["Disable all queues."] * disable_all
        click.echo("\n".join(lines))
        named = [text.partition(",")[0].strip() for text in (*added, *enabled)]
        warn_of_policies(context, None if enable_all else named)
        note(context)
    if list_:
        with context.database.readonly() as tx:
            print_queues(tx.queues.all(), "scheduler")
    if status:
        _print_status(context, as_json)
        return 0
    return _ring(context, effect, is_asked=tag is not None, changes=changes or not list_, wait=wait)


# -- queues -----------------------------------------------------------------------------------------------------------


def _change(tx: Transaction, user: User, added: tuple[str, ...], removed: tuple[str, ...]) -> list[str]:
    lines = []
    for text in added:
        queue = queues.add(tx, user, text)
        lines.append(f"Add queue {queue.name} with the priority {queue.priority} and the scheduler {queue.policy}.")
    for name in removed:
        queues.remove(tx, user, name)
        lines.append(f"Remove queue {name}.")
    return lines


# -- announcements ----------------------------------------------------------------------------------------------------


def _announce(
    context: Context, text: str | None, until: str | None, withdrawn: tuple[int, ...], *, shows: bool
) -> None:
    """Withdraw announcements, store one, list them."""
    with context.database.begin() as tx:
        lines = [
            f"Withdraw announcement {number}: {announcements.withdraw(tx, context.user, number).text}"
            for number in withdrawn
        ]
        if text is not None:
            end = parse_date(until, tx.now) if until is not None else 0
            new = announcements.announce(tx, context.user, text, end)
            lines.append(f"Announcement {new} is shown{f' until {format_date(end)}' if end else ''}.")
        shown = tx.announcements.shown() if shows else []
    for one in shown:
        rest = f", until {format_date(one.until)}" if one.until else ""
        lines.append(f"{one.id}\t{one.text} ({one.author}, {format_date(one.date)}{rest})")
    if shows and not shown:
        lines.append("There are no announcements.")
    click.echo("\n".join(lines))


# -- the server -------------------------------------------------------------------------------------------------------


def _ring(context: Context, effect: Wake | Ask, *, is_asked: bool, changes: bool, wait: bool) -> int:
    """Ring the server, if there is a reason to; return the exit code."""
    from oar.lib.bus import control_client, doorbell

    config = context.runtime.config
    if wait and isinstance(effect, Wake):
        try:
            control_client.await_round(config, effect)
        except ServerUnavailable as error:
            raise Stop(f"[ERROR] {error}", UNREACHABLE) from None
        except control_client.NoRound as error:
            raise Stop(f"[ERROR] {error}", TOO_LATE) from None
        return 0
    if not (is_asked or changes):
        return 0
    try:
        doorbell.send_effects(config, [effect])
    except ServerUnavailable as error:
        where = config.server_places
        if is_asked:
            reason = str(error).rpartition(": ")[2]
            raise Stop(f"[ERROR] Cannot notify the OAR server ({where}): {reason}", UNREACHABLE) from None
        text = "the request is recorded and will be treated later."
        click.echo(f"/!\\ Cannot contact the OAR server {where}, {text}", err=True)
    return 0


def _print_status(context: Context, as_json: bool) -> None:
    from oar.lib.bus import control_client

    try:
        state = control_client.status(context.runtime.config)
    except ServerUnavailable as error:
        raise Stop(f"[ERROR] {error}", UNREACHABLE) from None
    if as_json:
        click.echo(json.dumps(state, indent=3, sort_keys=True))
    else:
        click.echo("\n".join(_lines(state)))


def _lines(values: Mapping[str, object], indent: str = "") -> list[str]:
    """Return values as ``name = value``, nested values indented."""
    lines = []
    for name, value in values.items():
        if isinstance(value, Mapping):
            lines += [f"{indent}{name}", *_lines(value, indent + "\t")]
        elif isinstance(value, list):
            lines.append(f"{indent}{name} = {' '.join(str(one) for one in value)}")
        elif name in _DATES and isinstance(value, int | float):
            lines.append(f"{indent}{name} = {format_date(int(value))}")
        else:
            lines.append(f"{indent}{name} = {'' if value is None else value}")
    return lines
