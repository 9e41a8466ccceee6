"""oarsub --app: submit a job that runs a program with web pages, wait for it, print how to open it.

The program writes its port and its token into a file of the user (oar/tools/app_launcher.py).  This command reads the
file with the user's rights and prints the token on his terminal only.
"""

import pwd
import re
import time
from typing import TYPE_CHECKING

import click

from oar.cli.common.options import Stop
from oar.cli.common.process import Hangup, ending_with_caller
from oar.cli.oarsub_parts.call import OarsubCall
from oar.cli.oarsub_parts.wait import PAUSE_IF_TOLD, pause
from oar.lib.apps import session_file
from oar.lib.base.errors import DatabaseUnavailable
from oar.lib.jobs import sessions
from oar.lib.jobs.end_listener import EndListener
from oar.lib.jobs.states import FINAL, JobState
from oar.lib.submission.app_jobs import app_type
from oar.lib.submission.checks import Code
from oar.lib.submission.options import app_of

if TYPE_CHECKING:
    from oar.cli.oarsub_parts.options import OarsubOptions
    from oar.lib.apps.session_file import AppSession
    from oar.lib.jobs.records import Job

#: Seconds between two looks at the session file at first; they grow to ``wait.pause``.
_EARLY, _LATE = 0.3, 5.0
#: Seconds after which the user learns that the program takes long, or that its file cannot be seen here.
_PATIENCE = 60.0
_OVER = FINAL | {JobState.TO_ERROR, JobState.FINISHING}
_JOB_ID = r"[1-9][0-9]{0,17}"


def with_type(options: "OarsubOptions") -> "OarsubOptions":
    """Return the options with the job type of the program.  Raises Stop."""
    if options.app is None:
        return options
    _check_alone(options)
    types = (*options.job.types, app_type(options.app))
    return options._replace(job=options.job._replace(types=types))


def _check_alone(options: "OarsubOptions") -> None:
    """Refuse options and a command that --app excludes.  Raises Stop."""
    others = {
        "-S": options.scan,
        "--wrap": options.wrapped is not None,
        "-C": bool(options.connect),
        "-I": options.job.interactive,
        "-r": options.job.reservation is not None,
        "--resubmit": bool(options.resubmit),
        "--wait": bool(options.wait),
        "--parsable": options.parsable,
    }
    if other := next((name for name, is_given in others.items() if is_given), None):
        raise Stop(f"# Error: --app and {other} are exclusive.")
    if options.machine is not None:
        raise Stop("# Error: --app prints an address for a person: use it without a machine format.")
    if options.words:
        raise Stop(f'# Error: --app starts the program {options.app}: use it without the command "{options.words[0]}".')


def job_of(options: "OarsubOptions") -> int | None:
    """Return the job that ``--app JOB`` names; None for the name of a program."""
    is_job = options.app is not None and re.fullmatch(_JOB_ID, options.app)
    return int(options.app or "") if is_job else None


def reopen(call: OarsubCall, job_id: int, names: frozenset[str]) -> int:
    """Print how to open the program of a job that was submitted before.  Raises Stop, NoSuchJob."""
    if ignored := names - {"app", "verbosity"}:
        options = call.context.command.spell(ignored)
        call.context.warn(
            f"--app {job_id} shows the program of a job that exists: these options are ignored: {options}"
        )
    with call.context.database.snapshot() as tx:
        job = tx.jobs.get(job_id)
        name = app_of(tx.jobs.types([job_id]).get(job_id, ()))
    if job.user != call.context.user.name:
        raise Stop(f"# Error: job {job_id} belongs to {job.user}: only he can open its program.", Code.CONNECT)
    if not name:
        raise Stop(f"# Error: job {job_id} has no program with web pages: submit one with --app.", Code.CONNECT)
    if job.state in _OVER:
        raise Stop(f"# Error: job {job_id} has ended: submit another one with --app.", Code.CONNECT)
    return AppWait(call, job_id).run()


class AppWait:
    """Waits for the program of a job, prints how to open it, and waits for the end of the job."""

    def __init__(self, call: OarsubCall, job_id: int) -> None:
        self._call = call
        self._database = call.context.database
        self._config = call.context.runtime.config
        self._job_id = job_id
        self._session: AppSession | None = None
        self._said: set[str] = set()
        self._running_since = 0.0

    def run(self) -> int:
        """Wait; return the exit code.  ^C ends the waiting, not the job."""
        try:
            with ending_with_caller(), EndListener(self._database) as listener:
                return self._wait(listener)
        except KeyboardInterrupt:
            click.echo(f"\n# Job {self._job_id} goes on. Come back: oarsub --app {self._job_id}", err=True)
            click.echo(f"# End it: oardel {self._job_id}", err=True)
            return 0
        except Hangup:
            return 0

    def _wait(self, listener: EndListener) -> int:
        start = time.monotonic()
        while True:
            is_notified = listener.listen()
            try:
                job, host = self._look()
            except DatabaseUnavailable:
                self._say("The OAR database cannot be reached. Trying again.")
            else:
                if job is None or job.state in _OVER:
                    return self._report_end(job)
                if self._session is None:
                    self._open(job, host)
            self._database.close()  # connections are few, and a notebook is open for hours
            waited = time.monotonic() - start
            if self._session is not None:
                listener.wait({self._job_id}, PAUSE_IF_TOLD if is_notified else pause(waited))
            else:
                time.sleep(min(max(pause(waited), _EARLY), _LATE) if self._running_since else pause(waited))

    def _look(self) -> tuple["Job | None", str]:
        """Return the job, and the host of its command, '' before it runs."""
        with self._database.snapshot() as tx:
            job, run = tx.jobs.find(self._job_id), tx.job_runs.find(self._job_id)
        is_running = job is not None and job.state is JobState.RUNNING and run is not None
        return job, run.head_host if is_running and run else ""

    def _open(self, job: "Job", host: str) -> None:
        """Print how to open the program if it listens."""
        if not host:
            self._say("Waiting for the start of the job. ^C leaves, the job remains.")
            return
        self._running_since = self._running_since or time.monotonic()
        self._say(f"The job runs on {host}. Waiting for {job.command}.")
        self._session = self._read()
        if self._session is not None:
            self._show(self._session, host)
        elif time.monotonic() - self._running_since > _PATIENCE:
            self._say(
                f"{job.command} is not ready yet. Its output is in the stderr file of the job."
                f" If it says that it is ready, {self._path()} cannot be read on this machine."
            )

    def _path(self) -> str:
        home = pwd.getpwuid(self._call.context.user.uid).pw_dir
        return session_file.session_path(home, self._config.server_hostname, self._job_id)

    def _read(self) -> "AppSession | None":
        try:
            data = self._call.files.read(self._path()).data
        except OSError:
            return None
        return session_file.parse_session(data, self._job_id, self._config.apps_ports)

    def _show(self, session: "AppSession", host: str) -> None:
        """Print the commands and the address."""
        login = f"{self._call.context.user.name}@{self._call.host}"
        command = session_file.ssh_command(host, session, login)
        if command is None:
            raise Stop(f"# Error: this machine cannot resolve the name {host}.", Code.NO_SESSION)
        click.echo(f"# {session.app} is ready. Type on your computer:")
        click.echo(command)
        click.echo("# Open in its browser, while that command runs:")
        click.echo(session_file.local_url(session))
        if not session.has_token_in_path:
            click.echo(f"# User: {self._call.context.user.name}, password: {session.token}")
        click.echo(f"# The address is secret: whoever has it acts as {self._call.context.user.name}.")
        click.echo(f"# ^C leaves, the job goes on. End it: oardel {self._job_id}")

    def _say(self, text: str) -> None:
        """Print a comment, once."""
        if text not in self._said:
            self._said.add(text)
            self._call.printer.comment(text)

    def _report_end(self, job: "Job | None") -> int:
        """Print why the job ended; return the exit code."""
        from oar.cli.common.render import visible
        from oar.lib.jobs.output_names import output_path

        with self._database.snapshot() as tx:
            reason = sessions.end_reason(tx, self._job_id)
        was_open = self._session is not None
        text = visible(reason) if reason else f"Job {self._job_id} has ended."
        click.echo(f"# {text}", err=not was_open)
        if not was_open and job is not None:
            click.echo(f"# {job.command} was not ready. See the output: {output_path(job, 'stderr')}", err=True)
        return 0 if was_open else Code.NO_SESSION
