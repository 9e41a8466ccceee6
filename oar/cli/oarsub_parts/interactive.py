"""oarsub -I: submit a job, wait until it starts, open its shell."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click

from oar.cli.common.command import Context
from oar.cli.common.process import Hangup, ending_with_caller
from oar.cli.oarsub_parts.call import OarsubCall
from oar.cli.oarsub_parts.job_shell import JobShell
from oar.cli.oarsub_parts.job_start import StartWait
from oar.cli.oarsub_parts.listener import Listener
from oar.cli.oarsub_parts.submission import Submitter
from oar.lib.submission.checks import Code


def open_interactive(call: OarsubCall, submitter: Submitter) -> int:
    """Submit an interactive job, wait for its start, open its shell; return the exit code.

    Raises UserError, Stop, Hangup, DatabaseUnavailable.
    """
    context = call.context
    listener = Listener(context.runtime.config.server_hostname, context.runtime.config.oarsub_callback_ports)
    address = f"{call.host}:{listener.port}"
    try:
        with ending_with_caller(), deleting_at_departure(context, address):
            submitted = submitter.submit(address)
            submitter.tell(submitted)
            call.printer.comment("Interactive mode: waiting...")
            shell = JobShell(call, submitted.ids[0], is_main=True)
            wait = StartWait(context.database, submitted.ids[0], listener, call.printer.comment)
            with shell.connection() as connection:
                if wait.until_open(connection.begin) is None:
                    return Code.NO_SESSION
                return shell.run()
    finally:  # not before: a line of the server may come after the database has told the same, and is no lost one
        listener.close()


@contextmanager
def deleting_at_departure(context: Context, address: str) -> Iterator[None]:
    """Delete the jobs whose oarsub waits at an address if the user interrupts it or goes away."""
    try:
        yield
    except KeyboardInterrupt:
        _delete(context, address, click.echo)
        raise
    except (Hangup, BrokenPipeError):
        _delete(context, address, lambda *_, **__: None)
        raise Hangup from None


def _delete(context: Context, address: str, echo: Callable[..., None]) -> None:
    """Delete the jobs that were submitted with an address: an interrupted oarsub may not know their ids yet."""
    from oar.lib.jobs import control

    with context.database.snapshot() as tx:
        ids = [job.id for job in tx.jobs.live(context.user.name) if job.info_type == address]
    if not ids:
        return
    echo(f"# Caught Interrupt (^C), Deleting the job {ids[0]}...", err=True)
    with context.database.begin() as tx:
        control.delete(tx, context.user, ids, with_inner=True)
    echo("Job(s) deleted.", err=True)
