"""Slots in sections: the search in them finds what the search among all resources finds, and touches few sections."""

import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.snapshots import plain
from oar.kao.facts.job_types import ParsedTypes
from oar.kao.facts.plan import Plan
from oar.kao.facts.snapshot import Snapshot
from oar.kao.planner.resources import sections, slot_search
from oar.kao.planner.resources.resource_holders import Occupation
from oar.kao.planner.resources.sections import section_bounds
from oar.kao.planner.resources.slots import Page, SlotQuery, SlotSet
from oar.kao.planner.resources.spaces import Space
from oar.kao.planner.schedule import Round
from oar.lib.jobs.records import Level
from oar.lib.nodes.hierarchy import Hierarchy, Layout, PooledGroup
from oar.lib.nodes.records import PropertyValue
from oar.lib.submission.resource_request import ALL, BEST, BEST_HALF
from tests.examples import at_most
from tests.scheduler.test_invariants import random_cluster
from tests.scheduler.test_slot_search import KEYS

CORES = 36
EVERYTHING = (1 << CORES) - 1
#: Switches of 12 cores, nodes of 3 cores, of which the last has no node; cpus that some bounds of sections cross.
COLUMNS: dict[str, list[PropertyValue]] = {
    "switch": [core // 12 for core in range(CORES)],
    "node": [core // 3 if core != CORES - 1 else None for core in range(CORES)],
    "cpu": [core // 5 for core in range(CORES)],
}
LEVELS = (
    ("core",),
    ("node",),
    ("node", "core"),
    ("switch", "node"),
    ("switch", "node", "core"),
    ("cpu",),
    ("cpu", "core"),
)


def hierarchy_in_order(rng: random.Random) -> Hierarchy:
    order = list(range(CORES))
    if rng.random() < 0.2:
        rng.shuffle(order)
    return Hierarchy(Layout({**COLUMNS, "core": list(range(CORES))}, CORES), order)


def ask(rng: random.Random, hierarchy: Hierarchy) -> SlotQuery:
    pool = EVERYTHING if rng.random() < 0.5 else rng.getrandbits(CORES) | rng.getrandbits(CORES)
    usable = EVERYTHING if rng.random() < 0.7 else rng.getrandbits(CORES) | rng.getrandbits(CORES)
    quantities = [1, 1, 2, 2, 3, 4, 6, ALL, BEST, BEST_HALF]
    groups = tuple(
        PooledGroup(pool, tuple(Level(name, rng.choice(quantities)) for name in rng.choice(LEVELS)))
        for _ in range(rng.choice([1, 1, 1, 1, 2]))
    )
    keys = frozenset(rng.sample(KEYS, rng.choice([0, 0, 0, 1])))
    return SlotQuery(hierarchy.request(groups), usable, rng.randint(1, 15), keys, str(usable))


@given(st.integers(0, 10**9))
def test_the_search_in_sections_finds_what_the_search_among_all_resources_finds(seed: int) -> None:
    rng = random.Random(seed)
    bounds = rng.choice([(0, 12, 24, 36), (0, 24, 36), (0, 3, 15, 36)])
    hierarchy, free = hierarchy_in_order(rng), rng.choice([EVERYTHING, rng.getrandbits(CORES)])
    space, expected = Space(SlotSet(0, EVERYTHING, free), bounds=bounds), SlotSet(0, EVERYTHING, free)
    queries = [ask(rng, hierarchy) for _ in range(6)]
    for number in range(50):
        query, begin = rng.choice(queries), rng.choice([0, 0, rng.randint(0, 60)])
        latest = begin + rng.choice([0, 5, 10**6])
        match = space.earliest(query, begin, latest)
        assert match == slot_search.earliest(expected, query, begin, latest)
        assert space.fit_at(query, begin) == slot_search.fit_at(expected, query, begin)
        if match and rng.random() < 0.7:
            start, taken = match
        else:
            start, taken = rng.randint(-5, 60), rng.getrandbits(CORES) & rng.getrandbits(CORES)
        key, end = rng.choice([None, None, *KEYS]), start + rng.choice([rng.randint(0, 20), 10**9])
        space.enter(Occupation(number, start, end, taken), ParsedTypes(sharing_key=key))
        expected.occupy(start, end, taken, key)
        if rng.random() < 0.1:
            space = space.copy()


@given(st.integers(0, 10**9))
@at_most(60)
def test_a_plan_is_the_same_with_and_without_sections(seed: int) -> None:
    snapshot = random_cluster(seed).snapshot()
    assert plan_in_sections(snapshot, 1) == plan_in_sections(snapshot, 10**6)


def plan_in_sections(snapshot: Snapshot, size: int) -> Plan:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sections, "SIZE", size)
        return Round(snapshot).plan()


def test_a_section_consists_of_whole_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sections, "SIZE", 120)
    resources = plain(0, 1000, per_cpu=10).resources  # nodes of 20 cores, switches of 500
    assert section_bounds(resources) == (0, 120, 240, 360, 480, 600, 720, 840, 960, 1000)
    monkeypatch.setattr(sections, "SIZE", 500)
    assert section_bounds(resources) == (0, 500, 1000)
    monkeypatch.setattr(sections, "SIZE", 501)
    assert section_bounds(resources) == ()


def test_a_block_that_is_not_one_run_is_no_section(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sections, "SIZE", 2)
    resources = replace(plain(0, 8).resources, columns={"cpu": (0, 1, 0, 1, 2, 3, 2, 3), "half": (0,) * 4 + (1,) * 4})
    assert section_bounds(resources) == (0, 2, 4, 6, 8)


def test_a_job_is_entered_in_the_slots_of_its_sections_only(monkeypatch: pytest.MonkeyPatch) -> None:
    snapshot, bits = plain(100, 8000), [0]
    close, leave = Page._close, Page._leave

    def close_and_count(page: Page, occupied: int, remaining: int, count: int) -> None:
        bits[0] += page.open.bit_length()
        close(page, occupied, remaining, count)

    def leave_and_count(page: Page, first: int, last: int, remaining: int) -> None:
        bits[0] += page.open.bit_length() * (last - first)
        leave(page, first, last, remaining)

    monkeypatch.setattr(Page, "_close", close_and_count)
    monkeypatch.setattr(Page, "_leave", leave_and_count)
    expected = plan_in_sections(snapshot, 10**6)
    in_one = bits[0]
    bits[0] = 0
    assert plan_in_sections(snapshot, 500) == expected
    assert 0 < bits[0] < in_one / 10


def test_from_date_to_date_only_the_sections_that_change_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    snapshot, counts = plain(200, 8000), [0]
    count_in = sections._Search._count_in

    def count(search: sections._Search, part: sections._Part, date: int) -> int:
        counts[0] += 1
        return count_in(search, part, date)

    monkeypatch.setattr(sections._Search, "_count_in", count)
    plan_in_sections(snapshot, 500)
    assert 0 < counts[0] < 60 * len(snapshot.waiting)
