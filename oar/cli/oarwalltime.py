"""oarwalltime: request a change of the walltime of a job, or show its status."""

from collections.abc import Iterable, Sequence

import click

from oar.cli.common.command import Context, oar_command
from oar.cli.common.job_selection import OutcomeReport
from oar.cli.common.options import COUNT, machine_formats, option
from oar.lib.base.errors import BadRequest, NoSuchJob, NotAllowed
from oar.lib.base.formats import Format
from oar.lib.base.times import format_duration, format_signed_duration
from oar.lib.jobs import job_lists, walltime
from oar.lib.jobs.job_lists import BadJobList
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

#: States in which the walltime can still change.
_STARTED = (JobState.RUNNING, JobState.SUSPENDED, JobState.RESUMING)


@oar_command(
    "oarwalltime",
    summary="Show the walltime of a job, or request a change: +1:30 or +90m longer, -10m shorter, 5h in all.",
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
    ids = _ids(context, arguments[0])
    if len(arguments) == 1:
        return _show(context, ids, machine)
    options = WalltimeRequest(arguments[1], force, delay_next_jobs, whole, timeout)
    return _request(context, ids, options, machine)


def _mistake(arguments: tuple[str, ...]) -> str:
    """Return the error of the arguments, '' without one."""
    if not arguments:
        return "No job id is given."
    try:
        job_lists.parse(arguments[0])
    except BadJobList as error:
        from oar.cli.common.render import visible

        reason = "The first argument must be a job id" if error.reason == job_lists.WAY_OUT else error.reason
        return f'"{visible(arguments[0])}" is not a job id. {reason[0].upper()}{reason[1:]}.'
    if len(arguments) > 2:
        return "More than one change is given. Write the change as one word."
    return ""


def _ids(context: Context, text: str) -> tuple[int, ...]:
    """Return the jobs of a list. Raises BadRequest if it has none."""
    with context.database.snapshot() as tx:
        found = job_lists.find(tx, job_lists.parse(text))
    if not found.ids:
        raise BadRequest(found.complaints[0])
    return found.ids


def _request(context: Context, ids: Iterable[int], options: WalltimeRequest, machine: Format | None) -> int:
    try:
        user = context.user
    except NotAllowed:
        user = None  # an unknown account
    report = OutcomeReport(machine)
    for job_id in ids:
        try:
            with context.database.begin() as tx:
                text = walltime.request(tx, context.runtime.config, user, job_id, options)
            report.good(job_id, f"{walltime.WalltimeOutcome.ACCEPTED.value}: {text}.")
        except ChangeRefused as refused:
            line = f"{refused.outcome.value}: {refused}."
            report.bad(job_id, CODES[refused.outcome], line, is_error=False)
            if refused.way_out:
                click.echo(f"# {refused.way_out}", err=True)
    report.close()
    return max(report.codes, default=0)


# -- status -----------------------------------------------------------------------------------------------------------


def _show(context: Context, ids: Sequence[int], machine: Format | None) -> int:
    """Print the walltimes of jobs and their change requests; the records of several jobs by id."""
    config = context.runtime.config
    records: dict[int, dict[str, object]] = {}
    code = 0
    if not config.walltime_change_enabled:
        click.echo("FUNCTIONALITY IS DISABLED", err=machine is not None)
        click.echo(f"# {WAY_TO_ENABLE}", err=True)
        ids, code = (), NOTHING_TO_SHOW
    for job_id in ids:
        try:
            with context.database.snapshot() as tx:
                status = walltime.walltime_status(tx, config, job_id)
        except NoSuchJob:
            click.echo("UNKNOWN JOB", err=machine is not None)
            code = NOTHING_TO_SHOW
            continue
        records[job_id] = _record(status)
        if machine is None:
            click.echo("".join(f"{line}\n" for line in _lines(status)), nl=False)
    if machine is not None:
        from oar.lib.base.formats import dump

        click.echo(dump(records if len(ids) > 1 else next(iter(records.values()), {}), machine), nl=False)
    return code


def _record(status: WalltimeStatus) -> dict[str, object]:
    """Return the record of a job's walltime, durations in seconds; ``possible_increase`` is None without limit."""
    change = status.change
    return {
        "job_id": status.job.id,
        "state": str(status.job.state),
        "walltime": status.walltime,
        "possible_increase": status.possible,
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


def _lines(status: WalltimeStatus) -> Iterable[str]:
    """Return the text about the walltime of a job."""
    state = status.job.state
    head = f"Walltime change status for job {status.job.id}"
    if state in _STARTED:
        yield f"{head} (job is {'running' if state is JobState.RUNNING else 'suspended'}):"
        yield from _open_lines(status)
    elif state in FINAL or state is JobState.FINISHING:
        yield f"{head} (job is not running):"
        yield from _closed_lines(status)
    else:
        yield f"{head} (job is not running yet):"
        yield "  N/A"


def _open_lines(status: WalltimeStatus) -> Iterable[str]:
    change, possible = status.change, status.possible
    yield f"  Current walltime: {format_duration(status.walltime):>11}"
    yield f"  Possible increase: {'UNLIMITED' if possible is None else format_signed_duration(possible):>10}"
    parts = (
        ("forced", change.granted_with_force),
        ("delaying next jobs", change.granted_with_delay_next_jobs),
        ("whole", change.granted_with_whole),
    )
    details = ", ".join(f"{name}: {format_signed_duration(seconds)}" for name, seconds in parts if seconds)
    yield f"  Already granted: {format_signed_duration(change.granted):>12}{f' ({details})' if details else ''}"
    pending = [f"  Pending/unsatisfied: {format_signed_duration(change.pending):>8}"]
    if change.pending:
        pending += [f" (timeout: {format_duration(change.timeout)})"] if change.timeout else []
        pending += [" (force: yes)"] if change.force else []
        pending += [" (whole: yes)"] if change.whole else []
        pending += [" (will possibly delay next jobs)"] if change.delay_next_jobs else []
    yield "".join(pending)


def _closed_lines(status: WalltimeStatus) -> Iterable[str]:
    change = status.change
    delays = " (would possibly have delayed next jobs)" if change.pending and change.delay_next_jobs else ""
    yield f"  Walltime: {format_duration(status.walltime):>11}"
    yield f"  Granted: {format_signed_duration(change.granted):>12}"
    yield f"  Unsatisfied: {format_signed_duration(change.pending):>8}{delays}"


if __name__ == "__main__":
    main()
