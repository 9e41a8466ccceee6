"""Limits on waiting jobs: reject a submission with which too many jobs would wait.

The rules are the section ``waiting`` of the quota file, as the server read it last: they hold on all frontends.
See docs/scheduler.rst, "Limits on waiting jobs".
"""

import json
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from oar.lib.accounts.limit_rules import (
    Pattern,
    RulesByKey,
    WaitingRule,
    binding_rules,
    pattern_of,
    rules_by_key,
    waiting_rules,
)
from oar.lib.base.errors import BadRequest
from oar.lib.db.lock_keys import USER_LOCK_CLASS

if TYPE_CHECKING:
    from oar.lib.db.transaction import Transaction

#: User of the lock for rules that limit all users together.
_EVERYBODY = "*"


class NewJobs(NamedTuple):
    """The jobs of a submission."""

    queue: str
    project: str
    user: str
    types: tuple[str, ...]  #: names
    number: int
    seconds: int  #: resource seconds that they request together


class TooManyWaiting(BadRequest):
    """With the submission, more jobs would wait than the site allows."""


def check(tx: "Transaction", quota_file: str | None, new: NewJobs, *, but: int = 0) -> None:
    """Raise TooManyWaiting if a rule forbids new jobs; block other submissions until the end of the transaction.

    ``quota_file``: its text.  ``but``: a waiting job that the new ones replace.
    """
    rules = binding_rules(rules_of(quota_file), new, new.types)
    patterns = [(rule, pattern_of(rule, new)) for rule in rules]
    # The common lock first, always: submissions that need both do not wait for each other.
    for user in sorted({pattern[3] or _EVERYBODY for _, pattern in patterns}, key=lambda user: user != _EVERYBODY):
        tx.system.take_named_lock(USER_LOCK_CLASS, user)
    for rule, pattern in patterns:
        present = tx.accounts.waiting(pattern, but=but, has_seconds=rule.hours >= 0)
        if 0 <= rule.jobs < present.jobs + new.number:
            raise TooManyWaiting(_jobs_text(rule, pattern, present.jobs, new.number))
        if 0 <= rule.hours * 3600 < present.seconds + new.seconds:
            raise TooManyWaiting(_hours_text(rule, pattern, present.seconds, new.seconds))


@lru_cache(maxsize=1)
def rules_of(text: str | None) -> RulesByKey[WaitingRule]:
    """Return the rules of a quota file; none if it is invalid, which ``oar-conf --check`` and the server report."""
    try:
        content = json.loads(text or "{}")
        return rules_by_key(waiting_rules(content) if isinstance(content, dict) else ())
    except (ValueError, RecursionError, BadRequest):
        return {}


def _jobs_text(rule: WaitingRule, pattern: Pattern, present: int, new: int) -> str:
    who = "All users together have" if pattern[3] is None else "You have"
    request = f"this array has {new:,}" if new > 1 else "this is another one"
    where = _where(pattern)
    return f'{who} {present:,} of {rule.jobs:,} waiting jobs{where} (rule "{rule.key}"); {request}. {_WAY_OUT}'


def _hours_text(rule: WaitingRule, pattern: Pattern, present: int, new: int) -> str:
    whose = "The waiting jobs of all users" if pattern[3] is None else "Your waiting jobs"
    limit = f"{present / 3600:,.1f} of {rule.hours:,g} resource hours{_where(pattern)}"
    return f'{whose} request {limit} (rule "{rule.key}"); this request has {new / 3600:,.1f}. {_WAY_OUT}'


_WAY_OUT = "Submit fewer, or wait."


def _where(pattern: Pattern) -> str:
    """Return the queue, project and type that a rule counts."""
    names = zip(("queue", "project", "type"), pattern[:3], strict=True)
    named = [f"{label} {name}" for label, name in names if name is not None]
    return f" in {', '.join(named)}" if named else ""
