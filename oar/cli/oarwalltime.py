"""oarwalltime: request a change of the walltime of a job, or show its status."""

from collections.abc import Iterable

import click

from oar.cli.common.command import Context, oar_command
from oar.cli.common.job_selection import OutcomeReport, is_id
from oar.cli.common.options import COUNT, machine_formats, option
from oar.lib.access.records import User
from oar.lib.base.errors import NoSuchJob, NotAllowed
from oar.lib.base.formats import Format
from oar.lib.base.times import format_duration, format_signed_duration
from oar.lib.jobs import walltime
from oar.lib.jobs.states import FINAL, JobState
from oar.lib.jobs.walltime import CHANGE_FORM, WAY_TO_ENABLE, ChangeRefused, WalltimeRequest, WalltimeStatus

CODES = {
    walltime.WalltimeOutcome.ACCEPTED: 0,
    walltime.WalltimeOutcome.BAD_REQUEST: 1,
    walltime.WalltimeOutcome.FORBIDDEN: 3,
    walltime.WalltimeOutcome.NOT_FOUND: 4,
    walltime.WalltimeOutcome.NOT_AVAILABLE: 5,
}
NOTHING_TO_SHOW, BAD_SYNTAX = 2, 4

#: Its walltime may still become another one.
_STARTED = (JobState.RUNNING, JobState.SUSPENDED, JobState.RESUMING)


@oar_command(
    "oarwalltime",
    summary="Show the walltime of a job, or request a change: +h[:m[:s]] longer, -h[:m[:s]] shorter.",
    examples={
        "oarwalltime 118": "Show the walltime of job 118 and the state of its request.",
        "oarwalltime 118 +1:00": "Request one hour more.",
    },
    signed_operands=True,
)
@option("--force", is_flag=True, help="Apply the change immediately, not only shortly before the end.")
@option("--whole", is_flag=True, help="Grant the whole change or nothing.")
@option("--delay-next-jobs", is_flag=True, help="Allow the change to delay waiting jobs.")
@option("--timeout", type=COUNT, metavar="SECONDS", help="Cancel the request if it is not granted within SECONDS.")
@machine_formats
@click.argument("arguments", nargs=-1, metavar="JOB_ID [CHANGE]")
def main(
    context: Context,
    *,
    force: bool,
    whole: bool,
    delay_next_jobs: bool,
    timeout: int | None,
    arguments: tuple[str, ...],
    machine: Format | None,
) -> int:
    """Show the walltime or request a change."""
    if mistake := _mistake(arguments):
        click.echo("Syntax error.", err=machine is not None)
        click.echo(context.command.get_help(click.get_current_context()), err=machine is not None)
        click.echo(f"# {mistake} {CHANGE_FORM}", err=True)
        return BAD_SYNTAX
    if len(arguments) == 1:
        return _show(context, int(arguments[0]), machine)
    wish = WalltimeRequest(arguments[1], force, delay_next_jobs, whole, timeout)
    return _ask(context, int(arguments[0]), wish, machine)


def _mistake(arguments: tuple[str, ...]) -> str:
    """Return the error of the arguments, '' without one."""
    if not arguments:
        return "No job id is given."
    if not is_id(arguments[0]):
        from oar.cli.common.render import visible

        return f'"{visible(arguments[0])}" is not a job id. The job id comes first.'
    if len(arguments) > 2:
        return "More than one change is given. Write the change as one word."
    return ""


def _ask(context: Context, job_id: int, wish: WalltimeRequest, machine: Format | None) -> int:
    report = OutcomeReport(machine)
    try:
        with context.database.begin() as tx:
            text = walltime.request(tx, context.runtime.config, _asking(context), job_id, wish)
        report.good(job_id, f"{walltime.WalltimeOutcome.ACCEPTED.value}: {text}.")
    except ChangeRefused as refused:
        line = f"{refused.outcome.value}: {refused}."
        report.bad(job_id, CODES[refused.outcome], line, is_error=False)
        if refused.way_out:
            click.echo(f"# {refused.way_out}", err=True)
    report.close()
    return max(report.codes, default=0)


def _asking(context: Context) -> User | None:
    """Return the caller; None for an unknown account."""
    try:
        return context.user
    except NotAllowed:
        return None


# -- status -----------------------------------------------------------------------------------------------------------


def _show(context: Context, job_id: int, machine: Format | None) -> int:
    """Print the walltime of a job and its change requests."""
    config = context.runtime.config
    if not config.walltime_change_enabled:
        code = _nothing("FUNCTIONALITY IS DISABLED", machine)
        click.echo(f"# {WAY_TO_ENABLE}", err=True)
        return code
    try:
        with context.database.snapshot() as tx:
            standing = walltime.walltime_status(tx, config, job_id)
    except NoSuchJob:
        return _nothing("UNKNOWN JOB", machine)
    if machine is None:
        click.echo("".join(f"{line}\n" for line in lines_of(standing)), nl=False)
    else:
        from oar.lib.base.formats import dump

        click.echo(dump(record_of(standing), machine), nl=False)
    return 0


def _nothing(text: str, machine: Format | None) -> int:
    """Say why nothing is shown."""
    if machine is not None:
        from oar.lib.base.formats import dump

        click.echo(dump({}, machine), nl=False)
    click.echo(text, err=machine is not None)
    return NOTHING_TO_SHOW


def record_of(standing: WalltimeStatus) -> dict[str, object]:
    """Return the record of a job's walltime, durations in seconds; ``possible_increase`` is None without limit."""
    change = standing.change
    return {
        "job_id": standing.job.id,
        "state": str(standing.job.state),
        "walltime": standing.walltime,
        "possible_increase": standing.possible,
        "granted": change.granted,
        "granted_with_force": change.granted_with_force,
        "granted_with_delay_next_jobs": change.granted_with_delay_next_jobs,
        "granted_with_whole": change.granted_with_whole,
        "pending": change.pending,
        "timeout": change.timeout,
        "force": change.force,
        "whole": change.whole,
        "delay_next_jobs": change.delay_next_jobs,
    }


def lines_of(standing: WalltimeStatus) -> Iterable[str]:
    """Return the text about the walltime of a job."""
    state = standing.job.state
    head = f"Walltime change status for job {standing.job.id}"
    if state in _STARTED:
        yield f"{head} (job is {'running' if state is JobState.RUNNING else 'suspended'}):"
        yield from _open_lines(standing)
    elif state in FINAL or state is JobState.FINISHING:
        yield f"{head} (job is not running):"
        yield from _closed_lines(standing)
    else:
        yield f"{head} (job is not running yet):"
        yield "  N/A"


def _open_lines(standing: WalltimeStatus) -> Iterable[str]:
    change, possible = standing.change, standing.possible
    yield f"  Current walltime: {format_duration(standing.walltime):>11}"
    yield f"  Possible increase: {'UNLIMITED' if possible is None else format_signed_duration(possible):>10}"
    parts = (
        ("forced", change.granted_with_force),
        ("delaying next jobs", change.granted_with_delay_next_jobs),
        ("whole", change.granted_with_whole),
    )
    details = ", ".join(f"{name}: {format_signed_duration(seconds)}" for name, seconds in parts if seconds)
    yield f"  Already granted: {format_signed_duration(change.granted):>12}{f' ({details})' if details else ''}"
    yield f"  Pending/unsatisfied: {format_signed_duration(change.pending):>8}{_ways(standing)}"


def _ways(standing: WalltimeStatus) -> str:
    """Return the conditions of a pending change."""
    change = standing.change
    if not change.pending:
        return ""
    return "".join(
        [
            *([f" (timeout: {format_duration(change.timeout)})"] if change.timeout else []),
            *([" (force: yes)"] if change.force else []),
            *([" (whole: yes)"] if change.whole else []),
            *([" (will possibly delay next jobs)"] if change.delay_next_jobs else []),
        ]
    )


def _closed_lines(standing: WalltimeStatus) -> Iterable[str]:
    change = standing.change
    delays = " (would possibly have delayed next jobs)" if change.pending and change.delay_next_jobs else ""
    yield f"  Walltime: {format_duration(standing.walltime):>11}"
    yield f"  Granted: {format_signed_duration(change.granted):>12}"
    yield f"  Unsatisfied: {format_signed_duration(change.pending):>8}{delays}"


if __name__ == "__main__":
    main()
