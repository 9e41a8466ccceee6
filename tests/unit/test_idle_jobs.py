"""Idle jobs: the grammar of the rules, and the judgement of curves."""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from oar.lib.config.idle_rules import LONGEST, SHORTEST, IdleRule, parse_rules
from oar.lib.jobs.curves import PERIOD, Curve
from oar.lib.jobs.idleness import Idle, Kind, Watched, evidence, idle_time, judge

HOUR = 3600
RULES = st.builds(
    IdleRule,
    st.integers(1, 1000),
    st.integers(1, 1000),
    st.integers(SHORTEST, LONGEST),
    st.none() | st.integers(SHORTEST, LONGEST),
)


@pytest.mark.parametrize(
    ("text", "rules"),
    [
        ("", ()),
        ("8 GPU below 5 % for 2 h: mail, then end", (IdleRule(8, 50, 2 * HOUR, 2 * HOUR),)),
        ("GPUs below 2.5% for 1:30: mail", (IdleRule(1, 25, 5400, None),)),
        ("gpu below 5 % for 90m : mail , then end after 30 m", (IdleRule(1, 50, 5400, 1800),)),
        (
            "GPU below 5 % for 1d: mail; 4 GPU below 5 % for 2h: mail, then end after 1:0:0",
            (IdleRule(1, 50, 86400, None), IdleRule(4, 50, 2 * HOUR, HOUR)),
        ),
    ],
)
def test_rules_are_read(text: str, rules: tuple[IdleRule, ...]) -> None:
    assert parse_rules(text, "GPU") == rules


@pytest.mark.parametrize(
    "text",
    [
        *("GPU", "GPU below 5 for 2h: mail", "GPU below 5 % for 2h", "GPU below 5 % for 2h: end", ";"),
        *("GPU below 5 % for: mail", "GPU below 5 % for 2x: mail", "GPU below 5 % for 2h: mail, then end after"),
        *("GPU below 0 % for 2h: mail", "GPU below 101 % for 2h: mail", "0 GPU below 5 % for 2h: mail"),
        *("CPU below 5 % for 2h: mail", "GPU below 5 % for 5m: mail", "GPU below 5 % for 40d: mail"),
        *("-1 GPU below 5 % for 2h: mail", "GPU below 5 % for 2h: mail;"),
    ],
)
def test_what_is_no_rule_is_refused_and_named(text: str) -> None:
    with pytest.raises(ValueError, match=r'"'):
        parse_rules(text, "GPU")


@given(st.lists(RULES, max_size=4), st.sampled_from(["GPU", "CPU"]))
def test_rules_are_read_as_they_are_written(rules: list[IdleRule], kind: str) -> None:
    assert parse_rules("; ".join(rule.text(kind) for rule in rules), kind) == tuple(rules)


@given(st.text(max_size=80))
def test_no_text_raises_another_exception(text: str) -> None:
    with suppress(ValueError):
        parse_rules(text, "CPU")


@given(RULES, RULES, st.sampled_from(["GPU", "CPU"]))
def test_the_sentence_of_a_rule_is_of_no_other_rule(one: IdleRule, other: IdleRule, kind: str) -> None:
    """Warnings are found by it."""
    assert (one.sentence(kind) == other.sentence(kind)) == (one == other)
    assert one == other or not f"Rule: {one.sentence(kind)}".endswith(f"Rule: {other.sentence(kind)}")


def test_a_rule_is_told_as_a_sentence() -> None:
    (rule,) = parse_rules("8 GPU below 5 % for 2 h: mail, then end after 1:30", "GPU")
    assert rule.sentence("GPU") == (
        "the owners of jobs with at least 8 GPUs that use less than 5 % of their GPUs for 2 hours get a mail, and the"
        " jobs are ended after another 1 hour 30 minutes without more use"
    )
    assert IdleRule(1, 25, 86400, None).sentence("CPU") == (
        "the owners of jobs that use less than 2.5 % of their cores for 1 day get a mail"
    )


def curve_of(node: str, gpu: Sequence[int | None], gpus: int = 8, step: int = PERIOD) -> Curve:
    return Curve(1, node, 0, step, gpus, [0] * len(gpu), [0] * len(gpu), gpu)


def watched(gpu: list[int | None], running_since: int = 0, **changes: Any) -> Watched:
    return Watched(1, "alice", running_since, 4, {"a": 8}, [curve_of("a", gpu)])._replace(**changes)


def gpu_idle_time(job: Watched, limit: int, now: int) -> Idle | None:
    known = evidence(job, now)
    return idle_time(job, known, Kind.GPU, limit, now) if known else None


USES = st.lists(st.none() | st.integers(0, 1000), min_size=1, max_size=240)


@given(USES, st.integers(1, 1000), st.integers(0, 240 * PERIOD))
def test_a_job_is_idle_only_while_it_was_measured_and_ran(uses: list[int | None], limit: int, since: int) -> None:
    now = len(uses) * PERIOD
    idle = gpu_idle_time(watched(uses, since), limit, now)
    if idle is None:
        last = uses[-1]
        assert last is None or last >= limit or since > now - PERIOD
        return
    assert since <= idle.since < idle.until == now
    for place in range(-(-idle.since // PERIOD), len(uses)):
        use = uses[place]
        assert use is not None
        assert use < limit
    assert idle.per_mille < limit


@given(USES, RULES, st.none() | st.integers(1, 240 * PERIOD))
def test_no_job_is_ended_without_a_warning_in_the_same_idle_time(
    uses: list[int | None], rule: IdleRule, warned: int | None
) -> None:
    now = len(uses) * PERIOD
    assume(warned is None or warned <= now)
    dates = {} if warned is None else {rule.sentence("GPU"): warned}
    step = judge(watched(uses), {Kind.GPU: [rule]}, dates, now)
    if step is not None and step.ends:
        assert warned is not None
        assert rule.grace is not None
        assert warned >= step.idle.since
        assert now - warned >= rule.grace
        assert step.idle.until - step.idle.since >= rule.seconds
    if step is not None and not step.ends:
        assert warned is None or warned < step.idle.since


RULE = IdleRule(8, 50, HOUR, 1800)
IDLE: list[int | None] = [0] * 240


def decide(job: Watched, warned: int | None = None, now: int = 240 * PERIOD) -> bool | None:
    step = judge(job, {Kind.GPU: [RULE]}, {RULE.sentence("GPU"): warned} if warned else {}, now)
    return step.ends if step else None


def test_first_the_warning_then_the_end() -> None:
    assert decide(watched(IDLE)) is False
    assert decide(watched(IDLE), warned=240 * PERIOD - 60) is None
    assert decide(watched(IDLE), warned=240 * PERIOD - 1800) is True


def test_a_job_that_worked_after_the_warning_is_warned_again() -> None:
    uses = [*IDLE[:100], 900, *IDLE[101:]]
    assert decide(watched(uses), warned=99 * PERIOD) is False


@pytest.mark.parametrize(
    "job",
    [
        watched(IDLE, running_since=200 * PERIOD),  # it was frozen before
        watched([*IDLE[:-1], None]),
        watched([*IDLE[:-1], 50]),
        watched(IDLE, gpus={"a": 8, "b": 0}),  # one of its nodes was never measured
        watched(IDLE, gpus={"b": 8}),
        watched(IDLE, gpus={}),
        watched(IDLE, gpus={"a": 16}),  # its node reports half of its GPUs
        watched(IDLE, gpus={"a": 8, "b": 8}, curves=[curve_of("a", IDLE), curve_of("b", [], 0)]),
        watched(IDLE, gpus={"a": 8, "b": 8}, curves=[curve_of("a", IDLE), curve_of("b", [None] * 240)]),
        watched(IDLE, gpus={"a": 12, "b": 4}, curves=[curve_of("a", IDLE), curve_of("b", IDLE)]),
        watched([*IDLE, 0, 0]),  # the clock was set back
        watched(IDLE, gpus={"a": 8, "b": 8}, curves=[curve_of("a", IDLE), curve_of("b", [*IDLE, 0, 0])]),
        watched(IDLE, gpus={"a": 8, "b": 8}, curves=[curve_of("a", IDLE), curve_of("b", IDLE[:230])]),  # b is silent
        watched(IDLE, curves=[curve_of("a", IDLE)._replace(gpu=IDLE[:239])]),
        watched([]),
        watched(IDLE, curves=[Curve(1, "a", 0, PERIOD, 7, [0] * 240, [0] * 240, IDLE)]),  # fewer GPUs
        watched(IDLE, curves=[]),
        watched(IDLE[:130]),  # nothing has been measured for an hour
    ],
)
def test_what_is_not_known_is_not_idle(job: Watched) -> None:
    assert decide(job, warned=HOUR) is None


@given(st.lists(st.integers(0, 2), min_size=2, max_size=6))
def test_a_job_on_many_nodes_is_idle_until_the_last_step_that_all_have(missing: list[int]) -> None:
    """The nodes do not report at the same moment."""
    curves = [curve_of(str(number), IDLE[: 240 - steps]) for number, steps in enumerate(missing)]
    job = watched(IDLE, gpus={curve.node: 8 for curve in curves}, curves=curves)
    idle = gpu_idle_time(job, 50, 240 * PERIOD)
    assert idle == Idle(0, (240 - max(missing)) * PERIOD, 8 * len(missing), 0)


def test_nodes_with_steps_of_different_lengths_are_judged_together() -> None:
    curves = [curve_of("a", IDLE), curve_of("b", IDLE[:120], step=2 * PERIOD)]
    job = watched(IDLE, gpus={"a": 8, "b": 8}, curves=curves)
    assert gpu_idle_time(job, 50, 240 * PERIOD) == Idle(0, 240 * PERIOD, 16, 0)


def test_cores_are_judged_by_all_cores_of_the_job() -> None:
    rule = {Kind.CPU: [IdleRule(1, 500, HOUR, None)]}
    for used, is_idle in ((1900, True), (2100, False)):
        curve = Curve(1, "a", 0, PERIOD, cpu=[used] * 240, memory=[0] * 240)
        job = Watched(1, "alice", 0, 4, {"a": 0}, [curve])
        assert (judge(job, rule, {}, 240 * PERIOD) is not None) is is_idle
    assert judge(Watched(1, "alice", 0, 0, {"a": 0}, [curve]), rule, {}, 240 * PERIOD) is None
