"""The search in the slots against the rule itself: every instant is tried, on a naive timeline."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oar.kao.facts.job_types import SharingKey
from oar.kao.facts.snapshot import FOREVER
from oar.kao.planner.resources import slot_search
from oar.kao.planner.resources import slots as slots_module
from oar.kao.planner.resources.slot_search import earliest, fit_at
from oar.kao.planner.resources.slots import SlotQuery, SlotSet
from oar.lib.jobs.records import Level
from oar.lib.jobs.states import JobTypeName
from oar.lib.nodes.hierarchy import Hierarchy, Layout, PooledGroup
from oar.lib.submission.resource_request import ALL, BEST, BEST_HALF

CORES = 12
ALL_CORES = (1 << CORES) - 1
HIERARCHY = Hierarchy(
    Layout(
        {
            "switch": [core // 6 for core in range(CORES)],
            "node": [core // 3 for core in range(CORES)],
            "core": list(range(CORES)),
        },
        CORES,
    ),
    range(CORES),
)
KEYS: list[SharingKey] = [
    (JobTypeName.TIMESHARING, "a"),
    (JobTypeName.TIMESHARING, "b"),
    (JobTypeName.PLACEHOLDER, "x"),
]


NAMES = [["core"], ["core"], ["node"], ["node", "core"], ["switch", "node"], ["switch", "node", "core"]]


class Timeline:
    """Who is where at each second."""

    def __init__(self, length: int) -> None:
        self.length = length
        self.occupants: list[list[tuple[int, SharingKey | None]]] = [[] for _ in range(length + 1)]

    def occupy(self, start: int, end: int, taken: int, key: SharingKey | None) -> None:
        for date in range(max(0, start), min(end, self.length + 1)):
            self.occupants[date].append((taken, key))

    def free(self, start: int, end: int, keys: frozenset[SharingKey]) -> int:
        free = ALL_CORES
        for date in range(start, min(end, self.length + 1)):
            for taken, key in self.occupants[date]:
                if key is None or key not in keys:
                    free &= ~taken
        return free

    def earliest(self, ask: SlotQuery, begin: int) -> tuple[int, int] | None:
        ends = [
            date
            for date in range(begin + 1, self.length + 1)
            if any(each not in self.occupants[date] for each in self.occupants[date - 1])
            or any(each not in self.occupants[date - 1] for each in self.occupants[date])
        ]
        for date in (begin, *ends):
            resources = ask.request.fit(self.free(date, date + ask.duration, ask.keys) & ask.usable)
            if resources:
                return date, resources
        return None


def random_ask(rng: random.Random) -> SlotQuery:
    quantity = [1, 1, 2, 3, 4, ALL, BEST, BEST_HALF]
    groups = []
    for _ in range(rng.choice([1, 1, 1, 2])):
        names = rng.choice(
            [["core"], ["core"], ["node"], ["node", "core"], ["switch", "node"], ["switch", "node", "core"]]
        )
        pool = ALL_CORES if rng.random() < 0.7 else rng.getrandbits(CORES)
        groups.append(PooledGroup(pool, tuple(Level(name, rng.choice(quantity)) for name in names)))
    usable = ALL_CORES if rng.random() < 0.8 else rng.getrandbits(CORES)
    keys = frozenset(rng.sample(KEYS, rng.choice([0, 0, 1, 2])))
    return SlotQuery(HIERARCHY.request(tuple(groups)), usable, rng.randint(1, 15), keys, str(usable))


@given(st.integers(0, 10**9), st.booleans())
def test_the_search_finds_what_trying_every_instant_finds(seed: int, has_small_pages: bool) -> None:
    rng = random.Random(seed)
    length = 60
    timeline, slots = Timeline(8 * length), SlotSet(0, ALL_CORES)
    for _ in range(rng.randint(0, 30)):
        start = rng.randint(-5, length - 1)
        end = min(length, start + rng.randint(1, 20))
        taken = rng.getrandbits(CORES) & rng.getrandbits(CORES) or 1
        key = rng.choice([None, None, *KEYS])
        timeline.occupy(start, end, taken, key)
        slots.occupy(start, end, taken, key)
        if has_small_pages and rng.random() < 0.3:
            slots = halved(slots)
    for _ in range(12):
        ask, begin = random_ask(rng), rng.choice([0, 0, rng.randint(0, length)])
        found = earliest(slots, ask, begin)
        expected = timeline.earliest(ask, begin)
        assert (found and (found.start, found.resources)) == expected
        latest = begin + rng.randint(0, 20)
        is_early = found is not None and found.start <= latest
        assert earliest(slots, ask, begin, latest) == (found if is_early else None)
        if found:
            assert fit_at(slots, ask, found.start) == found.resources
            assert slots.copy().free_between(found.start, found.start + ask.duration, ask.keys) == timeline.free(
                found.start, found.start + ask.duration, ask.keys
            )
            end = found.start + rng.randint(1, 12)
            key = rng.choice(sorted(ask.keys)) if ask.keys and rng.random() < 0.7 else None
            timeline.occupy(found.start, end, found.resources, key)
            slots.occupy(found.start, end, found.resources, key)


def halved(slots: SlotSet) -> SlotSet:
    """Cut a page in two, as happens when it has grown."""
    at = max(range(len(slots.pages)), key=lambda index: len(slots.pages[index].starts))
    if len(slots.pages[at].starts) > 1:
        second = slots.pages[at].halve()
        slots.pages.insert(at + 1, second)
        slots._firsts.insert(at + 1, second.starts[0])
    return slots


def test_a_page_that_grows_is_cut() -> None:
    slots = SlotSet(0, ALL_CORES)
    for date in range(slots_module.LARGEST_PAGE + 10):
        slots.occupy(date, FOREVER, 1 << (date % 3))
    assert len(slots.pages) > 1
    assert slots.free_between(500, 501) == ALL_CORES & ~0b111


def test_nothing_is_found_after_the_latest_start() -> None:
    slots = SlotSet(0, ALL_CORES)
    slots.occupy(0, 10, ALL_CORES)
    ask = SlotQuery(HIERARCHY.request((PooledGroup(ALL_CORES, (Level("core", 1),)),)), ALL_CORES, 5)
    assert earliest(slots, ask, 0, latest=9) is None
    found = earliest(slots, ask, 0, latest=10)
    assert found is not None
    assert found.start == 10


def test_a_search_for_a_start_now_looks_for_no_later_one() -> None:
    slots = SlotSet(0, ALL_CORES)
    for date in range(1, 1000):
        slots.occupy(date, date + 1, 1 << date % CORES)
    request = HIERARCHY.request((PooledGroup(ALL_CORES, (Level("core", CORES),)),))
    asked = []
    is_satisfied = request.is_satisfied
    request.is_satisfied = lambda free: asked.append(free) or is_satisfied(free)  # type: ignore[func-returns-value]
    assert earliest(slots, SlotQuery(request, ALL_CORES, 500), 0, latest=0) is None
    assert len(asked) == 2  # of the slot that begins now, and of that in which the duration ends


def test_an_obstacle_is_found_without_a_look_at_each_slot_behind_it() -> None:
    slots = SlotSet(0, ALL_CORES)
    slots.occupy(0, 5, 0b111111)
    slots.occupy(5, 1000, 1 << CORES - 1)
    for date in range(10, 210):
        slots.occupy(date, date + 1, 1 << date % 2)
    request = HIERARCHY.request((PooledGroup(ALL_CORES, (Level("core", 6),)),))
    asked = []
    is_satisfied = request.is_satisfied
    request.is_satisfied = lambda free: asked.append(free) or is_satisfied(free)  # type: ignore[func-returns-value]
    found = earliest(slots, SlotQuery(request, ALL_CORES, 220), 0)
    assert found is not None
    assert found.start == 5
    assert len(asked) < 20  # more than 200 slots are behind the obstacle


def test_a_request_whose_groups_compete_is_tried_only_where_each_group_alone_is_satisfied(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    slots = SlotSet(0, ALL_CORES)
    for date in range(0, 500, 5):  # one node is free now and then, two are at last
        slots.occupy(date, date + 5, ALL_CORES & ~(0b111 << 3 * (date % 4)))
    nodes = (Level("node", 1),)
    ask = SlotQuery(HIERARCHY.request((PooledGroup(ALL_CORES, nodes), PooledGroup(0b111111, nodes))), ALL_CORES, 7)
    tried = []

    def fit_at_and_tell(slots: SlotSet, query: SlotQuery, start: int) -> int:
        tried.append(start)
        return fit_at(slots, query, start)

    monkeypatch.setattr(slot_search, "fit_at", fit_at_and_tell)
    found = earliest(slots, ask, 0)
    assert found is not None
    assert found.start == 500
    assert tried == [500]


def test_what_fails_without_a_filter_is_not_tried_with_it() -> None:
    slots = SlotSet(0, ALL_CORES)
    slots.occupy(0, 1000, ALL_CORES & ~0b11)
    for date in range(0, 1000, 10):
        slots.occupy(date, date + 5, 0b1)
    asked = [HIERARCHY.request((PooledGroup(pool, (Level("core", 3),)),)) for pool in (0b111111, ALL_CORES)]
    assert asked[0].wider is asked[1]
    assert earliest(slots, SlotQuery(asked[1], ALL_CORES, 5), 0)
    tried = []
    is_satisfied = asked[0].is_satisfied
    asked[0].is_satisfied = lambda free: tried.append(free) or is_satisfied(free)  # type: ignore[func-returns-value]
    found = earliest(slots, SlotQuery(asked[0], ALL_CORES, 5), 0)
    assert found is not None
    assert found.start == 1000
    assert len(tried) < 70  # those of the last page; there are more than 200 slots


def test_what_fails_for_a_job_that_shares_resources_is_not_tried_for_others_with_the_same_keys() -> None:
    slots, mine = SlotSet(0, ALL_CORES), frozenset(KEYS[:1])
    slots.occupy(0, 1000, 0b1, KEYS[0])
    slots.occupy(0, 1000, ALL_CORES & ~0b111, KEYS[1])
    for date in range(0, 1000, 10):
        slots.occupy(date, date + 5, 0b10, KEYS[1])
    request = HIERARCHY.request((PooledGroup(ALL_CORES, (Level("core", 4),)),))
    tried = []
    counted = HIERARCHY.request((PooledGroup(ALL_CORES, (Level("core", 5),)),))
    is_satisfied = counted.is_satisfied
    counted.is_satisfied = lambda free: tried.append(free) or is_satisfied(free)  # type: ignore[func-returns-value]
    for query in (SlotQuery(request, ALL_CORES, 5, mine), SlotQuery(counted, ALL_CORES, 5, mine)):
        found = earliest(slots, query, 0)
        assert found is not None
        assert found.start == 1000
    assert len(tried) < 70  # those of the last page; there are more than 200 slots
