"""Slots with whole blocks as units: the search in them finds what the search among all resources finds."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oar.kao.facts.job_types import ParsedTypes
from oar.kao.facts.plan import Plan
from oar.kao.facts.snapshot import Snapshot
from oar.kao.planner.resources import slot_search, spaces
from oar.kao.planner.resources.resource_holders import Occupation
from oar.kao.planner.resources.slots import SlotQuery, SlotSet
from oar.kao.planner.resources.spaces import Space
from oar.kao.planner.schedule import Round
from oar.lib.base.resource_set import positions
from oar.lib.jobs.records import Level
from oar.lib.nodes import block_units
from oar.lib.nodes.block_units import BlockUnits
from oar.lib.nodes.hierarchy import Hierarchy, Layout, PooledGroup
from oar.lib.submission.resource_request import ALL, BEST, BEST_HALF
from tests.examples import at_most
from tests.scheduler.test_invariants import random_cluster
from tests.scheduler.test_slot_search import KEYS

CORES = 30
EVERYTHING = (1 << CORES) - 1
#: Nodes of 3 cores, in one of which the last core has no node; and nodes of different sizes.
EVEN = [core // 3 if core != CORES - 1 else None for core in range(CORES)]
UNEVEN = sorted(core * core // 40 for core in range(CORES))


@pytest.fixture(autouse=True, scope="module")
def _small_blocks() -> object:
    """Count in blocks however small they are, and from the first question on."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(block_units, "SMALLEST", 1)
        patch.setattr(spaces, "ASKED_PER_PAGE", 0)
        yield


def hierarchy_in_order(rng: random.Random) -> Hierarchy:
    order = list(range(CORES))
    if rng.random() < 0.1:
        rng.shuffle(order)
    return Hierarchy(Layout({"even": EVEN, "uneven": UNEVEN}, CORES), order)


def ask(rng: random.Random, hierarchy: Hierarchy) -> SlotQuery:
    level = Level(rng.choice(["even", "uneven"]), rng.choice([1, 1, 2, 3, 4, ALL, BEST, BEST_HALF]))
    pool = EVERYTHING if rng.random() < 0.6 else rng.getrandbits(CORES) | rng.getrandbits(CORES)
    usable = EVERYTHING if rng.random() < 0.7 else rng.getrandbits(CORES) | rng.getrandbits(CORES)
    keys = frozenset(rng.sample(KEYS, rng.choice([0, 0, 0, 1])))
    return SlotQuery(hierarchy.request((PooledGroup(pool, (level,)),)), usable, rng.randint(1, 15), keys, str(usable))


@given(st.integers(0, 10**9))
def test_the_search_in_blocks_finds_what_the_search_among_all_resources_finds(seed: int) -> None:
    rng = random.Random(seed)
    hierarchy, space, plain = hierarchy_in_order(rng), Space(SlotSet(0, EVERYTHING)), SlotSet(0, EVERYTHING)
    asked = [ask(rng, hierarchy) for _ in range(6)]
    for number in range(40):
        query, begin = rng.choice(asked), rng.choice([0, 0, rng.randint(0, 60)])
        latest = begin + rng.choice([0, 5, 10**6])
        found = space.earliest(query, begin, latest)
        assert found == slot_search.earliest(plain, query, begin, latest)
        if found and rng.random() < 0.7:
            start, taken = found
        else:
            start, taken = rng.randint(-5, 60), rng.getrandbits(CORES) & rng.getrandbits(CORES)
        key = rng.choice([None, None, *KEYS])
        end = start + rng.randint(1, 20)
        space.enter(Occupation(number, start, end, taken), ParsedTypes(sharing_key=key))
        plain.occupy(start, end, taken, key)


@given(st.integers(0, 10**9))
@at_most(60)
def test_a_plan_is_the_same_whether_it_counts_in_blocks_or_not(seed: int) -> None:
    snapshot = random_cluster(seed).snapshot()
    expected = counting_no_blocks(snapshot)
    assert Round(snapshot).plan() == expected


def counting_no_blocks(snapshot: Snapshot) -> Plan:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(spaces, "MOST_KINDS", 0)
        return Round(snapshot).plan()


@given(st.integers(0, EVERYTHING), st.integers(0, EVERYTHING), st.sampled_from(["even", "uneven"]))
def test_blocks_are_those_of_their_resources(pool: int, members: int, name: str) -> None:
    column = EVEN if name == "even" else UNEVEN
    partition = Layout({name: column}, CORES).partition((name,))
    assert partition.runs
    pool &= partition.runs.expand(partition.runs.tops)
    blocks = BlockUnits.of(partition.runs, pool)
    assert blocks
    values = list(dict.fromkeys(column[core] for core in positions(pool)))
    touched = {values.index(column[core]) for core in positions(pool & members)}
    assert set(positions(blocks.touched(members))) == touched
    whole = {core for core in positions(pool) if values.index(column[core]) in touched}
    assert set(positions(blocks.members(blocks.touched(members)))) == whole
    assert blocks.touched(members) == blocks.touched(blocks.members(blocks.touched(members)))


def test_slots_in_blocks_are_made_when_they_have_been_asked_for_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spaces, "ASKED_PER_PAGE", 3)
    made: list[SlotSet] = []
    monkeypatch.setattr(spaces.BlockSlots, "begin", lambda self, slots, occupants: made.append(slots))
    hierarchy, space = hierarchy_in_order(random.Random(1)), Space(SlotSet(0, EVERYTHING))
    request = hierarchy.request((PooledGroup(EVERYTHING, (Level("uneven", 1),)),))
    for _ in range(2):
        space.earliest(SlotQuery(request, EVERYTHING, 10), 0)
    assert not made
    space.earliest(SlotQuery(request, EVERYTHING, 10), 0)
    assert made
