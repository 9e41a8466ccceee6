"""Rules that limit jobs by queue, project, type and user: which rules apply to a job, and whose jobs a rule counts.

Quotas and limits on waiting jobs have the same keys and the same precedence.  See docs/scheduler.rst, "Quotas".
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, product
from operator import itemgetter
from typing import NamedTuple, Protocol, TypeVar

from oar.lib.base.errors import BadRequest


class KeyedRule(Protocol):
    """A rule with the four parts of its key: ``*``, ``/`` or a name."""

    @property
    def queue(self) -> str: ...
    @property
    def project(self) -> str: ...
    @property
    def type(self) -> str: ...
    @property
    def user(self) -> str: ...


class LimitedJob(Protocol):
    """A job as far as the key of a rule selects it."""

    @property
    def queue(self) -> str: ...
    @property
    def project(self) -> str: ...
    @property
    def user(self) -> str: ...


Rule = TypeVar("Rule", bound=KeyedRule)

#: Whose jobs a rule counts: queue, project, type, user; None = those of all.
Pattern = tuple[str | None, str | None, str | None, str | None]

#: Rules by queue, project, type and user, each with its position.
RulesByKey = Mapping[tuple[str, ...], Sequence[tuple[int, Rule]]]


def rules_by_key(rules: Iterable[Rule]) -> RulesByKey[Rule]:
    """Return an index of rules, so that those of a job are looked up: a site may have a rule for each user."""
    index: dict[tuple[str, ...], list[tuple[int, Rule]]] = {}
    for position, rule in enumerate(rules):
        index.setdefault(rule_key(rule), []).append((position, rule))
    return index


def binding_rules(rules: RulesByKey[Rule], job: LimitedJob, types: Sequence[str]) -> list[Rule]:
    """Return the rules that apply to a job with these names of types, in their order.

    A matching rule that names the queue, project, type or user of the job replaces the general rules.
    """
    attributes = ((job.queue,), (job.project,), tuple(types), (job.user,))
    keys = set(product(*(("*", "/", *values) for values in attributes)))
    binding = [rule for _, rule in sorted(chain.from_iterable(rules.get(key, ()) for key in keys), key=itemgetter(0))]
    for depth, values in enumerate(attributes):
        special = {rule_key(rule)[:depth] for rule in binding if rule_key(rule)[depth] in values}
        binding = [rule for rule in binding if rule_key(rule)[depth] in values or rule_key(rule)[:depth] not in special]
    return binding


def rule_key(rule: KeyedRule) -> tuple[str, str, str, str]:
    return rule.queue, rule.project, rule.type, rule.user


def pattern_of(rule: KeyedRule, job: LimitedJob) -> Pattern:
    """Return whose jobs a rule counts for a job."""
    queue, project, user = (
        attribute if text == "/" else None if text == "*" else text
        for text, attribute in ((rule.queue, job.queue), (rule.project, job.project), (rule.user, job.user))
    )
    return queue, project, None if rule.type == "*" else rule.type, user


def scope_text(rule: KeyedRule) -> str:
    """Return which jobs a rule counts together.

    >>> scope_text(WaitingRule("default", "/", "*", "/", 5))
    'for each user in queue default in each project'
    """
    if rule.user == "*":
        who = "for all users together"
    else:
        who = "for each user" if rule.user == "/" else f"for user {rule.user}"
    names = (("queue", rule.queue), ("project", rule.project), ("type", rule.type))
    places = [f" in {'each ' + label if name == '/' else label + ' ' + name}" for label, name in names if name != "*"]
    return who + "".join(places)


# -- limits on waiting jobs -------------------------------------------------------------------------------------------

#: The section of the quota file.
SECTION = "waiting"


class WaitingRule(NamedTuple):
    """Limits of the jobs of a set that wait; -1 = no limit."""

    queue: str
    project: str
    type: str
    user: str
    jobs: int
    hours: float = -1  #: resource hours that they request

    @property
    def key(self) -> str:
        return ",".join(self[:4])


def waiting_rules(content: Mapping[str, object]) -> tuple[WaitingRule, ...]:
    """Return the rules in the section ``waiting`` of a quota file.  Raises BadRequest, which names the rule."""
    section = content.get(SECTION, {})
    if not isinstance(section, dict):
        raise BadRequest(f'"{SECTION}" has no rules: write {{"QUEUE,PROJECT,TYPE,USER": [JOBS, RESOURCE HOURS]}}')
    return tuple(_waiting_rule(key, limits) for key, limits in section.items())


def _waiting_rule(key: str, limits: object) -> WaitingRule:
    parts = [part.strip() for part in key.split(",")]
    if len(parts) != 4 or not all(parts) or parts[2] == "/":
        raise BadRequest(f'"{SECTION}": "{key}" is not <queue>,<project>,<type>,<user>, in which the type is not "/"')
    values = limits if isinstance(limits, list) else [limits]
    numbers = [value for value in values if isinstance(value, int | float) and not isinstance(value, bool)]
    if not 1 <= len(values) <= 2 or len(numbers) < len(values):
        raise BadRequest(f'"{SECTION}": "{key}": write one or two numbers: jobs, resource hours')
    return WaitingRule(parts[0], parts[1], parts[2], parts[3], int(numbers[0]), *numbers[1:])
