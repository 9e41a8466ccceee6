"""Quotas: which rules bind, what is counted, and that no plan exceeds them."""

import random
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oar.kao.facts.job_types import parse_types
from oar.kao.facts.plan import Placement
from oar.kao.facts.snapshot import PlannedJob, Snapshot, WaitingJob
from oar.kao.planner.schedule import schedule
from oar.kao.rounds.snapshot_files import from_json, to_json
from oar.lib.accounts.limit_rules import binding_rules, rules_by_key
from oar.lib.accounts.quota_files import QuotaFileError, parse_json, parse_statements
from oar.lib.accounts.quota_records import QuotaPeriod, QuotaRule, Quotas
from oar.lib.base.times import format_date
from oar.lib.jobs.reasons import ReasonCode
from oar.lib.jobs.records import Queue
from oar.lib.jobs.states import JobState, QueueState
from oar.lib.submission.resource_request import JobTypes
from tests.examples import at_most
from tests.scheduler.builders import NOW, Cluster, hours
from tests.scheduler.reference import Reference

HOUR = 3600


def rule(key: str, *limits: int) -> QuotaRule:
    queue, project, type_, user = key.split(",")
    return QuotaRule(queue, project, type_, user, *limits)


def limited(limits: Mapping[str, tuple[int, ...]] | None = None, *, nodes: int = 4, cores: int = 2) -> Cluster:
    """A machine with one set of rules, for ever."""
    cluster = Cluster(nodes, cores, has_quotas=True)
    made = tuple(rule(key, *given) for key, given in (limits or {}).items())
    cluster.quotas = Quotas((made,), (QuotaPeriod(NOW, 0),))
    return cluster


# ------------------------------------------------------------------------------------------------------------ planning


def test_a_user_over_his_quota_waits_for_his_own_jobs_only() -> None:
    result = limited({"*,*,*,/": (2,)}).job("/core=2").job("/core=1").job("/core=2", user="eve").plan()
    assert [result.start(job) for job in (1, 2, 3)] == [0, HOUR + 1, 0]
    assert result.reason(2) == "quota_exceeded:*,*,*,/=[3,2,1.00]>[2,-1,-1]"  # in the last second in which it is
    assert result.plan.reasons[2].data == {
        "rule": ["*", "*", "*", "/"],
        "used": [3, 2, 1.0],
        "limits": [2, -1, -1],
        "date": NOW + HOUR + 1,
    }


def test_a_quota_is_free_when_the_resources_of_a_job_are() -> None:
    result = limited({"*,*,*,*": (-1, 1)}).job("/core=1").job("/core=1").plan()
    assert [result.start(2), result.where(2)] == [HOUR + 1, result.where(1)]


def test_a_job_that_waits_for_a_quota_leaves_the_idle_cores_to_those_behind_it() -> None:
    cluster = limited({"*,*,*,/": (5,)}, nodes=1, cores=10).run(0b11111, walltime=100, user="ann")
    result = cluster.job("/core=5", walltime=1000, user="ann").job("/core=5", walltime=1000, user="eve").plan()
    assert [result.start(2), result.where(2)] == [101, 0b11111]
    assert result.code(2) == ReasonCode.QUOTA
    assert result.started() == [3]


def test_a_job_ends_so_early_that_its_quota_is_free_for_the_one_planned_behind_it() -> None:
    cluster = limited({"*,*,*,/": (-1, 1)}).job("/core=1", types=(f"postpone={format_date(NOW + 100)}",))
    result = cluster.job("/core=1", walltime=100).job("/core=1", walltime=99).plan()
    assert [result.start(job) for job in (1, 2, 3)] == [100, 100 + HOUR + 1, 0]


def test_a_job_may_fill_a_period_to_its_end_whatever_the_next_one_allows() -> None:
    cluster = Cluster(nodes=4, cores=2, has_quotas=True)
    night, day = (rule("*,*,*,/", 8),), (rule("*,*,*,/", 2),)
    cluster.quotas = Quotas((night, day), (QuotaPeriod(NOW, 0), QuotaPeriod(NOW + 100, 1)))
    result = cluster.job("/core=8", walltime=100).job("/core=2", walltime=100).plan()
    assert [result.start(job) for job in (1, 2)] == [0, 101]


def test_resource_hours_are_used_up_at_the_end_of_the_walltime() -> None:
    result = limited({"*,*,*,*": (-1, -1, 2 * HOUR)}).job("/core=1").job("/core=1").job("/core=2", walltime=HOUR).plan()
    assert [result.start(job) for job in (1, 2, 3)] == [0, 0, HOUR]


def test_a_job_larger_than_its_quota_has_no_place() -> None:
    result = limited({"*,*,*,/": (2,)}).job("/core=3").plan()
    assert (result.start(1), result.code(1)) == (None, ReasonCode.QUOTA)
    assert "date" not in result.plan.reasons[1].data


def test_resource_hours_are_those_still_to_be_used() -> None:
    """Two cores for an hour each; the first has used enough of its hour when half of it is over."""
    cluster = limited({"*,*,*,*": (-1, -1, hours(1.5))})
    result = cluster.run(0b1, hours(1)).job("/core=1", walltime=hours(1)).plan()
    assert result.start(2) == HOUR // 2


def test_containers_and_jobs_without_quotas_are_not_counted() -> None:
    cluster = limited({"*,*,*,*": (2,)})
    cluster.run(0b111111, types=("container",)).run(0b1000000, types=("no_quotas",))
    assert cluster.job("/core=1").plan().start(3) == 0


def test_a_container_is_checked_with_its_own_size() -> None:
    assert limited({"*,*,*,*": (2,)}).job("/core=3", types=("container",)).plan().code(1) == ReasonCode.QUOTA


def test_besteffort_jobs_count_for_besteffort_jobs_only() -> None:
    cluster = limited({"*,*,*,*": (3,)})
    cluster.run(0b11, types=("besteffort",), queue="besteffort")
    result = cluster.job("/core=3").job("/core=1", queue="besteffort", types=("besteffort",)).plan()
    assert [result.start(job) for job in (2, 3)] == [0, HOUR + 1]


def test_resources_of_other_types_do_not_count() -> None:
    cluster = limited({"*,*,*,*": (1,)}, nodes=1, cores=2)
    cluster.resources = replace(cluster.resources, types=("licence", "default"))
    assert cluster.job("/core=2").plan().start(1) == 0


def test_a_reservation_against_the_quotas_is_refused() -> None:
    result = limited({"*,*,*,/": (2,)}).run(0b11, user="ann").reservation("/core=1", NOW + 60).plan()
    assert result.errors() == {2: "This advance reservation cannot run due to quotas"}


def test_quotas_hold_only_in_queues_whose_policy_has_them() -> None:
    cluster = limited({"*,*,*,*": (0,)})
    cluster.queues = (Queue("default", 2, "oar_sched_gantt_with_timesharing", QueueState.ACTIVE),)
    assert cluster.job().plan().start(1) == 0
    cluster.settings = replace(cluster.settings, has_quotas=False)
    policy = "oar_sched_gantt_with_timesharing_and_fairsharing_and_quotas"
    cluster.queues = (Queue("default", 2, policy, QueueState.ACTIVE),)
    assert cluster.plan().code(1) == ReasonCode.QUOTA


def test_a_job_across_periods_must_obey_each() -> None:
    """Free by day, one core by night: a job that would reach into the night waits for the next day."""
    cluster = limited()
    free, night = (), (QuotaRule("*", "*", "*", "*", 1),)
    periods = (QuotaPeriod(NOW, 0), QuotaPeriod(NOW + HOUR, 1), QuotaPeriod(NOW + 5 * HOUR, 0))
    cluster.quotas = Quotas((free, night), periods, NOW + hours(100))
    result = cluster.job("/core=2", walltime=hours(1)).job("/core=2", walltime=hours(1) + 1).plan()
    assert (result.start(1), result.start(2)) == (0, 5 * HOUR)


def test_nothing_is_planned_beyond_the_calendar() -> None:
    cluster = limited().run(0xFF, hours(3))
    cluster.quotas = Quotas(((),), (QuotaPeriod(NOW, 0),), NOW + hours(1))
    result = cluster.job().plan()
    assert (result.start(2), result.code(2)) == (None, ReasonCode.QUOTA)


# ------------------------------------------------------------------------------------------------------- binding rules


def bound(
    texts: list[str], *, queue: str = "default", project: str = "p", user: str = "u", types: tuple[str, ...] = ()
) -> list[str]:
    job = PlannedJob(1, queue, user, project, "", JobState.WAITING, types=types)
    made = [rule(text, 1) for text in texts]
    found = binding_rules(rules_by_key(made), job, JobTypes(types).names)
    return [",".join((each.queue, each.project, each.type, each.user)) for each in found]


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (["*,*,*,*", "*,*,*,/"], ["*,*,*,*", "*,*,*,/"]),
        (["*,*,*,/", "*,*,*,u"], ["*,*,*,u"]),
        (["*,*,*,u", "default,*,*,*"], ["default,*,*,*"]),
        (["*,p,*,*", "/,*,*,u"], ["*,p,*,*", "/,*,*,u"]),
        (["*,*,*,*", "*,p,*,/", "*,*,night,*"], ["*,p,*,/"]),
        (["*,*,*,*", "*,*,night,*"], ["*,*,night,*"]),
        (["other,*,*,*", "*,other,*,*", "*,*,other,*", "*,*,*,other"], []),
    ],
)
def test_rules_that_name_what_a_job_is_replace_general_ones(texts: list[str], expected: list[str]) -> None:
    assert bound(texts, types=("night=1",)) == expected


# --------------------------------------------------------------------------------------------------------------- files


def test_the_json_form() -> None:
    file = parse_json(
        '{ "quotas": { "*,*,*,/": [200, -1, -1], "*,gpuproj,*,*": ["0.5*ALL", 40, "24*ALL"],'
        ' "default,*,deploy,ann": 64, "q,*,*,*": ["ALL", "7"] }, "job_types": ["deploy", "night"] }'
    )
    quotas = file.quotas(100, NOW, 1000, 10)
    assert quotas.rules == (
        (
            QuotaRule("*", "*", "*", "/", 200, -1, -1),
            QuotaRule("*", "gpuproj", "*", "*", 50, 40, 2400 * 3600),
            QuotaRule("default", "*", "deploy", "ann", 64, -1, -1),
            QuotaRule("q", "*", "*", "*", 100, 7, -1),
        ),
    )


def test_the_form_of_oar_2() -> None:
    file = parse_statements(
        "# limits\n$Gantt_quotas->{'*'}->{'*'}->{'*'}->{'/'} = [100, 5, 10.5] ; # each user\n\n"
        "$Gantt_quotas->{\"default\"}{*} -> { 'x' }->{ann} = 20;\n"
        "$Gantt_quotas->{'*'}->{'*'}->{'*'}->{'/'} = [-1,-1,-1];\n"
    )
    assert file.quotas(10, NOW, 1, 1).rules == (
        (QuotaRule("default", "*", "x", "ann", 20), QuotaRule("*", "*", "*", "/", -1, -1, -1)),
    )


@pytest.mark.parametrize(
    ("text", "trouble"),
    [
        ('{ "quotas": {\n "*,*,*,*": [1,]\n} }', "line 2: "),
        ('{ "quotas": {\n "*,*,*": 1 } }', 'line 2: "*,*,*" is not <queue>,<project>,<type>,<user>'),
        ('{ "quotas": {\n\n "*,*,/,*": 1 } }', 'line 3: "/" is not possible for the type'),
        ('{ "quotas": { "*,*,*,*": "half" } }', 'line 1: "half" is not a number, ALL or <factor>*ALL'),
        ('{ "quotas": { "*,*,*,*": [1,2,3,4] } }', "line 1: a rule has one to three limits"),
        ("[]", "line 1: it is not an object"),
        ('{ "periodical": [["08:00-25:00 mon * *", "day", ""]], "day": {} }', "there is no such time of the day"),
        ('{ "periodical": [["* mon 1 *", "day", ""]], "day": {} }', "is not"),
        ('{ "periodical": [["* noday * *", "day", ""]], "day": {} }', "is not a day of the week"),
        ('{\n"periodical": [["* mon * *", "day", ""]] }', 'line 2: there are no rules "day"'),
        ('{ "oneshot": [["2031-07-23", "2031-07-22", "day", ""]], "day": {} }', "is not after"),
    ],
)
def test_a_file_that_does_not_parse_is_refused_with_the_line(text: str, trouble: str) -> None:
    with pytest.raises(QuotaFileError) as error:
        parse_json(text)
    assert trouble in str(error.value)


@pytest.mark.parametrize("text", ["system('rm')", "$Gantt_quotas->{'*'} = 1;", "$x = 1; print 2"])
def test_statements_are_read_and_never_run(text: str) -> None:
    with pytest.raises(QuotaFileError, match="line 2"):
        parse_statements(f"# first\n{text}\n")


# ----------------------------------------------------------------------------------------------------------- invariants

REQUESTS = ["/core=1", "/core=2", "/core=3", "/node=1", "/node=2", "/node=2/core=1", "/switch=1/core=3"]
KEYS = ["*,*,*,*", "*,*,*,/", "/,*,*,*", "*,/,*,*", "*,*,*,ann", "default,*,*,*", "default,p,*,/", "*,*,night,*"]


def random_limited(seed: int, *, with_hours: bool) -> Cluster:
    rng = random.Random(seed)
    cluster = Cluster(rng.randint(1, 3), rng.randint(1, 3), has_quotas=True, besteffort_duration=0)

    def some_rules() -> tuple[QuotaRule, ...]:
        chosen = rng.sample(KEYS, rng.randint(0, 3))
        return tuple(
            rule(
                key,
                rng.choice([-1, 2, 4, 6]),
                rng.choice([-1, -1, 1, 2]),
                rng.choice([-1, 100, 600]) if with_hours else -1,
            )
            for key in chosen
        )

    dates = sorted(rng.sample(range(NOW + 1, NOW + 500), rng.randint(0, 3)))
    periods = tuple(QuotaPeriod(date, at) for at, date in enumerate([NOW, *dates]))
    cluster.quotas = Quotas(tuple(some_rules() for _ in periods), periods)
    left = cluster.resources.everything
    for _ in range(rng.randint(0, 3)):
        held = left & rng.getrandbits(9)
        left &= ~held
        cluster.run(held, rng.randint(1, 200), rng.randint(0, 100), **_who(rng))
    for _ in range(rng.randint(1, 7)):
        asked = [f"{rng.choice(REQUESTS)},walltime=0:0:{rng.randint(1, 150)}" for _ in range(rng.choice([1, 1, 2]))]
        cluster.job(*asked, **_who(rng))
    return cluster


def _who(rng: random.Random) -> dict[str, Any]:
    types = rng.choice([(), (), (), ("night",), ("no_quotas",), ("besteffort",)])
    return {
        "user": rng.choice(["ann", "bob"]),
        "project": rng.choice(["p", "q"]),
        "queue": "besteffort" if types == ("besteffort",) else rng.choice(["default", "admin"]),
        "types": types,
    }


def is_over(snapshot: Snapshot, job: WaitingJob, place: Placement, placed: Mapping[int, Placement]) -> bool:
    """Whether a place breaks a rule at any second, by adding up all jobs anew."""
    if "no_quotas" in job.types or snapshot.quotas is None:
        return False
    jobs = {each.id: each for each in (*snapshot.running, *snapshot.waiting)}
    spans = [(each, each.start_time, each.start_time + each.walltime, each.resources) for each in snapshot.running]
    spans = [(each, start, max(end, NOW), held) for each, start, end, held in spans]
    taken: list[tuple[PlannedJob, int, int, int]] = [
        *spans,
        *((jobs[number], each.start, each.end, each.resources) for number, each in placed.items() if number != job.id),
        (job, place.start, place.end, place.resources),
    ]
    counted = [
        each
        for each in taken
        if "no_quotas" not in each[0].types
        and (parse_types(job).is_besteffort or not parse_types(each[0]).is_besteffort)
    ]
    gap = snapshot.settings.security_time
    for second in range(place.start, place.end + gap):
        number = max(each.rules for each in snapshot.quotas.periods if each.begin <= second)
        if second >= place.end and number != max(
            each.rules for each in snapshot.quotas.periods if each.begin < place.end
        ):
            break  # a period that begins when the walltime is over
        there = [each for each in counted if each[1] <= second < each[2] + gap]
        for bind in binding_rules(rules_by_key(snapshot.quotas.rules[number]), job, JobTypes(job.types).names):
            mine = [each for each in there if _is_counted(bind, each[0], job)]
            resources = sum(held.bit_count() for _, _, _, held in mine)
            seconds = sum(held.bit_count() * max(0, end - second) for _, _, end, held in mine)
            limits = (bind.resources, resources), (bind.jobs, len(mine)), (bind.seconds, seconds)
            if any(0 <= limit < used for limit, used in limits):
                return True
    return False


def _is_counted(bind: QuotaRule, other: PlannedJob, job: PlannedJob) -> bool:
    pairs = (
        (bind.queue, other.queue, job.queue),
        (bind.project, other.project, job.project),
        (bind.user, other.user, job.user),
    )
    is_same = all(text == "*" or theirs == (own if text == "/" else text) for text, theirs, own in pairs)
    return is_same and (bind.type == "*" or bind.type in other.types)


@given(st.integers(0, 10**9))
def test_no_place_exceeds_a_quota_at_any_second(seed: int) -> None:
    """With what was placed before it.  One behind may count for a rule that does not bind it: a special rule does."""
    snapshot = random_limited(seed, with_hours=True).snapshot()
    plan = schedule(snapshot)
    assert plan.troubles == ()
    jobs = {job.id: job for job in snapshot.waiting}
    before: dict[int, Placement] = {}
    for place in plan.placements:
        assert not is_over(snapshot, jobs[place.job_id], place, before)
        before[place.job_id] = place


@given(st.integers(0, 10**9))
def test_each_job_has_the_earliest_place_that_resources_and_quotas_allow(seed: int) -> None:
    snapshot = random_limited(seed, with_hours=False).snapshot()
    reference = Reference(snapshot, is_forbidden=lambda job, place, placed: is_over(snapshot, job, place, placed))
    expected = reference.plan()
    assert {place.job_id: place for place in schedule(snapshot).placements} == expected


@given(st.integers(0, 10**9))
@at_most(30)
def test_quotas_go_with_a_saved_snapshot(seed: int) -> None:
    snapshot = random_limited(seed, with_hours=True).snapshot()
    assert from_json(Snapshot, to_json(snapshot)) == snapshot
