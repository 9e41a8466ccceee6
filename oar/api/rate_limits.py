"""Rate limits: requests of a client, and wrong passwords.

The counts are in memory, for each process.  See docs/api.rst, "Limits".
"""

import math
import threading
import time
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, NamedTuple

from oar.api.errors import Allowance, TooOften

if TYPE_CHECKING:
    from oar.lib.config.files import Config

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
