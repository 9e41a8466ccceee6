"""Idle jobs: judge their curves by the rules of the site. Pure functions.

A job is idle while its use of all its GPUs, or of all its cores, is below the limit of a rule. What nobody has measured
is not idle, and neither is a time in which the job was frozen. See docs/administrator-guide.rst, "Idle jobs".
"""

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from functools import partial
from itertools import takewhile
from typing import NamedTuple

from oar.lib.config.idle_rules import IdleRule
from oar.lib.jobs.curves import Curve, Value, ends_of, total

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
    cores: int
    gpus: Mapping[str, int]  #: number of its GPUs on each of its nodes, as its resources say
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


class Evidence(NamedTuple):
    """What was measured of a job on all its nodes together, until a date."""

    until: int  #: end of the last step that all nodes have
    step: int
    cpu: Sequence[Value]
    gpu: Sequence[Value]


def evidence(job: Watched, now: int) -> Evidence | None:
    """Return what is known of a job; None if the last measurement of a node is old or missing, or is after ``now``."""
    curve = total(job.curves)
    if curve is None or not job.gpus or {each.node for each in job.curves} != set(job.gpus):
        return None
    ends = ends_of(job.curves)
    places = (min(ends) - curve.begin) // curve.step
    until = curve.begin + places * curve.step
    if max(ends) > now + curve.step or now - until > _FRESH_STEPS * curve.step:
        return None
    return Evidence(until, curve.step, curve.cpu[:places], curve.gpu[:places] if _has_all_gpus(job) else ())


def _has_all_gpus(job: Watched) -> bool:
    """Return whether the nodes report as many GPUs as the job has there."""
    return all(curve.gpus == job.gpus[curve.node] for curve in job.curves)


def idle_time(job: Watched, known: Evidence, kind: Kind, limit: int, now: int) -> Idle | None:
    """Return the latest period in which a job used less than ``limit`` (per mille); None if it is not idle now."""
    gpus = sum(job.gpus.values())
    size, uses = (gpus, known.gpu) if kind is Kind.GPU else (job.cores, _shares(known.cpu, job.cores))
    if not size:
        return None
    low = [use for use in takewhile(lambda use: use is not None and use < limit, reversed(uses)) if use is not None]
    since = max(known.until - len(low) * known.step, job.running_since)
    counted = low[: max(0, known.until - since) // known.step]
    return Idle(since, min(known.until, now), size, round(sum(counted) / len(counted))) if counted else None


def _shares(cpu: Sequence[Value], cores: int) -> list[Value]:
    return [None if value is None or not cores else value // cores for value in cpu]


def judge(
    job: Watched,
    rules: Mapping[Kind, Iterable[IdleRule]],
    warned: Mapping[str, int],
    now: int,
) -> Step | None:
    """Return what is to be done about a job; an end comes before a warning.

    ``warned``: the dates of the last warnings, by the sentence of their rule.
    """
    known = evidence(job, now)
    if known is None:
        return None
    idle = partial(idle_time, job, known, now=now)
    steps = [
        step
        for kind, of_kind in rules.items()
        for rule in of_kind
        if (step := _judge(job, kind, rule, idle(kind, rule.per_mille), warned.get(rule.sentence(kind))))
    ]
    return max(steps, key=lambda step: step.ends, default=None)


def _judge(job: Watched, kind: Kind, rule: IdleRule, idle: Idle | None, warned: int | None) -> Step | None:
    if idle is None or idle.size < rule.least or idle.until - idle.since < rule.seconds:
        return None
    if warned is None or warned < idle.since:
        return Step(job, kind, rule, idle, ends=False)
    if rule.grace is not None and idle.until - warned >= rule.grace:
        return Step(job, kind, rule, idle, ends=True)
    return None
