"""Which jobs give back resources at a date: looked up, not looked for among all jobs that end then."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from oar.kao.planner.resources.resource_holders import Endings, Occupation

sets = st.integers(0, 2**12 - 1)


@given(st.lists(st.tuples(st.integers(1, 3), sets), max_size=30), st.lists(st.tuples(st.integers(1, 4), sets)))
def test_the_index_finds_what_looking_at_all_jobs_finds(
    ends: list[tuple[int, int]], asked: list[tuple[int, int]]
) -> None:
    endings, entered = Endings(), []
    for number, (end, resources) in enumerate(ends):
        endings.add(Occupation(number, 0, end, resources))
        entered.append((number, end, resources))
        for date, wanted in asked[:2]:
            assert endings.at(date, wanted) == [each for each, end, held in entered if end == date and held & wanted]
    for date, wanted in asked:
        assert endings.at(date, wanted) == [each for each, end, held in entered if end == date and held & wanted]


class CountedSet(int):
    """A set of resources that counts how often it is compared with another."""

    compared = 0

    def __and__(self, other: Any) -> int:
        CountedSet.compared += 1
        return int(self) & int(other)


def test_a_job_of_one_core_is_not_compared_with_all_jobs_that_end_with_it() -> None:
    endings = Endings()
    for core in range(1000):
        endings.add(Occupation(core, 0, 10, CountedSet(1 << core)))
    CountedSet.compared = 0
    assert [endings.at(10, 1 << core) for core in range(1000)] == [[core] for core in range(1000)]
    assert CountedSet.compared < 20_000  # each is put into the index once
