"""What advance reservations may be given: nothing of suspended jobs, and healthy resources first."""

import random
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oar.kao.facts.snapshot import Pool, RequestGroup
from oar.kao.planner.schedule import Round
from oar.lib.base.resource_set import from_positions
from oar.lib.jobs.records import Level
from oar.lib.jobs.states import JobState
from oar.lib.nodes.states import ResourceState
from oar.lib.reservations.states import ReservationState as S
from tests.scheduler.builders import NOW
from tests.scheduler.test_advance_reservations import Site, bits, change

TWO = (RequestGroup(0, (Level("core", 2),)),)
THREE = (RequestGroup(0, (Level("core", 3),)),)


def asleep_on(held: int, **given: Any) -> Site:
    """Two nodes of two cores, and job 7, which is suspended and lends its cores."""
    site = Site(nodes=2, suspended_types=("default",))
    site.run(held, walltime=10, id=7, state=given.pop("state", JobState.SUSPENDED), **given)
    return site


# -- suspended jobs ---------------------------------------------------------------------------------------------------


def test_a_change_takes_nothing_of_a_suspended_job_and_names_it() -> None:
    for state in (JobState.SUSPENDED, JobState.RESUMING):
        site = asleep_on(12, state=state)
        site.reserve("/core=2", NOW + 100, NOW + 200, held=3, groups=TWO)
        more = change(site, alternatives=(THREE,))
        assert (more.is_granted, more.proposal) == (False, 0)
        assert more.message.endswith(" (suspended job 7)")
        assert change(asleep_on(8).reserve("/core=2", NOW + 100, NOW + 200, held=3), alternatives=(THREE,)).is_granted


def test_a_reservation_keeps_what_it_has_of_a_suspended_job_and_gets_no_more_time_of_it() -> None:
    for start, state in ((NOW + 100, S.WAITING), (NOW - 10, S.RUNNING)):
        site = asleep_on(1)
        site.reserve("/core=2", start, NOW + 200, held=3, state=state, groups=TWO)
        sooner = change(site, end=NOW + 150)
        assert (sooner.is_granted, sooner.resources) == (True, (1, 2))
        longer = change(site, end=NOW + 300)
        if state is S.WAITING:
            assert (longer.is_granted, longer.resources) == (True, (2, 3))
        else:
            assert (longer.is_granted, longer.proposal) == (False, 0)
            assert longer.message.endswith(" (suspended job 7)")


def test_a_suspended_job_inside_does_not_hinder_a_change_of_its_own_reservation() -> None:
    site = asleep_on(3, types=("inner=1001",))
    site.reserve("/core=2", NOW - 10, NOW + 200, held=3, state=S.RUNNING, groups=TWO)
    assert change(site, end=NOW + 300).is_granted
    assert change(site, alternatives=(THREE,)).resources == (1, 2, 3)


def test_lost_resources_are_not_replaced_by_those_of_a_suspended_job() -> None:
    for held, got in ((4, (5, 6)), (0, (3, 4))):
        site = Site(nodes=3, suspended_types=("default",))
        site.state(ResourceState.DEAD, 0)
        if held:
            site.run(held, walltime=10, id=7, state=JobState.SUSPENDED)
        groups = (RequestGroup(0, (Level("node", 1),)),)
        site.reserve("/node=1", NOW + 500, NOW + 900, held=3, state=S.WARNING, replaces_lost=True, groups=groups)
        assert site.steps()[1].resources == got


def test_a_refusal_by_a_suspended_job_names_it_and_counts_its_slots() -> None:
    refused = asleep_on(3).reserve("/core=3", NOW + 500, NOW + 900).steps()[1]
    assert refused.message.startswith("only 2 of 4 suitable slots are free until ")
    assert refused.message.endswith(" (suspended job 7)")


@given(st.integers(0, 10**6))
def test_whatever_is_granted_has_nothing_of_suspended_jobs(seed: int) -> None:
    rng = random.Random(seed)
    lends = ("default",) if rng.random() < 0.5 else ()
    site, sleeping = Site(nodes=3, suspended_types=lends), rng.randint(1, 63)
    site.run(sleeping, walltime=10, id=7, state=rng.choice([JobState.SUSPENDED, JobState.RESUMING]))
    held = rng.randint(1, 63)
    site.reserve("/core=1", NOW + 100, NOW + 200, held=held, groups=TWO)
    site.reserve(f"/core={rng.randint(1, 6)}", NOW + 200, NOW + 300)
    new = site.steps()[2]
    assert not bits(new) & sleeping
    end, wanted = NOW + rng.choice([150, 300]), rng.choice([(), (TWO,), (THREE,)])
    changed = change(site, end=end, alternatives=wanted)
    mine = held if end <= NOW + 200 else 0
    assert not from_positions(number - 1 for number in changed.resources) & sleeping & ~mine


# -- health -----------------------------------------------------------------------------------------------------------


def test_healthy_resources_are_reserved_first() -> None:
    site = Site(nodes=3)
    site.state(ResourceState.SUSPECTED, 0)
    step = site.reserve("/core=2", NOW + 100, NOW + 200).steps()[1]
    assert (step.state, step.resources) == (S.WAITING, (3, 4))
    step = site.reserve("/core=3", NOW + 100, NOW + 200, start_window=50).steps()[2]
    assert (step.state, step.start, step.resources) == (S.WARNING, NOW + 100, (1, 5, 6))


def test_a_node_in_maintenance_or_asleep_at_the_start_comes_behind_healthy_ones() -> None:
    site = Site(nodes=2).reserve("/core=2", NOW + 100, NOW + 200)
    (step,) = Round(replace(site.snapshot(), maintenance=3)).plan().reservations
    assert (step.state, step.resources) == (S.WAITING, (3, 4))
    for start, got in ((NOW, (3, 4)), (NOW + 9000, (1, 2))):
        asleep = Site(nodes=2, may_wake=True)
        asleep.state(ResourceState.ABSENT, 0, upto=2147483646)
        assert asleep.reserve("/core=2", start, start + 100).steps()[1].resources == got


def test_with_a_window_the_earliest_start_is_taken_on_healthy_resources() -> None:
    site = Site(nodes=3).reserve("/core=6", NOW, NOW + 50, held=63, state=S.WAITING)
    site.state(ResourceState.SUSPECTED, 0)
    step = site.reserve("/core=2", NOW, NOW + 100, start_window=100).steps()[2]
    assert (step.state, step.start, step.resources) == (S.WAITING, NOW + 50, (3, 4))


def test_a_change_takes_healthy_resources_first_and_gives_up_others_first() -> None:
    site = Site(nodes=3).reserve("/core=2", NOW + 100, NOW + 200, held=12, groups=TWO)
    site.state(ResourceState.SUSPECTED, 0)
    assert change(site, alternatives=(THREE,)).resources == (3, 4, 5)
    site.reserve("/core=2", NOW + 200, NOW + 300, held=12)
    assert change(site, end=NOW + 250).resources == (5, 6)
    mixed = Site(nodes=2).reserve("/core=3", NOW + 100, NOW + 200, held=7, groups=THREE)
    mixed.state(ResourceState.SUSPECTED, 0)
    assert change(mixed, alternatives=((RequestGroup(0, (Level("core", 1),)),),)).resources == (3,)


def test_lost_resources_are_not_replaced_by_those_in_maintenance() -> None:
    site = Site(nodes=3)
    site.state(ResourceState.DEAD, 0)
    groups = (RequestGroup(0, (Level("node", 1),)),)
    site.reserve("/node=1", NOW + 500, NOW + 900, held=3, state=S.WARNING, replaces_lost=True, groups=groups)
    (step,) = Round(replace(site.snapshot(), maintenance=12)).plan().reservations
    assert step.resources == (5, 6)


# -- jobs inside ------------------------------------------------------------------------------------------------------


def test_a_change_ends_no_job_that_could_not_run_before_it() -> None:
    site = Site(nodes=2).reserve("/core=2", NOW + 100, NOW + 200, held=3, groups=TWO)
    site.inside(1, "/core=1", 90, id=1).inside(1, "/core=1", 500, id=2).inside(1, "/core=4", 10, id=3)
    assert change(site, end=NOW + 150).ended_jobs == (1,)


# -- conditions -------------------------------------------------------------------------------------------------------


def test_a_condition_that_nobody_can_evaluate_is_not_satisfied_and_one_without_time_is_not_judged() -> None:
    for pool, level, step_state in (
        (Pool(0, "gpu > 1", "unknown property"), "core", S.WARNING),
        (Pool(0, "gpu > 1", "no time", is_put_off=True), "core", None),
        (Pool(3), "gpu", S.WARNING),
        (Pool(3), "core", None),
    ):
        groups = (RequestGroup(1, (Level(level, 2),)),)
        site = Site(nodes=1).reserve("/core=2", NOW + 100, NOW + 200, held=3, groups=groups)
        site.pools.append(pool)
        steps = site.steps()
        assert (steps[1].state if steps else None) is step_state


# -- refusals ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("request_text", "told"),
    [
        ("/network_address=1/resource_id=4", "only 0 of 3 suitable nodes have 4 free slots until "),
        ("/network_address=2/core=3", "only 1 of 3 suitable nodes have 3 free slots until "),
        ("/network_address=4/core=1", "only 3 of 3 suitable nodes have 1 free slot until "),
        ("/network_address=3/resource_id=2", "only 1 of 3 suitable nodes have 2 free slots until "),
        ("/network_address=3", "only 0 of 3 suitable nodes are free until "),
        ("/resource_id=9", "only 5 of 12 suitable slots are free until "),
    ],
)
def test_a_refusal_counts_in_what_was_asked_for(request_text: str, told: str) -> None:
    site = Site(nodes=3, cores=4).reserve("/core=1", NOW + 100, NOW + 200, held=0b0111_0001_1110)
    message = site.reserve(request_text, NOW + 100, NOW + 200).steps()[2].message
    assert message.startswith(told)
    assert message.endswith(" (advance reservation 1)")
