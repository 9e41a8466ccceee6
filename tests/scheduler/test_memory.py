"""Memory is counted on each node, over the whole time of a placement."""

import random
from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from oar.kao.facts.job_types import parse_types
from oar.kao.facts.snapshot import Snapshot, WaitingJob
from oar.kao.planner.plan_check import faults_of
from oar.kao.planner.schedule import Round, schedule
from oar.lib.base.times import format_date
from oar.lib.jobs.reasons import ReasonCode, reason_sentence
from oar.lib.jobs.records import Memory
from oar.lib.jobs.states import JobState, Reservation
from tests.scheduler.builders import NOW, Cluster
from tests.scheduler.reference import Reference
from tests.scheduler.test_invariants import random_cluster
from tests.scheduler.test_placement_reuse import check_that_memory_changes_nothing, limited
from tests.scheduler.test_reasons import stored
from tests.scheduler.test_urgent_pass import busy, crowded, decisions, urgent

seeds = st.integers(0, 10**9)
GIB = 1024


def with_memory(snapshot: Snapshot, seed: int) -> Snapshot:
    """Give nodes memory, and let some jobs ask for it."""
    dice = random.Random(seed)
    addresses = snapshot.resources.addresses
    sizes = {address: dice.choice([0, 4, 8, 8, 16]) for address in dict.fromkeys(addresses)}

    def memory() -> Memory | None:
        return Memory(dice.choice([1, 2, 3, 4, 8]), dice.random() < 0.5) if dice.random() < 0.7 else None

    def asking(job: WaitingJob) -> WaitingJob:
        if parse_types(job).container:
            return job
        kept = job.reservation is not Reservation.NONE
        asked = [each if kept else replace(each, memory=memory()) for each in job.alternatives]
        return replace(job, alternatives=tuple(asked))

    running = tuple(job if parse_types(job).container else replace(job, memory=memory()) for job in snapshot.running)
    resources = replace(snapshot.resources, memory=tuple(sizes[address] for address in addresses))
    return replace(snapshot, resources=resources, waiting=tuple(map(asking, snapshot.waiting)), running=running)


@given(seeds)
def test_each_job_has_the_place_that_trying_every_instant_gives(seed: int) -> None:
    snapshot = with_memory(random_cluster(seed).snapshot(), seed)
    expected = Reference(snapshot).plan()
    plan = schedule(snapshot)
    granted = {job.id for job in snapshot.waiting if job.granted}
    found = {placement.job_id: placement for placement in plan.placements if placement.job_id not in granted}
    assert (plan.troubles, plan.failures) == ((), ())
    assert found == expected


@given(seeds)
def test_no_node_ever_lacks_memory_for_what_the_plan_places(seed: int) -> None:
    snapshot = with_memory(random_cluster(seed).snapshot(), seed)
    reference = Reference(snapshot)
    reference.plan()
    capacity = dict(zip(snapshot.resources.addresses, snapshot.resources.memory, strict=True))
    old = replace(snapshot, waiting=tuple(job for job in snapshot.waiting if job.granted))
    before = Reference(old)
    before.plan()
    for use in reference.uses[len(before.uses) :]:
        others = [each for each in reference.uses if use.is_besteffort or not each.is_besteffort]
        for node in use.mib:
            present = [each for each in others if each.start <= use.start < each.end]
            assert sum(each.mib.get(node, 0) for each in present) <= capacity[node]


@given(seeds)
def test_an_urgent_pass_decides_what_a_full_plan_does(seed: int) -> None:
    snapshot = with_memory(crowded(seed), seed)
    plan = urgent(snapshot)
    if plan.is_certain:
        assert decisions(plan) == decisions(schedule(snapshot))


@given(seeds)
def test_an_urgent_pass_on_a_busy_machine_decides_what_a_full_plan_does(seed: int) -> None:
    snapshot = with_memory(busy(seed), seed)
    plan = urgent(snapshot)
    if plan.is_certain:
        assert decisions(plan) == decisions(schedule(snapshot))


def machine(*gib: int, cores: int = 8, **given_settings: Any) -> Cluster:
    """Nodes with so many GiB each."""
    cluster = Cluster(len(gib), cores, **given_settings)
    cluster.resources = replace(cluster.resources, memory=tuple(GIB * each for each in gib for _ in range(cores)))
    return cluster


def ask(cluster: Cluster, request: str, mib: int, *, per_core: bool = False, **given: Any) -> Cluster:
    cluster.job(request, **given)
    job = cluster.waiting.pop()
    alternatives = tuple(replace(each, memory=Memory(mib, per_core)) for each in job.alternatives)
    cluster.waiting.append(replace(job, alternatives=alternatives))
    return cluster


def test_a_job_waits_for_memory_and_is_told_what_a_node_has() -> None:
    cluster = machine(16, 12).run(0b1, memory=Memory(10 * GIB)).run(1 << 8, walltime=60, memory=Memory(8 * GIB))
    result = ask(cluster, "/core=2", 8 * GIB).plan()
    assert (result.start(3), result.where(3)) == (61, 0b11 << 8)
    told = reason_sentence(stored(result.plan.reasons[3]))
    until = format_date(NOW + 61)
    assert (
        told
        == f"It asks for 8 GiB of memory per node, which is not free before {until}: n0 has 7 cores and 6 GiB free."
    )
    assert result.code(3) == ReasonCode.MEMORY


def test_memory_for_each_core_limits_the_cores_of_a_node() -> None:
    result = ask(machine(16, 16), "/core=6", 4 * GIB, per_core=True).plan()
    assert result.where(1) == 0b1111 | 0b11 << 8


def test_a_node_as_a_whole_needs_memory_for_all_its_cores() -> None:
    result = ask(machine(16, 64), "/node=1", 4 * GIB, per_core=True).plan()
    assert result.where(1) == 0xFF << 8


def test_jobs_that_name_no_memory_use_none() -> None:
    cluster = ask(machine(16), "/core=1", 16 * GIB).job("/core=7")
    assert [cluster.plan().start(job) for job in (1, 2)] == [0, 0]


def test_memory_that_no_node_has_is_told() -> None:
    result = ask(machine(16, 64), "/core=1", 900 * GIB).plan()
    assert reason_sentence(stored(result.plan.reasons[1])) == (
        "Too few nodes have the 900 GiB of memory per node that it asks for; the largest has 64 GiB."
    )


def test_a_suspended_job_keeps_its_memory() -> None:
    cluster = machine(16).run(0xFF, walltime=60, state=JobState.SUSPENDED, memory=Memory(10 * GIB))
    assert ask(cluster, "/core=1", 8 * GIB).plan().start(2) == 61


def test_an_inner_job_and_a_job_beside_its_container_share_the_memory_of_their_node() -> None:
    cluster = machine(16).run(0b1111, types=("container",), walltime=600)
    ask(cluster, "/core=1", 10 * GIB, types=("inner=1",), walltime=60)
    assert ask(cluster, "/core=1", 10 * GIB).plan().start(3) == 61


def test_besteffort_jobs_leave_for_memory_the_last_one_first() -> None:
    cluster = machine(16)
    for core, gib in enumerate((6, 4, 4)):
        cluster.run(2 << core, since=100 - core, types=("besteffort",), queue="besteffort", memory=Memory(gib * GIB))
    result = ask(cluster, "/core=1", 8 * GIB).plan()
    assert result.kills() == {2: "KILL", 3: "KILL"}
    assert result.started() == []


def test_a_reservation_has_its_memory_at_its_date() -> None:
    cluster = machine(16).run(0b1, walltime=600, memory=Memory(10 * GIB))
    ask(cluster, "/core=1", 8 * GIB, start_time=NOW + 300, reservation=Reservation.TO_SCHEDULE)
    ask(cluster, "/core=1", 8 * GIB, start_time=NOW + 700, reservation=Reservation.TO_SCHEDULE)
    result = cluster.plan()
    assert [answer.job_id for answer in result.plan.accepted] == [3]
    assert list(result.errors()) == [2]


def test_a_plan_with_too_much_memory_on_a_node_is_refused() -> None:
    cluster = ask(ask(machine(16), "/core=1", 10 * GIB), "/core=1", 10 * GIB)
    snapshot = cluster.snapshot()
    round_ = Round(snapshot)
    plan = round_.plan()
    late = plan.placements[1]
    broken = replace(plan, placements=(plan.placements[0], replace(late, start=NOW, resources=0b10)))
    assert faults_of(snapshot, plan, round_.requests) == {}
    assert faults_of(snapshot, broken, round_.requests) == {2: "n0 has too little memory for it"}


@given(seeds)
def test_no_plan_has_a_fault(seed: int) -> None:
    for snapshot in (with_memory(random_cluster(seed).snapshot(), seed), with_memory(busy(seed), seed)):
        round_ = Round(snapshot)
        assert faults_of(snapshot, round_.plan(), round_.requests) == {}


@given(seeds)
def test_a_plan_with_the_memory_of_the_last_round_is_the_plan_from_nothing(seed: int) -> None:
    dice = random.Random(seed)
    check_that_memory_changes_nothing(with_memory(limited(random_cluster(seed).snapshot(), dice), seed), dice)
