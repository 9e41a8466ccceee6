"""Full plans made in slices between the rounds, after an urgent pass has left jobs undecided; their predictions.

A full plan uses the snapshot of one round and continues even if later rounds find another situation.  So predictions
are renewed even if the situation changes all the time.  Then the latest situation that needs a full plan is planned.

A full plan changes thousands of predictions.  They are written in portions, so that a round does not wait long.  Until
its portion is written, a job keeps its earlier prediction.

See docs/design/planner.rst, "Two depths".
"""

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from oar.kao.facts.plan import Placement, Plan, Reason
from oar.kao.facts.snapshot import Snapshot, WaitingJob
from oar.kao.planner.placement.round_memory import RoundMemory
from oar.kao.planner.schedule import Round
from oar.kao.rounds.garbage_collection import resting
from oar.kao.rounds.plan_faults import PlanGuard


@dataclass(frozen=True, slots=True)
class Foresight:
    """The prediction of a plan for a job that does not start."""

    date: int  #: of the plan
    job: WaitingJob
    placement: Placement | None
    reason: Reason | None
    message: str


class FullPlan:
    """A full plan and the snapshot on which it is based."""

    def __init__(self, snapshot: Snapshot, plan: Plan) -> None:
        self.snapshot = snapshot
        self.plan = plan
        self._jobs: Mapping[int, WaitingJob] | None = None  #: by id; made when it is first asked for
        self._placements: Mapping[int, Placement] = {}

    def is_of(self, snapshot: Snapshot) -> bool:
        """Return whether the snapshot differs from the plan's snapshot only in its date."""
        return replace(snapshot, now=self.snapshot.now) == self.snapshot

    def of(self, job_id: int) -> Foresight | None:
        """Return the prediction for a job; return None if the plan does not contain it."""
        if self._jobs is None:
            self._jobs = {job.id: job for job in self.snapshot.waiting}
            self._placements = {placement.job_id: placement for placement in self.plan.placements}
        job, plan = self._jobs.get(job_id), self.plan
        if job is None:
            return None
        placement, reason = self._placements.get(job_id), plan.reasons.get(job_id)
        return Foresight(plan.now, job, placement, reason, plan.messages.get(job_id, ""))


class Foreseen:
    """The stored predictions of jobs on which the last round did not decide, and newer ones to be written."""

    def __init__(self) -> None:
        self._base: FullPlan | None = None
        self._renewal: FullPlan | None = None  #: a later full plan, of which a part is written
        self._later: dict[int, Foresight] = {}  #: what is newer than ``_base``, by job id
        self._undecided: Mapping[int, WaitingJob] = {}
        self._rest: list[int] = []  #: the jobs whose renewal is not written yet, the last ones first

    @property
    def date(self) -> int:
        """Return the minimum date of all predictions; 0 = there are none."""
        return self._base.plan.now if self._base else 0

    @property
    def has_rest(self) -> bool:
        """Return whether parts of a newer plan are still to be written."""
        return bool(self._rest)

    def forget(self) -> None:
        self.__init__()  # type: ignore[misc]

    def settle(self, full: FullPlan) -> None:
        """Register a full plan that has been written."""
        self.forget()
        self._base = full

    def renew(self, full: FullPlan) -> None:
        """Register a full plan that will be written in portions."""
        self._renewal = full
        self._rest = [job.id for job in reversed(full.snapshot.waiting)]

    def merged(self, plan: Plan, snapshot: Snapshot) -> Plan:
        """Return a plan of this situation, completed with predictions for the jobs on which it does not decide."""
        waiting = {job.id: job for job in snapshot.waiting}
        undecided = {job_id: waiting[job_id] for job_id in plan.undecided}
        self._undecided = undecided
        self._later = {job_id: each for job_id, each in self._later.items() if job_id in waiting}
        placements = {placement.job_id: placement for placement in plan.placements}
        for job_id, reason in plan.reasons.items():
            message = plan.messages.get(job_id, "")
            self._later[job_id] = Foresight(plan.now, waiting[job_id], placements.get(job_id), reason, message)
        known = (self._of(job_id) for job_id in undecided)
        return _with(plan, [each for each in known if each and undecided[each.job.id] == each.job], self.date)

    def portion(self, size: int, now: int) -> Plan:
        """Return the next portion of a newer plan, as a plan that decides nothing else."""
        foresights: list[Foresight] = []
        while self._rest and len(foresights) < size:
            job_id = self._rest.pop()
            each = self._renewal.of(job_id) if self._renewal else None
            if each is None or self._undecided.get(job_id) != each.job or self._is_newer(job_id, each.date):
                continue
            if not _is_same(self._of(job_id), each):
                foresights.append(each)
            self._later[job_id] = each
        if not self._rest and self._renewal:
            self._base, self._renewal = self._renewal, None
            self._later = {job_id: each for job_id, each in self._later.items() if each.date > self.date}
        return _with(Plan(now), foresights, self.date)

    def _of(self, job_id: int) -> Foresight | None:
        return self._later.get(job_id) or (self._base.of(job_id) if self._base else None)

    def _is_newer(self, job_id: int, date: int) -> bool:
        later = self._later.get(job_id)
        return later is not None and later.date > date


def _with(plan: Plan, foresights: Sequence[Foresight], date: int) -> Plan:
    placements = (each.placement for each in foresights if each.placement)
    reasons = {each.job.id: each.reason for each in foresights if each.reason}
    return replace(
        plan,
        placements=(*plan.placements, *placements),
        reasons=dict(sorted({**plan.reasons, **reasons}.items())),
        messages={**plan.messages, **{each.job.id: each.message for each in foresights if each.message}},
        foreseen_at=date,
    )


def _is_same(one: Foresight | None, other: Foresight) -> bool:
    return one is not None and (one.placement, one.reason, one.message) == (
        other.placement,
        other.reason,
        other.message,
    )


log = logging.getLogger(__name__)


#: So long, in seconds, a round may have to wait for the tail.
SLICE = 0.15


#: Between two full plans is a pause as long as the first one took, at most this, in seconds.
LONGEST_PAUSE = 15.0


#: Behind a round that has written so many predictions rounds do without a full plan for so many seconds for each, which
#: is fifty times what they take: in a burst of ends nobody can read them all.
MANY, REST_OF_EACH = 100, 0.005


#: Makes the planning of a round; it is given what tells the seconds since the begin of the round.
MakeRound = Callable[[Callable[[], float]], Round]


class PlanTail:
    """Makes full plans in slices."""

    def __init__(self, guard: PlanGuard, clock: Callable[[], float] = time.monotonic) -> None:
        self._guard = guard
        self._clock = clock
        self._wanted: tuple[Snapshot, MakeRound] | None = None
        self._run: Iterator[None] | None = None  #: the steps of the full plan in the making
        self._seconds = 0.0  #: that the present plan took in former slices
        self._since = 0.0  #: the begin of the present slice
        self._not_before = 0.0
        self._rests_until = 0.0
        self.last: FullPlan | None = None  #: the last full plan
        self.memory: RoundMemory | None = None  #: of the last full plan

    def want(self, snapshot: Snapshot, make: MakeRound) -> None:
        """Request a full plan of a situation; it replaces an earlier request that has not begun."""
        self._wanted = snapshot, make

    def take_over(self, full: FullPlan, memory: RoundMemory | None) -> None:
        """Register a full plan that a round has made."""
        self._wanted = self._run = None
        self.last, self.memory = full, memory

    def forget(self) -> None:
        self._wanted = self._run = None
        self.last = self.memory = None

    @property
    def is_resting(self) -> bool:
        """Return whether rounds may omit full plans although there is time for them."""
        return self._clock() < self._rests_until

    def pause(self, changes: int) -> None:
        """Register the number of predictions that a round has written; this may begin a rest, but never extends one."""
        if changes >= MANY and not self.is_resting:
            self._rests_until = self._clock() + min(changes * REST_OF_EACH, LONGEST_PAUSE)

    def due(self) -> float | None:
        """Return the number of seconds until there is work; return None if there is none."""
        if self._run:
            return 0.0
        return max(0.0, max(self._not_before, self._rests_until) - self._clock()) if self._wanted else None

    def go_on(self) -> bool:
        """Run one slice; return whether it has completed a plan."""
        self._since = self._clock()
        run = self._run or self._begin()
        if run is None:
            return False
        with resting():
            for _ in run:
                if self._is_slice_over():
                    self._seconds += self._clock() - self._since
                    return False
        self._run = None
        return True

    def _begin(self) -> Iterator[None] | None:
        if self._wanted is None or self._since < self._not_before:
            return None
        (snapshot, make), self._wanted = self._wanted, None
        self._seconds = 0.0
        self._run = self._steps(snapshot, make)
        return self._run

    def _is_slice_over(self) -> bool:
        return self._clock() - self._since >= SLICE

    def _elapsed(self) -> float:
        return self._seconds + self._clock() - self._since

    def _steps(self, snapshot: Snapshot, make: MakeRound) -> Iterator[None]:
        """Make, check and store a full plan."""
        planning = make(self._elapsed)
        yield
        yield from planning.steps(gives_way=self._is_slice_over)
        unchecked = yield from planning.finishing()
        yield
        plan = yield from self._guard.leaving_out_faults(snapshot, unchecked, planning.requests)
        self._guard.log_troubles(snapshot, plan)
        yield
        self.last = FullPlan(snapshot, plan)
        self.memory = planning.memory(plan) if plan is unchecked else None
        seconds = self._elapsed()
        self._not_before = self._clock() + min(seconds, LONGEST_PAUSE)
        log.debug("a full plan of %d jobs took %.1f s", len(snapshot.waiting), seconds)
