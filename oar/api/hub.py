"""The distribution of events: one thread follows the database, each subscriber has a queue."""

import asyncio
import hashlib
import logging
import secrets
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from oar.api.errors import TooMany
from oar.lib.base.errors import DatabaseUnavailable, Unavailable
from oar.lib.bus.messages import Topic
from oar.lib.history.records import Event, JobStateChange, Position
from oar.lib.history.sql_feed import Feed, News, placed

if TYPE_CHECKING:
    from oar.lib.db.database import Database

_log = logging.getLogger(__name__)

#: Messages in the queue of a subscriber, at most; a slow subscriber loses them and gets ``reset``.
QUEUE = 1000
#: Seconds between two messages for a topic.
FOLD_SECONDS = 1.0
#: Seconds that a client waits for the first position after the start.
BEGIN_SECONDS = 10.0
#: Seconds that the thread waits for news, and after the loss of the database.
_PATIENCE = 5.0

#: Name of the message that the service stops.
BYE = "bye"

Row = JobStateChange | Event
Takes = Callable[[Row], bool]


class Message(NamedTuple):
    """A message for one subscriber."""

    name: str  #: ``state``, ``event``, the name of a topic, ``reset``, ``bye``
    data: Row | dict[str, int]
    position: Position


class Subscriber:
    """A client that receives messages.  Lives on the event loop."""

    def __init__(self, takes: Takes, topics: frozenset[Topic], *, folds: bool = False) -> None:
        """``folds``: at most one message a second for each topic, except for tokens."""
        self.folds = folds
        self._takes = takes
        self._topics = topics
        self._waiting: deque[Message] = deque()
        self._has_messages = asyncio.Event()

    def put(self, messages: Sequence[Message]) -> None:
        """Add the messages that match to the queue."""
        self._waiting.extend(message for message in messages if self.wants(message))
        if len(self._waiting) > QUEUE:
            self._waiting.clear()
            self._waiting.append(Message("reset", {}, messages[-1].position))
        if self._waiting:
            self._has_messages.set()

    async def next(self, seconds: float) -> list[Message]:
        """Return the messages in the queue; wait at most ``seconds`` for the first one."""
        try:
            await asyncio.wait_for(self._has_messages.wait(), seconds)
        except TimeoutError:
            return []
        self._has_messages.clear()
        messages, self._waiting = list(self._waiting), deque()
        return messages

    def wants(self, message: Message) -> bool:
        """Whether a message matches."""
        if isinstance(message.data, dict):
            return message.name in ("reset", BYE) or message.name in self._topics
        return self._takes(message.data)


class Hub:
    """Follows the database in a thread and sends messages to all subscribers."""

    def __init__(self, database: "Database", limit: int, count: Callable[[News], None] = lambda _: None) -> None:
        """``count``: called with all news, in the thread of the hub."""
        self._database = database
        self._count = count
        self._limit = limit
        self._listeners: set[Subscriber] = set()
        self._ends = threading.Event()
        self._thread: threading.Thread | None = None
        self._feed: Feed | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._due: dict[Topic, float] = {}  #: when the next message for a topic is due, by the clock of the loop
        self._late: set[Topic] = set()  #: topics whose messages are sent then
        self.counters: Counter[Topic] = Counter()  #: messages for each topic
        self._has_begun = asyncio.Event()  #: that there is a position
        self.position: Position | None = None  #: of the last messages; None before the first contact to the database
        self.checked_at = 0.0  #: when the database was read last, by the monotonic clock
        self.reports_changes = False  #: whether the database notifies of changes, so that no polling is needed
        self._is_lost = False  #: whether the database did not answer when it was read last

    @property
    def listeners(self) -> int:
        """The number of subscribers."""
        return len(self._listeners)

    def start(self) -> None:
        """Start the thread, for the running event loop."""
        self._loop = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._follow, name="feed", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread, and send ``bye`` to all subscribers.  Not to be called on the event loop."""
        self._ends.set()
        thread, self._thread = self._thread, None
        if thread and self._loop:
            if self._feed:
                self._feed.interrupt()
            thread.join()
            if not self._loop.is_closed():
                self._loop.call_soon_threadsafe(self._send_bye)

    async def begun(self) -> Position:
        """Return the position of the last messages; wait for the first one after the start.  Raises Unavailable."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._has_begun.wait(), BEGIN_SECONDS)
        return self._reached()

    def add(self, listener: Subscriber) -> Position:
        """Add a subscriber; return the position after which it receives messages.  Raises TooMany, Unavailable."""
        position = self._reached()
        if len(self._listeners) >= self._limit:
            limit = f"the limit for all clients is {self._limit} (API_MAX_STREAMS)"
            raise TooMany(f"too many event streams: {limit}. Try again later.")
        self._listeners.add(listener)
        return position

    def _reached(self) -> Position:
        if self.position is None:
            raise Unavailable("the service has just started and has not read the database yet. Try again.")
        if self._is_lost:
            raise DatabaseUnavailable("it did not answer a moment ago")
        return self.position

    def remove(self, listener: Subscriber) -> None:
        """Remove a subscriber."""
        self._listeners.discard(listener)

    def _follow(self) -> None:
        with Feed(self._database) as feed:
            self._feed = feed
            patience = 0.0  # the first look tells that it has begun
            while not self._ends.is_set():
                try:
                    position = feed.begin()
                    news = feed.next(patience)
                except DatabaseUnavailable as error:
                    _log.warning("%s: new events are not distributed", error)
                    self.reports_changes = False
                    self._lose()
                    self._ends.wait(_PATIENCE)
                    continue
                self._call(position, news, feed.is_told)
                self._count_news(news)
                patience = _PATIENCE

    def _lose(self) -> None:
        """Send ``bye`` to all subscribers: they would take silence for a cluster in which nothing happens."""
        assert self._loop
        if not self._is_lost and not self._loop.is_closed():
            self._is_lost = True
            self._loop.call_soon_threadsafe(self._send_bye)

    def _count_news(self, news: News) -> None:
        try:
            if news:
                self._count(news)
        except DatabaseUnavailable as error:
            _log.warning("%s: new events are not counted", error)

    def _call(self, begun: Position, news: News, is_told: bool) -> None:
        assert self._loop
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._publish, begun, news, is_told)

    def _publish(self, begun: Position, news: News, is_told: bool) -> None:
        self.checked_at, self.reports_changes = time.monotonic(), is_told
        self._is_lost = False
        self.position = self.position or begun
        self._has_begun.set()
        if not news:
            return
        self.counters.update(news.topics)
        self.position = news.position
        rows, all_topics = row_messages(news), self._topic_messages(news.topics)
        folded = self._topic_messages(self._due_topics(news.topics))
        self._send([*rows, *all_topics], folded=[*rows, *folded])

    def _due_topics(self, topics: Collection[Topic]) -> Collection[Topic]:
        """Return the topics that are due; messages for the others are sent later."""
        assert self._loop
        now = self._loop.time()
        due = {topic for topic in topics if topic is Topic.TOKENS or now >= self._due.get(topic, now)}
        self._due |= dict.fromkeys(due, now + FOLD_SECONDS)
        late = frozenset(topics) - due
        if late and not self._late:
            self._loop.call_later(FOLD_SECONDS, self._send_late)
        self._late |= late
        return due

    def _send_late(self) -> None:
        topics, self._late = self._late, set()
        self._send([], folded=self._topic_messages(self._due_topics(topics)))

    def _topic_messages(self, topics: Collection[Topic]) -> list[Message]:
        assert self.position
        return [Message(topic, {"counter": self.counters[topic]}, self.position) for topic in sorted(topics)]

    def _send_bye(self) -> None:
        if self.position:
            goodbye = [Message(BYE, {}, self.position)]
            self._send(goodbye, folded=goodbye)

    def _send(self, messages: Sequence[Message], *, folded: Sequence[Message]) -> None:
        """Send messages to all subscribers; ``folded``: instead of them, to those that fold."""
        for listener in tuple(self._listeners):
            listener.put(folded if listener.folds else messages)


def row_messages(news: News) -> list[Message]:
    """Return the rows of news as messages, each with the position after it."""
    return [
        Message("state" if isinstance(row, JobStateChange) else "event", row, position)
        for row, position in placed(news)
    ]


#: Seconds for which an answer counts as the same at most.
MAX_SECONDS = 60
#: Seconds without contact to the database after which no tag is given.
_MAX_SILENCE = 15.0


class StateTags:
    """Makes the tags of the responses of a process."""

    def __init__(self, hub: "Hub") -> None:
        self._hub = hub
        self._start = secrets.token_hex(4)
        self._own = 0

    def count_change(self) -> None:
        """Count a change by this process itself, before the database reports it."""
        self._own += 1

    def of(self, topics: frozenset[Topic], *question: object) -> str:
        """Return the tag of the current state, '' while the database reports no changes.

        ``question``: what responses depend on.

        To be called before anything is read: later commits are reported later.
        """
        hub, now = self._hub, time.monotonic()
        if not hub.reports_changes or now - hub.checked_at > _MAX_SILENCE:
            return ""
        counted = [hub.counters[topic] for topic in sorted(topics)]
        position = hub.position if topics & {Topic.JOBS, Topic.EVENTS} else None
        state = (self._start, self._own, int(now // MAX_SECONDS), counted, position, question)
        return hashlib.blake2b(repr(state).encode(), digest_size=9).hexdigest()
