"""Idle jobs: judge their curves by the rules of the site. Pure functions.

A job is idle while its use of all its GPUs, or of all its cores, is below the limit of a rule. What nobody has measured
is not idle, and neither is a time in which the job was frozen. See docs/administrator-guide.rst, "Idle jobs".
"""

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from itertools import takewhile
from typing import NamedTuple

from oar.lib.config.idle_rules import IdleRule
from oar.lib.jobs.curves import PERIOD, Curve, Value, total

#: A curve that ends so many steps before now tells nothing about the job as it is.
_FRESH_STEPS = 3


class Kind(StrEnum):
    """What a job leaves idle."""

    GPU = "GPU"
    CPU = "CPU"


class Watched(NamedTuple):
    """A running job and what it has."""

    job_id: int
    user: str
    running_since: int  #: date of its start or of its last resumption
    nodes: int  #: number of its nodes
    cores: int
    curves: Sequence[Curve]


class Idle(NamedTuple):
    """A time in which a job was idle, until now."""

    since: int
    until: int  #: end of the last step that was measured
    size: int  #: GPUs or cores
    per_mille: int  #: mean use


class Step(NamedTuple):
    """What is to be done about a job, and why."""

    job: Watched
    kind: Kind
    rule: IdleRule
    idle: Idle
    ends: bool  #: False: its owner is warned


def idle_time(job: Watched, kind: Kind, limit: int, now: int) -> Idle | None:
    """Return the time, until now, in which a job used less than ``limit`` (per mille); None: it is not idle."""
    curve = total(job.curves)
    if curve is None or len(job.curves) < job.nodes:
        return None
    size, uses = (curve.gpus, curve.gpu) if kind is Kind.GPU else (job.cores, _shares(curve.cpu, job.cores))
    until = curve.begin + len(uses) * curve.step
    if not size or now - until > _FRESH_STEPS * max(curve.step, PERIOD):
        return None
    low = [use for use in takewhile(lambda use: use is not None and use < limit, reversed(uses)) if use is not None]
    since = max(until - len(low) * curve.step, job.running_since)
    known = low[: max(0, until - since) // curve.step]
    return Idle(since, until, size, round(sum(known) / len(known))) if known else None


def _shares(cpu: Sequence[Value], cores: int) -> list[Value]:
    return [None if value is None or not cores else value // cores for value in cpu]


def judge(
    job: Watched,
    rules: Mapping[Kind, Iterable[IdleRule]],
    warned: Mapping[str, int],
    now: int,
) -> Step | None:
    """Return what is to be done about a job; an end comes before a warning.

    ``warned``: the dates of the last warnings, by the text of their rule.
    """
    steps = [
        step
        for kind, of_kind in rules.items()
        for rule in of_kind
        if (step := _judge(job, kind, rule, warned.get(rule.text(kind)), now))
    ]
    return max(steps, key=lambda step: step.ends, default=None)


def _judge(job: Watched, kind: Kind, rule: IdleRule, warned: int | None, now: int) -> Step | None:
    idle = idle_time(job, kind, rule.per_mille, now)
    if idle is None or idle.size < rule.least or idle.until - idle.since < rule.seconds:
        return None
    if warned is None or warned < idle.since:
        return Step(job, kind, rule, idle, ends=False)
    if rule.grace is not None and min(now, idle.until) - warned >= rule.grace:
        return Step(job, kind, rule, idle, ends=True)
    return None
