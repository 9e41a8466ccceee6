"""The steps of ``oar-database --adopt`` and their output."""

import sys
import time
from contextlib import ExitStack, closing

import click

from oar.lib.access.records import User
from oar.lib.adoption import report, sql_adoption
from oar.lib.adoption.rules import OldRule
from oar.lib.adoption.sql_old_databases import LiveJobs, OldDatabase, live_jobs
from oar.lib.db.migrations import Migrator
from oar.lib.history import audit
from oar.lib.history.audit import AuditAction, Values
from oar.lib.jobs.queue_policies import POLICIES
from oar.lib.nodes.records import OUR_PROPERTIES
from oar.lib.submission.admission_rules import explain_bad_text

#: Seconds between two looks at jobs that are waited for.
LOOK = 5.0
#: Seconds between two lines of progress.
_PROGRESS = 0.2


def adopt(migrator: Migrator, user: User, origin: str, *, dry: bool, waits: bool) -> int:
    """Take over an old database; return the exit code.  Raises SchemaError, DatabaseUnavailable.

    ``dry``: only print the plan.  ``waits``: wait for the end of jobs that only the old server can end.
    """
    with ExitStack() as stack:
        old = stack.enter_context(closing(OldDatabase.open(origin)))
        if not dry:
            stack.enter_context(migrator.alone())
        with migrator.database.snapshot() as tx:
            sql_adoption.require_empty(tx)
        live = _wait_for_jobs(old) if waits and not dry else live_jobs(old)
        if dry or live.number:
            return _print_plan(migrator, old, live, dry=dry)
        with migrator.database.begin() as tx:
            planned = sql_adoption.plan(tx, old, _choices(migrator))
            with _ProgressLine() as progress:
                sql_adoption.carry_out(tx, old, planned, progress.show)
            audit.record(tx, user, AuditAction.ADOPT, f"database {old.name}", Values(new=f"OAR {old.version}"))
            violations = tx.invariants.of_rows()
    for line in report.lines(planned.report):
        click.echo(line)
    for violation in violations:
        click.echo(f"As in the old database: {violation}")
    click.echo("\nIt is taken over: each table here has as many rows as are to be taken there.")
    return 0


def _print_plan(migrator: Migrator, old: OldDatabase, live: LiveJobs, *, dry: bool) -> int:
    """Print the plan, or why it cannot be executed; return the exit code."""
    names = ", ".join(map(str, live.first)) + (", ..." if live.number > len(live.first) else "")
    refusal = (
        f"{live.number} jobs run or wait for an answer under the old server ({names}), which alone can end them: let no"
        " other job start there (oarnotify, oarqueue -d), and wait with --running, or delete them there (oardel)."
        if live.number
        else ""
    )
    if dry:
        with migrator.database.snapshot() as tx:
            planned = sql_adoption.plan(tx, old, _choices(migrator))
        for line in report.lines(planned.report._replace(live=refusal)):
            click.echo(line)
        click.echo("\nNothing is changed.")
    else:
        click.echo(f"[ERROR] {refusal}", err=True)
    return 1 if live.number else 0


def _wait_for_jobs(old: OldDatabase) -> LiveJobs:
    """Wait for the end of the jobs that only the old server can end; print their number when it changes."""
    shown_count = -1
    while (live := live_jobs(old)).number:
        if live.number != shown_count:
            click.echo(f"Waiting for {live.number} jobs of the old server; {_format_last_end(live.last_end)}.")
            shown_count = live.number
        time.sleep(LOOK)
        old.refresh()
    return live


def _format_last_end(date: int) -> str:
    """Return when the walltimes of the jobs end; ``date``: of the last one, 0 if it is unknown."""
    end = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(date)) if date else "unknown"
    if not date or date > time.time():
        return f"their walltimes end {end}"
    return f'their walltimes ended {end}: if this is a copy, no server ends them (docs/adoption.rst, "From a dump")'


def _choices(migrator: Migrator) -> sql_adoption.AdoptionChoices:
    shipped = {
        rule.name: OldRule(number, rule.priority, rule.enabled, rule.text)
        for number, rule in enumerate(migrator.rules, 1)
    }
    return sql_adoption.AdoptionChoices(
        frozenset(POLICIES), OUR_PROPERTIES, shipped, lambda text: explain_bad_text(0, text) is None
    )


class _ProgressLine:
    """A progress line, printed only on a terminal."""

    def __init__(self) -> None:
        self._is_terminal = sys.stderr.isatty()
        self._next = 0.0
        self._table = ""

    def __enter__(self) -> "_ProgressLine":
        return self

    def __exit__(self, *_: object) -> None:
        if self._is_terminal:
            click.echo("\r\033[K", nl=False, err=True)

    def show(self, table: str, rows: int, total: int) -> None:
        """Print the progress, at most a few times a second."""
        if self._is_terminal and (table != self._table or time.monotonic() >= self._next):
            self._table, self._next = table, time.monotonic() + _PROGRESS
            progress = f"{table}: {rows} of {total} rows" if total else table
            click.echo(f"\r\033[K{progress}", nl=False, err=True)
