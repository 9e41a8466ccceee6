"""``oarsub --estimate``: when and where a job would start, and why not now; nothing is submitted."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from oar.cli.render import visible
from oar.lib.formats import Format, dump
from oar.lib.submission_checks import Code
from oar.lib.times import format_date

if TYPE_CHECKING:
    from oar.cli.command import Context
    from oar.kao.estimates import Estimate
    from oar.lib.proposal import Proposal


def show(context: "Context", proposal: "Proposal", array_limit: int, machine: Format | None) -> int:
    """Print what would become of a submission that rules have passed; return the exit code.

    ``array_limit``: so many jobs of the array may run at a time; 0 = all.  Raises BadSubmission.
    """
    from oar.kao import estimates  # the planner: nobody else needs it

    found = estimates.submissions(context.database, context.runtime.config, proposal, array_limit)
    for text in found.warnings:
        context.warn(text)
    if machine:
        click.echo(dump(_record(found.jobs), machine), nl=False)
    else:
        lines = _reservation(found.jobs) if proposal.start else _lines(found.jobs)
        click.echo("".join(f"# {visible(line)}\n" for line in lines), nl=False)
    if all(each.start is not None for each in found.jobs):
        return 0
    return Code.REFUSED_RESERVATION if proposal.start else Code.REQUEST


def _record(jobs: "Sequence[Estimate]") -> dict[str, object]:
    """Return the record of the first job, and those of all of an array."""
    record = jobs[0].record
    return record | {"jobs": [each.record for each in jobs]} if len(jobs) > 1 else record


def _reservation(jobs: "Sequence[Estimate]") -> list[str]:
    """Return the answer that each reservation would get."""
    return [
        "Reservation valid --> OK" if each.start is not None else f"Reservation not valid --> KO ({each.why})"
        for each in jobs
    ]


def _lines(jobs: "Sequence[Estimate]") -> list[str]:
    if len(jobs) == 1:
        return _one(jobs[0])
    starts = sorted(each.start for each in jobs if each.start is not None)
    never = [each for each in jobs if each.start is None]
    lines = []
    if starts:
        lines.append(f"{len(starts)} jobs would start, from {format_date(starts[0])} to {format_date(starts[-1])}")
    if never:
        lines.append(f"{len(never)} jobs would not start: {never[0].why}")
    return lines


def _one(estimate: "Estimate") -> list[str]:
    if estimate.start is None:
        return [f"Job would not start: {estimate.why}"]
    hosts = f" on {'+'.join(estimate.hosts)}" if estimate.hosts else ""
    line = f"Job would start at {format_date(estimate.start)}{hosts}"
    return [line, f"Not now: {estimate.why}"] if estimate.why else [line]
