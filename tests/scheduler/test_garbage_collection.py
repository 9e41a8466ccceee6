"""The collector rests while a round is made, and works again whatever became of the round."""

import gc
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oar.kao.facts.snapshot import Snapshot
from oar.kao.planner.schedule import Round
from oar.kao.rounds import garbage_collection
from oar.kao.rounds.garbage_collection import collect, defer_full_collections, is_full_collection_due, resting
from tests.examples import at_most
from tests.scheduler.test_urgent_pass import busy, crowded


@pytest.fixture
def _with_thresholds() -> Iterator[None]:
    """The thresholds of the collector are put back."""
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)
    gc.unfreeze()


def test_the_collector_works_again_after_a_round_that_broke_off() -> None:
    assert gc.isenabled()
    with pytest.raises(ValueError, match="broken"), resting():
        assert not gc.isenabled()
        raise ValueError("broken")
    assert gc.isenabled()


def test_a_collector_that_did_not_work_before_does_not_after() -> None:
    gc.disable()
    try:
        with resting():
            assert not gc.isenabled()
        assert not gc.isenabled()
    finally:
        gc.enable()


def _collect_young(times: int) -> None:
    for _ in range(times):
        gc.collect(1)


@pytest.mark.usefixtures("_with_thresholds")
def test_full_collections_wait_until_somebody_has_time() -> None:
    defer_full_collections()
    collect()
    before = gc.get_stats()[2]["collections"]
    assert not is_full_collection_due()
    _collect_young(20)
    assert [[] for _ in range(10_000)]  # the collector looks for something to do
    assert gc.get_stats()[2]["collections"] == before
    assert is_full_collection_due()
    collect()
    assert not is_full_collection_due()


def test_where_they_are_not_deferred_none_is_due() -> None:
    _collect_young(20)
    assert not is_full_collection_due()


@pytest.mark.usefixtures("_with_thresholds")
def test_a_collection_leaves_alone_what_the_one_before_has_seen() -> None:
    kept: list[object] = []
    kept.append(kept)
    collect()
    assert gc.get_freeze_count() > 0
    assert not any(each is kept for each in gc.get_objects(generation=2))


@pytest.mark.usefixtures("_with_thresholds")
@pytest.mark.parametrize("is_deferred", [True, False])
def test_what_a_long_plan_has_left_is_laid_aside_unseen(monkeypatch: pytest.MonkeyPatch, *, is_deferred: bool) -> None:
    monkeypatch.setattr(garbage_collection, "_TOO_MANY", 500)
    if is_deferred:
        defer_full_collections()
    gc.collect()
    gc.unfreeze()
    with resting():
        few: list[object] = [[] for _ in range(100)]
    assert gc.get_freeze_count() == 0
    with resting():
        many: list[object] = [[] for _ in range(1000)]
    assert (gc.get_freeze_count() >= 1000) == is_deferred
    assert (len(few), len(many)) == (100, 1000)


@pytest.mark.usefixtures("_with_thresholds")
def test_one_collection_of_many_looks_at_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(garbage_collection, "_SELDOM", 1)
    circle: list[object] = [_Traced()]
    circle.append(circle)
    gc.freeze()
    _Traced.alive = 1
    del circle
    gc.collect()
    assert _Traced.alive == 1
    collect()
    assert _Traced.alive == 0


class _Traced:
    """Tells when it is gone."""

    alive = 0

    def __del__(self) -> None:
        _Traced.alive -= 1


@given(st.integers(0, 10**6), st.sampled_from((crowded, busy)))
@at_most(30)  # each collects all that the test process holds
def test_nothing_of_a_round_refers_to_itself(seed: int, site: Callable[[int], Snapshot]) -> None:
    snapshot = site(seed)
    with resting():
        gc.collect()
        gc.freeze()  # so that the collector has little to look at
        for make in (_planned_in_full, _planned_urgently, _left_in_the_middle):
            make(snapshot)
            assert gc.collect() == 0, make.__name__
        gc.unfreeze()


def _planned_in_full(snapshot: Snapshot) -> None:
    planning = Round(snapshot)
    planning = Round(snapshot, memory=planning.memory(planning.plan()))
    planning.plan()


def _planned_urgently(snapshot: Snapshot) -> None:
    Round(snapshot).urgent(lambda: True, lambda: False)


def _left_in_the_middle(snapshot: Snapshot) -> None:
    steps = Round(snapshot).steps()
    for _ in range(5):
        next(steps, None)
