"""The worker processes of the service, and their tasks.

A task is a value with all that it needs, its outcome one with all that is answered.  Submissions, estimates and
alterations are tasks: admission rules have limits that only a process has for itself (time, memory, directory,
environment, output).  A worker process runs its tasks one after another in its main thread.
"""

import logging
import queue
import socket
import subprocess
import sys
import traceback
from collections.abc import Mapping
from contextlib import suppress
from http import HTTPStatus
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from starlette.requests import Request

from oar.api.concurrency import FairPlaces, present_holder
from oar.api.errors import (
    OtherVersion,
    error_code,
    error_record,
    internal_error,
    problem_record,
    problem_response,
    status_of,
)
from oar.api.responses import Answer, answer
from oar.lib.base.errors import OarError, Unavailable
from oar.lib.config.files import Config
from oar.lib.db.connections import DatabaseSettings
from oar.lib.db.database import Database
from oar.lib.runtime import delivery
from oar.lib.submission.admission_rules import RuleFailed, RuleOutput, RuleRefused

if TYPE_CHECKING:
    from collections.abc import Sequence

    from oar.lib.bus.messages import Effect
    from oar.lib.runtime import Runtime


class Outcome(NamedTuple):
    """The outcome of a task: the response, and the text for the log."""

    status: int
    record: Mapping[str, Any]
    headers: Mapping[str, str] = {}
    trace: str = ""  #: what went wrong, for the administrator


class Desk:
    """The context of a task: the current configuration, the database, the warnings of the task."""

    def __init__(self, settings: DatabaseSettings) -> None:
        self.config = Config()
        self.database = Database(settings, application="oar:oar-api worker", deliver=self._deliver)
        self.warnings: list[str] = []

    def _deliver(self, effects: "Sequence[Effect]") -> None:
        delivery(self.config, self.warnings.append)(effects)


class WorkerTask(Protocol):
    """A task for a worker."""

    def run(self, desk: Desk) -> Outcome:
        """Run the task.  Raises OarError."""


def outcome_of(task: WorkerTask, desk: Desk) -> Outcome:
    """Run a task and return its outcome, also for errors."""
    desk.warnings.clear()
    try:
        return task.run(desk)
    except OarError as error:
        return problem_of(error)
    except Exception:  # noqa: BLE001 - the client is told that something went wrong, the log what
        return Outcome(HTTPStatus.INTERNAL_SERVER_ERROR, {}, trace=traceback.format_exc())


def problem_of(error: OarError) -> Outcome:
    """Return the outcome of an error; an internal error is described in the log only."""
    if isinstance(error, RuleRefused | RuleFailed):
        return _of_rules(error)
    status = status_of(error)
    if status == HTTPStatus.INTERNAL_SERVER_ERROR:
        return Outcome(status, {}, trace="".join(traceback.format_exception(error)))
    headers = {"ETag": error.tag} if isinstance(error, OtherVersion) else {}
    return Outcome(status, error_record(error, status), headers)


def _of_rules(error: RuleRefused | RuleFailed) -> Outcome:
    """Return the outcome of a refusal or a failure of an admission rule; the log has the trace of a failure."""
    failed = isinstance(error, RuleFailed)
    status = HTTPStatus.INTERNAL_SERVER_ERROR if failed else HTTPStatus.FORBIDDEN
    text = str(error).removeprefix("# Error: ")
    record = problem_record(status, error_code(type(error)), text, output=text_of(error.output))
    return Outcome(status, record, trace=error.trace if isinstance(error, RuleFailed) else "")


def text_of(output: RuleOutput) -> str:
    """Return what admission rules have printed."""
    return output.out + output.err


def answer_of(request: Request, outcome: Outcome) -> Answer:
    """Return the response for the outcome of a task."""
    if outcome.status < HTTPStatus.BAD_REQUEST:
        return answer(outcome.record, status=outcome.status, headers=outcome.headers)
    if not outcome.record:
        return internal_error(request)
    response = problem_response(request, outcome.status, outcome.record)
    response.headers.update(outcome.headers)
    return response


_log = logging.getLogger(__name__)

#: Seconds that a request waits for a worker: it blocks a thread meanwhile.
PATIENCE = 5.0
#: Seconds beyond its time limit after which a task counts as lost.
GRACE = 5.0
#: Tasks of one process, at most: admission rules may leak memory.
MAX_TASKS = 500
#: Seconds that a process is given to end.
LAST_SECONDS = 5.0


class WorkerLost(Unavailable):
    """The process has ended or does not answer; whether the task was done is unknown."""


class Workers:
    """The worker processes, each of which runs one task at a time."""

    def __init__(self, runtime: "Runtime") -> None:
        self._runtime = runtime
        self._idle: queue.LifoQueue[_Process | None] = queue.LifoQueue()  # the one that was used last is the warmest
        self._count: int = runtime.config.api_submission_workers
        for _ in range(self._count):
            self._idle.put(None)
        self._places = FairPlaces(self._count, "all workers of the service are busy: try again in a moment", PATIENCE)
        others = "others are being answered: try again in a moment"
        self._long = FairPlaces(max(1, self._count - 1), others, PATIENCE)
        self._is_closed = False
        self.restarts = 0  #: processes that were replaced, since they were silent or had ended

    def run(self, task: WorkerTask, seconds: float) -> Outcome:
        """Run a task in a worker; ``seconds``: its time limit.  Raises TooMany, WorkerLost, Unavailable."""
        with self._places.place(present_holder()):
            return self._done(self._next(), task, seconds)

    def _next(self) -> "_Process | None":
        """Take the next process.  Raises Unavailable when all have ended."""
        process = self._idle.get()
        if self._is_closed:
            self._idle.put(process)
            raise Unavailable("the service is stopping: try again in a moment")
        return process

    def _done(self, process: "_Process | None", task: WorkerTask, seconds: float) -> Outcome:
        kept: _Process | None = None
        try:
            process = process or _Process(self._runtime)
            outcome = process.ask(self._runtime, task, seconds + GRACE)
            kept = process
        finally:
            self._idle.put(_unless_used_up(kept))
            if process is not kept and process:
                self.restarts += 1
                process.kill()
        if outcome.trace:
            _log.error("a worker failed: %s", outcome.trace)
        return outcome

    def run_long(self, task: WorkerTask, seconds: float) -> Outcome:
        """Run a long task in a worker; one worker is reserved for short tasks, if there are several.

        They count for themselves: who waits for an estimate can submit.  Raises TooMany, WorkerLost, Unavailable.
        """
        holder = present_holder()
        with self._long.place(holder), self._places.place(f"{holder} (long)"):
            return self._done(self._next(), task, seconds)

    @property
    def idle(self) -> int:
        """The number of idle workers."""
        return self._idle.qsize()

    def close(self) -> None:
        """End all processes after their current tasks; no task is accepted any more."""
        self._is_closed = True
        for process in [self._idle.get() for _ in range(self._count)]:
            if process:
                process.end()
            self._idle.put(None)


class _Process:
    """A worker, seen from the service."""

    def __init__(self, runtime: "Runtime") -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            command = [sys.executable, "-I", "-m", "oar.api.worker_process", str(theirs.fileno())]
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()])
        self._connection = Connection(ours.detach())
        self._connection.send(runtime.database.settings)
        self.tasks = 0

    def ask(self, runtime: "Runtime", task: WorkerTask, seconds: float) -> Outcome:
        """Return the outcome of a task.  Raises WorkerLost."""
        self.tasks += 1
        try:
            self._connection.send((runtime.config.changed, task))
            if self._connection.poll(seconds):
                outcome: Outcome = self._connection.recv()
                return outcome
        except (EOFError, OSError):
            raise WorkerLost("the worker of the service has ended: repeat the request with its key") from None
        raise WorkerLost(f"the worker of the service has not responded for {seconds:g} s: repeat the request")

    def kill(self) -> None:
        """End it at once."""
        self._process.kill()
        self._connection.close()
        self._process.wait()

    def end(self) -> None:
        """Let it end."""
        self._connection.close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(LAST_SECONDS)
            return
        self._process.kill()
        self._process.wait()


def _unless_used_up(process: _Process | None) -> _Process | None:
    """Return a process that can go on, None in the place of one that has done enough."""
    if process and process.tasks >= MAX_TASKS:
        process.end()
        return None
    return process
