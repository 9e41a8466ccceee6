"""Decide how broken nodes are rebooted: soft reboot, then hard reboot, then a notification of an administrator.

The functions are pure. See docs/administrator-guide.rst, "Broken nodes are rebooted".
"""

from collections.abc import Collection, Mapping
from enum import StrEnum
from typing import NamedTuple


class Step(StrEnum):
    """The last step for a broken node; the value is stored in the status file."""

    SOFT = "soft_reboot"
    HARD = "hard_reboot"
    GIVEN_UP = "given_up"  #: an administrator was told


class Tried(NamedTuple):
    """The last step for a node, and its date."""

    step: Step
    date: int


class RebootPolicy(NamedTuple):
    """The settings of the site; times in seconds."""

    has_soft: bool
    has_hard: bool
    soft_timeout: int
    hard_timeout: int
    most: int  #: reboots of one call


class RebootPlan(NamedTuple):
    """The next steps; each node occurs at most once."""

    soft: tuple[str, ...]
    hard: tuple[str, ...]
    given_up: tuple[str, ...]  #: an administrator is to be told
    postponed: int  #: nodes that are to be rebooted, and not by this call


def plan(broken: Collection[str], tried: Mapping[str, Tried], policy: RebootPolicy, now: int) -> RebootPlan:
    """Return the next step of each broken node whose last step has failed.

    Nodes that wait for a hard reboot come first: they have been broken for longer.

    >>> policy = RebootPolicy(True, True, soft_timeout=300, hard_timeout=300, most=20)
    >>> tried = {"n2": Tried(Step.SOFT, 100), "n3": Tried(Step.HARD, 100), "n4": Tried(Step.SOFT, 900)}
    >>> plan(["n1", "n2", "n3", "n4"], tried, policy, 1000)
    RebootPlan(soft=('n1',), hard=('n2',), given_up=('n3',), postponed=0)
    """
    steps = {node: next_step(tried.get(node), policy, now) for node in sorted(broken)}
    hard, soft, given_up = (
        tuple(node for node, step in steps.items() if step is wanted)
        for wanted in (Step.HARD, Step.SOFT, Step.GIVEN_UP)
    )
    left = max(0, policy.most - len(hard))
    done = len(hard[: policy.most]) + len(soft[:left])
    return RebootPlan(soft[:left], hard[: policy.most], given_up, len(hard) + len(soft) - done)


def known_by(tried: Mapping[str, Tried], now: int) -> dict[str, Tried]:
    """Return the steps with dates in the future replaced by ``now``: the clock was ahead when they were stored."""
    return {node: last._replace(date=min(last.date, now)) for node, last in tried.items()}


def next_step(last: Tried | None, policy: RebootPolicy, now: int) -> Step | None:
    """Return the next step for a node that is still broken; return None if there is none now."""
    if last is None:
        return Step.SOFT if policy.has_soft else Step.HARD if policy.has_hard else None
    if last.step is Step.SOFT and now - last.date > policy.soft_timeout:
        return Step.HARD if policy.has_hard else Step.GIVEN_UP
    if last.step is Step.HARD and now - last.date > policy.hard_timeout:
        return Step.GIVEN_UP
    return None
