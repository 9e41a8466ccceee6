"""How much one client may ask for: buckets of requests that fill up with time, and failures to identify.

They are in memory, for each process.  See docs/api.rst, "Limits".
"""

import asyncio
import math
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Hashable, Iterator
from concurrent.futures import Future
from contextlib import asynccontextmanager, contextmanager
from typing import NamedTuple

from oar.api.errors import Allowance, TooMany, TooOften

#: Clients that are remembered; beyond that, those whose buckets are full are forgotten.
MOST_CLIENTS = 10_000


class Rate(NamedTuple):
    """So many requests a second for long, and so many at once."""

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
        """Count a request; return what is left, None if there is no limit.  Raises TooOften."""
        if not self.rate.each_second:
            return None
        with self._lock:
            now = self._clock()
            left = self._now_left(client, now)
            if left < 1:
                wait = (1 - left) / self.rate.each_second
                raise TooOften(self._describe(what, wait), wait, self._allowance(left))
            self._left[client] = (left - 1, now)
            if len(self._left) > MOST_CLIENTS:
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
        """Forget those who might as well be new; if all are busy, everybody."""
        self._left = {
            client: kept for client, kept in self._left.items() if self._now_left(client, now) < self.rate.burst - 1
        }
        if len(self._left) > MOST_CLIENTS:
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


class UnderWay:
    """Answers that last: how many there are, in all and for each client."""

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
        """How many there are."""
        return self._by_client.total()

    @contextmanager
    def one_more(self, client: str, most: int, most_of_a_client: int | None = None) -> Iterator[None]:
        """Count one while the block lasts; ``most_of_a_client``: a part of a number that changes.  Raises TooMany."""
        self.add(client, 1, most, most_of_a_client or self._most_of_a_client)
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
        """Count some no more."""
        with self._mutex:
            self._by_client[client] -= number
            if not self._by_client[client]:
                del self._by_client[client]


class InTurn:
    """Work that is done for each client one after the other, however often it asks at once."""

    def __init__(self, what: str, patience: float) -> None:
        """``patience``: seconds that a request waits for the one before it."""
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
    """A request for a place, and the place once it is given."""

    holder: str
    place: Future[None]


class FairPlaces:
    """A semaphore that is fair to its holders, such as the clients that share the threads of the API.

    A holder gets another place only while it has fewer places than are free: a single holder has at most half of them.
    The holder with the fewest places is served first, and of those the one that has waited longest.
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
        """How many are held."""
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
        """Hold a place while the block lasts, on the event loop; wait for it without a limit."""
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
                self._waiting = [each for each in self._waiting if each is not waiter]
            else:
                self._held[waiter.holder] -= 1
                if not self._held[waiter.holder]:
                    del self._held[waiter.holder]
            self._give()

    def _give(self) -> None:
        """Give what is free."""
        while entitled := [each for each in self._waiting if self._held[each.holder] < self.number - self.busy]:
            first = min(entitled, key=lambda each: self._held[each.holder])
            self._waiting = [each for each in self._waiting if each is not first]
            if first.place.set_running_or_notify_cancel():
                self._held[first.holder] += 1
                first.place.set_result(None)
