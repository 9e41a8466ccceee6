"""The order in which jobs are tried: fair share, several factors."""

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oar.kao.facts.snapshot import ConsumptionSums, FairShare, Settings, Snapshot, Weights
from oar.kao.planner import job_order
from oar.kao.planner.fair_share import Share, share_of
from oar.kao.planner.placement.site_extensions import JobSorting, SiteExtensions
from oar.kao.planner.schedule import schedule
from oar.kao.rounds.reading.policy_files import parse_weights
from oar.kao.rounds.site.plugins import sorting
from oar.lib.config.files import Config
from oar.lib.jobs.queue_policies import policy_of
from oar.lib.jobs.reasons import ReasonCode
from oar.lib.jobs.records import Queue
from oar.lib.jobs.states import JobPriority, JobState, QueueState
from tests.scheduler.builders import NOW, Cluster, Result, hours

USED = ConsumptionSums(
    used=1000,
    asked=2000,
    used_by_user={"ann": 600, "bob": 400},
    asked_by_user={"ann": 500, "bob": 1500},
    used_by_project={"p": 900},
)


def fair(cluster: Cluster, **keys: Any) -> Result:
    snapshot: Snapshot = replace(cluster.snapshot(), consumption={2: USED})
    settings = replace(snapshot.settings, job_priority=JobPriority.FAIRSHARE, is_priority_explicit=True, **keys)
    return Result(schedule(replace(snapshot, settings=settings)))


def test_karma_is_what_was_had_above_the_target() -> None:
    keys = FairShare(1, 2, 3, {"p": 50.0}, {"ann": 10.0})
    share = share_of("ann", "p", USED, keys)
    assert share.karma(keys) == pytest.approx(1 * (0.9 - 0.5) + 2 * (0.6 - 0.1) + 3 * (0.25 - 0.1))


def test_without_any_consumption_targets_alone_decide() -> None:
    keys = FairShare(user_targets={"ann": 30.0})
    assert share_of("ann", "p", ConsumptionSums(0, 0), keys).karma(keys) == pytest.approx(-0.9)


def test_the_share_of_a_user_and_a_project_is_worked_out_once_for_all_their_jobs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[tuple[str, str]] = []

    def counted(user: str, project: str, consumption: ConsumptionSums, keys: FairShare) -> Share:
        asked.append((user, project))
        return share_of(user, project, consumption, keys)

    monkeypatch.setattr(job_order, "share_of", counted)
    cluster = Cluster(1, 1)
    for number in range(20):
        cluster.job(user=("ann", "bob")[number % 2], project=("p", "q")[number % 3 == 0])
    result = fair(cluster)
    assert sorted(asked) == [("ann", "p"), ("ann", "q"), ("bob", "p"), ("bob", "q")]
    assert len({result.plan.karma[job_id] for job_id in (2, 6, 8)}) == 1
    assert set(result.plan.karma) == set(range(1, 21))


def test_who_had_less_goes_first_and_everybody_is_told_why() -> None:
    cluster = Cluster(1, 1).job(user="ann").job(user="bob").job(user="eve")
    result = fair(cluster)
    assert result.started() == [3]
    assert [result.start(job) for job in (3, 1, 2)] == [0, hours(1) + 1, 2 * hours(1) + 2]
    assert "(Karma=1.450," in result.plan.messages[1]
    assert result.plan.reasons[1].data["fairshare"] == {
        "project_used": 0.0,
        "project_target": 0.0,
        "user_used": 0.6,
        "user_target": 0.0,
        "user_asked": 0.25,
        "asked_target": 0.0,
    }


def test_only_the_oldest_jobs_of_each_user_enter() -> None:
    cluster = Cluster(2, 2).job().job().job().job(user="bob")
    result = fair(cluster, max_jobs_per_user=2)
    assert sorted(result.placements) == [1, 2, 4]
    assert result.code(3) == ReasonCode.LIMIT


def order_of(cluster: Cluster, **settings: Any) -> list[int]:
    """The order in which jobs are placed on one core."""
    snapshot = replace(cluster.snapshot(), settings=replace(cluster.settings, **settings))
    return [place.job_id for place in schedule(snapshot).placements]


def crowd(many: int, others: int) -> Cluster:
    """One user with many jobs, then other users with two jobs each."""
    cluster = Cluster(1, 1)
    for _ in range(many):
        cluster.job(user="ann")
    for number in range(2 * others):
        cluster.job(user=f"user{number // 2}")
    return cluster


def test_jobs_of_a_user_beyond_a_number_come_after_those_of_everybody_else() -> None:
    assert order_of(crowd(5, 1), first_jobs_per_user=2) == [1, 2, 6, 7, 3, 4, 5]
    assert order_of(crowd(5, 1), first_jobs_per_user=0) == [1, 2, 3, 4, 5, 6, 7]
    assert order_of(crowd(5, 0), first_jobs_per_user=2) == [1, 2, 3, 4, 5]


def test_a_pass_plans_the_jobs_of_everybody_else_within_its_limit() -> None:
    planned = order_of(crowd(30, 4), first_jobs_per_user=10, max_jobs=12)
    assert planned == [1, 2, 3, 4, *range(31, 39)]  # 12 jobs, and none of the other users is left out
    assert len(order_of(crowd(30, 0), first_jobs_per_user=10, max_jobs=12)) == 12


@given(
    users=st.lists(st.integers(0, 6), min_size=1, max_size=40),
    limit=st.integers(0, 8),
    most=st.integers(0, 30),
)
def test_the_first_jobs_of_all_users_fit_into_a_pass(users: list[int], limit: int, most: int) -> None:
    cluster = Cluster(1, 1)
    for user in users:
        cluster.job(user=f"user{user}")
    first, later, bound = job_order.in_turns(cluster.waiting, limit, most)
    assert sorted(job.id for job in [*first, *later]) == list(range(1, len(users) + 1))
    if not limit:
        assert not later
        return
    assert 1 <= bound <= limit
    counts = Counter(users)
    assert Counter(job.user for job in first) == {f"user{user}": min(n, bound) for user, n in counts.items()} or (
        len(counts) == 1 and not later
    )
    assert not most or bound == 1 or sum(min(n, bound) for n in counts.values()) <= most
    if bound < limit and len(counts) > 1:  # a larger number would leave out somebody
        assert sum(min(n, bound + 1) for n in counts.values()) > most


def test_the_reason_of_a_job_behind_those_of_others_names_the_number() -> None:
    snapshot = replace(crowd(5, 1).snapshot(), settings=Settings(first_jobs_per_user=2))
    reasons = schedule(snapshot).reasons
    assert [reasons[job_id].data.get("jobs_per_user") for job_id in (2, 3, 5, 6)] == [None, 2, 2, None]


def test_a_crowd_of_27000_jobs_delays_nobody() -> None:
    cluster = Cluster(1, 1)
    for _ in range(27000):
        cluster.job(user="crowd")
    for number in range(49):
        cluster.job(user=f"user{number}")
    first, _, bound = job_order.in_turns(cluster.waiting, 1000, 1000)
    assert bound == 951
    assert len(first) == 1000  # a pass looks at all jobs of others
    assert {job.user for job in first} == {"crowd", *(f"user{number}" for number in range(49))}


def factors(cluster: Cluster, **weights: Any) -> list[int]:
    """The order of the jobs on one core."""
    settings = replace(
        cluster.settings, job_priority=JobPriority.MULTIFACTOR, is_priority_explicit=True, weights=Weights(**weights)
    )
    snapshot = replace(cluster.snapshot(), settings=settings, consumption={2: USED})
    return [place.job_id for place in schedule(snapshot).placements]


def test_all_weights_nought_is_first_come() -> None:
    assert factors(Cluster(1, 1).job().job().job()) == [1, 2, 3]


def test_age_counts_up_to_a_week() -> None:
    cluster = Cluster(1, 1).job(submission_time=NOW - 60).job(submission_time=NOW - 86400).job(submission_time=0)
    assert factors(cluster, age_weight=1.0) == [3, 2, 1]
    assert factors(cluster.job(submission_time=NOW - 10**8), age_weight=1.0) == [3, 4, 2, 1]


def test_small_or_large_work_goes_first() -> None:
    cluster = Cluster(1, 4).job("/core=4").job("/core=1").job("/core=2")
    assert factors(cluster, work_weight=1.0) == [2, 3, 1]
    assert factors(cluster, work_weight=1.0, work_mode=1) == [1, 3, 2]


def test_narrow_or_wide_jobs_go_first() -> None:
    cluster = Cluster(1, 4).job("/core=4", walltime=1).job("/core=1", walltime=hours(9)).job("/core=2")
    assert factors(cluster, size_weight=1.0) == [2, 3, 1]
    assert factors(cluster, size_weight=1.0, size_mode=1) == [1, 3, 2]


def test_karma_quality_and_niceness() -> None:
    assert factors(Cluster(1, 1).job(user="ann").job(user="eve"), karma_weight=1.0) == [2, 1]
    assert factors(Cluster(1, 1).job().job(types=("qos=0.5",)), qos_weight=1.0) == [2, 1]
    assert factors(Cluster(1, 1).job(types=("nice=3",)).job(types=("nice=2",)), nice_weight=1.0) == [2, 1]


@pytest.mark.parametrize("text", ["qos=2", "qos=nan", "qos=much", "nice=-1"])
def test_a_factor_that_is_no_number_concerns_its_job(text: str) -> None:
    result = Cluster(1, 1).job(types=(text,)).job().plan()
    assert (result.code(1), result.start(2)) == (ReasonCode.INTERNAL, 0)


def test_the_file_of_weights() -> None:
    text = "age_weight: 2\nqueue_weight: 1.5\nqueue_coefs:\n  default: 1\n  admin: 10.0\nwork_mode: 1\n"
    assert parse_weights(text) == Weights(
        age_weight=2, queue_weight=1.5, queue_coefs={"default": 1, "admin": 10.0}, work_mode=1
    )


@pytest.mark.parametrize(
    ("text", "trouble"),
    [
        ("age_weight: [1\n", "line 2"),
        ("weight_age: 1\n", 'unknown key "weight_age": use one of .*age_weight'),
        ("age_weight: much\n", "age_weight: must be a number, not 'much'"),
        ("queue_coefs: 3\n", "queue_coefs"),
        ("- 1\n", "line 1"),
    ],
)
def test_a_file_of_weights_that_does_not_parse_is_refused(text: str, trouble: str) -> None:
    with pytest.raises(ValueError, match=trouble):
        parse_weights(text)


def custom(cluster: Cluster, sort: JobSorting | None) -> Result:
    settings = replace(cluster.settings, job_priority=JobPriority.CUSTOM, is_priority_explicit=True)
    return Result(schedule(replace(cluster.snapshot(), settings=settings), site=SiteExtensions(sort=sort)))


def test_the_order_of_the_site_holds() -> None:
    result = custom(Cluster(1, 1).job().job().job(), lambda snapshot, jobs: [job.id for job in reversed(jobs)])
    assert [place.job_id for place in result.plan.placements] == [3, 2, 1]


@pytest.mark.parametrize(
    ("sort", "trouble"),
    [
        (lambda snapshot, jobs: [1, 1, 2], "no permutation"),
        (lambda snapshot, jobs: [jobs[0].id], "no permutation"),
        (lambda snapshot, jobs: [1 // 0], "ZeroDivisionError"),
    ],
)
def test_an_order_that_is_none_leaves_the_oldest_first(sort: JobSorting, trouble: str) -> None:
    result = custom(Cluster(1, 1).job().job().job(), sort)
    assert [place.job_id for place in result.plan.placements] == [1, 2, 3]
    assert trouble in result.plan.troubles[0]


def test_a_plug_in_that_is_not_installed_is_named() -> None:
    sort = sorting(Config(job_priority=JobPriority.CUSTOM, custom_job_sorting="nowhere"))
    result = custom(Cluster(1, 1).job(), sort)
    assert '"nowhere"' in result.plan.troubles[0]
    assert result.started() == [1]


def test_a_plug_in_is_found_by_its_entry_point(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "site_order.py").write_text(
        "def order(context, jobs, config):\n    return sorted((job.id for job in jobs), reverse=config == 'last')\n"
    )
    about = tmp_path / "site_order-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: site-order\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[oar.jobs_sorting_func]\nmine = site_order:order\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    config = Config(job_priority=JobPriority.CUSTOM, custom_job_sorting="mine", custom_job_sorting_config="last")
    result = custom(Cluster(1, 1).job().job(), sorting(config))
    assert [place.job_id for place in result.plan.placements] == [2, 1]


def test_the_karma_of_a_job_counts_among_factors_and_is_told() -> None:
    cluster = Cluster(1, 1).job(user="ann").job(user="eve")
    settings = replace(
        cluster.settings,
        job_priority=JobPriority.MULTIFACTOR,
        is_priority_explicit=True,
        weights=Weights(karma_weight=1.0),
    )
    plan = schedule(replace(cluster.snapshot(), settings=settings, consumption={2: USED}))
    assert plan.karma == {1: pytest.approx(1.45), 2: 0.0}
    assert "(Karma=1.450," in plan.messages[1]


def test_queues_of_equal_priority_and_order_are_one_list() -> None:
    cluster = Cluster(1, 1).job(queue="b").job(queue="a").job(queue="b")
    cluster.queues = (Queue("b", 2, "", QueueState.ACTIVE), Queue("a", 2, "kamelot", QueueState.ACTIVE))
    assert [place.job_id for place in cluster.plan().plan.placements] == [1, 2, 3]


def test_queues_of_equal_priority_keep_each_its_order() -> None:
    cluster = Cluster(1, 1).job(queue="first", user="ann").job(queue="second", user="ann").job(queue="second")
    cluster.job(queue="second", user="eve").job(queue="first", user="eve")
    fair_policy = "oar_sched_gantt_with_timesharing_and_fairsharing"
    cluster.queues = (
        Queue("first", 2, "oar_sched_gantt_with_timesharing", QueueState.ACTIVE),
        Queue("second", 2, fair_policy, QueueState.ACTIVE),
    )
    plan = schedule(replace(cluster.snapshot(), consumption={2: USED}))
    assert [place.job_id for place in plan.placements] == [1, 5, 4, 2, 3]
    assert plan.karma.keys() == {2, 3, 4}


POLICIES = "oar_sched_gantt_with_timesharing"


@pytest.mark.parametrize(
    ("policy", "job_priority", "order"),
    [
        (POLICIES, JobPriority.FIFO, JobPriority.FIFO),
        (f"{POLICIES}_and_placeholder", JobPriority.FIFO, JobPriority.FIFO),
        (POLICIES, JobPriority.MULTIFACTOR, JobPriority.MULTIFACTOR),
        (f"{POLICIES}_and_fairsharing", JobPriority.FIFO, JobPriority.FAIRSHARE),
        (f"{POLICIES}_and_fairsharing", JobPriority.CUSTOM, JobPriority.FAIRSHARE),
        (f"{POLICIES}_and_fairsharing_and_placeholder", JobPriority.FIFO, JobPriority.FAIRSHARE),
        (f"{POLICIES}_and_fairsharing_and_quotas", JobPriority.FIFO, JobPriority.FAIRSHARE),
        ("kamelot", JobPriority.FIFO, JobPriority.FIFO),
        ("kamelot", JobPriority.FAIRSHARE, JobPriority.FAIRSHARE),
        ("default", JobPriority.MULTIFACTOR, JobPriority.MULTIFACTOR),
        ("", JobPriority.CUSTOM, JobPriority.CUSTOM),
        ("kamelot_fifo", JobPriority.FIFO, JobPriority.FIFO),
        ("kamelot-fifo", JobPriority.FIFO, JobPriority.FIFO),
    ],
)
def test_each_policy_of_ours_has_its_order(policy: str, job_priority: JobPriority, order: JobPriority) -> None:
    settings = replace(
        Cluster().settings, job_priority=job_priority, is_priority_explicit=job_priority is not JobPriority.FIFO
    )
    known = policy_of(policy)
    assert known is not None
    assert known.order_by(settings) == order


@pytest.mark.parametrize(
    ("policy", "without", "with_key"),
    [
        (POLICIES, False, False),
        (f"{POLICIES}_and_placeholder", False, False),
        (f"{POLICIES}_and_fairsharing", False, False),
        (f"{POLICIES}_and_fairsharing_and_placeholder", False, False),
        (f"{POLICIES}_and_fairsharing_and_quotas", True, True),
        ("kamelot", False, True),
        ("default", False, True),
        ("", False, True),
        ("kamelot_fifo", False, False),
        ("kamelot-fifo", False, False),
    ],
)
def test_each_policy_of_ours_has_quotas_or_not(policy: str, without: bool, with_key: bool) -> None:
    known = policy_of(policy)
    assert known is not None
    settings = Cluster().settings
    assert known.has_quotas(is_configured=settings.has_quotas) is without
    assert known.has_quotas(is_configured=True) is with_key


def test_the_quota_scheduler_asks_only_that_required_jobs_have_ended() -> None:
    cluster = Cluster().ended(1, JobState.ERROR).job(after=[1], id=2)
    assert cluster.plan().code(2) == ReasonCode.DEPENDENCY
    cluster.queues = (Queue("default", 2, f"{POLICIES}_and_fairsharing_and_quotas", QueueState.ACTIVE),)
    assert cluster.plan().started() == [2]
