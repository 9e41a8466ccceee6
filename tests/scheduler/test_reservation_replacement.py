"""Lost resources of advance reservations are replaced: these alone, when it is time, and nobody is disturbed."""

from dataclasses import replace
from typing import Any

import pytest

from oar.kao.facts.plan import Plan
from oar.kao.facts.snapshot import RequestGroup
from oar.kao.planner.schedule import Round
from oar.lib.base.resource_set import ResourceSet, positions
from oar.lib.jobs.records import Level, Queue
from oar.lib.jobs.states import QueueState
from oar.lib.nodes.states import ResourceState
from oar.lib.reservations.states import ReservationEvent
from oar.lib.reservations.states import ReservationState as S
from tests.scheduler.builders import NOW, QUEUES, Cluster
from tests.scheduler.test_advance_reservations import GROUPS, Site

#: The types of a job in the first reservation.
INSIDE = ("inner=1001",)


def lost(state: ResourceState = ResourceState.SUSPECTED, since: int = 300, **given: Any) -> Site:
    """A reservation of two cores on the first node, which is lost; the second node is free."""
    site = Site(nodes=2)
    site.state(state, 0)
    given = {"replaces_lost": True, "missing": (1, 2), "missing_since": {1: NOW - since, 2: NOW - since}, **given}
    return site.reserve("/core=2", NOW + 500, NOW + 900, held=3, state=S.WARNING, **given)


def incomplete(held: ResourceSet, *bad: int, nodes: int = 3, start: int = NOW - 100, **given: Any) -> Site:
    """A reservation of as many cores as it holds, of which some, given by their bits, are Suspected since long ago."""
    site = Site(nodes)
    states = [ResourceState.SUSPECTED if bit in bad else old for bit, old in enumerate(site.resources.states)]
    site.resources = replace(site.resources, states=tuple(states))
    missing = tuple(bit + 1 for bit in bad)
    given = {"missing": missing, "missing_since": dict.fromkeys(missing, NOW - 1000), **given}
    groups = given.pop("groups", (RequestGroup(0, (Level("core", held.bit_count()),)),))
    state = given.pop("state", S.ERROR if start <= NOW else S.WARNING)
    return site.reserve("/core=1", start, NOW + 900, held=held, state=state, replaces_lost=True, groups=groups, **given)


def planned(site: Cluster) -> Plan:
    return Round(site.snapshot()).plan()


def replaced(site: Cluster) -> tuple[int, ...]:
    """Return the resources that the first reservation gets; () = it keeps what it has."""
    return next((step.resources for step in planned(site).reservations if step.resources), ())


def test_lost_resources_are_replaced_when_their_time_is_over() -> None:
    step = lost(groups=GROUPS).steps()[1]
    assert (step.notes[0].event, step.resources) == (ReservationEvent.REPLACED, (3, 4))
    assert step.notes[0].message == "resources 1, 2 are replaced by 3, 4"
    assert not replaced(lost(since=299, groups=GROUPS))
    assert planned(lost(since=299, groups=GROUPS)).reservation_dates[0] == NOW + 1
    assert replaced(lost(ResourceState.DEAD, since=0, groups=GROUPS)) == (3, 4)
    assert not replaced(lost(groups=GROUPS, replaces_lost=False))


def test_what_is_kept_stays_and_nothing_is_replaced_that_jobs_use() -> None:
    assert replaced(incomplete(0b11, 1, nodes=2).run(1, id=5, types=INSIDE)) == (1, 3)


def test_what_a_job_holds_is_kept_though_it_is_lost_and_the_rest_is_replaced() -> None:
    assert replaced(incomplete(0b111, 0, 1).run(1, id=5, types=INSIDE)) == (1, 3, 4)
    assert not replaced(incomplete(0b11, 0).run(1, id=5, types=INSIDE))


def test_what_a_job_holds_is_kept_when_its_node_dies_before_anything_was_known_to_be_missing() -> None:
    site = incomplete(0b11, state=S.RUNNING).run(1, id=5, types=INSIDE)
    site.state(ResourceState.DEAD, 0)
    assert not replaced(site)


def test_a_reservation_to_come_gets_what_is_free_in_its_window_though_it_is_busy_until_then() -> None:
    site = lost(groups=GROUPS).run(0b1100, walltime=400)
    assert replaced(site) == (3, 4)
    assert not replaced(lost(groups=GROUPS).run(0b1100, walltime=501))


def test_jobs_that_are_over_before_it_begins_start_where_a_reservation_gets_something() -> None:
    site = lost(groups=GROUPS).job("/core=2", walltime=400, id=7).job("/core=1", walltime=501, id=8)
    plan = planned(site)
    assert [step.resources for step in plan.reservations] == [(3, 4)]
    assert [start.placement.job_id for start in plan.started] == [7]
    assert all(place.start >= NOW + 900 for place in plan.placements if place.job_id == 8)


def test_what_is_not_lost_long_enough_is_not_replaced_with_what_is() -> None:
    dates = {1: NOW - 1000, 2: NOW - 5}
    site = incomplete(0b11, 0, 1, missing_since=dates)
    assert replaced(site) == (2, 3)
    full = incomplete(0b11, 0, 1, missing_since=dates, nodes=1)
    assert not replaced(full)
    assert planned(full).reservation_dates[0] == NOW + 55


def test_what_a_job_from_outside_still_holds_is_not_replaced_with_what_is_lost() -> None:
    site = incomplete(0b11, 0, missing_since={1: NOW - 1000, 2: NOW - 1000}).run(0b10, since=4000, id=7)
    assert replaced(site) == (2, 3)


@pytest.mark.parametrize("start", [NOW - 100, NOW + 100])
def test_nothing_is_replaced_while_the_queue_is_disabled(start: int) -> None:
    def disabled(**given: Any) -> Site:
        site = incomplete(0b11, 0, start=start, **given)
        site.queues = (Queue("default", 2, "", QueueState.NOT_ACTIVE), *QUEUES[2:])
        return site

    assert not replaced(disabled())
    assert not replaced(disabled(removed=(77,)))
    assert min(planned(disabled(removed=(77,))).reservation_dates) > NOW + 1


def test_resources_on_its_own_nodes_come_first() -> None:
    one_node = (RequestGroup(0, (Level("node", 1), Level("core", 2))),)
    site = Site(nodes=3, cores=3)
    states = [*site.resources.states]
    states[7] = ResourceState.DEAD
    site.resources = replace(site.resources, states=tuple(states))
    site.reserve("/core=2", NOW - 9, NOW + 900, 0b11000000, S.ERROR, replaces_lost=True, groups=one_node, missing=(8,))
    assert replaced(site) == (7, 9)


@pytest.mark.parametrize("given", [{"state": S.WARNING}, {"idle_limit": 50}])
def test_a_date_that_has_come_is_not_late_for_a_replacement(given: dict[str, Any]) -> None:
    plan = planned(incomplete(0b11, 0, **given))
    (step,) = plan.reservations
    assert (step.notes[0].event, step.resources) != (ReservationEvent.REPLACED, (2, 3))
    assert plan.reservation_dates[0] == NOW + 1


def test_a_replacement_is_looked_at_again_at_once() -> None:
    assert planned(lost(groups=GROUPS)).reservation_dates[0] == NOW + 1


@pytest.mark.parametrize("state", [S.RUNNING, S.ERROR])
def test_a_clock_that_is_set_back_makes_no_start_undone(state: S) -> None:
    bad = (0,) if state is S.ERROR else ()
    site = incomplete(0b11, *bad, start=NOW - 100, state=state)
    site.reservations[0] = replace(site.reservations[0], replaces_lost=False)
    site.inside(1, id=5, walltime=10).job("/core=5", walltime=60, id=6)
    plan = Round(replace(site.snapshot(), now=NOW - 300)).plan()
    assert {note.state for step in plan.reservations for note in step.notes} <= {state}
    assert [start.placement.job_id for start in plan.started] == [5]
    (place,) = (place for place in plan.placements if place.job_id == 6)
    assert place.start >= NOW + 900
    assert not {bit for start in plan.started for bit in positions(start.placement.resources)} - {0, 1}
