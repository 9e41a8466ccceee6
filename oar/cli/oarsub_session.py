"""oarsub -C and -I: who may have a shell in which job (commands-user.md 3.13)."""

from typing import NoReturn

import click

from oar.cli.command import Context, Stop
from oar.lib.model import Job, User
from oar.lib.request import JobTypes
from oar.lib.states import JobState
from oar.lib.submission_checks import Code


def connect(context: Context, job_id: int | None) -> int:
    """Open a shell in a running job, the only one of the user if none is named.  Raises Stop, NoSuchJob."""
    with context.database.snapshot() as tx:
        jobs = [tx.jobs.get(job_id)] if job_id is not None else tx.jobs.live(context.user.name)
        types = tx.jobs.types([job.id for job in jobs])
    if job_id is None:
        jobs = [job for job in jobs if job.state is JobState.RUNNING]
        if len(jobs) != 1:
            _tell_running(jobs)
            return 0
    _check(jobs[0], context.user, JobTypes(types.get(jobs[0].id, ())))
    raise _refusal("this version of OAR opens no shell in running jobs.")


def open_interactive() -> NoReturn:
    """Submit an interactive job and open its shell.  Raises Stop."""
    raise _refusal("this version of OAR has no interactive jobs, submit a batch job.", Code.NO_SESSION)


def _tell_running(jobs: list[Job]) -> None:
    if not jobs:
        click.echo("No running jobs")
        return
    click.echo("You have several running jobs. Please provide a job id.")
    names = (f"{job.id} ({job.name})" if job.name else str(job.id) for job in jobs)
    click.echo(f"Running jobs are: {', '.join(names)}")


def _check(job: Job, user: User, types: JobTypes) -> None:
    if not user.is_admin and user.name != job.user:
        raise _refusal(f"you are not the right user for job {job.id}. This job is owned by {job.user}.")
    if job.state is not JobState.RUNNING:
        raise _refusal(f"job {job.id} is not running. Its current state is {job.state}.")
    if "noop" in types:
        raise _refusal("it is not possible to connect to a NOOP job.", Code.NOOP)


def _refusal(text: str, code: Code = Code.CONNECT) -> Stop:
    return Stop(f"# Error: {text}", code)
