"""Every job that does not start has a reason, with its numbers, that can be told in a sentence."""

import inspect
import json
import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oar.kao.facts import reasons
from oar.kao.facts.plan import Plan, Reason
from oar.kao.facts.snapshot import BudgetStop, Pool, Snapshot
from oar.kao.planner.schedule import schedule
from oar.lib.accounts.quota_records import QuotaPeriod, QuotaRule, Quotas
from oar.lib.base.times import format_date
from oar.lib.jobs.reasons import (
    WAITING_FOR,
    ReasonCode,
    RoundLimit,
    WaitReason,
    Waits,
    WaitStage,
    divide_waiting_time,
    reason_code,
    reason_label,
    reason_sentence,
)
from oar.lib.jobs.records import Level, Memory, Queue, StateChange
from oar.lib.jobs.states import JobPriority, JobState, LaunchFault, QueueState
from oar.lib.nodes.states import ResourceState
from oar.lib.submission.resource_request import ALL
from tests.scheduler.builders import NOW, Cluster, hours
from tests.scheduler.test_invariants import random_cluster
from tests.scheduler.test_placement_reuse import planned

H = hours(1)
LATER = format_date(NOW + H + 1)


def stored(reason: Reason) -> WaitReason:
    """Return what is read from the database of a reason."""
    return WaitReason(NOW, reason_code(str(reason.code)), reason.text, json.loads(json.dumps(dict(reason.data))))


def told(reason: Reason) -> str:
    """Return the sentence of a reason, from what the database holds of it."""
    return reason_sentence(stored(reason))


def limited(**limits: int) -> Quotas:
    return Quotas(((QuotaRule("*", "*", "*", "/", **limits),),), (QuotaPeriod(NOW, 0),))


def expect(cluster: Cluster, job: int, code: str, text: str) -> Any:
    """The reason of a job has this code, and its sentence is this; return its data."""
    reason = cluster.plan().plan.reasons[job]
    assert (reason.code, told(reason)) == (code, text)
    return reason.data


def test_a_request_that_no_machine_satisfies_names_the_clause_and_the_nearest_that_fits() -> None:
    text = "No resources of this cluster satisfy {}, even when nothing runs. The nearest possible request is {}."
    small = Cluster(nodes=4, cores=2)
    data = expect(small.job("/node=1/core=5"), 1, ReasonCode.IMPOSSIBLE, text.format("/node=1/core=5", "core=2"))
    assert data["nearest"] == {"property": "core", "quantity": 2}
    expect(Cluster(nodes=4, cores=2).job("/core=9"), 1, ReasonCode.IMPOSSIBLE, text.format("/core=9", "core=8"))
    wide = Cluster(nodes=4, cores=2).job("/switch=3/node=2")
    expect(wide, 1, ReasonCode.IMPOSSIBLE, text.format("/switch=3/node=2", "switch=2"))
    second = Cluster(nodes=2, cores=1).job("/node=1+/core=2")
    expect(second, 1, ReasonCode.IMPOSSIBLE, text.format("/core=2", "core=1"))


def test_a_request_whose_conditions_nothing_satisfies_says_so() -> None:
    cluster = Cluster(nodes=1).job("/core=1")
    cluster.pools = [Pool(0, "gpu = 'YES'")]
    text = "No resources of this cluster satisfy {gpu = 'YES'}/core=1, even when nothing runs."
    expect(cluster, 1, ReasonCode.IMPOSSIBLE, f"{text} No resource matches the conditions.")
    cluster.pools = [Pool(0, "gpu =", "syntax error")]
    expect(cluster, 1, ReasonCode.CONDITION, "The request {gpu =}/core=1 cannot be evaluated: syntax error.")


def test_missing_nodes_are_named() -> None:
    cluster = Cluster(nodes=3, cores=2).state(ResourceState.SUSPECTED, 0).state(ResourceState.ABSENT, 2, upto=0)
    data = expect(
        cluster.job("/node=2"),
        1,
        ReasonCode.NOT_ALIVE,
        "Too few of its resources are alive: 2 Suspected (n0) and 2 Absent (n2).",
    )
    assert (data["suspected"], data["absent"], data["counts"]) == (["n0"], ["n2"], [2, 2])
    many = Cluster(nodes=12, cores=1).state(ResourceState.SUSPECTED, *range(11)).job("/node=2")
    named = ", ".join(f"n{node}" for node in range(10))
    text = f"Too few of its resources are alive: 11 Suspected ({named}, ...)."
    assert expect(many, 1, ReasonCode.NOT_ALIVE, text)["nodes"] == [11, 0]


def test_a_busy_machine_names_the_date_and_the_jobs() -> None:
    cluster = Cluster(nodes=1).run(1).run(2).job("/core=2")
    text = f"Its resources are taken until {LATER} at the latest, by jobs 1 and 2."
    assert expect(cluster, 3, ReasonCode.BUSY, text) == {"date": NOW + H + 1, "jobs": [1, 2], "count": 2}


def overdue() -> Cluster:
    """A cluster of one node, on which job 1 holds a core longer than it may."""
    return Cluster(nodes=1).run(1, walltime=600, since=700)


def test_a_job_behind_one_whose_time_is_over_is_told_no_date() -> None:
    text = "Its resources are still held by job 1, though their time is over."
    data = expect(overdue().job("/core=2"), 2, ReasonCode.BUSY, text)
    assert data == {"advance_reservations": [], "jobs": [1], "count": 1, "overdue": True}
    both = "Its resources are still held by jobs 1 and 2, though their time is over."
    expect(overdue().run(2, walltime=60, since=90).job("/core=2"), 3, ReasonCode.BUSY, both)
    later = f"Its resources are taken until {LATER} at the latest, by job 2."
    expect(overdue().run(2).job("/core=2"), 3, ReasonCode.BUSY, later)


def test_a_job_that_ends_in_this_second_or_was_suspended_is_not_over() -> None:
    ending = Cluster(nodes=1).run(3, walltime=600, since=600).job("/core=2")
    text = f"Its resources are taken until {format_date(NOW + 1)} at the latest, by job 1."
    expect(ending, 2, ReasonCode.BUSY, text)
    suspended = Cluster(nodes=1).run(3, walltime=600, since=700, suspended_time=300).job("/core=2")
    text = f"Its resources are taken until {format_date(NOW + 201)} at the latest, by job 1."
    expect(suspended, 2, ReasonCode.BUSY, text)


def test_a_job_that_depends_on_one_whose_time_is_over_is_told_no_date() -> None:
    cluster = overdue().job("/core=1", after=[1])
    text = "It waits for job 1, which has exceeded its time."
    assert expect(cluster, 2, ReasonCode.DEPENDENCY, text) == {"job": 1, "overdue": True}


def test_a_job_behind_a_reservation_names_it() -> None:
    cluster = Cluster(nodes=1).reservation("/core=2", NOW + 600, held=3).job("/core=1")
    end = format_date(NOW + 600 + H + 1)
    data = expect(cluster, 2, ReasonCode.RESERVATION, f"Its resources are reserved until {end}, by reservation 1.")
    assert data["reservations"] == [1]
    assert cluster.plan().reason(2) == f"behind reservation 1 until {end}"
    both = Cluster(nodes=1).reservation("/core=1", NOW + 600, held=1, walltime=H - 600).run(2).job("/core=2")
    text = f"Its resources are reserved until {LATER}, by reservation 1; job 2 must end, too."
    expect(both, 3, ReasonCode.RESERVATION, text)


def test_a_job_behind_a_reservation_of_the_same_round_names_it() -> None:
    cluster = Cluster(nodes=1).reservation("/core=2", NOW + 600, queue="admin").job("/core=1")
    assert cluster.plan().code(2) == ReasonCode.RESERVATION


def test_a_reservation_waits_for_its_own_date() -> None:
    date = format_date(NOW + 600)
    cluster = Cluster(nodes=1).reservation("/core=2", NOW + 600, held=3)
    expect(cluster, 1, ReasonCode.RESERVED, f"It is a reservation, and its date is {date}.")
    cluster.waiting[0] = replace(cluster.waiting[0], state=JobState.TO_ACK_RESERVATION)
    expect(cluster, 1, ReasonCode.RESERVED, f"It is a reservation, and its date is {date}.")


def test_resources_that_leave_too_early_are_the_reason() -> None:
    cluster = Cluster(nodes=1).state(ResourceState.ALIVE, 0, upto=NOW + 60).job("/core=1")
    text = f"Its resources are never free for long enough: some of its resources leave on {format_date(NOW + 60)}."
    expect(cluster, 1, ReasonCode.NO_SLOT, text)


def test_a_quota_names_its_rule_what_is_used_and_when_it_is_freed() -> None:
    cluster = Cluster(nodes=4, job_priority=JobPriority.FIFO, has_quotas=True).run(1, user="ann").job("/core=2")
    cluster.quotas = limited(resources=2)
    data = expect(
        cluster,
        2,
        ReasonCode.QUOTA,
        "With it, the quota *,*,*,/ would be exceeded: 3 resources where 2 are allowed."
        f" That quota is free again on {format_date(NOW + H + 1)}.",
    )
    assert (data["rule"], data["used"][0], data["limits"][0]) == (["*", "*", "*", "/"], 3, 2)
    cluster.job("/core=3")
    text = (
        "With it, the quota *,*,*,/ would be exceeded: 4 resources where 2 are allowed. That quota never becomes free."
    )
    expect(cluster, 3, ReasonCode.QUOTA, text)


def test_a_quota_that_counts_a_job_whose_time_is_over_tells_no_date() -> None:
    cluster = Cluster(nodes=4, job_priority=JobPriority.FIFO, has_quotas=True)
    cluster.quotas = limited(resources=2)
    cluster.run(1, user="ann", walltime=600, since=700).job("/core=2", user="ann")
    cluster.run(2, user="bob").job("/core=2", user="bob")
    quota = "With it, the quota *,*,*,/ would be exceeded: 3 resources where 2 are allowed. That quota"
    data = expect(cluster, 2, ReasonCode.QUOTA, f"{quota} counts job 1, which has not ended though its time is over.")
    assert (data["overdue"], data["jobs"], data["count"], "date" in data) == (True, [1], 1, False)
    expect(cluster, 4, ReasonCode.QUOTA, f"{quota} is free again on {format_date(NOW + H + 1)}.")


def test_who_is_beyond_his_time_is_told_though_the_place_is_that_of_the_last_round() -> None:
    array = {"array_id": 7, "array_limit": 2}
    cluster = Cluster(nodes=4).run(1, walltime=600, since=600, **array).run(1, walltime=900, **array)
    for _ in range(3):
        cluster.job(**array)
    before = cluster.snapshot()
    _, memory, _ = planned(before)
    after = replace(before, now=NOW + 1)
    plan, _, _ = planned(after, memory)
    assert plan == schedule(after)
    assert [plan.reasons[job].data.get("jobs") for job in (3, 4, 5)] == [[1]] * 3


def test_an_array_with_a_job_whose_time_is_over_tells_no_date() -> None:
    array = {"array_id": 7, "array_limit": 1}
    cluster = Cluster(nodes=4).run(1, walltime=600, since=700, **array).job(**array).job(**array)
    text = "Of the array 7, 1 may run at a time, and as many do"
    overdue = f"{text}, among them job 1, which has not ended though its time is over."
    for waiting in (2, 3):
        data = expect(cluster, waiting, ReasonCode.ARRAY, overdue)
        assert (data["overdue"], data["jobs"], data["count"]) == (True, [1], 1)
    other = {"array_id": 8, "array_limit": 1}
    assert "overdue" not in expect(cluster.job(**other).job(**other), 5, ReasonCode.ARRAY, f"{text}.".replace("7", "8"))


def test_jobs_that_depend_on_others_name_them() -> None:
    running = Cluster(nodes=2).run(1).job(after=(1,))
    expect(running, 2, ReasonCode.DEPENDENCY, f"It waits for job 1, until {LATER}.")
    circle = Cluster().job(after=(2,)).job(after=(1,))
    expect(circle, 1, ReasonCode.DEPENDENCY, "The jobs 1 and 2 wait for each other: none of them can start.")
    failed = Cluster().ended(1, code=256).job(after=(1,))
    expect(failed, 2, ReasonCode.DEPENDENCY, "Dependency on job 1 cannot be satisfied.")


def test_inner_jobs_name_their_container() -> None:
    waiting = Cluster(nodes=1).run(3).job("/node=1", types=("container",)).job(types=("inner=2",))
    expect(waiting, 3, ReasonCode.CONTAINER, f"There is room in its container 2 from {LATER} on.")
    small = Cluster(nodes=2).run(1, types=("container",)).job("/core=2", types=("inner=1",))
    expect(small, 2, ReasonCode.CONTAINER, "It asks for more than its container 1 has: 1 resources.")
    short = Cluster(nodes=1).run(3, types=("container",)).job(types=("inner=1",), walltime=2 * H)
    text = "Its resources are never free for long enough: its container 1 has no room for it until its end."
    expect(short, 2, ReasonCode.NO_SLOT, text)


def test_wishes_of_the_user_are_reasons_too() -> None:
    date = format_date(NOW + 600)
    expect(Cluster().job(types=(f"postpone={date}",)), 1, ReasonCode.POSTPONED, f"It was postponed to {date}.")
    late = Cluster(nodes=1).run(3).job(types=(f"deadline={format_date(NOW + H + 61)}",))
    end = format_date(NOW + 2 * H + 1)
    expect(late, 2, ReasonCode.DEADLINE, f"It would end on {end}, 0:59:0 after its deadline.")


def test_tokens_limits_and_arrays_give_their_numbers() -> None:
    few = Cluster().job(types=("token:matlab=3",))
    few.tokens = {"matlab": 2}
    expect(few, 1, ReasonCode.TOKEN, "It needs 3 tokens matlab, and there are 2.")
    few.tokens = {"matlab": None}
    silent = "The number of tokens matlab is unknown: the site's command gave no number."
    expect(few, 1, ReasonCode.TOKEN, silent)
    few.tokens = {}
    expect(few, 1, ReasonCode.TOKEN, "It needs tokens matlab, which do not exist at this site.")
    many = Cluster(max_jobs=1).job().job()
    expect(many, 2, ReasonCode.LIMIT, "A round plans a limited number of jobs: 1 were before it.")
    mine = Cluster(max_jobs_per_user=1, job_priority=JobPriority.FAIRSHARE, is_priority_explicit=True).job().job()
    text = "A round plans 1 jobs of each user, and there are as many of his before it."
    expect(mine, 2, ReasonCode.LIMIT, text)
    strict = Cluster(nodes=1).run(3).job().job()
    strict.queues = (Queue("default", 2, "kamelot_fifo", QueueState.ACTIVE),)
    expect(strict, 3, ReasonCode.LIMIT, "Its queue starts jobs strictly in their order, and one before it waits.")
    shallow = Cluster(nodes=1, backfill_depths={"_": 1}).run(3).job().job()
    text = "It cannot start now; its queue plans later starts only for the first job that waits."
    expect(shallow, 3, ReasonCode.LIMIT, text)
    clock = iter([0.0, 20.0])
    late = schedule(Cluster().job().job("/core=2").snapshot(), lambda: next(clock, 20.0)).reasons[2]
    assert (late.code, told(late)) == (
        ReasonCode.LIMIT,
        "The time for planning was over after 1 jobs, before its turn.",
    )
    array = Cluster().job(array_id=1, array_limit=1).job(array_id=1, array_limit=1)
    expect(array, 2, ReasonCode.ARRAY, "Of the array 1, 1 may run at a time, and as many do.")


def test_a_place_that_cannot_be_taken_yet_says_for_whom() -> None:
    killed = Cluster(nodes=1).run(3, types=("besteffort",), queue="besteffort").job()
    expect(killed, 2, ReasonCode.LAUNCH, "Its resources are nearly free: job 1 must end first.")
    asleep = Cluster(nodes=1, may_wake=True).state(ResourceState.ABSENT, 0, upto=NOW + 10**6).job()
    expect(asleep, 1, ReasonCode.LAUNCH, "Its resources are free, but node n0 must become Alive first.")


def test_a_stopped_queue_is_named() -> None:
    cluster = Cluster().job(queue="night")
    cluster.queues = (Queue("night", 1, "", QueueState.NOT_ACTIVE),)
    text = "The queue night is stopped: an administrator has to enable it."
    assert expect(cluster, 1, ReasonCode.QUEUE, text) == {"queue": "night"}


def test_a_closed_project_is_named() -> None:
    cluster = Cluster().job(project="physics").job(project="biology")
    plan = schedule(replace(cluster.snapshot(), closed_projects=("physics",)))
    reason = plan.reasons[1]
    assert reason.data == {"project": "physics"}
    assert (
        reason_sentence(WaitReason(NOW, reason.code, reason.text, reason.data))
        == "The project physics is closed: its jobs do not start."
    )
    assert [start.placement.job_id for start in plan.started] == [2]


def test_a_budget_that_is_used_up_delays_a_job_to_the_next_period() -> None:
    cluster = Cluster(nodes=1).job(project="physics").job(project="physics").job()
    stops = {1: BudgetStop("physics", 12.34, 10, 0), 2: BudgetStop("physics", 12.34, 10, NOW + H)}
    snapshot = cluster.snapshot()
    waiting = tuple(replace(job, types=(f"postpone=@{NOW + H}",)) if job.id == 2 else job for job in snapshot.waiting)
    plan = schedule(replace(snapshot, budget_stops=stops, waiting=waiting))
    assert [start.placement.job_id for start in plan.started] == [3]
    assert {place.job_id: place.start for place in plan.placements}[2] == NOW + H
    text = "The budget of the project physics does not allow it: 12.3 of 10 resource hours count"
    assert told(plan.reasons[1]) == f"{text}, and the next period has no budget yet."
    assert told(plan.reasons[2]) == f"{text}. The next period begins on {format_date(NOW + H)}."
    assert plan.reasons[2].data == {"project": "physics", "used": 12.3, "hours": 10, "date": NOW + H}


def test_a_reason_of_another_version_is_told_by_its_text() -> None:
    assert reason_sentence(WaitReason(NOW, ReasonCode.BUSY, "waiting for something", {})) == "Waiting for something."


# ----------------------------------------------------------------------------------------------------- the enumerations

#: A value for each parameter of the functions of ``reasons``.
SAMPLES: dict[str, Sequence[Any]] = {
    **dict.fromkeys(("date", "end", "freed", "limit", "latest", "now", "over", "since", "next_try"), (NOW, 0)),
    **dict.fromkeys(("job", "array", "before", "most", "matching", "size", "have", "want", "number", "left"), (0, 3)),
    **dict.fromkeys(("container", "name", "scheduler", "kind", "trouble", "error", "fault", "user"), ("some",)),
    **dict.fromkeys(("text", "detail", "said"), ("some", "")),
    **dict.fromkeys(("jobs", "reservations", "numbers"), ((1,), range(1, 13))),
    **dict.fromkeys(("suspected", "absent", "hosts"), (("n1",), [f"n{number}" for number in range(12)])),
    "levels": [(Level("core", 2), Level("gpu", ALL))],
    **dict.fromkeys(("project",), ("physics",)),
    **dict.fromkeys(("spent", "hours"), (0.0, 12.34)),
    "nearest": [None, Level("core", 1)],
    "counts": [(1, 0), (1, 2)],
    "used": [(3, 4, 7200)],
    "rule": [QuotaRule("*", "*", "*", "/", resources=2), QuotaRule("default", "*", "*", "ann", jobs=3, seconds=3600)],
    "is_treated": [False, True],
    "which": list(RoundLimit),
    "launch_fault": list(LaunchFault),
    "depth": (1, 3),
    "memory": [Memory(8192), Memory(500, is_per_core=True)],
    "largest": (0, 65536),
    "node": ["n1"],
    "free": [(1, 0), (8, 4096)],
    "overdue": ((), (1,), range(1, 13)),
}


def all_reasons() -> Iterator[Reason]:
    """Return what each function of ``reasons`` makes of each combination of samples."""
    for make in vars(reasons).values():
        if inspect.isfunction(make) and inspect.signature(make).return_annotation is Reason:
            names = list(inspect.signature(make).parameters)
            for values in product(*(SAMPLES[name] for name in names)):
                yield make(**dict(zip(names, values, strict=True)))


def test_every_code_can_be_given_by_the_planner() -> None:
    assert {reason.code for reason in all_reasons()} == set(ReasonCode)


def test_every_reason_has_its_words_in_every_form() -> None:
    for reason in all_reasons():
        text = told(reason)
        assert re.fullmatch(r"[A-Z0-9][^{}]*\.", text.replace("{some}", "")), text
        assert re.fullmatch(r"\([a-z][^{}]*\)", reason_label(stored(reason))), reason
    assert WAITING_FOR.keys() == {*ReasonCode, *WaitStage}


@pytest.mark.parametrize("code", list(ReasonCode))
def test_every_code_has_its_words_whatever_is_known(code: ReasonCode) -> None:
    assert reason_sentence(WaitReason(NOW, code, "short text", {})).endswith(".")
    assert re.fullmatch(r"\([a-z][a-z ]*\)", reason_label(WaitReason(NOW, code, "short text", {})))


def test_a_code_of_another_version_is_told_by_its_text() -> None:
    reason = WaitReason(NOW, reason_code("WEATHER"), "it rains", {})
    assert (reason_sentence(reason), reason_label(reason)) == ("It rains.", "(weather)")
    assert divide_waiting_time([StateChange(1, JobState.WAITING, 0, 5)], Waits([(0, "WEATHER")]), 9) == {"WEATHER": 5}


def test_a_limit_of_another_version_is_told_by_its_text() -> None:
    reason = WaitReason(NOW, ReasonCode.LIMIT, "not planned in this round", {"count": 3, "limit": "moon"})
    assert reason_sentence(reason) == "Not planned in this round."


@pytest.mark.parametrize(("next_try", "when"), [(1, "at the next pass"), (4_000_000_000, "on 2096-10-02 ")])
def test_the_next_try_of_held_launches_is_never_in_the_past(next_try: int, when: str) -> None:
    reason = reasons.launch_held(LaunchFault.ACCOUNT, "bob", "no node knows bob.", next_try)
    text = reason_sentence(WaitReason(NOW, reason.code, reason.text, reason.data))
    assert text.startswith(f"Launches are held because no node knows bob. OAR tries again by itself, next {when}")


def test_a_fault_of_the_configuration_is_told_in_its_own_words() -> None:
    fault = "TAKTUK_CMD: /no/taktuk: no such program on this machine. Install it, or remove TAKTUK_CMD from oar.conf."
    reason = reasons.launch_held(LaunchFault.CONFIGURATION, "", fault, NOW)
    assert told(reason) == f"No job is started until an administrator has repaired this: {fault}"


# -------------------------------------------------------------------------------------------------- without exception


def hindered(seed: int) -> Snapshot:
    """Return a random situation with all that may keep jobs from starting."""
    rng = random.Random(seed)
    cluster = random_cluster(seed, has_quotas=rng.random() < 0.4, max_jobs=rng.choice([0, 0, 3]))
    if rng.random() < 0.4:
        cluster.quotas = limited(resources=rng.randint(1, 6), jobs=rng.choice([-1, 1, 2]))
    for _ in range(rng.randint(0, 3)):
        queue = rng.choice(["default", "night", "gone", "fifo"])
        types = rng.choice([(), ("token:a=1",), ("timesharing=all",), ("inner=77",), ("besteffort",), ("expire=soon",)])
        cluster.job("/core=1", queue=queue, types=types, array_id=5, array_limit=rng.randint(0, 1))
    cluster.tokens = {"a": rng.choice([None, 0, 1])}
    cluster.queues = (
        *cluster.queues,
        Queue("night", 1, "", QueueState.NOT_ACTIVE),
        Queue("fifo", 1, "kamelot_fifo", QueueState.ACTIVE),
    )
    states = [JobState.WAITING] * 5 + [JobState.TO_ACK_RESERVATION]
    cluster.waiting = [
        replace(job, is_killed=rng.random() < 0.1, state=rng.choice(states) if job.granted else job.state)
        for job in cluster.waiting
    ]
    return cluster.snapshot()


def unexplained(snapshot: Snapshot, plan: Plan) -> set[int]:
    """Return the jobs that neither start nor are answered, and have no reason."""
    started = {start.placement.job_id for start in plan.started}
    answered = {answer.job_id for answer in (*plan.refused, *plan.expired)}
    return {job.id for job in snapshot.waiting} - started - answered - plan.reasons.keys()


@given(st.integers(0, 10**9))
def test_no_job_is_left_without_a_reason_that_can_be_told(seed: int) -> None:
    snapshot = hindered(seed)
    plan = schedule(snapshot)
    assert unexplained(snapshot, plan) == set()
    for reason in plan.reasons.values():
        assert reason.code in WAITING_FOR
        text = told(reason)
        assert text.endswith("."), text
        assert text[0].isupper()
        assert "overlooked" not in text


@pytest.mark.parametrize("trouble", ["kamelot", "my_scheduler"])
def test_a_job_that_nobody_looked_at_has_a_reason(trouble: str) -> None:
    """Whatever plans a queue may forget a job; nobody else does."""
    from oar.kao.planner.schedule import Round

    cluster = Cluster().job()
    cluster.queues = (Queue("default", 2, trouble, QueueState.ACTIVE),)
    plan = Round(cluster.snapshot()).finish()
    assert plan.reasons[1].code == (ReasonCode.EXTERNAL if trouble == "my_scheduler" else ReasonCode.INTERNAL)
