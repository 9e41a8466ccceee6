"""Evaluate conditions on columns in memory, with the same results as PostgreSQL: sets of rows, one bit each.

This module evaluates equality, lists, LIKE, NULL, comparisons of integers and boolean operators.  Operations with rules
specific to the database (order of texts, regular expressions, arithmetic) raise NotInMemory.
"""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

from oar.lib.base.resource_set import ResourceSet, from_positions
from oar.lib.conditions.tree import Between, Column, Constant, InList, Node, Numeral, Operation, Text

Value = str | int | None

#: Comparisons of whole numbers.
_COMPARES: Mapping[str, Callable[[int, int], bool]] = {
    "=": lambda left, right: left == right,
    "<>": lambda left, right: left != right,
    "<": lambda left, right: left < right,
    "<=": lambda left, right: left <= right,
    ">": lambda left, right: left > right,
    ">=": lambda left, right: left >= right,
}
#: The same comparison, read from right to left.
_MIRRORED = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


class NotInMemory(Exception):
    """Only the database can evaluate a part of the condition."""


class OutOfTime(Exception):
    """The time limit for the evaluation is exceeded."""


class Truth(NamedTuple):
    """The rows for which a condition is true, and those for which it is NULL; it is false for all other rows."""

    true: ResourceSet
    null: ResourceSet = 0


class ColumnIndex:
    """The rows of each value of a column."""

    def __init__(self, values: Sequence[Value], *, is_text: bool) -> None:
        """``values``: texts or integers, in the order of the rows."""
        self.is_text = is_text
        self._rows: dict[Value, list[int]] = {}
        for row, value in enumerate(values):
            self._rows.setdefault(value, []).append(row)
        self.null = from_positions(self._rows.pop(None, ()))

    def equal(self, value: Value) -> ResourceSet:
        """Return the rows with this value."""
        return from_positions(self._rows.get(value, ()))

    def among(self, values: Collection[Value]) -> ResourceSet:
        """Return the rows with one of the values."""
        return from_positions(row for value in values for row in self._rows.get(value, ()))

    def where(self, test: Callable[[Any], bool]) -> ResourceSet:
        """Return the rows whose values pass a test; NULL never passes."""
        return from_positions(row for value, rows in self._rows.items() if test(value) for row in rows)

    def is_plain(self) -> bool:
        """Return whether all texts are ASCII, so that case conversion gives the same result on every system."""
        return all(isinstance(value, str) and value.isascii() for value in self._rows)


def evaluate(
    tree: Node, columns: Mapping[str, ColumnIndex], rows: int, has_time: Callable[[], bool] = lambda: True
) -> ResourceSet:
    """Return the rows for which a condition is true; ``rows``: the number of rows.

    ``has_time`` is called before each part.  Raises NotInMemory if a part is not supported here or names a missing
    column.
    Raises OutOfTime.
    """
    return _Evaluation(columns, (1 << rows) - 1, has_time).truth(tree).true


class _Evaluation:
    def __init__(
        self, columns: Mapping[str, ColumnIndex], everything: ResourceSet, has_time: Callable[[], bool]
    ) -> None:
        self._columns = columns
        self._everything = everything
        self._has_time = has_time

    def truth(self, node: Node) -> Truth:
        if not self._has_time():
            raise OutOfTime
        match node:
            case Constant(name):
                return Truth(self._everything if name == "TRUE" else 0, self._everything if name == "NULL" else 0)
            case Operation(operator, operands):
                return self._operation(operator, operands)
            case InList(Column() as column, values, is_negated):
                return self._negated(self._in_list(column, values), is_negated=is_negated)
            case Between(Column() as column, Numeral() as low, Numeral() as high, is_negated):
                above, below = self._compared(column, ">=", low), self._compared(column, "<=", high)
                return self._negated(self._all([above, below]), is_negated=is_negated)
            case _:
                raise NotInMemory

    def _operation(self, operator: str, operands: Sequence[Node]) -> Truth:
        if operator in ("AND", "OR", "NOT"):
            return self._connected(operator, [self.truth(operand) for operand in operands])
        match operator, operands:
            case ("IS NULL" | "IS NOT NULL", (Column(name),)):
                null = self._column(name).null
                return Truth(null if operator == "IS NULL" else self._everything & ~null)
            case ("LIKE" | "NOT LIKE" | "ILIKE" | "NOT ILIKE", (Column(name), Text(pattern))):
                matching = self._like(name, pattern, ignores_case="ILIKE" in operator)
                return self._negated(matching, is_negated=operator.startswith("NOT"))
            case (_, (Column() as column, (Numeral() | Text()) as literal)) if operator in _COMPARES:
                return self._compared(column, operator, literal)
            case (_, ((Numeral() | Text()) as literal, Column() as column)) if operator in _COMPARES:
                return self._compared(column, _MIRRORED[operator], literal)
            case _:
                raise NotInMemory

    def _connected(self, operator: str, truths: Sequence[Truth]) -> Truth:
        if operator == "AND":
            return self._all(truths)
        if operator == "OR":
            return self._not(self._all([self._not(truth) for truth in truths]))
        return self._not(truths[0])

    def _column(self, name: str) -> ColumnIndex:
        try:
            return self._columns[name]
        except KeyError:
            raise NotInMemory from None

    def _compared(self, column: Column, operator: str, literal: Numeral | Text) -> Truth:
        index = self._column(column.name)
        if operator in ("=", "<>"):
            equal = Truth(index.equal(_literal(index, literal)), index.null)
            return self._negated(equal, is_negated=operator == "<>")
        if index.is_text:
            raise NotInMemory  # the order of texts depends on the database
        number, compare = int(_literal(index, literal)), _COMPARES[operator]
        return Truth(index.where(lambda value: compare(value, number)), index.null)

    def _in_list(self, column: Column, values: Sequence[Node]) -> Truth:
        index = self._column(column.name)
        literals = set()
        for value in values:
            if not isinstance(value, Numeral | Text):
                raise NotInMemory
            literals.add(_literal(index, value))
        return Truth(index.among(literals), index.null)

    def _like(self, name: str, pattern: str, *, ignores_case: bool) -> Truth:
        index = self._column(name)
        if not index.is_text or (ignores_case and not (pattern.isascii() and index.is_plain())):
            raise NotInMemory
        return Truth(index.where(like(pattern, ignores_case=ignores_case)), index.null)

    def _negated(self, truth: Truth, *, is_negated: bool) -> Truth:
        return self._not(truth) if is_negated else truth

    def _not(self, truth: Truth) -> Truth:
        return Truth(self._everything & ~(truth.true | truth.null), truth.null)

    def _all(self, truths: Sequence[Truth]) -> Truth:
        """Combine truth values with AND: NULL where at least one is NULL and none is false."""
        true = possible = self._everything
        for truth in truths:
            true &= truth.true
            possible &= truth.true | truth.null
        return Truth(true, possible & ~true)


def _literal(index: ColumnIndex, literal: Numeral | Text) -> str | int:
    """Return a literal in the type of the column's values; for a numeric column, a text must be an integer."""
    text = literal.text if isinstance(literal, Numeral) else literal.value
    if index.is_text:
        if isinstance(literal, Numeral):
            raise NotInMemory
        return text
    if not re.fullmatch(r"[0-9]{1,18}" if isinstance(literal, Numeral) else r"[0-9]{1,9}", text):
        raise NotInMemory  # also a text that may be too large for the column type, which is an error in the database
    return int(text)


def like(pattern: str, *, ignores_case: bool) -> Callable[[str], bool]:
    """Return the test for a LIKE pattern without escapes; ``ignores_case``: only for ASCII patterns and texts.

    It takes a time of at most pattern length times text length: a regular expression with many ``.*`` would backtrack
    excessively.  Each part between two ``%`` is matched at its first position, which is always correct.


    >>> like("node-%", ignores_case=False)("node-12"), like("_%b", ignores_case=False)("b")
    (True, False)
    """
    first, *others = (_part(part, ignores_case=ignores_case) for part in pattern.split("%"))
    if not others:
        return lambda text: first.fullmatch(text) is not None
    *inner, last = others
    last_length = len(pattern) - pattern.rfind("%") - 1

    def test(text: str) -> bool:
        begin = first.match(text)
        end = len(text) - last_length
        if begin is None or end < begin.end() or not last.fullmatch(text, end):
            return False
        place = begin.end()
        for part in inner:
            match = part.search(text, place, end)
            if match is None:
                return False
            place = match.end()
        return True

    return test


def _part(part: str, *, ignores_case: bool) -> re.Pattern[str]:
    """Return the regular expression for the text between two ``%``; it has no repetition."""
    text = "".join("." if character == "_" else re.escape(character) for character in part)
    return re.compile(text, re.DOTALL | (re.IGNORECASE if ignores_case else 0))
