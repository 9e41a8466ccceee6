"""When the rules of quotas hold: weeks, single dates, days of 23 and 25 hours."""

import random
from collections.abc import Iterator
from datetime import datetime, timedelta

import pytest

from oar.kao.rounds.reading import time_zone
from oar.lib.accounts.quota_files import Calendar, parse_json, parse_single, parse_weekly
from oar.lib.base.times import format_date, parse_date

EXAMPLE = """{ "periodical": [ ["08:00-19:00 mon-fri * *", "day",     "working hours"],
                  ["* sat-sun * *",           "weekend", ""],
                  ["default",                 "night",   "else"] ],
  "oneshot":    [ ["2031-07-23 19:30", "2031-08-29 08:30", "holiday", "summer"] ],
  "day": {"*,*,*,/": [100,-1,-1]}, "weekend": {}, "night": {"*,*,*,/": [400,-1,-1]}, "holiday": {} }"""


@pytest.fixture(autouse=True)
def paris() -> Iterator[None]:
    with time_zone.within("Europe/Paris"):
        yield


def steps(calendar: Calendar | None, since: str, until: str) -> list[tuple[str, str]]:
    assert calendar
    return [(format_date(date)[:16], name) for date, name in calendar.expand(parse_date(since), parse_date(until))]


def weekly(*entries: tuple[str, str]) -> Calendar:
    found = [parse_weekly(text, name) for text, name in entries]
    return Calendar(tuple(each for each in found if each), default="else")


def test_days_nights_and_weekends() -> None:
    found = steps(parse_json(EXAMPLE).calendar, "2031-01-09 10:00:00", "2031-01-13 12:00:00")  # a Thursday
    assert found == [
        ("2031-01-09 10:00", "day"),
        ("2031-01-09 19:00", "night"),
        ("2031-01-10 08:00", "day"),
        ("2031-01-10 19:00", "night"),
        ("2031-01-11 00:00", "weekend"),
        ("2031-01-13 00:00", "night"),
        ("2031-01-13 08:00", "day"),
    ]


def test_a_single_stretch_wins_over_weeks() -> None:
    found = steps(parse_json(EXAMPLE).calendar, "2031-07-23 18:00:00", "2031-08-29 20:00:00")
    assert found == [
        ("2031-07-23 18:00", "day"),
        ("2031-07-23 19:00", "night"),
        ("2031-07-23 19:30", "holiday"),
        ("2031-08-29 08:30", "day"),
        ("2031-08-29 19:00", "night"),
    ]


def test_hours_that_end_before_they_begin_go_on_to_the_next_day() -> None:
    calendar = weekly(("22:00-06:00 sun * *", "late"))
    assert steps(calendar, "2031-01-12 00:00:00", "2031-01-14 00:00:00") == [
        ("2031-01-12 00:00", "else"),
        ("2031-01-12 22:00", "late"),
        ("2031-01-13 06:00", "else"),
    ]


def test_midnight_ends_a_day() -> None:
    calendar = weekly(("12:00-00:00 mon * *", "noon"))
    assert [each[0] for each in steps(calendar, "2031-01-13", "2031-01-15")] == [
        "2031-01-13 00:00",
        "2031-01-13 12:00",
        "2031-01-14 00:00",
    ]


def test_ranges_of_days_wrap() -> None:
    period = parse_weekly("* fri-mon,wed * *", "x")
    assert period
    assert period.days == {4, 5, 6, 0, 2}


def test_the_first_of_two_that_overlap_holds() -> None:
    calendar = weekly(("10:00-12:00 * * *", "first"), ("11:00-13:00 mon * *", "second"))
    assert calendar.overlaps() == [("first", "second")]
    assert steps(calendar, "2031-01-13 09:00:00", "2031-01-13 14:00:00") == [
        ("2031-01-13 09:00", "else"),
        ("2031-01-13 10:00", "first"),
        ("2031-01-13 12:00", "second"),
        ("2031-01-13 13:00", "else"),
    ]


def test_a_day_on_which_the_clock_changes_begins_and_ends_at_its_hours() -> None:
    """The last Sundays of March and October have 23 and 25 hours in this zone."""
    calendar = weekly(("* sun * *", "sunday"))
    for midnight, hours in (("2031-03-30", 23), ("2031-10-26", 25)):
        day = parse_date(midnight)
        (begin, _), (end, _) = calendar.expand(day, day + 30 * 3600)
        assert (begin, end - begin) == (day, hours * 3600)


@pytest.mark.parametrize("seed", range(20))
def test_each_minute_has_the_rules_that_its_weekday_and_clock_say(seed: int) -> None:
    rng = random.Random(seed)
    calendar = parse_json(EXAMPLE).calendar
    assert calendar
    since = parse_date("2031-01-01") + rng.randrange(300 * 86400)
    found = calendar.expand(since, since + 20 * 86400)
    for _ in range(50):
        date = since + rng.randrange(20 * 86400)
        shown = datetime.fromtimestamp(date)
        is_holiday = datetime(2031, 7, 23, 19, 30) <= shown < datetime(2031, 8, 29, 8, 30)
        is_day = timedelta(hours=8) <= shown - shown.replace(hour=0, minute=0, second=0) < timedelta(hours=19)
        expected = "holiday" if is_holiday else "weekend" if shown.weekday() > 4 else "day" if is_day else "night"
        assert max(each for each in found if each[0] <= date)[1] == expected


def test_dates_of_a_single_stretch_are_local() -> None:
    once = parse_single("2031-07-23 19:30", "2031-08-29 08:30", "x")
    assert (once.begin, once.end) == (parse_date("2031-07-23 19:30:00"), parse_date("2031-08-29 08:30:00"))


def test_rules_are_given_by_date_and_the_window_ends_them() -> None:
    now = parse_date("2031-01-09 10:00:00")
    quotas = parse_json(EXAMPLE).quotas(100, now, 86400, 3600)
    assert quotas.latest_start == now + 86400
    limits = [quotas.rules[period.rules][0].resources for period in quotas.periods]
    assert limits == [100, 400, 100]
