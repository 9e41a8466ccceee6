"""What is learnt of earliest starts: the latest of those of queries that wanted nothing more and no longer."""

from hypothesis import given
from hypothesis import strategies as st

from oar.kao.planner.resources import slot_search
from oar.kao.planner.resources.slot_search import StartBounds
from oar.kao.planner.resources.slots import SlotQuery
from oar.lib.jobs.records import Level
from oar.lib.nodes.hierarchy import Hierarchy, Layout, PooledGroup

CORES = 16
ALL_CORES = (1 << CORES) - 1
HIERARCHY = Hierarchy(
    Layout({"node": [core // 4 for core in range(CORES)], "core": list(range(CORES))}, CORES), range(CORES)
)


def query(nodes: int, cores: int, duration: int) -> SlotQuery:
    levels = (Level("node", nodes), Level("core", cores))
    return SlotQuery(HIERARCHY.request((PooledGroup(ALL_CORES, levels),)), ALL_CORES, duration)


@given(
    st.lists(st.tuples(st.integers(1, 3), st.integers(1, 3), st.integers(1, 9), st.integers(0, 30)), max_size=40),
)
def test_a_bound_is_the_latest_start_of_a_query_that_wants_no_more(asked: list[tuple[int, int, int, int]]) -> None:
    bounds = StartBounds()
    learnt: list[tuple[int, int, int, int]] = []
    for nodes, cores, duration, date in asked:
        expected = max(
            (start for n, c, d, start in learnt if n <= nodes and c <= cores and d <= duration),
            default=0,
        )
        assert bounds.of(query(nodes, cores, duration)) == expected
        start = max(date, expected)
        learnt.append((nodes, cores, duration, start))
        bounds.learn(query(nodes, cores, duration), start)


def test_bounds_are_kept_of_the_latest_requests_only() -> None:
    bounds = StartBounds()
    requests = [(nodes, cores) for nodes in range(1, 13) for cores in range(1, 13)]
    for number, request in enumerate(reversed(requests)):
        bounds.learn(query(*request, 5), 1000 - number)
    (kept,) = bounds._bounds.values()
    assert kept._wanted == requests[: slot_search.MAX_BOUNDS]
