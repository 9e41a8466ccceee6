"""Invariants of plans on random machines with jobs of all kinds, and a second planner to compare."""

import random
import subprocess
import sys
from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from oar.kao.facts.job_types import parse_types
from oar.kao.facts.snapshot import Pool, Snapshot
from oar.kao.planner.schedule import schedule
from oar.kao.rounds.snapshot_files import from_json, to_json
from oar.lib.base.times import format_date
from oar.lib.jobs.states import JobState, Reservation
from oar.lib.nodes.states import ResourceState
from tests.examples import at_most
from tests.scheduler.builders import NOW, Cluster
from tests.scheduler.reference import Occupation, Reference

REQUESTS = [
    "/core=1", "/core=2", "/core=3", "/node=1", "/node=2", "/switch=1/node=1", "/node=1/core=1", "/node=2/core=1",
    "/switch=1/core=3", "/switch=2/node=1", "/node=BEST", "/node=ALL", "/switch=1/node=ALL", "/core=BESTHALF",
    "/node=1+/core=1", "/core=1+/node=1", "/switch=1/node=1+/node=1", "/core=4/switch=1", "/switch=BEST/core=1",
]  # fmt: skip

TYPES = [
    (), (), (), (), (), (), (), ("timesharing",), ("timesharing=user,*",), ("placeholder=x",), ("allowed=x",),
    ("allowed=x", "timesharing"), ("state=permissive",), ("idempotent",),
]  # fmt: skip


def random_cluster(seed: int, **given_settings: Any) -> Cluster:
    """Make a machine with running, reserved and waiting jobs."""
    rng = random.Random(seed)
    options: dict[str, Any] = {
        "security_time": rng.choice([1, 1, 5]),
        "hole_minimum": rng.choice([0, 0, 0, 30]),
        "besteffort_duration": rng.choice([0, 20, 300]),
    }
    cluster = Cluster(rng.randint(1, 4), rng.randint(1, 3), **options | given_settings)
    everything = cluster.resources.everything
    cluster.pools.append(Pool(rng.getrandbits(everything.bit_length()) | 1, "half of them"))
    for node in range(cluster.resources.everything.bit_count() // cluster.cores):
        if rng.random() < 0.15:
            cluster.state(rng.choice(list(ResourceState)), node)
        elif rng.random() < 0.1:
            cluster.state(ResourceState.ALIVE, node, upto=NOW + rng.randint(1, 400))
    order = list(cluster.resources.order)
    if rng.random() < 0.3:
        rng.shuffle(order)
    cluster.resources = replace(cluster.resources, order=tuple(order))
    _add_running(cluster, rng, everything)
    for _ in range(rng.randint(0, 9)):
        _add_waiting(cluster, rng)
    return cluster


def _add_running(cluster: Cluster, rng: random.Random, everything: int) -> None:
    left = everything
    for _ in range(rng.randint(0, 4)):
        held = left & rng.getrandbits(everything.bit_length()) & rng.getrandbits(everything.bit_length())
        types = rng.choice([*TYPES, ("besteffort",), ("besteffort",), ("container",), ("container=c",)])
        state = rng.choice([JobState.RUNNING] * 4 + [JobState.SUSPENDED, JobState.TO_LAUNCH, JobState.FINISHING])
        since = rng.randint(0, 300)
        cluster.run(held, rng.randint(1, 300), since, types=types, state=state, user=rng.choice(["ann", "bob"]))
        left &= ~held
    if left and rng.random() < 0.4:
        start = NOW + rng.randint(1, 200)
        cluster.reservation(
            "/core=1", start, left & rng.getrandbits(everything.bit_length()) | left & -left, walltime=50
        )


def _add_waiting(cluster: Cluster, rng: random.Random) -> None:
    requests = [f"{rng.choice(REQUESTS)},walltime=0:0:{rng.randint(1, 200)}" for _ in range(rng.choice([1, 1, 1, 2]))]
    types = list(rng.choice(TYPES))
    known = [job for job in (*cluster.running, *cluster.waiting) if job.reservation is Reservation.NONE]
    containers = [parse_types(job).container for job in known if parse_types(job).container]
    queue = rng.choice(["default", "default", "default", "admin"])
    kind = rng.random()
    if kind < 0.15:
        queue, types = "besteffort", [*types, "besteffort"]
    elif kind < 0.25:
        queue, types = "admin", ["container=c" if rng.random() < 0.3 else "container"]
    elif kind < 0.4 and containers:
        queue, types = "default", [f"inner={rng.choice(containers)}"]
    elif kind < 0.5:
        types.append(f"postpone={format_date(NOW + rng.randint(1, 300))}")
    elif kind < 0.6:
        types.append(f"deadline={format_date(NOW + rng.randint(200, 500))}")
    after = []
    if known and rng.random() < 0.1 and kind > 0.4:
        after, queue = [rng.choice(known).id], "default"
    cluster.job(*requests, types=tuple(types), queue=queue, user=rng.choice(["ann", "bob"]), after=after)


seeds = st.integers(0, 10**9)


def assert_places_of_reference(snapshot: Snapshot) -> None:
    """Compare a plan with that of the reference."""
    expected = Reference(snapshot).plan()
    plan = schedule(snapshot)
    granted = {job.id for job in snapshot.waiting if job.granted}
    found = {placement.job_id: placement for placement in plan.placements if placement.job_id not in granted}
    assert (plan.troubles, plan.failures) == ((), ())
    assert found == expected


@given(seeds)
def test_each_job_has_the_place_that_trying_every_instant_gives(seed: int) -> None:
    assert_places_of_reference(random_cluster(seed).snapshot())


@given(seeds)
def test_jobs_that_may_not_share_never_meet(seed: int) -> None:
    snapshot = random_cluster(seed).snapshot()
    reference = Reference(snapshot)
    reference.plan()
    new = {placement.job_id for placement in schedule(snapshot).placements}
    shares = {job.id: parse_types(job).shared_keys for job in (*snapshot.running, *snapshot.waiting)}
    for one in reference.there:
        for other in reference.there:
            if one.job < other.job and (one.job in new or other.job in new) and _meet(one, other):
                is_shared = one.key in shares[other.job] or other.key in shares[one.job]
                is_besteffort = one.is_besteffort or other.is_besteffort  # may be killed, so a short gap is enough
                assert is_shared or is_besteffort, (one, other)


def _meet(one: Occupation, other: Occupation) -> bool:
    is_same_time = max(one.start, other.start) < min(one.end, other.end)
    return one.space == other.space and is_same_time and bool(one.resources & other.resources)


@given(seeds)
def test_every_job_has_a_place_or_a_reason_and_one_that_does_not_start_has_one(seed: int) -> None:
    snapshot = random_cluster(seed).snapshot()
    plan = schedule(snapshot)
    started = {start.placement.job_id for start in plan.started}
    answered = {answer.job_id for answer in (*plan.refused, *plan.expired)}
    for job in snapshot.waiting:
        if job.id not in started | answered:
            assert job.id in plan.reasons, job
        else:
            assert job.id not in plan.reasons


@given(seeds)
def test_later_jobs_change_nothing_for_earlier_ones(seed: int) -> None:
    snapshot = random_cluster(seed).snapshot()
    if not snapshot.waiting:
        return
    last = min(
        snapshot.waiting,
        key=lambda job: ({"admin": 10, "default": 2, "besteffort": 0}[job.queue], -job.id),
    )
    without = replace(snapshot, waiting=tuple(job for job in snapshot.waiting if job is not last))
    kept = [placement for placement in schedule(snapshot).placements if placement.job_id != last.id]
    if not parse_types(last).container and last.granted is None:
        assert list(schedule(without).placements) == kept


@given(seeds)
def test_besteffort_jobs_change_no_place_of_others(seed: int) -> None:
    snapshot = random_cluster(seed).snapshot()
    depended_on = {dependency.required for job in snapshot.waiting for dependency in job.dependencies}

    def is_besteffort(job: Any) -> bool:
        return parse_types(job).is_besteffort and job.id not in depended_on

    without = replace(
        snapshot,
        waiting=tuple(job for job in snapshot.waiting if not is_besteffort(job)),
        running=tuple(job for job in snapshot.running if not is_besteffort(job)),
    )
    ordinary = {job.id for job in without.waiting if not parse_types(job).is_besteffort}
    kept = {placement for placement in schedule(snapshot).placements if placement.job_id in ordinary}
    assert {placement for placement in schedule(without).placements if placement.job_id in ordinary} == kept


@given(seeds)
def test_a_besteffort_job_dies_only_for_one_that_needs_its_place_now(seed: int) -> None:
    snapshot = random_cluster(seed).snapshot()
    plan = schedule(snapshot)
    running = {job.id: job for job in snapshot.running}
    places = {placement.job_id: placement for placement in plan.placements}
    for kill in plan.kills:
        place = places[kill.for_job]
        assert place.resources & running[kill.job_id].resources
        assert place.start <= snapshot.now + snapshot.settings.security_time
        assert parse_types(running[kill.job_id]).is_besteffort
        assert kill.for_job not in {start.placement.job_id for start in plan.started}


@given(seeds)
def test_what_starts_is_on_living_resources_that_nobody_holds(seed: int) -> None:
    snapshot = random_cluster(seed).snapshot()
    states = snapshot.resources.states
    jobs = {job.id: job for job in snapshot.waiting}
    for start in schedule(snapshot).started:
        types = parse_types(jobs[start.placement.job_id])
        alive = snapshot.resources.where(states, ResourceState.ALIVE)
        assert not start.placement.resources & ~alive
        for holder in snapshot.running:
            other = parse_types(holder)
            is_held = holder.state is not JobState.SUSPENDED and holder.resources & start.placement.resources
            if is_held and (types.inner, types.shared_keys) == (other.inner, frozenset()):
                assert other.sharing_key is not None


@given(seeds)
@at_most(60)
def test_the_order_of_rows_does_not_matter(seed: int) -> None:
    snapshot = random_cluster(seed).snapshot()
    rng = random.Random(seed)
    shuffled = replace(
        snapshot,
        waiting=tuple(rng.sample(snapshot.waiting, len(snapshot.waiting))),
        running=tuple(rng.sample(snapshot.running, len(snapshot.running))),
        queues=tuple(rng.sample(snapshot.queues, len(snapshot.queues))),
    )
    assert schedule(shuffled) == schedule(snapshot)


@given(seeds)
@at_most(40)
def test_one_jobs_trouble_is_its_own(seed: int) -> None:
    snapshot = random_cluster(seed).snapshot()
    cluster = random_cluster(seed)
    cluster.pools.append(Pool(0, "gpu =", "syntax error"))
    broken = cluster.job("/core=1", types=("timesharing=all",), id=10**6).snapshot()
    plan = schedule(broken)
    assert plan.placements == schedule(snapshot).placements
    assert 10**6 in plan.reasons


def test_another_process_with_another_hash_seed_plans_the_same() -> None:
    snapshots = [random_cluster(seed).snapshot() for seed in range(12)]
    program = (
        "import sys\nfrom oar.kao.rounds.snapshot_files import from_json, to_json\n"
        "from oar.kao.facts.snapshot import Snapshot\n"
        "from oar.kao.planner.schedule import schedule\n"
        "for line in sys.stdin: print(to_json(schedule(from_json(Snapshot, line))))\n"
    )
    text = "\n".join(to_json(snapshot) for snapshot in snapshots)
    expected = [to_json(schedule(from_json(Snapshot, to_json(snapshot)))) for snapshot in snapshots]
    for seed in ("1", "2"):
        answer = subprocess.run(
            [sys.executable, "-c", program],
            input=text,
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(path for path in sys.path if path)},
        )
        assert answer.stdout.splitlines() == expected


@given(seeds)
def test_a_reservation_keeps_its_resources_its_start_and_its_end(seed: int) -> None:
    """Before its date nothing changes; from then on it may lose what is not usable, and its end stays."""
    snapshot, rng = random_cluster(seed).snapshot(), random.Random(seed)
    late = rng.choice([-20, 0, 10, 400])
    snapshot = replace(
        snapshot,
        settings=replace(snapshot.settings, reservation_patience=rng.choice([0, 5, 300])),
        waiting=tuple(replace(job, start_time=NOW - late) if job.granted else job for job in snapshot.waiting),
    )
    plan = schedule(snapshot)
    placements = {place.job_id: place for place in plan.placements}
    over = {answer.job_id for answer in plan.expired}
    started = {start.placement.job_id: start.placement for start in plan.started}
    alive = snapshot.resources.where(snapshot.resources.states, ResourceState.ALIVE)
    for job in snapshot.waiting:
        if job.granted is None:
            continue
        end = job.start_time + job.alternatives[0].walltime
        assert (job.id in over) is (snapshot.now >= end)
        if job.id in started:
            place = started[job.id]
            assert (place.start, place.end) == (snapshot.now, end)
            assert place.resources in (job.granted.resources, job.granted.resources & alive)
        elif job.id not in over:
            assert placements[job.id].resources == job.granted.resources
            assert placements[job.id].start == (job.start_time if late < 0 else snapshot.now + 1)


@given(seeds)
def test_a_job_that_ends_sooner_never_makes_the_first_of_the_queue_end_later(seed: int) -> None:
    snapshot = random_cluster(seed).snapshot()
    plan = schedule(snapshot)
    ordinary = [place for place in plan.placements if place.job_id in _first_in_line(snapshot)]
    if not (ordinary and snapshot.running):
        return
    shorter = replace(snapshot.running[0], walltime=snapshot.running[0].walltime // 2)
    sooner = schedule(replace(snapshot, running=(shorter, *snapshot.running[1:])))
    ends = {place.job_id: place.end for place in sooner.placements}
    assert ends[ordinary[0].job_id] <= ordinary[0].end


def _first_in_line(snapshot: Snapshot) -> set[int]:
    """The job that is placed first, if nothing but resources decides on its place."""
    priorities = {queue.name: queue.priority for queue in snapshot.queues}
    jobs = [job for job in snapshot.waiting if job.reservation is Reservation.NONE]
    jobs = [job for job in jobs if not parse_types(job).is_besteffort]
    first = min(jobs, key=lambda job: (-priorities[job.queue], job.id), default=None)
    is_free = first and not (first.dependencies or parse_types(first).inner)
    return {first.id} if first and is_free else set()
