"""Advance reservations of random sites: whatever the situation, nobody gets what is reserved for others.

Drawn are reservations of all states, flexible ones, series, requests, changes, lost nodes and their replacement, and
jobs inside and outside, also besteffort ones.
"""

import random
from collections.abc import Iterator
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from oar.kao.facts.plan import Plan, ReservationStep
from oar.kao.facts.snapshot import PlannedChange, PlannedReservation, RequestGroup
from oar.kao.planner.plan_check import faults_of
from oar.kao.planner.schedule import Round
from oar.lib.base.resource_set import ResourceSet, from_positions, positions
from oar.lib.jobs.records import Level
from oar.lib.nodes.states import ResourceState
from oar.lib.reservations.states import GRANTED, ReservationEvent
from oar.lib.reservations.states import ReservationState as S
from tests.scheduler.builders import NOW
from tests.scheduler.test_advance_reservations import O, Site, bits

seeds = st.integers(0, 10**6)


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
            groups = (RequestGroup(0, (Level("core", held.bit_count()),)),)
            site.reserve("/core=1", start, end, held=held, state=state, groups=groups, **flags)
            number = len(site.reservations)
            beside = held & rng.getrandbits(8)
            longest = end - NOW - (0 if flags["is_flexible"] else O)
            if beside and start < NOW:  # a job of it that runs
                site.run(beside, walltime=rng.randint(1, longest), types=(site.entry_type(number),))
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
        lose_first_node(site, rng)
    return site


def lose_first_node(site: Site, rng: random.Random) -> None:
    """Let a node be lost, to some reservations since long ago; some have what they lose replaced."""
    site.state(rng.choice([ResourceState.ABSENT, ResourceState.SUSPECTED, ResourceState.DEAD]), 0)
    for index, each in enumerate(site.reservations):
        lost = tuple(bit + 1 for bit in positions(each.resources & site.node(0)))
        since = dict.fromkeys(lost, NOW - rng.choice([0, 100, 1000]))
        replaces = rng.random() < 0.7
        site.reservations[index] = replace(each, missing=lost, missing_since=since, replaces_lost=replaces)


def usable_now(site: Site) -> ResourceSet:
    """Return the resources of nodes that are not lost."""
    return from_positions(bit for bit, state in enumerate(site.resources.states) if state is ResourceState.ALIVE)


def windows(site: Site, plan: Plan) -> dict[int, tuple[int, int, ResourceSet]]:
    """Return start, end and resources of all reservations after a round."""
    after = {each.id: (each.start, each.end, each.resources) for each in site.reservations if each.state in GRANTED}
    for step in plan.reservations:
        if step.alternative >= 0:
            after[step.reservation_id] = step.start, step.end, bits(step)
    return after


@given(seeds)
def test_two_reservations_never_have_a_resource_at_the_same_time(seed: int) -> None:
    site = random_site(seed)
    after = list(windows(site, Round(site.snapshot()).plan()).values())
    for index, (start, end, held) in enumerate(after):
        for other_start, other_end, other in after[index + 1 :]:
            assert not (start < other_end and other_start < end and held & other)


@given(seeds)
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


@given(seeds)
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


@given(seeds)
def test_jobs_outside_keep_away_and_jobs_inside_stay_inside(seed: int) -> None:
    site = random_site(seed)
    snapshot = site.snapshot()
    this = Round(snapshot)
    plan = this.plan()
    assert not faults_of(snapshot, plan, this.requests)
    after = windows(site, plan)
    frames = {each.frame_id for each in site.reservations}
    present = usable_now(site)
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


@given(seeds)
def test_a_hard_reservation_in_error_starts_nothing(seed: int) -> None:
    site = random_site(seed)
    plan = Round(site.snapshot()).plan()
    missing = {step.reservation_id: step.missing for step in plan.reservations}
    hard = [each for each in site.reservations if each.is_hard and not each.is_flexible]
    closed = {each.id for each in hard if missing.get(each.id)}
    assert not [start for start in plan.started if site.reservation_of(start.placement.job_id) in closed]


# -- changes -----------------------------------------------------------------------------------------------------------


@given(seeds)
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


@given(seeds)
def test_a_change_of_a_running_reservation_keeps_what_its_jobs_hold(seed: int) -> None:
    rng = random.Random(seed)
    held, used = rng.sample(range(1, 64), 1)[0], rng.randint(0, 63)
    site = Site(nodes=3).reserve("/core=1", NOW - 10, NOW + 300, held=held, state=S.RUNNING)
    site.run(used & held, walltime=100, id=5, types=("inner=1001",))
    site.reserve("/core=1", NOW + 100, NOW + 200, held=rng.randint(0, 63) & ~held or None)
    asked = PlannedChange(1, 1, alternatives=random_alternatives(rng))
    snapshot = replace(site.snapshot(), reservation_changes=(asked,))
    (step,) = Round(snapshot).plan().reservation_changes
    if step.is_granted:
        got = from_positions(number - 1 for number in step.resources)
        assert not used & held & ~got
        assert not got & site.reservations[1].resources


@given(seeds)
def test_a_granted_change_takes_nothing_from_others(seed: int) -> None:
    site, rng = random_site(seed), random.Random(seed)
    granted = [each for each in site.reservations if each.state in GRANTED]
    if not granted:
        return
    chosen = rng.choice(granted)
    wanted = random_alternatives(rng) if rng.random() < 0.5 else ()
    start = NOW + rng.randint(0, 200) if rng.random() < 0.5 else None
    asked = PlannedChange(1, chosen.id, start=start, end=NOW + rng.randint(1, 400), alternatives=wanted)
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


# -- replacements, besteffort jobs -------------------------------------------------------------------------------------


def steps_of(plan: Plan, event: ReservationEvent) -> Iterator[ReservationStep]:
    """Yield the steps at which something happens."""
    return (step for step in plan.reservations if any(note.event is event for note in step.notes))


def held_inside(site: Site, reservation: PlannedReservation) -> ResourceSet:
    """Return what the running jobs hold that a reservation keeps; those of a flexible one are ordinary jobs."""
    if reservation.is_flexible:
        return 0
    entry, held = site.entry_type(reservation.id), 0
    for job in site.running:
        held |= job.resources if entry in job.types else 0
    return held


@given(seeds)
def test_a_replacement_is_as_large_keeps_what_jobs_hold_and_takes_what_nobody_has(seed: int) -> None:
    site = random_site(seed)
    plan = Round(site.snapshot()).plan()
    after = windows(site, plan)
    for step in steps_of(plan, ReservationEvent.REPLACED):
        before = site.reservations[step.reservation_id - 1]
        got = bits(step)
        assert before.replaces_lost
        assert got.bit_count() == before.resources.bit_count()
        assert not held_inside(site, before) & ~got
        assert not before.resources & ~site.node(0) & ~got
        others = [each for number, each in after.items() if number != step.reservation_id]
        assert not [1 for start, end, held in others if start < before.end and before.start < end and held & got]
        gained = got & ~before.resources
        begin = max(NOW, before.start)
        for job in site.running:
            is_outside = job.id < 1000 and site.entry_type(before.id) not in job.types
            if is_outside and "besteffort" not in job.types and job.start_time + job.walltime > begin:
                assert not job.resources & gained


@given(seeds)
def test_windows_and_resources_change_only_by_replacement_and_granted_changes(seed: int) -> None:
    site = random_site(seed)
    plan = Round(site.snapshot()).plan()
    replaced = {step.reservation_id for step in steps_of(plan, ReservationEvent.REPLACED)}
    after = windows(site, plan)
    for each in site.reservations:
        if each.state in GRANTED and each.id not in replaced:
            assert after[each.id] == (each.start, each.end, each.resources)
        elif each.state in GRANTED:
            assert after[each.id][:2] == (each.start, each.end)


@given(seeds)
def test_a_besteffort_job_leaves_only_for_a_job_or_for_a_reservation_that_is_near(seed: int) -> None:
    site = random_site(seed)
    plan = Round(site.snapshot()).plan()
    frames = {each.frame_id: each for each in site.reservations}
    after, usable = windows(site, plan), usable_now(site)
    running = {job.id: job for job in site.running}
    for kill in plan.kills:
        job = running[kill.job_id]
        assert "besteffort" in job.types
        if kill.for_job in frames:
            reservation = frames[kill.for_job]
            start, _, held = after[reservation.id]
            assert start <= NOW + max(O, site.settings.security_time) + site.settings.besteffort_kill_before
            assert job.resources & held & usable  # what the job still uses is missing, too, but not lost


def test_series_flex_replacements_and_refusals_are_drawn() -> None:
    """What is never drawn is never tested."""
    wanted = {"flexible", "series", "kill for a reservation"}
    wanted |= {f"event {event}" for event in ("CREATED", "REFUSED", "UNSATISFIED", "REPLACED", "SKIPPED")}
    for seed in range(400):
        site = random_site(seed)
        snapshot = site.snapshot()
        plan = Round(snapshot).plan()
        wanted -= {f"event {note.event.name}" for step in plan.reservations for note in step.notes}
        wanted -= {"flexible" for reservation in site.reservations if reservation.is_flexible}
        wanted -= {"series" for reservation in site.reservations if reservation.together}
        wanted -= {"kill for a reservation" for kill in plan.kills if kill.for_job >= 1000}
        if not wanted:
            break
    assert not wanted
