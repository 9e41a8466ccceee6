"""Dates and durations as people type them: one grammar for all commands."""

import time
from collections.abc import Iterator

import pytest

from oar.kao.rounds.reading import time_zone
from oar.lib.base.errors import BadRequest
from oar.lib.base.grid_engine_times import write_date, write_option_date
from oar.lib.base.times import parse_date, parse_duration


def epoch(*fields: int) -> int:
    return int(time.mktime((*fields, 0, 0, -1)))  # type: ignore[arg-type]


NOW = epoch(2026, 11, 22, 12, 0, 0)


@pytest.mark.parametrize(
    ("text", "date"),
    [
        ("200612141447.23", epoch(2006, 12, 14, 14, 47, 23)),
        ("200612141447", epoch(2006, 12, 14, 14, 47, 0)),
        ("12141447", epoch(2026, 12, 14, 14, 47, 0)),
        ("01121200", epoch(2027, 1, 12, 12, 0, 0)),  # more than 180 days back in this year
        ("11201200", epoch(2026, 11, 20, 12, 0, 0)),  # two days back: a mistake to be told, not the next year
        ("2026-12-01 08:30", epoch(2026, 12, 1, 8, 30, 0)),
        ("now", NOW),
        ("+1:30:0", NOW + 5400),
        ("+1:30", NOW + 5400),
        ("-90m", NOW - 5400),
        ("2h", NOW - 7200),
        ("now-1d", NOW - 86400),
        ("now+2h", NOW + 7200),
        ("18:30", epoch(2026, 11, 22, 18, 30, 0)),
        ("tomorrow 8:00", epoch(2026, 11, 23, 8, 0, 0)),
        ("Friday", epoch(2026, 11, 27, 0, 0, 0)),
        ("sunday", epoch(2026, 11, 29, 0, 0, 0)),  # the day itself is a Sunday
    ],
)
def test_dates(text: str, date: int) -> None:
    assert parse_date(text, NOW) == date


def test_ten_digits_are_a_date_in_the_reservation_commands_only() -> None:
    assert parse_date("0612141447", NOW, unit=1) == epoch(2006, 12, 14, 14, 47, 0)
    assert parse_date("9912141447", NOW, unit=1) == epoch(1999, 12, 14, 14, 47, 0)
    with pytest.raises(BadRequest, match="is not a date"):
        parse_date("1711122130", NOW)  # a Unix time without its @


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "13011200",
        "04311200",
        "01012460",
        "01012500",
        "2026-13-01 00:00",
        "+",
        "+x",
        "٠١٠١١٢٠٠",
        "1" * 400,
    ],
)
def test_what_is_no_date(text: str) -> None:
    with pytest.raises(BadRequest):
        parse_date(text, NOW)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("60", 60),
        ("1:0:0", 3600),
        ("0:0:7", 7),
        ("1::1", 3601),  # as sge_types(1) has it: what would be zero can be left out, but for its colon
        ("::30", 30),
        (":5:", 300),
        ("2::", 7200),
        ("90m", 5400),
        ("2h", 7200),
        ("1d12h", 129600),
        ("2w1s", 1209601),
        ("30MIN", 1800),
        ("1:00", 3600),
        ("1:90", 9000),
        (":30", 1800),
    ],
)
def test_durations(text: str, seconds: int) -> None:
    assert parse_duration(text, unit=1) == seconds


@pytest.mark.parametrize("text", ["", "::", ":", "x", "-1", "1h1d", "1.5h", "1h30", "9" * 20])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(BadRequest):
        parse_duration(text, unit=1)


def test_a_plain_number_is_hours_but_seconds_in_grid_engine() -> None:
    assert (parse_duration("2"), parse_duration("2", unit=1)) == (7200, 2)
    assert (parse_date("+2", NOW), parse_date("+2", NOW, unit=1)) == (NOW + 7200, NOW + 2)


@pytest.mark.parametrize(("text", "day"), [("friday", 20), ("sunday", 22), ("yesterday", 21), ("monday 8:00", 16)])
def test_a_weekday_is_the_last_one_where_a_command_looks_back(text: str, day: int) -> None:
    assert time.localtime(parse_date(text, NOW, is_past=True)).tm_mday == day


def test_a_written_date_is_read_back() -> None:
    assert parse_date(write_option_date(NOW), NOW) == NOW
    assert write_date(NOW) == "11/22/2026 12:00:00"


@pytest.fixture
def berlin() -> Iterator[None]:
    with time_zone.within("Europe/Berlin"):
        yield


@pytest.mark.usefixtures("berlin")
def test_an_hour_that_comes_twice_is_the_first_of_both_whatever_was_read_before() -> None:
    first = 1824942600
    for before in ("202707010000", "202712010000"):
        parse_date(before, first)
        assert parse_date("202710310230", first) == first
        assert parse_date("2027-10-31 02:30", first) == first


@pytest.mark.usefixtures("berlin")
def test_a_date_that_is_written_is_read_as_itself() -> None:
    first, second = 1824942600, 1824946200
    assert [write_option_date(date) for date in (first, second)] == ["202710310230.00", f"@{second}"]
    assert [parse_date(write_option_date(date), NOW) for date in (first, second)] == [first, second]


@pytest.mark.parametrize("text", ["@", "@x", "@-5", "@1.5", "@1234567890123", "@ 5"])
def test_what_is_no_epoch(text: str) -> None:
    with pytest.raises(BadRequest):
        parse_date(text, NOW)
