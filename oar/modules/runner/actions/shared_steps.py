"""Combine steps of many actions in one transaction.

A launch or an end has several steps in the database, with work on nodes between them. While a step of one kind runs,
new steps of the same kind wait and share the next transaction. So a single step is never delayed, and a burst of jobs
needs only a few transactions. Otherwise each step would have its own transaction and its own wait for the disk.

A step waits only a short time for others, even if another process has locked one of the jobs. A step without a waiting
thread is done soon, together with all steps that arrive until then.

See docs/design/launch.rst, "Steps".
"""

import logging
import threading
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar, cast

from oar.lib.base.errors import DatabaseUnavailable
from oar.lib.db.database import Database
from oar.lib.db.transaction import Transaction

log = logging.getLogger("bipbip")

#: So many steps share a transaction at most: its locks are short.
STEPS_AT_A_TIME = 50
#: A step waits so long, in seconds, for the transaction before it; a shared one waits as long for each lock.
PATIENCE = 0.1
#: A step that nobody waits for is done within so long, in seconds.
SOON = 1.0

Item = TypeVar("Item")
Result = TypeVar("Result")

#: What a kind of step does for several jobs: the results are in the order of the items.
Step = Callable[[Transaction, Sequence[Item]], Sequence[Result]]


class _Turn:
    """A step with its result, and the state of its waiting thread."""

    def __init__(self, item: Any) -> None:
        self.item = item
        self.is_taken = False  #: it is in a transaction
        self.is_alone = False  #: the transaction with others has failed
        self.is_over = False
        self.result: Any = None
        self.error: Exception | None = None


class _Queue(Generic[Item, Result]):
    def __init__(self, database: Database, step: Step[Item, Result], *, only_reads: bool) -> None:
        self._database = database
        self._step = step
        self._only_reads = only_reads
        self._changed = threading.Condition()
        self._waiting: list[_Turn] = []
        self._unhurried: list[_Turn] = []  #: nobody waits for them
        self._under_way = 0  #: transactions

    def do(self, item: Item) -> Result:
        turn = _Turn(item)
        with self._changed:
            self._waiting.append(turn)
        while not turn.is_taken:
            with self._changed:
                self._changed.wait_for(lambda: turn.is_taken or not self._under_way, PATIENCE)
                turns = [] if turn.is_taken else self._take()
            if turns:
                self._do(turns)
        with self._changed:
            self._changed.wait_for(lambda: turn.is_over or turn.is_alone)
        if turn.is_alone:
            self._do([turn])
        if turn.error is not None:
            raise turn.error
        return cast(Result, turn.result)

    def do_soon(self, item: Item) -> None:
        with self._changed:
            self._unhurried.append(_Turn(item))
            if len(self._unhurried) == 1:
                timer = threading.Timer(SOON, self.settle)
                timer.daemon = True
                timer.start()

    def settle(self) -> None:
        while turns := self._take_unhurried():
            self._do(turns)
            for turn in turns:
                if turn.is_alone:
                    self._do([turn])
                if turn.error is not None:
                    log.info("%s is not done: %s", getattr(self._step, "__name__", "a step"), turn.error)

    def _take_unhurried(self) -> list[_Turn]:
        with self._changed:
            turns, self._unhurried = self._unhurried[:STEPS_AT_A_TIME], self._unhurried[STEPS_AT_A_TIME:]
            self._under_way += bool(turns)
        return turns

    def _take(self) -> list[_Turn]:
        """Take the waiting steps of one transaction. The caller must have locked the queue."""
        turns, self._waiting = self._waiting[:STEPS_AT_A_TIME], self._waiting[STEPS_AT_A_TIME:]
        for turn in turns:
            turn.is_taken = True
        self._under_way += 1
        return turns

    def _do(self, turns: Sequence[_Turn]) -> None:
        """Do steps in one transaction.

        If it fails, each thread repeats its own step, so one error does not affect the others.
        """
        are_alone = turns[0].is_alone
        try:
            self._transact(turns)
        except DatabaseUnavailable as error:
            for turn in turns:
                turn.error = error
        except Exception as error:  # noqa: BLE001 - it is raised again in the thread of the step
            turns[0].error = error if len(turns) == 1 else None
            for turn in turns:
                turn.is_alone = len(turns) > 1
        with self._changed:
            for turn in turns:
                turn.is_over = are_alone or not turn.is_alone
            self._under_way -= not are_alone
            self._changed.notify_all()

    def _transact(self, turns: Sequence[_Turn]) -> None:
        items = [turn.item for turn in turns]
        if self._only_reads:
            results = self._database.look(lambda tx: self._step(tx, items))
        else:
            with self._database.begin(is_brief=len(turns) > 1) as tx:
                results = self._step(tx, items)
        for turn, result in zip(turns, results, strict=True):
            turn.result = result


class SharedSteps:
    """The queues of steps of a process, by kind."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._mutex = threading.Lock()
        self._queues: dict[Any, _Queue[Any, Any]] = {}

    def do(self, step: Step[Item, Result], item: Item) -> Result:
        """Do a step of one job. Return its result after the commit. Raises the exceptions of the step."""
        return self._queue(step).do(item)

    def look(self, step: Step[Item, Result], item: Item) -> Result:
        """Do a step that only reads, without BEGIN and COMMIT: its statements read data that no longer change.

        Raises the exceptions of the step.
        """
        return self._queue(step, only_reads=True).do(item)

    def do_soon(self, step: Step[Item, Result], item: Item) -> None:
        """Do a step of one job soon, in the background. The step may be lost if this process ends."""
        self._queue(step).do_soon(item)

    def settle(self) -> None:
        """Do all postponed steps now."""
        with self._mutex:
            queues = list(self._queues.values())
        for queue in queues:
            queue.settle()

    def _queue(self, step: Step[Item, Result], *, only_reads: bool = False) -> _Queue[Item, Result]:
        with self._mutex:
            return self._queues.setdefault(step, _Queue(self._database, step, only_reads=only_reads))
