"""The health of advance reservations: who is in the way, seen by the resources of each."""

from unittest.mock import patch

import pytest

from oar.kao.facts.job_types import is_inside
from oar.kao.planner.advance_reservations import health
from oar.kao.planner.resources.resource_holders import held_resources
from oar.kao.planner.schedule import Round
from oar.lib.nodes.states import ResourceState
from oar.lib.reservations.states import ReservationState as S
from tests.scheduler.builders import NOW
from tests.scheduler.test_advance_reservations import Site


@pytest.mark.parametrize("is_flexible", [False, True])
def test_a_job_in_a_container_in_a_reservation_is_not_in_its_way(is_flexible: bool) -> None:
    site = Site(nodes=2).reserve("/core=2", NOW - 100, NOW + 900, 3, S.RUNNING, is_hard=True, is_flexible=is_flexible)
    site.run(3, id=5, walltime=500, types=(site.entry_type(1), "container=box"))
    site.run(1, id=6, walltime=100, types=("inner=box", "container")).run(1, id=7, walltime=50, types=("inner=6",))
    site.inside(1, id=8)
    assert not site.steps()
    site.run(2, id=9, walltime=300, types=("inner=gone",))
    assert site.steps()[1].message == "reserved host n0 is still used by job 9 (1 of 2 slots)"


@pytest.mark.parametrize("is_hard", [False, True])
def test_with_a_hard_reservation_in_error_the_containers_in_it_are_closed(is_hard: bool) -> None:
    site = Site(nodes=2).reserve("/core=4", NOW - 100, NOW + 900, 15, S.ERROR, is_hard=is_hard)
    site.run(3, id=5, walltime=500, types=("inner=1001", "container=box"))
    site.run(3, id=6, walltime=400, types=("inner=box", "container"))
    site.state(ResourceState.SUSPECTED, 1)
    for number, name in ((7, "box"), (8, "5"), (9, "6")):
        site.job("/core=1", walltime=20, id=number, types=(f"inner={name}",))
    plan = Round(site.snapshot()).plan()
    assert bool(plan.started) != is_hard
    texts = {plan.reasons[number].text for number in (7, 8, 9) if number in plan.reasons}
    assert any("hard error handling" in text for text in texts) == is_hard


def test_each_reservation_looks_at_the_jobs_on_its_own_resources_only() -> None:
    number = 60
    site = Site(nodes=number)
    for index in range(number):
        site.reserve("/core=2", NOW - 100, NOW + 900, 3 << 2 * index, S.RUNNING)
    for index in range(2 * number):
        types = (site.entry_type(index // 2 + 1), *(("besteffort",) if index % 4 == 0 else ()))
        site.run(1 << index, id=5 + index, walltime=500, types=types)
    site.run(0, id=1, types=("besteffort",))
    snapshot = site.snapshot()
    with (
        patch.object(health, "is_inside", side_effect=is_inside) as asked,
        patch.object(health, "held_resources", side_effect=held_resources) as held,
    ):
        Round(snapshot).plan_reservations()
    assert asked.call_count <= 3 * 2 * number
    assert held.call_count <= 2 * number + 1
