"""Curves of jobs: a bipbip keeps ``node_curves`` running on its nodes with jobs, and stores what they report.

The Runner names the nodes. One thread does everything; the threads that read and open sessions only put messages into
its queue. See docs/design/nodes.rst, "Curves of jobs".
"""

import json
import logging
import queue
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

from oar.lib.base.errors import DatabaseUnavailable
from oar.lib.db.database import Database
from oar.lib.db.transaction import Transaction
from oar.lib.jobs.curves import MIB, PERIOD, GrowingCurve, Sample, sample_of
from oar.lib.jobs.sql_curves import NewPoints, Pair
from oar.lib.logs import of_nodes
from oar.lib.remote.pool import Opened, Remote
from oar.lib.remote.protocol import NodeAction
from oar.lib.remote.requests import NodeRequest, most_watched, needed_connections
from oar.lib.remote.session import Event, Lost, NodeSession, OutputLine, ProgramEnded
from oar.lib.remote.transports import ChannelLost

log = logging.getLogger("bipbip")

#: The points are stored this often, all together.
STORE_SECONDS = PERIOD / 2
#: A program on a node lives no longer than this, in seconds; then another one takes its place.
WATCH_SECONDS = 86400.0
#: Pause before a node that could not be reached, or whose program has ended, is tried again.
AGAIN_SECONDS = 60.0
#: Pause after the program has said that jobs cannot be watched there.
UNABLE_SECONDS = 3600.0
#: A job that no node has reported for this time has ended, or is asked about again.
FORGET_SECONDS = 10 * PERIOD
#: Limits for what a node reports: jobs, and the time that a line may cover.
MOST_JOBS, LONGEST_SECONDS = 4096, 4 * PERIOD
#: The end of a report may differ so much from the begin of the next one, since messages take different times.
JITTER_SECONDS = 3.0
#: The clock of the database is read in whole seconds: a smaller difference is none.
CLOCK_SECONDS = 2.0
#: Largest numbers of the database's columns: thousandths of processors, MiB; use of GPUs, GPUs of a node.
_LARGEST, _MOST_GPUS = 2**31 - 1, 1024
_LIMITS = (_LARGEST, _LARGEST, 1000, _LARGEST)
#: A longer line is no report of our program.
_MOST_CHARACTERS = 1 << 19
#: Invalid reports are logged together, this often, in seconds.
_BAD_REPORTS_SECONDS = 3600.0
#: Of a text of a node, so much is logged.
_SHOWN_CHARACTERS = 200


class Report(NamedTuple):
    """What a node reports: the time that it covers, and what its jobs used."""

    seconds: float
    samples: dict[int, Sample]


def read_report(line: str) -> Report | None:
    """Return the report of a node; None if it is not what our program writes. What exceeds a limit is left out."""
    try:
        content: dict[str, Any] = json.loads(line)
        seconds = float(content["seconds"])
        rows = list.copy(content["jobs"])[:MOST_JOBS]
        if not 0 < seconds <= LONGEST_SECONDS:
            return None
        return Report(seconds, dict(map(partial(_read_row, seconds), rows)))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError):
        return None


def _read_row(seconds: float, row: list[object]) -> tuple[int, Sample]:
    job_id, milliseconds, memory, *gpu = (_number(value) for value in list.copy(row))
    if job_id is None or not 0 < job_id < 2**63 or len(gpu) not in (0, 3):
        raise ValueError(row)
    gpus, use, gpu_memory = gpu or (0, None, None)
    cpu = None if milliseconds is None else round(milliseconds / seconds)
    limited = zip((cpu, _mib(memory), use, _mib(gpu_memory)), _LIMITS, strict=True)
    values = (value if value is None or value <= limit else None for value, limit in limited)
    return job_id, sample_of(values, min(gpus or 0, _MOST_GPUS))


def _number(value: object) -> int | None:
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError(value)
    return value


def _mib(value: int | None) -> int | None:
    return None if value is None else -(-value // MIB)


class _Node:
    """A node that is to be watched."""

    def __init__(self) -> None:
        self.attempt = 0  #: messages of former sessions are ignored
        self.session: NodeSession | None = None
        self.request = 0
        self.is_opening = False
        self.not_before = 0.0
        self.accepted: float | None = None  #: when its last line was put into the queue, by the monotonic clock
        self.jobs: dict[int, float] = {}  #: end of the last report of each job


#: A message of a node: name of the node, number of the attempt, time of arrival, content.
_Message = tuple[str, int, float, Event | Opened]


class CurveCollector:
    """The watched nodes and the curves that grow; ``follow`` may be called from any thread."""

    def __init__(self, database: Database, remote: Remote, data: Callable[[], dict[str, Any]]) -> None:
        """``data``: returns the input of the program on nodes for the present oar.conf."""
        self._database = database
        self._remote = remote
        self._data = data
        self._messages: queue.SimpleQueue[_Message] = queue.SimpleQueue()
        self._wanted: tuple[str, ...] = ()
        self._nodes: dict[str, _Node] = {}
        self._curves: dict[Pair, GrowingCurve | None] = {}  #: None: the job does not have this node
        self._waiting: dict[Pair, list[tuple[float, float, Sample]]] = {}  #: of jobs that are not known yet
        self._offset: float | None = None  #: of the database's clock to the monotonic one
        self._complaints: set[str] = set()  #: that are logged, and whose cause is not over
        self._bad_reports: Counter[str] = Counter()  #: by node, that are not logged yet
        self._bad_report = ("", "")  #: the last one, with its node
        self._next_bad_reports = 0.0

    def follow(self, hosts: tuple[str, ...]) -> None:
        """Watch these nodes from now on, and no others."""
        self._wanted = hosts

    def run(self) -> None:
        """Watch the nodes as long as this process lives."""
        next_turn = time.monotonic()
        while True:
            if (pause := next_turn - time.monotonic()) > 0:  # also while messages come without end
                with suppress(queue.Empty):
                    self._guard("message", self.take, self._messages.get(timeout=pause))
                continue
            next_turn = time.monotonic() + STORE_SECONDS
            self._guard("turn", self.turn)

    def turn(self) -> None:
        """Watch the wanted nodes and no others, and store what has come."""
        now = time.monotonic()
        self._look(now)
        self._log_bad_reports(now)
        try:
            self.store(now)
        except DatabaseUnavailable as error:
            again = f"The next attempt is in {STORE_SECONDS:.0f} s."
            self._complain("database", f"cannot store the curves of jobs: {error}. {again}")
        else:
            self._complaints -= {"database", "turn"}

    def _guard(self, part: str, work: Callable[..., None], *args: object) -> None:
        """Do a part of the work. An exception is logged once: it may not end the thread."""
        try:
            work(*args)
        except Exception as error:  # noqa: BLE001
            self._complain(part, f"the curves of jobs are incomplete: a {part} cannot be handled", error)

    def _complain(self, cause: str, text: str, error: Exception | None = None) -> None:
        """Log a fault, unless it is logged and not over."""
        if cause not in self._complaints:
            log.warning("%s", text, exc_info=error)
        self._complaints.add(cause)

    def _log_bad_reports(self, now: float) -> None:
        if self._bad_reports and now >= self._next_bad_reports:
            node, line = self._bad_report
            number, nodes = self._bad_reports.total(), len(self._bad_reports)
            text = "invalid reports about the usage of jobs were ignored: %d from %d nodes. The last one, from %s: %r"
            of_nodes(log, node).warning(text, number, nodes, node, line)
            self._bad_reports.clear()
            self._next_bad_reports = now + _BAD_REPORTS_SECONDS

    # -- nodes -------------------------------------------------------------------------------------------------------

    def _look(self, now: float) -> None:
        wanted = self._limited(self._wanted)
        for name in self._nodes.keys() - set(wanted):
            self._leave(name)
        for name in wanted:
            node = self._nodes.setdefault(name, _Node())
            if node.session is None and not node.is_opening and now >= node.not_before:
                node.attempt, node.is_opening, node.accepted = node.attempt + 1, True, None
                self._remote.session(name, partial(self._put, name, node.attempt))

    def _limited(self, wanted: tuple[str, ...]) -> tuple[str, ...]:
        """Return the nodes that this process may watch."""
        connections = self._remote.settings.pool_max
        most = most_watched(connections)
        if len(wanted) <= most:
            self._complaints.discard("connections")
            return wanted
        self._complain(
            "connections",
            f"the curves of jobs are recorded on {most} of {len(wanted)} nodes only: OAR_SSH_POOL_MAX is {connections}."
            f" Set it to {needed_connections(len(wanted))} or more.",
        )
        return wanted[:most]

    def _put(self, name: str, attempt: int, message: Event | Opened) -> None:
        """Put a message of a node into the queue; of lines that come too often, only those that are on time."""
        now = time.monotonic()
        if isinstance(message, OutputLine):
            node = self._nodes.get(name)
            if node is None or (node.accepted is not None and now < node.accepted + PERIOD / 2):
                return
            node.accepted = now
            if len(message.text) > _MOST_CHARACTERS:
                message = OutputLine(message.text[:_SHOWN_CHARACTERS])
        self._messages.put((name, attempt, now, message))

    def _leave(self, name: str) -> None:
        node = self._nodes.pop(name)
        self._forget(name, node, float("inf"))
        if node.session is not None:
            node.session.forget(node.request)

    def take(self, item: _Message) -> None:
        """Treat a message of a node."""
        name, attempt, now, message = item
        node = self._nodes.get(name)
        if node is None or node.attempt != attempt:
            return
        match message:
            case NodeSession():
                self._begin(name, node, message)
            case OutputLine(text):
                self._take_line(name, node, now, text)
            case ProgramEnded(code, stderr):
                text = "the curves of jobs on %s are not recorded: node_curves ended with exit code %s: %s"
                of_nodes(log, name).info(text, name, code, stderr.strip()[:_SHOWN_CHARACTERS])
                self._end(node, now + (UNABLE_SECONDS if 0 < code < 128 else AGAIN_SECONDS))
            case Lost():
                self._end(node, now)
            case _ if node.is_opening:
                self._end(node, now + AGAIN_SECONDS)

    def _begin(self, name: str, node: _Node, session: NodeSession) -> None:
        request = NodeRequest("node_curves", NodeAction.WATCH, self._data())
        node.is_opening = False
        try:
            node.request = session.send(request, WATCH_SECONDS, partial(self._put, name, node.attempt))
        except ChannelLost:
            self._end(node, time.monotonic() + AGAIN_SECONDS)
        else:
            node.session = session

    @staticmethod
    def _end(node: _Node, not_before: float) -> None:
        node.session, node.is_opening, node.not_before = None, False, not_before

    # -- reports -----------------------------------------------------------------------------------------------------

    def _take_line(self, name: str, node: _Node, now: float, line: str) -> None:
        """Take a report."""
        report = read_report(line)
        if report is None:
            self._bad_reports[name] += 1
            self._bad_report = name, line[:_SHOWN_CHARACTERS]
            return
        start = now - report.seconds
        for job_id, sample in report.samples.items():
            former = node.jobs.get(job_id)
            if former is None and len(node.jobs) >= MOST_JOBS:
                continue
            node.jobs[job_id] = now
            is_next = former is not None and abs(former - start) < JITTER_SECONDS
            self._add((job_id, name), former if is_next and former is not None else start, now, sample)

    def _add(self, pair: Pair, start: float, end: float, sample: Sample) -> None:
        curve = self._curves.get(pair)
        if curve is not None and self._offset is not None:
            curve.add(start + self._offset, end + self._offset, sample)
        elif pair not in self._curves:
            self._waiting[pair] = [*self._waiting.get(pair, ())[-FORGET_SECONDS // PERIOD :], (start, end, sample)]

    # -- the database ------------------------------------------------------------------------------------------------

    def store(self, now: float) -> None:
        """Store the complete points of all curves."""
        for name, node in self._nodes.items():
            self._forget(name, node, now - FORGET_SECONDS)
        growing = {pair: curve for pair, curve in self._curves.items() if curve is not None and _is_due(curve)}
        if not growing and not self._waiting:
            return
        with self._database.begin() as tx:
            tx.is_asynchronous = True
            self._follow_clock(tx)
            places = tx.job_curves.places(list(self._waiting))
            behind = self._append(tx, growing)
        for pair in behind:
            del self._curves[pair]  # another process writes it, or did: its place is asked for again
        for pair, curve in growing.items():
            if pair not in behind:
                curve.lengthen()
        waiting, self._waiting = self._waiting, {}
        for pair, samples in waiting.items():
            place = places.get(pair)
            self._curves[pair] = GrowingCurve(*place) if place else None
            for start, end, sample in samples:
                self._add(pair, start, end, sample)

    @staticmethod
    def _append(tx: Transaction, growing: dict[Pair, GrowingCurve]) -> set[Pair]:
        """Append the points of curves; return those whose points could not be appended."""
        new = [
            NewPoints(*pair, curve.begin, curve.step, curve.points) for pair, curve in growing.items() if curve.points
        ]
        behind = {(each.job_id, each.node) for each in new} - tx.job_curves.append(new)
        longer = {pair: curve.wanted_step for pair, curve in growing.items() if curve.late and pair not in behind}
        if longer:
            tx.job_curves.lengthen_steps(longer)
        return behind

    def _follow_clock(self, tx: Transaction) -> None:
        offset = tx.now - time.monotonic()
        if self._offset is None or abs(offset - self._offset) > CLOCK_SECONDS:
            self._offset = offset

    def _forget(self, name: str, node: _Node, before: float) -> None:
        """Forget the jobs that a node has not reported since a time."""
        for job_id in [job_id for job_id, heard in node.jobs.items() if heard < before]:
            del node.jobs[job_id]
            self._curves.pop((job_id, name), None)
            self._waiting.pop((job_id, name), None)


def _is_due(curve: GrowingCurve) -> bool:
    return bool(curve.points or curve.late)
