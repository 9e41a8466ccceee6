"""With what the last round left, a plan is the same as from nothing."""

import random
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from oar.kao.facts.plan import Plan
from oar.kao.facts.snapshot import FOREVER, Pool, ResourceColumns, RunningJob, Snapshot, StoredPlacement, WaitingJob
from oar.kao.planner.placement.round_memory import RoundMemory
from oar.kao.planner.placement.site_extensions import FIND_PLUGINS
from oar.kao.planner.schedule import Round, schedule
from oar.lib.accounts.quota_records import QuotaPeriod, QuotaRule, Quotas
from oar.lib.jobs.states import JobState, Reservation
from oar.lib.nodes.states import ResourceState
from tests.scheduler.builders import NOW, Cluster, hours
from tests.scheduler.test_invariants import random_cluster
from tests.scheduler.test_plugins import with_plugin

#: What stays of a job when it starts.
SAME = ("id", "queue", "user", "project", "name", "types", "reservation", "array_id", "array_limit")


def planned(snapshot: Snapshot, memory: RoundMemory | None = None) -> tuple[Plan, RoundMemory, int]:
    """A plan, what it leaves, and how many jobs were searched for."""
    planning = Round(snapshot, memory=memory)
    plan = planning.plan()
    return plan, planning.memory(plan), len(snapshot.waiting) - planning.reused


def with_pools(job: WaitingJob, pools: Sequence[int]) -> WaitingJob:
    (asked,) = job.alternatives
    groups = tuple(group._replace(pool=pool) for group, pool in zip(asked.groups, pools, strict=True))
    return replace(job, alternatives=(replace(asked, groups=groups),))


def running(job: WaitingJob, plan: Plan) -> RunningJob:
    place = next(each.placement for each in plan.started if each.placement.job_id == job.id)
    same = {name: getattr(job, name) for name in SAME}
    return RunningJob(
        **same,
        state=JobState.TO_LAUNCH,
        alternative=place.alternative,
        start_time=place.start,
        walltime=place.walltime,
        resources=place.resources,
        memory=job.alternative(place.alternative).memory,
    )


def carried_out(snapshot: Snapshot, plan: Plan, now: int) -> Snapshot:
    """The situation some time after a plan."""
    started = {each.placement.job_id for each in plan.started}
    gone = {each.job_id for each in (*plan.refused, *plan.expired)}
    placed = {each.job_id: each for each in plan.placements}
    accepted = {each.job_id: each.start for each in plan.accepted}
    waiting = []
    for job in snapshot.waiting:
        if job.id in started | gone:
            continue
        if job.id in accepted:
            place = placed[job.id]
            granted = StoredPlacement(place.alternative, place.start, place.resources)
            waiting.append(
                replace(job, reservation=Reservation.SCHEDULED, start_time=accepted[job.id], granted=granted)
            )
        else:
            waiting.append(job)
    begun = [running(job, plan) for job in snapshot.waiting if job.id in started]
    return replace(snapshot, now=now, waiting=tuple(waiting), running=(*snapshot.running, *begun))


def limited(snapshot: Snapshot, dice: random.Random) -> Snapshot:
    """Some jobs are those of an array; there may be quotas, also by a calendar."""
    arrays = {job.id: dice.choice([0, 0, 0, 1, 2]) for job in (*snapshot.waiting, *snapshot.running)}
    snapshot = replace(
        snapshot,
        waiting=tuple(replace(job, array_id=7, array_limit=arrays[job.id]) for job in snapshot.waiting),
        running=tuple(replace(job, array_id=7, array_limit=arrays[job.id]) for job in snapshot.running),
    )
    if dice.random() < 0.4:
        return snapshot
    rules = tuple(tuple(random_rule(dice) for _ in range(dice.randint(1, 3))) for _ in range(2))
    periods = [QuotaPeriod(0, 0)] + [QuotaPeriod(NOW + dice.randint(1, 300), 1)] * (dice.random() < 0.4)
    latest = dice.choice([FOREVER, FOREVER, 100])
    return replace(
        snapshot,
        quotas=Quotas(rules, tuple(periods), min(FOREVER, NOW + latest)),
        settings=replace(snapshot.settings, has_quotas=True),
    )


def random_rule(dice: random.Random) -> QuotaRule:
    """A rule that binds a few jobs or all."""
    user, project = dice.choice(["*", "/", "ann"]), dice.choice(["*", "*", "/"])
    kind, queue = dice.choice(["*", "*", "timesharing"]), dice.choice(["*", "*", "default"])
    resources, jobs = dice.choice([-1, 1, 2, 4]), dice.choice([-1, -1, 1, 2])
    return QuotaRule(queue, project, kind, user, resources, jobs, dice.choice([-1, -1, 100, 400]))


def disturbed(snapshot: Snapshot, dice: random.Random) -> Snapshot:
    """Jobs end, are deleted, come, or get more time; a node is lost; quotas change."""
    if snapshot.running and dice.random() < 0.2:
        lucky = dice.choice(snapshot.running)
        longer = replace(lucky, walltime=max(1, lucky.walltime + dice.choice([-50, -1, 1, 2, 50])))
        snapshot = replace(snapshot, running=tuple(longer if job is lucky else job for job in snapshot.running))
    if dice.random() < 0.1:
        bit, states = dice.randrange(len(snapshot.resources.ids)), list(snapshot.resources.states)
        states[bit] = dice.choice([ResourceState.ALIVE, ResourceState.SUSPECTED, ResourceState.ABSENT])
        snapshot = replace(snapshot, resources=replace(snapshot.resources, states=tuple(states)))
    if snapshot.quotas and dice.random() < 0.1:
        rules = ((random_rule(dice),), (random_rule(dice),))
        snapshot = replace(snapshot, quotas=replace(snapshot.quotas, rules=rules))
    if snapshot.quotas and snapshot.quotas.latest_start < FOREVER:
        snapshot = replace(snapshot, quotas=replace(snapshot.quotas, latest_start=snapshot.now + 100))
    if snapshot.running and dice.random() < 0.3:
        ended = dice.choice(snapshot.running)
        snapshot = replace(snapshot, running=tuple(job for job in snapshot.running if job is not ended))
    if snapshot.waiting and dice.random() < 0.3:
        deleted = dice.choice(snapshot.waiting)
        snapshot = replace(snapshot, waiting=tuple(job for job in snapshot.waiting if job is not deleted))
    if snapshot.waiting and dice.random() < 0.5:
        like = dice.choice(snapshot.waiting)
        used = {job.id for job in (*snapshot.waiting, *snapshot.running)}
        number = max(used) + 1 if dice.random() < 0.7 else min(used) - 1
        new = replace(like, id=number, dependencies=(), granted=None, reservation=Reservation.NONE)
        snapshot = replace(snapshot, waiting=(*snapshot.waiting, new))
    return snapshot


@given(st.integers(0, 10**9))
@example(1).via("something is free that was not")
@example(3).via("a place is taken")
@example(6).via("the date counts under quotas")
@example(14).via("another job is waited for, longer")
@example(71).via("others of timesharing have come")
@example(161).via("a counter has counted less")
@example(208).via("a counter has counted more")
@example(1923).via("a counter that holds a job back has counted more")
def test_a_plan_with_memory_is_the_plan_from_nothing(seed: int) -> None:
    dice = random.Random(seed)
    check_that_memory_changes_nothing(limited(random_cluster(seed).snapshot(), dice), dice)


@given(st.integers(0, 10**9))
def test_neither_does_memory_change_the_places_of_requests_whose_groups_compete(seed: int) -> None:
    dice = random.Random(seed)
    check_that_memory_changes_nothing(competing(dice), dice)


def competing(dice: random.Random) -> Snapshot:
    """Jobs of one to three groups, with filters that overlap, on a machine on which some jobs run."""
    cluster = Cluster(nodes=6, cores=2)
    cluster.pools += [Pool(members) for members in (0b11, 0b1111, dice.getrandbits(12) | 1)]
    for core in dice.sample(range(12), 8):
        cluster.run(1 << core, dice.randint(1, 100))
    groups = ["/core=1", "/core=2", "/core=BESTHALF", "/node=1", "/node=2", "/node=1/core=1", "/switch=1/node=2"]
    for _ in range(dice.randint(4, 10)):
        cluster.job("+".join(dice.choices(groups, k=dice.choice([1, 2, 2, 3]))), walltime=dice.randint(5, 60))
    waiting = [with_pools(job, [dice.randrange(4) for _ in job.alternatives[0].groups]) for job in cluster.waiting]
    return replace(cluster.snapshot(), waiting=tuple(waiting))


def check_that_memory_changes_nothing(snapshot: Snapshot, dice: random.Random) -> None:
    plan, memory, _ = planned(snapshot)
    for _ in range(5):
        now = snapshot.now + dice.choice([0, 0, 1, 3, 10, 60])
        snapshot = disturbed(carried_out(snapshot, plan, now), dice)
        expected = schedule(snapshot)
        plan, memory, _ = planned(snapshot, memory)
        assert plan == expected


def test_jobs_whose_groups_compete_keep_their_places_without_a_search() -> None:
    cluster = Cluster(nodes=4, cores=2).run(0b11, walltime=100)
    for _ in range(10):
        cluster.job("/node=1+/node=2").job("/node=BESTHALF")
    plan, memory, searches = planned(cluster.snapshot())
    assert searches == 20
    later = carried_out(cluster.snapshot(), plan, NOW + 10)
    plan, memory, searches = planned(later, memory)
    assert (searches, plan) == (0, schedule(later))


def test_besteffort_and_inner_jobs_keep_their_places_without_a_search() -> None:
    cluster = Cluster(nodes=2, cores=2)
    box = cluster.node(1)
    cluster.run(box, walltime=hours(9), types=("container=box",)).run(cluster.node(0), walltime=hours(2))
    for _ in range(5):
        cluster.job("/core=1", types=("inner=box",)).job("/node=1", types=("besteffort",), queue="besteffort")
        cluster.job("/node=1")
    plan, memory, searches = planned(cluster.snapshot())
    assert searches == 15
    later = carried_out(cluster.snapshot(), plan, NOW + 10)
    plan, memory, searches = planned(later, memory)
    assert (searches, plan) == (0, schedule(later))
    (container,) = (job for job in later.running if job.types == ("container=box",))
    shorter = replace(container, walltime=hours(3))
    later = replace(later, running=tuple(shorter if job is container else job for job in later.running))
    plan, _, searches = planned(later, memory)
    assert searches > 0
    assert plan == schedule(later)


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


def test_a_job_that_ends_early_concerns_only_jobs_that_can_have_its_resources() -> None:
    cluster = Cluster(nodes=2, cores=1).run(0b01).run(0b10)
    cluster.pools += [Pool(0b01, "left"), Pool(0b10, "right")]
    for _ in range(3):
        cluster.job().job()
    halves = tuple(
        with_pools(job, [1 + place % 2]) for place, job in enumerate(cluster.snapshot().waiting)
    )  # left, right, left, ...
    snapshot = replace(cluster.snapshot(), waiting=halves)
    _, memory, searches = planned(snapshot)
    assert searches == 6
    without = replace(snapshot, running=snapshot.running[1:], now=NOW + 1)
    plan, _, searches = planned(without, memory)
    assert searches == 3
    assert next(each.start for each in plan.placements if each.resources == 0b01) == NOW + 1
    assert plan == schedule(without)


def test_a_running_job_that_stays_longer_moves_only_those_that_it_meets() -> None:
    cluster = Cluster(nodes=2, cores=1).run(0b01, walltime=100).run(0b10, walltime=1000)
    for _ in range(20):
        cluster.job("/core=2")
    first = replace(cluster.snapshot().running[0], walltime=102)
    _, memory, _ = planned(cluster.snapshot())
    later = replace(cluster.snapshot(), running=(first, cluster.snapshot().running[1]), now=NOW + 1)
    plan, _, searches = planned(later, memory)
    assert (searches, plan) == (0, schedule(later))
    longer = replace(later, running=(replace(first, walltime=2000), later.running[1]))
    plan, _, searches = planned(longer, memory)
    assert (searches, plan) == (20, schedule(longer))


def test_quotas_and_what_has_started_under_them_cost_no_search() -> None:
    cluster = Cluster(nodes=4, cores=2, has_quotas=True)
    rules = QuotaRule("*", "*", "*", "/", 3), QuotaRule("*", "*", "*", "*", -1, -1, 20 * 3600)
    cluster.quotas = Quotas((rules,), (QuotaPeriod(0, 0),))
    for number in range(20):
        cluster.job("/core=2", user=("ann", "bob")[number % 2])
    plan, memory, searches = planned(cluster.snapshot())
    assert (searches, len(plan.started)) == (20, 2)
    later = carried_out(cluster.snapshot(), plan, NOW + 10)
    plan, memory, searches = planned(later, memory)
    assert (searches, plan) == (0, schedule(later))
    more = replace(later, now=NOW + 20, waiting=(*later.waiting, replace(later.waiting[-1], id=99)))
    plan, _, searches = planned(more, memory)
    assert (searches, plan) == (1, schedule(more))


def test_a_job_whose_planning_breaks_off_names_the_first_round_in_which_it_did() -> None:
    cluster = Cluster(1, 1).job(types=("find=mine",))
    site = with_plugin(FIND_PLUGINS, lambda *_: 1 // 0)
    first = Round(cluster.snapshot(), site=site)
    again = Round(replace(cluster.snapshot(), now=NOW + 5), memory=first.memory(first.plan()), site=site)
    assert again.plan().reasons[1].text == f"internal error, see the log (round {NOW})"


def test_a_deleted_job_leaves_those_before_it_where_they_were() -> None:
    cluster = Cluster(nodes=1, cores=1).run(1).job().job().job()
    _, memory, _ = planned(cluster.snapshot())
    first, _, third = cluster.snapshot().waiting
    plan, _, searches = planned(replace(cluster.snapshot(), waiting=(first, third)), memory)
    assert searches == 1
    assert [each.start for each in plan.placements] == [NOW + hours(1) + 1, NOW + hours(2) + 2]


def test_resources_are_looked_through_once_and_not_in_each_round(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(nodes=4, cores=2, suspended_types=("default",)).run(0b11).run(0b1100, state=JobState.SUSPENDED)
    cluster.state(ResourceState.ABSENT, 2).state(ResourceState.ALIVE, 3, upto=NOW + 5000).job("/node=1").job("/core=9")
    snapshot = cluster.snapshot()
    plan, memory, _ = planned(snapshot)
    looks: list[object] = []
    find = ResourceColumns._search

    def find_and_count(resources: ResourceColumns, column: Sequence[object], values: Sequence[object]) -> int:
        looks.append(values)
        return find(resources, column, values)

    monkeypatch.setattr(ResourceColumns, "_search", find_and_count)
    again, _, _ = planned(replace(snapshot, now=NOW + 1), memory)
    assert (len(again.placements), looks) == (len(plan.placements), [])
