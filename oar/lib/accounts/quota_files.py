"""Parsers of the two formats of a quota file: JSON, and the Perl statements of OAR 2, which are never executed.

The calendar of a JSON file tells which rules apply in weekly periods and in single periods.  Days are calendar days in
local time: a day with a clock change has 23 or 25 hours.

See docs/design/planner.rst, "Quotas".
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from oar.lib.accounts.limit_rules import SECTION, waiting_rules
from oar.lib.accounts.quota_records import QuotaPeriod, QuotaRule, Quotas
from oar.lib.base.errors import BadRequest
from oar.lib.base.times import FOREVER, local_midnight, local_minute, parse_date
from oar.lib.nodes.states import ResourceState

if TYPE_CHECKING:
    from oar.lib.config.files import Config

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

    def overlaps(self, other: "WeeklyPeriod") -> bool:
        """Return whether two periods have a common minute; a period may extend beyond the end of the week."""
        week = 7 * _DAY
        return any(
            max(day * _DAY + self.begin, shifted + other.begin) < min(day * _DAY + self.end, shifted + other.end)
            for day in self.days
            for other_day in other.days
            for shifted in (other_day * _DAY - week, other_day * _DAY, other_day * _DAY + week)
        )


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
        return {each.name for each in self.weekly} | {each.name for each in self.single} | {self.default}

    def overlaps(self) -> list[tuple[str, str]]:
        return [
            (first.name, second.name)
            for index, first in enumerate(self.weekly)
            for second in self.weekly[index + 1 :]
            if first.name != second.name and first.overlaps(second)
        ]

    def expand(self, since: int, until: int) -> list[tuple[int, str]]:
        """Return the dates from ``since`` to ``until`` at which the applicable rules change, with their names."""
        changes: list[tuple[int, str]] = []
        day = 0
        while True:
            midnight, _ = local_midnight(since, day)
            begin, end = local_minute(midnight, 0), local_minute(midnight, _DAY)
            if begin >= until:
                return changes
            periods = [*self.single, *self._weekly_of(since, day - 1), *self._weekly_of(since, day)]
            cuts = {begin, *(date for each in periods for date in (each.begin, each.end) if begin < date < end)}
            if begin <= since < end:
                cuts.add(since)
            for cut in sorted(cuts):
                if since <= cut < until:
                    name = next((each.name for each in periods if each.begin <= cut < each.end), self.default)
                    if not changes or changes[-1][1] != name:
                        changes.append((cut, name))
            day += 1

    def _weekly_of(self, since: int, day: int) -> list[SinglePeriod]:
        midnight, weekday = local_midnight(since, day)
        return [
            SinglePeriod(each.name, local_minute(midnight, each.begin), local_minute(midnight, each.end))
            for each in self.weekly
            if weekday in each.days
        ]


def parse_weekly(text: str, name: str) -> WeeklyPeriod | None:
    """Parse ``<hours> <weekdays> * *``; return None for ``default``.  Raises BadRequest."""
    words = text.split()
    if words in (["default"], ["*", "*", "*", "*"]):
        return None
    if len(words) != 4 or words[2:] != ["*", "*"]:
        raise BadRequest(f'"{text}" is not "<hours> <weekdays> * *" or "default"')
    begin, end = _hours(words[0])
    days = range(7) if words[1] == "*" else (day for part in words[1].split(",") for day in _range_of_days(part))
    return WeeklyPeriod(name, frozenset(days), begin, end)


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


def _range_of_days(text: str) -> Sequence[int]:
    first, dash, last = text.lower().partition("-")
    if first not in _DAYS or (dash and last not in _DAYS):
        raise BadRequest(f'"{text}" is not a day of the week ({", ".join(_DAYS)}) or a range of these')
    begin, end = _DAYS.index(first), _DAYS.index(last or first)
    return [day % 7 for day in range(begin, end + 1 if end >= begin else end + 8)]


_NUMBER = r"-?[0-9]+(?:\.[0-9]+)?"


_LIMIT = re.compile(rf"(?:({_NUMBER})|(?:({_NUMBER})\s*\*\s*)?ALL)\Z", re.ASCII)


_BRACE = r"""\s*(?:->)?\s*\{\s*(?:'([^'{}]*)'|"([^"{}]*)"|([^\s'"{}]+))\s*\}"""


_STATEMENT = re.compile(
    rf"\s*\$Gantt_quotas{_BRACE * 4}\s*=\s*(?:\[([^\]]*)\]|({_NUMBER}))\s*;",
    re.ASCII,
)


class QuotaFileError(ValueError):
    """A quota file cannot be parsed; the text names the line."""


@dataclass(frozen=True, slots=True)
class Limit:
    """A number, or a fraction of all resources; -1 = no limit."""

    number: float
    is_part: bool = False

    def of(self, everything: int) -> float:
        """Return the limit as a number, if ``everything`` resources exist."""
        return self.number * everything if self.is_part else self.number


@dataclass(frozen=True, slots=True)
class RuleText:
    """A rule as written in the file: its key and its limits."""

    key: tuple[str, str, str, str]
    resources: Limit
    jobs: Limit
    hours: Limit

    @property
    def limits(self) -> tuple[Limit, Limit, Limit]:
        return self.resources, self.jobs, self.hours

    def on(self, everything: int) -> QuotaRule:
        """Return the rule, if ``everything`` resources exist."""
        return QuotaRule(
            *self.key,
            resources=_whole(self.resources.of(everything)),
            jobs=_whole(self.jobs.of(everything)),
            seconds=_whole(self.hours.of(everything) * 3600),
        )


@dataclass(frozen=True, slots=True)
class QuotaFile:
    """The content of a quota file."""

    rules: Mapping[str, tuple[RuleText, ...]]  #: by the name of the period
    calendar: Calendar | None = None
    warnings: tuple[str, ...] = field(default=())

    def quotas(self, everything: int, now: int, window: int, longest: int) -> Quotas:
        """Return the rules with the dates at which they apply.

        ``everything``: the number of resources for ALL.  ``window``: how far in the future jobs may start, in seconds.
        ``longest``: the longest walltime of a job, in seconds.
        """
        if self.calendar is None:
            return Quotas((self._on(OTHERWISE, everything),), (QuotaPeriod(0, 0),))
        names = sorted(self.calendar.names() | {OTHERWISE})
        steps = self.calendar.expand(now, now + window + longest)
        periods = tuple(QuotaPeriod(date, names.index(name)) for date, name in steps)
        return Quotas(tuple(self._on(name, everything) for name in names), periods, now + window)

    @property
    def has_parts(self) -> bool:
        """Whether a limit is a part of all resources."""
        limits = (limit for rules in self.rules.values() for rule in rules for limit in rule.limits)
        return any(limit.is_part for limit in limits)

    def rule_sets(self, everything: int) -> list[tuple[QuotaRule, ...]]:
        """Return the rules of each period that the file names; ``everything``: the number of resources for ALL."""
        names = self.calendar.names() if self.calendar else {OTHERWISE}
        return [self._on(name, everything) for name in sorted(names)]

    def _on(self, name: str, everything: int) -> tuple[QuotaRule, ...]:
        return tuple(rule.on(everything) for rule in self.rules.get(name, ()))


def states_of_all(config: "Config") -> tuple[ResourceState, ...]:
    """Return the states of the resources that ALL counts."""
    states = (ResourceState.ALIVE, ResourceState.ABSENT)
    is_wide = config.quotas_all_nb_resources_mode == "default_not_dead"
    return (*states, ResourceState.SUSPECTED) if is_wide else states


#: No rules.
NOTHING = QuotaFile({})


def parse(text: str) -> QuotaFile:
    """Parse a quota file in either format.  Raises QuotaFileError."""
    return parse_json(text) if text.lstrip().startswith(("{", "[")) else parse_statements(text)


def parse_json(text: str) -> QuotaFile:
    """Parse the JSON format.  Raises QuotaFileError."""
    try:
        content = json.loads(text)
    except json.JSONDecodeError as error:
        raise QuotaFileError(f"line {error.lineno}: {error.msg}") from None
    except RecursionError:
        raise QuotaFileError("line 1: the braces are nested too deeply") from None
    if not isinstance(content, dict):
        raise QuotaFileError("line 1: it is not an object")
    return _JsonReader(text, content).file()


def parse_statements(text: str) -> QuotaFile:
    """Parse the format of OAR 2.  Raises QuotaFileError."""
    plain = re.sub(r"(?m)#.*$", "", text)
    rules: dict[tuple[str, str, str, str], RuleText] = {}
    at = 0
    while plain[at:].strip():
        match = _STATEMENT.match(plain, at)
        if not match:
            line = plain.count("\n", 0, at + len(plain[at:]) - len(plain[at:].lstrip())) + 1
            raise QuotaFileError(
                f"line {line}: it is not $Gantt_quotas->{{queue}}->{{project}}->{{type}}->{{user}} = …;"
            )
        parts = [next(part for part in match.groups()[3 * n : 3 * n + 3] if part is not None) for n in range(4)]
        line = plain.count("\n", 0, match.end()) + 1
        values = match[13].split(",") if match[13] is not None else [match[14]]
        rule = _rule(parts, [value.strip() for value in values], line)
        rules.pop(rule.key, None)
        rules[rule.key] = rule
        at = match.end()
    return QuotaFile({OTHERWISE: tuple(rules.values())})


class _JsonReader:
    """Parses the content of a JSON file; errors name the line of the invalid text."""

    def __init__(self, text: str, content: Mapping[str, Any]) -> None:
        self._text = text
        self._content = content

    def file(self) -> QuotaFile:
        calendar = self._calendar()
        names = {OTHERWISE} | (calendar.names() if calendar else set())
        rules = {name: self._rules(name) for name in sorted(names)}
        self._read(SECTION, partial(waiting_rules, self._content))
        warnings = (
            [f'the periods "{a}" and "{b}" overlap: the first holds' for a, b in calendar.overlaps()]
            if calendar
            else []
        )
        return QuotaFile(rules, calendar, tuple(warnings))

    def _rules(self, name: str) -> tuple[RuleText, ...]:
        found = self._content.get(name)
        if found is None and name == OTHERWISE:
            return ()
        if not isinstance(found, dict):
            raise self._error(name, f'there are no rules "{name}"')
        return tuple(self._rule(key, value) for key, value in found.items())

    def _rule(self, key: str, value: object) -> RuleText:
        values = value if isinstance(value, list) else [value]
        return _rule([part.strip() for part in key.split(",")], values, self._line(key))

    def _calendar(self) -> Calendar | None:
        if not (self._content.get("periodical") or self._content.get("oneshot")):
            return None
        weekly: list[WeeklyPeriod] = []
        default = OTHERWISE
        for when, name, *_ in self._entries("periodical", 2):
            period = self._read(when, partial(parse_weekly, when, name))
            if period is None:
                default = name
            else:
                weekly.append(period)
        single: list[SinglePeriod] = [
            self._read(begin, partial(parse_single, begin, end, name))
            for begin, end, name, *_ in self._entries("oneshot", 3)
        ]
        return Calendar(tuple(weekly), tuple(single), default)

    def _entries(self, name: str, least: int) -> list[list[str]]:
        entries = self._content.get(name, [])
        if not isinstance(entries, list):
            raise self._error(name, f'"{name}" is not a list')
        for entry in entries:
            is_good = isinstance(entry, list) and len(entry) >= least and all(isinstance(each, str) for each in entry)
            if not is_good:
                raise self._error(name, f"{json.dumps(entry)} is not an entry of {name}")
        return entries

    def _read(self, where: str, read: Any) -> Any:
        try:
            return read()
        except BadRequest as error:
            raise self._error(where, str(error)) from None

    def _error(self, where: str, text: str) -> QuotaFileError:
        return QuotaFileError(f"line {self._line(where)}: {text}")

    def _line(self, text: str) -> int:
        at = self._text.find(json.dumps(text))
        return self._text.count("\n", 0, max(at, 0)) + 1


def _whole(number: float) -> int:
    """Truncate a number to an integer, but ignore rounding errors: 2.9999999 gives 3."""
    return -1 if number < 0 else int(number + 1e-6)


def _rule(key: Sequence[str], values: Sequence[object], line: int) -> RuleText:
    """Return the rule with this key and these limits.  Raises QuotaFileError if they are invalid."""
    if len(key) != 4 or not all(key):
        raise QuotaFileError(f'line {line}: "{",".join(key)}" is not <queue>,<project>,<type>,<user>')
    if key[2] == "/":
        raise QuotaFileError(f'line {line}: "/" is not possible for the type')
    if not 1 <= len(values) <= 3:
        raise QuotaFileError(f"line {line}: a rule has one to three limits: resources, jobs, resource-hours")
    limits = [_limit(value, line) for value in values]
    limits += [Limit(-1)] * (3 - len(limits))
    return RuleText((key[0], key[1], key[2], key[3]), *limits)


def _limit(value: object, line: int) -> Limit:
    if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < FOREVER:
        return Limit(value)
    match = _LIMIT.match(value.strip()) if isinstance(value, str) else None
    if not match:
        raise QuotaFileError(f"line {line}: {json.dumps(value)} is not a number, ALL or <factor>*ALL")
    if match[1] is not None:
        return Limit(float(match[1]))
    return Limit(float(match[2] or 1), is_part=True)
