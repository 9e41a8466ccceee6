"""``oarstat --me``: the jobs of a user, limits, place, consumption, efficiency, and what to change."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from oar.cli.common.options import Stop
from oar.cli.common.render import cell, visible
from oar.cli.oarstat_parts.limits import budget_lines
from oar.cli.oarstat_parts.tables import group_table
from oar.kao.rounds import user_overview
from oar.kao.rounds.user_overview import Overview, RunningJob, WaitingJob, number
from oar.lib.base.formats import Format, dump
from oar.lib.base.host_names import shorten_host_list
from oar.lib.base.times import format_date, format_padded_duration

if TYPE_CHECKING:
    from oar.cli.common.command import Context
    from oar.lib.jobs.records import Job

#: Maximum numbers of lines; machine formats have more.
_PRINTED_JOBS, _PRINTED_GROUPS, _PRINTED_CHANGES = 10, 10, 10


def overview_text(context: "Context", machine: Format | None) -> str:
    """Return the overview of the caller, as text or in a machine format."""
    if not context.user.name:
        raise Stop("# Error: your account has no name")
    with context.database.snapshot() as tx:
        overview = user_overview.overview_of(tx, context.runtime.config, context.user)
    return dump(overview.record, machine) if machine else "".join(f"{line}\n" for line in _lines(overview))


def _lines(overview: Overview) -> Iterator[str]:
    yield f"{visible(overview.user)}, {format_date(overview.date)}"
    yield from _running_lines(overview.running, overview.numbers["running"])
    yield from _waiting_lines(overview.waiting, overview.numbers["waiting"])
    yield f"Limits:{'' if overview.limits else ' none'}"
    yield from (f"    {visible(limit.sentence)}" for limit in overview.limits)
    yield from budget_lines(overview.budgets)
    if overview.place:
        yield f"Your waiting jobs come {visible(overview.place.sentence)}"
    hours = [f"{visible(project)} {number(amount)}" for project, amount in overview.hours.items()]
    yield f"Resource hours accounted since {format_date(overview.month)[:10]}: {', '.join(hours) or 'none'}"
    yield from _group_lines(overview)
    changes = overview.changes
    yield f"What to change:{'' if changes else ' nothing'}"
    yield from (f"    {visible(change)}" for change in changes[:_PRINTED_CHANGES])
    yield from _more(len(changes), _PRINTED_CHANGES, "oarstat --me -J")


def _running_lines(jobs: Sequence[RunningJob], total: int) -> Iterator[str]:
    yield f"Running: {total} job{'s' * (total != 1)}"
    for job in jobs[:_PRINTED_JOBS]:
        walltime, left = job.times.walltime, job.times.remaining
        time = (
            f"{format_padded_duration(job.used)} of {format_padded_duration(walltime)}"
            if walltime and left is not None
            else "-"
        )
        yield f"{_identity(job.job)} {time:<20} {visible(shorten_host_list(job.nodes))}".rstrip()
    yield from _more(total, _PRINTED_JOBS, "oarstat -u")


def _waiting_lines(jobs: Sequence[WaitingJob], total: int) -> Iterator[str]:
    yield f"Waiting: {total} job{'s' * (total != 1)}"
    for job in jobs[:_PRINTED_JOBS]:
        start = f"starts {format_date(job.start)}" if job.start else "no planned start"
        yield f"{_identity(job.job)} {start:<26} {visible(job.why)}".rstrip()
    yield from _more(total, _PRINTED_JOBS, "oarstat --start -u")


def _identity(job: "Job") -> str:
    return f"    {job.id:<10} {cell(visible(job.name or '-'), 16)} {cell(visible(job.queue), 10)}"


def _group_lines(overview: Overview) -> Iterator[str]:
    days, cut = user_overview.GROUPED_SECONDS // 86400, ", the newest only" * overview.is_cut
    yield f"Jobs that ended in the last {days} days, by name{cut}:{'' if overview.groups else ' none'}"
    for line in group_table(overview.groups[:_PRINTED_GROUPS], with_user=False).splitlines():
        yield f"    {line}"
    yield from _more(len(overview.groups), _PRINTED_GROUPS, "oarstat --me -J")


def _more(total: int, printed: int, command: str) -> Iterator[str]:
    if total > printed:
        yield f"    and {total - printed} more: {command}"
