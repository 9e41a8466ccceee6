"""The supervisor: start the children of Almighty, order passes, monitor and replace children. It never blocks.

A child is DOWN until it is needed, STARTING until its hello, IDLE or BUSY with a pass, and ENDING after a stop request.
It is RENEWING while its process ends and will be replaced, which is not a failure. A failed pass becomes a ``PassEnd``
without a code, for the automaton.
"""

import logging
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from oar.lib.base import processes
from oar.lib.base.processes import ChildProcess, Lifeline
from oar.lib.bus import sockets
from oar.lib.bus.frames import Done, Frame, Hello, Ping, Renewal, RunPass, StopChild

log = logging.getLogger(__name__)

PING_PERIOD = 10.0
#: Seconds from SIGTERM to SIGKILL.
KILL_AFTER = 10.0
#: A child that is to be renewed when idle has had no pass for so long, in seconds, and expects none for so long.
QUIET = 5.0
DUE_SOON = 30.0

Send = Callable[[bytes, Frame], bool]


class State(StrEnum):
    DOWN = "down"
    STARTING = "starting"
    IDLE = "idle"
    BUSY = "busy"
    ENDING = "ending"
    RENEWING = "renewing"


@dataclass(frozen=True, slots=True)
class ChildProgram:
    """The program of a child, and its time limits in seconds."""

    name: str
    argv: tuple[str, ...]
    hello: float = 60.0  #: from its start to its hello
    longest_pass: float = 600.0
    missed_pings: int = 3  #: so many pings without answer mean that it hangs
    one_shot: tuple[str, ...] = ()  #: the command for a single pass, used if the child never says hello


@dataclass(frozen=True, slots=True)
class PassEnd:
    """The end of a pass. ``code`` is None if the pass failed with ``error``."""

    name: str
    code: int | None
    next: int | None = None
    error: str = ""
    starts: int = 0  #: jobs that a round has started
    record: Mapping[str, Any] = field(default_factory=dict)  #: what is told of a round


@dataclass(slots=True)
class SupervisedChild:
    """A child: its program, its process if it is running, and its pass."""

    program: ChildProgram
    state: State = State.DOWN
    since: float = 0.0  #: of the state
    child: ChildProcess | None = None
    identity: bytes = b""
    order: tuple[str, ...] | None = None  #: the queues to disable of its running or next pass; None: it has no pass
    compares: bool = False  #: Finaud only compares the nodes that the servers reach in this pass
    run_id: int = 0
    missed: int = 0
    next_ping: float = 0.0
    renew_at: float = float("inf")  #: if it has no pass until then
    starts: int = 0
    is_one_shot: bool = False  #: it cannot run as a worker
    error: str = ""  #: why the supervisor ends it
    last_code: int | None = None  #: exit code of its last process
    began_again: bool = False  #: its process ended for a replacement when it got this pass


class Supervisor:
    """All children by name."""

    def __init__(
        self, programs: Sequence[ChildProgram], environment: Mapping[str, str], poll: sockets.Poll, send: Send
    ) -> None:
        self.workers = {program.name: SupervisedChild(program) for program in programs}
        self._environment = environment
        self._poll = poll
        self._send = send
        self._lifeline = Lifeline()
        self._last_run = 0
        self._ended: list[PassEnd] = []
        self._polled: set[ChildProcess] = set()
        self._is_stopping = False

    # -- orders --

    def start(self, name: str, now: float) -> None:
        """Start a child that is down. Start a one-shot child only if it has a pass to run."""
        worker = self.workers[name]
        if worker.state is not State.DOWN or self._is_stopping or (worker.is_one_shot and worker.order is None):
            return
        argv = worker.program.one_shot if worker.is_one_shot else worker.program.argv
        try:
            worker.child = ChildProcess(argv, environment=self._environment, lifeline=self._lifeline)
        except OSError as error:
            self._fail(worker, f"cannot start {argv[0]}: {error.strerror}", now)
            return
        worker.starts += 1
        worker.error = ""
        worker.missed = 0
        worker.renew_at = float("inf")
        self._poll.add(worker.child)
        self._polled.add(worker.child)
        self._enter(worker, State.BUSY if worker.is_one_shot else State.STARTING, now)

    def give(self, name: str, disable: tuple[str, ...], now: float, *, compare: bool = False) -> None:
        """Order a pass from a child, to run as soon as possible."""
        worker = self.workers[name]
        worker.order, worker.compares = disable, compare
        worker.began_again = False
        if worker.state is State.IDLE:
            self._run(worker, now)
        else:
            self.start(name, now)

    def retire(self, name: str, error: str, now: float, number: int = signal.SIGTERM) -> None:
        """End a child because of an error, '' if there is none. It is started again when it is needed."""
        worker = self.workers[name]
        if worker.child is not None and worker.state not in (State.ENDING, State.RENEWING):
            worker.error = error
            worker.child.send_signal(number)
            self._enter(worker, State.ENDING, now)

    def stop_all(self, now: float) -> None:
        """Request all children to end."""
        self._is_stopping = True
        for worker in self.workers.values():
            worker.order = None
            if not (worker.identity and self._send(worker.identity, StopChild())):
                self.retire(worker.program.name, "", now)

    def close(self) -> None:
        """Kill and reap the remaining children."""
        self.end_all()
        self._lifeline.close()

    def end_all(self) -> None:
        """Kill and reap the remaining children."""
        for worker in self.workers.values():
            if worker.child is not None:
                self._forget(worker)

    # -- messages of children --

    def hello(self, sender: bytes, frame: Hello, now: float) -> None:
        """Handle the hello of a child. Stop an unknown process, or a child that is being ended."""
        worker = self.workers.get(frame.name)
        is_ours = worker is not None and worker.child is not None and worker.child.pid == frame.pid
        if not is_ours:
            log.warning("%s with pid %d is not a child of this server", frame.name, frame.pid)
        if worker is None or not is_ours or worker.state is not State.STARTING:
            self._send(sender, StopChild())
            return
        worker.identity = sender
        worker.next_ping = now + PING_PERIOD
        self._enter(worker, State.IDLE, now)
        if worker.order is not None:
            self._run(worker, now)

    def done(self, sender: bytes, frame: Done, now: float) -> None:
        """Handle the end of a pass. Renew the child if it requests this."""
        worker = self.of(sender)
        if worker is None or worker.state is not State.BUSY or worker.run_id != frame.id:
            return
        worker.order = None
        self._enter(worker, State.IDLE, now)
        name = worker.program.name
        self._ended.append(PassEnd(name, frame.code, frame.next, starts=frame.starts, record=frame.record))
        worker.renew_at = float("inf")
        if frame.renewal is Renewal.NOW:
            self._renew(worker, now)
        elif frame.renewal is Renewal.WHEN_IDLE and (frame.next is None or frame.next - time.time() >= DUE_SOON):
            worker.renew_at = now + QUIET

    def pong(self, sender: bytes) -> None:
        """Handle the answer to a ping."""
        worker = self.of(sender)
        if worker is not None:
            worker.missed = 0

    def of(self, sender: bytes) -> SupervisedChild | None:
        """Return the child that sent a message."""
        return next((worker for worker in self.workers.values() if sender and worker.identity == sender), None)

    def read(self, child: ChildProcess) -> None:
        """Log the output of a child."""
        name = next((worker.program.name for worker in self.workers.values() if worker.child is child), "")
        for line in child.read():
            log.info("%s: %s", name, line)
        if child.is_silent:
            self._unpoll(child)

    # -- time --

    def tick(self, now: float) -> list[PassEnd]:
        """Reap children, end those that exceed their time limits, ping idle ones. Return the passes that have ended."""
        for worker in self.workers.values():
            if worker.child is None:
                continue
            code = worker.child.poll()
            if code is not None:
                self._gone(worker, code, now)
            elif now >= self._deadline(worker):
                self._out_of_time(worker, worker.child, now)
        ended, self._ended = self._ended, []
        return ended

    def next_look(self) -> float:
        """Return when ``tick`` has work if no event arrives before."""
        return min((self._deadline(worker) for worker in self.workers.values()), default=float("inf"))

    def are_down(self) -> bool:
        """Return whether no child is running."""
        return all(worker.child is None for worker in self.workers.values())

    # -- internal --

    def _enter(self, worker: SupervisedChild, state: State, now: float) -> None:
        worker.state = state
        worker.since = now

    def _deadline(self, worker: SupervisedChild) -> float:
        match worker.state:
            case State.STARTING:
                return worker.since + worker.program.hello
            case State.BUSY:
                return worker.since + worker.program.longest_pass
            case State.ENDING | State.RENEWING:
                return worker.since + KILL_AFTER
            case State.IDLE:
                return min(worker.next_ping, worker.renew_at)
            case State.DOWN:
                return float("inf")

    def _run(self, worker: SupervisedChild, now: float) -> None:
        self._last_run += 1
        worker.run_id = self._last_run
        worker.missed = 0
        self._enter(worker, State.BUSY, now)
        if self._send(worker.identity, RunPass(worker.run_id, worker.order or (), worker.compares)):
            return
        if worker.began_again:
            self.retire(worker.program.name, "it does not read", now)
        else:
            worker.began_again = True  # the process has just ended: a new one runs the pass
            self._renew(worker, now)

    def _renew(self, worker: SupervisedChild, now: float) -> None:
        """Replace the process of a child. The new process runs a pass that is ordered meanwhile."""
        log.info("%s is renewed (process %d)", worker.program.name, worker.child.pid if worker.child else 0)
        if worker.child is not None and not self._send(worker.identity, StopChild()):
            worker.child.send_signal(signal.SIGTERM)
        self._enter(worker, State.RENEWING, now)

    def _out_of_time(self, worker: SupervisedChild, child: ChildProcess, now: float) -> None:
        name = worker.program.name
        match worker.state:
            case State.STARTING if worker.program.one_shot:
                child.send_signal(signal.SIGKILL)  # it cannot run as a worker
            case State.STARTING:
                self.retire(name, "it sent no hello", now)
            case State.BUSY:
                self.retire(name, f"its pass takes longer than {worker.program.longest_pass:.0f} s", now)
            case State.ENDING | State.RENEWING:
                child.send_signal(signal.SIGKILL)
                self._enter(worker, worker.state, now)
            case _ if now >= worker.renew_at:
                self._renew(worker, now)
            case _ if worker.missed >= worker.program.missed_pings:
                self.retire(name, "it does not answer", now, signal.SIGKILL)
            case _:
                worker.missed += 1
                worker.next_ping = now + PING_PERIOD
                self._send(worker.identity, Ping())

    def _gone(self, worker: SupervisedChild, code: int, now: float) -> None:
        """Reap a child. Decide the consequences for its pass."""
        state, order = worker.state, worker.order
        worker.last_code = code
        output = self._forget(worker)
        if state is State.STARTING and worker.program.one_shot:
            worker.is_one_shot = True
            self.start(worker.program.name, now)
        elif state is State.RENEWING:
            self.start(worker.program.name, now)
        elif state is State.BUSY and worker.is_one_shot and code >= 0:
            worker.order = None
            self._ended.append(PassEnd(worker.program.name, code))
        elif code == 0 and state is State.BUSY and not worker.began_again:
            worker.began_again = True  # due for replacement, it ended before it received the order
            self.start(worker.program.name, now)
        elif code != 0 or order is not None:
            self._fail(worker, f"{worker.error or 'it ended'} ({processes.describe_exit(code)})", now, output)

    def _fail(self, worker: SupervisedChild, error: str, now: float, output: str = "") -> None:
        """Log the failure of a child. If it has a pass, the pass has failed."""
        name = worker.program.name
        if not self._is_stopping:
            log.error("%s: %s%s", name, error, f": {output}" if output else "")
        if worker.order is not None:
            worker.order = None
            self._ended.append(PassEnd(name, None, error=error))
        self._enter(worker, State.DOWN, now)

    def _forget(self, worker: SupervisedChild) -> str:
        """Reap the process of a child and close its streams. Return the end of its output."""
        child, worker.child = worker.child, None
        worker.identity = b""
        worker.state = State.DOWN
        if child is None:
            return ""
        output = child.last_output()
        self._unpoll(child)
        child.close()
        return output

    def _unpoll(self, child: ChildProcess) -> None:
        if child in self._polled:
            self._polled.remove(child)
            self._poll.remove(child)
