"""One job into the slots, or the reason why not (scheduling.md 7)."""

from collections.abc import Collection, Hashable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

from oar.kao import explain
from oar.kao.array_limits import ArrayLimits
from oar.kao.chosen import BadChoice, ChosenFit, FreeSpace, is_set
from oar.kao.dependencies import MISSED, Dependencies, Missed, Window
from oar.kao.memory import Memory, Recollection, Step, World, is_plain
from oar.kao.model import FOREVER, Alternative, AskedGroup, Placement, Reason, Snapshot, WaitingJob
from oar.kao.quotas import Counters
from oar.kao.requests import Requests
from oar.kao.search import earliest, fit_at
from oar.kao.site import ASSIGN, FIND, Load, Site
from oar.kao.slots import Ask, Found
from oar.kao.spaces import COMMON, Occupation, Space, Spaces
from oar.kao.traits import PluginCall, Traits
from oar.lib.hierarchy import PooledGroup, RequestFit
from oar.lib.model import Level
from oar.lib.resource_set import ResourceSet
from oar.lib.states import Reservation

#: In the place of the number of a job: a container on hold.
HELD = -1


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a job: a placement, a reason why it has none or why it is not now, or both."""

    placement: Placement | None = None
    reason: Reason | None = None
    error: str = ""  #: the job can never run: it goes to toError with this message


@dataclass(frozen=True, slots=True)
class Policy:
    """How the jobs of a queue are planned."""

    dependency_condition: str = "ok"
    is_reservation: bool = False
    is_distant: bool = False  #: a reservation whose date is so far away that the state of nodes means nothing
    has_quotas: bool = False
    is_now_only: bool = False  #: nothing is planned for later


class Placer:
    """Places jobs one after the other; each leaves less for those after it."""

    def __init__(
        self, snapshot: Snapshot, spaces: Spaces, traits: dict[int, Traits], requests: Requests, site: Site
    ) -> None:
        self.placed: dict[int, Placement] = {}
        self.tokens = dict(snapshot.tokens)
        self.requests = requests
        self.dependencies = Dependencies(snapshot, self.placed)
        self.quotas = Counters(snapshot, traits)
        self._arrays = ArrayLimits(snapshot)
        self._snapshot = snapshot
        self._now = snapshot.now
        self._settings = snapshot.settings
        self._spaces = spaces
        self._containers = _container_names(snapshot, traits)
        self._site = site
        self._chosen: dict[int, ChosenFit] = {}  #: by alternative
        self._possible: dict[tuple[int, str, str], Reason | None] = {}
        self.recollection = self._recollection(None)
        self._treated: set[int] = set()
        self._reservations = {job.id for job in snapshot.waiting if job.granted}

    def place(self, job: WaitingJob, traits: Traits, policy: Policy) -> Outcome:
        """Place a job and enter it; or tell why it has no place."""
        self._treated.add(job.id)
        error = self._never(job, traits)
        if error:
            return Outcome(error=error)
        space = self._space(job, traits)
        if isinstance(space, Reason):
            return Outcome(reason=space)
        window = self.dependencies.window(job, policy.dependency_condition)
        if isinstance(window, Missed):
            return Outcome(error=MISSED)
        if isinstance(window, Reason):
            return Outcome(reason=window)
        reason = self.few_tokens(traits)
        if reason:
            return Outcome(reason=reason)
        return self._recall(_Task(job, traits, policy, space, window))

    def remember(self, before: Memory | None) -> None:
        """Use what the last round found out, as far as it is still so."""
        self.recollection = self._recollection(before)

    def _recollection(self, before: Memory | None) -> Recollection:
        logs = self.quotas.log, self._arrays.log
        spaces = self._spaces
        return Recollection(
            self._snapshot, World(spaces.usable.ordinary, spaces.common.entered, logs, self.requests), before
        )

    def enter(self, job: WaitingJob, placement: Placement, traits: Traits) -> None:
        """Let a placement occupy its resources for those that come after it."""
        self.placed[job.id] = placement
        if job.reservation is not Reservation.NONE:
            self._reservations.add(job.id)
        self.quotas.enter(job, traits, placement.start, placement.end, placement.resources)
        end = placement.end + self._settings.security_time
        self._arrays.enter(job, placement.start, end)
        occupation = Occupation(job.id, placement.start, end, placement.resources)
        self._spaces.of(traits).enter(occupation, traits)
        if traits.container:
            self._spaces.open(traits, occupation)
        if placement.start <= self._now:
            self.take_tokens(traits)

    def fit_reservation(self, job: WaitingJob, traits: Traits, start: int, policy: Policy) -> Placement | Reason | None:
        """Return a reservation's place at exactly its date, by the first alternative that fits; a quota against it."""
        refusal: Reason | None = None
        for alternative in job.alternatives:
            ask = self._ask(job, alternative, traits, policy)
            if isinstance(ask, Reason) or self._arrays.first_start(job, start, alternative.walltime) > start:
                continue
            resources = fit_at(self._spaces.of(traits).slots, ask, start)
            if not resources:
                continue
            place = Placement(job.id, alternative.id, start, alternative.walltime, resources)
            over = self.quotas.refusal(job, traits, place) if policy.has_quotas else None
            if over is None:
                return place
            refusal = refusal or explain.quota(over.rule, over.used, over.next_start)
        return refusal

    def next_start(self, job: WaitingJob, traits: Traits, start: int, policy: Policy) -> int:
        """Return when a refused reservation could start with its first alternative; 0 = never."""
        ask = self._ask(job, job.alternatives[0], traits, policy)
        if isinstance(ask, Reason):
            return 0
        while found := earliest(self._spaces.of(traits).slots, ask, start):
            start = self._arrays.first_start(job, found.start, job.alternatives[0].walltime)
            if start == found.start:
                return start
        return 0

    def container_error(self, job: WaitingJob, traits: Traits) -> str:
        """Return why an inner job can never run because of its container; '' if it can."""
        if not traits.inner:
            return ""
        if traits.inner in (traits.container, str(job.id)):
            return "Inner job: job cannot be its own container, setting it to error"
        if traits.inner not in self._containers and self._spaces.find(traits.inner) is None:
            return f"Inner job: container {traits.inner} does not exist, inner job will never run, setting it to error"
        return ""

    def _never(self, job: WaitingJob, traits: Traits) -> str:
        """Return the message of a job that can never run; '' if it may."""
        if traits.unreadable_date:
            return f"Cannot read the date of type {traits.unreadable_date}"
        if traits.expire and self._now > traits.expire:
            return f"Job will never run (expire={traits.expire_text}), setting it to error"
        shortest = min((each.walltime for each in job.alternatives), default=0)
        if traits.deadline and self._now + shortest > traits.deadline:
            return f"Job will never run (deadline={traits.deadline_text}), setting it to error"
        return self.container_error(job, traits)

    def _space(self, job: WaitingJob, traits: Traits) -> Space | Reason:
        space = self._spaces.find(traits.inner or COMMON)
        if space is None:
            known = self._containers.get(traits.inner, HELD)
            return explain.container_unplaced(traits.inner, is_known=known in self._treated)
        return space.for_besteffort() if traits.is_besteffort else space

    def is_open(self, container: str) -> bool:
        """Whether a container has its place already."""
        return self._spaces.find(container) is not None

    def take_tokens(self, traits: Traits) -> None:
        """Let a job that starts now have its tokens."""
        for name, count in traits.tokens:
            self.tokens[name] = (self.tokens.get(name) or 0) - count

    def few_tokens(self, traits: Traits) -> Reason | None:
        """Return which token is missing for a job to start now."""
        for name, count in traits.tokens:
            have = self.tokens.get(name)
            if have is None:
                return explain.no_tokens(name)
            if have < count:
                return explain.few_tokens(name, have, count)
        return None

    def _recall(self, task: "_Task") -> Outcome:
        """Give a job the place that it had in the last round, or the best that there is."""
        if task.traits.is_besteffort or task.traits.inner:
            return self._conclude(task, *self._best(task))
        binding = self._binding(task)
        known = self.recollection.recall(task.job, task.traits, task.window, binding, partial(self._is_allowed, task))
        best, refusal = (known.best, known.refusal) if known else self._best(task)
        is_safe = known is not None or self._is_safe(task)
        outcome = self._conclude(task, best, refusal, known.reason if known else None)
        is_same = known is not None and known.reason is outcome.reason and known.window == task.window
        new = Step(task.job, task.window, best, refusal, outcome.reason, is_safe)
        self.recollection.note(known if known and is_same else new)
        return outcome

    def _binding(self, task: "_Task") -> tuple[Collection[Hashable], Collection[Hashable]]:
        """Return the counters of quotas and of arrays that bind a job."""
        quotas = self.quotas.names_of(task.job, task.traits) if task.policy.has_quotas else ()
        return quotas, self._arrays.names_of(task.job)

    def _is_allowed(self, task: "_Task", place: Placement) -> bool:
        """Whether the counters of quotas and of arrays allow a place."""
        if self._arrays.first_start(task.job, place.start, place.walltime) != place.start:
            return False
        return not task.policy.has_quotas or self.quotas.refusal(task.job, task.traits, place) is None

    def _is_safe(self, task: "_Task") -> bool:
        """Whether the next round may recall what becomes of a job."""
        if task.dated or task.job.promised or not is_plain(task.job):
            return False
        requests = (self.requests.get(alternative.groups) for alternative in task.job.alternatives)
        return all(isinstance(request, Reason) or (request.is_monotone and request.is_steady) for request in requests)

    def _best(self, task: "_Task") -> tuple[Placement | None, Reason | None]:
        """Choose the alternative that ends first; a reason if there is none."""
        best: Placement | None = None
        refusal: Reason | None = None
        begin = max(self._now, task.window.begin, task.traits.postpone)
        if task.traits.inner:
            begin = max(begin, self._spaces.opens_at(task.traits.inner))
        if task.traits.assign and self._site.load:
            return self._assigned(task, task.traits.assign, self._site.load, begin), None
        for alternative in task.job.alternatives:
            latest = FOREVER if best is None else best.end - alternative.walltime - 1
            placement = self._alternative(task, alternative, begin, latest)
            if isinstance(placement, Placement):
                best = placement
            elif refusal is None:
                refusal = placement
        return self._with_woken(task, best) if best and task.job.promised else best, refusal

    def _with_woken(self, task: "_Task", best: Placement) -> Placement:
        """Return the nodes that were woken for a job in the last round, lest others are woken in each; if they can be.

        A job that may start at once elsewhere does.
        """
        promised, now = task.job.promised, self._now
        if promised is None or (best.start, best.alternative) != (now, promised.alternative):
            return best
        alternative = next(each for each in task.job.alternatives if each.id == best.alternative)
        ask = self._ask(task.job, alternative, task.traits, task.policy)
        if isinstance(ask, Reason) or not best.resources & ~self._spaces.usable.alive:
            return best
        place = replace(best, resources=promised.resources)
        free = task.space.slots.free_between(now, now + ask.duration, ask.keys) & ask.usable
        end = best.end + self._settings.security_time
        leaving = any(date < end and gone & place.resources for date, gone in self._spaces.usable.limits.items())
        is_kept = not place.resources & ~free and ask.request.fit(place.resources) == place.resources and not leaving
        return place if is_kept and self._is_allowed(task, place) else best

    def _conclude(
        self, task: "_Task", best: Placement | None, refusal: Reason | None, known: Reason | None = None
    ) -> Outcome:
        """Enter the place of a job, unless a limit forbids it.  ``known`` may be the reason why it is later."""
        if best is None:
            return Outcome(reason=refusal or explain.no_slot())
        reason = self._too_late(task, best)
        if reason:
            return Outcome(reason=reason)
        if best.start > self._now:
            reason = self._why_later(task, best, known)
        if reason and task.policy.is_now_only:
            return Outcome(reason=reason)
        self.enter(task.job, best, task.traits)
        return Outcome(best, reason)

    def _alternative(self, task: "_Task", alternative: Alternative, begin: int, latest: int) -> Placement | Reason:
        ask = self._ask(task.job, alternative, task.traits, task.policy)
        if isinstance(ask, Reason):
            return ask
        obstacle = self._obstacle(ask, alternative, task.traits)
        if obstacle:
            return obstacle
        found = self._search(task, alternative, ask, begin, latest)
        if found and task.policy.has_quotas:
            return self._under_quotas(task, alternative, ask, found, latest)
        return _placed(task, alternative, found) if found else self._no_slot(task, ask)

    def _no_slot(self, task: "_Task", ask: Ask) -> Reason:
        """Return why there is never a place for long enough."""
        if task.traits.inner:
            return explain.container_full(task.traits.inner)
        leaving = [date for date, resources in self._spaces.usable.limits.items() if resources & ask.usable]
        return explain.leaving(min(leaving)) if leaving else explain.no_slot()

    def _search(self, task: "_Task", alternative: Alternative, ask: Ask, begin: int, latest: int) -> Found | None:
        """Return the first place from a date on that lasts as long as the job, at a time with room in its array."""
        walltime = alternative.walltime
        while True:
            begin = self._arrays.first_start(task.job, begin, walltime)
            found = self._in_time(task, alternative, ask, self._earliest(task.space, ask, begin, latest), latest)
            if found is None or self._arrays.first_start(task.job, found.start, walltime) == found.start:
                return found
            begin = found.start

    def _earliest(self, space: Space, ask: Ask, begin: int, latest: int) -> Found | None:
        bound = space.bounds.of(ask)
        found = earliest(space.slots, ask, max(begin, bound), latest)
        if found and begin == self._now and found.start > begin:
            space.bounds.learn(ask, found.start)
        return found

    def _in_time(
        self, task: "_Task", alternative: Alternative, ask: Ask, found: Found | None, latest: int
    ) -> Found | None:
        """Move a besteffort job, for which a short gap is enough, to resources that stay for its whole walltime."""
        limits = self._spaces.usable.limits if task.traits.is_besteffort else {}
        while found and limits:
            end = found.start + alternative.walltime + self._settings.security_time
            last = max((date for date in limits if date < end), default=0)
            gone = 0
            for date, resources in limits.items():
                gone |= resources if date <= last else 0
            if not gone & found.resources:
                break
            lasting = replace(ask, usable=ask.usable & ~gone, kind=f"{ask.kind} after {last}")
            found = earliest(task.space.slots, lasting, found.start, latest)
        return found

    def _under_quotas(
        self, task: "_Task", alternative: Alternative, ask: Ask, found: Found | None, latest: int
    ) -> Placement | Reason:
        """Move a place to the next start that the quotas allow; or tell what forbids any."""
        delay = explain.no_slot()
        while found:
            if found.start > self.quotas.latest_start:
                task.dated.add(alternative.id)
                return explain.behind_quotas(self.quotas.latest_start)
            place = _placed(task, alternative, found)
            over = self.quotas.refusal(task.job, task.traits, place, ask.request.least)
            if over is None:
                return place
            delay = explain.quota(over.rule, over.used, over.next_start)
            if not over.is_exact:
                task.dated.add(alternative.id)
            is_possible = over.next_start < FOREVER
            found = self._search(task, alternative, ask, over.next_start, latest) if is_possible else None
        task.dated.add(alternative.id)
        return delay

    def _ask(self, job: WaitingJob, alternative: Alternative, traits: Traits, policy: Policy) -> Ask | Reason:
        request: RequestFit | Reason = self.requests.get(alternative.groups, is_distant=policy.is_distant)
        if traits.find and self._site.load and isinstance(request, RequestFit):
            request = self._chosen_fit(job, alternative, traits.find, self._site.load)
        if isinstance(request, Reason):
            return request
        kind, usable = self._spaces.usable.by(traits, is_reservation=policy.is_reservation)
        duration = alternative.walltime + self._settings.security_time
        if policy.is_reservation:
            return Ask(request, usable, duration, traits.shares, kind)
        if traits.is_besteffort:
            duration = self._besteffort_gap(duration)
        return Ask(request, usable, max(duration, self._settings.hole_minimum), traits.shares, kind)

    def _chosen_fit(self, job: WaitingJob, alternative: Alternative, call: PluginCall, load: Load) -> RequestFit:
        """Return the request with a plug-in in place of the planner's choice.  Raises NoPlugin."""
        if alternative.id not in self._chosen:
            own = ~self._spaces.usable.shared
            pools = self._snapshot.pools
            groups = [PooledGroup(pools[each.pool].members & own, each.levels) for each in alternative.groups]
            self._chosen[alternative.id] = ChosenFit(load(FIND, call.name), call, self._snapshot, job, groups)
        return self._chosen[alternative.id]

    def _assigned(self, task: "_Task", call: PluginCall, load: Load, begin: int) -> Placement | None:
        """Let a plug-in choose start and resources.  Raises NoPlugin, BadChoice, and whatever the plug-in raises."""
        _, usable = self._spaces.usable.by(task.traits, is_reservation=False)
        space = FreeSpace(task.space.slots, usable, task.traits.shares, self._settings.security_time)
        function = load(ASSIGN, call.name)
        place = function(self._snapshot, task.job, space, begin, *call.arguments, **dict(call.options))
        if place is None:
            return None
        flaw = self.flaw(task.job, task.traits, place, begin, usable) if isinstance(place, Placement) else "no place"
        if flaw:
            raise BadChoice(f'the plug-in "{call.name}" of the group {ASSIGN} chose what cannot be: {flaw}')
        chosen: Placement = place
        return chosen

    def flaw(
        self, job: WaitingJob, traits: Traits, place: Placement, begin: int, usable: ResourceSet | None = None
    ) -> str:
        """Return what is wrong with a place that somebody else has chosen; '' if it may be entered.

        ``usable``: on which resources the job may be; by default all that are not Dead.
        """
        alternative = next((each for each in job.alternatives if each.id == place.alternative), None)
        space = self._space(job, traits)
        if alternative is None or place.job_id != job.id or place.walltime != alternative.walltime:
            return f"{place.alternative} is no alternative of the job with that walltime"
        if isinstance(space, Reason):
            return space.text
        if place.start < begin:
            return f"it begins at {place.start}, before {begin}"
        if not is_set(place.resources) or not place.resources:
            return "it has no resources"
        allowed = self._spaces.usable.present if usable is None else usable
        end = place.end + self._settings.security_time
        for resources, trouble in (
            (place.resources & ~allowed, "cannot be used"),
            (place.resources & ~space.slots.free_between(place.start, end, traits.shares), "are not free"),
        ):
            if resources:
                return f"the resources {self._named(resources)} {trouble}"
        return ""

    def hindrance(self, job: WaitingJob, traits: Traits) -> Reason | None:
        """Return what keeps a job from starting now, though its resources may be free: tokens, or its array."""
        walltime = min((each.walltime for each in job.alternatives), default=0)
        if self._arrays.first_start(job, self._now, walltime) > self._now:
            return explain.array_limit(job.array_id, job.array_limit)
        return self.few_tokens(traits)

    def _named(self, resources: ResourceSet) -> str:
        ids = self._snapshot.resources.ids_of(resources)
        return ",".join(map(str, ids[: explain.NAMED])) + (",..." if len(ids) > explain.NAMED else "")

    def _besteffort_gap(self, duration: int) -> int:
        settings = self._settings
        if not settings.besteffort_duration:
            return duration
        shortest = max(settings.besteffort_duration, settings.besteffort_kill_before, settings.security_time)
        return min(shortest, duration)

    def _obstacle(self, ask: Ask, alternative: Alternative, traits: Traits) -> Reason | None:
        """Return why the request cannot be satisfied even when nothing runs; None if it can."""
        key = id(ask.request), ask.kind, traits.inner
        if key not in self._possible:
            self._possible[key] = self._find_obstacle(ask, alternative, traits)
        return self._possible[key]

    def _find_obstacle(self, ask: Ask, alternative: Alternative, traits: Traits) -> Reason | None:
        usable = self._spaces.usable
        if not ask.request.fit(usable.present):
            return self._impossible(alternative)
        if not ask.request.fit(ask.usable):
            resources = self._snapshot.resources
            wanted = 0
            for group in alternative.groups:
                wanted |= self._snapshot.pools[group.pool].members
            suspected, absent = wanted & usable.suspected, wanted & usable.absent & ~usable.wakeable
            counts = suspected.bit_count(), absent.bit_count()
            return explain.not_alive(resources.nodes_of(suspected), resources.nodes_of(absent), counts)
        if traits.inner and self._spaces.size_of(traits.inner) < ask.request.least:
            return explain.container_small(traits.inner, self._spaces.size_of(traits.inner))
        return None

    def _impossible(self, alternative: Alternative) -> Reason:
        """Name the first group that cannot be satisfied with those before it, and what of it could be."""
        groups = alternative.groups
        count = next((each for each in range(1, len(groups)) if not self._fits(groups[:each])), len(groups))
        group = groups[count - 1]
        matching = (self._snapshot.pools[group.pool].members & self._spaces.usable.present).bit_count()
        nearest = self._nearest(groups[: count - 1], group) if matching else None
        return explain.impossible(self.requests.text(group), group.levels, matching, nearest)

    def _fits(self, groups: tuple[AskedGroup, ...]) -> bool:
        """Whether an empty machine satisfies groups."""
        request = self.requests.get(groups)
        return isinstance(request, RequestFit) and bool(request.fit(self._spaces.usable.present))

    def _nearest(self, before: tuple[AskedGroup, ...], group: AskedGroup) -> Level | None:
        """Return the level of which less would do, with the most that does; of several the one that loses least."""
        found: list[tuple[float, Level]] = []
        for place, level in enumerate(group.levels):
            low, high = 0, level.quantity
            while high - low > 1:
                middle = Level(level.property, (low + high) // 2)
                levels = (*group.levels[:place], middle, *group.levels[place + 1 :])
                fits = self._fits((*before, AskedGroup(group.pool, levels)))
                low, high = (middle.quantity, high) if fits else (low, middle.quantity)
            if low > 0:
                found.append((low / level.quantity, Level(level.property, low)))
        return max(found, key=lambda each: each[0])[1] if found else None

    def _too_late(self, task: "_Task", placement: Placement) -> Reason | None:
        """Return why a placement is not kept: a limit of the user or of a dependency is passed."""
        if placement.start > task.window.latest:
            return explain.broken_dependency(task.window.latest_job)
        if task.traits.deadline and placement.end > task.traits.deadline:
            return explain.deadline(placement.end, task.traits.deadline)
        if task.traits.expire and placement.start > task.traits.expire:
            return explain.no_slot(f"it expires at {task.traits.expire_text}")
        return None

    def _why_later(self, task: "_Task", placement: Placement, known: Reason | None) -> Reason:
        """Return why a job does not start now."""
        start = placement.start
        if rule := self._own_rule(task, placement) or self._held_back(task, placement, known):
            return rule
        jobs = task.space.ending_at(start, placement.resources)
        if not jobs and task.traits.inner:
            return explain.container_until(task.traits.inner, start)
        if reserved := [job for job in jobs if job in self._reservations]:
            return explain.behind(start, reserved, [job for job in jobs if job not in self._reservations])
        return known if known and explain.is_busy(known, start, jobs) else explain.busy(start, jobs)

    def _own_rule(self, task: "_Task", placement: Placement) -> Reason | None:
        """Return what the job's own types, dependencies or array say against a moment before."""
        start = placement.start
        if start == task.traits.postpone:
            return explain.postponed(start)
        if start == task.window.begin:
            return explain.dependency_until(task.window.begin_job, start)
        if self._arrays.decides(task.job, start, placement.walltime):
            return explain.array_limit(task.job.array_id, task.job.array_limit)
        return None

    def _held_back(self, task: "_Task", placement: Placement, known: Reason | None) -> Reason | None:
        """Return the rule of the quotas that keeps a job from starting a moment before; None if it is something else.

        What is ``known`` of a job that was recalled is still so if its counters have counted nothing else since.
        """
        if not task.policy.has_quotas:
            return None
        if known and not self.recollection.is_crowded:
            return known if known.code == "QUOTA" else None
        before = replace(placement, start=placement.start - 1)
        over = self.quotas.refusal(task.job, task.traits, before)
        return explain.quota(over.rule, over.used, placement.start) if over else None


@dataclass(frozen=True, slots=True)
class _Task:
    """A job that is being placed, and what is known of it."""

    job: WaitingJob
    traits: Traits
    policy: Policy
    space: Space
    window: Window
    dated: set[int] = field(default_factory=set)  #: alternatives for which the date of the round may count


def _placed(task: _Task, alternative: Alternative, found: Found) -> Placement:
    return Placement(task.job.id, alternative.id, found.start, alternative.walltime, found.resources)


def _container_names(snapshot: Snapshot, traits: Mapping[int, Traits]) -> dict[str, int]:
    """Return the containers that there are, by each name that inner jobs may use."""
    names: dict[str, int] = {}
    for job in (*snapshot.running, *snapshot.waiting):
        container = traits[job.id].container if job.id in traits else ""
        if container:
            names[container] = names[str(job.id)] = job.id
    return dict.fromkeys(snapshot.held_containers, HELD) | names
