"""The limits of a condition: its size, the length of the texts that it creates, its patterns.

A condition within the limits costs a database server little memory and little time for each row.  No value is longer
than ``LONGEST_VALUE``, and no pattern makes a regular expression backtrack excessively.
"""

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from oar.lib.conditions.tokens import invalid
from oar.lib.conditions.tree import Call, Case, Cast, Column, Node, Numeral, Operation, Text, parts

#: Parts of a condition, at most; the values of a list are not counted.  How deep it is nested, at most.
MOST_NODES = 200
DEEPEST = 50
#: Subqueries, at most.
MOST_SELECTS = 3

#: Characters of a value that a condition makes, at most.
LONGEST_VALUE = 65536
#: Characters of a column whose type has no length that are looked at when texts are put together.
LONGEST_COLUMN = 4096
#: Characters of a value of a column of numbers, dates or truth values, as text.
NUMBER_WIDTH = 64
#: Digits behind the point to which ``round`` may round.
MOST_DIGITS = 30

#: Characters of a pattern of LIKE or of a regular expression, at most; the same with repetitions written out.
LONGEST_PATTERN = 256
LONGEST_WRITTEN_OUT = 512
#: Digits of a number, and its exponent, at most.
_LONGEST_NUMBER, _LARGEST_EXPONENT = 40, 30

_REPETITION = re.compile(r"[*+?]|\{([0-9]*),?([0-9]*)\}")
_GROUP = "(?:"


def check_number(text: str, position: int) -> None:
    """Raise BadCondition if a number is too long."""
    digits, _, exponent = text.lower().partition("e")
    if len(digits) > _LONGEST_NUMBER or (exponent and abs(int(exponent[:9])) > _LARGEST_EXPONENT):
        raise invalid("the number is too long", position)


def check_pattern(pattern: str, position: int, *, is_regular: bool) -> None:
    """Raise BadCondition if a pattern costs a server too much time or memory: too long, or with nested repetitions."""
    if len(pattern) > LONGEST_PATTERN:
        raise invalid(f"the pattern is longer than {LONGEST_PATTERN} characters", position)
    if is_regular:
        _Pattern(pattern, position).check()


def check_substring(arguments: Sequence[Node], position: int) -> None:
    """Raise BadCondition if a pattern of ``substring`` may cost too much or has an escape."""
    texts = [argument for argument in arguments[1:] if isinstance(argument, Text)]
    if texts and len(arguments) > 2:
        raise invalid("substring takes one pattern, or two numbers", position)
    for text in texts:
        check_pattern(text.value, position, is_regular=True)


def check_digits(arguments: Sequence[Node], position: int) -> None:
    """Raise BadCondition if ``round`` has too many digits."""
    for argument in arguments:
        digits = argument
        if isinstance(digits, Operation) and digits.operator in ("-", "+") and len(digits.operands) == 1:
            (digits,) = digits.operands
        if not isinstance(digits, Numeral) or not digits.text.isdigit() or int(digits.text) > MOST_DIGITS:
            raise invalid(f"round takes a number of digits, at most {MOST_DIGITS}", position)


class _PatternGroup(NamedTuple):
    """The parsed part of a group: its length with repetitions expanded, and whether a part repeats."""

    length: int = 0
    last: int = 0  #: length of the last part
    repeats: bool = False
    last_repeats: bool = False

    def and_part(self, length: int, *, repeats: bool) -> "_PatternGroup":
        """Return the group with one more part."""
        return _PatternGroup(self.length + length, length, self.repeats or repeats, repeats)


class _Pattern:
    """A regular expression, parsed from left to right.  Characters in brackets are not operators."""

    def __init__(self, pattern: str, position: int) -> None:
        self._text = _without_brackets(pattern)
        self._position = position
        self._groups = [_PatternGroup()]

    def check(self) -> None:
        """Raise BadCondition if the pattern may cost too much."""
        if self._text.startswith("***"):
            raise invalid("'***' is not allowed in a pattern", self._position)
        place = 0
        while place < len(self._text):
            place = self._take(place)
            if sum(group.length for group in self._groups) > LONGEST_WRITTEN_OUT:
                text = (
                    f"the pattern is longer than {LONGEST_WRITTEN_OUT} characters when its repetitions are written out"
                )
                raise invalid(text, self._position)

    def _take(self, place: int) -> int:
        """Parse one part of the pattern; return the position after it."""
        if self._text.startswith("(?", place) and not self._text.startswith(_GROUP, place):
            raise invalid("'(?' is not allowed in a pattern", self._position)
        if self._text[place] == "(":
            self._groups.append(_PatternGroup())
            return place + (len(_GROUP) if self._text.startswith(_GROUP, place) else 1)
        if self._text[place] == ")" and len(self._groups) > 1:
            inner = self._groups.pop()
            self._groups[-1] = self._groups[-1].and_part(inner.length, repeats=inner.repeats)
            return place + 1
        if repetition := _REPETITION.match(self._text, place):
            self._repeat(repetition)
            return repetition.end()
        self._groups[-1] = self._groups[-1].and_part(1, repeats=False)
        return place + 1

    def _repeat(self, repetition: re.Match[str]) -> None:
        group = self._groups[-1]
        least, most = repetition[1], repetition[2]
        times = max(int(number) for number in (least or "1", most or "1"))
        is_lazy = repetition[0] == "?" and self._text[repetition.start() - 1 : repetition.start()] in tuple("*+?}")
        if is_lazy:
            return
        if group.last_repeats and repetition[0] != "?":
            raise invalid("a repetition inside a repetition is not allowed in a pattern", self._position)
        added = group.last * (times - 1)
        is_repeated = group.last_repeats or repetition[0] != "?"
        repeats = group.repeats or is_repeated
        self._groups[-1] = _PatternGroup(group.length + added, group.last + added, repeats, is_repeated)


def _without_brackets(pattern: str) -> str:
    """Return a pattern with one character in place of each bracket expression; an unclosed bracket stays unchanged."""
    parts, place = [], 0
    while place < len(pattern):
        end = _end_of_set(pattern, place) if pattern[place] == "[" else -1
        parts.append(pattern[place] if end < 0 else "x")
        place = place + 1 if end < 0 else end
    return "".join(parts)


def _end_of_set(pattern: str, place: int) -> int:
    """Return the position after ``[...]``, which may contain ``[:alpha:]``; -1 if the bracket is not closed."""
    place += 2 if pattern.startswith("[^", place) else 1
    place += pattern.startswith("]", place)
    while place < len(pattern) and pattern[place] != "]":
        kind = pattern[place + 1 : place + 2]
        if pattern[place] == "[" and kind in (":", ".", "="):
            close = pattern.find(f"{kind}]", place + 2)
            if close < 0:
                return -1
            place = close + 1
        place += 1
    return place + 1 if place < len(pattern) else -1


def check_length(node: Node, lengths: Mapping[str, int]) -> int:
    """Return the maximum length of the text that a node can create; ``lengths``: maximum lengths of the columns.

    Raises BadCondition if a part of it can be longer than LONGEST_VALUE.
    """
    length = _length(node, [check_length(child, lengths) for child in parts(node)], lengths)
    if length > LONGEST_VALUE:
        raise invalid(f"it makes a text of more than {LONGEST_VALUE} characters")
    return length


def _length(node: Node, inner: list[int], lengths: Mapping[str, int]) -> int:
    match node:
        case Column(name):
            length = lengths[name]
        case Text(value):
            length = len(value)
        case Operation("||"):
            length = sum(inner)
        case Numeral(digits):
            length = len(digits) + _LARGEST_EXPONENT
        case Operation("+" | "-" | "*" | "/" | "%"):
            length = sum(inner) + NUMBER_WIDTH
        case Call("mod" | "round"):
            length = sum(inner) + NUMBER_WIDTH
        case Call("replace", (_, old, _)):
            replaced = len(old.value) if isinstance(old, Text) else 1
            length = inner[0] + inner[0] // max(1, replaced) * inner[2]
        case Call() | Case() | Cast():
            length = max(NUMBER_WIDTH, *inner)
        case _:
            length = NUMBER_WIDTH
    return length
