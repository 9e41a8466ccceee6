"""Hypothetical changes: a machine without some nodes, other quotas, another walltime, a smaller request.

The planner itself plans a modified snapshot.  Nothing is read or written.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace

from oar.kao.facts.plan import JobForecast
from oar.kao.facts.snapshot import Alternative, RequestGroup, Snapshot
from oar.kao.planner.placement.site_extensions import NO_EXTENSIONS, SiteExtensions
from oar.kao.planner.schedule import Round
from oar.lib.accounts.quota_records import Quotas
from oar.lib.base.errors import BadRequest
from oar.lib.base.resource_set import from_positions
from oar.lib.base.times import format_duration
from oar.lib.jobs.reasons import RoundLimit
from oar.lib.jobs.records import Level
from oar.lib.nodes.states import ResourceState

#: Nobody is told to ask for less time than this.
SHORTEST = 60


@dataclass(frozen=True, slots=True)
class HelpfulChange:
    """A change of a request that would let its job start now."""

    alternative: int
    what: str  #: ``walltime``, or the property of a level
    old: int
    new: int

    @property
    def text(self) -> str:
        if self.what == "walltime":
            return f"walltime {format_duration(self.new)} instead of {format_duration(self.old)}"
        return f"{self.what}={self.new} instead of {self.what}={self.old}"


class NoTime(Exception):
    """The time limit of a search was reached."""


def without_limits(snapshot: Snapshot, seconds: int = 0) -> Snapshot:
    """Return the situation without the limits of a round; ``seconds``: the time limit for planning, 0 = none."""
    return replace(snapshot, settings=replace(snapshot.settings, max_jobs=0, max_jobs_per_user=0, timeout=seconds))


def with_all_planned(snapshot: Snapshot) -> Snapshot:
    """Return the situation without limits of a round, in which all waiting jobs get a planned start."""
    snapshot = without_limits(snapshot)
    return replace(snapshot, settings=replace(snapshot.settings, backfill_depths={}))


def without_nodes(snapshot: Snapshot, nodes: Collection[str]) -> Snapshot:
    """Return the situation as if these nodes were Dead; their jobs continue.  Raises BadRequest."""
    resources = snapshot.resources
    unknown = sorted(set(nodes) - set(resources.addresses))
    if unknown:
        raise BadRequest(f"there is no node {unknown[0]} in this round")
    gone = from_positions(bit for bit, address in enumerate(resources.addresses) if address in nodes)
    states = tuple(
        ResourceState.DEAD if address in nodes else state
        for address, state in zip(resources.addresses, resources.states, strict=True)
    )
    pools = tuple(replace(pool, members=pool.members & ~gone) for pool in snapshot.pools)
    return replace(snapshot, resources=replace(resources, states=states), pools=pools)


def with_walltime(snapshot: Snapshot, job_id: int, walltime: int) -> Snapshot:
    """Return the situation as if a job, waiting or not, had another walltime.  Raises BadRequest for an unknown job."""
    if all(job.id != job_id for job in (*snapshot.waiting, *snapshot.running)):
        raise BadRequest(f"there is no job {job_id} in this round")
    running = tuple(replace(job, walltime=walltime) if job.id == job_id else job for job in snapshot.running)
    changed = replace(snapshot, running=running)
    return _with_alternatives(changed, job_id, lambda each: replace(each, walltime=walltime))


def with_quotas(snapshot: Snapshot, quotas: Quotas | None) -> Snapshot:
    """Return the situation with other quotas, in all queues subject to QUOTAS; None = no quotas."""
    return replace(snapshot, quotas=quotas, settings=replace(snapshot.settings, has_quotas=True))


def smallest_change(
    snapshot: Snapshot,
    job_id: int,
    site: SiteExtensions = NO_EXTENSIONS,
    elapsed: Callable[[], float] = lambda: 0.0,
    seconds: int = 0,
) -> HelpfulChange | None:
    """Return the smallest change of one number in a request with which its job would start now.

    Return None if the job starts now anyway, or if no such change is sufficient.  The placements of all earlier jobs
    are kept.  The only limit of a round that applies is time: ``seconds`` according to ``elapsed``, 0 = none.  Raises
    NoTime.
    """
    snapshot = without_limits(snapshot, seconds)
    job = next((each for each in snapshot.waiting if each.id == job_id), None)
    if job is None:
        return None
    planning = Round(snapshot, elapsed, site=site)
    if _starts_now(planning.forecast([job_id])[job_id], snapshot.now):
        return None
    memory, decided = planning.memory(), planning.decided
    ahead = replace(snapshot, waiting=tuple(each for each in snapshot.waiting if each.id in decided or each.granted))

    def is_enough(change: HelpfulChange) -> bool:
        tried = _with_alternatives(ahead, job_id, lambda each: _changed(each, change))
        return _starts_now(Round(tried, elapsed, memory, site).forecast([job_id])[job_id], snapshot.now)

    changes = [
        change
        for alternative in job.alternatives
        for item, old, least in _numbers(alternative)
        if (change := _largest(HelpfulChange(alternative.id, item, old, least), is_enough))
    ]
    return max(changes, key=lambda change: (change.new / change.old, change.what), default=None)


def _numbers(alternative: Alternative) -> list[tuple[str, int, int]]:
    levels = [level for group in alternative.groups for level in group.levels]
    names = [level.property for level in levels]
    return [("walltime", alternative.walltime, SHORTEST)] + [
        (level.property, level.quantity, 1)
        for level in levels
        if level.quantity > 1 and names.count(level.property) == 1
    ]


def _largest(change: HelpfulChange, is_enough: Callable[[HelpfulChange], bool]) -> HelpfulChange | None:
    """Return the change to the largest smaller number with which the job starts now; return None without one.

    The search relies on this: a smaller request is never harder to place.
    """
    low, high = change.new, change.old
    if low >= high or not is_enough(change):
        return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if is_enough(replace(change, new=middle)) else (low, middle)
    return replace(change, new=low)


def _changed(alternative: Alternative, change: HelpfulChange) -> Alternative:
    if alternative.id != change.alternative:
        return alternative
    if change.what == "walltime":
        return replace(alternative, walltime=change.new)
    groups = tuple(
        RequestGroup(
            group.pool,
            tuple(Level(each.property, change.new) if each.property == change.what else each for each in group.levels),
        )
        for group in alternative.groups
    )
    return replace(alternative, groups=groups)


def _with_alternatives(snapshot: Snapshot, job_id: int, change: Callable[[Alternative], Alternative]) -> Snapshot:
    waiting = tuple(
        replace(job, alternatives=tuple(change(each) for each in job.alternatives)) if job.id == job_id else job
        for job in snapshot.waiting
    )
    return replace(snapshot, waiting=waiting)


def _starts_now(forecast: JobForecast, now: int) -> bool:
    is_behind_depth = forecast.reason is not None and forecast.reason.data.get("limit") == RoundLimit.DEPTH
    if forecast.not_before is not None and not is_behind_depth:
        raise NoTime
    return forecast.placement is not None and forecast.placement.start <= now
