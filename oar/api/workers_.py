"""The worker processes of the service: started when they are first needed, replaced when they fail."""

import logging
import queue
import socket
import subprocess
import sys
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING

from oar.api.concurrency import FairPlaces
from oar.api.identity.seats import present_holder
from oar.api.workers.tasks import Outcome, WorkerTask
from oar.lib.facts.errors import Unavailable

if TYPE_CHECKING:
    from oar.lib.runtime import Runtime

_log = logging.getLogger(__name__)

#: Seconds that a request waits for a worker: the thread in which it waits is one that could answer others.
PATIENCE = 5.0
#: Seconds beyond its own limits after which a task counts as lost.
GRACE = 5.0
#: Tasks of one process: what admission rules leave behind in it does not stay for ever.
MOST_TASKS = 500
#: Seconds that a process is given to end.
LAST_SECONDS = 5.0


class WorkerLost(Unavailable):
    """The process that was to do it has ended, or says nothing; nobody knows whether it was done."""


class Workers:
    """A number of worker processes, each of which does one task at a time."""

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
        """Let a worker do a task; ``seconds``: how long it may take.  Raises TooMany, WorkerLost, Unavailable."""
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
        """Let a worker do a task that may take long; one worker is left to short ones, if there are several.

        They count for themselves: who waits for an estimate can submit.  Raises TooMany, WorkerLost, Unavailable.
        """
        holder = present_holder()
        with self._long.place(holder), self._places.place(f"{holder} (long)"):
            return self._done(self._next(), task, seconds)

    @property
    def idle(self) -> int:
        """How many could begin a task now."""
        return self._idle.qsize()

    def close(self) -> None:
        """End all processes, when they have done what they do; nobody gets one any more."""
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
        raise WorkerLost(f"the worker of the service has said nothing for {seconds:g} s: repeat the request")

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
    if process and process.tasks >= MOST_TASKS:
        process.end()
        return None
    return process
