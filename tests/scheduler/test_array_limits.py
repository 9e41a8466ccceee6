"""At most M jobs of an array at a time: ``--array N%M``."""

import random
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from oar.kao.facts.plan import Placement
from oar.kao.facts.snapshot import PlannedJob, Snapshot, WaitingJob
from oar.kao.planner.schedule import schedule
from oar.lib.jobs.reasons import ReasonCode
from oar.lib.jobs.states import JobState
from tests.scheduler.builders import NOW, Cluster, hours
from tests.scheduler.reference import Reference
from tests.scheduler.test_invariants import random_cluster
from tests.scheduler.test_placement_reuse import carried_out, disturbed, planned


def test_only_so_many_start_and_the_others_leave_their_place_to_everybody_else() -> None:
    cluster = Cluster(nodes=2, cores=2)
    for _ in range(3):
        cluster.job("/core=1", array_id=1, array_limit=2)
    result = cluster.job("/core=2").plan()
    assert result.started() == [1, 2, 4]
    assert (result.start(3), result.code(3)) == (hours(1) + 1, ReasonCode.ARRAY)
    assert result.reason(3) == "waiting for one of the 2 jobs that may run at a time of the array 1"
    assert result.plan.messages[3].startswith("R=1,W=1:0:0,J=B,A=2 (waiting for one of the 2 jobs")


def test_running_jobs_of_the_array_count_until_they_have_ended() -> None:
    cluster = Cluster().run(1, walltime=60, since=100, array_id=1, array_limit=1, id=1)
    result = cluster.job(array_id=1, array_limit=1).plan()
    assert result.start(2) == 1
    suspended = Cluster().run(1, array_id=1, array_limit=1, id=1, state=JobState.SUSPENDED)
    assert suspended.job(array_id=1, array_limit=1).plan().start(2) == hours(1) + 1


def test_arrays_do_not_count_for_each_other() -> None:
    cluster = Cluster().run(1, array_id=1, array_limit=1, id=1)
    assert cluster.job(array_id=2, array_limit=1).job(array_id=1).plan().started() == [2, 3]


def test_jobs_for_which_there_is_no_room_at_the_date_of_their_reservation_are_refused() -> None:
    cluster = Cluster()
    for _ in range(2):
        cluster.reservation("/core=1", NOW + 100, array_id=1, array_limit=1)
    result = cluster.plan()
    assert [answer.job_id for answer in result.plan.accepted] == [1]
    assert result.errors()[2].startswith("This reservation could run at ")


def test_a_busy_machine_is_the_reason_where_the_array_is_not() -> None:
    cluster = Cluster(nodes=1, cores=1).run(1, walltime=hours(5)).run(0, walltime=hours(1), array_id=3, array_limit=1)
    result = cluster.job(array_id=3, array_limit=1).plan()
    assert (result.start(3), result.code(3)) == (hours(5) + 1, ReasonCode.BUSY)


def random_arrays(seed: int) -> Snapshot:
    """A machine on which jobs alike are arrays, some of them limited."""
    snapshot, rng = random_cluster(seed).snapshot(), random.Random(seed)
    limits: dict[tuple[str, tuple[str, ...]], int] = {}

    def array(job: PlannedJob) -> dict[str, Any]:
        kind = job.queue, job.types
        limit = limits.setdefault(kind, rng.choice([0, 1, 1, 2, 3]))
        return {"array_id": list(limits).index(kind), "array_limit": limit}

    return replace(
        snapshot,
        running=tuple(replace(job, **array(job)) for job in snapshot.running),
        waiting=tuple(replace(job, **array(job)) for job in snapshot.waiting),
    )


def is_one_too_many(snapshot: Snapshot, job: WaitingJob, place: Placement, placed: Mapping[int, Placement]) -> bool:
    """Whether at any second more jobs of the array are there than may be, by adding them up anew."""
    gap = snapshot.settings.security_time
    present = [(each, each.start_time, max(each.start_time + each.walltime, NOW)) for each in snapshot.running]
    reserved = [
        (each, each.start_time, each.start_time + each.alternatives[0].walltime)
        for each in snapshot.waiting
        if each.granted
    ]
    jobs = {each.id: each for each in snapshot.waiting}
    there = [(jobs[number], each.start, each.end) for number, each in placed.items()]
    mine = [(begin, end + gap) for each, begin, end in (*present, *reserved, *there) if each.array_id == job.array_id]
    counts = (sum(start <= second < end for start, end in mine) for second in range(place.start, place.end + gap))
    return bool(job.array_limit) and max(counts) >= job.array_limit


@given(st.integers(0, 10**9))
def test_each_job_has_the_earliest_place_that_resources_and_its_array_allow(seed: int) -> None:
    snapshot = random_arrays(seed)
    reference = Reference(snapshot, is_forbidden=lambda *asked: is_one_too_many(snapshot, *asked))
    expected = reference.plan()
    plan = schedule(snapshot)
    granted = {job.id for job in snapshot.waiting if job.granted}
    assert plan.troubles == ()
    assert {place.job_id: place for place in plan.placements if place.job_id not in granted} == expected


@given(st.integers(0, 10**9))
def test_a_plan_with_memory_is_the_plan_from_nothing(seed: int) -> None:
    dice, snapshot = random.Random(seed), random_arrays(seed)
    plan, memory, _ = planned(snapshot)
    for _ in range(4):
        snapshot = disturbed(carried_out(snapshot, plan, snapshot.now + dice.choice([0, 1, 3, 10, 60])), dice)
        expected = schedule(snapshot)
        plan, memory, _ = planned(snapshot, memory)
        assert plan == expected


def test_an_array_that_waits_for_its_turn_costs_the_next_round_no_search() -> None:
    cluster = Cluster(nodes=5, cores=2)
    for _ in range(20):
        cluster.job("/core=1", array_id=1, array_limit=2)
    snapshot = cluster.snapshot()
    plan, memory, _ = planned(snapshot)
    assert planned(carried_out(snapshot, plan, NOW + 10), memory)[2] == 0
