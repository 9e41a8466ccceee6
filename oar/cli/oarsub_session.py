"""oarsub -I and -C: a shell in a job, and what its end means (commands-user.md 3.13)."""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from oar.cli.command import Context, Hangup, Stop
from oar.cli.staying import staying
from oar.lib.errors import DatabaseUnavailable
from oar.lib.model import Job, User
from oar.lib.request import JobTypes
from oar.lib.states import EventType, ExecCode, JobState
from oar.lib.submission_checks import Code

if TYPE_CHECKING:
    from oar.cli.node_shell import Door, Way
    from oar.lib.db.engine import Transaction
    from oar.lib.submission import Submitted

#: Exit codes: no working directory, the job ended under the session, no session or a broken one.
NO_DIRECTORY, TERMINATED, BROKEN = 2, 19, 21
#: What the node ends with when the shell of the user cannot be executed.
NO_SHELL = 66
#: What oarexec says of an interactive job that its user ended.
_LEFT = frozenset({ExecCode.SESSION, ExecCode.SESSION_EPILOGUE, None})
#: Seconds for the server to hear of an end of which the broken session is the first sign here.
_DOUBT, _LOOK = 3.0, 0.1
_DESKTOP = "not available for desktop_computing jobs."


# -- oarsub -C ---------------------------------------------------------------------------------------------------------


def connect(context: Context, job_id: int | None, *, verbose: bool, propagate: bool) -> int:
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
    session = Session(context, jobs[0].id, is_main=False, verbose=verbose, propagate=propagate)
    with staying(), session.way():
        return session.run()


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
    if "desktop_computing" in types:
        raise _refusal(_DESKTOP)


def _refusal(text: str, code: Code = Code.CONNECT) -> Stop:
    return Stop(f"# Error: {text}", code)


# -- oarsub -I ---------------------------------------------------------------------------------------------------------


def open_interactive(
    context: Context,
    send: Callable[[str], "Submitted"],
    tell: Callable[["Submitted"], None],
    *,
    host: str,
    comment: Callable[[str], None],
    verbose: bool,
    propagate: bool,
) -> int:
    """Submit an interactive job, wait for its start, give its shell.

    ``send`` submits with the address on which we listen, ``tell`` prints the number of the job, ``comment`` a line.
    """
    from oar.cli import oarsub_answer, oarsub_start

    listener = oarsub_answer.Listener(context.runtime.config.server_hostname)
    with staying():
        address = f"{host}:{listener.port}"
        try:
            with deleting_at_departure(context, address):
                submitted = send(address)
                job_id = submitted.ids[0]
                tell(submitted)
                comment("Interactive mode: waiting...")
                session = Session(context, job_id, is_main=True, verbose=verbose, propagate=propagate)
                wait = oarsub_start.Wait(context.database, job_id, listener, comment)
                with session.way() as way:
                    if wait.until_open(way.begin) is None:
                        return Code.NO_SESSION
                    listener.close()
                    return session.run()
        finally:
            listener.close()


@contextmanager
def deleting_at_departure(context: Context, address: str) -> Iterator[None]:
    """Whoever goes away while he waits at an address does not want the jobs any more for which he does."""
    try:
        yield
    except KeyboardInterrupt:
        _delete(context, address, click.echo)
        raise
    except (Hangup, BrokenPipeError):
        _delete(context, address, lambda *_, **__: None)
        raise Hangup from None


def _delete(context: Context, address: str, echo: Callable[..., None]) -> None:
    """Delete the jobs whose submission named an address: whoever is interrupted may not know their numbers yet."""
    from oar.lib import control

    with context.database.snapshot() as tx:
        ids = [job.id for job in tx.jobs.live(context.user.name) if job.info_type == address]
    if not ids:
        return
    echo(f"# Caught Interrupt (^C), Deleting the job {ids[0]}...", err=True)
    with context.database.begin() as tx:
        control.delete(tx, context.user, ids, with_inner=True)
    echo("Job(s) deleted.", err=True)


# -- sessions ----------------------------------------------------------------------------------------------------------


class Session:
    """A shell in a running job.  ``is_main``: the shell of an interactive job, whose end is the job's."""

    def __init__(self, context: Context, job_id: int, *, is_main: bool, verbose: bool, propagate: bool) -> None:
        self._context = context
        self._job_id = job_id
        self._is_main = is_main
        self._is_verbose = verbose
        self._propagates = propagate
        self._way: Way | None = None

    @contextmanager
    def way(self) -> Iterator["Way"]:
        """Have the way to nodes for as long as the session may need it."""
        from oar.cli.as_user import UserFiles
        from oar.cli.node_shell import Way

        config = self._context.runtime.config
        files = UserFiles(self._context.user, config.oar_privilege_cmd)
        self._way = Way(config, files, self._context.environment)
        try:
            yield self._way
        finally:
            self._way.close()

    def run(self) -> int:
        """Give the shell; return the exit code of the command.  Raises Stop."""
        if self._way is None:
            raise RuntimeError("the way to the node is not open")
        door = self._door()
        self._explain(f"Connect to OAR job {self._job_id} via node {door.host}")
        if self._way.has_display:
            self._explain("Initialize X11 forwarding...")
        self._context.database.close()
        try:
            verdict, reasons = self._judge(self._way.shell(door))
        except Hangup:  # ssh, which the same signal ends, may be faster
            self._give_up("the terminal is gone")
            raise
        if reasons and os.isatty(1):
            click.echo()  # what the session has left there may end anywhere
        click.echo("".join(f"# {reason}\n" for reason in reasons), nl=False, err=True)
        click.echo(f"Disconnected from OAR job {self._job_id}.")
        return verdict

    def _explain(self, text: str) -> None:
        if self._is_verbose:
            click.echo(f"# {text}")

    def _door(self) -> "Door":
        """Return where the shell is, and what the node is told.  Raises Stop."""
        from oar.cli.node_shell import Door

        with self._context.database.snapshot() as tx:
            job, run = tx.jobs.get(self._job_id), tx.runs.find(self._job_id)
            types = JobTypes(tx.jobs.types([job.id], current=True).get(job.id, ()))
            has_hosts = any(
                one.type == "default" and one.network_address
                for one in tx.jobs.assigned([job.id], current=True).get(job.id, [])
            )
        if run is None:
            raise _refusal(f"job {job.id} is not running. Its current state is {job.state}.")
        config = self._context.runtime.config
        is_elsewhere = "deploy" in types or "cosystem" in types or not has_hosts
        is_confined = config.job_resource_manager_property_db_field and config.cpuset_path and not is_elsewhere
        cpuset = f"{config.cpuset_path}/{job.cpuset_name}" if is_confined else ""
        session = ("main" if self._is_main else "connect") + (":status" if self._propagates else "")
        return Door(run.head_host, job.id, job.user, cpuset, session)

    def _judge(self, code: int) -> tuple[int, Sequence[str]]:
        """Return the exit code that the end of the session means, and why where that is not what one expects."""
        from oar.cli.node_shell import NO_CONNECTION

        is_broken = code >= NO_CONNECTION or (code != 0 and not self._propagates)
        try:
            reasons = self._why_ended(_DOUBT if code >= NO_CONNECTION else 0.0)
        except DatabaseUnavailable:
            reasons = None
        if reasons is not None:
            return TERMINATED, ["Error: job was terminated.", *reasons]
        if not is_broken:
            return code, ()
        if code == NO_DIRECTORY:
            return NO_DIRECTORY, ()  # the node has said which
        if code == NO_SHELL:
            return BROKEN, ["Error: your login shell cannot be started there."]
        self._give_up(f"ssh ended with {code}")
        return BROKEN, [f"Error: an unknown error occured ({code})."]

    def _why_ended(self, doubt: float) -> Sequence[str] | None:
        """Return the sentences that say why somebody or something else ended the job; None if nobody did."""
        import time

        limit = time.monotonic() + doubt
        while True:
            with self._context.database.snapshot() as tx:
                if _is_ended_by_others(tx, self._job_id, is_main=self._is_main):
                    return _reasons(tx, self._job_id)
            if time.monotonic() >= limit:
                return None
            time.sleep(_LOOK)

    def _give_up(self, reason: str) -> None:
        """Nobody will come back to the shell of an interactive job: it need not wait for the node to find out."""
        from oar.lib import control

        if not self._is_main:
            return
        with self._context.database.begin() as tx:
            job = tx.jobs.find(self._job_id)
            if job is None or tx.runs.kill_request(self._job_id) is not None:
                return
            text = f"[oarsub] the session of job {self._job_id} was lost: {reason}"
            tx.events.add(EventType.LOST_SESSION, self._job_id, text)
            if not job.is_final and job.state is not JobState.FINISHING:  # the node may have seen it first
                control.delete(tx, self._context.user, [self._job_id], with_inner=True)


def _is_ended_by_others(tx: "Transaction", job_id: int, *, is_main: bool) -> bool:
    """Whether a job was killed or broke; the end of the main shell is no reason for those who have it."""
    job, run = tx.jobs.find(job_id), tx.runs.find(job_id)
    if job is None or job.state is JobState.ERROR or tx.runs.kill_request(job_id) is not None:
        return True
    is_over = job.is_final or job.state is JobState.FINISHING
    return is_over and not (is_main and run is not None and run.oarexec_code in _LEFT)


def _reasons(tx: "Transaction", job_id: int) -> list[str]:
    """Return why a job ends, as far as that is known while it does."""
    from oar.cli.render import visible
    from oar.lib import cause_texts

    cause = tx.ends.causes([job_id]).get(job_id)
    if cause is None:
        job = tx.jobs.find(job_id)
        facts = next(iter(tx.ends.facts([job_id])), None)
        if job is None or facts is None or facts.kill is None:
            return []
        times = {"walltime": facts.walltime, "ran": facts.ran or tx.now - job.start_time}
        cause = facts.kill._replace(data={**times, **facts.kill.data})
    return [visible(cause_texts.tell(cause, job_id).sentence)]
