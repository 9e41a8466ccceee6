"""Besteffort jobs leave in time for advance reservations: the resources are clean when one begins."""

import pytest

from oar.kao.facts.plan import KillAction
from oar.kao.planner.schedule import Round
from oar.lib.reservations.states import ReservationState as S
from tests.scheduler.builders import NOW
from tests.scheduler.test_advance_reservations import O, Site


def test_besteffort_jobs_leave_before_the_start_and_earlier_with_a_checkpoint() -> None:
    for checkpoint, distance, killed in [(0, O + 1, False), (0, O, True), (50, O + 51, False), (50, O + 50, True)]:
        site = Site(nodes=1)
        site.run(1, walltime=1000, types=("besteffort",), checkpoint=checkpoint, id=7)
        site.reserve("/core=2", NOW + distance, NOW + 900, held=3)
        plan = Round(site.snapshot()).plan()
        assert [kill.job_id for kill in plan.kills] == ([7] if killed else [])


def test_a_besteffort_job_that_writes_its_checkpoint_too_long_ends_in_time_all_the_same() -> None:
    site = Site(nodes=1)
    site.run(1, walltime=1000, types=("besteffort",), checkpoint=50, id=7)
    site.reserve("/core=2", NOW + 60, NOW + 900, held=3)
    plan = Round(site.snapshot()).plan()
    assert (plan.kills, plan.reservation_dates[:2]) == ((), (NOW + 60 - O - 50, NOW + 60 - O))
    late = Site(nodes=1)
    late.run(1, walltime=1000, types=("besteffort",), checkpoint=50, checkpoint_asked=NOW - 10, id=7)
    late.reserve("/core=2", NOW + O, NOW + 900, held=3)
    assert [kill.action for kill in Round(late.snapshot()).plan().kills] == [KillAction.CHECKPOINT_TIMEOUT]


@pytest.mark.parametrize("checkpoint", [0, 600])
def test_besteffort_jobs_leave_a_reservation_that_has_begun_but_for_its_own(checkpoint: int) -> None:
    site = Site(nodes=2)
    site.reserve("/core=2", NOW - 1, NOW + 900, held=7, state=S.ERROR)
    site.run(1, walltime=2000, types=("besteffort",), checkpoint=checkpoint, id=7)
    site.run(2, walltime=100, types=("besteffort", "inner=1001"), id=8)
    site.run(8, walltime=2000, types=("besteffort",), id=9)
    kills = Round(site.snapshot()).plan().kills
    assert [(kill.job_id, kill.action) for kill in kills] == [(7, KillAction.KILL)]


def test_a_besteffort_job_inside_is_over_in_time_though_a_short_gap_is_enough_for_it() -> None:
    for end, starts in ((NOW + 400 + O, True), (NOW + 399 + O, False)):
        site = Site(nodes=1).reserve("/core=2", NOW - 10, end, held=3, state=S.RUNNING)
        site.inside(1, "/core=2", 400, types=("besteffort",), id=5, queue="besteffort")
        plan = Round(site.snapshot()).plan()
        assert bool(plan.started) == starts
        if not starts:
            assert plan.reasons[5].text.startswith("longer than the remaining time of the advance reservation 1")


def test_a_besteffort_job_inside_begins_before_another_one_for_which_it_gives_way() -> None:
    site = Site(nodes=1, besteffort_duration=50)
    site.reserve("/core=2", NOW - 10, NOW + 500, held=3, state=S.RUNNING).run(1, walltime=60, types=("inner=1001",))
    site.inside(1, "/core=2", 100, id=5).inside(1, "/core=1", 300, types=("besteffort",), id=6, queue="besteffort")
    assert [start.placement.job_id for start in Round(site.snapshot()).plan().started] == [6]
