"""Jobs of desktop computers: launch and kill them, unpack their results as their users, remove old results.

OAR sends nothing to the agents of desktop computers: the agents fetch the jobs. See docs/design/desktop.rst, "Launch"
and "Results".
"""

import os
import pwd
import select
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import oar
from oar.lib.access.records import User
from oar.lib.bus.messages import Ask, JobAction, Tag, Wake
from oar.lib.db.transaction import Transaction
from oar.lib.desktop import stageouts
from oar.lib.desktop.pull import UNPACKED_TIMES
from oar.lib.history.event_consequences import NOT_STARTED
from oar.lib.history.event_types import EventType
from oar.lib.jobs.ends import ExecCode
from oar.lib.jobs.records import JobRun
from oar.lib.jobs.states import JobState, Phase
from oar.lib.logs import of_job
from oar.lib.submission import staging
from oar.lib.user_files.files import UserFiles
from oar.modules.runner.actions.context import ActionContext, RetryAfter, log
from oar.modules.runner.actions.job_data import JobData

#: Times the longest silence of a computer after which a job that was not fetched is given up.
EXPIRIES = 2
#: Seconds after which a launch looks again, if nothing has asked for that before.
LOOK_SECONDS = 60
#: Seconds after which an unpacking is given up; the program itself has a limit of processor time below.
SECONDS = 300.0
#: Unpackings at a time in a process, of all users and of one: who lets his hang holds up no others' launches and ends.
MOST_AT_ONCE, MOST_OF_A_USER = 4, 2
#: Where the program is whose text goes to the user's process: the user may not read our files.
_PROGRAM = Path(oar.__file__).parent / "tools" / "agent_archives.py"
#: Exit code of the program: there is no such directory here.
_NO_DIRECTORY = 3
#: Bytes of the program's output that are kept, and of the line that is shown.
_LONGEST_TEXT = 500
_LONGEST_OUTPUT = 1 << 16


# -- launch and kill ---------------------------------------------------------------------------------------------------


def await_agent(context: ActionContext, job_id: int) -> RetryAfter | None:
    """Wait until the agent has fetched the job. Give up the launch if the agent sends no request for too long.

    The job is locked meanwhile, so a request of its agent is handled before or after this transaction.
    """
    with context.database.begin() as tx:
        job, run = tx.jobs.lock_all([job_id]).get(job_id), tx.job_runs.find(job_id)
        if job is None or run is None or job.state not in (JobState.LAUNCHING, JobState.RUNNING):
            return None
        if run.phase is Phase.GO:
            return RetryAfter(LOOK_SECONDS)  # the response to the agent may be lost: wait for its next request
        if run.phase is not Phase.EXEC_SENT:
            return None
        if tx.job_requests.find_kill(job_id):
            _note_kill(tx, job_id)
            return None
        remaining = run.updated + EXPIRIES * context.config.desktop_computing_expiry - tx.now
        if remaining > 0:
            return RetryAfter(min(remaining, LOOK_SECONDS))
        _give_up(tx, run)
    return None


def kill(context: ActionContext, job_id: int) -> None:
    """End a job that its agent has not fetched. The agent is notified of other kills at its next request."""
    with context.database.begin() as tx:
        jobs, run = tx.jobs.lock_all([job_id]), tx.job_runs.find(job_id)
        if job_id in jobs and run is not None and run.phase is Phase.EXEC_SENT:
            _note_kill(tx, job_id)


def _note_kill(tx: Transaction, job_id: int) -> None:
    tx.job_runs.report(job_id, ExecCode.KILLED, None)
    tx.outbox.append(Ask(JobAction.END, job_id))


def _give_up(tx: Transaction, run: JobRun) -> None:
    """Store the event of a launch that no agent has fetched. NodeChangeState handles the event."""
    text = f"[bipbip {run.job_id}] {NOT_STARTED}: the agent of {run.head_host} has not fetched the job"
    of_job(log, run.job_id, nodes=[run.head_host]).warning("the launch is given up: %s", text)
    tx.events.add(EventType.LAUNCHING_OAREXEC_TIMEOUT, run.job_id, text, to_check=True, hosts=[run.head_host])
    tx.job_runs.update(run.job_id, phase=Phase.FAILED)
    tx.outbox.append(Wake(Tag.CHSTATE))


# -- results -----------------------------------------------------------------------------------------------------------


class Crowded(Exception):
    """Too many results are being unpacked: try again later."""


class Unpackings:
    """The unpackings that run in this process."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._of_users: Counter[str] = Counter()
        self._left: list[subprocess.Popen[bytes]] = []

    @contextmanager
    def one_more(self, user: str) -> Iterator[None]:
        """Count one unpacking of a user while the block runs. Raises Crowded."""
        with self._mutex:
            if self._of_users[user] >= MOST_OF_A_USER or self._of_users.total() >= MOST_AT_ONCE:
                raise Crowded
            self._of_users[user] += 1
        try:
            yield
        finally:
            with self._mutex:
                self._of_users[user] -= 1

    def leave(self, process: "subprocess.Popen[bytes]") -> None:
        """Kill a program, and do not wait for its end."""
        with suppress(PermissionError):
            process.kill()
        with self._mutex:
            self._left.append(process)

    def left(self) -> int:
        """Return the number of abandoned programs that still run."""
        with self._mutex:
            self._left = [process for process in self._left if process.poll() is None]
            return len(self._left)


unpackings = Unpackings()


def deliver(context: ActionContext, data: JobData) -> str:
    """Unpack the results of a job into its launching directory, if both exist on this machine.

    Return the reason if some results are missing there, else ''. Users can fetch the missing results. Raises Crowded.
    """
    path = stageouts.path_of(context.config, data.job.id)
    try:
        account = pwd.getpwnam(data.job.user)
        with open(path, "rb") as archive, unpackings.one_more(account.pw_name):
            code, text = _unpack(context, data, User(account.pw_name, account.pw_uid), archive.fileno())
    except FileNotFoundError:
        return ""
    except KeyError:
        return ""  # the user has no account here: he can fetch the results
    except OSError as error:
        return f"the results were not unpacked: {error}"
    if code == 0:
        stageouts.remove(context.config, data.job.id)
        return ""
    of_job(log, data.job.id).info("results: %s", text)
    return "" if code == _NO_DIRECTORY else f"the results were not all unpacked: {text or f'exit code {code}'}"


def _unpack(context: ActionContext, data: JobData, user: User, archive: int) -> tuple[int, str]:
    """Unpack an archive as the user. Return the exit code of the program and its output. Raises OSError."""
    most = context.config.api_max_upload * UNPACKED_TIMES
    program = [sys.executable, "-I", "-S", "-c", _PROGRAM.read_text(), data.job.launching_directory, str(most)]
    argv, identity = UserFiles(user, context.config.oar_privilege_cmd).running(program)
    process = subprocess.Popen(
        argv,
        stdin=archive,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        cwd="/",
        env={"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8"},
        **identity,
    )
    return _await_end(process)


def _await_end(process: "subprocess.Popen[bytes]") -> tuple[int, str]:
    """Return the exit code of a program and the last line of its output. Raises TimeoutError.

    The program belongs to its user, who may stop it or let it write without end. So the wait and the stored output are
    limited. A program that runs under sudo cannot be killed; it is abandoned.
    """
    assert process.stdout
    output, until, poll = b"", time.monotonic() + SECONDS, select.poll()
    with process.stdout as source:
        poll.register(source, select.POLLIN)
        while poll.poll(1000 * max(0.0, until - time.monotonic())):
            piece = os.read(source.fileno(), _LONGEST_OUTPUT)
            output = (output + piece)[-_LONGEST_OUTPUT:]
            if not piece or time.monotonic() > until:
                break
    try:
        code = process.wait(max(0.0, until - time.monotonic()))
    except subprocess.TimeoutExpired:
        unpackings.leave(process)
        raise TimeoutError(f"this was not done in {SECONDS:.0f} seconds") from None
    lines = output.decode(errors="replace").strip().splitlines()
    text = lines[-1][:_LONGEST_TEXT] if lines else ""
    return code, "".join(letter if letter.isprintable() else "?" for letter in text)


def remove_old(context: ActionContext) -> None:
    """Remove the obsolete files of desktop computing."""
    unpackings.left()
    count = stageouts.remove_old(context.database, context.config)
    if count:
        log.info("%d old files of results are removed", count)
    staging.remove_unused(context.database, context.config)
