"""SCHEDULER_BACKFILL_DEPTH: who has a planned start, who starts beside them, and that all ways to a plan agree."""

import random
from dataclasses import replace

import pytest
from hypothesis import event, example, given
from hypothesis import strategies as st

from oar.kao.facts.snapshot import Snapshot
from oar.kao.planner.schedule import Round, schedule
from oar.kao.rounds.hypothetical.what_if import smallest_change, with_all_planned
from oar.kao.rounds.reading.planner_settings import settings_of
from oar.lib.accounts.quota_records import QuotaPeriod, QuotaRule, Quotas
from oar.lib.base.times import format_date
from oar.lib.config.files import Config
from oar.lib.jobs.reasons import ReasonCode, RoundLimit
from tests.examples import at_most
from tests.scheduler.builders import NOW, Cluster, hours
from tests.scheduler.reference import Reference
from tests.scheduler.test_invariants import random_cluster
from tests.scheduler.test_placement_reuse import carried_out, disturbed, limited
from tests.scheduler.test_urgent_pass import busy, check, crowded, decisions, reserved, searches_of, urgent

H = hours(1)
seeds = st.integers(0, 10**9)


def to_depth(snapshot: Snapshot, dice: random.Random) -> Snapshot:
    """The same situation with a depth, or one for each queue."""
    depths = dice.choice([{"_": 1}, {"_": 2}, {"_": 3}, {"default": 1}, {"_": 1, "admin": 0}, {"besteffort": 1}])
    return replace(snapshot, settings=replace(snapshot.settings, backfill_depths=depths))


def line(depth: int) -> Cluster:
    """One of two nodes is taken for an hour; two jobs want both, others one for different times."""
    cluster = Cluster(nodes=2, cores=1, backfill_depths={"_": depth}).run(0b01)
    cluster.job("/node=2").job("/node=2").job("/node=1", walltime=H // 2).job("/node=1", walltime=3 * H)
    return cluster


# ------------------------------------------------------------------------------------------------------- what it means


@pytest.mark.parametrize(("depth", "starts"), [(1, [1, None, 0, None]), (2, [1, 2, 0, None]), (0, [1, 2, 0, 3])])
def test_only_the_first_jobs_that_wait_have_a_planned_start(depth: int, starts: list[int | None]) -> None:
    plan = line(depth).plan()
    assert plan.started() == [4]
    assert [plan.start(job) for job in (2, 3, 4, 5)] == [start and start * (H + 1) for start in starts]


def test_a_job_behind_the_depth_starts_beside_jobs_that_have_no_planned_start() -> None:
    cluster = Cluster(nodes=3, cores=1, backfill_depths={"_": 1}).run(0b001)
    cluster.job("/node=2+/node=1", walltime=H).job("/node=2", walltime=H // 2).job("/node=1", walltime=H // 2)
    plan = cluster.plan()
    assert plan.start(3) == 0
    assert plan.code(4) == ReasonCode.LIMIT
    full = replace(cluster.snapshot(), settings=replace(cluster.settings, backfill_depths={}))
    assert schedule(full).reasons[4].code == ReasonCode.BUSY


def test_the_reason_names_the_depth() -> None:
    reason = line(2).plan().plan.reasons[5]
    assert (reason.code, reason.data) == (ReasonCode.LIMIT, {"count": 2, "limit": RoundLimit.DEPTH})
    assert reason.text == "no start is planned: its queue plans 2, of the first that wait"


def test_each_queue_has_its_own_depth_and_counts_its_own_jobs() -> None:
    cluster = Cluster(nodes=1, cores=1, backfill_depths={"admin": 1, "_": 2}).run(1)
    for queue in ("admin", "admin", "default", "default", "default"):
        cluster.job("/node=1", queue=queue)
    plan = cluster.plan()
    assert [plan.start(job) is not None for job in (2, 3, 4, 5, 6)] == [True, False, True, True, False]


def test_a_queue_that_the_table_does_not_name_has_no_depth() -> None:
    cluster = Cluster(nodes=1, cores=1, backfill_depths={"admin": 1}).run(1)
    plan = cluster.job("/node=1").job("/node=1").plan()
    assert plan.start(3) is not None


def test_jobs_that_wait_for_something_of_their_own_do_not_use_up_the_depth() -> None:
    cluster = Cluster(nodes=2, cores=1, backfill_depths={"_": 1}, has_quotas=True).run(0b01).run(0b10, array_id=1)
    cluster.quotas = Quotas(((QuotaRule("*", "*", "*", "bea", 0),),), (QuotaPeriod(0, 0),))
    later = format_date(NOW + 5 * H)
    cluster.job("/core=1", types=(f"postpone={later}",)).job("/core=1", after=[1]).job("/core=1", user="bea")
    cluster.job("/node=2", walltime=600).job("/node=2")
    plan = cluster.plan()
    assert plan.start(6) == 2 * (H + 1)  # behind job 4
    assert plan.code(7) == ReasonCode.LIMIT


def test_an_array_that_fills_its_limit_does_not_use_up_the_depth() -> None:
    cluster = Cluster(nodes=2, cores=1, backfill_depths={"_": 1}).run(0b01, array_id=9, array_limit=1)
    for _ in range(5):
        cluster.job("/core=1", array_id=9, array_limit=1)
    cluster.job("/node=2", walltime=60)
    assert cluster.plan().start(7) is not None


def test_behind_the_depth_a_job_that_cannot_start_for_another_reason_is_told_that_one() -> None:
    cluster = line(1).job("/node=3").job("/node=1", types=(f"postpone={format_date(NOW + 600)}",))
    cluster.job("/node=1", walltime=60, after=[2])
    plan = cluster.plan()
    assert [plan.code(job) for job in (6, 7, 8)] == [
        ReasonCode.IMPOSSIBLE,
        ReasonCode.POSTPONED,
        ReasonCode.DEPENDENCY,
    ]


def test_jobs_in_a_container_are_counted_for_themselves() -> None:
    cluster = Cluster(nodes=2, cores=1, backfill_depths={"_": 1}).run(0b01, types=("container=c",)).run(0b10)
    for _ in range(2):
        cluster.job("/core=1", walltime=H // 4, types=("inner=c",))
    cluster.job("/node=1", walltime=H // 2, types=("inner=c",)).job("/node=2")
    plan = cluster.plan()
    assert (plan.start(3), plan.start(4) is not None, plan.start(5)) == (0, True, None)
    assert plan.start(6) is not None


def test_a_forecast_behind_the_depth_is_a_date_before_which_the_job_does_not_start() -> None:
    found = Round(line(1).snapshot()).forecast([5])[5]
    assert (found.placement, found.not_before) == (None, 2 * (H + 1) + NOW)
    assert found.reason is not None
    assert found.reason.data["limit"] == RoundLimit.DEPTH


def test_the_change_that_would_help_is_found_behind_the_depth() -> None:
    cluster = line(1)
    cluster.waiting = [job for job in cluster.waiting if job.id != 4]
    found = smallest_change(cluster.snapshot(), 5)
    assert found is not None
    assert (found.what, found.new) == ("walltime", H)


def test_a_plan_of_all_jobs_knows_no_depth() -> None:
    assert schedule(with_all_planned(line(1).snapshot())) == schedule(with_all_planned(line(0).snapshot()))


def test_the_key_is_one_number_or_a_table_by_queue() -> None:
    read = Config.scheduler_backfill_depth.read
    assert settings_of(Config(scheduler_backfill_depth=read("5"))).backfill_depth("night") == 5
    table = settings_of(Config(scheduler_backfill_depth=read("{ night => 1, _ => 20 }")))
    assert [table.backfill_depth(queue) for queue in ("night", "default")] == [1, 20]
    assert settings_of(Config()).backfill_depth("default") == 0
    with pytest.raises(ValueError, match="not below 0"):
        read("-1")


def test_behind_the_depth_what_has_no_room_now_is_searched_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def cost(jobs: int) -> int:
        cluster = Cluster(nodes=20, cores=4, max_jobs=0, timeout=0, backfill_depths={"_": 3}).run((1 << 80) - 1)
        for number in range(jobs):
            cluster.job(("/core=3", "/node=1", "/node=2", "/core=7")[number % 4], walltime=200 + number)
        return searches_of(monkeypatch, lambda: schedule(cluster.snapshot()))

    assert cost(1000) == cost(100)


# ---------------------------------------------------------------------------------------------------------- properties


@given(seeds)
def test_each_job_has_the_place_that_trying_every_instant_gives(seed: int) -> None:
    snapshot = to_depth(random_cluster(seed).snapshot(), random.Random(seed))
    plan = schedule(snapshot)
    granted = {job.id for job in snapshot.waiting if job.granted}
    found = {placement.job_id: placement for placement in plan.placements if placement.job_id not in granted}
    assert (plan.troubles, plan.failures) == ((), ())
    assert found == Reference(snapshot).plan()


@given(seeds)
@at_most(60)
def test_every_job_has_a_place_or_a_reason(seed: int) -> None:
    dice = random.Random(seed)
    snapshot = to_depth(dice.choice([busy, crowded])(seed), dice)
    plan = schedule(snapshot)
    started = {start.placement.job_id for start in plan.started}
    answered = {answer.job_id for answer in (*plan.refused, *plan.expired)}
    assert {job.id for job in snapshot.waiting} == started | answered | plan.reasons.keys()


@given(seeds)
@at_most(60)
def test_a_depth_that_is_never_reached_changes_nothing(seed: int) -> None:
    snapshot = random.Random(seed).choice([busy, crowded])(seed)
    deep = replace(snapshot, settings=replace(snapshot.settings, backfill_depths={"_": 1000}))
    assert schedule(deep) == schedule(snapshot)


@given(seeds)
@example(227214)  # whether there is room was asked for before, and the limit of an array after it
@example(23148)  # a job without any place is refused by a quota, unless the resources leave that others have taken
@example(117511628)  # jobs of an array behind a passed one are counted when that is placed at last
def test_an_urgent_pass_decides_as_a_full_plan_of_the_same_depth(seed: int) -> None:
    dice = random.Random(seed)
    snapshot = to_depth(dice.choice([busy, busy, crowded, reserved])(seed), dice)
    plan, full = urgent(snapshot), schedule(snapshot)
    event(f"passed over: {bool(plan.undecided)}")
    check(plan, full)
    if plan.is_certain:  # else a full plan follows at once, with reasons of its own
        codes = {job: reason.code for job, reason in plan.reasons.items()}
        assert {job: full.reasons[job].code for job in codes} == codes


def test_a_passed_besteffort_job_counts_in_its_array_for_those_behind_the_depth_of_another_queue() -> None:
    cluster = Cluster(nodes=2, cores=1, backfill_depths={"besteffort": 1}, besteffort_duration=20)
    cluster.run(0b01, walltime=5).run(0b10, walltime=100).job("/node=2", walltime=200)
    cluster.job("/node=2", walltime=1000, types=("besteffort",), array_id=7, array_limit=1)
    cluster.job("/node=1", walltime=10, types=("besteffort",), queue="besteffort")
    cluster.job("/node=1", walltime=1000, types=("besteffort",), queue="besteffort", array_id=7, array_limit=1)
    plan, full = urgent(cluster.snapshot()), schedule(cluster.snapshot())
    assert plan.is_certain
    assert decisions(plan) == decisions(full)
    assert full.reasons[6].code == ReasonCode.ARRAY
    assert plan.undecided == (3, 4, 6)


@given(seeds)
def test_a_plan_with_memory_is_the_plan_from_nothing(seed: int) -> None:
    dice = random.Random(seed)
    snapshot = to_depth(limited(random_cluster(seed).snapshot(), dice), dice)
    memory = None
    for _ in range(4):
        planning = Round(snapshot, memory=memory)
        plan = planning.plan()
        assert plan == schedule(snapshot)
        memory = planning.memory(plan)
        snapshot = disturbed(carried_out(snapshot, plan, snapshot.now + dice.choice([0, 1, 10, 60])), dice)
