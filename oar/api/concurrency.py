"""What all requests share, and how much of it each client has: threads, requests in progress, bytes, streams, rates."""

import asyncio
import math
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Hashable, Iterator
from concurrent.futures import Future
from contextlib import ExitStack, asynccontextmanager, contextmanager
from contextvars import ContextVar
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from starlette.concurrency import run_in_threadpool

from oar.api.errors import Allowance, TooMany, TooOften

if TYPE_CHECKING:
    from oar.lib.config.files import Config


class UnderWay:
    """Counts long responses and other things in progress, in total and for each client."""

    def __init__(
        self, what: str, most_of_a_client: int = 0, key: str = "", multiples: tuple[int, int] = (0, 0), unit: str = ""
    ) -> None:
        """``key``: of oar.conf, on which the limit of all clients depends, and that of one if it changes.

        ``multiples``: of its value, which are the limits of one client and of all; 0 = its value itself.
        """
        self._what = what
        self._multiples = multiples
        self._unit = unit
        self._keys = [
            f"{unit} ({f'{multiple} x ' if multiple else ''}{key})" if key else unit for multiple in multiples
        ]
        self._most_of_a_client = most_of_a_client
        self._by_client: Counter[str] = Counter()
        self._mutex = threading.Lock()

    def limits(self, value: int) -> tuple[int, int]:
        """Return the limit of all clients and that of one for a value of the key."""
        of_one, of_all = (multiple * value for multiple in self._multiples)
        return of_all, of_one

    @property
    def total(self) -> int:
        """The number of all clients together."""
        return self._by_client.total()

    @contextmanager
    def one_more(self, client: str, limit: int, most_of_a_client: int | None = None) -> Iterator[None]:
        """Count one while the block lasts; ``most_of_a_client``: a part of a number that changes.  Raises TooMany."""
        self.add(client, 1, limit, most_of_a_client or self._most_of_a_client)
        try:
            yield
        finally:
            self.remove(client, 1)

    def add(self, client: str, number: int, most: int, part: int) -> None:
        """Count some more, until they are removed.  Raises TooMany."""
        with self._mutex:
            if self._by_client[client] + number > part:
                limit = f"the limit for one client is {part}{self._unit if self._most_of_a_client else self._keys[0]}"
                raise TooMany(f"too many {self._what}: {client}: {limit}. Try again when a request has ended.")
            if self._by_client.total() + number > most:
                limit = f"the limit for all clients is {most}{self._keys[1]}"
                raise TooMany(f"too many {self._what}: {limit}. Try again later.")
            self._by_client[client] += number

    def remove(self, client: str, number: int) -> None:
        """Remove a number from the count of a client."""
        with self._mutex:
            self._by_client[client] -= number
            if not self._by_client[client]:
                del self._by_client[client]


class InTurn:
    """Serializes work for each client, however many requests it sends at once."""

    def __init__(self, what: str, patience: float) -> None:
        """``patience``: seconds that a request waits for the previous one."""
        self._what = what
        self._patience = patience
        self._busy: set[str] = set()
        self._changed = threading.Condition()

    @contextmanager
    def turn(self, client: str) -> Iterator[None]:
        """Let the block be the only one of a client.  Raises TooOften."""
        with self._changed:
            if not self._changed.wait_for(lambda: client not in self._busy, self._patience):
                raise TooOften(f"another {self._what} of yours is in progress: the limit is 1. Try again later.", 1)
            self._busy.add(client)
        try:
            yield
        finally:
            with self._changed:
                self._busy.discard(client)
                self._changed.notify_all()


class _Waiter(NamedTuple):
    """A request for a place; the future is done when the place is given."""

    holder: str
    place: Future[None]


class FairPlaces:
    """A semaphore that is fair to its holders, such as the clients that share the threads of the API.

    A holder gets another place only while it has fewer places than are free: a single holder has at most half of them.
    The holder with the fewest places is served first; among equals, the one that has waited longest.
    """

    def __init__(self, number: int, refusal: str = "", patience: float = 0.0) -> None:
        """``refusal``: the message of TooMany, raised after ``patience`` seconds in ``place``."""
        self.number = number  #: may change
        self._refusal = refusal
        self._patience = patience
        self._held: Counter[str] = Counter()
        self._waiting: list[_Waiter] = []
        self._mutex = threading.Lock()

    @property
    def busy(self) -> int:
        """The number of places in use."""
        return self._held.total()

    @contextmanager
    def place(self, holder: str) -> Iterator[None]:
        """Hold a place while the block lasts, in a thread.  Raises TooMany."""
        waiter = self._ask(holder)
        try:
            try:
                waiter.place.result(self._patience)
            except TimeoutError:
                raise TooMany(self._refusal) from None
            yield
        finally:
            self._leave(waiter)

    @asynccontextmanager
    async def awaited(self, holder: str) -> AsyncIterator[None]:
        """Hold a place while the block lasts, on the event loop; the wait for it is not limited."""
        waiter = self._ask(holder)
        try:
            if not waiter.place.done():
                await asyncio.wrap_future(waiter.place)
            yield
        finally:
            self._leave(waiter)

    def _ask(self, holder: str) -> _Waiter:
        waiter = _Waiter(holder, Future())
        with self._mutex:
            self._waiting.append(waiter)
            self._give()
        return waiter

    def _leave(self, waiter: _Waiter) -> None:
        with self._mutex:
            if waiter.place.cancel():  # it has never been given
                self._waiting = [other for other in self._waiting if other is not waiter]
            else:
                self._held[waiter.holder] -= 1
                if not self._held[waiter.holder]:
                    del self._held[waiter.holder]
            self._give()

    def _give(self) -> None:
        while entitled := [
            waiting for waiting in self._waiting if self._held[waiting.holder] < self.number - self.busy
        ]:
            first = min(entitled, key=lambda waiting: self._held[waiting.holder])
            self._waiting = [waiting for waiting in self._waiting if waiting is not first]
            if first.place.set_running_or_notify_cancel():
                self._held[first.holder] += 1
                first.place.set_result(None)


T = TypeVar("T")

#: Complete requests for each thread, and bodies that have not come yet, at most: of one client or user, and of all.
WAITING_FOR_A_THREAD, ALL_WAITING_FOR_A_THREAD = 8, 32
ARRIVING_FOR_A_THREAD, ALL_ARRIVING_FOR_A_THREAD = 2, 8
#: The bytes of bodies that are kept until they are answered, as a multiple of the largest body.
BYTES_OF_A_CLIENT, ALL_BYTES = 4, 16
#: The clients behind a proxy that hides their addresses wait for threads as this many clients: they share 4/5 of them.
CLIENTS_OF_A_CROWD = 4


class Places:
    """The resources that all requests share."""

    def __init__(self, threads: int) -> None:
        self.threads = FairPlaces(threads)
        arriving = (ARRIVING_FOR_A_THREAD, ALL_ARRIVING_FOR_A_THREAD)
        waiting = (WAITING_FOR_A_THREAD, ALL_WAITING_FOR_A_THREAD)
        self.arriving = UnderWay("unfinished requests", key="API_THREADS", multiples=arriving)
        self.complete = UnderWay("requests in progress", key="API_THREADS", multiples=waiting)
        bodies = (BYTES_OF_A_CLIENT, ALL_BYTES)
        self.bytes = UnderWay("request bodies in progress", key="API_MAX_BODY", multiples=bodies, unit=" bytes")
        self.of_users = UnderWay("requests in progress", key="API_THREADS", multiples=waiting)
        self._turns = count()

    def part_of_crowd(self, client: str) -> str:
        """Return the holder for the next request of clients that share an address."""
        return f"{client} ({next(self._turns) % CLIENTS_OF_A_CROWD})"


class Seat:
    """The share of one request in these resources; a request that waits without a thread gives it back early."""

    def __init__(self, places: Places, client: str, threads: int, *, is_one_of_many: bool = False) -> None:
        """``is_one_of_many``: other clients look like this one."""
        self._places = places
        self._client = client
        self._threads = threads
        self._held = ExitStack()
        self._bytes = 0
        self._is_counted = False  # that its user holds it
        #: Who has what this request takes of what all share: its client, and its user once he is known.
        self.holder = places.part_of_crowd(client) if is_one_of_many else client

    def wait_for_body(self) -> None:
        """Count a request whose body has not been received yet.  Raises TooMany."""
        self._hold(self._places.arriving, self._client)

    def take(self) -> None:
        """Count a complete request.  Raises TooMany."""
        self._held.close()
        self._hold(self._places.complete, self._client)

    def count_user(self, user: str) -> None:
        """Count the request of a user, from whichever address it comes, once.  Raises TooMany."""
        if not self._is_counted:
            self._is_counted = True
            self._hold(self._places.of_users, user)

    def _hold(self, requests: UnderWay, holder: str) -> None:
        self._held.enter_context(requests.one_more(holder, *requests.limits(self._threads)))

    def give_back(self) -> None:
        """Remove the request from the counts; a second call does nothing."""
        self._is_counted = True
        self._held.close()

    def keep_bytes(self, number: int, largest: int) -> None:
        """Count bytes of the body, as they come, until ``leave``; ``largest``: of a body.  Raises TooMany."""
        self._places.bytes.add(self._client, number, *self._places.bytes.limits(largest))
        self._bytes += number

    def leave(self) -> None:
        """Remove the request and the bytes of its body from the counts."""
        self.give_back()
        self._places.bytes.remove(self._client, self._bytes)
        self._bytes = 0

    async def in_thread(self, function: Callable[[], T]) -> T:
        """Call a function in one of the threads, of which each holder has a share.

        A handler that runs in a thread as a whole identifies its user there: it waits for that thread as its client.
        """
        async with self._places.threads.awaited(self.holder):
            return await run_in_threadpool(function)

    async def drawn(self, pieces: Iterator[bytes]) -> AsyncIterator[bytes]:
        """Yield the pieces of a response, each made in such a thread."""
        while (piece := await self.in_thread(lambda: next(pieces, None))) is not None:
            yield piece


#: The seat of the request that this task handles.
SEAT: ContextVar[Seat | None] = ContextVar("seat", default=None)


def present_holder() -> str:
    """Return the holder of the resources that this task or thread uses."""
    seat = SEAT.get()
    return seat.holder if seat else ""


async def in_thread(function: Callable[..., T], *arguments: Any, **named: Any) -> T:
    """Call a function in a thread, for the request of this task; waiting requests are served fairly."""
    call, seat = partial(function, *arguments, **named), SEAT.get()
    return await (seat.in_thread(call) if seat else run_in_threadpool(call))


#: Clients that are tracked, at most; beyond that, those with full buckets are dropped.
MAX_CLIENTS = 10_000


class Rate(NamedTuple):
    """A rate limit: requests a second, and a burst."""

    each_second: float
    burst: int
    key: str = ""  #: the key of oar.conf that sets it


class Buckets:
    """A bucket of requests for each client; a rate of 0 is no limit."""

    def __init__(self, rate: Rate, clock: Callable[[], float] = time.monotonic) -> None:
        self.rate = rate  #: may change while there are clients
        self._clock = clock
        self._lock = threading.Lock()
        self._left: dict[Hashable, tuple[float, float]] = {}  # what was left, and when

    def __len__(self) -> int:
        return len(self._left)

    def take(self, client: Hashable, what: str) -> Allowance | None:
        """Count a request; return the remaining allowance, None if there is no limit.  Raises TooOften."""
        if not self.rate.each_second:
            return None
        with self._lock:
            now = self._clock()
            left = self._now_left(client, now)
            if left < 1:
                wait = (1 - left) / self.rate.each_second
                raise TooOften(self._describe(what, wait), wait, self._allowance(left))
            self._left[client] = (left - 1, now)
            if len(self._left) > MAX_CLIENTS:
                self._forget(now)
            return self._allowance(left - 1)

    def _describe(self, what: str, wait: float) -> str:
        """Return the refusal of one request more, which would be accepted in ``wait`` seconds."""
        key = f" ({self.rate.key})" if self.rate.key else ""
        limit = f"the limit is {self.rate.each_second:g} a second, and {self.rate.burst:g} at once{key}"
        return f"too many {what} of one client: {limit}. Try again in {math.ceil(wait)} s."

    def is_empty(self, client: Hashable) -> bool:
        """Whether nothing is left for a client."""
        with self._lock:
            return self._now_left(client, self._clock()) < 1

    def _allowance(self, left: float) -> Allowance:
        rate = self.rate
        return Allowance(round(rate.burst), int(left), math.ceil((rate.burst - left) / rate.each_second))

    def _now_left(self, client: Hashable, now: float) -> float:
        left, since = self._left.get(client, (self.rate.burst, now))
        return min(self.rate.burst, left + (now - since) * self.rate.each_second)

    def _forget(self, now: float) -> None:
        """Drop the clients with full buckets; if none is full, all."""
        self._left = {
            client: kept for client, kept in self._left.items() if self._now_left(client, now) < self.rate.burst - 1
        }
        if len(self._left) > MAX_CLIENTS:
            self._left.clear()


#: Wrong passwords a minute: of a user from an address, and of an address.
FAILURES_A_MINUTE = 5, 50


class Failures:
    """Failures to give the right password."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        of_user, of_address = FAILURES_A_MINUTE
        self._of_user = Buckets(Rate(of_user / 60, of_user), clock)
        self._of_address = Buckets(Rate(of_address / 60, of_address), clock)

    def check(self, name: str, address: str) -> None:
        """Refuse to look at another password.  Raises TooOften."""
        if self._of_user.is_empty((name, address)) or self._of_address.is_empty(address):
            of_user, of_address = FAILURES_A_MINUTE
            limits = f"the limit is {of_user} a minute for a user and {of_address} for an address"
            seconds = 60 // of_user
            raise TooOften(
                f"too many wrong passwords: {name} from {address}: {limits}. Try again in {seconds} s.", seconds
            )

    def count(self, name: str, address: str) -> None:
        """Count a wrong password."""
        for buckets, client in ((self._of_user, (name, address)), (self._of_address, address)):
            if not buckets.is_empty(client):
                buckets.take(client, "wrong passwords")


#: Bursts, in seconds of the rate.
READS_AT_ONCE, CHANGES_AT_ONCE, ESTIMATES_AT_ONCE = 4, 10, 10


#: A token for all desktop computers has this multiple of the rate of a single computer.
COMPUTERS_OF_A_TOKEN = 10


def configured_rates(config: "Config") -> tuple[Rate, ...]:
    """Return the rates of reads, of reads by API_READERS, of changes, of estimates, and of tokens for all computers."""
    limits = (
        (config.api_rate_read, READS_AT_ONCE, "API_RATE_READ"),
        (config.api_rate_readers, READS_AT_ONCE, "API_RATE_READERS"),
        (config.api_rate_change, CHANGES_AT_ONCE, "API_RATE_CHANGE"),
        (config.api_rate_estimate, ESTIMATES_AT_ONCE, "API_RATE_ESTIMATE"),
        (config.api_rate_change * COMPUTERS_OF_A_TOKEN, CHANGES_AT_ONCE, "API_RATE_CHANGE"),
    )
    return tuple(Rate(each_second, each_second * at_once, key) for each_second, at_once, key in limits)
