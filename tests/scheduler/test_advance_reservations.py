"""Advance reservations in the planner: whatever the situation, nobody gets what is reserved for others."""

import random
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oar.kao.facts.plan import Placement, Plan
from oar.kao.facts.planned_reservations import ChangeStep, PlannedChange, PlannedReservation, ReservationStep
from oar.kao.facts.request_groups import RequestGroup
from oar.kao.facts.snapshot import Snapshot, StoredPlacement, WaitingJob
from oar.kao.planner.plan_check import faults_of
from oar.kao.planner.schedule import Round
from oar.kao.planner.site.external_proposals import SchedulerProposal
from oar.kao.planner.site.site_extensions import SiteExtensions
from oar.kao.planner.walltime_grants import RequestedWalltime, WalltimeGrants
from oar.lib.facts.grid_engine_times import write_date
from oar.lib.facts.records import Level, Queue
from oar.lib.facts.reservation_states import GRANTED, ReservationEvent
from oar.lib.facts.reservation_states import ReservationState as S
from oar.lib.facts.resource_set import ResourceSet, from_positions, positions
from oar.lib.facts.states import JobState, Reservation, ResourceState
from tests.scheduler.builders import NOW, Cluster

O = 6  # noqa: E741 - the letter of the design: seconds before its end at which jobs of a reservation are over


class Site(Cluster):
    """A cluster with advance reservations; frames have the numbers from 1000 on."""

    def __init__(self, nodes: int = 4, cores: int = 2, **settings: Any) -> None:
        super().__init__(nodes, cores, **settings)
        self.reservations: list[PlannedReservation] = []

    def reserve(
        self, request: str, start: int, end: int, held: ResourceSet | None = None, state: S | None = None, **given: Any
    ) -> "Site":
        """Add a request, or with ``held`` a reservation that is granted; ``state`` as it was in the last round."""
        number, next_job = len(self.reservations) + 1, self._next
        frame = 1000 + number
        space = f"placeholder=ar{number}" if given.get("is_flexible") else "container"
        types = (space, "noop", "state=permissive", "no_quotas", f"ar={number}")
        state = state or (S.ASKED if held is None else S.WAITING)
        if state in (S.RUNNING, S.ERROR, S.EXITED, S.DELETED):
            self.run(held or 0, id=frame, walltime=end - start, since=NOW - start, types=types)
        else:
            kind = Reservation.TO_SCHEDULE if held is None else Reservation.SCHEDULED
            granted = StoredPlacement(10 * frame, start, held) if held is not None else None
            self.job(
                request,
                id=frame,
                walltime=end - start,
                start_time=start,
                types=types,
                reservation=kind,
                granted=granted,
            )
        values: dict[str, Any] = {
            "id": number, "number": number, "frame_id": frame, "state": state, "revision": 1, "queue": "default",
            "start": start, "end": end, "start_window": 0, "time_offset": O, "is_hard": False, "replaces_lost": False,
            "is_flexible": False, "ignores_jobs": False, "idle_limit": 0, "message": "", "resources": held or 0,
        }  # fmt: skip
        self.reservations.append(PlannedReservation(**(values | given)))
        self._next = next_job
        return self

    def repeat(self, request: str, start: int, duration: int, every: int, depth: int, *, skips: bool = False) -> "Site":
        """Add a series: its first occurrences."""
        first = len(self.reservations) + 1
        for index in range(depth):
            begin = start + index * every
            self.reserve(request, begin, begin + duration, together=first, occurrence=index + 1, skips_conflicts=skips)
        return self

    def inside(self, number: int, request: str = "/core=1", walltime: int = 60, **given: Any) -> "Site":
        """Add a job inside a reservation."""
        self.job(request, walltime=walltime, types=(self.entry_type(number), *given.pop("types", ())), **given)
        return self

    def entry_type(self, number: int) -> str:
        """Return the type of the jobs in a reservation."""
        is_flexible = self.reservations[number - 1].is_flexible
        return f"allowed=ar{number}" if is_flexible else f"inner={1000 + number}"

    def reservation_of(self, job_id: int) -> int:
        """Return the number of the reservation that a waiting job is in; 0 = none."""
        job = next(job for job in self.waiting if job.id == job_id)
        return next((each.id for each in self.reservations if self.entry_type(each.id) in job.types), 0)

    def snapshot(self) -> Snapshot:
        return replace(super().snapshot(), reservations=tuple(self.reservations))

    def steps(self) -> dict[int, ReservationStep]:
        return {step.reservation_id: step for step in Round(self.snapshot()).plan().reservations}


def bits(step: ReservationStep) -> ResourceSet:
    return from_positions(number - 1 for number in step.resources)


def test_a_reservation_that_ends_when_another_begins_leaves_no_gap() -> None:
    site = Site(nodes=1).reserve("/core=2", NOW + 100, NOW + 200, held=3).reserve("/core=2", NOW + 200, NOW + 300)
    snapshot = site.snapshot()
    this = Round(snapshot)
    plan = this.plan()
    assert [step.state for step in plan.reservations] == [S.WAITING]
    assert not faults_of(snapshot, plan, this.requests)


def test_the_proposal_of_a_refusal_would_be_granted() -> None:
    site = Site(nodes=1).reserve("/core=2", NOW + 100, NOW + 200, held=3).reserve("/core=1", NOW + 150, NOW + 250)
    refused = site.steps()[2]
    assert refused.state is S.REFUSED
    asked = site.reservations[1]
    again = Site(nodes=1).reserve("/core=2", NOW + 100, NOW + 200, held=3)
    again.reserve("/core=1", refused.proposal, refused.proposal + asked.end - asked.start)
    assert again.steps()[2].state is S.WAITING
    assert refused.proposal == NOW + 200


def test_a_window_lets_the_start_be_later_and_keeps_the_duration() -> None:
    site = Site(nodes=1).reserve("/core=2", NOW + 100, NOW + 200, held=3)
    step = site.reserve("/core=1", NOW + 150, NOW + 250, start_window=100).steps()[2]
    assert (step.state, step.start, step.end) == (S.WAITING, NOW + 200, NOW + 300)


def test_a_start_that_is_past_shortens_the_reservation_unless_it_may_be_later() -> None:
    late = Site(nodes=1).reserve("/core=1", NOW - 2, NOW + 100).steps()[1]
    assert (late.start, late.end) == (NOW, NOW + 100)
    soon = Site(nodes=1).reserve("/core=1", NOW - 2, NOW + 100, start_window=60).steps()[1]
    assert (soon.start, soon.end) == (NOW, NOW + 102)


def test_a_suspended_job_is_in_the_way_for_ever() -> None:
    site = Site(nodes=1).run(1, walltime=10, state=JobState.SUSPENDED)
    assert site.reserve("/core=2", NOW + 5000, NOW + 6000).steps()[1].state is S.REFUSED  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("held", "walltime", "given", "goes_on"),
    [
        (0b01, 500, {}, False),
        (0b01, 98, {}, True),  # it is over before
        (0b10, 500, {}, True),  # it is beside it
        (0b01, 500, {"types": ("besteffort",)}, True),  # it leaves in time
        (0b01, 500, {"types": ("inner=1001",)}, True),  # it is a job of the reservation
    ],
)
def test_a_job_is_not_resumed_into_a_reservation(held: int, walltime: int, given: Any, goes_on: bool) -> None:
    site = Site(nodes=1).reserve("/core=1", NOW + 100, NOW + 200, held=0b01)
    site.run(held, walltime=walltime, state=JobState.RESUMING, **given)
    assert bool(Round(site.snapshot()).plan().resumed) is goes_on


def test_an_administrator_may_ignore_running_jobs() -> None:
    site = Site(nodes=1)
    site.run(1, walltime=1000)
    step = site.reserve("/core=2", NOW + 100, NOW + 200, ignores_jobs=True).steps()[1]
    assert (step.state, step.resources) == (S.WAITING, (1, 2))
    later = Site(nodes=1)
    later.run(1, walltime=1000, id=7)
    begun = later.reserve("/core=2", NOW, NOW + 200, held=3, ignores_jobs=True).steps()[1]
    assert (begun.state, begun.missing) == (S.ERROR, (1,))
    assert begun.message == "reserved host n0 is still used by job 7 (1 of 2 slots)"


def test_besteffort_jobs_leave_before_the_start_and_earlier_with_a_checkpoint() -> None:
    for checkpoint, distance, killed in [(0, O + 1, False), (0, O, True), (50, O + 51, False), (50, O + 50, True)]:
        site = Site(nodes=1)
        site.run(1, walltime=1000, types=("besteffort",), checkpoint=checkpoint, id=7)
        site.reserve("/core=2", NOW + distance, NOW + 900, held=3)
        plan = Round(site.snapshot()).plan()
        assert [kill.job_id for kill in plan.kills] == ([7] if killed else [])


def test_jobs_inside_end_before_the_reservation_and_quotas_do_not_count() -> None:
    site = Site(nodes=1).reserve("/core=2", NOW - 10, NOW + 100, held=3, state=S.RUNNING)
    site.inside(1, walltime=100 - O, id=1).inside(1, walltime=101 - O, id=2)
    plan = Round(site.snapshot()).plan()
    assert [start.placement.job_id for start in plan.started] == [1]


def test_an_idle_reservation_ends() -> None:
    idle = Site(nodes=1).reserve("/core=2", NOW - 100, NOW + 100, held=3, state=S.RUNNING, idle_limit=100)
    busy = Site(nodes=1).reserve(
        "/core=2", NOW - 100, NOW + 100, held=3, state=S.RUNNING, idle_limit=100, live_jobs=(5,)
    )
    assert idle.steps()[1].state is S.EXITED
    assert busy.steps() == {}


def test_a_series_is_refused_with_its_first_conflict() -> None:
    site = Site(nodes=1).reserve("/core=2", NOW + 250, NOW + 300, held=3)
    steps = site.repeat("/core=1", NOW + 100, 60, 100, 3).steps()
    assert [steps[number].state for number in (2, 3, 4)] == [S.REFUSED] * 3
    (message,) = {steps[number].message for number in (2, 3, 4)}
    assert message.startswith(f"occurrence 2, {write_date(NOW + 200)}: only 0 of 2 suitable slots are free until")


def test_a_series_may_skip_its_conflicts() -> None:
    site = Site(nodes=1).reserve("/core=2", NOW + 250, NOW + 300, held=3)
    steps = site.repeat("/core=1", NOW + 100, 60, 100, 3, skips=True).steps()
    assert [steps[number].state for number in (2, 3, 4)] == [S.WAITING, S.REFUSED, S.WAITING]
    assert steps[3].notes[0].event is ReservationEvent.SKIPPED


def test_a_later_occurrence_is_skipped() -> None:
    site = Site(nodes=1).reserve("/core=2", NOW + 50, NOW + 300, held=3)
    step = site.reserve("/core=1", NOW + 100, NOW + 200, occurrence=5).steps()[2]
    assert (step.state, step.notes[0].event) == (S.REFUSED, ReservationEvent.SKIPPED)


def test_occurrences_that_overlap_do_not_share_resources() -> None:
    fits = Site(nodes=1).repeat("/core=1", NOW + 100, 150, 100, 3).steps()
    assert [fits[number].resources for number in (1, 2, 3)] == [(1,), (2,), (1,)]
    too_much = Site(nodes=1).repeat("/core=1", NOW + 100, 250, 100, 3).steps()
    assert {too_much[number].state for number in (1, 2, 3)} == {S.REFUSED}


def lost(state: ResourceState = ResourceState.SUSPECTED, since: int = 300, **given: Any) -> Site:
    """A reservation of two cores on the first node, which is lost; the second node is free."""
    site = Site(nodes=2)
    site.state(state, 0)
    given = {"replaces_lost": True, "missing": (1, 2), "missing_since": {1: NOW - since, 2: NOW - since}, **given}
    return site.reserve("/core=2", NOW + 500, NOW + 900, held=3, state=S.WARNING, **given)


def test_lost_resources_are_replaced_when_their_time_is_over() -> None:
    step = lost(groups=(RequestGroup(0, (Level("core", 2),)),)).steps()[1]
    assert (step.notes[0].event, step.resources) == (ReservationEvent.REPLACED, (3, 4))
    assert step.notes[0].message == "resources 1, 2 are replaced by 3, 4"
    groups = (RequestGroup(0, (Level("core", 2),)),)
    assert not any(step.resources for step in lost(since=299, groups=groups).steps().values())
    assert Round(lost(since=299, groups=groups).snapshot()).plan().reservation_dates[0] == NOW + 1
    assert lost(ResourceState.DEAD, since=0, groups=groups).steps()[1].resources == (3, 4)
    assert not any(step.resources for step in lost(groups=groups, replaces_lost=False).steps().values())


def test_what_is_kept_stays_and_nothing_is_replaced_that_jobs_use() -> None:
    groups = (RequestGroup(0, (Level("core", 2),)),)
    site = Site(nodes=2, cores=2)
    site.resources = replace(
        site.resources, states=(ResourceState.ALIVE, ResourceState.SUSPECTED, *site.resources.states[2:])
    )
    given = {"replaces_lost": True, "missing": (2,), "missing_since": {2: NOW - 60}, "groups": groups}
    site.reserve("/core=2", NOW - 100, NOW + 900, held=3, state=S.ERROR, used=1, **given)
    assert site.steps()[1].resources == (1, 3)


GROUPS = (RequestGroup(0, (Level("core", 2),)),)


def change(site: Site, **given: Any) -> ChangeStep:
    """Return the answer to a change of the first reservation."""
    snapshot = replace(site.snapshot(), reservation_changes=(PlannedChange(1, 1, **given),))
    (step,) = Round(snapshot).plan().reservation_changes
    return step


def test_a_reservation_to_come_is_moved_to_its_own_resources_or_to_others() -> None:
    site = Site(nodes=2).reserve("/core=2", NOW + 100, NOW + 200, held=3, groups=GROUPS)
    moved = change(site, start=NOW + 50, end=NOW + 250)
    assert (moved.is_granted, moved.start, moved.end, moved.resources) == (True, NOW + 50, NOW + 250, (1, 2))
    site.reserve("/core=2", NOW + 200, NOW + 300, held=3)
    assert change(site, end=NOW + 250).resources == (3, 4)
    site.reserve("/core=2", NOW + 200, NOW + 300, held=12)
    refused = change(site, start=NOW + 150, end=NOW + 250)
    assert (refused.is_granted, refused.proposal) == (False, NOW + 300)


def test_the_latest_end_that_is_proposed_would_be_granted_and_no_later_one() -> None:
    site = Site(nodes=2).reserve("/core=2", NOW + 100, NOW + 200, held=3, groups=GROUPS)
    site.reserve("/core=2", NOW + 250, NOW + 400, held=3).reserve("/core=1", NOW + 300, NOW + 400, held=4)
    more = {"alternatives": ((RequestGroup(0, (Level("core", 3),)),),)}
    for wanted, latest in (({}, NOW + 300), (more, NOW + 250)):
        refused = change(site, end=NOW + 350, **wanted)
        assert (refused.is_granted, refused.proposal) == (False, latest)
        assert change(site, end=latest, **wanted).is_granted
        assert not change(site, end=latest + 1, **wanted).is_granted
    assert change(site, start=NOW + 200, end=NOW + 330, **more).proposal == NOW + 400


def test_no_end_is_proposed_that_would_cut_a_job_or_is_the_present_one() -> None:
    site = Site(nodes=2).reserve("/core=1", NOW - 10, NOW + 200, held=1, state=S.RUNNING, groups=GROUPS, used=1)
    site.reserve("/core=3", NOW + 100, NOW + 300, held=14).run(1, walltime=150, id=5, types=("inner=1001",))
    more = ((RequestGroup(0, (Level("core", 2),)),),)
    assert change(site, end=NOW + 250, alternatives=more).proposal == 0
    waits = Site(nodes=1).reserve("/core=2", NOW + 100, NOW + 200, held=3, groups=GROUPS)
    waits.reserve("/core=2", NOW + 200, NOW + 300, held=3)
    assert change(waits, end=NOW + 250).proposal == 0


def test_a_running_reservation_keeps_its_resources_and_its_start() -> None:
    site = Site(nodes=2).reserve("/core=2", NOW - 10, NOW + 100, held=3, state=S.RUNNING, groups=GROUPS)
    assert change(site, end=NOW + 500).is_granted
    assert change(site, start=NOW + 10).message == "the start time of a running advance reservation can't be changed"
    site.reserve("/core=1", NOW + 200, NOW + 300, held=1)
    refused = change(site, end=NOW + 500)
    assert (refused.is_granted, refused.proposal) == (False, NOW + 200)
    assert change(site, end=NOW + 200).is_granted


def test_an_end_is_not_moved_before_the_jobs_inside_unless_forced() -> None:
    site = Site(nodes=1).reserve("/core=2", NOW - 10, NOW + 100, held=3, state=S.RUNNING, groups=GROUPS)
    site.run(1, walltime=60, id=5, types=("inner=1001",))
    site.inside(1, walltime=80, id=6)
    refused = change(site, end=NOW + 50)
    assert (refused.message.split(" until")[0], refused.proposal) == ("job 5 runs", NOW + 60 + O)
    assert change(site, end=NOW + 60 + O).ended_jobs == (6,)
    assert change(site, end=NOW + 50, is_forced=True).is_granted


# -- walltimes that are to grow ---------------------------------------------------------------------------------------


def growth(site: Site, job: int, seconds: int = 5000, **given: Any) -> int:
    """Return by how much the walltime of a running job may grow, when more is asked and nobody waits."""
    request = RequestedWalltime(job, seconds, requested_at=NOW, is_forced=True, delays_next_jobs=True, **given)
    return WalltimeGrants(site.snapshot(), [], {}).decide(request).seconds


def test_a_job_inside_grows_up_to_the_time_offset_before_the_end() -> None:
    site = Site(nodes=1).reserve("/core=2", NOW - 10, NOW + 300, held=3, state=S.RUNNING)
    site.run(1, walltime=100, id=5, types=("inner=1001",))
    assert growth(site, 5) == 200 - O
    assert growth(site, 5, is_whole=True) == 0


def test_a_job_outside_never_grows_into_a_reservation() -> None:
    site = Site(nodes=1).reserve("/core=1", NOW + 300, NOW + 500, held=1)
    site.run(1, walltime=100, id=5).run(2, walltime=100, id=6)
    assert (growth(site, 5), growth(site, 6)) == (200 - site.settings.security_time, 5000)
    begun = Site(nodes=1).reserve("/core=2", NOW - 10, NOW + 300, held=3, state=S.ERROR, ignores_jobs=True)
    begun.run(1, walltime=100, id=5)
    assert growth(begun, 5) == 0


def test_a_job_of_a_flexible_reservation_grows_over_it_and_not_into_another_one() -> None:
    site = Site(nodes=1).reserve("/core=2", NOW + 200, NOW + 300, held=3, is_flexible=True)
    site.reserve("/core=2", NOW + 900, NOW + 1000, held=3)
    site.run(1, walltime=100, id=5, types=("allowed=ar1",))
    assert growth(site, 5) == 800 - site.settings.security_time


def test_a_frame_never_grows() -> None:
    site = Site(nodes=1).reserve("/core=2", NOW - 10, NOW + 300, held=3, state=S.RUNNING)
    assert growth(site, 1001) == 0


@given(st.integers(0, 10**6))
def test_a_refused_change_of_resources_lets_nobody_else_start(seed: int) -> None:
    site, rng = random_site(seed), random.Random(seed)
    granted = [each for each in site.reservations if each.state in GRANTED]
    if not granted:
        return
    asked = PlannedChange(1, rng.choice(granted).id, alternatives=random_alternatives(rng))
    without = Round(site.snapshot()).plan()
    plan = Round(replace(site.snapshot(), reservation_changes=(asked,))).plan()
    (step,) = plan.reservation_changes
    if not step.is_granted:
        assert replace(plan, reservation_changes=()) == without


def random_alternatives(rng: random.Random) -> tuple[tuple[RequestGroup, ...], ...]:
    """Return what somebody may want in the place of what he has."""
    levels = [(Level("core", rng.randint(1, 6)),), (Level("node", rng.randint(1, 3)),)]
    return tuple((RequestGroup(0, each),) for each in rng.sample(levels, rng.randint(1, 2)))


@given(st.integers(0, 10**6))
def test_a_change_of_a_running_reservation_keeps_what_its_jobs_hold(seed: int) -> None:
    rng = random.Random(seed)
    held, used = rng.sample(range(1, 64), 1)[0], rng.randint(0, 63)
    site = Site(nodes=3).reserve("/core=1", NOW - 10, NOW + 300, held=held, state=S.RUNNING, used=used & held)
    site.reserve("/core=1", NOW + 100, NOW + 200, held=rng.randint(0, 63) & ~held or None)
    asked = PlannedChange(1, 1, alternatives=random_alternatives(rng))
    snapshot = replace(site.snapshot(), reservation_changes=(asked,))
    (step,) = Round(snapshot).plan().reservation_changes
    if step.is_granted:
        got = from_positions(number - 1 for number in step.resources)
        assert not used & held & ~got
        assert not got & site.reservations[1].resources


@given(st.integers(0, 10**6))
def test_a_granted_change_takes_nothing_from_others(seed: int) -> None:
    site, rng = random_site(seed), random.Random(seed)
    granted = [each for each in site.reservations if each.state in GRANTED]
    if not granted:
        return
    chosen = rng.choice(granted)
    wanted = random_alternatives(rng) if rng.random() < 0.5 else ()
    asked = PlannedChange(1, chosen.id, end=NOW + rng.randint(1, 400), alternatives=wanted)
    snapshot = replace(site.snapshot(), reservation_changes=(asked,))
    this = Round(snapshot)
    plan = this.plan()
    (step,) = plan.reservation_changes
    after = windows(site, plan)
    if step.is_granted:
        after[chosen.id] = step.start, step.end, from_positions(number - 1 for number in step.resources)
    spans = list(after.values())
    for index, (start, end, held) in enumerate(spans):
        for other_start, other_end, other in spans[index + 1 :]:
            assert not (start < other_end and other_start < end and held & other)
    frames = {each.frame_id for each in site.reservations}
    for place in plan.placements:
        if place.job_id not in frames and step.is_granted and site.reservation_of(place.job_id) != chosen.id:
            start, end, held = after[chosen.id]
            assert not (place.start < end and start < place.end and place.resources & held)


# -- whatever the situation -------------------------------------------------------------------------------------------


def random_site(seed: int) -> Site:
    """Return a site with running jobs, reservations of all states, requests and jobs inside and outside."""
    rng = random.Random(seed)
    site = Site(nodes=rng.randint(1, 4), cores=2, jobs_before_reservations=rng.random() < 0.3)
    everything = site.resources.everything
    free_now = everything
    for _ in range(rng.randint(0, 2)):
        held = free_now & rng.getrandbits(8)
        if held:
            free_now &= ~held
            site.run(held, walltime=rng.randint(10, 300), types=rng.choice([(), (), ("besteffort",)]))
    taken: list[tuple[int, int, ResourceSet]] = [(NOW - 1000, NOW + 400, everything & ~free_now)]
    for _ in range(rng.randint(0, 3)):
        start = NOW + rng.randint(-50, 200)
        end = max(start + rng.randint(20, 200), NOW + 7)
        held = everything & rng.getrandbits(8)
        for other_start, other_end, other in taken:
            held &= ~other if start < other_end and other_start < end else everything
        if held:
            taken.append((start, end, held))
            state = rng.choice([S.RUNNING, S.ERROR]) if start < NOW else rng.choice([S.WAITING, S.WARNING])
            flags = {"is_hard": rng.random() < 0.3, "is_flexible": rng.random() < 0.3}
            site.reserve("/core=1", start, end, held=held, state=state, **flags)
            number = len(site.reservations)
            beside = held & rng.getrandbits(8)
            if beside and start < NOW and flags["is_flexible"]:  # a job of it that runs
                site.run(beside, walltime=rng.randint(5, end - NOW), types=(site.entry_type(number),))
            for _ in range(rng.randint(0, 3)):
                site.inside(len(site.reservations), f"/core={rng.randint(1, 3)}", rng.randint(5, 150))
    for _ in range(rng.randint(0, 4)):
        start = NOW + rng.randint(0, 200)
        site.reserve(
            f"/core={rng.randint(1, 8)}", start, start + rng.randint(7, 200), start_window=rng.choice([0, 0, 90])
        )
    if rng.random() < 0.5:
        every, duration = rng.randint(20, 150), rng.randint(7, 200)  # they may overlap
        request, skips = f"/core={rng.randint(1, 4)}", rng.random() < 0.5
        site.repeat(request, NOW + rng.randint(0, 200), duration, every, rng.randint(2, 4), skips=skips)
    for _ in range(rng.randint(0, 4)):
        site.job(
            f"/core={rng.randint(1, 4)}", walltime=rng.randint(5, 300), types=rng.choice([(), (), ("besteffort",)])
        )
    if rng.random() < 0.4:
        site.state(rng.choice([ResourceState.ABSENT, ResourceState.SUSPECTED]), 0)
    return site


def windows(site: Site, plan: Plan) -> dict[int, tuple[int, int, ResourceSet]]:
    """Return start, end and resources of all reservations after a round."""
    after = {each.id: (each.start, each.end, each.resources) for each in site.reservations if each.state in GRANTED}
    for step in plan.reservations:
        if step.alternative >= 0:
            after[step.reservation_id] = step.start, step.end, bits(step)
    return after


@given(st.integers(0, 10**6))
def test_two_reservations_never_have_a_resource_at_the_same_time(seed: int) -> None:
    site = random_site(seed)
    after = list(windows(site, Round(site.snapshot()).plan()).values())
    for index, (start, end, held) in enumerate(after):
        for other_start, other_end, other in after[index + 1 :]:
            assert not (start < other_end and other_start < end and held & other)


@given(st.integers(0, 10**6))
def test_of_a_new_series_all_is_granted_or_nothing_unless_it_skips_conflicts(seed: int) -> None:
    site = random_site(seed)
    steps = site.steps()
    first = [each for each in site.reservations if each.together]
    states = {steps[each.id].state for each in first}
    events = {each.id: steps[each.id].notes[0].event for each in first}
    granted = [each for each in first if steps[each.id].state is not S.REFUSED]
    if first and first[0].skips_conflicts and granted:
        assert ReservationEvent.REFUSED not in events.values()
    else:
        assert states <= {S.REFUSED} or len(granted) == len(first)
        assert ReservationEvent.SKIPPED not in events.values()


@given(st.integers(0, 10**6))
def test_a_series_that_is_refused_changes_nothing_for_others(seed: int) -> None:
    site = random_site(seed)
    steps = site.steps()
    refused = [each for each in site.reservations if each.together and steps[each.id].state is S.REFUSED]
    if not refused or any(steps[each.id].notes[0].event is not ReservationEvent.REFUSED for each in refused):
        return
    without = random_site(seed)
    without.reservations = [each for each in without.reservations if not each.together]
    frames = {each.frame_id for each in refused}
    without.waiting = [job for job in without.waiting if job.id not in frames]
    assert without.steps() == {number: step for number, step in steps.items() if number not in {r.id for r in refused}}


@given(st.integers(0, 10**6))
def test_jobs_outside_keep_away_and_jobs_inside_stay_inside(seed: int) -> None:
    site = random_site(seed)
    snapshot = site.snapshot()
    this = Round(snapshot)
    plan = this.plan()
    assert not faults_of(snapshot, plan, this.requests)
    after = windows(site, plan)
    frames = {each.frame_id for each in site.reservations}
    present = from_positions(
        bit for bit in positions(snapshot.resources.everything) if snapshot.resources.states[bit] is ResourceState.ALIVE
    )
    for place in plan.placements:
        if place.job_id in frames:
            continue
        own = site.reservation_of(place.job_id)
        if own and not site.reservations[own - 1].is_flexible:
            start, end, held = after[own]
            assert start <= place.start
            assert place.end <= end - O
            assert not place.resources & ~(held & present)
        else:
            for number, (start, end, held) in after.items():
                assert number == own or not (place.start < end and start < place.end and place.resources & held)


@given(st.integers(0, 10**6))
def test_a_hard_reservation_in_error_starts_nothing(seed: int) -> None:
    site = random_site(seed)
    plan = Round(site.snapshot()).plan()
    missing = {step.reservation_id: step.missing for step in plan.reservations}
    hard = [each for each in site.reservations if each.is_hard and not each.is_flexible]
    closed = {each.id for each in hard if missing.get(each.id)}
    assert not [start for start in plan.started if site.reservation_of(start.placement.job_id) in closed]


def test_requests_come_behind_the_jobs_of_their_queue_where_the_site_wants_it() -> None:
    for jobs_first, state in ((False, S.WAITING), (True, S.REFUSED)):
        site = Site(nodes=1, jobs_before_reservations=jobs_first).job("/core=2", walltime=1000, id=1)
        site.reserve("/core=1", NOW + 100, NOW + 200)  # type: ignore[attr-defined]
        plan = Round(site.snapshot()).plan()
        (step,) = plan.reservations
        assert (step.state, [start.placement.job_id for start in plan.started]) == (state, [1] if jobs_first else [])
        if jobs_first:
            assert step.message.endswith("(job 1)")
            assert step.proposal == NOW + 1000 + site.settings.security_time


def test_requests_in_other_queues_do_not_wait_for_the_jobs_of_a_lower_one() -> None:
    site = Site(nodes=1, jobs_before_reservations=True).job("/core=2", walltime=1000, id=1)
    for queue, state in (("admin", S.WAITING), ("default", S.REFUSED), ("gone", S.REFUSED)):
        site.reserve("/core=1", NOW + 100, NOW + 200, queue=queue)  # type: ignore[attr-defined]
        assert site.steps()[1].state is state, queue  # type: ignore[attr-defined]
        site.reservations.pop()  # type: ignore[attr-defined]
        site.waiting.pop()


def test_a_change_of_a_reservation_that_is_gone_is_answered() -> None:
    for jobs_first in (False, True):
        snapshot = Site(jobs_before_reservations=jobs_first).snapshot()
        (step,) = Round(replace(snapshot, reservation_changes=(PlannedChange(1, 77),))).plan().reservation_changes
        assert (step.is_granted, step.message) == (False, "the advance reservation has ended")


# -- schedulers of the site ------------------------------------------------------------------------------------------


class Elsewhere:
    """An external scheduler that places the first job where a test says."""

    def __init__(self, start: int, walltime: int, resources: ResourceSet) -> None:
        self._place = Placement(1, 10, start, walltime, resources)

    def plans(self, queue: Queue) -> bool:
        return True

    def plan(self, queue: Queue, jobs: Sequence[WaitingJob], placed: Collection[Placement]) -> SchedulerProposal:
        return SchedulerProposal("elsewhere", (self._place,))


def test_what_another_scheduler_places_inside_lies_in_the_reservation_and_outside_beside_it() -> None:
    last = NOW + 300 - O
    for start, walltime, resources, inside, beside in (
        (NOW, 60, 1, True, False),
        (last - 60, 60, 1, True, False),
        (last - 59, 60, 1, False, False),
        (NOW, 60, 4, False, True),
        (NOW, 60, 3, True, False),
        (NOW, 60, 5, False, False),
        (NOW + 400, 60, 1, False, True),
    ):
        for is_inside, accepted in ((True, inside), (False, beside)):
            site = Site(nodes=2).reserve("/core=2", NOW - 10, NOW + 300, held=3, state=S.RUNNING)
            site.job(walltime=walltime, types=("inner=1001",) if is_inside else (), id=1)
            planning = Round(site.snapshot(), site=SiteExtensions(external=Elsewhere(start, walltime, resources)))
            placed = {place.job_id for place in planning.plan().placements}
            assert (1 in placed) is accepted, (start - NOW, walltime, resources, is_inside)


# -- suspended jobs, energy -------------------------------------------------------------------------------------------


def test_a_job_goes_on_only_if_it_is_over_before_a_reservation_begins() -> None:
    for walltime, resumed in ((98, (7,)), (100, ()), (1000, ())):
        site = Site(nodes=1).reserve("/core=1", NOW + 100, NOW + 200, held=1)
        site.run(1, walltime=walltime, id=7, state=JobState.RESUMING)
        site.run(2, walltime=1000, id=8, state=JobState.RESUMING)
        assert Round(site.snapshot()).plan().resumed == (*resumed, 8)


def test_a_job_that_sleeps_on_a_reservation_lends_its_cores_and_waits_until_it_is_over() -> None:
    for state in (JobState.SUSPENDED, JobState.RESUMING):
        site = Site(nodes=1, suspended_types=("default",))
        site.run(3, walltime=1000, id=7, state=state)
        site.reserve("/core=2", NOW, NOW + 200, held=3).inside(1, "/core=2", id=1)
        plan = Round(site.snapshot()).plan()
        assert ([step.state for step in plan.reservations], plan.resumed) == ([S.RUNNING], ())


def test_the_slots_of_a_sleeping_job_inside_serve_jobs_inside_only() -> None:
    site = Site(nodes=1, suspended_types=("default",))
    site.reserve("/core=2", NOW - 10, NOW + 300, held=3, state=S.RUNNING)
    site.run(3, walltime=100, id=7, state=JobState.SUSPENDED, types=("inner=1001",))
    site.job("/core=1", walltime=10, id=1).inside(1, "/core=2", 60, id=2)  # type: ignore[attr-defined]
    assert [start.placement.job_id for start in Round(site.snapshot()).plan().started] == [2]
    inside = Site(nodes=1).reserve("/core=2", NOW - 10, NOW + 300, held=3, state=S.RUNNING)
    inside.run(3, walltime=100, id=7, state=JobState.RESUMING, types=("inner=1001",))
    assert Round(inside.snapshot()).plan().resumed == (7,)


def test_there_is_a_round_when_besteffort_jobs_have_to_leave_and_when_nodes_are_to_be_woken() -> None:
    for checkpoint, asked, date in ((0, 0, 900 - O), (50, 0, 850 - O), (2000, NOW - 500, 1501)):
        site = Site(nodes=1).run(1, types=("besteffort",), checkpoint=checkpoint, checkpoint_asked=asked)
        site.reserve("/core=1", NOW + 900, NOW + 2000)  # type: ignore[attr-defined]
        assert Round(site.snapshot()).plan().reservation_dates[0] == NOW + min(date, 900)
    assert Round(sleeping(NOW + 900).snapshot()).plan().reservation_dates[0] == NOW + 300


def sleeping(start: int, state: S = S.WAITING, **settings: Any) -> Site:
    """A node that sleeps, and one that does not, both of one core; a reservation of both."""
    site = Site(nodes=2, cores=1, may_wake=True, wakeup_time=600, **settings)
    site.state(ResourceState.ABSENT, 0, upto=NOW + 10**6)
    return site.reserve("/core=2", start, start + 5000, held=3, state=state)


def test_sleeping_nodes_are_woken_in_time_and_not_missing_before() -> None:
    for distance, woken in ((601, ()), (600, ("n0",))):
        site = sleeping(NOW + distance)
        plan = Round(site.snapshot()).plan()
        assert (plan.wake, plan.reservations) == (woken, ())
    begun = sleeping(NOW).steps()[1]
    assert (begun.state, begun.missing) == (S.ERROR, (1,))
    assert begun.message == "reserved host n0 is Absent"
    assert Round(sleeping(NOW - 700, S.ERROR).snapshot()).plan().wake == ("n0",)  # the first time it did not come


def test_nodes_that_sleep_for_ever_are_missing() -> None:
    site = Site(nodes=1, cores=1, may_wake=True, wakeup_time=600)
    site.state(ResourceState.ABSENT, 0, upto=NOW - 1)
    assert site.reserve("/core=1", NOW + 100, NOW + 200, held=1).steps()[1].state is S.WARNING


def test_nodes_of_a_reservation_that_runs_or_is_near_are_not_halted() -> None:
    for start, state, halted in (
        (NOW - 10, S.RUNNING, ()),
        (NOW - 10, S.ERROR, ()),
        (NOW + 50, S.WAITING, ()),
        (NOW + 5000, S.WAITING, ("n0",)),
    ):
        site = Site(nodes=1, cores=1, idle_time=60, sleep_time=60)
        site.state(ResourceState.ALIVE, 0, upto=NOW + 10**6)
        site.reserve("/core=1", start, start + 8000, held=1, state=state)
        assert Round(site.snapshot()).plan().halt == halted
