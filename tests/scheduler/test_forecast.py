"""What becomes of one job: the plan as far as that job, without the limits of a round, as far as there is time."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oar.kao.facts.plan import JobForecast
from oar.kao.facts.snapshot import Snapshot
from oar.kao.planner.schedule import Round, schedule
from oar.kao.rounds.hypothetical.what_if import NoTime, smallest_change, without_limits
from oar.lib.jobs.reasons import ReasonCode, RoundLimit
from oar.lib.jobs.records import Queue
from oar.lib.jobs.states import JobPriority, QueueState
from tests.scheduler.builders import NOW, Cluster, hours
from tests.scheduler.test_invariants import random_cluster

H = hours(1)
STRICT = (Queue("default", 2, "kamelot_fifo", QueueState.ACTIVE),)


def stopping_after(looks: int) -> Callable[[], float]:
    """Return a clock for which the time is over after so many looks."""
    times = iter([0.0] * looks)
    return lambda: next(times, 11.0)


def forecast(snapshot: Snapshot, job: int, elapsed: Callable[[], float] = lambda: 0.0) -> JobForecast:
    return Round(without_limits(snapshot, 10), elapsed).forecast([job])[job]


def line(jobs: int, **settings: Any) -> Cluster:
    """Jobs of an hour one after the other on one node, with the limit of jobs that is shipped."""
    cluster = Cluster(nodes=1, **settings)
    for _ in range(jobs):
        cluster.job("/node=1")
    return cluster


def test_limits_of_jobs_in_a_round_are_no_limits_of_a_forecast() -> None:
    for limited in (line(20, max_jobs=3), line(20, max_jobs_per_user=3, job_priority=JobPriority.FAIRSHARE)):
        snapshot = limited.snapshot()
        assert schedule(snapshot).reasons[20].code == ReasonCode.LIMIT
        found = forecast(snapshot, 20)
        assert found.placement is not None
        assert (found.placement.start, found.not_before) == (NOW + 19 * (H + 1), None)
        assert found.reason is not None
        assert found.reason.code == ReasonCode.BUSY


def test_nothing_is_planned_behind_the_job_or_in_queues_of_less_priority() -> None:
    cluster = line(5).job("/node=1", queue="admin").job("/node=1", queue="admin").job("/node=1", queue="besteffort")
    places = {place.job_id: place for place in schedule(cluster.snapshot()).placements}
    for job, planned in ((3, {6, 7, 1, 2, 3}), (6, {6}), (8, set(range(1, 9)))):
        planning = Round(cluster.snapshot())
        assert planning.forecast([job])[job].placement == places[job]
        assert planning.seconds.keys() == planned


@given(st.integers(0, 10**9))
def test_a_forecast_is_what_a_round_without_limits_plans(seed: int) -> None:
    snapshot = without_limits(random_cluster(seed, has_quotas=seed % 2 == 0).snapshot())
    plan = schedule(snapshot)
    places = {place.job_id: place for place in plan.placements}
    refused = {answer.job_id: answer.message for answer in plan.refused}
    for job in snapshot.waiting:
        found = Round(snapshot).forecast([job.id])[job.id]
        assert (found.placement, found.refusal, found.not_before) == (places.get(job.id), refused.get(job.id, ""), None)
        if not found.refusal:
            assert found.reason == plan.reasons.get(job.id)


@given(st.integers(0, 10**9), st.integers(0, 12))
def test_without_time_a_forecast_is_a_date_that_the_start_is_not_before(seed: int, looks: int) -> None:
    snapshot = without_limits(random_cluster(seed, has_quotas=seed % 2 == 0).snapshot(), 10)
    starts = {place.job_id: place.start for place in schedule(snapshot).placements}
    for job in snapshot.waiting:
        found = Round(snapshot, stopping_after(looks)).forecast([job.id])[job.id]
        if found.not_before is not None:
            assert found.placement is None
            assert found.not_before >= NOW
            assert found.not_before <= starts.get(job.id, found.not_before)
            assert found.reason is not None
            assert found.reason.data["limit"] == RoundLimit.TIME


def test_the_date_is_that_of_what_was_planned_in_time() -> None:
    found = forecast(line(20).snapshot(), 20, stopping_after(5))
    assert found == JobForecast(None, found.reason, "", NOW + 5 * (H + 1))
    assert found.reason is not None
    assert found.reason.data == {"count": 5, "limit": RoundLimit.TIME}


def test_a_job_that_can_never_start_is_told_so_even_without_time() -> None:
    found = forecast(line(5).job("/node=3").snapshot(), 6, stopping_after(2))
    assert found.reason is not None
    assert (found.reason.code, found.not_before) == (ReasonCode.IMPOSSIBLE, None)


def test_without_time_a_job_behind_one_without_a_place_may_start_at_any_date() -> None:
    found = forecast(line(5).job(after=[4]).snapshot(), 6, stopping_after(2))
    assert found.not_before == NOW


def test_of_several_alternatives_the_earliest_counts_without_time() -> None:
    cluster = (
        Cluster(nodes=2).run(0b11, walltime=2 * H).job("/node=1").job("/node=2,walltime=0:1", "/node=1,walltime=9")
    )
    assert forecast(cluster.snapshot(), 3, stopping_after(1)).not_before == NOW + H + 1


def test_all_jobs_of_an_array_are_told_a_date_and_not_searched_for_ever() -> None:
    cluster = line(3)
    for _ in range(50):
        cluster.job("/node=1", array_id=4)
    late = iter([0.0, 0.0, *[11.0] * 3])
    planning = Round(without_limits(cluster.snapshot(), 10), lambda: next(late, 100.0))
    dates = [each.not_before for each in planning.forecast(range(4, 54)).values()]
    assert dates == [NOW + 2 * (H + 1)] * 2 + [NOW] * 48


def test_behind_one_that_waits_in_a_queue_without_backfilling_a_job_starts_later() -> None:
    cluster = Cluster(nodes=1).run(0b01).job("/node=1").job("/core=1").job("/core=1")
    cluster.queues = STRICT
    assert schedule(cluster.snapshot()).placements == ()
    found = [forecast(cluster.snapshot(), job) for job in (2, 3, 4)]
    assert [each.placement.start - NOW for each in found if each.placement] == [H + 1, 2 * (H + 1), 2 * (H + 1)]
    small = Cluster(nodes=2).run(0b01).job("/node=2").job("/core=1", walltime=60)
    small.queues = STRICT
    behind = forecast(small.snapshot(), 3)
    assert behind.placement is not None
    assert behind.placement.start >= NOW + H + 1  # though there is room for it now


def test_behind_one_that_can_never_start_nothing_starts_in_a_queue_without_backfilling() -> None:
    cluster = Cluster(nodes=1).job("/node=2").job("/core=1")
    cluster.queues = STRICT
    found = forecast(cluster.snapshot(), 2)
    assert found.reason is not None
    assert (found.placement, found.reason.data["limit"]) == (None, RoundLimit.ORDER)


def test_the_change_that_helps_is_found_behind_the_limits_of_a_round() -> None:
    cluster = Cluster(nodes=1, cores=4, max_jobs=2).run(0b0001)
    for _ in range(4):
        cluster.job("/core=4")
    cluster.job("/core=4", walltime=2 * H)
    found = smallest_change(replace(cluster.snapshot(), now=NOW), 6)
    assert found is None  # all that is free now is planned for others
    cluster.waiting = [replace(job, queue="besteffort", types=("besteffort",)) for job in cluster.waiting[:4]] + [
        cluster.waiting[4]
    ]
    found = smallest_change(cluster.snapshot(), 6)
    assert found is not None
    assert found.text == "core=3 instead of core=4"


def test_without_time_no_change_is_named_and_none_is_denied() -> None:
    with pytest.raises(NoTime):
        smallest_change(line(9).snapshot(), 9, elapsed=stopping_after(3), seconds=10)
