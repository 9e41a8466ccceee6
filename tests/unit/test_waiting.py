"""How the time before the start of a job divides, whether or not its older changes are folded."""

import random

import pytest

from oar.lib.jobs.reasons import ReasonCode, Waits, WaitStage, WaitSum, divide_waiting_time, fold_changes
from oar.lib.jobs.records import StateChange
from oar.lib.jobs.states import JobState

WAITING = JobState.WAITING
BUSY, QUOTA, LIMIT, HOLD = ReasonCode.BUSY, ReasonCode.QUOTA, ReasonCode.LIMIT, ReasonCode.HOLD
NEW = WaitStage.NEW


def test_the_time_divides_where_the_reason_changes() -> None:
    states = [StateChange(1, WAITING, 0, 100), StateChange(1, JobState.HOLD, 100, 130), StateChange(1, WAITING, 130, 0)]
    waits = Waits([(10, BUSY), (40, QUOTA), (100, HOLD), (135, BUSY)])
    assert divide_waiting_time(states, waits, 150) == {QUOTA: 60, BUSY: 45, HOLD: 30, NEW: 15}


def test_what_is_folded_is_a_sum_since_its_first_stretch() -> None:
    states = [StateChange(1, WAITING, 0, 0)]
    waits = Waits([(10, BUSY), (20, QUOTA), (50, BUSY), (60, QUOTA), (70, BUSY)])
    left = fold_changes(states, waits, 2)
    assert left.changes == [(60, QUOTA), (70, BUSY)]
    assert left.sums == {NEW: WaitSum(0, 10), BUSY: WaitSum(10, 20), QUOTA: WaitSum(20, 30)}
    assert divide_waiting_time(states, left, 100) == divide_waiting_time(states, waits, 100)


@pytest.mark.parametrize("seed", range(20))
def test_folding_again_and_again_changes_no_sum(seed: int) -> None:
    rng = random.Random(seed)
    states, date, kind = [], 0, WAITING
    while date < 1000:
        until = date + rng.randint(1, 400)
        states.append(StateChange(1, kind, date, until))
        date, kind = until, JobState.HOLD if kind is WAITING else WAITING
    states[-1] = StateChange(1, states[-1].state, states[-1].start, 0)
    dates = sorted(rng.sample(range(1, 1400), 60))
    every = [(each, rng.choice([BUSY, QUOTA, LIMIT])) for each in dates]
    few = Waits()
    for number, change in enumerate(every, 1):
        few = Waits([*few.changes, change], few.sums)
        if len(few.changes) > 5:
            few = fold_changes([each for each in states if each.start <= change[0]], few, 3)
        now = change[0] + 1
        past = [each for each in states if each.start < now]
        assert divide_waiting_time(past, few, now) == divide_waiting_time(past, Waits(every[:number]), now)
    assert len(few.changes) <= 5
