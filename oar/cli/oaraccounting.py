"""oaraccounting: counts what ended jobs consumed, in windows."""

import sys
from collections.abc import Iterator

import click

from oar.cli.common.administration import note
from oar.cli.common.command import Context, oar_command
from oar.cli.common.options import ADMIN, NUMBER, Stop, option
from oar.lib.base.errors import DatabaseUnavailable
from oar.lib.jobs import accounting
from oar.lib.jobs.accounting import AccountingIsRunning, Batch, OtherWindowWidth
from oar.lib.jobs.sql_accounting import WindowChange
from oar.lib.monitoring.records import ServerTask

EXIT_DATABASE, EXIT_BUSY, EXIT_OTHER_WINDOWS = 1, 2, 3
MARK = "[ACCOUNTING] "
#: Largest batch that is printed with a line for each job and window. The first run may treat all jobs of a database.
MOST_JOBS_IN_LINES = 1000


@oar_command(
    "oaraccounting",
    summary="Add the consumption of jobs that ended since the last run to the accounting.",
    examples={
        "oaraccounting": "Add the jobs that ended since the last run to the accounting.",
        "oaraccounting --reporting --since 2026-01-01": "Print the reporting file of Grid Engine from a date on.",
    },
    style=ADMIN,
    admins_only=True,
    exit_codes={DatabaseUnavailable: EXIT_DATABASE},
)
@option("--reinitialize", is_flag=True, help="Delete the accounting and count all ended jobs again.")
@option("--delete-before", type=NUMBER, metavar="SECONDS", help="Delete accounting windows older than this.")
@option("--since", metavar="DATE", help="Count or report from this date on.")
@option("--reporting", is_flag=True, help="Print the accounting in the format of the reporting file of Grid Engine.")
@option("-q", "--quiet", is_flag=True, help="Print errors only.")
def main(
    context: Context,
    *,
    reinitialize: bool,
    delete_before: int | None,
    since: str | None,
    reporting: bool,
    quiet: bool,
) -> None:
    """Do one of the four."""
    if reporting and (reinitialize or delete_before is not None):
        raise Stop("[ERROR] --reporting can only be combined with --since")
    if reporting:
        _report(context, context.past_date(since) if since else 0)
        return
    if reinitialize + (delete_before is not None) + (since is not None) > 1:
        raise Stop("[ERROR] --reinitialize, --delete-before and --since are exclusive")
    if delete_before is not None:
        _delete(context, delete_before, quiet)
        return
    rules = accounting.accounting_rules(context.runtime.config)
    if reinitialize:
        _say("Deleting all records from the accounting table...", quiet)
        note(context)
        batches = accounting.recount(context.database, rules, context.user)
    else:
        batches = accounting.count(context.database, rules, context.past_date(since) if since else 0)
    try:
        is_long = False
        for batch in batches:
            is_long = is_long or len(batch.ids) > MOST_JOBS_IN_LINES
            _say(_summary(batch) if is_long else "\n".join(_lines(batch)), quiet)
        if since is None:
            with context.database.begin() as tx:
                tx.figures.record_success(ServerTask.ACCOUNTING)
    except AccountingIsRunning as error:
        raise Stop(f"{MARK}{error}", EXIT_BUSY) from None
    except OtherWindowWidth as error:
        raise Stop(f"{MARK}{error}", EXIT_OTHER_WINDOWS) from None


def _report(context: Context, since: int) -> None:
    from oar.lib.reservations.bills import reporting_lines

    with context.database.snapshot() as tx:
        for line in reporting_lines(tx, since):
            sys.stdout.write(f"{line}\n")


def _delete(context: Context, seconds: int, quiet: bool) -> None:
    if seconds < 0:
        raise Stop("[ERROR] --delete-before takes a number of seconds, not less than 0")
    _say(f"Deleting records older than {seconds} seconds ago...", quiet)
    context.database.run(lambda tx: accounting.delete_before(tx, context.user, seconds))
    note(context)


def _say(text: str, quiet: bool) -> None:
    if not quiet:
        click.echo(text)


def _lines(batch: Batch) -> Iterator[str]:
    """Return the lines that readers of the log look for."""
    for job_id in batch.ids:
        if job_id in batch.not_applicable:
            yield f"{MARK}Not applicable for job {job_id}"
        else:
            yield f"{MARK}Treating job {job_id}"
    for change in batch.changes:
        yield MARK + _window(change)


def _summary(batch: Batch) -> str:
    new = sum(change.is_new for change in batch.changes)
    return (
        f"{MARK}Treated {len(batch.ids)} jobs ({batch.ids[0]} to {batch.ids[-1]}):"
        f" {len(batch.not_applicable)} not applicable, {new} windows created, {len(batch.changes) - new} updated"
    )


def _window(change: WindowChange) -> str:
    verb = "Create new" if change.is_new else "Update the existing"
    return (
        f"{verb} window {change.window_start} --> {change.window_stop}, project {change.project},"
        f" user {change.user}, queue {change.queue}, type {change.kind} with conso = {change.consumption} s"
    )


if __name__ == "__main__":
    main()
