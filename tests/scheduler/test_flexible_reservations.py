"""Flexible advance reservations in the planner: their jobs may be beside them, before them and after them."""

from typing import Any

from oar.kao.planner.schedule import Round
from oar.lib.accounts.quota_records import QuotaPeriod, QuotaRule, Quotas
from oar.lib.reservations.states import ReservationState as S
from tests.scheduler.builders import NOW
from tests.scheduler.test_advance_reservations import GROUPS, Site, change
from tests.scheduler.test_reservation_replacement import lost


def flexible(request: str, start: int, end: int, **given: Any) -> Site:
    """A node of two cores, with a flexible reservation."""
    return Site(nodes=1).reserve(request, start, end, is_flexible=True, **given)


def test_jobs_of_a_flexible_reservation_begin_before_it_and_end_after_it() -> None:
    site = flexible("/core=2", NOW + 100, NOW + 200, held=3).inside(1, "/core=2", 500, id=1)
    site.job("/core=1", walltime=101, id=2)
    plan = Round(site.snapshot()).plan()
    assert [start.placement.job_id for start in plan.started] == [1]
    assert {place.job_id: place.start for place in plan.placements}[2] > NOW + 500


def test_jobs_of_a_flexible_reservation_may_use_free_resources_beside_it() -> None:
    site = Site(nodes=2).reserve("/core=2", NOW - 10, NOW + 100, held=3, state=S.RUNNING, is_flexible=True)
    site.inside(1, "/core=4", 300, id=1)
    assert [start.placement.resources for start in Round(site.snapshot()).plan().started] == [15]


def test_jobs_of_a_flexible_reservation_count_in_quotas() -> None:
    for is_flexible, started in ((True, [1]), (False, [1, 2])):
        site = Site(nodes=2, has_quotas=True)
        site.quotas = Quotas(((QuotaRule("*", "*", "*", "*", 2),),), (QuotaPeriod(NOW, 0),))
        site.reserve("/core=4", NOW - 10, NOW + 1000, held=15, state=S.RUNNING, is_flexible=is_flexible)
        site.inside(1, "/core=2", id=1).inside(1, "/core=2", id=2)
        assert [start.placement.job_id for start in Round(site.snapshot()).plan().started] == started


def test_a_flexible_reservation_begins_beside_its_own_jobs_and_not_beside_those_of_others() -> None:
    for types, state in ((("allowed=ar1",), S.RUNNING), ((), S.ERROR), (("allowed=ar2",), S.ERROR)):
        site = flexible("/core=2", NOW, NOW + 200, held=3)
        site.run(1, walltime=1000, types=types)
        assert site.steps()[1].state is state


def test_besteffort_jobs_of_a_flexible_reservation_stay_when_it_begins() -> None:
    for types, killed in ((("allowed=ar1",), []), ((), [7])):
        site = flexible("/core=2", NOW + 1, NOW + 900, held=3)
        site.run(1, walltime=1000, types=("besteffort", *types), id=7)
        assert [kill.job_id for kill in Round(site.snapshot()).plan().kills] == killed


def test_a_flexible_reservation_that_is_over_does_not_wait_for_its_jobs() -> None:
    step = flexible("/core=2", NOW - 100, NOW - 10, held=3, state=S.EXITED, live_jobs=(7,)).steps()[1]
    assert step.is_over


def test_the_end_of_a_flexible_reservation_moves_over_its_own_jobs_and_ends_none() -> None:
    site = flexible("/core=2", NOW - 10, NOW + 100, held=3, state=S.RUNNING, groups=GROUPS)
    site.run(1, walltime=500, id=5, types=("allowed=ar1",))
    site.inside(1, walltime=300, id=6)
    assert change(site, end=NOW + 400).is_granted
    shorter = change(site, end=NOW + 50)
    assert (shorter.is_granted, shorter.ended_jobs) == (True, ())
    site.run(2, walltime=500, id=7)
    assert change(site, end=NOW + 400).proposal == 0


def test_lost_resources_of_a_flexible_reservation_are_replaced_though_its_jobs_hold_others() -> None:
    site = lost(groups=GROUPS, is_flexible=True)
    site.run(3, walltime=50, id=5, types=("allowed=ar1",))
    assert site.steps()[1].resources == (3, 4)
