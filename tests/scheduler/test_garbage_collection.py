"""The collector rests while a round is made, and works again whatever became of the round."""

import gc

import pytest

from oar.kao.rounds.garbage_collection import resting


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
