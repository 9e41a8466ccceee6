"""All that a user wants to know of his jobs at once: jobs, limits, place, consumption, efficiency, what to change."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from heapq import nsmallest
from typing import TYPE_CHECKING, NamedTuple

from oar.kao.rounds.user_limits import Measure, RuleUse, UserLimits, limits_of
from oar.lib.accounts.limit_rules import WaitingRule, scope_text
from oar.lib.accounts.views import ShownBudget
from oar.lib.base.times import format_date, local_midnight
from oar.lib.jobs import explanations
from oar.lib.jobs.accounting import consumption_by_user
from oar.lib.jobs.records import Job
from oar.lib.jobs.states import CURRENT
from oar.lib.jobs.usage import job_usages
from oar.lib.jobs.usage_groups import UsageGroup, group_usages
from oar.lib.jobs.views import JobTimes, job_times

if TYPE_CHECKING:
    from oar.lib.access.records import User
    from oar.lib.config.files import Config
    from oar.lib.db.transaction import Transaction

#: So many running and waiting jobs are listed, and so many groups; advice is given for so many waiting jobs.
MAX_JOBS, MAX_GROUPS, MAX_ADVISED = 50, 20, 10
#: Groups are made of the jobs that ended in so many seconds, of the newest ones if there are more.
GROUPED_SECONDS, MAX_GROUPED = 30 * 86400, 5000
_UNITS = {"resources": "resources", "jobs": "jobs", "hours": "resource hours"}
_WAITING_UNITS = {"jobs": "waiting jobs", "hours": "resource hours of waiting jobs"}


class RunningJob(NamedTuple):
    """A job that holds resources."""

    job: Job
    nodes: tuple[str, ...]
    times: JobTimes

    @property
    def used(self) -> int:
        """The part of the walltime that is over, in seconds."""
        return (self.times.walltime or 0) - (self.times.remaining or 0)

    @property
    def record(self) -> dict[str, object]:
        """The fields for machine formats."""
        times = {"start": self.times.start, "walltime": self.times.walltime, "remaining": self.times.remaining}
        return {**_identity(self.job), "nodes": self.nodes, **times}


class WaitingJob(NamedTuple):
    """A job that has not started."""

    job: Job
    start: int | None  #: predicted
    why: str

    @property
    def record(self) -> dict[str, object]:
        """The fields for machine formats."""
        return {**_identity(self.job), "scheduled_start": self.start, "why": self.why}


def _identity(job: Job) -> dict[str, object]:
    return {"id": job.id, "name": job.name, "queue": job.queue, "project": job.project, "state": job.state}


class LimitUse(NamedTuple):
    """One measure of a rule that limits the user."""

    rule: RuleUse
    measure: Measure

    @property
    def is_used_up(self) -> bool:
        return self.measure.used >= self.measure.limit

    @property
    def scope(self) -> str:
        """Whose jobs the rule counts; a rule for each project says which one this is."""
        queue, project, type_, user = self.rule.rule.split(",", 3)
        counted = self.rule.project if project == "/" and self.rule.project else project
        return scope_text(WaitingRule(queue, counted, type_, user, 0))

    @property
    def sentence(self) -> str:
        measure = self.measure
        units, rule = (_UNITS, "quota") if self.rule.kind == "quota" else (_WAITING_UNITS, "limit")
        amounts = f"{number(measure.used)} of {number(measure.limit)} {units[measure.name]}"
        return f"{amounts} of the {rule} {self.scope}{self._freed()}"

    def _freed(self) -> str:
        if not self.is_used_up:
            return ""
        end = self.rule.next_end
        return f", used up; job {end.job_id} frees a part by {format_date(end.date)}" if end else ", used up"

    @property
    def record(self) -> dict[str, object]:
        """The fields for machine formats."""
        end = self.rule.next_end
        return {
            "kind": self.rule.kind,
            "rule": self.rule.rule,
            **self.measure._asdict(),
            "next_end": end and end._asdict(),
            "sentence": self.sentence,
        }


class Place(NamedTuple):
    """The place of the user's jobs among the users with waiting jobs, by fair share."""

    project: str
    before: int  #: so many users come behind him
    others: int  #: other users with waiting jobs

    @property
    def sentence(self) -> str:
        users = f"{self.before} of {self.others} other user{'s' * (self.others != 1)} with waiting jobs"
        return f"before {users} (fair share in project {self.project})"


class Groups(NamedTuple):
    """The ended jobs of a user by name."""

    groups: tuple[UsageGroup, ...]
    is_cut: bool  #: there are too many jobs: only the newest ones are in the groups


class Overview(NamedTuple):
    """What ``oarstat --me`` shows."""

    user: str
    date: int
    running: tuple[RunningJob, ...]  #: those that end first
    waiting: tuple[WaitingJob, ...]  #: those that start first
    numbers: Mapping[str, int]  #: of all running and waiting jobs
    limits: tuple[LimitUse, ...]
    budgets: tuple[ShownBudget, ...]
    place: Place | None  #: None without fair share
    month: int  #: its beginning
    hours: Mapping[str, float]  #: resource hours of the month by project, as accounted so far
    groups: tuple[UsageGroup, ...]
    is_cut: bool  #: only the newest jobs are in the groups
    job_advice: tuple[tuple[int, str, str], ...]  #: waiting or held jobs with a problem, and its solution

    @property
    def changes(self) -> list[str]:
        """What the user should change, in sentences."""
        of_jobs = [f"Job {number}: {trouble} {solution}".rstrip() for number, trouble, solution in self.job_advice]
        of_groups = [
            f"{f'Jobs {group.name}' if group.name else 'Jobs without a name'}: {advice.sentence}"
            for group in self.groups
            for advice in group.advice
        ]
        return of_jobs + of_groups

    @property
    def record(self) -> dict[str, object]:
        """The fields for machine formats."""
        place = self.place
        return {
            "user": self.user,
            "date": self.date,
            "numbers": dict(self.numbers),
            "running": [job.record for job in self.running],
            "waiting": [job.record for job in self.waiting],
            "limits": [limit.record for limit in self.limits],
            "budgets": [{"project": shown.budget.project, **shown.record} for shown in self.budgets],
            "place": place and {**place._asdict(), "sentence": place.sentence},
            "month": self.month,
            "projects": [{"project": project, "hours": hours} for project, hours in self.hours.items()],
            "groups": [group.record for group in self.groups],
            "groups_cut": self.is_cut,
            "job_advice": [
                {"job_id": job, "trouble": trouble, "solution": solution} for job, trouble, solution in self.job_advice
            ],
            "changes": self.changes,
        }


def overview_of(tx: "Transaction", config: "Config", user: "User", groups: Groups | None = None) -> Overview:
    """Return the overview of a user; ``groups``: those of ``read_groups`` if they are known."""
    limits = limits_of(tx, config, user.name, user, shows_others=False)
    live = tx.jobs.live(user.name)
    frames = tx.reservations.of_frames([job.id for job in live])
    live = [job for job in live if job.id not in frames]
    waiting = [job for job in live if job.state not in CURRENT]
    running = [job for job in live if job.state in CURRENT]
    month = _month(tx.now)
    groups = groups or read_groups(tx, config, user.name)
    return Overview(
        user.name,
        tx.now,
        _running(tx, running),
        _waiting(tx, waiting),
        {"running": len(running), "waiting": len(waiting)},
        tuple(LimitUse(rule, measure) for rule in limits.rules for measure in rule.measures),
        limits.budgets,
        _place(limits, {job.project for job in waiting}),
        month,
        _hours(tx, user.name, month),
        groups.groups,
        groups.is_cut,
        tuple(_job_advice(tx, config, waiting)),
    )


def number(value: float) -> str:
    """Return a number with at most one decimal place."""
    return f"{value:,.1f}".removesuffix(".0")


def _running(tx: "Transaction", jobs: Sequence[Job]) -> tuple[RunningJob, ...]:
    walltimes = tx.listings.walltimes([job.id for job in jobs])
    first = nsmallest(MAX_JOBS, jobs, key=lambda job: (job.start_time + walltimes.get(job.id, 0), job.id))
    times, assigned = job_times(tx, first), tx.listings.assigned([job.id for job in first])
    shown = [RunningJob(job, assigned[job.id].nodes if job.id in assigned else (), times[job.id]) for job in first]
    return tuple(sorted(shown, key=lambda job: (job.times.remaining or 0, job.job.id)))


def _waiting(tx: "Transaction", jobs: Sequence[Job]) -> tuple[WaitingJob, ...]:
    starts = {number: found.start for number, found in tx.listings.predictions([job.id for job in jobs]).items()}
    first = nsmallest(MAX_JOBS, jobs, key=lambda job: (job.id not in starts, starts.get(job.id, 0), job.id))
    shown = [WaitingJob(outlook.job, outlook.start, outlook.why) for outlook in explanations.outlooks(tx, first)]
    return tuple(sorted(shown, key=lambda job: (job.start is None, job.start or 0, job.job.id)))


def _place(limits: UserLimits, projects: Collection[str]) -> Place | None:
    """Return the place in the project with which the user is first; ``projects``: those of his waiting jobs."""
    shares = [share for share in limits.fair_share if share.project in projects] or limits.fair_share
    share = min(shares, key=lambda share: (share.place, share.project), default=None)
    return share and Place(share.project, share.users - share.place, share.users - 1)


def _month(now: int) -> int:
    """Return the beginning of the month, in local time."""
    midnight, _ = local_midnight(now)
    return int(midnight.replace(day=1).timestamp())


def _hours(tx: "Transaction", user: str, month: int) -> dict[str, float]:
    consumptions = consumption_by_user(tx, month, tx.now + 1, user)
    return {
        project.project: round(project.used / 3600, 1)
        for consumption in consumptions
        for project in sorted(consumption.projects, key=lambda project: -project.used)
    }


def read_groups(tx: "Transaction", config: "Config", user: str) -> Groups:
    """Return the groups of the jobs of a user that ended lately."""
    ids = tx.listings.ended_last(tx.now - GROUPED_SECONDS, user, MAX_GROUPED + 1)
    jobs = tx.jobs.select(ids[:MAX_GROUPED])
    usages = job_usages(tx, jobs, config.job_resource_manager_property_db_field)
    walltimes = tx.listings.walltimes([job.id for job in jobs])
    groups = group_usages(usages, tx.job_runs.outcomes(jobs), walltimes)
    return Groups(tuple(groups[:MAX_GROUPS]), len(ids) > MAX_GROUPED)


def _job_advice(tx: "Transaction", config: "Config", waiting: Sequence[Job]) -> Iterator[tuple[int, str, str]]:
    for explanation in explanations.explain(tx, waiting[:MAX_ADVISED], config):
        trouble, solution = explanation.advice
        if trouble or solution:
            yield explanation.job.id, trouble or explanation.sentence, solution
