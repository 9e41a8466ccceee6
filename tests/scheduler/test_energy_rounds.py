"""Rounds of a site that saves energy: what the last round left is worth as much as anywhere."""

import random
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from oar.kao.facts.snapshot import Snapshot
from oar.kao.planner.schedule import Round, schedule
from oar.lib.nodes.states import ResourceState
from tests.scheduler.builders import NOW, Cluster
from tests.scheduler.test_placement_reuse import carried_out, disturbed, planned
from tests.scheduler.test_urgent_pass import busy, crowded, saving


def changed(snapshot: Snapshot, dice: random.Random) -> Snapshot:
    """Nodes go to sleep and wake, or are lost."""
    resources = snapshot.resources
    kinds = [ResourceState.ALIVE, ResourceState.ABSENT, ResourceState.ABSENT, ResourceState.SUSPECTED]
    states = tuple(dice.choice(kinds) if dice.random() < 0.2 else state for state in resources.states)
    return replace(snapshot, resources=replace(resources, states=states))


@given(st.integers(0, 10**9))
def test_with_nodes_that_sleep_and_wake_memory_changes_nothing(seed: int) -> None:
    dice = random.Random(seed)
    snapshot = saving(dice.choice([busy, crowded])(seed), dice)
    memory, requests = None, None
    for _ in range(4):
        planning = Round(snapshot, memory=memory, requests=requests)
        plan = planning.plan()
        assert plan == schedule(snapshot)
        memory, requests = planning.memory(plan), planning.compiled
        snapshot = disturbed(carried_out(snapshot, plan, snapshot.now + dice.choice([0, 1, 10, 60])), dice)
        snapshot = changed(snapshot, dice) if dice.random() < 0.7 else snapshot


def test_nodes_that_wake_cost_no_search() -> None:
    cluster = Cluster(nodes=4, cores=2, may_wake=True).run(0b11).state(ResourceState.ABSENT, 2, 3, upto=2147483646)
    cluster.run(0b1100)
    for _ in range(10):
        cluster.job("/node=3")
    plan, memory, searches = planned(cluster.snapshot())
    assert searches == 10
    cluster.state(ResourceState.ALIVE, 2, 3, upto=2147483646)
    awake = replace(cluster.snapshot(), now=NOW + 20)
    plan, memory, searches = planned(awake, memory)
    assert (searches, plan) == (0, schedule(awake))


def test_requests_are_not_compiled_again_for_nodes_that_wake() -> None:
    cluster = Cluster(nodes=2, may_wake=True).state(ResourceState.ABSENT, 1, upto=2147483646).job("/node=1")
    asleep = Round(cluster.snapshot())
    cluster.state(ResourceState.ALIVE, 1, upto=2147483646)
    assert Round(cluster.snapshot(), requests=asleep.compiled).requests is asleep.requests
    dead = Round(cluster.state(ResourceState.DEAD, 1).snapshot(), requests=asleep.compiled)
    assert dead.requests is not asleep.requests
