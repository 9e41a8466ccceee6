"""Quotas: which rules bind a job, and what jobs have at each instant (scheduling.md 12)."""

from bisect import bisect_left, bisect_right
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from itertools import product

from oar.kao.differences import Count
from oar.kao.model import FOREVER, Placement, PlannedJob, QuotaRule, Quotas, Snapshot
from oar.kao.traits import Traits
from oar.lib.request import JobTypes
from oar.lib.resource_set import ResourceSet

#: Resources of this type count.
COUNTED_TYPE = "default"

#: So many earlier results are kept for each limit.
KEPT_BOUNDS = 32

#: Whose jobs a counter counts: queue, project, type, user; None = of all.
Pattern = tuple[str | None, str | None, str | None, str | None]


@dataclass(frozen=True, slots=True)
class Refusal:
    """A rule that forbids a start."""

    rule: QuotaRule
    used: tuple[int, int, int]  #: resources, jobs and resource seconds, with the job
    next_start: int  #: the next start that may be allowed; FOREVER = none
    is_exact: bool  #: it is the first that is, whatever other resources the job may find


def binding_rules(rules: Iterable[QuotaRule], job: PlannedJob, types: Sequence[str]) -> list[QuotaRule]:
    """Return the rules that bind a job: of those that match, the ones that name what it is replace the general ones."""
    own = ((job.queue,), (job.project,), tuple(types), (job.user,))
    kept = [rule for rule in rules if all(map(_matches, _key(rule), own))]
    for depth, values in enumerate(own):
        named = {_key(rule)[:depth] for rule in kept if _key(rule)[depth] in values}
        kept = [rule for rule in kept if _key(rule)[depth] in values or _key(rule)[:depth] not in named]
    return kept


def _key(rule: QuotaRule) -> tuple[str, str, str, str]:
    return rule.queue, rule.project, rule.type, rule.user


def _matches(text: str, values: Sequence[str]) -> bool:
    return text in ("*", "/") or text in values


@dataclass(frozen=True, slots=True)
class _Size:
    """What a job would have, and when."""

    start: int
    end: int
    count: int


class _Counter:
    """What some jobs have together, as steps in time.

    Resource seconds still to be used fall all the time: of jobs with ends e and r resources they are, at t, the sum of
    ``r * e`` less t times the sum of r.
    """

    __slots__ = ("bounds", "dates", "jobs", "products", "resources")

    def __init__(self) -> None:
        self.bounds: dict[object, list[tuple[int, int, int, int]]] = {}  #: what was found by limits: see ``_Limit``
        self.dates = [-FOREVER]
        self.resources = [0]
        self.jobs = [0]
        self.products = [0]  #: sum of resources * end

    def add(self, start: int, end: int, count: int) -> None:
        """Enter a job."""
        first, last = self._cut(start), self._cut(end)
        self.resources[first:last] = [each + count for each in self.resources[first:last]]
        self.jobs[first:last] = [each + 1 for each in self.jobs[first:last]]
        self.products[first:last] = [each + count * end for each in self.products[first:last]]

    def _cut(self, date: int) -> int:
        """Make a step begin at a date; return its number."""
        at = bisect_left(self.dates, date)
        if at == len(self.dates) or self.dates[at] != date:
            self.dates.insert(at, date)
            for values in (self.resources, self.jobs, self.products):
                values.insert(at, values[at - 1])
        return at

    def excess(self, begin: int, stop: int, asked: _Size, rule: QuotaRule) -> int | None:
        """Return the first instant from ``begin`` until ``stop`` at which a job added would exceed a rule."""
        first, last = bisect_right(self.dates, begin) - 1, bisect_left(self.dates, stop)
        if rule.seconds < 0 and not self._may_exceed(first, last, asked, rule):
            return None
        for at in range(first, last):
            date = max(begin, self.dates[at])
            if _is_above(self.used(at, date, asked), rule):
                return date
        return None

    def _may_exceed(self, first: int, last: int, asked: _Size, rule: QuotaRule) -> bool:
        resources, jobs = max(self.resources[first:last]), max(self.jobs[first:last])
        return 0 <= rule.resources < resources + asked.count or 0 <= rule.jobs <= jobs

    def used(self, at: int, date: int, asked: _Size) -> tuple[int, int, int]:
        """Return the counters at a date with the job added."""
        resources = self.resources[at]
        seconds = self.products[at] - date * resources + asked.count * (asked.end - date)
        return resources + asked.count, self.jobs[at] + 1, seconds

    def at(self, date: int, asked: _Size) -> tuple[int, int, int]:
        """Return the counters at a date with the job added."""
        return self.used(bisect_right(self.dates, date) - 1, date, asked)

    def clear_from(self, date: int, asked: _Size, rule: QuotaRule) -> int:
        """Return the first instant from a date on at which the job could begin under a rule; FOREVER = never."""
        walltime = asked.end - asked.start
        for at in range(bisect_right(self.dates, date) - 1, len(self.dates)):
            date = max(date, self.dates[at])
            resources = self.resources[at]
            if not _is_above((resources + asked.count, self.jobs[at] + 1, -1), rule):
                date = max(date, self._seconds_fall(at, asked.count * walltime, rule, date))
                if at + 1 == len(self.dates) or date < self.dates[at + 1]:
                    return date
        return FOREVER

    def _seconds_fall(self, at: int, wanted: int, rule: QuotaRule, date: int) -> int:
        """Return when the resource seconds of a step leave room for so many more."""
        if rule.seconds < 0:
            return date
        above = self.products[at] + wanted - rule.seconds
        resources = self.resources[at]
        if resources:
            return -(-above // resources)
        return date if above <= 0 else FOREVER

    def next_step(self, date: int) -> int:
        """Return the next date at which anything changes."""
        at = bisect_right(self.dates, date)
        return self.dates[at] if at < len(self.dates) else FOREVER


@dataclass(frozen=True, slots=True)
class _Limit:
    """A rule that binds a job for a while."""

    rule: QuotaRule
    begin: int
    stop: int
    counter: _Counter

    def first_start(self, start: int, count: int, walltime: int) -> int:
        """Return the first date from ``start`` on at which a job may begin for all that this limit says.

        Counters only grow while a plan is made: a job that is not smaller than another cannot begin where that could
        not.  So what was found is kept: the size, from when on it was asked, and the answer.
        """
        known = self.counter.bounds.setdefault((self.rule, self.begin, self.stop), [])
        asked = start
        for least, shortest, since, found in known:
            if since <= start < found and least <= count and shortest <= walltime:
                start = found
        start = self._search(start, count, walltime)
        if start > asked:
            known[:] = [
                each
                for each in known[-KEPT_BOUNDS:]
                if each[0] < count or each[1] < walltime or each[2] < asked or each[3] > start
            ]
            known.append((count, walltime, asked, start))
        return start

    def _search(self, start: int, count: int, walltime: int) -> int:
        if start >= self.stop or start + walltime <= self.begin:
            return start
        if self.rule.seconds < 0:
            return self._room(start, count, walltime)
        counter = self.counter
        while start < self.stop and start + walltime > self.begin:
            size = _Size(start, start + walltime, count)
            date = counter.excess(max(start, self.begin), min(self.stop, size.end), size, self.rule)
            if date is None:
                break
            start = min(counter.clear_from(date + 1, size, self.rule), self.stop)
        return start

    def _room(self, start: int, count: int, walltime: int) -> int:
        """Search where no resource seconds are limited: a step that has room has it for every start."""
        dates, resources, jobs = self.counter.dates, self.counter.resources, self.counter.jobs
        most = self.rule.resources - count if self.rule.resources >= 0 else FOREVER
        most_jobs = self.rule.jobs if self.rule.jobs >= 0 else FOREVER
        at, last = bisect_right(dates, max(start, self.begin)) - 1, len(dates) - 1
        until = min(start + walltime, self.stop)
        while at <= last and dates[at] < until:
            if resources[at] > most or jobs[at] >= most_jobs:
                start = min(dates[at + 1], self.stop) if at < last else self.stop
                until = min(start + walltime, self.stop)
            at += 1
        return start


def _is_above(used: tuple[int, int, int], rule: QuotaRule) -> bool:
    return 0 <= rule.resources < used[0] or 0 <= rule.jobs < used[1] or 0 <= rule.seconds < used[2]


class Counters:
    """What all jobs have, as far as rules ask."""

    def __init__(self, snapshot: Snapshot, traits: dict[int, Traits]) -> None:
        self._quotas = snapshot.quotas or Quotas((), ())
        self._counted = snapshot.resources.where(snapshot.resources.types, COUNTED_TYPE)
        self._is_all_counted = self._counted == snapshot.resources.everything
        self._counters: dict[Pattern, _Counter] = {}
        self._wanted = self._shapes()
        self._binding: dict[tuple[object, ...], list[QuotaRule]] = {}
        self._limits: dict[tuple[object, ...], list[_Limit]] = {}
        self._names: dict[tuple[object, ...], frozenset[Hashable]] = {}
        self.log: list[Count] = []  #: what has been counted
        self._besteffort: list[tuple[PlannedJob, int, int, ResourceSet]] | None = []
        if self._wanted:
            self._enter_present(snapshot, traits)

    @property
    def latest_start(self) -> int:
        """The date after which it is not known what holds."""
        return self._quotas.latest_start

    def enter(self, job: PlannedJob, traits: Traits, start: int, end: int, resources: ResourceSet) -> None:
        """Count a job, if it is one that counts."""
        if not self._wanted or traits.container or not traits.counts_in_quotas:
            return
        if traits.is_besteffort and self._besteffort is not None:
            self._besteffort.append((job, start, end, resources))
        else:
            self._count(job, start, end, resources)

    def begin_besteffort(self) -> None:
        """From now on besteffort jobs count: all others have been planned."""
        held, self._besteffort = self._besteffort, None
        for each in held or ():
            self._count(*each)

    def refusal(self, job: PlannedJob, traits: Traits, place: Placement, least: int = -1) -> Refusal | None:
        """Return the rule that forbids a place; ``least``: how many resources the job has at other starts at least."""
        if not self._wanted or not traits.counts_in_quotas:
            return None
        count = (place.resources & self._counted).bit_count()
        size = _Size(place.start, place.end, count)
        limits = self._limits_of(job)
        for limit in limits:
            begin, end = max(size.start, limit.begin), min(limit.stop, size.end)
            date = limit.counter.excess(begin, end, size, limit.rule) if begin < end else None
            if date is not None:
                used = limit.counter.at(date, size)
                if self._is_all_counted and count == least:
                    return Refusal(limit.rule, used, _first_start(limits, size), is_exact=True)
                later = min(limit.counter.clear_from(date + 1, size, limit.rule), limit.stop)
                return Refusal(limit.rule, used, min(later, limit.counter.next_step(size.start)), is_exact=False)
        return None

    def names_of(self, job: PlannedJob, traits: Traits) -> frozenset[Hashable]:
        """Return the counters that bind a job."""
        if not self._wanted or not traits.counts_in_quotas:
            return frozenset()
        key = job.queue, job.project, job.types, job.user
        if key not in self._names:
            rules = {rule for period in self._quotas.periods for rule in self._rules_of(job, period.rules)}
            self._names[key] = frozenset(_pattern(rule, job) for rule in rules)
        return self._names[key]

    def _limits_of(self, job: PlannedJob) -> list[_Limit]:
        """Return the rules that bind a job, in the order of their periods."""
        key = job.queue, job.project, job.types, job.user
        known = self._limits.get(key)
        if known is None:
            stops = [*(period.begin for period in self._quotas.periods[1:]), FOREVER]
            known = self._limits[key] = [
                _Limit(rule, period.begin, stop, self._counters.setdefault(_pattern(rule, job), _Counter()))
                for period, stop in zip(self._quotas.periods, stops, strict=True)
                for rule in self._rules_of(job, period.rules)
            ]
        return known

    def _rules_of(self, job: PlannedJob, rules: int) -> list[QuotaRule]:
        key = rules, job.queue, job.project, job.types, job.user
        known = self._binding.get(key)
        if known is None:
            types = JobTypes(job.types).names
            known = self._binding[key] = binding_rules(self._quotas.rules[rules], job, types)
        return known

    def _count(self, job: PlannedJob, start: int, end: int, resources: ResourceSet) -> None:
        count = (resources & self._counted).bit_count()
        types = JobTypes(job.types).names
        names = tuple(
            pattern
            for pattern in product((None, job.queue), (None, job.project), (None, *types), (None, job.user))
            if tuple(part is not None for part in pattern) in self._wanted
        )
        self.log.append(Count(job.id, start, end, count, names))
        for name in names:
            self._counters.setdefault(name, _Counter()).add(start, end, count)

    def _shapes(self) -> set[tuple[bool, ...]]:
        """Return which parts of patterns are names in any rule."""
        used = {period.rules for period in self._quotas.periods}
        return {tuple(part != "*" for part in _key(rule)) for number in used for rule in self._quotas.rules[number]}

    def _enter_present(self, snapshot: Snapshot, traits: dict[int, Traits]) -> None:
        """Count running jobs and accepted reservations."""
        soon = snapshot.now + snapshot.settings.security_time  #: until then what is over its time keeps its resources
        for job in snapshot.running:
            end = job.start_time + job.walltime + job.suspended_time
            self.enter(job, traits[job.id], job.start_time, end if end > snapshot.now else soon, job.resources)
        for waiting in snapshot.waiting:
            granted = waiting.granted
            if granted:
                walltime = next((each.walltime for each in waiting.alternatives if each.id == granted.alternative), 0)
                start = waiting.start_time
                self.enter(waiting, traits[waiting.id], start, start + walltime, granted.resources)


def _first_start(limits: Sequence[_Limit], size: _Size) -> int:
    """Return the first start that all limits allow to a job of this size; FOREVER = none."""
    start, walltime = size.start, size.end - size.start
    moved = True
    while moved and start < FOREVER:
        before = start
        for limit in limits:
            start = limit.first_start(start, size.count, walltime)
        moved = start > before
    return start


def _pattern(rule: QuotaRule, job: PlannedJob) -> Pattern:
    """Return whom the counter of a rule counts for a job."""
    queue, project, user = (
        own if text == "/" else None if text == "*" else text
        for text, own in ((rule.queue, job.queue), (rule.project, job.project), (rule.user, job.user))
    )
    return queue, project, None if rule.type == "*" else rule.type, user
