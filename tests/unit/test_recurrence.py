"""The dates that rules of RFC 5545 give."""

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oar.lib.base.errors import BadRequest
from oar.lib.reservations import recurrence
from oar.lib.reservations.records import MAX_OCCURRENCES

PARIS = ZoneInfo("Europe/Paris")


def written(rule: str, first: str) -> list[str]:
    """Return the first dates of a rule as the clocks of Paris show them, with what they differ from UTC."""
    begin = int(datetime.fromisoformat(first).replace(tzinfo=PARIS).timestamp())
    dates = list(recurrence.dates(rule, begin, "Europe/Paris"))
    return [datetime.fromtimestamp(date, PARIS).strftime("%m-%d %H:%M %z")[:-2] for date in dates[:5]]


@pytest.mark.parametrize(
    ("rule", "first", "dates"),
    [
        ("FREQ=DAILY;COUNT=2", "2026-11-22T10:00", ["11-22 10:00 +01", "11-23 10:00 +01"]),
        ("rrule:freq=daily;count=1;", "2026-11-22T10:00", ["11-22 10:00 +01"]),
        ("FREQ=WEEKLY;BYDAY=MO,WE;COUNT=2", "2026-11-22T10:00", ["11-23 10:00 +01", "11-25 10:00 +01"]),
        ("FREQ=DAILY;BYHOUR=8,14;COUNT=2", "2026-11-22T10:10", ["11-22 14:10 +01", "11-23 08:10 +01"]),
        ("FREQ=MONTHLY;BYDAY=-1FR;COUNT=2", "2026-11-22T10:00", ["11-27 10:00 +01", "12-25 10:00 +01"]),
        ("FREQ=MONTHLY;BYMONTHDAY=31;COUNT=2", "2026-11-22T10:00", ["12-31 10:00 +01", "01-31 10:00 +01"]),
        ("FREQ=HOURLY;INTERVAL=6;COUNT=2", "2026-11-22T22:00", ["11-22 22:00 +01", "11-23 04:00 +01"]),
        ("FREQ=DAILY;UNTIL=20261123", "2026-11-22T10:00", ["11-22 10:00 +01", "11-23 10:00 +01"]),
        ("FREQ=DAILY;UNTIL=20261123T095959", "2026-11-22T10:00", ["11-22 10:00 +01"]),
        ("FREQ=DAILY;UNTIL=20261123T085959Z", "2026-11-22T10:00", ["11-22 10:00 +01"]),
        ("FREQ=DAILY;UNTIL=20261123T090000Z", "2026-11-22T10:00", ["11-22 10:00 +01", "11-23 10:00 +01"]),
        ("FREQ=DAILY;UNTIL=20201123", "2026-11-22T10:00", []),
        ("FREQ=DAILY;INTERVAL=7;BYDAY=MO", "2026-11-22T10:00", []),
    ],
)
def test_dates_of_a_rule(rule: str, first: str, dates: list[str]) -> None:
    assert written(rule, first) == dates


def test_a_time_that_summer_time_leaves_out_moves_forward_on_that_day_alone() -> None:
    dates = ["03-27 02:30 +01", "03-28 03:30 +02", "03-29 02:30 +02"]
    assert written("FREQ=DAILY;COUNT=3", "2027-03-27T02:30") == dates


def test_what_becomes_the_same_instant_is_one_date() -> None:
    dates = ["03-28 01:30 +01", "03-28 03:30 +02", "03-28 04:30 +02"]
    assert written("FREQ=HOURLY;COUNT=3", "2027-03-28T01:30") == dates


def test_of_a_time_that_exists_twice_the_first_is_taken() -> None:
    dates = ["10-30 02:30 +02", "10-31 02:30 +02", "11-01 02:30 +01"]
    assert written("FREQ=DAILY;COUNT=3", "2027-10-30T02:30") == dates


def test_a_rule_begins_where_it_is_asked_for_though_that_time_exists_twice() -> None:
    second = int(datetime(2027, 10, 31, 2, 30, tzinfo=PARIS, fold=1).timestamp())
    dates = list(recurrence.dates("FREQ=DAILY;COUNT=2", second, "Europe/Paris"))
    assert dates == [second, second + 86400]


@pytest.mark.parametrize(
    ("rule", "why"),
    [
        ("", "unknown part (empty): use FREQ, INTERVAL, BYDAY, BYMONTHDAY, BYHOUR, WKST, COUNT, UNTIL"),
        ("INTERVAL=2", "FREQ is missing"),
        ("FREQ=YEARLY", "FREQ cannot be YEARLY"),
        ("FREQ=SECONDLY", "FREQ cannot be SECONDLY"),
        ("FREQ=DAILY;FREQ=DAILY", "FREQ is given twice"),
        ("FREQ=DAILY;INTERVAL=0", "INTERVAL cannot be 0"),
        ("FREQ=DAILY;INTERVAL=10000", "INTERVAL cannot be 10000"),
        ("FREQ=DAILY;BYHOUR=24", "BYHOUR cannot be 24"),
        ("FREQ=DAILY;BYMONTHDAY=32", "BYMONTHDAY cannot be 32"),
        ("FREQ=DAILY;BYDAY=1MO", "a number in BYDAY needs FREQ=MONTHLY"),
        ("FREQ=WEEKLY;BYMONTHDAY=1", "BYMONTHDAY cannot be used with FREQ=WEEKLY"),
        ("FREQ=DAILY;COUNT=2;UNTIL=20270101", "COUNT and UNTIL exclude each other"),
        ("FREQ=DAILY;COUNT=1001", "a series has at most 1000 occurrences"),
        ("FREQ=DAILY;UNTIL=20271301", "UNTIL cannot be 20271301"),
        ("FREQ=HOURLY;INTERVAL=2;BYHOUR=3", "it matches no date"),
        ("FREQ=DAILY;" + "BYDAY=" + "MO," * 400 + "MO", "it is longer than 1000 characters"),
        ("FREQ=DAILY;BYDAY=MO\n;COUNT=1", "BYDAY cannot be MO\n"),
    ],
)
def test_what_is_no_rule_is_refused(rule: str, why: str) -> None:
    with pytest.raises(BadRequest) as refused:
        list(recurrence.dates(rule, 0, "UTC"))
    assert str(refused.value).partition(": write ")[0] == why


PARTS = st.fixed_dictionaries(
    {"FREQ": st.sampled_from(["HOURLY", "DAILY", "WEEKLY", "MONTHLY"])},
    optional={
        "INTERVAL": st.sampled_from(["1", "2", "7", "24", "168", "9999"]),
        "BYDAY": st.sampled_from(["MO", "SU,TU", "5MO", "-1FR"]),
        "BYMONTHDAY": st.sampled_from(["1", "-1", "29,30", "31"]),
        "BYHOUR": st.sampled_from(["0", "2", "3,23"]),
        "COUNT": st.sampled_from(["1", "10"]),
    },
)


@given(PARTS, st.integers(0, 2**33), st.sampled_from(["UTC", "Europe/Paris", "Australia/Lord_Howe", ""]))
def test_whatever_the_rule_its_dates_ascend_and_come_from_where_it_begins(
    parts: dict[str, str], first: int, zone: str
) -> None:
    try:
        dates = list(recurrence.dates(";".join(map("=".join, parts.items())), first, zone))
    except BadRequest:
        return
    assert dates == sorted(set(dates))
    assert len(dates) <= int(parts.get("COUNT", MAX_OCCURRENCES))
    assert not dates or dates[0] >= first


def test_a_rule_that_meets_the_end_of_the_calendar_ends_there() -> None:
    dates = list(recurrence.dates("FREQ=WEEKLY;INTERVAL=6;BYDAY=SU", 101218238, "UTC"))
    assert len(set(dates)) == len(dates) == 233


def test_the_zone_of_the_server_has_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable, name in (("Europe/Paris", "Europe/Paris"), (":UTC", "UTC"), ("CET-1", ""), ("../../etc/passwd", "")):
        monkeypatch.setenv("TZ", variable)
        assert recurrence.local_zone() == name


def test_a_zone_that_nobody_knows_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TZ", raising=False)
    assert recurrence.unknown_zone() == ""
    for variable in ("Europe/Paris", ":UTC", "CET-1CEST", "<+03>-3", "/usr/share/zoneinfo/UTC", ""):
        monkeypatch.setenv("TZ", variable)
        assert recurrence.unknown_zone() == ""
    for variable in ("Bogus/Zone", "Europe/Pariss", "../../etc/passwd", "/no/such/file", "x"):
        monkeypatch.setenv("TZ", variable)
        assert recurrence.unknown_zone() == variable


def test_a_zone_is_kept_under_its_name_or_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable, name in (("Europe/Paris", "Europe/Paris"), ("", "UTC"), ("/usr/share/zoneinfo/UTC", "UTC")):
        monkeypatch.setenv("TZ", variable)
        assert recurrence.lasting_zone().removeprefix("Etc/") == name
    for variable in ("CET-1CEST", "CET-1CEST,M3.5.0,M10.5.0/3", "Nowhere/City"):
        monkeypatch.setenv("TZ", variable)
        with pytest.raises(BadRequest, match="has no name"):
            recurrence.lasting_zone()
