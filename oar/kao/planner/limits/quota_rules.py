"""Quota rules: which rules apply to a job, and which usage exceeds them.

See docs/design/planner.rst, "Quotas".
"""

from collections.abc import Iterable, Sequence

from oar.kao.facts.snapshot import PlannedJob, QuotaRule

#: Only resources of this type count.
COUNTED_TYPE = "default"

#: Whose jobs a counter counts: queue, project, type, user; None = those of all.
Pattern = tuple[str | None, str | None, str | None, str | None]

#: Resources, jobs, resource seconds.
Usage = tuple[int, int, int]


def binding_rules(rules: Iterable[QuotaRule], job: PlannedJob, types: Sequence[str]) -> list[QuotaRule]:
    """Return the rules that apply to a job with these names of types.

    A matching rule that names the queue, project, type or user of the job replaces the general rules.
    """
    attributes = ((job.queue,), (job.project,), tuple(types), (job.user,))
    binding = [rule for rule in rules if all(map(_matches, rule_key(rule), attributes))]
    for depth, values in enumerate(attributes):
        special = {rule_key(rule)[:depth] for rule in binding if rule_key(rule)[depth] in values}
        binding = [rule for rule in binding if rule_key(rule)[depth] in values or rule_key(rule)[:depth] not in special]
    return binding


def rule_key(rule: QuotaRule) -> tuple[str, str, str, str]:
    """Return the key of a rule: queue, project, type and user."""
    return rule.queue, rule.project, rule.type, rule.user


def _matches(text: str, values: Sequence[str]) -> bool:
    return text in ("*", "/") or text in values


def pattern_of(rule: QuotaRule, job: PlannedJob) -> Pattern:
    """Return the pattern of the counter that a rule limits for a job."""
    queue, project, user = (
        attribute if text == "/" else None if text == "*" else text
        for text, attribute in ((rule.queue, job.queue), (rule.project, job.project), (rule.user, job.user))
    )
    return queue, project, None if rule.type == "*" else rule.type, user


def is_exceeded(rule: QuotaRule, usage: Usage) -> bool:
    """Return whether a usage exceeds a limit of a rule."""
    return 0 <= rule.resources < usage[0] or 0 <= rule.jobs < usage[1] or 0 <= rule.seconds < usage[2]
