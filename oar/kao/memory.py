"""What one round leaves to the next, so that only what can have changed is planned again.

Jobs are placed one after the other, and each search depends on nothing but the job and on what was placed before it.
So as long as the jobs come in the same order as in the last round, in a world that was the same from now on, each has
the place that it had: ``recall`` gives it back without a search.  With the first difference this ends, and all jobs
behind it are searched for as if there had been no last round.

Two things may have changed without a difference.  The clock: a place that begins now or later is still the earliest,
for all that could have been earlier was looked at.  And a job may hold, as running job or accepted reservation, exactly
what it had been promised: then it stands in the world earlier than in its turn, which leaves less free to the jobs
before it in the order but nothing of what they have.  That is not so where jobs may share resources, and not for a job
that did not take the place that was found for it.  Requests whose groups compete for resources could succeed on less
where they failed on more, and BESTHALF takes less of less: they are never recalled.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from oar.kao.dependencies import Window
from oar.kao.model import Placement, Reason, Snapshot, WaitingJob
from oar.kao.priority import policy_of
from oar.kao.requests import Requests
from oar.kao.spaces import Occupation
from oar.kao.traits import Traits
from oar.lib.resource_set import ResourceSet
from oar.lib.states import QueueState

#: Types that let a plug-in choose.
_PLUGGED = ("find=", "assign=")

Entered = Sequence[tuple[Occupation, Traits]]


@dataclass(frozen=True, slots=True)
class Step:
    """What became of a job that was searched for in the common space."""

    job: WaitingJob
    window: Window
    best: Placement | None  #: its place, though a limit of the user may forbid it
    refusal: Reason | None  #: why there is none
    reason: Reason | None  #: why it does not start now
    is_safe: bool  #: its place follows from its request and from what was there
    is_kept: bool  #: no place was found, or it was taken: others may not have it


@dataclass(frozen=True, slots=True)
class Memory:
    """A round, as the next one may use it."""

    snapshot: Snapshot
    usable: ResourceSet  #: resources for ordinary jobs
    steps: Sequence[Step]  #: in the order of planning
    base: frozenset[int]  #: the jobs that were in the common space before the first step
    entered: Mapping[int, tuple[Occupation, Traits]]  #: all that were in the end
    requests: tuple[Snapshot, Requests] | None = None
    jobs: Mapping[int, WaitingJob] = field(default_factory=dict)
    placements: Mapping[int, Placement] = field(default_factory=dict)
    reasons: Mapping[int, Reason] = field(default_factory=dict)
    messages: Mapping[int, str] = field(default_factory=dict)
    karma: Mapping[int, float] = field(default_factory=dict)


class Recollection:
    """Goes through the steps of the last round along with the present one, and notes the new steps."""

    def __init__(self, snapshot: Snapshot, usable: ResourceSet, entered: Entered, before: Memory | None) -> None:
        """``entered``: what is in the common space; it grows with the steps."""
        self._steps: list[Step] = []
        self._snapshot = snapshot
        self._usable = usable
        self._gap = snapshot.settings.security_time
        self._entered = entered
        self._expected = len(entered)
        self._base = frozenset(occupation.job_id for occupation, _ in entered)
        self._at = 0
        self.recalled = 0  #: so many jobs needed no search
        self._has_moved = before is not None and not self._base <= before.base
        self.is_same_world = before is not None and self._is_same_world(before)
        self._old: Sequence[Step] = before.steps if before and self.is_same_world else ()

    def recall(self, job: WaitingJob, window: Window) -> Step | None:
        """Return what became of a job in the last round, if the same would become of it now."""
        if len(self._entered) != self._expected:
            self._stop()
        while self._at < len(self._old):
            step = self._old[self._at]
            self._at += 1
            if step.job.id == job.id:
                is_stable = step.is_safe and (step.is_kept or not self._has_moved)
                if is_stable and (step.job is job or step.job == job) and self._holds(step, window):
                    self.recalled += 1
                    return step
                break
            if not self._is_without_trace(step):
                break
        self._stop()
        return None

    def note(self, step: Step) -> None:
        """Keep what became of a job for the next round."""
        self._steps.append(step)
        self._expected = len(self._entered)

    def kept(self) -> Memory:
        """Return what the next round may use."""
        entered = {each[0].job_id: each for each in self._entered}
        is_known = entered.keys() <= self._base | {step.job.id for step in self._steps}
        return Memory(self._snapshot, self._usable, self._steps if is_known else (), self._base, entered)

    def _stop(self) -> None:
        """From here on nothing is as it was."""
        self._at = len(self._old)

    def _holds(self, step: Step, window: Window) -> bool:
        now = self._snapshot.now
        if step.best and step.best.start < now:
            return False
        return window.begin == max(step.window.begin, now) and window.latest == step.window.latest

    def _is_without_trace(self, step: Step) -> bool:
        """Whether a job that does not come now had no place, or one that is over, or holds it as one of the base."""
        is_over = step.best is None or step.best.end + self._gap <= self._snapshot.now
        return is_over or step.job.id in self._base

    def _is_same_world(self, before: Memory) -> bool:
        """Whether all that does not come in steps leaves the same free from now on as in the last round."""
        old, new = before.snapshot, self._snapshot
        if old.now > new.now or old.quotas or new.quotas or old.settings != new.settings or old.queues != new.queues:
            return False
        if old.resources != new.resources or before.usable != self._usable or not _is_planned_here(new):
            return False
        if old.pools != new.pools[: len(old.pools)]:
            return False
        return all(self._is_entered(before, each) for each in self._entered) and all(
            before.entered[number][0].end <= new.now for number in before.base - self._base
        )

    def _is_entered(self, before: Memory, entered: tuple[Occupation, Traits]) -> bool:
        """Whether a job of the base held the same from now on, in one way or another, when the last round ended."""
        occupation, traits = entered
        known = before.entered.get(occupation.job_id)
        now = self._snapshot.now
        return (
            known is not None
            and known[0].resources == occupation.resources
            and max(known[0].start, now) == max(occupation.start, now)
            and known[0].end == occupation.end
            and known[1] == traits
            and (occupation.job_id in before.base or not (traits.shares or traits.occupies_as))
        )


def is_plain(job: WaitingJob) -> bool:
    """Whether the place of a job follows from its request."""
    return not any(text.startswith(_PLUGGED) for text in job.types)


def _is_planned_here(snapshot: Snapshot) -> bool:
    """Whether no queue has a scheduler of its own, which may do what it likes."""
    return all(policy_of(each.policy) is not None for each in snapshot.queues if each.state is QueueState.ACTIVE)
