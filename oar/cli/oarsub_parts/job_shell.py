"""The shell in a job that oarsub -I and oarsub -C open, and the meaning of its exit code.

See docs/design/nodes.rst, "Interactive jobs".
"""

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from oar.cli.common.options import Stop
from oar.cli.common.process import Hangup, ending_with_caller
from oar.cli.oarsub_parts.call import OarsubCall
from oar.cli.oarsub_parts.options import OarsubOptions
from oar.lib.access.records import User
from oar.lib.base.errors import DatabaseUnavailable
from oar.lib.jobs import control, sessions
from oar.lib.jobs.records import Job
from oar.lib.jobs.states import JobState, JobTypeName
from oar.lib.submission.checks import Code
from oar.lib.submission.resource_request import JobTypes

if TYPE_CHECKING:
    from oar.cli.oarsub_parts.node_shell import NodeConnection

#: Exit codes: no working directory, the job ended under the session, no session or a broken one.
NO_DIRECTORY, TERMINATED, BROKEN = 2, 19, 21
#: Exit code of the node if the shell of the user cannot be executed.
NO_SHELL = 66
#: Seconds that the server may take to store an end that first shows as a broken session; seconds between two checks.
_DOUBT, _LOOK = 3.0, 0.1


class JobShell:
    """A shell in a running job.  ``is_main``: the shell of an interactive job, with which the job ends."""

    def __init__(self, call: OarsubCall, job_id: int, *, is_main: bool) -> None:
        self._context = call.context
        self._files = call.files
        self._printer = call.printer
        self._propagates = call.options.propagate_exit
        self._job_id = job_id
        self._is_main = is_main
        self._connection: NodeConnection | None = None

    @contextmanager
    def connection(self) -> Iterator["NodeConnection"]:
        """Provide a connection to nodes while the shell may need it."""
        from oar.cli.oarsub_parts.node_shell import NodeConnection

        self._connection = NodeConnection(self._context.runtime.config, self._files, self._context.environment)
        try:
            yield self._connection
        finally:
            self._connection.close()

    def run(self) -> int:
        """Open the shell; return the exit code of the command once it has ended.  Raises Stop, Hangup."""
        if self._connection is None:
            raise RuntimeError("the connection to the node is not open")
        host, variables = self._session()
        self._printer.explain(f"Connect to OAR job {self._job_id} via node {host}")
        if self._connection.has_display:
            self._printer.explain("Initialize X11 forwarding...")
        self._context.database.close()
        try:
            exit_code, messages = self._verdict(self._connection.shell(host, variables))
        except Hangup:  # ssh, which the same signal ends, may be faster
            self._lose("the terminal is gone")
            raise
        if messages and os.isatty(1):
            click.echo()  # the last line of the session may not have ended
        click.echo("".join(f"# {message}\n" for message in messages), nl=False, err=True)
        click.echo(f"Disconnected from OAR job {self._job_id}.")
        return exit_code

    def _session(self) -> tuple[str, dict[str, str]]:
        """Return the host of the shell and the variables for the node.  Raises Stop."""
        with self._context.database.snapshot() as tx:
            job, run = tx.jobs.get(self._job_id), tx.job_runs.find(self._job_id)
            types = JobTypes(tx.jobs.types([job.id], current=True).get(job.id, ()))
            has_nodes = any(
                resource.type == "default" and resource.network_address
                for resource in tx.jobs.assigned([job.id], current=True).get(job.id, [])
            )
        if run is None:
            raise Stop(f"# Error: job {job.id} is not running. Its current state is {job.state}.", Code.CONNECT)
        config = self._context.runtime.config
        is_elsewhere = JobTypeName.DEPLOY in types or JobTypeName.COSYSTEM in types or not has_nodes
        is_confined = config.job_resource_manager_property_db_field and config.cpuset_path and not is_elsewhere
        return run.head_host, {
            "OAR_CPUSET": f"{config.cpuset_path}/{job.cpuset_name}" if is_confined else "",
            "OAR_JOB_USER": job.user,
            "OAR_JOB_ID": str(job.id),
            "OAR_SESSION": ("main" if self._is_main else "connect") + (":status" if self._propagates else ""),
        }

    def _verdict(self, code: int) -> tuple[int, Sequence[str]]:
        """Return the exit code of the command, and messages if the session did not just end.  ``code``: of ssh."""
        from oar.cli.oarsub_parts.node_shell import NO_CONNECTION

        try:
            messages = self._messages_of_end(_DOUBT if code >= NO_CONNECTION else 0.0)
        except DatabaseUnavailable:
            messages = None
        if messages is not None:
            return TERMINATED, messages
        if code < NO_CONNECTION and (code == 0 or self._propagates):
            return code, ()
        if code == NO_DIRECTORY:
            return NO_DIRECTORY, ()  # the node has said which
        if code == NO_SHELL:
            return BROKEN, ["Error: your login shell cannot be started on the node."]
        self._lose(f"ssh ended with {code}")
        return BROKEN, [f"Error: an unknown error occured ({code})."]

    def _messages_of_end(self, doubt: float) -> Sequence[str] | None:
        """Return messages if the job did not end by its shell; None if the database does not say so in ``doubt`` s."""
        from oar.cli.common.render import visible

        limit = time.monotonic() + doubt
        while True:
            with self._context.database.snapshot() as tx:
                if sessions.is_ended_by_others(tx, self._job_id, is_main=self._is_main):
                    reason = sessions.end_reason(tx, self._job_id)
                    return ["Error: job was terminated.", *([visible(reason)] if reason else [])]
            if time.monotonic() >= limit:
                return None
            time.sleep(_LOOK)

    def _lose(self, reason: str) -> None:
        """End an interactive job at once, without waiting for the node to find out that its shell is gone."""
        if self._is_main:
            with self._context.database.begin() as tx:
                sessions.lose(tx, self._context.user, self._job_id, reason)


#: Options that may be combined with -C.
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
    """Return the job id of -C, None without one; the id may follow other options.  Raises Stop."""
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
