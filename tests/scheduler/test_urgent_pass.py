"""The urgent pass: what it starts, kills and answers is what a full plan does, whatever it passes over."""

import random
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import event, example, given, settings
from hypothesis import strategies as st

from oar.kao.facts.job_types import NO_TYPES, SharingKey
from oar.kao.facts.plan import Placement, Plan
from oar.kao.facts.snapshot import Pool, Snapshot, StoredPlacement, WaitingJob
from oar.kao.planner import urgent_pass
from oar.kao.planner.limits.dependencies import Dependencies
from oar.kao.planner.passed_jobs import PassedChains, Turn
from oar.kao.planner.placement import placement_search
from oar.kao.planner.placement.placement_task import PlacementRules
from oar.kao.planner.placement.round_memory import RoundMemory
from oar.kao.planner.resources import slot_search
from oar.kao.planner.resources.slot_search import Check, _Search
from oar.kao.planner.resources.slots import SlotMatch, SlotQuery, SlotSet
from oar.kao.planner.schedule import Round, schedule
from oar.lib.accounts.quota_records import QuotaPeriod, QuotaRule, Quotas
from oar.lib.jobs.records import Dependency, Queue
from oar.lib.jobs.states import QueueState, Reservation
from oar.lib.nodes.states import ResourceState
from oar.lib.reservations.states import ReservationState as S
from tests.examples import at_most
from tests.scheduler.builders import NOW, Cluster
from tests.scheduler.test_advance_reservations import Site
from tests.scheduler.test_invariants import random_cluster
from tests.scheduler.test_placement_reuse import carried_out, disturbed, limited

SIMPLE = ["/core=1", "/core=1", "/core=2", "/core=3", "/node=1", "/node=2", "/node=1/core=1", "/switch=1/core=3"]
SHAPES = [((), "default")] * 6 + [
    (("timesharing",), "default"), (("besteffort",), "besteffort"), (("container=c",), "admin"), ((), "strict"),
]  # fmt: skip


def urgent(snapshot: Snapshot, memory: RoundMemory | None = None) -> Plan:
    """An urgent pass that passes over whatever it can, and has all the time that it needs."""
    return Round(snapshot, memory=memory).urgent(lambda: True, lambda: False)


def decisions(plan: Plan) -> tuple[object, ...]:
    """What is done at once because of a plan."""
    kills = {(kill.job_id, kill.for_job, kill.action) for kill in plan.kills}
    answers = plan.accepted, plan.refused, plan.expired, plan.regained, plan.lost, plan.resumed
    starts = {start.placement.job_id: start for start in plan.started}
    return starts, kills, answers, plan.reservations, plan.reservation_changes, plan.reservation_dates


def crowded(seed: int) -> Snapshot:
    """A machine for which more jobs wait than it can take."""
    dice = random.Random(seed)
    cluster = random_cluster(seed)
    for more in range(dice.randint(0, 4)):
        other = random_cluster(seed + 1 + more)
        used = {job.id for job in (*cluster.waiting, *cluster.running)}
        for job in other.waiting:
            is_free = not (job.dependencies or job.granted or any(name.startswith("inner") for name in job.types))
            if is_free:
                number = max(used, default=0) + 1
                used.add(number)
                cluster.waiting.append(replace(job, id=number))
    return limited(cluster.snapshot(), dice)


def busy(seed: int) -> Snapshot:
    """A larger machine that is nearly full, and a long queue of jobs of few kinds."""
    dice = random.Random(seed)
    cluster = Cluster(dice.randint(3, 8), dice.choice([1, 2, 4]), max_jobs=0, besteffort_duration=dice.choice([0, 20]))
    left = cluster.resources.everything
    for _ in range(dice.randint(2, 12)):
        held = left & dice.getrandbits(left.bit_length()) & dice.getrandbits(left.bit_length())
        types = dice.choice([(), (), (), (), ("besteffort",), ("timesharing",)])
        cluster.run(held, dice.randint(1, 300), types=types)
        left &= ~held
    kinds = [(dice.choice(SIMPLE), dice.choice(SHAPES)) for _ in range(dice.randint(1, 5))]
    for _ in range(dice.randint(5, 40)):
        request, (types, queue) = dice.choice(kinds)
        number = len(cluster.running) + len(cluster.waiting) + 1
        earlier = [job.id for job in cluster.waiting if job.queue == queue]
        after = [dice.choice(earlier)] if earlier and dice.random() < 0.05 else []
        requests = [
            f"{request},walltime=0:0:{dice.choice([3, 10, 30, 100, 300])}" for _ in range(dice.choice([1, 1, 2]))
        ]
        cluster.job(*requests, id=number, types=types, queue=queue, user=dice.choice(["ann", "bob"]), after=after)
    cluster.queues = (*cluster.queues, Queue("strict", 1, "kamelot_fifo", QueueState.ACTIVE))
    snapshot = cluster.snapshot()
    return limited(snapshot, dice) if dice.random() < 0.3 else snapshot


def saving(snapshot: Snapshot, dice: random.Random) -> Snapshot:
    """Some nodes sleep; of jobs that begin now some wait for nodes that wake."""
    resources = snapshot.resources
    states = [dice.choice([state, state, ResourceState.ABSENT]) for state in resources.states]
    upto = [dice.choice([2147483646, snapshot.now + 100]) for _ in states]
    settings = replace(snapshot.settings, may_wake=True, wakeup_time=dice.choice([10, 600]))
    resources = replace(resources, states=tuple(states), available_upto=tuple(upto))
    snapshot = replace(snapshot, resources=resources, settings=settings)
    last = {place.job_id: place for place in schedule(replace(snapshot, now=snapshot.now - 5)).placements}
    return replace(snapshot, waiting=tuple(_promised(job, last.get(job.id), snapshot.now) for job in snapshot.waiting))


def _promised(job: WaitingJob, place: Placement | None, now: int) -> WaitingJob:
    if place is None or place.start > now or job.reservation is not Reservation.NONE:
        return job
    return replace(job, promised=StoredPlacement(place.alternative, place.start, place.resources))


def in_parts(seed: int) -> Snapshot:
    """A machine of parts that meet, for each of which jobs wait: ones of arrays with a limit, and ones of workflows."""
    dice = random.Random(seed)
    cluster = Cluster(dice.randint(4, 10), dice.choice([1, 2]), max_jobs=0)
    nodes = cluster.resources.everything.bit_count() // cluster.cores
    for _ in range(dice.randint(1, 3)):
        first = dice.randrange(nodes)
        width = dice.randint(1, nodes - first)
        cluster.pools.append(Pool(cluster.node(*range(first, first + width)), f"from {first}, {width}"))
    for node in range(nodes):
        if dice.random() < 0.7:
            cluster.run(cluster.node(node), dice.randint(1, 300))
    for _ in range(dice.randint(5, 40)):
        number = len(cluster.running) + len(cluster.waiting) + 1
        pool, walltime = dice.randrange(len(cluster.pools)), dice.choice([3, 10, 30, 100, 300])
        types = dice.choice([(), (), (), (), (), ("timesharing",), ("container=c",), ("inner=c",)])
        earlier = [job.id for job in cluster.waiting]
        after = [dice.choice(earlier)] if earlier and dice.random() < 0.2 else []
        cluster.job(f"{dice.choice(SIMPLE)},walltime=0:0:{walltime}", id=number, types=types, after=after)
        job = cluster.waiting[-1]
        alternatives = tuple(
            replace(each, groups=tuple(group._replace(pool=pool) for group in each.groups)) for each in job.alternatives
        )
        limit = dice.choice([0, 0, 1, 2])
        cluster.waiting[-1] = replace(job, alternatives=alternatives, array_id=limit, array_limit=limit)
    cluster.settings = replace(cluster.settings, backfill_depths=dice.choice([{}, {}, {}, {"_": 2}, {"_": 8}]))
    return cluster.snapshot()


def reserved(seed: int) -> Snapshot:
    """A machine with advance reservations, jobs in them and jobs outside."""
    dice = random.Random(seed)
    site = Site(dice.randint(2, 5), 2, besteffort_kill_before=dice.choice([0, 20]))
    for node in range(dice.randint(1, 2)):
        start = NOW + dice.randint(-50, 100)
        state = S.RUNNING if start <= NOW else S.WAITING
        flexible = dice.random() < 0.3
        site.reserve("/node=1", start, NOW + 200, held=site.node(node), state=state, is_flexible=flexible)
    for _ in range(dice.randint(0, 2)):
        site.reserve(dice.choice(["/node=1", "/core=1"]), NOW + dice.randint(-2, 100), NOW + 150)
    for node in range(site.resources.everything.bit_count() // 2):
        if dice.random() < 0.5:
            types = dice.choice([(), (), ("besteffort",)])
            site.run(dice.choice([1, 2, 3]) << 2 * node, dice.randint(1, 150), id=100 + node, types=types)
    for _ in range(dice.randint(3, 20)):
        request, walltime = dice.choice(["/core=1", "/core=2", "/node=1"]), dice.choice([5, 30, 100])
        if dice.random() < 0.3:
            site.inside(dice.randint(1, len(site.reservations)), request, walltime)
        else:
            site.job(request, walltime=walltime)
    return site.snapshot()


def check(plan: Plan, full: Plan) -> None:
    event(f"certain: {plan.is_certain}, passed over: {bool(plan.undecided)}")
    if plan.is_certain:
        assert decisions(plan) == decisions(full)
    else:
        assert {start.placement for start in plan.started} <= {start.placement for start in full.started}
        assert set(plan.kills) <= set(full.kills)
    places = {place.job_id: place for place in full.placements}
    assert [places.get(place.job_id) for place in plan.placements] == list(plan.placements)
    assert set(plan.wake) <= set(full.wake)
    assert {job_id: full.reasons.get(job_id) for job_id in plan.reasons} == plan.reasons
    assert not plan.reasons.keys() & set(plan.undecided)
    if plan.is_certain:
        assert full.reasons.keys() == plan.reasons.keys() | set(plan.undecided)


@settings(derandomize=True)
@given(st.integers(0, 10**9))
@example(321).via("the container of a job is passed over because it waits for another job")
def test_in_parts_that_meet_arrays_and_workflows_are_decided_as_by_a_full_plan(seed: int) -> None:
    snapshot = in_parts(seed)
    check(urgent(snapshot), schedule(snapshot))


def counted_besteffort(seed: int) -> Snapshot:
    """A long queue of which half are besteffort jobs, under quotas, perhaps by a calendar; some are of arrays."""
    dice = random.Random(seed)
    snapshot = dice.choice([busy, crowded])(seed)
    waiting = [
        replace(job, types=dice.choice([job.types, ("besteffort",)]), user=dice.choice(["ann", "bob"]))
        if job.reservation is Reservation.NONE and job.queue == "default"
        else job
        for job in snapshot.waiting
    ]
    if dice.random() < 0.5:  # some are of arrays with a limit
        limits = [dice.choice([0, 0, 2, 3]) for _ in waiting]
        waiting = [
            replace(job, array_id=limit or job.array_id, array_limit=limit) if "besteffort" in job.types else job
            for job, limit in zip(waiting, limits, strict=True)
        ]
    rules = tuple(besteffort_rules(dice) for _ in range(2))
    periods = [QuotaPeriod(0, 0)] + [QuotaPeriod(NOW + dice.randint(1, 100), 1)] * (dice.random() < 0.3)
    return replace(
        snapshot,
        waiting=tuple(waiting),
        quotas=Quotas(rules, tuple(periods)),
        settings=replace(snapshot.settings, has_quotas=dice.random() < 0.8),
    )


def besteffort_rules(dice: random.Random) -> tuple[QuotaRule, ...]:
    """A rule about besteffort jobs, and one about the jobs of each user."""
    return (
        QuotaRule("*", "*", "besteffort", "*", dice.choice([-1, 1, 3, 8]), dice.choice([-1, 1, 2, 5])),
        QuotaRule("*", "*", "*", "/", dice.choice([-1, 4]), -1, dice.choice([-1, 400])),
    )


def test_few_besteffort_jobs_under_quotas_are_left_to_a_full_plan() -> None:
    assert sum(urgent(counted_besteffort(seed)).is_certain for seed in range(200)) >= 180


def test_what_is_left_to_a_full_plan_is_started_by_the_next_one_as_if_it_had_been_made_at_once() -> None:
    left = [
        (snapshot, plan)
        for snapshot in map(counted_besteffort, range(200))
        if not (plan := urgent(snapshot)).is_certain
    ]
    assert left
    for snapshot, plan in left:
        following = schedule(carried_out(snapshot, plan, snapshot.now))
        assert sorted_starts(plan, following) == sorted_starts(schedule(snapshot))


def sorted_starts(*plans: Plan) -> list[Placement]:
    """What some plans start, by job."""
    return sorted((start.placement for plan in plans for start in plan.started), key=lambda place: place.job_id)


@pytest.mark.parametrize(("walltime", "started"), [(100, []), (1000, [11])])
def test_who_shares_neither_resources_nor_quotas_may_decide_whether_a_besteffort_job_starts(
    walltime: int, started: list[int]
) -> None:
    """So that only a full plan can tell."""
    cluster = besteffort_behind_one_that_waits(1, until=200)
    cluster.waiting[0] = replace(
        cluster.waiting[0], alternatives=(replace(cluster.waiting[0].alternatives[0], walltime=walltime),)
    )
    snapshot = cluster.snapshot()
    plan = urgent(snapshot)
    assert (plan.is_certain, plan.started) == (False, ())
    assert [start.placement.job_id for start in schedule(snapshot).started] == started


def besteffort_behind_one_that_waits(jobs: int, until: int = 500) -> Cluster:
    """A besteffort job starts on a free node behind one that waits for two; so many may run at a time."""
    cluster = Cluster(nodes=3, cores=1, max_jobs=0, has_quotas=True, besteffort_duration=20).run(0b011, until)
    cluster.quotas = Quotas(((QuotaRule("*", "*", "besteffort", "*", -1, jobs),),), (QuotaPeriod(0, 0),))
    cluster.job("/node=3", walltime=100)
    cluster.job("/node=2", walltime=100, types=("besteffort",), queue="besteffort", id=10)
    cluster.job("/node=1", walltime=400, types=("besteffort",), queue="besteffort", id=11)
    return cluster


@pytest.mark.parametrize(("limit", "is_certain"), [(1, False), (2, True)])
def test_a_besteffort_job_starts_in_an_urgent_pass_if_quotas_have_room_beside_all_that_wait(
    limit: int, is_certain: bool
) -> None:
    snapshot = besteffort_behind_one_that_waits(limit).snapshot()
    plan = urgent(snapshot)
    assert plan.is_certain is is_certain
    assert [start.placement.job_id for start in plan.started] == ([11] if is_certain else [])
    assert [start.placement.job_id for start in schedule(snapshot).started] == [11]
    assert not is_certain or decisions(plan) == decisions(schedule(snapshot))


def test_a_long_job_that_begins_after_the_gap_of_besteffort_jobs_is_not_placed_for_them() -> None:
    cluster = Cluster(nodes=4, cores=1, max_jobs=0, besteffort_duration=200)
    cluster.run(0b0011, 300).run(0b0100, 5000)
    for number in range(20):
        cluster.job("/node=2", walltime=9000 + number)
    cluster.job("/node=1", walltime=9000, types=("besteffort",), queue="besteffort", id=40)
    snapshot = cluster.snapshot()
    plan = urgent(snapshot)
    assert plan.is_certain
    assert decisions(plan) == decisions(schedule(snapshot))
    assert len(plan.placements) < 5


@given(st.integers(0, 10**9))
@example(187618812).via("a besteffort job would begin beside one that is passed over")
@example(242689152).via("a job in a container that is passed over is given up")
@at_most(40)
def test_an_urgent_pass_with_the_memory_of_a_full_plan_decides_the_same(seed: int) -> None:
    dice = random.Random(seed)
    snapshot = crowded(seed)
    for _ in range(4):
        planning = Round(snapshot)
        plan = planning.plan()
        snapshot = disturbed(carried_out(snapshot, plan, snapshot.now + dice.choice([0, 1, 10, 60])), dice)
        check(urgent(snapshot, planning.memory(plan)), schedule(snapshot))


def test_jobs_with_alternatives_that_a_quota_delays_are_passed_over() -> None:
    cluster = Cluster(nodes=4, cores=2, max_jobs=0, has_quotas=True)
    cluster.quotas = Quotas(((QuotaRule("*", "*", "*", "/", 2),),), (QuotaPeriod(0, 0),))
    cluster.run(0b11, 100, user="ann")
    for _ in range(5):
        cluster.job("/core=1,walltime=0:0:30", "/core=2,walltime=0:0:20", user="ann")
    plan = urgent(cluster.snapshot())
    assert (plan.placements, len(plan.undecided)) == ((), 5)


def queue_of(jobs: int) -> Cluster:
    """Nodes that are all taken, and a long queue of different jobs for them."""
    cluster = Cluster(nodes=20, cores=4, max_jobs=0, timeout=0)
    for node in range(20):
        cluster.run(cluster.node(node), walltime=100 + 10 * node)
    for number in range(jobs):
        request = ("/core=3", "/node=1", "/node=2", "/core=7")[number % 4]
        cluster.job(request, walltime=200 + number)
    return cluster


def searches_of(monkeypatch: pytest.MonkeyPatch, work: Callable[[], object]) -> int:
    """How many searches something takes."""
    searches: list[object] = []
    real = _Search.run

    def run(search: _Search, check: Check | None = None) -> SlotMatch | None:
        searches.append(search)
        return real(search, check)

    with monkeypatch.context() as patched:
        patched.setattr(_Search, "run", run)
        work()
    return len(searches)


def test_what_an_early_end_costs_does_not_grow_with_the_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    def cost(jobs: int) -> tuple[int, int]:
        snapshot = queue_of(jobs).snapshot()
        early = replace(snapshot, running=snapshot.running[1:])
        plans: list[Plan] = []
        count = searches_of(monkeypatch, lambda: plans.append(urgent(early)))
        assert [start.placement.job_id for start in plans[0].started] == [21]
        return count, len(plans[0].placements)

    assert cost(1500) == cost(150)
    assert cost(1500)[1] < 10


def test_what_has_no_room_is_asked_once_for_all_that_want_the_same_and_nothing_is_tried(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    snapshot = queue_of(200).snapshot()
    tried: list[object] = []
    real = SlotSet.free_between

    def free_between(slots: SlotSet, start: int, end: int, keys: frozenset[SharingKey] = frozenset()) -> int:
        tried.append(start)
        return real(slots, start, end, keys)

    monkeypatch.setattr(SlotSet, "free_between", free_between)
    plans: list[Plan] = []
    assert searches_of(monkeypatch, lambda: plans.append(urgent(snapshot))) == 4
    assert (len(plans[0].undecided), tried) == (200, [])


def test_what_users_over_their_quotas_cost_does_not_grow_with_the_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    def cost(jobs: int) -> int:
        cluster = Cluster(nodes=20, cores=4, max_jobs=0, timeout=0, has_quotas=True)
        cluster.quotas = Quotas(((QuotaRule("*", "*", "*", "/", 2),),), (QuotaPeriod(0, 0),))
        cluster.run(0b1111, 100, user="ann")
        for number in range(jobs):
            requests = ("/core=1", "/core=2")[: 1 + number % 2]
            cluster.job(*(f"{request},walltime=0:0:{100 + number}" for request in requests), user="ann")
        snapshot = cluster.snapshot()
        plans: list[Plan] = []
        count = searches_of(monkeypatch, lambda: plans.append(urgent(snapshot)))
        assert len(plans[0].undecided) == jobs
        return count

    assert cost(200) == cost(20)


def chains(count: int, length: int) -> Snapshot:
    """Chains of jobs, each of which depends on the one before it, on a machine of which a quarter is free."""
    dice = random.Random(5)
    cluster = Cluster(nodes=100, cores=8, max_jobs=0, timeout=0)
    for node in range(75):
        cluster.run(cluster.node(node), walltime=dice.randint(100, 5000))
    for chain in range(count):
        for place in range(length):
            number = 1000 + chain * length + place
            request = f"/core={dice.randint(1, 4)},walltime=0:0:{dice.randint(60, 3600)}"
            cluster.job(request, id=number, after=[number - 1] if place else [])
    return cluster.snapshot()


def test_chains_of_dependent_jobs_stop_no_urgent_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    snapshot = chains(100, 10)
    plans: list[Plan] = []
    full = searches_of(monkeypatch, lambda: plans.append(schedule(snapshot)))
    count = searches_of(monkeypatch, lambda: plans.append(urgent(snapshot)))
    assert plans[1].is_certain
    assert plans[0].started
    assert decisions(plans[1]) == decisions(plans[0])
    assert count <= 5 * full


def circle_of_two_queues() -> Cluster:
    """Job 1 of a lower queue and job 3 require each other; job 3 also requires the large job 2."""
    cluster = Cluster(nodes=4, cores=1, max_jobs=0, timeout=0).run(1, walltime=100)
    cluster.queues = (*cluster.queues, Queue("low", 1, "", QueueState.ACTIVE))
    cluster.job("/node=1", id=1, queue="low", after=[3]).job("/node=4", id=2).job("/node=1", id=3, after=[1, 2])
    return cluster.job("/node=1", id=4, walltime=50).job("/node=4", id=5, queue="low")


def test_jobs_of_different_queues_that_require_each_other_stop_no_urgent_pass() -> None:
    snapshot = circle_of_two_queues().snapshot()
    plan = urgent(snapshot)
    assert decisions(plan) == decisions(schedule(snapshot))
    assert [start.placement.job_id for start in plan.started] == [4]
    text = "the jobs 1, 3 wait for each other"
    for each in (plan, schedule(snapshot)):
        assert (each.reasons[1].text, each.reasons[3].text) == (text, text)


def test_a_chain_of_passed_jobs_ends_where_it_closes() -> None:
    snapshot = circle_of_two_queues().snapshot()
    rules = PlacementRules()
    turns = {job.id: Turn(job.id, job, NO_TYPES, rules, lambda *_: None) for job in snapshot.waiting}
    chains_ = PassedChains(turns, Dependencies(snapshot, {}), snapshot.now)
    assert [turn.job.id for turn in chains_.up_from(turns[3])] == [3, 1]
    assert [turn.job.id for turn in chains_.up_from(turns[1])] == [1, 3]


def test_jobs_that_depend_on_long_ones_are_not_placed_for_the_sake_of_shorter_ones() -> None:
    cluster = Cluster(nodes=20, cores=1, max_jobs=0, timeout=0).run((1 << 19) - 1, walltime=100)
    for number in range(10, 50, 2):
        cluster.job("/node=1", walltime=150, id=number)
        cluster.job("/node=1", walltime=150, id=number + 1, after=[number])
    cluster.job("/node=1", walltime=50, id=99)
    plan = urgent(cluster.snapshot())
    assert [start.placement.job_id for start in plan.started] == [10]
    assert [place.job_id for place in plan.placements] == [10]
    assert decisions(plan) == decisions(schedule(cluster.snapshot()))


def test_jobs_in_containers_that_do_not_run_yet_are_not_placed() -> None:
    cluster = Cluster(nodes=20, cores=2, max_jobs=0, timeout=0)
    for number in range(100, 4000, 100):
        cluster.job("/node=1", walltime=1000, types=("container",), id=number)
        for inner in range(number + 1, number + 20):
            cluster.job("/core=1", walltime=100, types=(f"inner={number}",), id=inner)
    plan = urgent(cluster.snapshot())
    assert len(plan.started) == 20
    assert {place.job_id % 100 for place in plan.placements} == {0}
    assert decisions(plan) == decisions(schedule(cluster.snapshot()))


@given(st.integers(0, 10**9), st.sampled_from([0, 3, 20]))
def test_a_pass_that_gives_up_for_a_full_plan_decides_the_same(seed: int, searches: int) -> None:
    dice = random.Random(seed)
    snapshot = dice.choice([busy, crowded, in_parts, reserved, counted_besteffort, workflows])(seed)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(urgent_pass, "LEAST_SEARCHES", searches)
        patched.setattr(urgent_pass, "SEARCHES_OF_A_JOB", 0)
        plan = urgent(snapshot)
    check(plan, schedule(snapshot))


def workflows(seed: int) -> Snapshot:
    """Jobs of which most wait for others, in all the ways there are, also inside containers."""
    dice = random.Random(seed)
    cluster = Cluster(dice.randint(2, 6), dice.choice([1, 2]), max_jobs=0)
    for node in range(cluster.resources.everything.bit_count() // cluster.cores):
        if dice.random() < 0.6:
            cluster.run(cluster.node(node), dice.randint(1, 200))
    shifts = ["", "", "", "+5", "[+20", "]+0", "]-10", "-15"]
    for _ in range(dice.randint(5, 40)):
        number = len(cluster.running) + len(cluster.waiting) + 1
        earlier = [job.id for job in (*cluster.running, *cluster.waiting)]
        after = [
            Dependency(
                number, dice.choice(earlier), condition, dice.choice(shifts), dice.choice(["", "", "+60", "]+90"])
            )
            for condition in dice.sample(["", "", "start", "any"], dice.choice([0, 1, 1, 1, 2]))
            if earlier
        ]
        containers = [job.id for job in cluster.waiting if "container" in job.types]
        inner = [(f"inner={dice.choice(containers)}",)] * 3 if containers else []
        types = dice.choice([(), (), (), (), ("container",), *inner])
        request = f"{dice.choice(SIMPLE)},walltime=0:0:{dice.choice([3, 10, 30, 100])}"
        cluster.job(request, id=number, types=types, after=after)
    return cluster.snapshot()


def asleep(seed: int) -> Snapshot:
    """Some nodes sleep."""
    dice = random.Random(seed)
    return saving(dice.choice([busy, crowded])(seed), dice)


@pytest.mark.parametrize("situation", [crowded, busy, asleep, counted_besteffort, reserved, workflows])
@given(seed=st.integers(0, 10**9))
@example(seed=6807).via("crowded: a moldable job begins sooner than one of its alternatives can")
@example(seed=71).via("busy: a job that was passed over begins when one ends that comes behind it")
def test_an_urgent_pass_starts_kills_and_answers_what_a_full_plan_does(
    situation: Callable[[int], Snapshot], seed: int
) -> None:
    snapshot = situation(seed)
    check(urgent(snapshot), schedule(snapshot))


class _Clock:
    """Says at some point that it is late, and goes on saying so."""

    def __init__(self, dice: random.Random, chance: float) -> None:
        self.dice, self.chance, self.is_late = dice, chance, False

    def __call__(self) -> bool:
        self.is_late |= self.dice.random() < self.chance
        return self.is_late


@given(st.integers(0, 10**9), st.sampled_from([0.01, 0.05, 0.3, 1.0]))
def test_a_pass_whose_time_is_over_in_a_search_leaves_the_rest_and_starts_nothing_else(
    seed: int, chance: float
) -> None:
    dice = random.Random(seed)
    snapshot = dice.choice([busy, crowded, in_parts, reserved])(seed)
    waiting = tuple(twofold(job) if dice.random() < 0.3 else job for job in snapshot.waiting)
    snapshot = replace(snapshot, waiting=waiting)
    is_due = _Clock(dice, dice.choice([0.1, 1.0]))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(placement_search, "PATIENT_TRIES", dice.choice([0, 1, 3]))
        plan = Round(snapshot).urgent(is_due, _Clock(dice, chance))
    assert not plan.failures
    check(plan, schedule(snapshot))


def twofold(job: WaitingJob) -> WaitingJob:
    """A job that asks for everything twice, so that its groups compete."""
    alternatives = (replace(each, groups=each.groups + each.groups[:1]) for each in job.alternatives)
    return replace(job, alternatives=tuple(alternatives))


def test_a_job_that_is_dear_to_search_for_holds_up_no_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(nodes=20, cores=200, max_jobs=0, timeout=0).run(1 | 1 << 200, walltime=5000)
    for core in range(200):  # each end is another start to try; two times nine nodes are free when the last is over
        cluster.run(1 << 200 * 19 + core, walltime=10 + core)
    cluster.job("/node=9", walltime=4000)
    dear = twofold(cluster.waiting[-1])
    snapshot = replace(cluster.snapshot(), waiting=(dear,))
    tried: list[int] = []
    real = slot_search.fit_at

    def fit_at_and_tell(slots: SlotSet, query: SlotQuery, start: int) -> int:
        tried.append(start)
        return real(slots, query, start)

    monkeypatch.setattr(slot_search, "fit_at", fit_at_and_tell)
    plan = Round(snapshot).urgent(lambda: True, lambda: True)
    assert not plan.is_certain
    assert plan.undecided == (dear.id,)
    assert 0 < len(tried) <= placement_search.PATIENT_TRIES + 1
    assert {start.placement for start in plan.started} == {start.placement for start in schedule(snapshot).started}
    assert len(tried) > 2 * placement_search.PATIENT_TRIES


def test_an_early_end_in_one_part_of_the_machine_lets_no_job_be_placed_that_waits_for_another() -> None:
    cluster = Cluster(nodes=20, cores=4, max_jobs=0, timeout=0)
    cluster.pools = [Pool(cluster.node(*range(10)), "first"), Pool(cluster.node(*range(10, 20)), "second")]
    for node in range(20):
        cluster.run(cluster.node(node), walltime=100 + node)
    for number in range(200):
        cluster.job(("/node=1", "/node=2")[number % 2], walltime=300 + number)
    cluster.job("/core=1", walltime=1000)
    waiting = [
        replace(
            job,
            alternatives=tuple(replace(each, groups=(each.groups[0]._replace(pool=1),)) for each in job.alternatives),
        )
        for job in cluster.waiting[:-1]
    ]
    snapshot = replace(cluster.snapshot(), waiting=(*waiting, cluster.waiting[-1]), running=tuple(cluster.running[1:]))
    plan = urgent(snapshot)
    assert [start.placement.job_id for start in plan.started] == [cluster.waiting[-1].id]
    assert len(plan.placements) == 1
    assert decisions(plan) == decisions(schedule(snapshot))


def test_a_passed_job_is_placed_only_with_those_that_may_be_in_its_way() -> None:
    cluster = Cluster(nodes=20, cores=1, max_jobs=0, timeout=0).run((1 << 18) - 1, walltime=100)
    for number in range(200):
        cluster.job("/node=20", walltime=1000 + number)
    cluster.job("/node=3", walltime=50)
    cluster.job("/node=1", walltime=120)
    plan = urgent(cluster.snapshot())
    assert decisions(plan) == decisions(schedule(cluster.snapshot()))
    assert len(plan.placements) == 1


def test_a_job_of_an_array_counts_also_in_a_container_that_is_passed_over() -> None:
    cluster = Cluster(nodes=3, cores=1).run(0b011, walltime=50)
    cluster.job("/node=2", walltime=100, types=("container",), id=10)
    cluster.job("/node=1", walltime=20, types=("inner=10",), id=11, array_id=7, array_limit=1)
    cluster.job("/node=1", walltime=200, id=12, array_id=7, array_limit=1)
    plan = urgent(cluster.snapshot())
    assert not plan.started
    assert decisions(plan) == decisions(schedule(cluster.snapshot()))


def test_a_job_that_a_quota_delays_hides_no_other_that_asks_for_the_same() -> None:
    snapshot = saving(busy(841733906), random.Random(841733906))
    plan, full = urgent(snapshot), schedule(snapshot)
    assert set(plan.placements) <= set(full.placements)
    assert decisions(plan) == decisions(full)


def test_a_new_reservation_is_answered_by_a_full_plan() -> None:
    cluster = queue_of(10)
    cluster.reservation("/node=1", NOW + 5000)
    snapshot = cluster.snapshot()
    assert urgent(snapshot) == schedule(snapshot)


def test_without_time_what_is_decided_holds_and_the_rest_is_left_to_the_full_plan() -> None:
    cluster = queue_of(10)
    snapshot = replace(cluster.snapshot(), running=tuple(cluster.running[1:]))
    cluster.job("/core=BESTHALF", walltime=10)
    doubtful = replace(cluster.snapshot(), running=tuple(cluster.running[1:]))
    assert urgent(snapshot).is_certain
    plan = Round(doubtful).urgent(lambda: True, lambda: True)
    assert not plan.is_certain
    assert plan.started == schedule(doubtful).started[:1]
