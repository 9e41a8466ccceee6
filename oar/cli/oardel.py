"""oardel: ends jobs, or sends them a signal."""

import sys
import time
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import NamedTuple

import click

from oar.cli.common.command import Context, oar_command
from oar.cli.common.job_selection import JobCriteria, OutcomeReport, job_selection, no_job_given, select_jobs
from oar.cli.common.options import DIGITS, Stop, machine_formats, option
from oar.lib.base.errors import ServerUnavailable
from oar.lib.base.formats import Format
from oar.lib.bus.messages import Ask, JobAction
from oar.lib.jobs import control
from oar.lib.jobs.control import ControlOutcome, ControlRefusal, SignalRequest
from oar.lib.jobs.records import Job
from oar.lib.reservations import job_deletion

#: Exit codes by refusal.
CODES = {
    ControlRefusal.NOT_YOURS: 1,
    ControlRefusal.NOT_RUNNING: 5,
    ControlRefusal.ALREADY_KILLED: 6,
    ControlRefusal.INTERACTIVE: 7,
    ControlRefusal.NOOP: 7,
    ControlRefusal.FETCHED: 7,
    ControlRefusal.UNKNOWN_JOB: 7,
    ControlRefusal.NOT_ADMIN: 8,
    ControlRefusal.NOT_FINISHING: 10,
    ControlRefusal.NOT_LONG_ENOUGH: 11,
    ControlRefusal.FRAME: 5,
}
SERVER_UNREACHABLE, NODE_UNREACHABLE, BAD_ID, NOT_ADMIN, NOT_RUNNING = 2, 3, 4, 8, 9
SEVERAL = 15

#: Seconds between two queries for the result of a signal.
FIRST_PAUSE, LONGEST_PAUSE = 0.02, 0.5


@oar_command(
    "oardel",
    summary="Delete jobs, or send them a signal.",
    examples={
        "oardel 118 119": "Delete two jobs.",
        "oardel -u --state Waiting": "Delete all your waiting jobs.",
        "oardel -s USR1 118": "Send the signal USR1 to job 118.",
    },
)
@option("-c", "--checkpoint", is_flag=True, help="Send the checkpoint signal; delete nothing.")
@option("-s", "--signal", "signal_text", metavar="SIGNAL", help="Send this signal (name or number); delete nothing.")
@option(
    "-b", "--besteffort", is_flag=True, help="Add or remove the type besteffort of running jobs (administrators only)."
)
@option(
    "--force-terminate-finishing-job",
    "force",
    is_flag=True,
    help="End jobs stuck in state Finishing (administrators only).",
)
@option("-i", "--interactive", is_flag=True, help="Ask for confirmation for each job.")
@job_selection
@machine_formats
def main(
    context: Context,
    *,
    checkpoint: bool,
    signal_text: str | None,
    besteffort: bool,
    force: bool,
    interactive: bool,
    criteria: JobCriteria,
    machine: Format | None,
) -> int:
    """Act on the jobs."""
    if criteria.is_nothing:
        return no_job_given(context)
    signal = None if checkpoint or signal_text is None else _signal(signal_text)
    if not (checkpoint or signal) and (force or besteffort) and not context.user.is_admin:
        option = "--force-terminate-finishing-job" if force else "-b"
        raise Stop(f"You must be oar or root to use the {option} option", NOT_ADMIN)
    report = OutcomeReport(machine)
    selection = select_jobs(context, criteria)
    report.complain(BAD_ID, selection.complaints)
    ids = _confirmed(context, selection.ids) if interactive else selection.ids
    if checkpoint or signal:
        _send(context, report, ids, signal)
    elif force:
        _force(context, report, ids)
    elif besteffort:
        _toggle(context, report, ids)
    else:
        _delete(context, report, ids)
    report.close()
    return exit_code(report.codes)


def exit_code(codes: Collection[int]) -> int:
    """Return the exit code: 0, the code of the failures, or the code for different failures."""
    failures = set(codes) - {0}
    return SEVERAL if len(failures) > 1 else max(failures, default=0)


def _confirmed(context: Context, ids: Sequence[int]) -> list[int]:
    """Ask for confirmation for each job that the user may control; return the confirmed jobs and all others.

    The end of the input means no.
    """
    with context.database.snapshot() as tx:
        managed = context.managed_projects(tx)
        jobs = {job.id: job for job in tx.jobs.select(ids) if control.controls(context.user, job, managed)}
    return [job_id for job_id in ids if job_id not in jobs or _confirm(jobs[job_id])]


def _confirm(job: Job) -> bool:
    from oar.cli.common.render import visible

    named = f"{visible(job.name)}, " if job.name else ""
    click.echo(f"Do you mean the job {job.id} of {job.user} ({named}{job.state})? [y/N] ", nl=False, err=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


# -- delete, force, toggle --------------------------------------------------------------------------------------------


def _delete(context: Context, report: OutcomeReport, ids: Sequence[int]) -> None:
    with_inner = context.runtime.config.kill_inner_jobs_with_container
    with context.database.begin() as tx:
        managed = context.managed_projects(tx)
        deletions = job_deletion.delete_jobs(tx, context.user, ids, with_inner=with_inner, managed=managed)
    for warning in deletions.warnings:
        context.warn(warning)
    answers = deletions.answers
    _report(report, answers, "Deleting the job", control.why_not_ended)
    for has_ended, end in ((False, "will be deleted in the near future."), (True, "had ended before.")):
        ids = [answer.job_id for answer in answers if answer.refusal is None and answer.has_ended is has_ended]
        if ids:
            report.say(f"The job(s) [ {' '.join(map(str, ids))} ] {end}")


def _force(context: Context, report: OutcomeReport, ids: Sequence[int]) -> None:
    config = context.runtime.config
    least = 4 * config.oar_ssh_connection_timeout + config.server_prologue_epilogue_timeout
    with context.database.begin() as tx:
        answers = control.force_end(tx, context.user, ids, least=least)

    _report(report, answers, "Force the termination of the job", partial(control.why_not_forced, least=least))


def _report(
    report: OutcomeReport, answers: Sequence[ControlOutcome], begin: str, why: Callable[[ControlOutcome], str]
) -> None:
    """Print the outcome of each request."""
    for answer in answers:
        line = f"{begin} = {answer.job_id} ..."
        if answer.refusal:
            report.say(f"{line}ERROR.")
            report.bad(answer.job_id, CODES[answer.refusal], why(answer))
        else:
            report.good(answer.job_id, f"{line}{'ENDED' if answer.has_ended else 'REGISTERED'}.")


def _toggle(context: Context, report: OutcomeReport, ids: Sequence[int]) -> None:
    with context.database.begin() as tx:
        answers = control.toggle_besteffort(tx, context.user, ids)
    for answer in answers:
        if answer.refusal is None:
            report.good(answer.job_id, f"{answer.text} besteffort type for the job {answer.job_id}.")
        else:
            code = CODES[answer.refusal] if answer.refusal is ControlRefusal.UNKNOWN_JOB else NOT_RUNNING
            report.bad(answer.job_id, code, control.why_not_toggled(answer))


# -- signals ----------------------------------------------------------------------------------------------------------


class _Signal(NamedTuple):
    number: int
    name: str


class _SignalTexts(NamedTuple):
    """Texts about a signal."""

    begin: str
    verb: str
    effect: str


def _signal(text: str) -> _Signal:
    """Return the signal with a name or number. Raises Stop."""
    from signal import Signals

    names = {signal.name: signal.value for signal in Signals}
    numbers = {value: name for name, value in names.items()}
    for name in (text.upper(), f"SIG{text.upper()}"):
        if name in names:
            return _Signal(names[name], name)
    if DIGITS.issuperset(text) and 1 <= len(text) <= 2 and 1 <= int(text) <= 64:
        return _Signal(int(text), numbers.get(int(text), str(int(text))))
    raise Stop(f'Unknown signal "{text}"\n# Write a name or a number: USR1, SIGTERM, 9')


def _send(context: Context, report: OutcomeReport, ids: Sequence[int], signal: _Signal | None) -> None:
    """Request the signals, notify the Runner, and print each outcome."""
    texts = _SignalTexts("Checkpointing the job {id} ...", "checkpoint", "checkpoint itself")
    if signal:
        texts = _SignalTexts(
            f"Signaling the job {{id}} with {signal.name} signal.\n", "signal", f"signal itself with {signal.name}"
        )
    with context.database.begin() as tx:
        number = signal.number if signal else None
        requests = control.request_signals(tx, context.user, ids, number)
    unreachable = _notify_runner(
        context, [request.job_id for request in requests if isinstance(request, SignalRequest)]
    )
    deadline = time.monotonic() + context.runtime.config.oar_ssh_connection_timeout
    for request in requests:
        _result(context, report, request, texts, unreachable=unreachable, deadline=deadline)


def _notify_runner(context: Context, ids: Sequence[int]) -> str:
    """Notify the Runner of signals to jobs; return an error message if that fails."""
    from oar.lib.bus import doorbell

    config = context.runtime.config
    try:
        doorbell.send_effects(config, [Ask(JobAction.SIGNAL, job_id) for job_id in ids])
    except ServerUnavailable:
        return f"Cannot contact the OAR server {config.server_places}."
    return ""


def _result(
    context: Context,
    report: OutcomeReport,
    request: ControlOutcome | SignalRequest,
    texts: _SignalTexts,
    *,
    unreachable: str,
    deadline: float,
) -> None:
    """Print the outcome of one request."""
    job_id = request.job_id
    report.say(texts.begin.format(id=job_id), end="")
    if isinstance(request, SignalRequest) and not unreachable and _wait(context, request, deadline):
        report.say("DONE.")
        report.good(job_id, f"The job {job_id} was notified to {texts.effect} on {request.host}.")
        return
    report.say("ERROR.")
    if isinstance(request, ControlOutcome):
        code = CODES[request.refusal or ControlRefusal.WRONG_STATE]
        report.bad(job_id, code, control.why_not_ended(request, texts.verb))
    elif unreachable:
        report.bad(job_id, SERVER_UNREACHABLE, unreachable)
    else:
        seconds = context.runtime.config.oar_ssh_connection_timeout
        host = request.host or "the node of the job"
        report.bad(job_id, NODE_UNREACHABLE, f"Cannot contact {host}, operation timed out ({seconds} s).")


def _wait(context: Context, request: SignalRequest, deadline: float) -> bool:
    """Wait for the Runner's report about a signal; return whether it was sent."""
    pause = FIRST_PAUSE
    while True:
        with context.database.snapshot() as tx:
            result = control.result_of(tx, request)
        if result is not None:
            return result
        if time.monotonic() >= deadline:
            return False
        time.sleep(pause)
        pause = min(2 * pause, LONGEST_PAUSE)
