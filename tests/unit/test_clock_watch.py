"""A clock that was set is noticed, one that only waits is not: oar/lib/base/clock_watch.py."""

import pytest

from oar.lib.base.clock_watch import GRACE, ClockWatch, Look


@pytest.mark.parametrize(
    ("second", "set_by"),
    [
        (Look(1030, 530.0, 530.1), 0),
        (Look(1090, 530.0, 530.1), 0),  # a little too fast
        (Look(4630, 530.0, 530.0), 3600),
        (Look(1000 - 3570, 530.0, 530.0), -3600),
        (Look(1030, 530.0, 900.0), 0),  # the database was slow to answer
        (Look(1400, 530.0, 900.0), 0),  # or slow to read its clock
    ],
)
def test_by_how_much_a_clock_was_set(second: Look, set_by: int) -> None:
    watch = ClockWatch()
    assert watch.set_by(Look(1000, 500.0, 500.0)) == 0
    assert watch.set_by(second) == set_by
    assert bool(watch.held_until(second.date)) == (set_by > 0)


def test_nothing_is_held_any_more_when_the_time_is_over_or_the_clock_set_back() -> None:
    watch = ClockWatch()
    watch.set_by(Look(1000, 500.0, 500.0))
    watch.set_by(Look(5000, 530.0, 530.0))
    assert watch.held_until(5000) == watch.held_until(5000 + GRACE - 1) == 5000 + GRACE
    assert watch.held_until(5000 + GRACE) == watch.held_until(1400) == 0


def test_a_watch_goes_on_with_what_another_one_knew() -> None:
    watch = ClockWatch()
    assert watch.memory == ""
    watch.set_by(Look(1000, 500.0, 500.0))
    other = ClockWatch(watch.memory)
    assert other.set_by(Look(5000, 530.0, 530.0)) == 3970
    assert ClockWatch(other.memory).held_until(5000) == 5000 + GRACE


def test_a_watch_on_another_host_keeps_only_what_does_not_depend_on_its_monotonic_clock() -> None:
    watch = ClockWatch()
    watch.set_by(Look(1000, 500.0, 500.0))
    watch.set_by(Look(5000, 530.0, 530.0))
    boot, _, numbers = watch.memory.partition(" ")
    other = ClockWatch(f"another-{boot} {numbers}")
    assert (other.held_until(5001), other.ahead(5001)) == (5000 + GRACE, 3970)
    assert other.set_by(Look(5002, 7.0, 7.0)) == 0


@pytest.mark.parametrize("text", ["", "boot", "boot 1.0 2.0", "boot 1 2 3 4 5 x", "boot 1 2 3 4 5 nan"])
def test_a_memory_that_cannot_be_read_is_none(text: str) -> None:
    assert ClockWatch(text).memory == ""
    assert ClockWatch(text).held_until(4) == 0


def test_a_clock_that_is_set_ahead_twice_is_ahead_by_both_and_believed_when_it_is_set_back() -> None:
    watch = ClockWatch()
    watch.set_by(Look(1000, 500.0, 500.0))
    watch.set_by(Look(4600, 500.0, 500.0))
    assert (watch.ahead(4600), watch.ahead(4599), watch.ahead(4600 + GRACE)) == (3600, 0, 0)
    watch.set_by(Look(5610, 510.0, 510.0))
    assert ClockWatch(watch.memory).ahead(5610) == 4600
    assert watch.set_by(Look(1010, 510.0, 510.0)) == -4600
    assert watch.ahead(1010) == watch.held_until(1010) == 0
