"""Changes of walltime: what is granted when, and what it must not delay."""

from typing import Any

import pytest

from oar.kao.planner.schedule import schedule
from oar.kao.planner.walltime_grants import (
    LATER,
    GrantDecision,
    GrantSteps,
    PlannedStart,
    RequestedWalltime,
    WalltimeGrants,
)
from oar.lib.base.times import format_date
from oar.lib.nodes.states import ResourceState
from tests.scheduler.builders import NOW, Cluster

HOUR = 3600


def decide(cluster: Cluster, pending: int, steps: GrantSteps | None = None, **given: Any) -> GrantDecision:
    """Decide for job 1, on the plan that the others have."""
    snapshot = cluster.snapshot()
    jobs = {job.id: job for job in snapshot.waiting}
    promises = [PlannedStart(jobs[each.job_id], each.start, each.resources) for each in schedule(snapshot).placements]
    changes = WalltimeGrants(snapshot, promises, {"_": steps or GrantSteps()})
    return changes.decide(RequestedWalltime(1, pending, **{"requested_at": NOW, **given}))


def running(**given: Any) -> Cluster:
    return Cluster(1, 1).run(0b1, HOUR, since=600, **given)


def test_on_a_free_machine_all_is_granted_at_once() -> None:
    assert decide(running(), 10 * HOUR) == GrantDecision(10 * HOUR)


def test_a_walltime_is_cut_to_now_at_most() -> None:
    assert decide(running(), -60) == GrantDecision(-60)
    assert decide(running(), -2 * HOUR) == GrantDecision(-(HOUR - 600))


def test_waiting_jobs_are_not_delayed_unless_the_user_may() -> None:
    cluster = running().job(types=("postpone=" + format_date(NOW + HOUR),))
    assert decide(cluster, HOUR) == GrantDecision(600 - 1)
    assert decide(cluster, HOUR, is_whole=True) == LATER
    assert decide(cluster, HOUR, delays_next_jobs=True) == GrantDecision(HOUR)


def test_reservations_are_never_delayed_and_besteffort_jobs_always() -> None:
    reserved = running().reservation("/core=1", NOW + HOUR, 0b1)
    assert decide(reserved, HOUR, delays_next_jobs=True) == GrantDecision(600 - 1)
    assert decide(running().job(types=("besteffort",), queue="besteffort"), HOUR) == GrantDecision(HOUR)


def test_jobs_that_share_do_not_stop_each_other() -> None:
    shared = ("timesharing",)
    cluster = running(types=shared).job(types=(*shared, "postpone=" + format_date(NOW + HOUR)))
    assert decide(cluster, HOUR) == GrantDecision(HOUR)


def test_it_is_granted_shortly_before_the_end_and_in_steps() -> None:
    assert decide(running(), HOUR, GrantSteps(apply_time=600)) == LATER
    assert decide(running(), HOUR, GrantSteps(apply_time=HOUR - 600, increment=0.5)) == GrantDecision(HOUR // 2)
    assert decide(running(), HOUR, GrantSteps(apply_time=600, increment=60), is_forced=True) == GrantDecision(HOUR)
    assert decide(running(), HOUR, GrantSteps(increment=60), is_whole=True) == LATER


def test_what_waited_too_long_is_dropped() -> None:
    assert decide(running(), HOUR, timeout=60, requested_at=NOW - 60) == GrantDecision(is_dropped=True)
    assert decide(running(), HOUR, timeout=60, requested_at=NOW - 59) == GrantDecision(HOUR)
    assert decide(running(), HOUR, GrantSteps(apply_time=600), timeout=60, requested_at=NOW - 60) == LATER


@pytest.mark.parametrize("types", [("inner=2",), ("deadline=" + format_date(NOW + HOUR),)])
def test_containers_and_deadlines_bound_it(types: tuple[str, ...]) -> None:
    cluster = Cluster(1, 1).run(0b1, HOUR, since=600, types=types).run(0b1, HOUR, types=("container",))
    assert decide(cluster, 2 * HOUR) == GrantDecision(600)


def test_a_resource_that_leaves_bounds_it() -> None:
    cluster = running().state(ResourceState.ALIVE, 0, upto=NOW + HOUR)
    assert decide(cluster, 2 * HOUR) == GrantDecision(600 - 1)
