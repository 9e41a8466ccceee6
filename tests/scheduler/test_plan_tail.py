"""Full plans in slices: however often the situation changes, one is complete after a bounded number of slices."""

import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from oar.kao.facts.plan import Placement, Plan
from oar.kao.facts.snapshot import Snapshot, WaitingJob
from oar.kao.facts.steps import PORTION, result_of
from oar.kao.planner.job_messages import JobMessages
from oar.kao.planner.plan_check import _Check, looking_for_faults
from oar.kao.planner.resources import slot_search
from oar.kao.planner.resources.slot_search import _Search
from oar.kao.planner.resources.slots import SlotQuery, SlotSet
from oar.kao.planner.schedule import Round, schedule
from oar.kao.rounds.plan_faults import PlanGuard
from oar.kao.rounds.plan_tail import LONGEST_PAUSE, SLICE, MakeRound, PlanTail
from tests.examples import at_most
from tests.scheduler.builders import NOW, Cluster
from tests.scheduler.test_urgent_pass import busy, crowded, twofold


class Ticking:
    """A clock that goes on by a tick whenever it is asked, and by what passes otherwise."""

    def __init__(self, tick: float) -> None:
        self.now, self._tick = 0.0, tick

    def __call__(self) -> float:
        self.now += self._tick
        return self.now


def situation(jobs: int) -> Snapshot:
    cluster = Cluster(nodes=4, cores=1, max_jobs=0, timeout=0).run(0b1111)
    for number in range(jobs):
        cluster.job(f"/node={1 + number % 4}", walltime=100 + number)
    return cluster.snapshot()


def made_from(snapshot: Snapshot) -> MakeRound:
    return lambda elapsed: Round(snapshot, elapsed)


def slices_until_complete(tail: PlanTail, clock: Ticking, snapshot: Snapshot, passing: float) -> int:
    """Between two slices there is an urgent round of so many seconds, which finds another situation."""
    count, date = 0, snapshot.now
    while True:
        date += 1
        changed = replace(snapshot, now=date)
        tail.want(changed, made_from(changed))
        clock.now += passing
        count += 1
        if tail.go_on():
            return count


@pytest.mark.parametrize("passing", [0.0, 1.0, 5.0])
def test_rounds_without_end_that_find_other_situations_keep_no_plan_from_being_complete(
    tmp_path: Path, passing: float
) -> None:
    clock, snapshot = Ticking(SLICE / 20), situation(300)
    tail = PlanTail(PlanGuard(str(tmp_path)), clock)
    first = slices_until_complete(tail, clock, snapshot, passing)
    assert tail.last is not None
    assert tail.last.snapshot.now == NOW + 1  # that of the first situation, although others came
    assert tail.last.plan == schedule(tail.last.snapshot)
    assert first <= 300 / 10 + 5  # a slice goes on for ten jobs at least
    one, paused = tail.last, clock.now
    second = slices_until_complete(tail, clock, snapshot, passing)
    assert tail.last is not one
    assert second <= first + LONGEST_PAUSE / max(passing, SLICE / 20) + 1
    assert clock.now - paused <= LONGEST_PAUSE + first * (passing + 2 * SLICE) + passing


def test_the_pause_behind_a_plan_is_no_longer_than_the_plan_took_and_has_an_end(tmp_path: Path) -> None:
    clock, snapshot = Ticking(SLICE / 20), situation(100)
    tail = PlanTail(PlanGuard(str(tmp_path)), clock)
    begin = clock.now
    slices_until_complete(tail, clock, snapshot, 0.0)
    took = clock.now - begin
    pause = tail.due()
    assert pause is not None
    assert 0 < pause <= min(took, LONGEST_PAUSE)


def test_of_situations_that_wait_for_a_plan_the_latest_has_its_turn(tmp_path: Path) -> None:
    clock = Ticking(0.001)
    tail = PlanTail(PlanGuard(str(tmp_path)), clock)
    for jobs in (3, 5, 7):
        tail.want(situation(jobs), made_from(situation(jobs)))
    while not tail.go_on():
        clock.now += 0.1
    assert tail.last is not None
    assert len(tail.last.snapshot.waiting) == 7
    assert tail.due() is None


def test_what_follows_the_last_job_treats_a_portion_of_the_jobs_in_each_step(monkeypatch: pytest.MonkeyPatch) -> None:
    treated: list[int] = []  #: jobs, of the present step
    message, fault = JobMessages._message, _Check.fault

    def counted_message(self: JobMessages, job: WaitingJob) -> str:
        treated.append(job.id)
        return message(self, job)

    def counted_fault(self: _Check, job: WaitingJob, placement: Placement, *, is_external: bool) -> str:
        treated.append(job.id)
        return fault(self, job, placement, is_external=is_external)

    monkeypatch.setattr(JobMessages, "_message", counted_message)
    monkeypatch.setattr(_Check, "fault", counted_fault)
    cluster = Cluster(nodes=4, cores=1, max_jobs=0, timeout=0)
    for _ in range(2 * PORTION + 1):
        cluster.job("/core=1", array_id=1)
    snapshot = cluster.snapshot()
    planning = Round(snapshot)
    for _ in planning.steps():
        pass

    def numbers(steps: Iterator[None]) -> list[int]:
        """How many jobs each step treats."""
        found = []
        for _ in steps:
            found.append(len(treated))
            treated.clear()
        return [*found, len(treated)]

    each = numbers(planning.finishing())
    assert (max(each), sum(each)) == (PORTION, 2 * PORTION + 1)
    plan = planning.finish()
    treated.clear()
    each = numbers(looking_for_faults(snapshot, plan, planning.requests))
    assert (max(each), sum(each)) == (PORTION, 2 * PORTION + 1)


def test_a_plan_made_in_slices_is_that_of_one_go(tmp_path: Path) -> None:
    snapshot = situation(50)
    tail = PlanTail(PlanGuard(str(tmp_path)), Ticking(SLICE))
    tail.want(snapshot, made_from(snapshot))
    slices = 1
    while not tail.go_on():
        slices += 1
    assert slices > len(snapshot.waiting)
    assert tail.last is not None
    assert tail.last.plan == schedule(snapshot)


def dear() -> Snapshot:
    """One job that is dear to search for: each end of a job is another start to try, and only the last one fits."""
    cluster = Cluster(nodes=20, cores=200, max_jobs=0, timeout=0).run(1 | 1 << 200, walltime=5000)
    for core in range(200):
        cluster.run(1 << 200 * 19 + core, walltime=10 + core)
    cluster.job("/node=9", walltime=4000)
    job = twofold(cluster.waiting[-1])
    return replace(cluster.snapshot(), waiting=(job,))


def tried_in_slices(tail: PlanTail, snapshot: Snapshot, tried: list[int], most: int, expected: Plan) -> list[int]:
    """Plan in slices, of which none tries more than so many starts; the plan is the expected one.

    ``tried``: where the search tells the starts that it tries.  Return those of all slices.
    """
    tail.want(snapshot, made_from(snapshot))
    in_slices: list[int] = []
    is_complete = False
    while not is_complete:
        tried.clear()
        is_complete = tail.go_on()
        in_slices += tried
        assert len(tried) <= most
    assert tail.last is not None
    assert tail.last.plan == expected
    return in_slices


def test_a_slice_ends_within_the_search_for_a_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock, snapshot = Ticking(0.0), dear()
    tried: list[int] = []
    real = slot_search.fit_at

    def fit_at_and_tell(slots: SlotSet, query: SlotQuery, start: int) -> int:
        tried.append(start)
        clock.now += SLICE / 10
        return real(slots, query, start)

    monkeypatch.setattr(slot_search, "fit_at", fit_at_and_tell)
    expected = schedule(snapshot)
    all_starts = tried.copy()
    in_slices = tried_in_slices(PlanTail(PlanGuard(str(tmp_path)), clock), snapshot, tried, 11, expected)
    assert list(dict.fromkeys(in_slices)) == all_starts  # it goes on where it was
    assert len(in_slices) <= len(all_starts) * 1.1 + 2


def rolling(nodes: int) -> Snapshot:
    """Each node is free for 200 seconds, each ten seconds later than the last one; a job wants six for 150 seconds.

    So at each start nodes enough are free by then, and one of them is taken before the end.
    """
    cluster = Cluster(nodes=nodes, cores=1, max_jobs=0, timeout=0)
    for node in range(nodes):
        cluster.run(cluster.node(node), walltime=10 + 10 * node)
        cluster.reservation("/node=1", NOW + 210 + 10 * node, cluster.node(node), walltime=5000)
    cluster.job("/node=6", walltime=150)
    return cluster.snapshot()


def test_a_slice_ends_within_the_search_for_a_plain_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock, snapshot = Ticking(0.0), rolling(100)
    tried: list[int] = []
    real = _Search._last_obstacle

    def last_obstacle_and_tell(search: _Search) -> tuple[int, int]:
        tried.append(search.start)
        clock.now += SLICE / 10
        return real(search)

    monkeypatch.setattr(_Search, "_last_obstacle", last_obstacle_and_tell)
    expected = schedule(snapshot)
    all_starts = tried.copy()
    assert len(all_starts) > 80
    tail = PlanTail(PlanGuard(str(tmp_path)), clock)
    in_slices = tried_in_slices(tail, snapshot, tried, 2 * slot_search.STARTS_PER_CHECK, expected)
    assert in_slices == all_starts  # it goes on where it was


@given(st.integers(0, 10**9), st.sampled_from((crowded, busy)))
@at_most(60)
def test_a_plan_whose_searches_give_way_at_each_start_is_that_of_one_go(
    seed: int, site: Callable[[int], Snapshot]
) -> None:
    dice = random.Random(seed)
    snapshot = site(seed)
    waiting = (twofold(job) if dice.random() < 0.3 else job for job in snapshot.waiting)
    snapshot = replace(snapshot, waiting=tuple(waiting))
    planning = Round(snapshot)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(slot_search, "STARTS_PER_CHECK", 1)
        steps = sum(1 for _ in planning.steps(gives_way=lambda: True))
    event(f"more steps than jobs: {steps > 2 * len(snapshot.waiting)}")
    assert planning.finish() == schedule(snapshot)


def test_work_in_steps_has_a_result() -> None:
    planning = Round(situation(5))
    for _ in planning.steps():
        pass
    assert result_of(planning.finishing()) == schedule(situation(5))
