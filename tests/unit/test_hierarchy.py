"""What a request takes: the examples of the specification, and a second, naive reading of the same definition."""

import doctest
import random
from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oar.lib.base import resource_set
from oar.lib.base.bit_runs import BitRuns
from oar.lib.base.resource_set import format_ranges, from_positions, lowest, parse_ranges, positions, without
from oar.lib.jobs.records import Level
from oar.lib.nodes.hierarchy import Hierarchy, Layout, PooledGroup, TakingOrder, numbering
from oar.lib.nodes.records import PropertyValue
from oar.lib.submission.resource_request import ALL, BEST, BEST_HALF, parse_request


def test_the_examples_in_the_docstrings_hold() -> None:
    assert doctest.testmod(resource_set).failed == 0


sets = st.integers(0, 2**80) | st.sets(st.integers(0, 3000)).map(from_positions)


@given(sets)
def test_a_set_survives_every_way_of_writing_it(members: int) -> None:
    assert from_positions(positions(members)) == members
    assert parse_ranges(format_ranges(members)) == members


@given(sets, st.integers(0, 100))
def test_the_lowest_members_are_the_lowest(members: int, count: int) -> None:
    assert list(positions(lowest(members, count))) == list(positions(members))[:count]


@given(sets, sets)
def test_a_set_without_another(members: int, others: int) -> None:
    assert without(members, others) == members & ~others


@given(st.permutations(range(40)), st.integers(0, 2**40 - 1), st.integers(0, 45))
def test_members_are_taken_in_the_order_of_preference(order: list[int], members: int, count: int) -> None:
    expected = [bit for bit in order if members >> bit & 1][:count]
    assert TakingOrder(order).first(members, count) == from_positions(expected)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 9)), min_size=1, max_size=8), st.data())
def test_runs_are_counted_all_at_once(shape: list[tuple[int, int]], data: st.DataObject) -> None:
    spans, at = [], 0
    for gap, width in shape:
        spans.append((at + gap, at + gap + width - 1))
        at += gap + width
    runs = BitRuns(spans)
    inside = runs.expand(runs.tops)
    members = data.draw(st.integers(0, (1 << at) - 1)) & inside
    whole = data.draw(st.integers(0, (1 << at) - 1)) & inside
    for count in range(1, 11):
        expected = [high for low, high in spans if _count(members, low, high) >= count]
        assert runs.at_least(members, count) == from_positions(expected)
    complete = [h for low, h in spans if _count(whole, low, h) and not _count(whole & ~members, low, h)]
    assert runs.complete(members, whole) == from_positions(complete)
    for count in range(11):
        firsts = [
            bit
            for low, high in spans
            for bit in positions(members)
            if low <= bit <= high and _count(members, low, bit) <= count
        ]
        assert runs.lowest(members, count) == from_positions(firsts)
    for low, high in spans:
        first, ones = runs.block_of[high]
        inside = (members >> first & ones) << first
        assert inside == from_positions(bit for bit in positions(members) if low <= bit <= high)


def _count(members: int, low: int, high: int) -> int:
    return sum(members >> bit & 1 for bit in range(low, high + 1))


# --------------------------------------------------------------------------------------------------- a naive reading


def naive_fit(
    columns: Mapping[str, Sequence[PropertyValue]], order: Sequence[int], groups: Sequence[PooledGroup], free: int
) -> int:
    """The rules of docs/design/planner.rst, "Requests", word for word, on Python sets."""
    taken: set[int] = set()
    for group in groups:
        pool = {
            bit
            for bit in positions(group.pool)
            if all(columns[level.property][bit] not in (None, "") for level in group.levels)
        }
        part = _naive_level(columns, order, pool, (set(positions(free)) & pool) - taken, group.levels)
        if not part:
            return 0
        taken |= part
    return from_positions(taken)


def _naive_level(
    columns: Mapping[str, Sequence[PropertyValue]],
    order: Sequence[int],
    inside: set[int],
    free: set[int],
    levels: Sequence[Level],
) -> set[int]:
    level, rest = levels[0], levels[1:]
    blocks: dict[PropertyValue, set[int]] = {}
    for bit in order:
        if bit in inside:
            blocks.setdefault(columns[level.property][bit], set()).add(bit)
    parts: list[set[int]] = []
    for block in blocks.values():
        part = block if block <= free else set()
        if rest:
            part = _naive_level(columns, order, block, free & block, rest)
        if part:
            parts.append(part)
    if level.quantity > 0:
        parts = parts[: level.quantity] if len(parts) >= level.quantity else []
    elif level.quantity == ALL:
        parts = parts if len(parts) == len(blocks) else []
    elif level.quantity == BEST_HALF:
        parts = parts[: (len(parts) + 1) // 2]
    return set().union(*parts)


class Machine:
    """Random resources with nesting and not nesting properties, NULLs and gaps, and any order of resources."""

    def __init__(self, seed: int) -> None:
        rng = random.Random(seed)
        rows: list[dict[str, PropertyValue]] = []
        for switch in range(rng.randint(1, 3)):
            for node in range(rng.randint(1, 3)):
                name: PropertyValue = f"n{switch}{node}" if rng.random() < 0.9 else rng.choice([None, ""])
                for cpu in range(rng.randint(1, 2)):
                    for core in range(rng.randint(1, 3)):
                        rows.append({"switch": f"s{switch}", "host": name, "cpu": cpu, "core": f"{name}{cpu}{core}"})
                        rows[-1]["gpu"] = rng.choice([None, None, 0, 1])
                        rows[-1]["switch"] = None if rng.random() < 0.05 else rows[-1]["switch"]
        rng.shuffle(rows)
        ranks = list(range(len(rows)))
        if rng.random() < 0.7:
            ranks.sort(key=lambda row: (str(rows[row]["switch"]), str(rows[row]["host"]), row))
        place = {row: rank for rank, row in enumerate(ranks)}
        columns = {name: [row[name] for row in rows] for name in rows[0]}
        asked = {name: columns[name] for name in rng.sample(sorted(columns), rng.randint(0, len(columns)))}
        bits = numbering(asked, [place[row] for row in range(len(rows))])
        self.columns = {name: [column[row] for row in bits] for name, column in columns.items()}
        self.columns["resource_id"] = [row + 1 for row in bits]
        self.order = sorted(range(len(rows)), key=lambda bit: place[bits[bit]])
        if rng.random() < 0.3:
            rng.shuffle(self.order)
        self.size = len(rows)
        self.hierarchy = Hierarchy(Layout(self.columns, self.size), self.order)


quantities = st.integers(1, 4) | st.sampled_from([ALL, BEST, BEST_HALF])
properties = st.sampled_from(["switch", "host", "cpu", "core", "gpu", "resource_id"])
level_lists = st.lists(st.builds(Level, properties, quantities), min_size=1, max_size=3).map(tuple)
masks = st.integers(0, 2**60 - 1)


@given(st.integers(0, 10**6), st.lists(st.tuples(masks, level_lists), min_size=1, max_size=2), masks, masks)
def test_the_fast_reading_agrees_with_the_naive_one(
    seed: int, asked: list[tuple[int, tuple[Level, ...]]], free: int, less: int
) -> None:
    machine = Machine(seed)
    everything = (1 << machine.size) - 1
    groups = tuple(PooledGroup((pool | less) & everything, levels) for pool, levels in asked)
    request = machine.hierarchy.request(groups)
    for offered in (free & everything, (free | less) & everything, everything):
        result = request.fit(offered)
        assert result == naive_fit(machine.columns, machine.order, groups, offered)
        assert request.is_satisfied(offered) == bool(result)
        assert result & ~offered == 0
        if result:
            assert result.bit_count() >= request.least
        if result and request.is_steady:
            assert request.fit(result | (offered & less)) == result
        if not result and request.is_monotone:
            assert not request.fit(offered & less)
        for easier in (request.necessary, request.wider):
            assert easier is None or easier.is_monotone
            assert easier is None or not result or easier.fit(offered)


@given(st.integers(0, 10**6), masks)
def test_the_size_of_the_smallest_block_is_found_by_arithmetic(seed: int, pool: int) -> None:
    layout = Machine(seed).hierarchy.layout
    for name in ("switch", "host", "core"):
        partition, members = layout.partition((name,)), pool & layout.having(name)
        sizes = [size for mask in partition.masks if (size := (mask & members).bit_count())]
        if partition.runs is not None and sizes:
            assert partition.runs.smallest(members) == min(sizes)


def test_a_filter_that_leaves_whole_nodes_has_a_wider_request_which_others_share() -> None:
    cluster = Cluster()
    first, second, cut = (
        cluster.hierarchy.request((PooledGroup(pool, (Level("node", 2),)),))
        for pool in (cluster.gpu, cluster.node(0, 1, 3), cluster.node(0, 1) & ~1)
    )
    assert first.wider is not None
    assert first.wider is second.wider
    assert cut.wider is None  # one core less of a node may be free where the whole node is not


# ----------------------------------------------------------------------------------------------- examples by hand


class Cluster:
    """Two switches of three nodes with four cores each; the last node of each switch has GPUs; one licence."""

    def __init__(self) -> None:
        rows = [
            (f"s{n // 3}", f"n{n}", f"c{n}{core}", "YES" if n % 3 == 2 else "NO") for n in range(6) for core in range(4)
        ]
        columns: dict[str, list[PropertyValue]] = {
            "switch": [*(row[0] for row in rows), None],
            "node": [*(row[1] for row in rows), ""],
            "core": [*(row[2] for row in rows), None],
            "gpu": [*(row[3] for row in rows), None],
        }
        self.all = (1 << 25) - 1
        self.default = self.all >> 1
        self.gpu = from_positions(bit for bit in range(24) if columns["gpu"][bit] == "YES")
        self.hierarchy = Hierarchy(Layout(columns, 25), range(25))

    def node(self, *numbers: int) -> int:
        return from_positions(4 * number + core for number in numbers for core in range(4))

    def fit(self, text: str, free: int | None = None, pools: tuple[int, ...] = ()) -> int:
        groups = parse_request(text).groups
        pools = pools or (self.default,) * len(groups)
        pooled = tuple(PooledGroup(pool, group.levels) for pool, group in zip(pools, groups, strict=True))
        return self.hierarchy.request(pooled).fit(self.all if free is None else free)


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


def test_whole_nodes_on_two_switches_and_cores_with_gpu_outside_them(cluster: Cluster) -> None:
    asked = "/switch=2/node=1+/core=3", (cluster.default, cluster.gpu)
    assert cluster.fit(asked[0], pools=asked[1]) == cluster.node(0, 3) | 0b111 << 8
    assert cluster.fit(asked[0], cluster.node(2, 3, 4), asked[1]) == 0  # the first group took the only free GPU node


def test_a_node_of_which_one_core_is_not_usable_is_no_whole_node(cluster: Cluster) -> None:
    assert cluster.fit("/node=2", cluster.all & ~1) == cluster.node(1, 2)


def test_the_filter_bounds_the_block(cluster: Cluster) -> None:
    half = from_positions(bit for bit in range(24) if bit % 4 < 2)
    assert cluster.fit("/node=1", cluster.all & ~0b1100, (half,)) == 0b11


def test_cores_on_partly_busy_nodes(cluster: Cluster) -> None:
    assert cluster.fit("/node=2/core=2", cluster.all & ~0b0111) == 0b0011_0011_0000


def test_all_nodes_of_the_first_switch_that_is_free(cluster: Cluster) -> None:
    assert cluster.fit("/switch=1/node=ALL", cluster.all & ~1) == cluster.node(3, 4, 5)


def test_best_takes_what_is_free(cluster: Cluster) -> None:
    assert cluster.fit("/node=BEST", cluster.node(1, 2, 4) | 1) == cluster.node(1, 2, 4)
    assert cluster.fit("/node=BEST", 1) == 0
    assert cluster.fit("/node=BESTHALF", cluster.node(1, 2, 4)) == cluster.node(1, 2)


def test_best_above_a_number_takes_each_switch_that_has_it(cluster: Cluster) -> None:
    assert cluster.fit("/switch=BEST/node=2", cluster.node(1, 2, 3, 4, 5)) == cluster.node(1, 2, 3, 4)
    assert cluster.fit("/switch=BEST/node=2", cluster.node(1, 3, 4, 5)) == cluster.node(3, 4)


def test_groups_share_nothing(cluster: Cluster) -> None:
    assert cluster.fit("/node=1+/node=1") == cluster.node(0, 1)


def test_a_resource_without_node_is_no_node(cluster: Cluster) -> None:
    assert cluster.fit("/node=7", pools=(cluster.all,)) == 0
    assert cluster.fit("/resource_id=25", pools=(cluster.all,)) == cluster.all


def test_an_unknown_property_is_refused_by_name(cluster: Cluster) -> None:
    with pytest.raises(KeyError, match="colour"):
        cluster.fit("/colour=1")


def test_preference_decides_which_node_comes_first(cluster: Cluster) -> None:
    order = [*range(24, 11, -1), *range(12)]
    hierarchy = Hierarchy(cluster.hierarchy.layout, order)
    first = hierarchy.request((PooledGroup(cluster.default, (Level("node", 1),)),))
    assert first.fit(cluster.all) == cluster.node(5)
    core = hierarchy.request((PooledGroup(cluster.default, (Level("node", 1), Level("core", 1))),))
    assert core.fit(cluster.all) == 1 << 23
