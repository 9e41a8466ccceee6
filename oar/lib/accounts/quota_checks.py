"""Quotas that a job exceeds alone: it can never start.

See docs/scheduler.rst, "Quotas".
"""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

from oar.lib.accounts.limit_rules import LimitedJob, RulesByKey, binding_rules, rule_key, rules_by_key, scope_text
from oar.lib.accounts.quota_files import NOTHING, QuotaFile, parse
from oar.lib.accounts.quota_records import QuotaRule


class Demand(NamedTuple):
    """What an alternative of a job takes."""

    resources: int
    walltime: int


class Excess(NamedTuple):
    """A limit of a rule that a job exceeds alone."""

    rule: QuotaRule
    unit: str
    demand: float
    limit: float

    @property
    def text(self) -> str:
        """A sentence without its subject."""
        key = ",".join(rule_key(self.rule))
        return (
            f'can never start: it takes {self.demand:,g} {self.unit}, and the quota "{key}" allows {self.limit:,g}'
            f" {scope_text(self.rule)}."
        )


@lru_cache(maxsize=1)
def file_of(text: str) -> QuotaFile:
    """Return the content of a quota file; no rules if it is invalid, which ``oar-conf --check`` reports."""
    try:
        return parse(text)
    except ValueError:
        return NOTHING


@lru_cache(maxsize=1)
def rule_sets(file: str, everything: int) -> tuple[RulesByKey[QuotaRule], ...]:
    """Return the rules of each period of a quota file; ``everything``: the number of resources for ALL."""
    return tuple(rules_by_key(rules) for rules in file_of(file).rule_sets(everything))


def lasting_excess(
    sets: Iterable[RulesByKey[QuotaRule]], job: LimitedJob, types: Sequence[str], demands: Sequence[Demand]
) -> Excess | None:
    """Return a limit that a job exceeds alone; None if in one period the rules allow one of its alternatives.

    ``sets``: the rules of each period.  ``types``: names of the types of the job.
    """
    first: Excess | None = None
    for rules in sets:
        binding = binding_rules(rules, job, types)
        for demand in demands:
            excess = next((over for rule in binding if (over := _excess(rule, demand))), None)
            if excess is None:
                return None
            first = first or excess
    return first


def _excess(rule: QuotaRule, demand: Demand) -> Excess | None:
    if 0 <= rule.resources < demand.resources:
        return Excess(rule, "resources", demand.resources, rule.resources)
    if rule.jobs == 0:
        return Excess(rule, "job", 1, 0)
    seconds = demand.resources * demand.walltime
    if 0 <= rule.seconds < seconds:
        return Excess(rule, "resource hours", round(seconds / 3600, 1), round(rule.seconds / 3600, 1))
    return None
