"""How often a client may ask."""

import asyncio
import threading
from collections.abc import Collection, Sequence
from contextlib import ExitStack, suppress

import pytest

from oar.api.concurrency import MAX_CLIENTS, Buckets, Failures, FairPlaces, InTurn, Rate
from oar.api.errors import TooMany, TooOften


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def _taken(buckets: Buckets, client: str, number: int) -> int:
    for count in range(number):
        try:
            buckets.take(client, "requests")
        except TooOften:
            return count
    return number


def test_a_client_has_so_many_at_once_and_then_so_many_a_second() -> None:
    clock = Clock()
    buckets = Buckets(Rate(2, 5), clock)
    assert _taken(buckets, "a", 10) == 5
    assert _taken(buckets, "b", 10) == 5
    clock.now = 1.0
    assert _taken(buckets, "a", 10) == 2
    clock.now = 1000.0
    assert _taken(buckets, "a", 10) == 5


def test_who_asks_too_often_is_told_how_long_to_wait() -> None:
    buckets = Buckets(Rate(0.1, 1, "API_RATE_READ"), Clock())
    buckets.take("a", "requests")
    told = (
        r"too many requests of one client: the limit is 0.1 a second, and 1 at once \(API_RATE_READ\). Try again in 10"
    )
    with pytest.raises(TooOften, match=told) as refused:
        buckets.take("a", "requests")
    assert refused.value.retry_after == 10


def test_a_rate_of_nothing_is_no_limit() -> None:
    assert _taken(Buckets(Rate(0, 0), Clock()), "a", 1000) == 1000


def test_many_clients_cannot_fill_the_memory() -> None:
    clock = Clock()
    buckets = Buckets(Rate(1, 5), clock)
    for client in range(3 * MAX_CLIENTS):
        buckets.take(client, "requests")
    assert len(buckets) <= MAX_CLIENTS + 1
    assert _taken(buckets, "new", 9) == 5


def test_wrong_passwords_stop_the_user_and_then_the_address() -> None:
    failures = Failures(Clock())
    for _ in range(5):
        failures.check("alice", "192.0.2.1")
        failures.count("alice", "192.0.2.1")
    with pytest.raises(TooOften):
        failures.check("alice", "192.0.2.1")
    failures.check("alice", "192.0.2.2")
    for name in range(50):
        failures.count(str(name), "192.0.2.1")
    with pytest.raises(TooOften):
        failures.check("bob", "192.0.2.1")


def test_so_much_is_done_at_a_time() -> None:
    places = FairPlaces(1, "too many passwords are being checked")
    with places.place("alice"), pytest.raises(TooMany, match="too many passwords"), places.place("bob"):
        pass
    with places.place("bob"):
        assert places.busy == 1
    assert places.busy == 0


@pytest.mark.parametrize(("number", "parts"), [(1, [1, 0]), (2, [1, 1, 0]), (4, [2, 1, 1, 0]), (16, [8, 4, 2, 1, 1])])
def test_each_holder_has_a_part_of_what_all_share(number: int, parts: list[int]) -> None:
    places, found = FairPlaces(number, "too many"), list[int]()
    with ExitStack() as held:
        for holder in map(str, range(len(parts))):
            found.append(0)
            with suppress(TooMany):
                while True:
                    held.enter_context(places.place(holder))
                    found[-1] += 1
    assert found == parts


async def _in_order(places: FairPlaces, holders: Sequence[str], gone: Collection[int] = ()) -> list[str]:
    """Return in which order holders get a place who wait at once; ``gone``: those that do not wait for it."""
    order: list[str] = []

    async def hold(holder: str) -> None:
        async with places.awaited(holder):
            order.append(holder)
            await asyncio.sleep(0)

    tasks = [asyncio.create_task(hold(holder)) for holder in holders]
    with places.place("first"):
        await asyncio.sleep(0)
        for each in gone:
            tasks[each].cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert places.busy == 0
    return order


@pytest.mark.parametrize(
    ("number", "asked", "got"),
    [(1, "abc", "abc"), (2, "aaaab", "abaaa"), (2, "aaabbb", "ababab")],
)
def test_holders_who_wait_get_their_places_in_turn(number: int, asked: str, got: str) -> None:
    assert sorted(asked) == sorted(got)
    assert "".join(asyncio.run(_in_order(FairPlaces(number), asked))) == got


def test_who_waits_no_more_leaves_his_place_to_the_next() -> None:
    assert asyncio.run(_in_order(FairPlaces(1), "abc", gone=[0, 1])) == ["c"]


def test_a_client_has_one_thing_done_at_a_time_and_others_do_not_wait() -> None:
    estimates = InTurn("estimate", 0)
    with estimates.turn("alice"):
        with estimates.turn("bob"):
            pass
        with (
            pytest.raises(TooOften, match="another estimate of yours is in progress: the limit is 1"),
            estimates.turn("alice"),
        ):
            pass
    with estimates.turn("alice"):
        pass


def test_who_waits_for_his_turn_gets_it() -> None:
    estimates, order = InTurn("estimate", 60), list[str]()

    def second() -> None:
        with estimates.turn("alice"):
            order.append("second")

    thread = threading.Thread(target=second)
    with estimates.turn("alice"):
        thread.start()
        order.append("first")
    thread.join()
    assert order == ["first", "second"]
