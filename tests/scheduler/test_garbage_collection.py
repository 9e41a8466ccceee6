"""The collector rests while a round is made, and works again whatever became of the round."""

import gc
from collections.abc import Iterator

import pytest

from oar.kao.rounds.garbage_collection import collect, defer_full_collections, is_full_collection_due, resting


@pytest.fixture
def _with_thresholds() -> Iterator[None]:
    """The thresholds of the collector are put back."""
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)


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
