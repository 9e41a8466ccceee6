"""The time zone of a saved round."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from oar.kao.rounds.reading import time_zone
from oar.lib.base.times import format_date

NOW = 1_800_000_000


@pytest.fixture(autouse=True)
def _zone_of_before() -> Iterator[None]:
    yield
    time.tzset()


@pytest.mark.parametrize(
    ("name", "rule"),
    [
        ("Europe/Paris", "CET-1CEST,M3.5.0,M10.5.0/3"),
        (":Europe/Paris", "CET-1CEST,M3.5.0,M10.5.0/3"),
        ("UTC", "UTC0"),
        ("CET-1", "CET-1"),
    ],
)
def test_a_zone_is_known_by_its_rule(name: str, rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", name)
    assert time_zone.local() == rule


def test_without_wish_it_is_that_of_the_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TZ", raising=False)
    monkeypatch.setattr(time_zone, "LOCAL", time_zone.ZONES / "Asia/Tokyo")
    assert time_zone.local() == "JST-9"
    monkeypatch.setattr(time_zone, "LOCAL", tmp_path / "none")
    assert time_zone.local() == "UTC0"


def test_dates_are_written_in_another_zone_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC0")
    time.tzset()
    with time_zone.within("JST-9"):
        assert format_date(NOW) == "2027-01-15 17:00:00"
    assert format_date(NOW) == "2027-01-15 08:00:00"
    with time_zone.within(""):
        assert format_date(NOW) == "2027-01-15 08:00:00"
