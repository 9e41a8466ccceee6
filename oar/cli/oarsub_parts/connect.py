"""oarsub -C: open a shell in a job that runs."""

from collections.abc import Sequence

import click

from oar.cli.common.options import Stop
from oar.cli.common.process import ending_with_caller
from oar.cli.oarsub_parts.call import OarsubCall
from oar.cli.oarsub_parts.job_shell import JobShell
from oar.cli.oarsub_parts.options import OarsubOptions
from oar.lib.access.records import User
from oar.lib.jobs import control
from oar.lib.jobs.records import Job
from oar.lib.jobs.states import JobState, JobTypeName
from oar.lib.submission.checks import Code
from oar.lib.submission.resource_request import JobTypes

#: Options that have a meaning beside -C.
COMPATIBLE = frozenset({"connect", "words", "verbosity", "propagate_exit"})
#: Digits of the longest job id.
LONGEST_ID = 18


def connect(call: OarsubCall, names: frozenset[str]) -> int:
    """Open a shell in the job that -C names, else in the only running job of the user; return the exit code.

    ``names``: of the options that are given.  Raises Stop, NoSuchJob, DatabaseUnavailable.
    """
    context = call.context
    if ignored := names - COMPATIBLE:
        options = context.command.spell(ignored)
        context.warn(f"-C opens a shell in a job that exists: these options are ignored: {options}")
    job_id = _job_id(call.options)
    with context.database.snapshot() as tx:
        jobs = [tx.jobs.get(job_id)] if job_id is not None else tx.jobs.live(context.user.name)
        types = tx.jobs.types([job.id for job in jobs])
        frames = control.frame_texts(tx, [job.id for job in jobs])
    if job_id is None:
        jobs = [job for job in jobs if job.state is JobState.RUNNING and job.id not in frames]
        if len(jobs) != 1:
            _tell_running(jobs)
            return 0
    _check(jobs[0], context.user, JobTypes(types.get(jobs[0].id, ())), frames.get(jobs[0].id, ""))
    shell = JobShell(call, jobs[0].id, is_main=False)
    with ending_with_caller(), shell.connection():
        return shell.run()


def _job_id(options: OarsubOptions) -> int | None:
    """Return the job that -C names, None if it names none; its id may stand behind other options.  Raises Stop."""
    if options.connect[-1] is not None or not options.words:
        return options.connect[-1]
    word = options.words[0]
    if not (word.isascii() and word.isdigit() and len(word) <= LONGEST_ID):
        raise Stop(f'# Error: "{word}" is not the number of a job.', Code.CONNECT)
    return int(word)


def _tell_running(jobs: Sequence[Job]) -> None:
    if not jobs:
        click.echo("No running jobs")
        return
    click.echo("You have several running jobs. Please provide a job id.")
    names = (f"{job.id} ({job.name})" if job.name else str(job.id) for job in jobs)
    click.echo(f"Running jobs are: {', '.join(names)}")


def _check(job: Job, user: User, types: JobTypes, frame: str) -> None:
    """Refuse a job that the user may not enter, or that has no shell; ``frame``: why a frame has none.  Raises Stop."""
    if not user.is_admin and user.name != job.user:
        raise _refusal(f"you are not the right user for job {job.id}. This job is owned by {job.user}.")
    if frame:
        raise _refusal(f"Cannot connect to {job.id} ; {frame}")
    if job.state is not JobState.RUNNING:
        raise _refusal(f"job {job.id} is not running. Its current state is {job.state}.")
    if JobTypeName.NOOP in types:
        raise _refusal("it is not possible to connect to a NOOP job.", Code.NOOP)
    if JobTypeName.DESKTOP_COMPUTING in types:
        raise _refusal("not available for desktop_computing jobs.")


def _refusal(text: str, code: Code = Code.CONNECT) -> Stop:
    return Stop(f"# Error: {text}", code)
