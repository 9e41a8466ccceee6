"""Which rules of quotas hold when: periods of the week, and single stretches of time.

Days are those of the calendar, in local time: one with a change of the clock has 23 or 25 hours.

See docs/design/planner.rst, "Quotas".
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from oar.lib.facts.errors import BadRequest
from oar.lib.facts.times import local_midnight, local_minute, parse_date

_DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_HOURS = re.compile(r"([0-9]{1,2}):([0-9]{2})-([0-9]{1,2}):([0-9]{2})\Z", re.ASCII)
_DAY = 1440

#: Name of the rules that hold where no period does.
OTHERWISE = "quotas"


@dataclass(frozen=True, slots=True)
class Weekly:
    """A period that comes again on days of the week."""

    name: str
    days: frozenset[int]
    begin: int  #: minutes of the day
    end: int  #: above 1440: of the next day

    def minutes(self) -> list[tuple[int, int]]:
        """Return its stretches in a week, in minutes; one may go on over the end of the week."""
        return [(day * _DAY + self.begin, day * _DAY + self.end) for day in sorted(self.days)]


@dataclass(frozen=True, slots=True)
class Once:
    """A stretch of time."""

    name: str
    begin: int
    end: int


@dataclass(frozen=True, slots=True)
class Calendar:
    """Periods: a single one wins over weekly ones, the first over the later ones."""

    weekly: tuple[Weekly, ...] = ()
    once: tuple[Once, ...] = ()
    default: str = OTHERWISE

    def names(self) -> set[str]:
        """Return the names of rules that the periods use."""
        return {each.name for each in self.weekly} | {each.name for each in self.once} | {self.default}

    def overlaps(self) -> list[tuple[str, str]]:
        """Return the weekly periods that have time in common."""
        return [
            (one.name, other.name)
            for at, one in enumerate(self.weekly)
            for other in self.weekly[at + 1 :]
            if one.name != other.name and _meet(one, other)
        ]

    def expand(self, since: int, until: int) -> list[tuple[int, str]]:
        """Return which rules hold from ``since`` until ``until``: the dates at which that changes, with the names."""
        found: list[tuple[int, str]] = []
        for begin, name in self._steps(since, until):
            if not found or found[-1][1] != name:
                found.append((max(begin, since), name))
        return found

    def _steps(self, since: int, until: int) -> Iterator[tuple[int, str]]:
        """Go through the days; each is cut where anything begins or ends."""
        day = 0
        while True:
            midnight, _ = local_midnight(since, day)
            begin, end = local_minute(midnight, 0), local_minute(midnight, _DAY)
            if begin >= until:
                return
            stretches = [*self.once, *self._weekly_of(since, day - 1), *self._weekly_of(since, day)]
            cuts = {begin, *(date for each in stretches for date in (each.begin, each.end) if begin < date < end)}
            if begin <= since < end:
                cuts.add(since)
            for cut in sorted(cuts):
                if since <= cut < until:
                    yield cut, next((each.name for each in stretches if each.begin <= cut < each.end), self.default)
            day += 1

    def _weekly_of(self, since: int, day: int) -> list[Once]:
        midnight, weekday = local_midnight(since, day)
        return [
            Once(each.name, local_minute(midnight, each.begin), local_minute(midnight, each.end))
            for each in self.weekly
            if weekday in each.days
        ]


def _meet(one: Weekly, other: Weekly) -> bool:
    week = 7 * _DAY
    return any(
        max(a, c + shift) < min(b, d + shift)
        for a, b in one.minutes()
        for c, d in other.minutes()
        for shift in (-week, 0, week)
    )


def parse_weekly(text: str, name: str) -> Weekly | None:
    """Read ``<hours> <weekdays> * *``; None for the default.  Raises BadRequest."""
    words = text.split()
    if words in (["default"], ["*", "*", "*", "*"]):
        return None
    if len(words) != 4 or words[2:] != ["*", "*"]:
        raise BadRequest(f'"{text}" is not "<hours> <weekdays> * *" or "default"')
    begin, end = _hours(words[0])
    return Weekly(name, _weekdays(words[1]), begin, end)


def parse_once(begin: str, end: str, name: str) -> Once:
    """Read the two dates of a single stretch of time.  Raises BadRequest."""
    once = Once(name, parse_date(begin), parse_date(end))
    if once.end <= once.begin:
        raise BadRequest(f'"{end}" is not after "{begin}"')
    return once


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
