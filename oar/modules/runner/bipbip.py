"""Bipbip: carry out actions on jobs, many at a time, over open connections to the nodes.

As a worker, it reads actions of the Runner from standard input and writes answers and effects to standard output. One
thread handles each action. On the command line, ``oar-bipbip JOB_ID`` carries out the actions that one job needs. Exit
codes: 0 (done), 1 (nothing to do), 2 (failed).
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
from oar.lib.base.errors import DatabaseUnavailable
from oar.lib.bus.messages import Ask, Effect, JobAction, announcements
from oar.lib.bus.servers import determine_own_server
from oar.lib.control_delivery import delivering
from oar.lib.remote.pool import Remote
from oar.lib.remote.requests import RemoteSettings
from oar.lib.runtime import Runtime
from oar.modules.runner import bipbip_pipe, curves
from oar.modules.runner.actions import (
    desktop,
    energy,
    finish,
    job_data,
    launch,
    node_checks,
    notices,
    probe,
    server_scripts,
    signals,
    suspend,
)
from oar.modules.runner.actions.context import ActionContext, RetryAfter, log
from oar.modules.runner.actions.shared_steps import SharedSteps
from oar.modules.runner.bipbip_pipe import ActionEnded, InterruptLaunch, PipeMessage, RunAction, WatchNodes
from oar.modules.runner.dispatch import (
    AR_EVENTS_AT_A_TIME,
    LIMITED,
    MESSAGE_KINDS,
    NOTICES_AT_A_TIME,
    OTHERS_AT_A_TIME,
    TELLS_AT_A_TIME,
    Action,
    ActionKind,
    next_action,
)
from oar.modules.runner.job_locks import JobLocks

#: An action on a job that another process works on is repeated after so long.
BUSY_SECONDS = 2.0
#: An action that lost the database is repeated after so long; it does not count as a failure of its job.
UNAVAILABLE_SECONDS = 2.0
#: A connection of the database that has been idle for this time, in seconds, is closed if there are others.
IDLE_SECONDS = 30.0
#: After the end of the Runner, running actions get so long to reach their end.
LAST_SECONDS = 10.0

#: The function for each kind of action.
WORK: dict[ActionKind, Callable[[ActionContext, Action], RetryAfter | None]] = {
    ActionKind.LAUNCH: lambda context, action: launch.launch_job(context, action.job_id),
    ActionKind.END: lambda context, action: finish.finish(context, action.job_id),
    ActionKind.KILL: lambda context, action: signals.kill(context, action.job_id),
    ActionKind.SIGNAL: lambda context, action: signals.signal(context, action.job_id),
    ActionKind.SUSPEND: lambda context, action: suspend.suspend(context, action.job_id),
    ActionKind.RESUME: lambda context, action: suspend.resume(context, action.job_id),
    ActionKind.PROBE: lambda context, action: probe.probe(context, action.host),
    ActionKind.CHECK: lambda context, action: node_checks.check(context, action.host),
    ActionKind.SWEEP: lambda context, action: probe.sweep(context, action.host),
    ActionKind.TELL: lambda context, action: notices.tell(context, action.job_id, action.args),
    ActionKind.NOTICE: lambda context, action: notices.run_command(context, action.job_id, action.args),
    ActionKind.ENERGY: lambda context, _: energy.carry_out(context),
    ActionKind.HEAL: lambda context, action: server_scripts.heal(context, action.args),
    ActionKind.EXPIRE: lambda context, _: desktop.remove_old(context),
    ActionKind.AR_EVENT: lambda context, action: server_scripts.tell_site(context, action.args),
}


class Bipbip:
    """The running actions of this process; ``answer`` sends a message to the Runner."""

    def __init__(self, runtime_: Runtime, remote: Remote, answer: Callable[[PipeMessage], None]) -> None:
        self._runtime = runtime_
        self._locks = JobLocks(runtime_.database)
        self._answer = answer
        self._interrupted: set[int] = set()
        self._curves: curves.CurveCollector | None = None  #: from the first node with a job on
        self._context = ActionContext(
            config=runtime_.config,
            database=runtime_.database,
            remote=remote,
            interrupted=self._interrupted.__contains__,
            steps=SharedSteps(runtime_.database),
            run_in_thread=lambda name, body: threading.Thread(target=body, name=name, daemon=True).start(),
            oardir=runtime_.oardir,
        )

    def take(self, message: PipeMessage, pool: ThreadPoolExecutor) -> None:
        """Start an action, or interrupt a launch, as the Runner requests."""
        match message:
            case RunAction(action):
                self._follow_configuration()
                pool.submit(self.carry_out, action)
            case InterruptLaunch(job_id):
                self._interrupted.add(job_id)
            case WatchNodes(hosts):
                self._follow_configuration()
                self._watch(hosts)

    def _watch(self, hosts: tuple[str, ...]) -> None:
        """Record the curves of the jobs on these nodes."""
        if self._curves is None:
            context = self._context
            data = lambda: job_data.watch_data(self._context.config)  # noqa: E731
            self._curves = curves.CurveCollector(context.database, context.remote, data)
            context.run_in_thread("curves", self._curves.run)
        self._curves.follow(hosts)

    def _follow_configuration(self) -> None:
        """Reload oar.conf if it has changed, for actions that start later. An invalid file is ignored."""
        config = self._runtime.changed_config()
        if config is not None:
            determine_own_server(config)
            self._context = replace(self._context, config=config)
            logs.set_up(config, "Bipbip")

    def settle(self) -> None:
        """Run the postponed steps and send the collected notifications before this process ends."""
        self._context.steps.settle()
        self._runtime.database.tell_gathered()

    def carry_out(self, action: Action) -> ActionEnded:
        """Carry out an action and send its answer to the Runner, even if the action raises an exception."""
        answer = self._run(action)
        if action.kind is ActionKind.LAUNCH:
            self._interrupted.discard(action.job_id)
        self._answer(answer)
        return answer

    def _run(self, action: Action) -> ActionEnded:
        """Run an action while its job is locked. Convert every exception to an answer."""
        locked = bool(action.job_id) and action.kind not in MESSAGE_KINDS
        about = logs.of_job(log, action.job_id, nodes=(action.host,))
        try:
            if locked and not self._locks.acquire(action.job_id):
                return ActionEnded(action, BUSY_SECONDS)
            try:
                later = WORK[action.kind](self._context, action)
            finally:
                if locked:
                    self._locks.release(action.job_id)
        except DatabaseUnavailable as error:
            about.error("%s on %s has to wait: %s", action.kind, action.host, error)
            return ActionEnded(action, UNAVAILABLE_SECONDS)
        except Exception:  # noqa: BLE001 - the guard of an action: no error may end the other actions
            about.exception("%s on %s broke off", action.kind, action.host)
            return ActionEnded(action, failed=True)
        return ActionEnded(action, later.seconds if later else None)


class Answers:
    """Send messages to the Runner, from any thread."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._mutex = threading.Lock()

    def write(self, message: PipeMessage) -> None:
        """Write one line. It is lost if the Runner has ended: the next Runner finds the same work in the database."""
        line = bipbip_pipe.encode(message)
        with self._mutex, contextlib.suppress(BrokenPipeError):
            self._stream.write(line)
            self._stream.flush()

    def deliver(self, effects: Sequence[Effect]) -> None:
        """Send the effects of a transaction to the Runner."""
        for message in announcements(effects):
            self.write(message)


def work(runtime_: Runtime, remote: Remote, answers: Answers, requests: BinaryIO) -> None:
    """Carry out the actions that the Runner sends, until it closes the pipe."""
    bipbip = Bipbip(runtime_, remote, answers.write)
    limits = (NOTICES_AT_A_TIME, TELLS_AT_A_TIME, AR_EVENTS_AT_A_TIME, OTHERS_AT_A_TIME)
    threads = runtime_.config.max_concurrent_jobs_starting_or_terminating + sum(limits)
    pool = ThreadPoolExecutor(threads, thread_name_prefix="action")
    threading.Thread(target=_close_surplus_connections, args=(runtime_,), name="connections", daemon=True).start()
    for line in requests:
        bipbip.take(bipbip_pipe.decode(line), pool)
    # The Runner has ended. Running actions may complete; the next Runner repeats the others.
    threading.Timer(LAST_SECONDS, os._exit, (0,)).start()
    pool.shutdown(wait=True, cancel_futures=True)
    bipbip.settle()
    os._exit(0)


def _close_surplus_connections(runtime_: Runtime) -> None:
    """Close the connections that a burst of actions has left, as long as this process lives."""
    never = threading.Event()
    while not never.wait(IDLE_SECONDS / 2):
        runtime_.database.pool.close_surplus(IDLE_SECONDS)


def handle(runtime_: Runtime, remote: Remote, job_id: int) -> int:
    """Carry out the actions that one job needs, one after the other. Return the exit code."""
    bipbip = Bipbip(runtime_, remote, lambda _: None)
    handled = False
    while True:
        with runtime_.database.begin() as tx:
            jobs = tx.job_runs.in_hand([job_id])
        action = next_action(jobs[0], 0) if jobs else None
        if action is None or action.kind not in LIMITED:
            return 0 if handled else 1
        answer = bipbip.carry_out(action)
        bipbip.settle()
        if answer.failed:
            return 2
        if answer.retry_after is not None:
            threading.Event().wait(answer.retry_after)
        handled = True


def _reserve_stdout() -> BinaryIO:
    """Return a stream to the Runner, and redirect standard output to standard error from now on."""
    stream = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    return stream


def main() -> None:
    worker = sys.argv[1:2] == ["--worker"]
    answers = Answers(_reserve_stdout() if worker else sys.stdout.buffer)
    opened = runtime.open_runtime("bipbip", deliver=answers.deliver if worker else None, is_of_server=True)
    opened.database.gather_topics()
    determine_own_server(opened.config)

    def alarm(node: str) -> None:
        """Request a probe of a node that may have failed, or whose oarexec may have failed."""
        answers.write(Ask(JobAction.PROBE, 0, (node,)))

    settings = RemoteSettings.of(opened.config)
    remote_of = Remote(settings, alarm=alarm) if worker else Remote(settings)
    with logs.logging_to(opened.config, "Bipbip"), remote_of as remote:
        if worker:
            work(opened, remote, answers, sys.stdin.buffer)
        if not sys.argv[1:] or not sys.argv[1].isdigit():
            sys.stderr.write("usage: oar-bipbip JOB_ID\n")
            sys.exit(2)
        with delivering(opened):
            code = handle(opened, remote, int(sys.argv[1]))
    sys.exit(code)


if __name__ == "__main__":
    main()
