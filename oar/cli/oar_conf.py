"""oar-conf: print the configuration, the origin of each value, and the errors of the file."""

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from difflib import unified_diff
from typing import NamedTuple

import click

from oar.cli.common.command import Context, oar_command
from oar.cli.common.options import ADMIN, Stop, option
from oar.lib.access.records import is_named
from oar.lib.base.times import format_date
from oar.lib.config.files import Config, Parsed, option_of, quoted, sample
from oar.lib.config.keys import UNREAD
from oar.lib.config.kinds import Key
from oar.lib.history.records import PolicyChange, PolicyKind
from oar.lib.remote.key_installation import ACCOUNT
from oar.lib.runtime import DEFAULT_FILES, DEFAULT_OARDIR, conf_file, is_frontend, read_config

#: Keys of further files that the server reads.
_READ_BY_THE_SERVER = frozenset(
    ["priority_conf_file", "quotas_conf_file", "reservation_environments_file", "reservation_request_file"]
)


@oar_command(
    "oar-conf",
    summary="Show and check the configuration.",
    examples={
        "oar-conf --check": "Check oar.conf and print its errors.",
        "oar-conf SERVER_HOSTNAME": "Print the value of a key.",
        "oar-conf --history --since 2026-01-01": "Print the changes of queues, rules and configuration since a date.",
    },
    style=ADMIN,
)
@click.argument("key", required=False)
@option("--check", is_flag=True, help="Check the file and print only its errors.")
@option("--connect", is_flag=True, help="With --check: also check a file that is not installed against its database.")
@option(
    "--sample", "as_sample", is_flag=True, help="Print a sample file with all keys, their defaults and descriptions."
)
@option("--history", is_flag=True, help="Print the changes of scheduling settings: date, author, old and new value.")
@option("--since", metavar="DATE", help="With --history: only changes since this date.")
@option("--until", metavar="DATE", help="With --history: only changes until this date.")
@option("--by", "author", metavar="USER", help="With --history: only changes by this user.")
def main(
    context: Context,
    key: str | None,
    *,
    check: bool,
    connect: bool,
    as_sample: bool,
    history: bool,
    since: str | None,
    until: str | None,
    author: str | None,
) -> int:
    """Run the command."""
    if history:
        if check or as_sample or connect:
            raise click.UsageError("--history excludes --check, --connect and --sample.")
        return _history(context, key, since, until, author)
    if since or until or author:
        raise click.UsageError("--since, --until and --by need --history.")
    if connect and not check:
        raise click.UsageError("--connect needs --check.")
    if key is not None and (check or as_sample):
        name = "--check" if check else "--sample"
        raise click.UsageError(f"{name} takes no argument, not {key}; the variable OARCONFFILE names the file.")
    if as_sample:
        click.echo(sample(), nl=False)
        return 0
    context.require_admin()
    parsed = read_config(conf_file(context.environment))
    if check:
        return _check(parsed, context, connect=connect)
    if key is not None:
        option = option_of(key)
        if option is None:
            raise Stop(f"[ERROR] Unknown key '{key}': oar-conf without argument lists all keys.")
        click.echo(_line(option, parsed))
    else:
        for listed in Config.options():
            click.echo(_line(listed, parsed, is_listed=True))
    for problem in parsed.errors:
        click.echo(f"[ERROR] {problem}", err=True)
    return 1 if parsed.errors else 0


def _check(parsed: Parsed, context: Context, *, connect: bool) -> int:
    """Print all that is wrong or without effect.

    Return 1 if a value or a key is bad, a program or a file is missing, or the server cannot read the installed file.
    """
    from oar.cli.common import conf_checks

    for problem in (*parsed.warnings, *parsed.unread, *_surroundings(parsed.config, context, connect=connect)):
        click.echo(f"/!\\ {problem}", err=True)
    missing = list(conf_checks.missing_programs(parsed.config, _oardir(context)))
    unreadable = list(_unreadable_configuration(conf_file(context.environment)))
    for error in (*parsed.errors, *unreadable, *missing):
        click.echo(f"[ERROR] {error}", err=True)
    has_unknown = any(option_of(problem.key) is None for problem in parsed.warnings)
    return 1 if parsed.errors or unreadable or missing or has_unknown else 0


def _oardir(context: Context) -> str:
    return context.environment.get("OARDIR", DEFAULT_OARDIR)


def _surroundings(config: Config, context: Context, *, connect: bool) -> Iterator[str]:
    """Iterate over the problems of a configuration on this machine and in its database.

    The database is checked only for the installed oar.conf, or if ``connect`` is set: another file may name any host.
    """
    from oar.cli.common import conf_checks

    path = conf_file(context.environment)
    yield from conf_checks.machine_findings(config, path, _oardir(context))
    yield from _unreadable(config)
    if connect or path in DEFAULT_FILES:
        yield from conf_checks.database_findings(config, is_copy=is_frontend(_oardir(context)))
    else:
        yield f"{path} is not the installed file: add --connect to check queues, properties and nodes in its database"


def _unreadable_configuration(path: str) -> Iterator[str]:
    """Give the error of an installed oar.conf that the account of the server cannot read."""
    if path in DEFAULT_FILES and not _may_read(path):
        from oar.cli.common.health_probes import explain_unreadable

        yield explain_unreadable(ACCOUNT, path)


def _unreadable(config: Config) -> Iterator[str]:
    """Give the files that are there and that the server cannot read."""
    for key in Config.options():
        path = str(getattr(config, key.name)) if key.name in _READ_BY_THE_SERVER else ""
        if path and os.path.exists(path) and not _may_read(path):
            yield f"{key.key}: the account {ACCOUNT} cannot read {path}, and so the server does not"


def _may_read(path: str) -> bool:
    """Return whether the account of the server may read a file."""
    import pwd

    from oar.cli.common.health_probes import may_read

    try:
        return may_read(path, pwd.getpwnam(ACCOUNT))
    except KeyError:  # nothing is installed yet
        return True


class _HistoryFilter(NamedTuple):
    """Which changes are printed; None: no limit."""

    since: int | None
    until: int | None
    author: str | None

    def matches(self, change: PolicyChange) -> bool:
        is_in_time = (self.since or 0) <= change.date and (self.until is None or change.date <= self.until)
        return is_in_time and (self.author is None or is_named(self.author, change.author))


def _history(context: Context, name: str | None, since: str | None, until: str | None, author: str | None) -> int:
    """Print the changes of all that decides about jobs, or of what has a name."""
    context.require_admin()
    option = option_of(name) if name is not None else None
    first_date, last_date = (context.past_date(text) if text else None for text in (since, until))
    with context.database.snapshot() as tx:
        changes = tx.history.policy_changes(option.key if option else name)
    choice = _HistoryFilter(first_date, last_date, author)
    if not changes and name is not None:
        raise Stop(f"[ERROR] No change of {name} is recorded. List all changes with oar-conf --history.")
    first = _first_values(changes) if name is None else []
    chosen = [change for change in changes if choice.matches(change) and change not in first]
    shown = [change for change in first if choice.matches(change)]
    if shown:
        click.echo(f"{format_date(shown[0].date)}  -  {_summary(shown)}")
    for change in chosen:
        for line in _told(change):
            click.echo(line)
    return 0


def _first_values(changes: Sequence[PolicyChange]) -> list[PolicyChange]:
    """Return the first recorded values of each kind: those that nobody has changed."""
    first_dates: dict[str, int] = {}
    for change in changes:
        first_dates.setdefault(change.item.kind, change.date)
    return [change for change in changes if change.former is None and change.date == first_dates[change.item.kind]]


def _summary(changes: Sequence[PolicyChange]) -> str:
    counts = Counter(str(change.item.kind) for change in changes)
    numbers = ", ".join(f"{count} {kind}{'s' * (count != 1)}" for kind, count in counts.items())
    return f"first values of {numbers} (oar-conf --history NAME prints one)"


def _told(change: PolicyChange) -> Iterator[str]:
    """Give the lines about a change: one if its values have one line each, else with a difference below."""
    former, value = change.former, change.value
    kind = "" if change.item.kind == PolicyKind.KEY else f"{change.item.kind} "
    head = f"{format_date(change.date)}  {change.author or '-'}  {kind}{change.item.name}"
    if "\n" not in f"{former or ''}{value or ''}":
        yield f"{head}: {_short(former)} -> {_short(value)}"
        return
    change_text = "appeared" if former is None else "is gone" if value is None else "changed"
    yield f"{head}: {change_text}"
    for line in list(unified_diff((former or "").splitlines(), (value or "").splitlines(), lineterm=""))[2:]:
        yield f"    {line}"


def _short(value: str | None) -> str:
    return "(none)" if value is None else quoted(value)


def _line(option: Key[object], parsed: Parsed, *, is_listed: bool = False) -> str:
    """Return an assignment and its origin; passwords are not listed."""
    value = getattr(parsed.config, option.name)
    text = "***" if is_listed and option.secret and value else option.text(value)
    origin = parsed.origins.get(option.key, "default")
    note = ", not in this version" if option.name in UNREAD else ""
    return f"{option.key}={quoted(text)}  # {origin}{note}"
