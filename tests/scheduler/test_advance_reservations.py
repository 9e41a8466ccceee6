"""Advance reservations in the planner: whatever the situation, nobody gets what is reserved for others."""

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

import pytest

from oar.kao.facts.plan import ChangeStep, Placement, ReservationStep
from oar.kao.facts.snapshot import (
    PlannedChange,
    PlannedReservation,
    RequestGroup,
    Snapshot,
    StoredPlacement,
    WaitingJob,
)
from oar.kao.planner.placement.site_extensions import SchedulerProposal, SiteExtensions
from oar.kao.planner.plan_check import faults_of
from oar.kao.planner.schedule import Round
from oar.kao.planner.walltime_grants import RequestedWalltime, WalltimeGrants
from oar.lib.base.grid_engine_times import write_date
from oar.lib.base.resource_set import ResourceSet, from_positions
from oar.lib.jobs.records import Level, Queue
from oar.lib.jobs.states import JobState, Reservation
from oar.lib.nodes.states import ResourceState
from oar.lib.reservations.states import ReservationEvent
from oar.lib.reservations.states import ReservationState as S
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
        return entry_type(self.reservations[number - 1])

    def reservation_of(self, job_id: int) -> int:
        """Return the number of the reservation that a waiting job is in; 0 = none."""
        job = next(job for job in self.waiting if job.id == job_id)
        return next((each.id for each in self.reservations if self.entry_type(each.id) in job.types), 0)

    def snapshot(self) -> Snapshot:
        return replace(super().snapshot(), reservations=tuple(map(self._with_jobs, self.reservations)))

    def _with_jobs(self, reservation: PlannedReservation) -> PlannedReservation:
        """Return a reservation with the jobs that are in it."""
        entry = entry_type(reservation)
        jobs = (job.id for job in (*self.running, *self.waiting) if entry in job.types)
        return replace(reservation, live_jobs=(*reservation.live_jobs, *jobs))

    def steps(self) -> dict[int, ReservationStep]:
        return {step.reservation_id: step for step in Round(self.snapshot()).plan().reservations}


def entry_type(reservation: PlannedReservation) -> str:
    """Return the type of the jobs in a reservation."""
    return f"allowed=ar{reservation.id}" if reservation.is_flexible else f"inner={reservation.frame_id}"


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


def test_jobs_inside_end_before_the_reservation() -> None:
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
    site = Site(nodes=2).reserve("/core=1", NOW - 10, NOW + 200, held=1, state=S.RUNNING, groups=GROUPS)
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


def test_a_reservation_in_error_is_prolonged_with_its_dead_node_as_far_as_nobody_else_has_that() -> None:
    site = Site(nodes=2).reserve("/core=4", NOW - 10, NOW + 100, held=15, state=S.ERROR, groups=GROUPS)
    site.state(ResourceState.DEAD, 0)
    longer = change(site, end=NOW + 500)
    assert (longer.is_granted, longer.end, longer.resources) == (True, NOW + 500, (1, 2, 3, 4))
    site.reserve("/core=1", NOW + 200, NOW + 300, held=1)
    refused = change(site, end=NOW + 500)
    assert (refused.is_granted, refused.proposal) == (False, NOW + 200)
    assert refused.message.endswith(" (advance reservation 2)")
    assert change(site, end=NOW + 200).is_granted


@pytest.mark.parametrize("given", [{"end": NOW + 400}, {"start": NOW + 200}, {"end": NOW + 600}])
def test_a_reservation_to_come_is_moved_with_its_dead_node_if_there_is_no_other_place(given: dict[str, int]) -> None:
    site = Site(nodes=2).reserve("/core=2", NOW + 100, NOW + 500, held=3, state=S.WARNING, groups=GROUPS)
    site.state(ResourceState.DEAD, 0)
    assert change(site, **given).resources == (3, 4)
    site.reserve("/core=2", NOW + 100, NOW + 700, held=12)
    assert (change(site, **given).is_granted, change(site, **given).resources) == (True, (1, 2))
    site.reserve("/core=1", NOW + 550, NOW + 600, held=1)
    refused = change(site, end=NOW + 600)
    assert (refused.is_granted, refused.proposal) == (False, NOW + 550)
    assert change(site, end=NOW + 550).is_granted


def test_a_change_of_resources_gives_up_a_dead_node() -> None:
    site = Site(nodes=3).reserve("/core=4", NOW - 10, NOW + 500, held=15, state=S.ERROR, groups=GROUPS)
    site.state(ResourceState.DEAD, 0)
    wish = {"alternatives": ((RequestGroup(0, (Level("core", 3),)),),)}
    assert change(site, **wish).resources == (3, 4, 5)


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
    for checkpoint, asked, date in ((0, 0, 900 - O), (50, 0, 850 - O), (2000, NOW - 500, 900 - O)):
        site = Site(nodes=1).run(1, types=("besteffort",), checkpoint=checkpoint, checkpoint_asked=asked)
        site.reserve("/core=1", NOW + 900, NOW + 2000)  # type: ignore[attr-defined]
        assert Round(site.snapshot()).plan().reservation_dates[0] == NOW + date
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
