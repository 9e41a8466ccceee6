"""Policies of queues (``queues.scheduler_policy``): job order, quotas, dependencies, backfilling.

See docs/design/planner.rst, "Order".
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from oar.lib.jobs.states import DependencyCondition, JobPriority


class PolicySettings(Protocol):
    """The settings of the site that a policy depends on."""

    @property
    def dependency_condition(self) -> DependencyCondition: ...
    @property
    def job_priority(self) -> JobPriority: ...
    @property
    def is_priority_explicit(self) -> bool: ...


class QuotaUse(StrEnum):
    """When quotas apply to a queue."""

    NEVER = "NEVER"
    IF_CONFIGURED = "IF_CONFIGURED"  #: if QUOTAS is yes
    ALWAYS = "ALWAYS"


@dataclass(frozen=True, slots=True)
class QueuePolicy:
    """A queue policy that this planner implements."""

    order: JobPriority | None = None  #: None = JOB_PRIORITY
    quotas: QuotaUse = QuotaUse.NEVER
    dependency_condition: DependencyCondition | None = None  #: None = DEPENDENCY_CONDITION
    is_backfilling: bool = True

    def has_quotas(self, *, is_configured: bool) -> bool:
        """Return whether quotas apply; ``is_configured``: the key QUOTAS."""
        return self.quotas is QuotaUse.ALWAYS or (self.quotas is QuotaUse.IF_CONFIGURED and is_configured)

    def condition(self, settings: PolicySettings) -> DependencyCondition:
        """Return the condition of dependencies that specify none."""
        return self.dependency_condition or settings.dependency_condition

    def order_by(self, settings: PolicySettings) -> JobPriority:
        """Return the order of the queue. An explicit JOB_PRIORITY replaces FIFO, but never fair share."""
        if self.order is JobPriority.FAIRSHARE or (self.order and not settings.is_priority_explicit):
            return self.order
        return settings.job_priority


_OLD = "oar_sched_gantt_with_timesharing"
_FIFO = QueuePolicy(JobPriority.FIFO)
_FAIRSHARE = QueuePolicy(JobPriority.FAIRSHARE)
_DEFAULT = QueuePolicy(quotas=QuotaUse.IF_CONFIGURED)

#: The policies of this planner by their names.  Every other name is that of an external scheduler.
POLICIES: Mapping[str, QueuePolicy] = {
    _OLD: _FIFO,
    f"{_OLD}_and_placeholder": _FIFO,
    f"{_OLD}_and_fairsharing": _FAIRSHARE,
    f"{_OLD}_and_fairsharing_and_placeholder": _FAIRSHARE,
    f"{_OLD}_and_fairsharing_and_quotas": QueuePolicy(JobPriority.FAIRSHARE, QuotaUse.ALWAYS, DependencyCondition.ANY),
    "kamelot": _DEFAULT,
    "default": _DEFAULT,
    "": _DEFAULT,
    "kamelot_fifo": QueuePolicy(JobPriority.FIFO, is_backfilling=False),
    "kamelot-fifo": QueuePolicy(JobPriority.FIFO, is_backfilling=False),
}


def policy_of(name: str) -> QueuePolicy | None:
    """Return the policy with this name; return None for an external scheduler."""
    return POLICIES.get(name)
