"""Equal jobs are placed together: as one by one, with one search for all that begin at a date."""

import random
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bench.cliffs import equal_array
from oar.kao.facts.snapshot import Snapshot
from oar.kao.planner.placement import placement_task
from oar.kao.planner.placement.placement_reasons import PlacementReasons
from oar.kao.planner.placement.placement_search import PlacementSearch
from oar.kao.planner.schedule import Round, schedule
from tests.scheduler.builders import Cluster
from tests.scheduler.reference import Reference
from tests.scheduler.test_invariants import REQUESTS, TYPES, random_cluster
from tests.scheduler.test_placement_reuse import carried_out, disturbed, limited, planned

KINDS = [*TYPES, (), (), (), ("besteffort",), ("inner=c",), ("container",), ("container=c",), ("no_quotas",)]


def of_equal_jobs(seed: int) -> Cluster:
    """A machine on which rows of equal jobs wait, some of them in arrays; containers come before their inner jobs."""
    dice = random.Random(seed)
    cluster = random_cluster(seed)
    cluster.waiting = [job for job in cluster.waiting if job.granted]
    rows = [dice.choice(KINDS) for _ in range(dice.randint(1, 4))]
    for types in sorted(rows, key=lambda types: not _is_container(types)):
        request, queue = dice.choice(REQUESTS), dice.choice(["default", "admin"])
        if _is_container(types) or _is_inner(types):
            queue = "admin" if _is_container(types) else "default"
        given: dict[str, Any] = {"types": types, "queue": "besteffort" if "besteffort" in types else queue}
        given |= {"user": dice.choice(["ann", "bob"]), "walltime": dice.randint(1, 200)}
        for _ in range(dice.randint(1, 8)):
            cluster.job(request, **given)
    return cluster


def _is_container(types: tuple[str, ...]) -> bool:
    return any(each.partition("=")[0] == "container" for each in types)


def _is_inner(types: tuple[str, ...]) -> bool:
    return any(each.startswith("inner=") for each in types)


def one_by_one(snapshot: Snapshot) -> Any:
    """The plan that is made with waves of one job each."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(placement_task, "LARGEST_WAVE", 1)
        return schedule(snapshot)


seeds = st.integers(0, 10**9)


@given(seeds)
def test_equal_jobs_have_the_places_that_trying_every_instant_gives(seed: int) -> None:
    snapshot = of_equal_jobs(seed).snapshot()
    granted = {job.id for job in snapshot.waiting if job.granted}
    plan = schedule(snapshot)
    found = {placement.job_id: placement for placement in plan.placements if placement.job_id not in granted}
    assert (found, plan.failures) == (Reference(snapshot).plan(), ())


@given(seeds)
@example(12956234)  # with other resources a quota lets the second of two equal jobs begin before the first
def test_a_plan_of_waves_is_that_of_one_job_after_the_other(seed: int) -> None:
    """Also the reasons and messages, and under quotas and limits of arrays."""
    dice = random.Random(seed)
    snapshot = limited(of_equal_jobs(seed).snapshot(), dice)
    if dice.random() < 0.5:
        limits = {job.array_limit for job in snapshot.waiting}
        snapshot = replace(
            snapshot, waiting=tuple(replace(job, array_limit=max(limits, default=0)) for job in snapshot.waiting)
        )
    assert schedule(snapshot) == one_by_one(snapshot)


@given(seeds)
def test_with_memory_waves_are_the_same_when_jobs_of_them_come_and_go(seed: int) -> None:
    dice = random.Random(seed)
    snapshot = limited(of_equal_jobs(seed).snapshot(), dice)
    plan, memory, _ = planned(snapshot)
    for _ in range(4):
        now = snapshot.now + dice.choice([0, 0, 1, 3, 10, 60])
        snapshot = disturbed(carried_out(snapshot, plan, now), dice)
        plan, memory, _ = planned(snapshot, memory)
        assert plan == one_by_one(snapshot)


def test_a_wave_holds_no_more_jobs_than_a_round_may_plan() -> None:
    cluster = Cluster(nodes=4, cores=2, max_jobs=3)
    for _ in range(5):
        cluster.job("/core=1")
    plan = cluster.plan()
    assert plan.started() == [1, 2, 3]
    assert [plan.code(job) for job in (4, 5)] == ["LIMIT", "LIMIT"]


def test_one_search_is_made_for_all_equal_jobs_that_begin_at_a_date(monkeypatch: pytest.MonkeyPatch) -> None:
    snapshot = equal_array(5000, 1000)
    searches = counted(monkeypatch, PlacementSearch, "best")
    explained = counted(monkeypatch, PlacementReasons, "later_start")
    planning = Round(snapshot)
    plan = planning.plan()
    dates = {placement.start for placement in plan.placements}
    assert len(plan.placements) == 5000
    assert len(searches) <= len(dates) + 5000 / placement_task.LARGEST_WAVE
    memory = planning.memory(plan)
    searches.clear()
    explained.clear()
    assert Round(snapshot, memory=memory).plan() == plan
    assert (searches, explained) == ([], [])


def counted(monkeypatch: pytest.MonkeyPatch, owner: type, name: str) -> list[str]:
    """The calls of a method, as they are made."""
    calls: list[str] = []
    method = getattr(owner, name)

    def call(*arguments: Any, **options: Any) -> Any:
        calls.append(name)
        return method(*arguments, **options)

    monkeypatch.setattr(owner, name, call)
    return calls
