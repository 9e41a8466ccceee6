"""Full plans made in slices between the rounds, after an urgent pass has left jobs undecided.

A full plan uses the snapshot of one round and continues even if later rounds find another situation.  So predictions
are renewed even if the situation changes all the time.  Then the latest situation that needs a full plan is planned.

See docs/design/planner.rst, "Two depths".
"""

import logging
import time
from collections.abc import Callable, Iterator

from oar.kao.facts.snapshot import Snapshot
from oar.kao.planner.placement.round_memory import RoundMemory
from oar.kao.planner.schedule import Round
from oar.kao.rounds.foreseen import FullPlan
from oar.kao.rounds.garbage_collection import resting
from oar.kao.rounds.plan_faults import PlanGuard

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
        """Discard the full plan in progress and the last one."""
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
