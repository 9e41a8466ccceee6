"""The time that searches for advance reservations may take: one is settled in each round, and nobody starves."""

from dataclasses import replace
from itertools import count

import pytest

from oar.kao.facts.plan import ReservationStep
from oar.kao.facts.snapshot import PlannedChange, RequestGroup
from oar.kao.planner.advance_reservations.search import NO_TIME, SEARCH_SECONDS, SearchClock
from oar.kao.planner.schedule import Round
from oar.lib.jobs.records import Level
from oar.lib.nodes.states import ResourceState
from oar.lib.reservations.states import ReservationState as S
from tests.scheduler.builders import NOW
from tests.scheduler.test_advance_reservations import Site

ONE_CORE = (RequestGroup(0, (Level("core", 1),)),)


def slow(seconds: float = SEARCH_SECONDS) -> SearchClock:
    """Return a clock for searches that take long."""
    ticks = count(0.0, seconds)
    return SearchClock(lambda: next(ticks))


def answered(site: Site) -> tuple[list[ReservationStep], set[int], tuple[int, ...]]:
    """Return the steps of a slow round, the reservations that it leaves over, and the dates of later rounds."""
    clock = slow()
    plan = Round(site.snapshot(), clock=clock).plan()
    return list(plan.reservations), clock.left_over, plan.reservation_dates


def test_requests_that_are_left_over_come_first_in_the_next_round() -> None:
    site = Site(nodes=1)
    for _ in range(4):
        site.reserve("/core=1", NOW + 100, NOW + 200, start_window=1000)
    order = []
    while site.reservations:
        steps, left, dates = answered(site)
        order += [step.reservation_id for step in steps]
        site.reservations = [each for each in site.reservations if each.id in left]
        assert (NOW + 1 in dates) == bool(left)
    assert order == [1, 2, 3, 4]


def test_a_refusal_says_that_no_later_start_was_looked_for() -> None:
    site = Site(nodes=1).reserve("/core=2", NOW + 100, NOW + 200, held=3).reserve("/core=1", NOW + 150, NOW + 250)
    (refused,), left, _ = answered(site)
    assert (refused.state, refused.proposal, left) == (S.REFUSED, 0, set())
    assert refused.message.endswith(f"; {NO_TIME}")
    assert site.steps()[2].proposal == NOW + 200


def test_the_occurrences_of_a_series_are_answered_together_or_left_over_together() -> None:
    site = Site(nodes=1).reserve("/core=1", NOW + 100, NOW + 200)
    site.repeat("/core=1", NOW + 100, 50, 100, 3)
    steps, left, _ = answered(site)
    assert ([step.reservation_id for step in steps], left) == ([1], {2, 3, 4})


@pytest.mark.parametrize("number", [3, 7])
def test_changes_are_answered_one_in_each_round_and_do_not_keep_requests_waiting(number: int) -> None:
    site = Site(nodes=4)
    for index in range(number):
        site.reserve("/core=1", NOW + 100, NOW + 200, held=1 << index)
    site.reserve("/core=1", NOW + 100, NOW + 200)
    changes = tuple(PlannedChange(each.id, each.id, end=NOW + 300) for each in site.reservations[:number])
    clock = slow()
    plan = Round(replace(site.snapshot(), reservation_changes=changes), clock=clock).plan()
    assert [step.change_id for step in plan.reservation_changes] == [1]
    assert [step.reservation_id for step in plan.reservations] == [number + 1]
    assert clock.left_over == set(range(2, number + 1))


def test_of_reservations_with_lost_resources_each_comes_first_in_some_round() -> None:
    def replaced(date: int) -> int:
        site = Site(nodes=6, cores=1)
        for number in (1, 2, 3):
            site.state(ResourceState.SUSPECTED, number - 1)
            since = {"replaces_lost": True, "missing": (number,), "missing_since": {number: 0}, "groups": ONE_CORE}
            site.reserve("/core=1", NOW + 500, NOW + 900, held=1 << (number - 1), state=S.WARNING, **since)
        plan = Round(replace(site.snapshot(), now=date), clock=slow()).plan()
        (step,) = (each for each in plan.reservations if each.resources)
        return step.reservation_id

    assert {replaced(NOW + second) for second in range(3)} == {1, 2, 3}
