"""Slots: many occupants entered at once give what they give one by one."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oar.kao.facts.job_types import SharingKey
from oar.kao.facts.snapshot import FOREVER
from oar.kao.facts.steps import PORTION
from oar.kao.planner.resources.slots import FEW, Occupant, SlotSet
from oar.lib.jobs.states import JobTypeName
from tests.examples import at_most

TAG: SharingKey = (JobTypeName.TIMESHARING, "*,*")
ASKERS: list[frozenset[SharingKey]] = [frozenset(), frozenset({TAG})]

occupants = st.lists(
    st.tuples(
        st.integers(0, 60),
        st.integers(1, 80),
        st.integers(1, 255),
        st.one_of(st.none(), st.none(), st.none(), st.just(TAG)),
    ),
    min_size=FEW,
    max_size=3 * FEW,
)


def row(slots: SlotSet) -> list[tuple[int, int]]:
    """What is free from each date on, as an asker without keys sees it."""
    return [
        (start, page.available(index, frozenset())) for page in slots.pages for index, start in enumerate(page.starts)
    ]


@given(occupants)
@at_most(60)
def test_entering_many_at_once_gives_the_same(wanted: list[tuple[int, int, int, SharingKey | None]]) -> None:
    together, one_by_one = SlotSet(10, 255), SlotSet(10, 255)
    for slots in (together, one_by_one):
        slots.occupy(20, 40, 1)
    together.occupy_all(wanted)
    for each in wanted:
        one_by_one.occupy(*each)
    assert row(together) == row(one_by_one)


@given(occupants)
@at_most(60)
def test_what_is_free_in_a_slot_is_never_more_than_its_count(
    wanted: list[tuple[int, int, int, SharingKey | None]],
) -> None:
    slots = SlotSet(10, 255)
    for number, each in enumerate(wanted):
        slots.occupy(*each)
        for page in slots.pages:
            for index in range(number % 3, len(page.free), 2):
                page.count(index)
            if number % 2:
                page.note_failure("family", (number,))
            free = [(members & page.open).bit_count() for members in page.free]
            assert all(count - page.covered >= most for count, most in zip(page.counts, free, strict=True))
            assert page.most >= max(free)


def test_counts_are_exact_where_nobody_is_given_what_another_has() -> None:
    slots = SlotSet(0, 255)
    slots.occupy(10, 20, 0b11)
    slots.occupy(0, FOREVER, 0b100)
    slots.occupy(15, 30, 0b1000)
    (page,) = slots.pages
    for index in range(len(page.free)):
        page.count(index)
    assert [count - page.covered for count in page.counts] == [7, 5, 4, 6, 7]


def test_many_that_share_nothing_fill_pages() -> None:
    slots = SlotSet(0, 255)
    slots.occupy_all([(2 * date, 2 * date + 1, 3, None) for date in range(1000)])
    assert len(slots.pages) > 10
    assert [slots.free_between(date, date + 1) for date in (0, 1, 1200, 1201, 5000)] == [252, 255, 252, 255, 255]


def longest_of_each_second(slots: SlotSet, resources: int, begin: int, end: int) -> int:
    """How long one of some resources stays free from a second of an interval on: second by second."""
    last = 200  #: behind it nothing is occupied
    found = 0
    for bit in (1 << position for position in range(8) if resources >> position & 1):
        for start in range(begin, end):
            date = start
            while date < last and slots.free_between(date, date + 1) & bit:
                date += 1
            found = max(found, FOREVER if date == last else date - start)
    return found


@settings(derandomize=True)
@given(occupants, st.integers(1, 255), st.integers(10, 60), st.integers(1, 60))
def test_the_longest_time_of_some_resources_is_that_of_each_second(
    wanted: list[tuple[int, int, int, SharingKey | None]],
    resources: int,
    begin: int,
    length: int,
) -> None:
    slots = SlotSet(10, 255)
    for start, duration, occupied, key in wanted[: 2 + resources % FEW]:
        slots.occupy(start, start + duration, occupied, key)
    expected = longest_of_each_second(slots, resources, begin, begin + length)
    assert slots.longest_free(resources, begin, begin + length) == expected


def test_the_longest_time_is_found_over_many_pages() -> None:
    slots = SlotSet(0, 255)
    slots.occupy_all([(2 * date, 2 * date + 1, 3, None) for date in range(1000)])
    assert slots.longest_free(1, 0, 500) == 1
    assert slots.longest_free(1, 0, 1999) == 1
    assert slots.longest_free(1, 0, 2000) == FOREVER
    assert slots.longest_free(5, 0, 1) == FOREVER
    slots.occupy(1500, 1501, 4)
    assert slots.longest_free(5, 0, 1) == 1500


@pytest.mark.parametrize("key", [None, TAG])
def test_a_step_in_which_many_are_entered_goes_through_a_portion_of_them(key: SharingKey | None) -> None:
    slots = SlotSet(0, 3)
    occupants: list[Occupant] = [(2 * date, 2 * date + 1, 1, None) for date in range(3 * PORTION)]
    occupants[-1] = (*occupants[-1][:3], key)
    steps = sum(1 for _ in slots.occupying(occupants))
    assert steps >= 3
    assert [free for _, free in row(slots)] == [2, 3] * (3 * PORTION)
