"""When a worker is replaced: not for what its work needs."""

import pytest

from oar.lib.bus.frames import Renewal
from oar.modules.worker import PASSES_OF_A_LIFE, SETTLING, Lifetime

MIB = 1 << 20


def asked(*held: int, most: float = 1000) -> list[Renewal]:
    """Return what a worker asks for after passes after which it holds so many MiB."""
    lifetime = Lifetime()
    return [lifetime.renewal(each * MIB, most * MIB) for each in held]


def test_a_worker_below_its_bound_stays() -> None:
    assert set(asked(50, 300, 999, 999, 999)) == {Renewal.NONE}


def test_a_worker_that_has_grown_is_replaced_when_idle() -> None:
    assert asked(50, 50, 50, 999, 1000, 1999) == [*[Renewal.NONE] * 4, Renewal.WHEN_IDLE, Renewal.WHEN_IDLE]


def test_a_worker_that_has_grown_far_too_much_is_replaced_before_its_next_pass() -> None:
    assert asked(50, 50, 50, 2000)[-1] is Renewal.NOW


def test_a_worker_whose_work_needs_more_than_the_bound_stays() -> None:
    """Otherwise each pass would be the first of a process."""
    assert set(asked(4000, 5000, 5000, 6000, 7400)) == {Renewal.NONE}
    assert asked(4000, 5000, 5000, 7500)[-1] is Renewal.WHEN_IDLE
    assert asked(4000, 5000, 5000, 15000)[-1] is Renewal.NOW


@pytest.mark.parametrize("held", [100, 10**6])
def test_without_a_bound_only_the_number_of_passes_counts(held: int) -> None:
    passes = asked(*[50] * SETTLING, *[held] * (PASSES_OF_A_LIFE - SETTLING), most=0)
    assert passes == [Renewal.NONE] * (PASSES_OF_A_LIFE - 1) + [Renewal.WHEN_IDLE]
