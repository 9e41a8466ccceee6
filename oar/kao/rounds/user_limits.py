"""What limits a user now: rules of quotas and of waiting jobs, fair share, the priority of his waiting jobs."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import product
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from oar.kao.facts.job_types import parse_types_or_none
from oar.kao.facts.snapshot import PlannedJob, Weights
from oar.kao.planner.fair_share import Term, UserAhead, share_of, users_ahead
from oar.kao.planner.job_order import Factors, priority
from oar.kao.rounds.reading.consumption_reader import summed, with_targets
from oar.kao.rounds.reading.planner_settings import settings_of
from oar.kao.rounds.reading.policy_files import parse_weights
from oar.lib.access.accounts import has_account
from oar.lib.accounts import budgets, projects, quota_files, waiting_limits
from oar.lib.accounts.limit_rules import (
    KeyedRule,
    Pattern,
    WaitingRule,
    binding_rules,
    pattern_of,
    rule_key,
    rules_by_key,
)
from oar.lib.accounts.project_changes import may_see_members
from oar.lib.accounts.quota_records import QuotaRule
from oar.lib.accounts.shares import read_shares
from oar.lib.accounts.sql_accounts import HoldingJob, OrderedJob, WaitingSum
from oar.lib.accounts.views import ShownBudget, show_budgets
from oar.lib.base.errors import BadRequest
from oar.lib.jobs.queue_policies import policy_of
from oar.lib.jobs.states import JobPriority, JobState, JobTypeName, ProjectMode
from oar.lib.nodes.states import ResourceState
from oar.lib.submission.resource_request import JobTypes

if TYPE_CHECKING:
    from oar.lib.access.records import User
    from oar.lib.config.files import Config
    from oar.lib.db.transaction import Transaction

#: So many waiting jobs of a user are listed, and so many projects of his jobs are considered.
MAX_JOBS, MAX_PROJECTS = 1000, 50
_FAIR = frozenset({JobPriority.FAIRSHARE, JobPriority.MULTIFACTOR})

Rule = TypeVar("Rule", bound=KeyedRule)


class Measure(NamedTuple):
    """A limit of a rule, and the used amount."""

    name: str  #: resources, jobs, hours
    used: float
    limit: float


class NextEnd(NamedTuple):
    """The counted job whose walltime ends first."""

    job_id: int
    date: int


class RuleUse(NamedTuple):
    """A rule that limits the user."""

    kind: str  #: quota: of jobs that hold resources; waiting: of jobs that wait
    rule: str
    queue: str | None  #: the rule counts the jobs of this queue, project, type and user; None = of all
    project: str | None
    type: str | None
    user: str | None
    measures: tuple[Measure, ...]
    next_end: NextEnd | None = None  #: what frees a part of it; None: jobs that wait start or are deleted

    @property
    def record(self) -> dict[str, object]:
        measures = [measure._asdict() for measure in self.measures]
        return {**self._asdict(), "measures": measures, "next_end": self.next_end and self.next_end._asdict()}


class FairShareUse(NamedTuple):
    """The fair share of the user in a project; jobs of the smallest karma are planned first."""

    project: str
    karma: float
    place: int  #: among users with waiting jobs
    users: int
    terms: tuple[Term, ...]
    ahead: tuple[UserAhead, ...] | None  #: None if the usage of others is private

    @property
    def record(self) -> dict[str, object]:
        terms = [{**term._asdict(), "karma": term.karma} for term in self.terms]
        ahead = None if self.ahead is None else [user._asdict() for user in self.ahead]
        return {**self._asdict(), "terms": terms, "ahead": ahead}


class JobRank(NamedTuple):
    """What orders a waiting job in its queue."""

    job_id: int
    queue: str
    project: str
    order: str
    karma: float | None  #: in the last scheduling pass; the smallest is first
    priority: float | None  #: with the order MULTIFACTOR; the largest is first


class UserLimits(NamedTuple):
    """All that limits a user."""

    user: str
    date: int
    rules: tuple[RuleUse, ...]
    fair_share: tuple[FairShareUse, ...]  #: empty without a queue that needs it
    jobs: tuple[JobRank, ...]  #: the oldest waiting jobs in queues that are not first come, first served
    projects: tuple[str, ...] = ()  #: that he may choose, if PROJECTS=members and the caller may see them
    default_project: str | None = None
    budgets: tuple[ShownBudget, ...] = ()  #: of the user's projects and those above them, in present periods

    @property
    def record(self) -> dict[str, object]:
        """The fields for machine formats."""
        return {
            "user": self.user,
            "date": self.date,
            "projects": self.projects,
            "default_project": self.default_project,
            "rules": [rule.record for rule in self.rules],
            "budgets": [{"project": shown.budget.project, **shown.record} for shown in self.budgets],
            "fair_share": [share.record for share in self.fair_share],
            "jobs": [job._asdict() for job in self.jobs],
        }


def limits_of(
    tx: "Transaction", config: "Config", user: str, caller: "User | None", *, shows_others: bool = True
) -> UserLimits:
    """Return what limits a user, by the policies that the server read last.

    Only the user and administrators see all projects that he may choose; other callers see those of his jobs.
    ``shows_others``: also the users whose waiting jobs come first.
    """
    shows_choice = caller is not None and (caller.is_admin or caller.name == user)
    entries = projects.entries_of(tx, user) if shows_choice and config.projects is ProjectMode.MEMBERS else None
    reader = _Reader(tx, config, user, entries, shows_choice=shows_choice)
    return UserLimits(
        user,
        tx.now,
        (*reader.quotas(), *reader.waiting()),
        tuple(reader.fair_share(shows_others=shows_others)),
        tuple(reader.ranks()),
        () if entries is None else tuple(tx.projects.usable(entries)),
        None if entries is None else tx.projects.default_of(user) or None,
        tuple(reader.budgets(caller, shows_others=shows_others)),
    )


class _Reader:
    def __init__(
        self, tx: "Transaction", config: "Config", user: str, entries: Sequence[str] | None, *, shows_choice: bool
    ) -> None:
        """``entries``: those of the user in projects, if he must be a member and the caller may see it."""
        self._tx = tx
        self._config = config
        self._user = user
        self._settings = settings_of(config)
        queues = tx.queues.all()
        self._queue_names = [queue.name for queue in queues]
        self._queues = {queue.name: policy for queue in queues if (policy := policy_of(queue.policy))}
        self._quota_file = tx.accounts.server_file(config.quotas_conf_file)  #: it has both kinds of rules
        self._orders = {name: policy.order_by(self._settings) for name, policy in self._queues.items()}
        self._projects = _projects_of(tx, config, user, entries, shows_choice=shows_choice)
        self._weights = self._read_weights() if JobPriority.MULTIFACTOR in self._orders.values() else Weights()

    def quotas(self) -> Iterator[RuleUse]:
        limited = [
            name for name, policy in self._queues.items() if policy.has_quotas(is_configured=self._config.quotas)
        ]
        rules = self._quota_rules() if limited else ()
        bound = _bound(rules, limited, self._projects, self._user)
        counted: dict[Pattern, list[HoldingJob]] = {pattern: [] for _, pattern in bound}
        for job in self._tx.accounts.holding() if bound else ():
            for pattern in counted.keys() & _quota_patterns(job):
                counted[pattern].append(job)
        for rule, pattern in bound:
            yield _quota_use(rule, pattern, counted[pattern], self._tx.now)

    def _quota_rules(self) -> Sequence[QuotaRule]:
        """Return the rules of quotas that are in force now; none if the file cannot be read."""
        try:
            file = quota_files.parse(self._quota_file or "{}")
        except ValueError:
            return ()
        everything = self._tx.accounts.counted_resources(quota_files.states_of_all(self._config))
        quotas = file.quotas(everything, self._tx.now, 1, 0)
        return quotas.rules[quotas.periods[0].rules]

    def waiting(self) -> Iterator[RuleUse]:
        index = waiting_limits.rules_of(self._quota_file)
        rules = [rule for keyed in index.values() for _, rule in keyed]
        bound = _bound(rules, self._queue_names, self._projects, self._user)
        sums = self._waiting_sums(bound)
        for rule, pattern in bound:
            present = sums[pattern]
            measures = (
                Measure("jobs", present.jobs, rule.jobs),
                Measure("hours", present.seconds / 3600, rule.hours),
            )
            yield _rule_use("waiting", rule, pattern, measures)

    def _waiting_sums(self, bound: Sequence[tuple[WaitingRule, Pattern]]) -> dict[Pattern, WaitingSum]:
        """Return the sum of the waiting jobs of each pattern; one statement reads all jobs."""
        sums = {pattern: WaitingSum(0, 0) for _, pattern in bound}
        if not sums:
            return {}
        types = sorted({name for _, _, name, _ in sums if name is not None})
        of_all = any(user is None for *_, user in sums)
        has_seconds = any(rule.hours >= 0 for rule, _ in bound)
        groups = self._tx.accounts.waiting_groups(
            self._user, self._projects, types, of_all=of_all, has_seconds=has_seconds
        )
        for group in groups:
            for pattern in sums.keys() & _patterns(group.queue, group.project, group.types, group.user):
                former = sums[pattern]
                sums[pattern] = WaitingSum(former.jobs + group.jobs, former.seconds + group.seconds)
        return sums

    def budgets(self, caller: "User | None", *, shows_others: bool) -> Iterator[ShownBudget]:
        """Yield the present budgets of the projects; what is used is private as the members of a project are."""
        if self._config.projects is ProjectMode.FREE:
            return
        chains = budgets.chains_of(self._tx.projects.parents_above(self._projects))
        names = sorted({name for project in self._projects for name in chains.get(project, ())})
        for name in names:
            is_visible = shows_others or (caller is not None and may_see_members(self._tx, caller, name))
            for shown in show_budgets(self._tx, self._config, [name], shows_usage=is_visible).get(name, ()):
                if shown.budget.is_in_force(self._tx.now):
                    yield shown

    def fair_share(self, *, shows_others: bool) -> Iterator[FairShareUse]:
        if not (JobPriority.FAIRSHARE in self._orders.values() or self._weights.karma_weight):
            return
        tx = self._tx
        since = tx.now - self._config.scheduler_fairsharing_window_size
        rows, waiting = tx.rounds.consumption(self._queue_names, since, tx.now), tx.usage.waiting_by_share()
        shares = read_shares(tx, self._config, rows, [(user, project) for user, project, _ in waiting])
        keys, sums = with_targets(self._settings.fairshare, self._config, shares), summed(rows, shares)
        others: dict[str, float] = {}
        for user, project, _ in waiting:
            if user != self._user:
                karma = share_of(user, project, sums, keys).karma(keys)
                others[user] = min(karma, others.get(user, karma))
        for project in self._projects:
            share = share_of(self._user, project, sums, keys)
            karma = share.karma(keys) + 0.0
            place = 1 + sum(other < karma for other in others.values())
            ahead = tuple(users_ahead(waiting, (self._user, project), sums, keys)) if shows_others else None
            yield FairShareUse(project, karma, place, len(others) + 1, tuple(share.terms(keys)), ahead)

    def ranks(self) -> Iterator[JobRank]:
        usable = self._tx.accounts.counted_resources(set(ResourceState) - {ResourceState.DEAD})
        for job in self._tx.accounts.ordered(self._user, MAX_JOBS) if _FAIR & set(self._orders.values()) else ():
            order = self._orders.get(job.queue)
            if order in _FAIR:
                value = self._priority(job, usable) if order is JobPriority.MULTIFACTOR else None
                yield JobRank(job.id, job.queue, job.project, order, job.karma, value)

    def _priority(self, job: OrderedJob, usable: int) -> float:
        """Return the priority in the order MULTIFACTOR; ``usable``: the number of resources that are not Dead."""
        row = PlannedJob(job.id, job.queue, self._user, job.project, "", JobState.WAITING, types=tuple(job.types))
        karma = (job.karma or 0.0) if self._weights.karma_weight else 0.0
        factors = Factors(job.resources, job.walltime, usable, self._tx.now - job.submission_time, karma)
        return priority(job.queue, parse_types_or_none(row), factors, self._weights)

    def _read_weights(self) -> Weights:
        """Return the weights of the order MULTIFACTOR; the defaults if the file cannot be read."""
        try:
            return parse_weights(self._tx.accounts.server_file(self._config.priority_conf_file) or "{}")
        except ValueError:
            return Weights()


def check_exists(tx: "Transaction", user: str, caller: "User | None") -> None:
    """Raise BadRequest if nobody has a name: no account of this machine, no job, no project, and not the caller."""
    is_caller = caller is not None and caller.name == user
    if not (is_caller or has_account(user) or tx.listings.has_jobs(user) or tx.projects.of_entries([user])):
        raise BadRequest(f'the user "{user}" does not exist.')


def _projects_of(
    tx: "Transaction", config: "Config", user: str, entries: Sequence[str] | None, *, shows_choice: bool
) -> list[str]:
    """Return the projects of the user's jobs; ``shows_choice``: also those that he may choose."""
    used = tx.accounts.projects_of(user, MAX_PROJECTS)
    if config.projects is not ProjectMode.FREE and not shows_choice:
        return used or [config.project]  # rules that count no single project need one
    if entries is not None:
        return sorted({*used, *tx.projects.of_entries(entries)})
    default = tx.projects.default_of(user) if config.projects is ProjectMode.KNOWN else ""
    return sorted({*used, default or config.project})


class _Job(NamedTuple):
    """The key of a job that the user could submit."""

    queue: str
    project: str
    user: str


def _bound(rules: Sequence[Rule], queues: Iterable[str], names: Sequence[str], user: str) -> list[tuple[Rule, Pattern]]:
    """Return the rules that apply to jobs of a user in some queues and projects, each with whose jobs it counts."""
    index = rules_by_key(rules)
    types = [(), *({rule.type: (rule.type,) for rule in rules if rule.type != "*"}.values())]
    jobs = [(_Job(queue, project, user), own) for queue, project, own in product(queues, names, types)]
    return list(
        dict.fromkeys((rule, pattern_of(rule, job)) for job, own in jobs for rule in binding_rules(index, job, own))
    )


def _patterns(queue: str, project: str | None, types: Sequence[str], user: str | None) -> set[Pattern]:
    """Return all patterns that select a job."""
    return set(product((queue, None), (project, None), (*types, None), (user, None)))


def _quota_patterns(job: HoldingJob) -> set[Pattern]:
    """Return the patterns for which quotas count a job; besteffort jobs count among themselves only."""
    names = JobTypes(job.types).names
    if JobTypeName.CONTAINER in names or JobTypeName.NO_QUOTAS in names:
        return set()
    patterns = _patterns(job.queue, job.project, names, job.user)
    if JobTypeName.BESTEFFORT not in names:
        return patterns
    return {pattern for pattern in patterns if JobTypeName.BESTEFFORT in (pattern[0], pattern[2])}


def _quota_use(rule: QuotaRule, pattern: Pattern, jobs: Sequence[HoldingJob], now: int) -> RuleUse:
    seconds = sum(job.resources * max(0, job.end - now) for job in jobs)
    measures = (
        Measure("resources", sum(job.resources for job in jobs), rule.resources),
        Measure("jobs", len(jobs), rule.jobs),
        Measure("hours", seconds / 3600, rule.seconds / 3600),
    )
    first = min(jobs, key=lambda job: (job.end, job.id), default=None)
    return _rule_use("quota", rule, pattern, measures)._replace(next_end=first and NextEnd(first.id, first.end))


def _rule_use(kind: str, rule: KeyedRule, pattern: Pattern, measures: Iterable[Measure]) -> RuleUse:
    limits = tuple(measure for measure in measures if measure.limit >= 0)
    return RuleUse(kind, ",".join(rule_key(rule)), *pattern, limits)
