"""``oarsub --estimate``: when and where a job would start, and why not now; nothing is submitted."""

from collections.abc import Sequence

import click

from oar.cli.common.render import visible
from oar.cli.oarsub_parts.call import OarsubCall
from oar.kao.rounds.hypothetical import estimates
from oar.kao.rounds.hypothetical.estimates import Estimate
from oar.lib.base.formats import dump
from oar.lib.base.times import format_date
from oar.lib.submission import admission
from oar.lib.submission.checks import Code
from oar.lib.submission.job_reservation import Decision
from oar.lib.submission.preparation import Proposal


def estimate(call: OarsubCall, proposal: Proposal) -> int:
    """Print when and where the jobs of a proposal would start; return the exit code.

    Raises BadSubmission, RuleRefused, RuleFailed, DatabaseUnavailable.
    """
    database, config = call.context.database, call.context.runtime.config
    with call.printer.showing_refusals():
        admitted = admission.rehearse(database, config, proposal)
    call.printer.rule_output(admitted.output)
    proposal = admitted.proposal
    for warning in proposal.warnings:
        call.context.warn(warning)
    result = estimates.submissions(database, config, proposal)
    for warning in result.warnings:
        call.context.warn(warning)
    if call.options.machine:
        record = result.jobs[0].record
        if len(result.jobs) > 1:
            record |= {"jobs": [job.record for job in result.jobs]}
        click.echo(dump(record, call.options.machine), nl=False)
    else:
        if proposal.start:
            decisions = (Decision(job.start is not None, job.why or "") for job in result.jobs)
            lines = [str(decision) for decision in decisions]
        else:
            lines = _lines(result.jobs)
        click.echo("".join(f"# {visible(line)}\n" for line in lines), nl=False)
    if all(job.is_feasible is not False for job in result.jobs):
        return 0
    return Code.REFUSED_RESERVATION if proposal.start else Code.REQUEST


def _lines(jobs: Sequence[Estimate]) -> list[str]:
    if len(jobs) == 1:
        return _lines_of_job(jobs[0])
    starts = sorted(job.start for job in jobs if job.start is not None)
    unknown = [job for job in jobs if job.not_before is not None]
    never = [job for job in jobs if job.is_feasible is False]
    lines = []
    if starts:
        lines.append(f"{len(starts)} jobs would start, from {format_date(starts[0])} to {format_date(starts[-1])}")
    if unknown:
        first = min(job.not_before or 0 for job in unknown)
        lines.append(f"{len(unknown)} jobs would start not before {format_date(first)}: {unknown[0].why}")
    if never:
        lines.append(f"{len(never)} jobs would not start: {never[0].why}")
    return lines


def _lines_of_job(job: Estimate) -> list[str]:
    if job.not_before is not None:
        return [f"Job would start not before {format_date(job.not_before)}: {job.why}"]
    if job.start is None:
        return [f"Job would not start: {job.why}"]
    hosts = f" on {'+'.join(job.hosts)}" if job.hosts else ""
    line = f"Job would start at {format_date(job.start)}{hosts}"
    return [line, f"Not now: {job.why}"] if job.why else [line]
