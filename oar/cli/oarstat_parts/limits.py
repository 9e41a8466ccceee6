"""``oarstat --limits``: what limits a user, how much of it is used, and what frees it."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from oar.cli.common.render import visible
from oar.kao.planner.fair_share import UserAhead
from oar.kao.rounds import user_limits
from oar.kao.rounds.user_limits import FairShareUse, JobRank, RuleUse, UserLimits
from oar.lib.accounts.views import ShownBudget
from oar.lib.base.formats import Format, dump
from oar.lib.base.times import format_date

if TYPE_CHECKING:
    from oar.cli.common.command import Context

#: Maximum numbers of waiting jobs and of users ahead that are printed; machine formats have more.
_PRINTED_JOBS, _PRINTED_USERS = 20, 5
_HEADS = {"quota": "Quotas: jobs that hold resources", "waiting": "Limits on waiting jobs"}
_MEASURES = {"resources": "resources", "jobs": "jobs", "hours": "resource hours"}


def limits_text(context: "Context", user: str, machine: Format | None) -> str:
    """Return what limits a user, as text or in a machine format."""
    with context.database.snapshot() as tx:
        user_limits.check_exists(tx, user, context.user)
        limits = user_limits.limits_of(tx, context.runtime.config, user, context.user)
    return dump(limits.record, machine) if machine else "".join(f"{line}\n" for line in _lines(limits))


def _lines(limits: UserLimits) -> Iterator[str]:
    yield f"Limits of {visible(limits.user)}, {format_date(limits.date)}"
    if limits.projects:
        names = [f"{visible(name)}{' (default)' * (name == limits.default_project)}" for name in limits.projects]
        yield f"Projects: {', '.join(names)}"
    for kind, head in _HEADS.items():
        rules = [rule for rule in limits.rules if rule.kind == kind]
        yield f"{head}:{'' if rules else ' none'}"
        for rule in rules:
            yield from _rule_lines(rule, limits.date)
    yield from budget_lines(limits.budgets)
    yield from _share_lines(limits.fair_share)
    yield from _job_lines(limits.jobs)


def _rule_lines(rule: RuleUse, now: int) -> Iterator[str]:
    yield f"    Rule {visible(rule.rule)}: {_whose(rule)}"
    for measure in rule.measures:
        used = f"{_number(measure.used)} of {_number(measure.limit)}"
        yield f"        {_MEASURES[measure.name]:<14} {used}{', used up' * (measure.used >= measure.limit)}"
    if rule.kind == "waiting":
        yield "        freed when waiting jobs start or are deleted (oardel)"
    elif rule.next_end:
        late = ", past its walltime" if rule.next_end.date < now else ""
        yield f"        freed next by job {rule.next_end.job_id}, ends by {format_date(rule.next_end.date)}{late}"


def budget_lines(budgets: Sequence[ShownBudget]) -> Iterator[str]:
    """Yield what is left of budgets of projects."""
    if budgets:
        yield "Budgets of projects:"
    for shown in budgets:
        budget, used = shown.budget, shown.counted
        yield f"    Project {visible(budget.project)}: {budget.period}, when used up: {budget.on_exhaustion}"
        if used is None:
            yield f"        {_MEASURES['hours']:<14} {_number(budget.hours)}"
            continue
        left = budget.hours - used / 3600
        state = f", {_number(left)} left" if left > 0 else ", used up"
        yield f"        {_MEASURES['hours']:<14} {_number(used / 3600)} of {_number(budget.hours)}{state}"
        if shown.exhausted_on:
            yield f"        at the present rate used up on {format_date(shown.exhausted_on)}"


def _whose(rule: RuleUse) -> str:
    names = (("queue", rule.queue), ("project", rule.project), ("type", rule.type), ("user", rule.user))
    texts = [f"{label} {visible(name)}" for label, name in names if name is not None]
    return f"jobs of {', '.join(texts)}" if texts else "jobs of all users together"


def _number(value: float) -> str:
    return f"{value:,.1f}".removesuffix(".0")


def _share_lines(shares: Sequence[FairShareUse]) -> Iterator[str]:
    if shares:
        yield "Fair share: jobs with the smallest karma are planned first"
    for share in shares:
        place = f"place {share.place} of {share.users} users with waiting jobs"
        yield f"    Project {visible(share.project)}: karma {share.karma:.3f}, {place}"
        for term in share.terms:
            yield (
                f"        {term.name:<8} used {term.used:>6.1%}, target {term.target:>6.1%},"
                f" weight {term.weight:g}: {term.karma:+.3f}"
            )
        if share.ahead:
            yield _ahead_line(share.ahead)


def _ahead_line(ahead: Sequence[UserAhead]) -> str:
    users = [f"{visible(user.user)} (karma {user.karma:.3f}, by {user.by})" for user in ahead[:_PRINTED_USERS]]
    more = f" and {len(ahead) - _PRINTED_USERS} or more others" if len(ahead) > _PRINTED_USERS else ""
    return f"        ahead: {', '.join(users)}{more}"


def _job_lines(jobs: Sequence[JobRank]) -> Iterator[str]:
    if jobs:
        yield "Waiting jobs:"
    for job in jobs[:_PRINTED_JOBS]:
        values = [f"priority {job.priority:.3f}"] if job.priority is not None else []
        values += [f"karma {job.karma:.3f}"] if job.karma is not None else []
        yield f"    {job.job_id} in queue {visible(job.queue)}: {', '.join(values) or 'not considered yet'}"
    if len(jobs) > _PRINTED_JOBS:
        yield f"    and {len(jobs) - _PRINTED_JOBS} more; all of them: oarstat --limits -J"
