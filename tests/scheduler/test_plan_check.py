"""The check of plans: what the planner makes passes, and each kind of fault is found.

See docs/design/planner.rst, "Invariants".
"""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oar.kao.facts.plan import JobStart, Kill, KillAction, Placement, Plan
from oar.kao.facts.snapshot import Snapshot
from oar.kao.planner.plan_check import HolderCounts, faults_of, without
from oar.kao.planner.resources.compiled_requests import CompiledRequests
from oar.kao.planner.schedule import schedule
from oar.lib.base.resource_set import union
from oar.lib.jobs.reasons import ReasonCode
from oar.lib.nodes.states import ResourceState
from tests.scheduler.builders import NOW, Cluster
from tests.scheduler.test_invariants import random_cluster


def wrong(snapshot: Snapshot, plan: Plan, known: dict[int, Placement] | None = None) -> dict[int, str]:
    return faults_of(snapshot, plan, CompiledRequests(snapshot), known)


def changed(cluster: Cluster, job: int, **given: Any) -> dict[int, str]:
    """What is found when one placement of the plan is another."""
    snapshot = cluster.snapshot()
    plan = schedule(snapshot)
    places = tuple(replace(each, **given) if each.job_id == job else each for each in plan.placements)
    return wrong(snapshot, replace(plan, placements=places))


@given(st.integers(0, 10**9))
def test_what_the_planner_makes_passes(seed: int) -> None:
    snapshot = random_cluster(seed).snapshot()
    assert wrong(snapshot, schedule(snapshot)) == {}


def test_two_jobs_on_one_resource_are_found_and_the_later_one_is_refused() -> None:
    assert changed(Cluster(1, 2).job().job(), 2, resources=0b1) == {2: "it meets job 1 on the same resources"}


def test_a_job_where_another_runs_is_found() -> None:
    assert changed(Cluster(1, 2).run(0b10).job(), 2, resources=0b10) == {2: "it meets job 1 on the same resources"}


def test_a_job_that_begins_in_the_gap_behind_another_is_found() -> None:
    cluster = Cluster(1, 1).job(walltime=60).job()
    assert 2 in changed(cluster, 2, start=NOW + 60)
    assert changed(cluster, 2, start=NOW + 61) == {}


@pytest.mark.parametrize(
    ("given", "trouble"),
    [
        ({"resources": 0b0111}, "its request is not satisfied"),
        ({"resources": 0}, "it has no resources, or begins in the past"),
        ({"start": NOW - 1}, "it has no resources, or begins in the past"),
        ({"walltime": 10**6}, "10 is no alternative of the job with that walltime"),
        ({"alternative": 99}, "99 is no alternative of the job with that walltime"),
        ({"resources": 0b1111_0000}, "resources [5, 6, 7, 8] are not for this job"),
        ({"resources": 0b1111_0000_0000}, "it ends after a resource is gone"),
    ],
)
def test_a_place_that_is_wrong_by_itself_is_found(given: dict[str, Any], trouble: str) -> None:
    cluster = Cluster(3, 4).state(ResourceState.SUSPECTED, 1).state(ResourceState.ALIVE, 2, upto=NOW + 60)
    assert changed(cluster.job("/core=4"), 1, **given) == {1: trouble}


@pytest.mark.parametrize(
    ("given", "is_inside"),
    [
        ({}, True),
        ({"resources": 0b100}, False),
        ({"resources": 0b10}, True),
        ({"start": NOW + 60}, True),
        ({"start": NOW + 61}, False),
    ],
)
def test_an_inner_job_that_leaves_its_container_is_found(given: dict[str, Any], is_inside: bool) -> None:
    cluster = Cluster(1, 3).run(0b11, walltime=3660, types=("container=c",)).job(walltime=3600, types=("inner=c",))
    assert changed(cluster, 2, **given) == ({} if is_inside else {2: "it leaves its container c"})


def test_an_inner_job_may_go_from_one_part_of_its_container_to_the_next() -> None:
    cluster = Cluster(1, 2).run(0b1, walltime=100, types=("container=c",)).job(walltime=150, types=("inner=c",))
    cluster.reservation("/core=1", NOW + 101, 0b1, types=("container=c",))
    assert cluster.plan().start(2) == 0
    assert changed(cluster, 2) == {}


def test_jobs_that_share_may_meet() -> None:
    cluster = Cluster(1, 1).job(types=("timesharing",)).job(types=("timesharing",))
    assert changed(cluster, 2, resources=0b1) == {}


def test_what_was_looked_at_before_is_not_looked_at_again_by_itself() -> None:
    snapshot = Cluster(1, 2).job("/core=2").snapshot()
    bad = replace(schedule(snapshot).placements[0], resources=0b1)
    plan = replace(schedule(snapshot), placements=(bad,))
    assert wrong(snapshot, plan) == {1: "its request is not satisfied"}
    assert wrong(snapshot, plan, {1: bad}) == {}


def test_a_refused_job_leaves_nothing_in_the_plan_but_its_reason() -> None:
    snapshot = Cluster(1, 2).job().job().snapshot()
    plan = replace(schedule(snapshot), kills=(Kill(9, 1, KillAction.KILL),))
    left = without(plan, {1: "why"})
    assert [place.job_id for place in left.placements] == [2]
    assert [start.placement.job_id for start in left.started] == [2]
    assert (left.kills, left.reasons[1].code) == ((), ReasonCode.INTERNAL)
    assert isinstance(left.started[0], JobStart)
    assert "why" in left.troubles[-1]


@given(st.lists(st.integers(0, 255), max_size=12), st.data())
def test_what_is_held_is_what_those_have_that_are_left(holders: list[int], data: st.DataObject) -> None:
    counts = HolderCounts()
    for resources in holders:
        counts.add(resources)
    while holders:
        assert counts.held == union(holders)
        counts.remove(holders.pop(data.draw(st.integers(0, len(holders) - 1))))
    assert counts.held == 0
