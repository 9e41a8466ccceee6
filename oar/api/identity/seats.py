"""What all requests share, and the part of it that each client and each user may have."""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack
from contextvars import ContextVar
from functools import partial
from itertools import count
from typing import Any, TypeVar

from starlette.concurrency import run_in_threadpool

from oar.api.concurrency import FairPlaces, UnderWay

T = TypeVar("T")

#: Complete requests for each thread, and bodies that have not come yet, at most: of one client or user, and of all.
WAITING_FOR_A_THREAD, ALL_WAITING_FOR_A_THREAD = 8, 32
ARRIVING_FOR_A_THREAD, ALL_ARRIVING_FOR_A_THREAD = 2, 8
#: The bytes of bodies that are kept until they are answered, as a multiple of the largest body.
BYTES_OF_A_CLIENT, ALL_BYTES = 4, 16
#: The clients behind a proxy that hides their addresses wait for threads as this many clients: they share 4/5 of them.
CLIENTS_OF_A_CROWD = 4


class Places:
    """What all requests share."""

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
        """Return the holder for the next request of clients that cannot be told apart."""
        return f"{client} ({next(self._turns) % CLIENTS_OF_A_CROWD})"


class Seat:
    """The place of one request in what all share; a request that waits without a thread gives it back early."""

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
        """Count a request of which the body has not come.  Raises TooMany."""
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
        """Count no more; the second time nothing happens."""
        self._is_counted = True
        self._held.close()

    def keep_bytes(self, number: int, largest: int) -> None:
        """Count bytes of the body, as they come, until ``leave``; ``largest``: of a body.  Raises TooMany."""
        self._places.bytes.add(self._client, number, *self._places.bytes.limits(largest))
        self._bytes += number

    def leave(self) -> None:
        """The request is over."""
        self.give_back()
        self._places.bytes.remove(self._client, self._bytes)
        self._bytes = 0

    async def in_thread(self, function: Callable[[], T]) -> T:
        """Call a function in one of the threads of which its holder has a part.

        A handler that runs in a thread as a whole identifies its user there: it waits for that thread as its client.
        """
        async with self._places.threads.awaited(self.holder):
            return await run_in_threadpool(function)

    async def drawn(self, pieces: Iterator[bytes]) -> AsyncIterator[bytes]:
        """Give pieces of an answer, each made in such a thread."""
        while (piece := await self.in_thread(lambda: next(pieces, None))) is not None:
            yield piece


#: Of the request that this task works for.
SEAT: ContextVar[Seat | None] = ContextVar("seat", default=None)


def present_holder() -> str:
    """Return who has what this task, or this thread, takes of what all share."""
    seat = SEAT.get()
    return seat.holder if seat else ""


async def in_thread(function: Callable[..., T], *arguments: Any, **named: Any) -> T:
    """Call a function in a thread, for the request of this task: whoever waits for one gets it in turn."""
    call, seat = partial(function, *arguments, **named), SEAT.get()
    return await (seat.in_thread(call) if seat else run_in_threadpool(call))
