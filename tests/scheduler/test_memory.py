"""Memory is counted on each node, over the whole time of a placement."""

import random
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oar.kao.facts.job_types import parse_types
from oar.kao.facts.snapshot import Snapshot, WaitingJob
from oar.kao.planner.placement.site_extensions import FIND_PLUGINS
from oar.kao.planner.plan_check import faults_of
from oar.kao.planner.resources import node_memory
from oar.kao.planner.resources.node_memory import (
    MOST_VIEWS,
    SMALLEST_PART,
    MemoryLedger,
    MemorySlots,
    NodeMemory,
)
from oar.kao.planner.schedule import Round, schedule
from oar.lib.base.times import format_date
from oar.lib.jobs.reasons import ReasonCode, reason_sentence
from oar.lib.jobs.records import Memory
from oar.lib.jobs.states import JobState, Reservation
from tests.scheduler.builders import NOW, Cluster, resources
from tests.scheduler.reference import Reference
from tests.scheduler.test_invariants import assert_places_of_reference, random_cluster
from tests.scheduler.test_placement_reuse import check_that_memory_changes_nothing, limited
from tests.scheduler.test_plugins import planned, with_plugin
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
    assert_places_of_reference(with_memory(random_cluster(seed).snapshot(), seed))


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


def count_calls(monkeypatch: pytest.MonkeyPatch, owner: type, name: str) -> list[object]:
    """Return a list that gets an item with each call of a method."""
    calls: list[object] = []
    function = getattr(owner, name)

    def counted(*given: Any, **named: Any) -> Any:
        calls.append(given[1:])
        return function(*given, **named)

    monkeypatch.setattr(owner, name, counted)
    return calls


def test_users_cannot_make_more_and_more_slots(monkeypatch: pytest.MonkeyPatch) -> None:
    made = count_calls(monkeypatch, MemorySlots, "__init__")
    cluster = machine(64, 64)
    for mib in range(20 * GIB, 20 * GIB + 500):
        ask(cluster, "/core=1", mib)
    result = cluster.plan()
    assert sorted(result.start(job) or 0 for job in (1, 2, 3, 4, 5, 6, 7)) == [0] * 6 + [3601]
    assert len(made) <= 2


@given(st.integers(1, 1 << 20), st.integers(1, 256), st.integers(1, 1 << 21))
def test_a_search_rounds_amounts_up_but_never_loses_a_job(capacity: int, cores: int, mib: int) -> None:
    nodes = NodeMemory(resources({"node": ["n"] * cores}, cores, memory=(capacity,) * cores))
    searched = nodes.searched(0, mib)
    assert searched >= mib if mib <= capacity else searched > capacity
    if mib <= capacity:
        assert capacity // searched >= min(capacity // mib, cores)
        assert searched <= max(1.13 * mib, 1.13 * (capacity >> SMALLEST_PART) + 1)


def test_amounts_are_searched_as_few_values() -> None:
    nodes = NodeMemory(resources({"node": ["n"] * 64}, 64, memory=(257000,) * 64))
    assert len({nodes.searched(0, mib) for mib in range(1, 257001)}) < MOST_VIEWS


def test_slots_that_were_not_used_for_long_are_dropped_and_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    made = count_calls(monkeypatch, MemorySlots, "__init__")
    cluster = machine(16, 16)
    for gib in (10, 5, 10, 5, 10, 5):
        ask(cluster, "/core=1", gib * GIB)
    expected, usual = cluster.plan(), len(made)
    monkeypatch.setattr(node_memory, "MOST_VIEWS", 1)
    assert cluster.plan().plan == expected.plan
    assert (usual, len(made)) == (2, 2 + 6)


def test_the_check_of_a_placement_looks_at_its_nodes_only(monkeypatch: pytest.MonkeyPatch) -> None:
    snapshot = ask(machine(*[16] * 50), "/core=6", 4 * GIB, per_core=True).snapshot()
    round_ = Round(snapshot)
    plan = round_.plan()
    looked = count_calls(monkeypatch, NodeMemory, "on")
    assert faults_of(snapshot, plan, round_.requests) == {}
    assert len(looked) <= 2


def test_nodes_are_numbered_once_and_only_if_a_job_asks_for_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    made = count_calls(monkeypatch, NodeMemory, "__init__")
    cluster = machine(16, 16).job("/core=1")
    for _ in range(2):
        round_ = Round(cluster.snapshot())
        assert faults_of(cluster.snapshot(), round_.plan(), round_.requests) == {}
    assert made == []
    ask(cluster, "/core=1", GIB)
    for _ in range(2):
        round_ = Round(cluster.snapshot())
        assert faults_of(cluster.snapshot(), round_.plan(), round_.requests) == {}
    assert len(made) == 1


@pytest.mark.parametrize("is_killed", [False, True])
def test_a_besteffort_job_that_leaves_anyway_gives_its_memory_first(is_killed: bool) -> None:
    cluster = machine(16)
    for core in range(2):
        leaves = is_killed and core == 0
        given: dict[str, Any] = {"types": ("besteffort",), "queue": "besteffort", "is_killed": leaves}
        cluster.run(2 << core, since=100 - core, memory=Memory(8 * GIB), **given)
    result = ask(cluster, "/core=1", 8 * GIB).plan()
    assert result.kills() == ({} if is_killed else {2: "KILL"})
    assert result.started() == []
    waits_for = 1 if is_killed else 2
    assert str(waits_for) in result.reason(3)


def test_two_jobs_share_the_memory_of_one_besteffort_job_that_leaves() -> None:
    """The first job makes a besteffort job leave for its cores; the second one can have the memory of that job."""
    cluster = machine(16)
    for number, cores in enumerate((0x80, 0b1)):
        given: dict[str, Any] = {"types": ("besteffort",), "queue": "besteffort"}
        cluster.run(cores, since=100 + number, memory=Memory(8 * GIB), **given)
    result = ask(cluster.job("/core=3"), "/core=1", 6 * GIB).plan()
    assert result.kills() == {2: "KILL"}


def test_the_memory_of_a_node_without_besteffort_jobs_is_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    looked = count_calls(monkeypatch, MemoryLedger, "free")
    cluster = machine(*[16] * 20).run(1, types=("besteffort",), queue="besteffort", memory=Memory(GIB))
    assert ask(cluster, "/node=20", GIB).plan().where(2)
    assert len(set(looked)) == 1


def test_resources_that_every_job_has_use_no_memory() -> None:
    cluster = machine(16, always_assigned_type="shared")
    types = ("shared", *cluster.resources.types[1:])
    cluster.resources = replace(cluster.resources, types=types)
    cluster.run(0b11, memory=Memory(4 * GIB, is_per_core=True))
    snapshot = ask(cluster, "/core=1", 12 * GIB).snapshot()
    round_ = Round(snapshot)
    plan = round_.plan()
    assert [place.start for place in plan.placements] == [NOW]
    assert faults_of(snapshot, plan, round_.requests) == {}


def test_the_default_of_the_site_never_makes_a_node_too_small() -> None:
    cluster = machine(16, 0)
    for request in ("/node=1", "/node=1", "/core=5"):
        cluster.job(request)
    default = Memory(4096, is_per_core=True, is_default=True)
    cluster.waiting = [
        replace(job, alternatives=tuple(replace(each, memory=default) for each in job.alternatives))
        for job in cluster.waiting
    ]
    snapshot = cluster.snapshot()
    round_ = Round(snapshot)
    plan = round_.plan()
    found = [(place.start - NOW, place.resources) for place in plan.placements]
    assert found == [(0, 0xFF), (0, 0xFF00), (3601, 0b11111)]
    assert faults_of(snapshot, plan, round_.requests) == {}


def test_the_default_of_the_site_is_the_share_of_each_core() -> None:
    default = Memory(4096, is_per_core=True, is_default=True)
    cluster = machine(16).run(0b1111, memory=default, walltime=600)
    ask(cluster, "/core=1", 8 * GIB)
    assert ask(cluster, "/core=1", GIB).plan().start(2) == 0
    assert cluster.plan().start(3) == 601


def test_a_job_with_no_share_of_memory_can_join_jobs_that_use_too_much() -> None:
    cluster = machine(0).run(0b1, memory=Memory(GIB))
    cluster.job("/core=1")
    default = Memory(4096, is_per_core=True, is_default=True)
    job = cluster.waiting.pop()
    cluster.waiting.append(replace(job, alternatives=(replace(job.alternatives[0], memory=default),)))
    snapshot = cluster.snapshot()
    round_ = Round(snapshot)
    plan = round_.plan()
    assert [place.start for place in plan.placements] == [NOW]
    assert faults_of(snapshot, plan, round_.requests) == {}


def test_a_plugin_that_chooses_a_node_with_too_little_memory_is_told() -> None:
    cluster = machine(16, 16).run(0b1, memory=Memory(10 * GIB))
    ask(cluster, "/core=1", 8 * GIB, types=("find=mine",))
    ask(cluster, "/core=1", 6 * GIB)
    result = planned(cluster, with_plugin(FIND_PLUGINS, lambda context, job, request, free: free & -free))
    assert (result.start(2), result.start(3), result.code(2)) == (None, 0, ReasonCode.MEMORY)
    assert reason_sentence(stored(result.plan.reasons[2])) == (
        "It asks for 8 GiB of memory per node, but its plug-in chose 1 core of n0, which has 6 GiB free."
    )
