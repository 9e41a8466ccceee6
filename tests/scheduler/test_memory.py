"""With what the last round left, a plan is the same as from nothing."""

import random
from dataclasses import replace

from hypothesis import example, given, settings
from hypothesis import strategies as st

from oar.kao.memory import Memory
from oar.kao.model import Granted, Plan, RunningJob, Snapshot, WaitingJob
from oar.kao.schedule import Round, schedule
from oar.lib.states import JobState, Reservation
from tests.scheduler.builders import NOW, Cluster, hours
from tests.scheduler.test_invariants import random_cluster

#: What stays of a job when it starts.
SAME = ("id", "queue", "user", "project", "name", "types", "reservation", "array_id", "array_limit")


def planned(snapshot: Snapshot, before: Memory | None = None) -> tuple[Plan, Memory, int]:
    """A plan, what it leaves, and how many jobs were searched for."""
    this = Round(snapshot, before=before)
    for queues in this.groups():
        this.plan_queues(queues)
    this.plan_besteffort()
    plan = this.finish()
    return plan, this.memory(plan), len(snapshot.waiting) - this.recalled


def running(job: WaitingJob, plan: Plan) -> RunningJob:
    place = next(each.placement for each in plan.launches if each.placement.job_id == job.id)
    same = {name: getattr(job, name) for name in SAME}
    return RunningJob(
        **same,
        state=JobState.TO_LAUNCH,
        alternative=place.alternative,
        start_time=place.start,
        walltime=place.walltime,
        resources=place.resources,
    )


def carried_out(snapshot: Snapshot, plan: Plan, now: int) -> Snapshot:
    """The situation some time after a plan."""
    started = {each.placement.job_id for each in plan.launches}
    gone = {each.job_id for each in (*plan.refused, *plan.expired)}
    placed = {each.job_id: each for each in plan.placements}
    accepted = {each.job_id: each.start for each in plan.accepted}
    waiting = []
    for job in snapshot.waiting:
        if job.id in started | gone:
            continue
        if job.id in accepted:
            place = placed[job.id]
            granted = Granted(place.alternative, place.start, place.resources)
            waiting.append(
                replace(job, reservation=Reservation.SCHEDULED, start_time=accepted[job.id], granted=granted)
            )
        else:
            waiting.append(job)
    begun = [running(job, plan) for job in snapshot.waiting if job.id in started]
    return replace(snapshot, now=now, waiting=tuple(waiting), running=(*snapshot.running, *begun))


def disturbed(snapshot: Snapshot, dice: random.Random) -> Snapshot:
    """Jobs end, are deleted, or come."""
    if snapshot.running and dice.random() < 0.3:
        ended = dice.choice(snapshot.running)
        snapshot = replace(snapshot, running=tuple(job for job in snapshot.running if job is not ended))
    if snapshot.waiting and dice.random() < 0.3:
        deleted = dice.choice(snapshot.waiting)
        snapshot = replace(snapshot, waiting=tuple(job for job in snapshot.waiting if job is not deleted))
    if snapshot.waiting and dice.random() < 0.5:
        like = dice.choice(snapshot.waiting)
        number = max(job.id for job in (*snapshot.waiting, *snapshot.running)) + 1
        new = replace(like, id=number, dependencies=(), granted=None, reservation=Reservation.NONE)
        snapshot = replace(snapshot, waiting=(*snapshot.waiting, new))
    return snapshot


@settings(max_examples=250, deadline=None)
@given(st.integers(0, 10**9))
@example(619).via("a placeholder under a job that was started")
@example(1611).via("a place that was found but not taken")
@example(2121).via("BESTHALF of less")
def test_a_plan_with_memory_is_the_plan_from_nothing(seed: int) -> None:
    dice = random.Random(seed)
    snapshot = random_cluster(seed).snapshot()
    plan, memory, _ = planned(snapshot)
    for _ in range(4):
        now = snapshot.now + dice.choice([0, 0, 1, 3, 10, 60])
        snapshot = disturbed(carried_out(snapshot, plan, now), dice)
        expected = schedule(snapshot)
        plan, memory, _ = planned(snapshot, memory)
        assert plan == expected


def test_a_new_job_behind_all_others_costs_one_search() -> None:
    cluster = Cluster(nodes=2, cores=2)
    for _ in range(20):
        cluster.job("/core=3")
    plan, memory, searches = planned(cluster.snapshot())
    assert searches == 20
    later = carried_out(cluster.job("/core=1").snapshot(), plan, NOW + 10)
    plan, memory, searches = planned(later, memory)
    assert searches == 1
    _, _, searches = planned(carried_out(later, plan, NOW + 20), memory)
    assert searches == 0


def test_a_job_that_ends_early_lets_all_be_planned_again() -> None:
    cluster = Cluster(nodes=1, cores=1).run(1).job().job()
    _, memory, _ = planned(cluster.snapshot())
    plan, _, searches = planned(replace(cluster.snapshot(), running=(), now=NOW + 1), memory)
    assert searches == 2
    assert [each.start for each in plan.placements] == [NOW + 1, NOW + 2 + hours(1)]


def test_a_deleted_job_leaves_those_before_it_where_they_were() -> None:
    cluster = Cluster(nodes=1, cores=1).run(1).job().job().job()
    _, memory, _ = planned(cluster.snapshot())
    first, _, third = cluster.snapshot().waiting
    plan, _, searches = planned(replace(cluster.snapshot(), waiting=(first, third)), memory)
    assert searches == 1
    assert [each.start for each in plan.placements] == [NOW + hours(1) + 1, NOW + hours(2) + 2]
