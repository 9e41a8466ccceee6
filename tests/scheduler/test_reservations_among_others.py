"""Advance reservations beside all else that a planner knows: nobody meets them, and in them all rules hold.

Containers, suspended jobs, quotas, besteffort jobs, moldable jobs, arrays, timesharing, lost nodes and changes, inside
and outside, in random situations.
"""

import random
from dataclasses import replace

from hypothesis import example, given
from hypothesis import strategies as st

from oar.kao.facts.job_types import parse_types
from oar.kao.facts.plan import Placement, Plan
from oar.kao.facts.snapshot import PlannedChange, RequestGroup, Snapshot
from oar.kao.planner.plan_check import faults_of
from oar.kao.planner.schedule import Round
from oar.lib.accounts.quota_records import QuotaPeriod, QuotaRule, Quotas
from oar.lib.base.resource_set import ResourceSet, from_positions, positions
from oar.lib.jobs.records import Level
from oar.lib.jobs.states import JobState
from oar.lib.nodes.states import ResourceState
from oar.lib.reservations.states import GRANTED
from oar.lib.reservations.states import ReservationState as S
from tests.examples import at_most
from tests.scheduler.builders import NOW
from tests.scheduler.test_advance_reservations import O, Site
from tests.scheduler.test_urgent_pass import check, urgent

#: Start, end and resources.
Window = tuple[int, int, ResourceSet]

_BESIDE = [(), (), (), ("besteffort",), ("timesharing",), ("timesharing=user,*",), ("placeholder=x",), ("allowed=x",)]
_INSIDE = [(), (), (), ("besteffort",), ("timesharing",), ("container",)]


class Among(Site):
    """A machine with advance reservations, and with jobs of all kinds inside and outside."""

    def __init__(self, seed: int) -> None:
        self.dice = dice = random.Random(seed)
        super().__init__(
            dice.randint(2, 5), 2, besteffort_kill_before=dice.choice([0, 20]), besteffort_duration=dice.choice([0, 50])
        )
        self.free = self.resources.everything  #: what no job runs on
        self.changes: list[PlannedChange] = []
        for _ in range(dice.randint(0, 4)):
            self._grant()
        for _ in range(dice.randint(0, 3)):
            self._run_beside()
        for _ in range(dice.randint(0, 2)):
            start = NOW + dice.randint(-2, 200)
            self.reserve(
                self._request(), start, max(start, NOW) + dice.randint(7, 200), start_window=dice.choice([0, 90])
            )
        self._lose()
        self._wait()
        if dice.random() < 0.3:
            self.settings = replace(self.settings, has_quotas=True)
            self.quotas = Quotas(((QuotaRule("*", "*", "*", "*", dice.choice([1, 2, 4])),),), (QuotaPeriod(NOW, 0),))

    def _request(self) -> str:
        return self.dice.choice(
            ["/core=1", "/core=2", "/core=3", "/node=1", "/node=2", "/switch=1/node=1", "/node=1/core=1"]
        )

    def _some(self, resources: ResourceSet) -> ResourceSet:
        return resources & self.dice.getrandbits(10)

    def _grant(self) -> None:
        """Add a granted reservation, with jobs that run in it if it runs."""
        dice = self.dice
        start = NOW + dice.randint(-60, 150)
        end = max(start, NOW) + dice.randint(20, 200)
        held = self._some(self.resources.everything) if dice.random() < 0.8 else self.resources.everything
        for other in self.reservations:
            held &= ~other.resources if start < other.end and other.start < end else -1
        if not held:
            return
        state = dice.choice([S.RUNNING, S.ERROR]) if start < NOW else dice.choice([S.WAITING, S.WARNING])
        missing = tuple(bit + 1 for bit in positions(self._some(held)))
        self.reserve(
            "/core=1", start, end, held=held, state=state, is_hard=dice.random() < 0.3,
            is_flexible=dice.random() < 0.25, replaces_lost=dice.random() < 0.5, missing=missing,
            missing_since={number: NOW - dice.choice([5, 1000]) for number in missing},
            groups=(RequestGroup(0, (Level("core", held.bit_count()),)),),
        )  # fmt: skip
        if start < NOW:
            self._run_inside(len(self.reservations), held, end - O - NOW)
            self.free &= ~held
        if dice.random() < 0.2:
            number = len(self.reservations)
            self.changes.append(PlannedChange(number, number, end=end + dice.randint(-100, 100)))

    def _run_inside(self, number: int, held: ResourceSet, longest: int) -> None:
        left, inside = self._some(held), self.entry_type(number)
        while left and longest > 0:
            taken = self._some(left) or left
            left &= ~taken
            types = self.dice.choice(_INSIDE)
            state = JobState.SUSPENDED if self.dice.random() < 0.1 else JobState.RUNNING
            walltime = self.dice.randint(1, longest)
            self.run(taken, walltime=walltime, types=(inside, *types), state=state)
            if "container" in types and self.dice.random() < 0.7:
                job = self.running[-1].id
                self.run(self._some(taken) or taken, walltime=self.dice.randint(1, walltime), types=(f"inner={job}",))

    def _run_beside(self) -> None:
        held = self._some(self.free)
        self.free &= ~held
        reserved = min((each.start for each in self.reservations if each.resources & held), default=NOW + 300)
        types, longest = self.dice.choice(_BESIDE), min(300, reserved - NOW - 1)
        if "besteffort" in types:
            longest = 300
        if held and longest > 0:
            state = self.dice.choice([JobState.RUNNING] * 5 + [JobState.SUSPENDED, JobState.RESUMING])
            self.run(held, walltime=self.dice.randint(1, longest), types=types, state=state)

    def _lose(self) -> None:
        states = [ResourceState.ALIVE] * 12 + [ResourceState.SUSPECTED, ResourceState.ABSENT, ResourceState.DEAD]
        for node in range(len(self.resources.ids) // 2):
            state = self.dice.choice(states)
            if state is not ResourceState.ALIVE:
                self.state(state, node)

    def _wait(self) -> None:
        dice = self.dice
        for _ in range(dice.randint(0, 10)):
            requests = [
                f"{self._request()},walltime=0:0:{dice.choice([5, 30, 100, 300])}"
                for _ in range(dice.choice([1, 1, 2]))
            ]
            given = {"array_id": 7, "array_limit": 1} if dice.random() < 0.15 else {}
            boxes = [job.id for job in (*self.running, *self.waiting) if "container" in job.types and job.id < 1000]
            if self.reservations and dice.random() < 0.5:
                types = (self.entry_type(dice.randint(1, len(self.reservations))), *dice.choice(_INSIDE))
            elif boxes and dice.random() < 0.3:
                types = (f"inner={dice.choice(boxes)}",)
            else:
                types = dice.choice(_BESIDE)
            queue = "besteffort" if "besteffort" in types else "default"
            self.job(*requests, types=types, queue=queue, **given)

    def snapshot(self) -> Snapshot:
        return replace(super().snapshot(), reservation_changes=tuple(self.changes))


def windows_after(site: Site, plan: Plan) -> dict[int, Window]:
    """Return what reservations have after a round, by number: with what is granted, changed and replaced.

    What was replaced is not changed in the same round: its revision is another one then.
    """
    after = {each.id: (each.start, each.end, each.resources) for each in site.reservations if each.state in GRANTED}
    for step in plan.reservations:
        got = from_positions(number - 1 for number in step.resources)
        if step.alternative >= 0:
            after[step.reservation_id] = step.start, step.end, got
        elif step.resources:
            start, end, _ = after[step.reservation_id]
            after[step.reservation_id] = start, end, got
    for change in plan.reservation_changes:
        if change.is_granted and not any(
            step.resources for step in plan.reservations if step.reservation_id == change.reservation_id
        ):
            got = from_positions(number - 1 for number in change.resources)
            after[change.reservation_id] = change.start, change.end, got
    return after


def is_met(place: Placement, window: Window) -> bool:
    start, end, held = window
    return bool(place.resources & held) and place.start < end and start < place.end


def check_windows(after: dict[int, Window]) -> None:
    windows = list(after.values())
    for index, (start, end, held) in enumerate(windows):
        for other_start, other_end, other in windows[index + 1 :]:
            assert not (held & other and start < other_end and other_start < end)


@given(st.integers(0, 10**6))
def test_nobody_meets_a_reservation_and_no_two_reservations_meet(seed: int) -> None:
    site = Among(seed)
    snapshot = site.snapshot()
    this = Round(snapshot)
    plan = this.plan()
    assert not faults_of(snapshot, plan, this.requests)
    after, before = (
        windows_after(site, plan),
        {each.id: (each.start, each.end, each.resources) for each in site.reservations},
    )
    check_windows(after)
    changed = {change.reservation_id for change in plan.reservation_changes}  # its jobs are placed anew then
    frames = {each.frame_id for each in site.reservations}
    flexible = {each.id for each in site.reservations if each.is_flexible}
    types = {job.id: parse_types(job) for job in snapshot.waiting}
    for place in plan.placements:
        own = site.reservation_of(place.job_id)
        if place.job_id in frames:
            continue
        if own and own not in flexible:
            start, end, held = after[own] if own not in changed else before[own]
            assert place.start >= start
            assert place.end <= end - O
            assert not place.resources & ~held
        elif not types[place.job_id].inner and not types[place.job_id].is_besteffort:  # these leave in time
            assert not any(is_met(place, window) for number, window in after.items() if number != own)


@given(st.integers(0, 10**6))
@at_most(50)
def test_what_starts_now_finds_its_resources_free(seed: int) -> None:
    site = Among(seed)
    snapshot = site.snapshot()
    plan = Round(snapshot).plan()
    types = {job.id: parse_types(job) for job in (*snapshot.waiting, *snapshot.running)}
    started = {start.placement.job_id: start.placement.resources for start in plan.started}
    running = {job.id: job.resources for job in snapshot.running if job.state is not JobState.SUSPENDED}
    boxes = {name for job in snapshot.running for name in types[job.id].container_names(job.id)}
    for job_id, resources in started.items():
        for other, held in {**running, **started}.items():
            are_apart = types[job_id].inner != types[other].inner and {types[job_id].inner, types[other].inner} & boxes
            may_share = are_apart or types[job_id].may_share_with(types[other])
            assert other == job_id or may_share or not resources & held


@given(st.integers(0, 10**6))
@example(27).via("a reason tells what is left of a reservation")
@at_most(50)
def test_with_the_memory_of_the_last_round_a_plan_is_the_same_as_from_nothing(seed: int) -> None:
    snapshot = Among(seed).snapshot()
    last = Round(snapshot)
    memory = last.memory(last.plan())
    later = replace(snapshot, now=NOW + random.Random(seed).choice([0, 1, 7, 40]))
    with_memory, from_nothing = Round(later, memory=memory).plan(), Round(later).plan()
    for name in ("placements", "started", "kills", "reservations", "reservation_changes", "reasons"):
        assert getattr(with_memory, name) == getattr(from_nothing, name)


@given(st.integers(0, 10**6))
@at_most(50)
def test_an_urgent_pass_decides_on_reservations_and_their_jobs_as_a_full_plan_does(seed: int) -> None:
    snapshot = Among(seed).snapshot()
    check(urgent(snapshot), Round(snapshot).plan())
