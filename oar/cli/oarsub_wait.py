"""oarsub --wait: stay until the jobs have ended, and end as they did (commands-user.md 17).

Nothing is held meanwhile, neither a connection to the database nor one to the server, which may be down: the states
are looked at, at once often and then ever more seldom, so that what is waited too long is a twentieth of the whole.
A job that the system submits again is not over: its copy is waited for in its place.
"""

import sys
import time
from collections.abc import Iterable, Mapping, Sequence

import click

from oar.cli.command import Context, Hangup
from oar.cli.staying import staying
from oar.lib.db import listings
from oar.lib.errors import DatabaseUnavailable
from oar.lib.states import FINAL, JobState

EXIT_DETACHED = 1
EXIT_ERROR = 11  #: the job ended in Error, and nobody knows the status of its command
SHORTEST_PAUSE, LONGEST_PAUSE = 0.5, 15.0
PART_OF_WAITING = 20

Ends = Mapping[int, tuple[JobState, int | None]]  #: state and wait status of jobs


def wait(context: Context, ids: Sequence[int], *, kill: bool) -> int:
    """Return the exit status of the job, the worst one of several, once they have ended.

    ^C leaves the jobs alone after a question, or ends them with ``kill``; so do SIGTERM, the loss of the
    terminal, and the end of what the user started.
    """
    awaited = list(ids)
    with staying():
        try:
            return _wait(context, awaited, kill=kill)
        except Hangup:
            if kill:
                _delete(context, awaited)
            raise


def _wait(context: Context, ids: list[int], *, kill: bool) -> int:
    while True:
        try:
            if _has_terminal():
                click.echo(f"# Waiting for the job {ids[0]}...", err=True)
            return worst(_ends(context, ids), ids)
        except KeyboardInterrupt:
            if kill:
                click.echo(f"# Caught Interrupt (^C), Deleting the job {ids[0]}...", err=True)
                _delete(context, ids)
                click.echo("Job(s) deleted.", err=True)
                return EXIT_DETACHED
            if _wants_to_leave(ids):
                click.echo(f"# The job {ids[0]} goes on; oardel {ids[0]} ends it.", err=True)
                return EXIT_DETACHED


def _ends(context: Context, ids: list[int]) -> Ends:
    """Return how the jobs ended, once all of them have; a copy takes the place of its job in ``ids``."""
    start = time.monotonic()
    while True:
        try:
            ends = _look(context, ids)
        except DatabaseUnavailable:
            context.warn("cannot reach the OAR database, trying again.")
        else:
            if all(state in FINAL for state, _ in ends.values()):
                return ends
        time.sleep(pause(time.monotonic() - start))


def _look(context: Context, ids: list[int]) -> Ends:
    with context.database.snapshot() as tx:
        ends = listings.ends(tx, ids)
        while copies := listings.automatic_copies(
            tx, [each for each in ids if each in ends and ends[each][0] in FINAL]
        ):
            _follow(ids, copies)
            ends = listings.ends(tx, ids)
    context.database.close()  # somebody who waits for hours keeps no connection from others
    return ends


def _follow(ids: list[int], copies: Mapping[int, int]) -> None:
    for place, job_id in enumerate(ids):
        if job_id in copies:
            click.echo(f"# The job {job_id} was submitted again by itself, waiting for job {copies[job_id]}.", err=True)
            ids[place] = copies[job_id]


def pause(waited: float) -> float:
    """Return how long to sleep until the next look."""
    return min(max(waited / PART_OF_WAITING, SHORTEST_PAUSE), LONGEST_PAUSE)


def worst(ends: Ends, ids: Iterable[int]) -> int:
    """Return the largest exit status of some jobs; one that is gone ended in an unknown way."""
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
    """Ask whether to stop waiting; who has no terminal, or interrupts again, wants to."""
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
    from oar.lib import control

    with context.database.begin() as tx:
        control.delete(tx, context.user, list(ids), with_inner=True)
