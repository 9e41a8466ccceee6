"""oarsub --wait: wait for the ends of the jobs, and end with their exit status.

The database notifies the command of ends, and the command also checks periodically.  Without notifications (connections
are scarce, or the site disables them) it only checks, less and less often, so that the wait is at most a twentieth
longer than the jobs.  The server may be down meanwhile.  If the system resubmits a job, its copy is waited for.
"""

import sys
import time
from collections.abc import Iterable, Mapping, Sequence

import click

from oar.cli.common.command import Context
from oar.cli.common.process import Hangup, ending_with_caller
from oar.lib.base.errors import DatabaseUnavailable
from oar.lib.jobs.end_listener import EndListener
from oar.lib.jobs.states import FINAL, JobState

EXIT_DETACHED = 1
EXIT_ERROR = 11  #: the job ended in Error, without a status of its command
SHORTEST_PAUSE, LONGEST_PAUSE = 0.5, 15.0
PART_OF_WAITING = 20
#: Seconds between two checks with notifications, of which one may be lost.
PAUSE_IF_TOLD = 15.0

Ends = Mapping[int, tuple[JobState, int | None]]  #: state and wait status of jobs


def wait(context: Context, ids: Sequence[int], *, kill: bool) -> int:
    """Return the exit status of the job, of several jobs the worst one, once they have ended.

    ^C ends the waiting after a question, with ``kill`` also the jobs; so do SIGTERM, the loss of the terminal, and the
    end of the program that the user started, without a question.  Raises Hangup.
    """
    awaited = list(ids)
    with ending_with_caller(), EndListener(context.database) as listener:
        try:
            return _wait(context, awaited, listener, kill=kill)
        except Hangup:
            if kill:
                _delete(context, awaited)
            raise


def _wait(context: Context, ids: list[int], listener: EndListener, *, kill: bool) -> int:
    while True:
        try:
            if _has_terminal():
                click.echo(f"# Waiting for the job {ids[0]}...", err=True)
            return worst(_ends(context, ids, listener), ids)
        except KeyboardInterrupt:
            if kill:
                click.echo(f"# Caught Interrupt (^C), Deleting the job {ids[0]}...", err=True)
                _delete(context, ids)
                click.echo("Job(s) deleted.", err=True)
                return EXIT_DETACHED
            if _wants_to_leave(ids):
                click.echo(f"# The job {ids[0]} goes on; oardel {ids[0]} ends it.", err=True)
                return EXIT_DETACHED


def _ends(context: Context, ids: list[int], listener: EndListener) -> Ends:
    """Return how the jobs ended, once all of them have; a copy takes the place of its job in ``ids``."""
    start, left = time.monotonic(), set(ids)
    while True:
        is_notified = listener.listen()
        try:
            ends = _look(context, ids)
        except DatabaseUnavailable:
            context.warn("cannot reach the OAR database, trying again.")
        else:
            left = {job_id for job_id, (state, _) in ends.items() if state not in FINAL}
            if not left:
                return ends
        listener.wait(left, PAUSE_IF_TOLD if is_notified else pause(time.monotonic() - start))


def _look(context: Context, ids: list[int]) -> Ends:
    with context.database.snapshot() as tx:
        ends = tx.listings.ends(ids)
        while copies := tx.new_jobs.resubmitted_copies(
            [job_id for job_id in ids if job_id in ends and ends[job_id][0] in FINAL]
        ):
            for index, job_id in enumerate(ids):
                if copy := copies.get(job_id):
                    click.echo(f"# The job {job_id} was submitted again by itself, waiting for job {copy}.", err=True)
                    ids[index] = copy
            ends = tx.listings.ends(ids)
    context.database.close()  # connections are few, and a wait may last for hours
    return ends


def pause(waited: float) -> float:
    """Return the seconds until the next check, after ``waited`` seconds."""
    return min(max(waited / PART_OF_WAITING, SHORTEST_PAUSE), LONGEST_PAUSE)


def worst(ends: Ends, ids: Iterable[int]) -> int:
    """Return the largest exit status of the jobs; EXIT_ERROR for a job that does not exist any more."""
    return max(status_of(*ends[job_id]) if job_id in ends else EXIT_ERROR for job_id in ids)


def status_of(state: JobState, wait_status: int | None) -> int:
    """Return the exit status that a shell would give: the command's own, or 128 and its signal.

    >>> status_of(JobState.TERMINATED, 3 << 8), status_of(JobState.TERMINATED, 15), status_of(JobState.ERROR, None)
    (3, 143, 11)
    """
    if wait_status is None or (state is JobState.ERROR and not wait_status):
        return EXIT_ERROR if state is JobState.ERROR else 0
    return 128 + (wait_status & 0x7F) if wait_status & 0x7F else wait_status >> 8 & 0xFF


def _wants_to_leave(ids: Sequence[int]) -> bool:
    """Ask whether to stop waiting; return True without a terminal and after another ^C."""
    if not _has_terminal():
        return True
    try:
        click.echo(f"\n# Stop waiting? The job {ids[0]} goes on. [y/N] ", nl=False, err=True)
        answer = sys.stdin.readline()
    except KeyboardInterrupt:
        click.echo(err=True)
        return True
    return answer.strip().lower() in ("y", "yes") or not answer


def _has_terminal() -> bool:
    return sys.stdin.isatty() and sys.stderr.isatty()


def _delete(context: Context, ids: Sequence[int]) -> None:
    from oar.lib.jobs import control

    with context.database.begin() as tx:
        control.delete(tx, context.user, list(ids), with_inner=True)
