"""The two forms of a module: a command that runs one pass, or a worker process that runs passes for Almighty.

A module is a function that reads the database and does the due work. Its file ends with

    def main() -> int:
        return worker.main("sarko", run)

See docs/design/bus.rst, "Processes".
"""

import logging
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol, TypeVar

from oar.lib import logs, runtime
from oar.lib.base import processes
from oar.lib.base.errors import ConfigError, DatabaseUnavailable
from oar.lib.bus import frames, sockets
from oar.lib.bus.frames import At, BadFrame, Done, Frame, Hello, Ping, Pong, Renewal, RunPass, StopChild
from oar.lib.bus.messages import Effect, Energy, announcements
from oar.lib.control_delivery import delivering
from oar.lib.db.database import Database
from oar.lib.db.transaction import Transaction
from oar.lib.runtime import Runtime

log = logging.getLogger(__name__)

#: A worker is replaced after so many passes.
PASSES_OF_A_LIFE = 10_000
#: What a worker holds after so many passes is what its work needs.
SETTLING = 3
#: It is not replaced before it holds so many times that: a new process would need it again.
GROWTH = 1.5
#: With so many times its bound it is replaced though there is work to do.
OVERGROWTH = 2

#: A worker in the middle of a pass ends at most so long, in seconds, after its server.
LONGEST_ORPHAN = 8.0

#: Number of items in a transaction: a burst costs few statements, and locks are not held for long.
BATCH_SIZE = 200

T = TypeVar("T")
R = TypeVar("R")

#: Exit codes that no module uses: the database cannot be reached; the pass failed.
UNAVAILABLE = 69
BROKEN = 70
USAGE = 64


class PassResult(Protocol):
    """The result of a pass: its exit code, and the time of the next work."""

    @property
    def code(self) -> int:
        """Return the exit code."""

    @property
    def next(self) -> int | None:
        """Return the Unix time of the next work, None if it is unknown."""


@dataclass(frozen=True, slots=True)
class PassOrder:
    """The order to run a pass.

    ``announce`` is called with the queues that the scheduling pass handles next.
    """

    disable: tuple[str, ...] = ()  #: queues to disable first: rounds failed at them
    announce: Callable[[Sequence[str]], None] = lambda queues: None
    compare: bool = False  #: Finaud only compares the nodes that the servers reach
    goes_on: bool = False  #: what may wait is gone on with between the passes


class Sequel(Protocol):
    """Postponable work of a module: it is done in slices between the passes."""

    def due(self) -> float | None:
        """Return the time in seconds until the next work, None if there is none."""

    def go_on(self) -> None:
        """Do a slice of the work."""


Module = Callable[[Runtime], int | PassResult]
Scheduler = Callable[[Runtime, PassOrder], int | PassResult]
#: Takes an order about nodes' energy that has come between two passes.
TakeOrder = Callable[[Energy], None]


class RoundResult(NamedTuple):
    """The result of a pass, mainly of a scheduling pass."""

    code: int
    next: int | None = None  #: when the next job is to start
    starts: int = 0  #: jobs that start now
    record: Mapping[str, Any] = MappingProxyType({})  #: what the server tells of it


def main(name: str, run: Module) -> int:
    """Run a module as a program, in the form that the command line selects. Return its exit code."""
    return main_of_scheduler(name, lambda opened, order: run(opened))


def main_of_scheduler(
    name: str, run: Scheduler, sequel: Sequel | None = None, take_order: TakeOrder | None = None
) -> int:
    """Run a module that accepts orders as a program. Return its exit code."""
    match sys.argv[1:]:
        case []:
            return one_shot(name, run)
        case ["--worker", endpoint]:
            return serve(name, run, endpoint, sequel, take_order)
    sys.stderr.write(f"usage: {os.path.basename(sys.argv[0])} [--worker ENDPOINT]\n")
    return USAGE


def one_shot(name: str, run: Scheduler) -> int:
    """Run one pass, deliver its effects, and return its exit code."""
    try:
        opened = runtime.open_runtime(name, is_of_server=True)
    except (ConfigError, DatabaseUnavailable) as error:
        sys.stderr.write(f"[ERROR] {error}\n")
        return error.exit_code
    with logs.logging_to(opened.config, logs.camel_case(name)), delivering(opened):
        code = _guarded(run, opened, PassOrder()).code
    opened.close()
    return code


def serve(
    name: str, run: Scheduler, endpoint: str, sequel: Sequel | None = None, take_order: TakeOrder | None = None
) -> int:
    """Run passes until a stop request. Return the exit code."""
    try:
        with sockets.connected(endpoint) as dealer, processes.signals() as signals:
            parent = processes.watch_parent(os.environ)
            if parent is not None:
                parent.limit_life(LONGEST_ORPHAN)
            PassWorker(name, run, dealer, sequel, take_order).work(signals, parent)
            return 0
    except (ConfigError, DatabaseUnavailable) as error:
        sys.stderr.write(f"{error}\n")
        return UNAVAILABLE


class PassWorker:
    """A worker process: wait for orders and run passes."""

    def __init__(
        self,
        name: str,
        run: Scheduler,
        dealer: sockets.Dealer,
        sequel: Sequel | None = None,
        take_order: TakeOrder | None = None,
    ) -> None:
        self._name = name
        self._take_order = take_order
        self._sequel = sequel
        self._run = run
        self._dealer = dealer
        self._lifetime = Lifetime()
        self._is_over = False
        self._path = runtime.conf_file()
        self._runtime = runtime.open_runtime(name, self._path, self._deliver, is_of_server=True)
        logs.set_up(self._runtime.config, logs.camel_case(name))

    def work(self, signals: processes.Signals, parent: processes.ParentWatch | None) -> None:
        """Handle the frames of the server, one after the other, until a stop request."""
        poll = sockets.Poll(self._dealer, signals, *([parent] if parent else []))
        self._tell(Hello(self._name, os.getpid()))
        while not (self._is_over or signals.stop):
            due = self._sequel.due() if self._sequel else None
            ready = poll.wait(due)
            signals.clear()
            if self._sequel and due == 0 and not ready:
                self._sequel.go_on()
            if parent in ready:
                log.info("the server is gone")
                break
            for data in self._dealer.receive():
                self._take(data)
        self._runtime.close()

    def _take(self, data: bytes) -> None:
        try:
            frame = frames.decode(data)
        except BadFrame as error:
            log.warning("bad frame from the server: %s", error)
            return
        match frame:
            case RunPass():
                self._pass(frame)
            case Ping():
                self._tell(Pong())
            case StopChild():
                self._is_over = True
            case Energy() if self._take_order:
                self._take_order(frame)
            case _:
                log.warning("unexpected frame %s", type(frame).__name__)

    def _pass(self, order: RunPass) -> None:
        self._follow_configuration()
        goes_on = self._sequel is not None
        pass_order = PassOrder(
            order.disable, lambda queues: self._tell(At(tuple(queues))), order.compare, goes_on=goes_on
        )
        result = _guarded(self._run, self._runtime, pass_order)
        most = memory_of_machine() * self._runtime.config.module_max_memory / 100
        renewal = self._lifetime.renewal(resident_bytes(), most)
        self._tell(Done(order.id, result.code, result.next, renewal, result.starts, dict(result.record)))

    def _follow_configuration(self) -> None:
        """Reload oar.conf if the file has changed. An invalid file is ignored."""
        if self._runtime.changed_config() is None:
            return
        self._runtime.close()
        self._runtime = runtime.open_runtime(self._name, self._path, self._deliver, is_of_server=True)
        logs.set_up(self._runtime.config, logs.camel_case(self._name))
        log.info("the configuration was read again")

    def _deliver(self, effects: Sequence[Effect]) -> None:
        for message in announcements(effects):
            self._tell(message)

    def _tell(self, frame: Frame) -> None:
        if not self._dealer.send(frames.encode(frame)):
            log.warning("the server does not take %s", type(frame).__name__)


class Lifetime:
    """Decide after each pass whether to replace a worker. The data that a worker keeps makes its next pass cheaper."""

    def __init__(self) -> None:
        self._passes = 0
        self._needed = 0  #: bytes that its work needs

    def renewal(self, held: int, most: float) -> Renewal:
        """Return whether to renew a process that uses ``held`` bytes after a pass.

        ``most``: limit in bytes, 0 for none.
        """
        self._passes += 1
        if self._passes <= SETTLING:
            self._needed = max(self._needed, held)
        bound = max(most, GROWTH * self._needed) if most > 0 else float("inf")
        if held >= OVERGROWTH * bound:
            return Renewal.NOW
        is_spent = held >= bound or self._passes >= PASSES_OF_A_LIFE
        return Renewal.WHEN_IDLE if is_spent else Renewal.NONE


def _guarded(run: Scheduler, opened: Runtime, order: PassOrder) -> RoundResult:
    """Run a pass. An exception is logged and converted to an exit code."""
    try:
        result = run(opened, order)
    except DatabaseUnavailable as error:
        log.error("the pass broke off: %s", error)
        return RoundResult(UNAVAILABLE)
    except Exception:  # no error of a pass may end the worker
        log.exception("the pass broke off")
        return RoundResult(BROKEN)
    if isinstance(result, RoundResult):
        return result
    return RoundResult(result) if isinstance(result, int) else RoundResult(result.code, result.next)


def memory_of_machine() -> int:
    """Return the physical memory of this machine in bytes."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def resident_bytes() -> int:
    """Return the resident memory of this process in bytes."""
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def run_in_batches(
    database: "Database",
    items: Sequence[T],
    work: "Callable[[Transaction, Sequence[T]], R]",
    batch_size: int = BATCH_SIZE,
) -> list[R]:
    """Run ``work`` on all items, one batch per transaction. Return the result of each transaction.

    If a batch fails, each of its items gets its own transaction. An item that fails alone is logged and skipped. Raises
    DatabaseUnavailable.
    """
    results: list[R] = []
    for start in range(0, len(items), batch_size):
        batch = items[start : start + batch_size]
        try:
            results.append(_run(database, batch, work))
        except DatabaseUnavailable:
            raise
        except Exception as error:
            if len(batch) == 1:
                log.error("cannot treat %s", batch[0], exc_info=error)
            else:
                log.warning("cannot treat %d together, now one by one: %s", len(batch), error)
                results += run_in_batches(database, batch, work, batch_size=1)
    return results


def _run(database: "Database", batch: Sequence[T], work: "Callable[[Transaction, Sequence[T]], R]") -> R:
    return database.run(lambda tx: work(tx, batch))
