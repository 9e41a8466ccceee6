"""Reboot broken nodes: soft reboot, then hard reboot, then a notification of an administrator.

``plan`` decides. The last step of each node is stored in the database before a command runs, so that an
interrupted program does not reboot a node twice. See docs/administrator-guide.rst, "Broken nodes are rebooted".
"""

import json
import re
from collections.abc import Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from enum import StrEnum
from typing import NamedTuple

from oar.lib.base import processes
from oar.lib.base.errors import BadRequest, ConfigError
from oar.lib.base.texts import shell_words


class Step(StrEnum):
    """The last step for a broken node; the value is stored."""

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


# -- commands and the stored steps ------------------------------------------------------------------------------------

NODE = "{NODENAME}"
LOG_NAME = "oar_phoenix.log"
#: What a node may be called to stand in a command.
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*\Z")


class RebootCommand:
    """A command of ``oar.conf`` in which ``{NODENAME}`` is replaced by the node name."""

    def __init__(self, key: str, text: str) -> None:
        """Raises ConfigError if the command cannot be parsed or does not contain ``{NODENAME}``."""
        try:
            self._words = shell_words(text)
        except BadRequest as error:
            raise ConfigError(f"{key} cannot be read: {error}.") from None
        if not any(NODE in word for word in self._words):
            raise ConfigError(f"{key} must contain {NODE}, which is replaced by the node name.")

    def words(self, node: str) -> list[str]:
        return [word.replace(NODE, node) for word in self._words]


def can_be_named(node: str) -> bool:
    """Return whether a node name is safe in a command."""
    return bool(_NAME.match(node))


def parse_tried(text: str) -> dict[str, Tried]:
    """Return the last step of each node from the text that ``format_tried`` returned; "" has none."""
    steps: dict[str, tuple[str, int]] = json.loads(text or "{}")
    return {node: Tried(Step(step), date) for node, (step, date) in steps.items()}


def format_tried(tried: Mapping[str, Tried]) -> str:
    """Return the last step of each node as text."""
    return json.dumps(tried, sort_keys=True)


def reboot(command: RebootCommand, nodes: Collection[str], timeout: float) -> dict[str, processes.CommandOutcome]:
    """Run the command for all nodes in parallel; return the outcome for each node."""
    if not nodes:
        return {}
    with ThreadPoolExecutor(len(nodes)) as pool:
        outcomes = pool.map(lambda node: processes.run(command.words(node), timeout=timeout), nodes)
        return dict(zip(nodes, outcomes, strict=True))
