"""Carries out actions on jobs, many at a time, over warm connections to the nodes.

In the worker form the Runner writes actions on standard input and reads answers and effects on standard output; one
thread works on each action.  By hand, ``oar-bipbip JOB_ID`` does what is to be done for one job, in the same way, and
ends: 0 handled, 1 nothing to do, 2 failed.
"""

import contextlib
import os
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import BinaryIO

from oar.lib import logs, runtime
from oar.lib.config import Config
from oar.lib.db.engine import Locks, job_lock
from oar.lib.errors import DatabaseUnavailable
from oar.lib.messages import Ask, Effect, JobAction
from oar.lib.remote.pool import Remote
from oar.lib.remote.requests import RemoteSettings
from oar.lib.runtime import Runtime
from oar.modules import orders
from oar.modules.actions import finish, launch, notices, power, probe, signals, suspend, tell
from oar.modules.actions.context import Context, Later, log
from oar.modules.dispatch import (
    LIMITED,
    NOTICES_AT_A_TIME,
    OTHERS_AT_A_TIME,
    SPOKEN,
    TELLS_AT_A_TIME,
    Action,
    Kind,
    wanted,
)
from oar.modules.orders import Did, Do, Interrupt, Order

#: A job that somebody else works on is looked at again after so long.
BUSY_SECONDS = 2.0
#: An action that lost the database is begun again after so long; that is not the fault of its job.
UNAVAILABLE_SECONDS = 2.0
#: After the Runner has gone, running actions are given so long to reach an end.
LAST_SECONDS = 10.0

#: What does the work of each kind.
WORK: dict[Kind, Callable[[Context, Action], Later | None]] = {
    Kind.LAUNCH: lambda context, action: launch.launch(context, action.job_id),
    Kind.END: lambda context, action: finish.finish(context, action.job_id),
    Kind.KILL: lambda context, action: signals.kill(context, action.job_id),
    Kind.SIGNAL: lambda context, action: signals.signal(context, action.job_id),
    Kind.SUSPEND: lambda context, action: suspend.suspend(context, action.job_id),
    Kind.RESUME: lambda context, action: suspend.resume(context, action.job_id),
    Kind.PROBE: lambda context, action: probe.probe(context, action.host),
    Kind.SWEEP: lambda context, action: probe.sweep(context, action.host),
    Kind.TELL: lambda context, action: tell.tell(context, action.job_id, action.args),
    Kind.NOTICE: lambda context, action: notices.run_command(context, action.job_id, action.args),
    Kind.ENERGY: lambda context, _: power.carry_out(context),
    Kind.HEAL: lambda context, action: notices.heal(context, action.args),
}


def remote_settings(config: Config, home: str | None = None) -> RemoteSettings:
    """Return how nodes are reached, according to oar.conf."""
    return RemoteSettings(
        openssh_cmd=tuple(config.openssh_cmd.split()),
        transport=config.oar_ssh_transport,
        pool_max=config.oar_ssh_pool_max,
        pool_idle=config.oar_ssh_pool_idle,
        privilege_cmd=tuple(config.oar_privilege_cmd.split()),
        control_directory=f"{config.oar_run_dir}/ipc",
        home=home or os.path.expanduser("~"),
    )


class JobLocks:
    """The jobs that this process works on, locked in the database for as long as it lives."""

    def __init__(self, runtime_: Runtime) -> None:
        self._database = runtime_.database
        self._mutex = threading.Lock()
        self._locks: Locks | None = None

    def acquire(self, job_id: int) -> bool:
        """Take a job unless another process works on it."""
        with self._mutex:
            if self._locks is None or not self._locks.alive():
                self._locks = Locks(self._database)
            return self._locks.acquire(job_lock(job_id))

    def release(self, job_id: int) -> None:
        """Give a job back; with the connection lost it is given back already."""
        with self._mutex:
            try:
                if self._locks is not None:
                    self._locks.release(job_lock(job_id))
            except DatabaseUnavailable:
                self._locks = None


class Bipbip:
    """The actions that are going on in this process."""

    def __init__(self, runtime_: Runtime, remote: Remote, answer: Callable[[Order], None]) -> None:
        self._runtime = runtime_
        self._locks = JobLocks(runtime_)
        self._answer = answer
        self._interrupted: set[int] = set()
        self._context = Context(
            config=runtime_.config,
            database=runtime_.database,
            remote=remote,
            interrupted=self._interrupted.__contains__,
            watch=self._watch,
            oardir=runtime_.oardir,
        )

    def take(self, order: Order, pool: ThreadPoolExecutor) -> None:
        """Begin with what the Runner asks for."""
        match order:
            case Do(action):
                self._follow_configuration()
                pool.submit(self.carry_out, action)
            case Interrupt(job_id):
                self._interrupted.add(job_id)

    def _follow_configuration(self) -> None:
        """Let the actions that begin now find what oar.conf says now; a bad one changes nothing."""
        config = self._runtime.changed_config()
        if config is not None:
            self._context = replace(self._context, config=config)
            logs.set_up(config, "Bipbip")

    def carry_out(self, action: Action) -> Did:
        """Do an action, whatever happens in it, and answer for it."""
        did = self._guarded(action)
        if action.kind is Kind.LAUNCH:
            self._interrupted.discard(action.job_id)
        self._answer(did)
        return did

    def _guarded(self, action: Action) -> Did:
        locked = bool(action.job_id) and action.kind not in SPOKEN
        try:
            if locked and not self._locks.acquire(action.job_id):
                return Did(action, BUSY_SECONDS)
            try:
                later = WORK[action.kind](self._context, action)
            finally:
                if locked:
                    self._locks.release(action.job_id)
        except DatabaseUnavailable as error:
            logs.of_job(log, action.job_id).error("%s on %s has to wait: %s", action.kind, action.host, error)
            return Did(action, UNAVAILABLE_SECONDS)
        except Exception:  # noqa: BLE001 - the guard of an action: whatever it is, it is this job's trouble
            logs.of_job(log, action.job_id).exception("%s on %s broke off", action.kind, action.host)
            return Did(action, failed=True)
        return Did(action, later.seconds if later else None)

    def _watch(self, name: str, body: Callable[[], None]) -> None:
        threading.Thread(target=body, name=name, daemon=True).start()


class Answers:
    """Writes to the Runner, from any thread."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._mutex = threading.Lock()

    def write(self, order: Order) -> None:
        """Write one line.  Without a Runner it is lost: the next one finds in the database what it would have said."""
        line = orders.encode(order)
        with self._mutex, contextlib.suppress(BrokenPipeError):
            self._stream.write(line)
            self._stream.flush()

    def deliver(self, effects: Sequence[Effect]) -> None:
        """Pass on what a transaction leaves to be sent."""
        for effect in effects:
            self.write(effect)


def work(runtime_: Runtime, remote: Remote, answers: Answers, requests: BinaryIO) -> None:
    """Carry out what the Runner writes, until it closes the pipe."""
    bipbip = Bipbip(runtime_, remote, answers.write)
    in_hands_of_users = NOTICES_AT_A_TIME + TELLS_AT_A_TIME
    threads = runtime_.config.max_concurrent_jobs_starting_or_terminating + OTHERS_AT_A_TIME + in_hands_of_users
    pool = ThreadPoolExecutor(threads, thread_name_prefix="action")
    for line in requests:
        bipbip.take(orders.decode(line), pool)
    # The Runner has gone.  What is going on may reach its end; what does not is found again.
    threading.Timer(LAST_SECONDS, os._exit, (0,)).start()
    pool.shutdown(wait=True, cancel_futures=True)
    os._exit(0)


def handle(runtime_: Runtime, remote: Remote, job_id: int) -> int:
    """Do what is to be done for one job, and whatever follows from it for this job."""
    bipbip = Bipbip(runtime_, remote, lambda _: None)
    handled = False
    while True:
        with runtime_.database.begin() as tx:
            found = tx.runs.in_hand([job_id])
        action = wanted(found[0], 0) if found else None
        if action is None or action.kind not in LIMITED:
            return 0 if handled else 1
        did = bipbip.carry_out(action)
        if did.failed:
            return 2
        if did.again is not None:
            threading.Event().wait(did.again)
        handled = True


def _own_stdout() -> BinaryIO:
    """Keep the pipe to the Runner for answers alone: what anything else prints goes where errors go."""
    stream = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    return stream


def main() -> None:
    """Run as a program."""
    worker = sys.argv[1:2] == ["--worker"]
    answers = Answers(_own_stdout() if worker else sys.stdout.buffer)
    opened = runtime.open_runtime("bipbip", deliver=answers.deliver if worker else None)

    def lost(node: str) -> None:
        """Let the jobs of a node whose connection broke be asked for: it may have died."""
        answers.write(Ask(JobAction.PROBE, 0, (node,)))

    settings = remote_settings(opened.config)
    remote_of = Remote(settings, lost=lost) if worker else Remote(settings)
    with logs.logging_to(opened.config, "Bipbip"), remote_of as remote:
        if worker:
            work(opened, remote, answers, sys.stdin.buffer)
        if not sys.argv[1:] or not sys.argv[1].isdigit():
            sys.stderr.write("usage: oar-bipbip JOB_ID\n")
            sys.exit(2)
        code = handle(opened, remote, int(sys.argv[1]))
    sys.exit(code)


if __name__ == "__main__":
    main()
