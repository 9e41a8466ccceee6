"""What is asked for with ranges of slots: so many alternatives at most, and of all that the range holds."""

import pytest

from oar.lib.config.files import Config
from oar.lib.jobs.records import Group, Level
from oar.lib.reservations import requested_resources
from oar.lib.reservations.environments import SiteEnvironments, SiteQueues
from oar.lib.reservations.errors import BadReservation
from oar.lib.reservations.options import ReservationOptions
from oar.lib.reservations.records import ReservationAlternative, decode, encode

HOSTS = 100


def alternatives(environment: str, slots: str) -> tuple[ReservationAlternative, ...]:
    hosts = frozenset(f"node-{number}" for number in range(HOSTS))
    site = requested_resources.Site({}, frozenset(), {}, HOSTS, SiteQueues((), hosts, SiteEnvironments()))
    return requested_resources.parse_resources(ReservationOptions(pe=(environment, slots)), Config(), site).alternatives


def test_a_long_range_is_asked_down_to_its_least_number_however_many_ways_there_are_to_lay_it() -> None:
    asked = alternatives("round_robin", "1-100")
    numbers = [each.slots for each in asked]
    assert len(asked) <= requested_resources.MAX_ALTERNATIVES
    assert (numbers[0], numbers[-1]) == (HOSTS, 1)
    assert numbers == sorted(numbers, reverse=True)
    hosts = [asked[place].groups[0].levels[0].quantity for place in range(2)]
    assert hosts[0] == HOSTS > hosts[1], "as many hosts as possible first"


def test_every_environment_of_a_pattern_is_asked_with_its_whole_range() -> None:
    asked = alternatives("*", "1-100")
    assert len(asked) <= requested_resources.MAX_ALTERNATIVES
    names = list(dict.fromkeys(each.pe for each in asked))
    assert names == ["alloc_pe_slots", "mpi", "round_robin", "slots", "smp"]
    for name in names:
        numbers = [each.slots for each in asked if each.pe == name]
        assert (numbers[0], numbers[-1]) == (HOSTS, 1)


def test_a_condition_of_many_alternatives_is_stored_once() -> None:
    condition = f"network_address IN ({', '.join(repr(f'node-{number}') for number in range(10_000))})"
    groups = [(Group(condition, (Level("resource_id", slots),)),) for slots in range(1, 65)]
    asked = tuple(ReservationAlternative(each, "mpi", slots) for slots, each in enumerate(groups, start=1))
    stored = encode(asked)
    assert len(stored) < 1.1 * len(condition)
    assert decode(stored) == asked
    assert decode("[]") == ()


@pytest.mark.parametrize("number", ["x", "²", "-1", "1" * 19, "1" * 5000])
def test_what_is_no_number_that_a_property_can_have_is_refused(number: str) -> None:
    site = requested_resources.Site(
        {"mem": "integer"}, frozenset(), {}, HOSTS, SiteQueues((), frozenset(), SiteEnvironments())
    )
    with pytest.raises(BadReservation) as refusal:
        requested_resources.parse_resources(ReservationOptions(resources=(f"mem={number}",)), Config(), site)
    assert str(refusal.value).startswith(f'denied: "{number}" must be a number for mem')
