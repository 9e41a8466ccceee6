"""The calendar of quotas: which rules apply in weekly periods and in single periods.

Days are calendar days in local time: a day with a clock change has 23 or 25 hours.

See docs/design/planner.rst, "Quotas".
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from oar.lib.base.errors import BadRequest
from oar.lib.base.times import local_midnight, local_minute, parse_date

_DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_HOURS = re.compile(r"([0-9]{1,2}):([0-9]{2})-([0-9]{1,2}):([0-9]{2})\Z", re.ASCII)
_DAY = 1440

#: Name of the rules that hold where no period does.
OTHERWISE = "quotas"


@dataclass(frozen=True, slots=True)
class WeeklyPeriod:
    """A period of the day that repeats each week on some weekdays."""

    name: str
    days: frozenset[int]
    begin: int  #: minutes of the day
    end: int  #: above 1440: of the next day

    def minutes(self) -> list[tuple[int, int]]:
        """Return its begins and ends in a week, in minutes; a period may extend beyond the end of the week."""
        return [(day * _DAY + self.begin, day * _DAY + self.end) for day in sorted(self.days)]


@dataclass(frozen=True, slots=True)
class SinglePeriod:
    """A period between two dates."""

    name: str
    begin: int
    end: int


@dataclass(frozen=True, slots=True)
class Calendar:
    """All periods.

    If periods overlap, single periods take precedence over weekly ones, and earlier ones over later ones.
    """

    weekly: tuple[WeeklyPeriod, ...] = ()
    single: tuple[SinglePeriod, ...] = ()
    default: str = OTHERWISE

    def names(self) -> set[str]:
        """Return the names of the rule sets that the periods use."""
        return {each.name for each in self.weekly} | {each.name for each in self.single} | {self.default}

    def overlaps(self) -> list[tuple[str, str]]:
        """Return the pairs of weekly periods that overlap."""
        return [
            (first.name, second.name)
            for index, first in enumerate(self.weekly)
            for second in self.weekly[index + 1 :]
            if first.name != second.name and _meet(first, second)
        ]

    def expand(self, since: int, until: int) -> list[tuple[int, str]]:
        """Return the dates from ``since`` to ``until`` at which the applicable rules change, with their names."""
        changes: list[tuple[int, str]] = []
        for begin, name in self._steps(since, until):
            if not changes or changes[-1][1] != name:
                changes.append((max(begin, since), name))
        return changes

    def _steps(self, since: int, until: int) -> Iterator[tuple[int, str]]:
        """Iterate over the days; each day is split where a period begins or ends."""
        day = 0
        while True:
            midnight, _ = local_midnight(since, day)
            begin, end = local_minute(midnight, 0), local_minute(midnight, _DAY)
            if begin >= until:
                return
            periods = [*self.single, *self._weekly_of(since, day - 1), *self._weekly_of(since, day)]
            cuts = {begin, *(date for each in periods for date in (each.begin, each.end) if begin < date < end)}
            if begin <= since < end:
                cuts.add(since)
            for cut in sorted(cuts):
                if since <= cut < until:
                    yield cut, next((each.name for each in periods if each.begin <= cut < each.end), self.default)
            day += 1

    def _weekly_of(self, since: int, day: int) -> list[SinglePeriod]:
        midnight, weekday = local_midnight(since, day)
        return [
            SinglePeriod(each.name, local_minute(midnight, each.begin), local_minute(midnight, each.end))
            for each in self.weekly
            if weekday in each.days
        ]


def _meet(first: WeeklyPeriod, second: WeeklyPeriod) -> bool:
    week = 7 * _DAY
    return any(
        max(a, c + shift) < min(b, d + shift)
        for a, b in first.minutes()
        for c, d in second.minutes()
        for shift in (-week, 0, week)
    )


def parse_weekly(text: str, name: str) -> WeeklyPeriod | None:
    """Parse ``<hours> <weekdays> * *``; return None for ``default``.  Raises BadRequest."""
    words = text.split()
    if words in (["default"], ["*", "*", "*", "*"]):
        return None
    if len(words) != 4 or words[2:] != ["*", "*"]:
        raise BadRequest(f'"{text}" is not "<hours> <weekdays> * *" or "default"')
    begin, end = _hours(words[0])
    return WeeklyPeriod(name, _weekdays(words[1]), begin, end)


def parse_single(begin: str, end: str, name: str) -> SinglePeriod:
    """Parse the two dates of a single period.  Raises BadRequest."""
    period = SinglePeriod(name, parse_date(begin), parse_date(end))
    if period.end <= period.begin:
        raise BadRequest(f'"{end}" is not after "{begin}"')
    return period


def _hours(text: str) -> tuple[int, int]:
    if text == "*":
        return 0, _DAY
    match = _HOURS.match(text)
    if not match:
        raise BadRequest(f'"{text}" is not hh:mm-hh:mm')
    begin, end = int(match[1]) * 60 + int(match[2]), int(match[3]) * 60 + int(match[4])
    if begin >= _DAY or end > _DAY or int(match[2]) > 59 or int(match[4]) > 59:
        raise BadRequest(f'"{text}": there is no such time of the day')
    return begin, end if end > begin else end + _DAY


def _weekdays(text: str) -> frozenset[int]:
    if text == "*":
        return frozenset(range(7))
    return frozenset(day for part in text.split(",") for day in _range_of_days(part))


def _range_of_days(text: str) -> Sequence[int]:
    first, dash, last = text.lower().partition("-")
    if first not in _DAYS or (dash and last not in _DAYS):
        raise BadRequest(f'"{text}" is not a day of the week ({", ".join(_DAYS)}) or a range of these')
    begin, end = _DAYS.index(first), _DAYS.index(last or first)
    return [day % 7 for day in range(begin, end + 1 if end >= begin else end + 8)]
