"""The feed: return each state change and each event exactly once, in order. See docs/design/events.rst, "The feed"."""

import copy
import time
from _thread import allocate_lock  # commands import "threading" only when they need it
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, NamedTuple

from oar.lib.bus.messages import Channel, Topic
from oar.lib.db.channel_listener import ChannelListener
from oar.lib.history.records import Event, JobStateChange, Position
from oar.lib.history.sql_history import Log

if TYPE_CHECKING:
    from oar.lib.db.database import Database
    from oar.lib.db.transaction import Transaction
    from oar.lib.history.sql_history import History

#: Rows of a log that are taken at once.
PIECE = 1000
#: Seconds between two looks: of a feed that is told of changes, of one that nothing tells, of one at a gap.
LOOK_SECONDS, POLL_SECONDS, GAP_SECONDS = 5.0, 2.0, 0.2


class _Gap(NamedTuple):
    """Ids that are used but not visible: their rows become visible at the end of a transaction, or never."""

    last: int  #: the ids up to this one had been drawn when the gap was seen
    writers: frozenset[str]  #: the transactions that may have drawn them


class SettledRows:
    """Track the position below which a log is complete.

    Ids are drawn before the commit, so that rows become visible in any order.
    """

    def __init__(self, log: Log, newest: int, writers: Collection[str]) -> None:
        """Begin after the row ``newest``; ``writers``: the transactions that may still commit older rows."""
        self._log = log
        self._gap: _Gap | None = _Gap(newest, frozenset(writers))
        self.last = newest  #: the last settled row
        self.has_begun = False  #: whether what is older than the first row can be seen

    @property
    def waits(self) -> bool:
        """Whether the end of a transaction must be awaited."""
        return self._gap is not None

    def advance(self, history: "History") -> None:
        """Advance the position as far as the log is complete. Each statement must see all earlier commits."""
        while True:
            if self._gap and history.writers(self._log) & self._gap.writers:
                return
            passable = self._gap.last if self._gap else 0
            self._gap, self.has_begun = None, True
            ids = history.ids_after(self._log, self.last, PIECE)
            self.last = settled(self.last, ids, passable)
            if not ids or self.last == ids[-1]:
                return
            self._gap = _Gap(ids[-1], history.writers(self._log))


def settled(last: int, ids: Sequence[int], passable: int) -> int:
    """Return the id up to which the log is complete.

    ``last``: the previous result; ``ids``: the visible ids after it, ascending; ``passable``: missing ids up to this
    one will never appear.
    """
    for row_id in ids:
        if row_id - 1 > max(last, passable):
            return last
        last = row_id
    return last


class News(NamedTuple):
    """New changes and events, and the position after them."""

    changes: Sequence[JobStateChange]
    events: Sequence[Event]
    topics: frozenset[Topic]  #: what else has changed, as far as somebody tells
    position: Position

    def __bool__(self) -> bool:
        """Return whether there is anything new."""
        return bool(self.changes or self.events or self.topics)


def placed(news: News) -> list[tuple[JobStateChange | Event, Position]]:
    """Return the rows of the news, state changes first, each with the position after it."""
    events = news.events[0].id - 1 if news.events else news.position.event
    states = news.changes[-1].id if news.changes else news.position.state_log
    changes = [(change, Position(change.id, events)) for change in news.changes]
    return [*changes, *((event, Position(states, event.id)) for event in news.events)]


class Feed(ChannelListener):
    """Follow the history from now on, in one thread. It can be used again after DatabaseUnavailable."""

    def __init__(self, database: "Database") -> None:
        super().__init__(database, Channel.EVENT)
        self._logs: tuple[SettledRows, SettledRows] | None = None
        self._read: Position | None = None
        self._told: set[Topic] = set()
        self._has_listened = False

    def listen(self) -> bool:
        """Listen for notifications if possible. After an interruption, all topics count as changed."""
        was_told, is_told = self.is_told, super().listen()
        if is_told and not was_told and self._has_listened:
            self._told |= set(Topic)
        self._has_listened = self._has_listened or is_told
        return is_told

    @property
    def is_told(self) -> bool:
        """Whether the feed receives notifications; otherwise it polls every two seconds."""
        return self._connection is not None

    def begin(self) -> Position:
        """Return the start position. A database read after this call sees everything before the position.

        Raises DatabaseUnavailable.
        """
        while self._read is None:
            self.listen()
            states, events = self._advance()
            if states.has_begun and events.has_begun:
                self._read = Position(states.last, events.last)
            else:
                time.sleep(GAP_SECONDS)
        return self._read

    def next(self, seconds: float) -> News:
        """Return the news; wait for them at most ``seconds`` seconds, or until ``interrupt``.

        Raises DatabaseUnavailable.
        """
        limit = time.monotonic() + seconds
        while True:
            news = self._look()
            left = limit - time.monotonic()
            if news or left <= 0 or self.is_interrupted:
                return news
            self.wait_until(self._hear, min(left, self._pause()))

    def _look(self) -> News:
        read = self.begin()
        self.listen()
        topics, self._told = frozenset(self._told), set()
        states, events = self._advance()
        until = Position(states.last, events.last)
        if until == read:
            return News((), (), topics, read)
        with self._database.snapshot() as tx:
            news = news_between(tx, read, until, topics)
        self._read = news.position
        return news

    def _advance(self) -> tuple[SettledRows, SettledRows]:
        """Advance both logs in a transaction in which each statement sees all earlier commits."""
        with self._database.begin() as tx:
            if self._logs is None:
                newest = tx.history.newest()
                self._logs = (
                    SettledRows(Log.STATES, newest.state_log, tx.history.writers(Log.STATES)),
                    SettledRows(Log.EVENTS, newest.event, tx.history.writers(Log.EVENTS)),
                )
            for rows in self._logs:
                rows.advance(tx.history)
            return self._logs

    def _hear(self, payload: str) -> bool:
        if payload in set(Topic):
            self._told.add(Topic(payload))
        return True

    def _pause(self) -> float:
        if self._logs and any(rows.waits for rows in self._logs):
            return GAP_SECONDS
        return LOOK_SECONDS if self.is_told else POLL_SECONDS


def news_between(tx: "Transaction", after: Position, until: Position, topics: frozenset[Topic] = frozenset()) -> News:
    """Return the complete rows after a position, up to another one, at most ``PIECE`` rows of each log."""
    changes = tx.history.state_changes(after.state_log, until.state_log, PIECE)
    events = tx.events.between(after.event, until.event, PIECE)
    return News(
        changes,
        events,
        topics,
        Position(
            changes[-1].id if len(changes) == PIECE else until.state_log,
            events[-1].id if len(events) == PIECE else until.event,
        ),
    )


class ReservationFeed:
    """Track the position below which the log of advance reservations is complete.

    Threads may share it and do not block each other.
    """

    def __init__(self, database: "Database") -> None:
        self._database = database
        self._lock = allocate_lock()
        self._rows: SettledRows | None = None

    @property
    def pause(self) -> float:
        """The seconds between two polls for new lines."""
        return GAP_SECONDS if self._rows and self._rows.waits else POLL_SECONDS

    def settled(self) -> int | None:
        """Return the last line up to which the log is complete.

        Return None while transactions that were open at the start still run.  Transactions that begin later see all
        lines up to the returned one.  Raises DatabaseUnavailable.
        """
        rows = self._database.look(self._advanced)
        with self._lock:
            if self._rows is None or (rows.has_begun, rows.last) >= (self._rows.has_begun, self._rows.last):
                self._rows = rows
        return rows.last if rows.has_begun else None

    def _advanced(self, tx: "Transaction") -> SettledRows:
        """Return the complete rows now.  Work on a copy, because another thread may advance at the same time."""
        if self._rows is None:
            newest = tx.reservation_logs.last_line()
            rows = SettledRows(Log.RESERVATIONS, newest, tx.history.writers(Log.RESERVATIONS))
        else:
            rows = copy.copy(self._rows)
        rows.advance(tx.history)
        return rows
