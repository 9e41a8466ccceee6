"""The limits of a condition: its size, the length of the texts that it makes, its patterns.

Whatever passes costs a database server little memory and little time for each row: no value is longer than
``LONGEST_VALUE``, no pattern makes a regular expression go back and forth.
"""

import re
from collections.abc import Mapping

from oar.lib.conditions.tokens import invalid
from oar.lib.conditions.tree import Call, Case, Cast, Column, Node, Operation, Text

#: Parts of a condition, at most; the values of a list are not counted.  How deep it is nested, at most.
MOST_NODES = 200
DEEPEST = 50
#: Subqueries, at most.
MOST_SELECTS = 3

#: Characters of a value that a condition makes, at most.
LONGEST_VALUE = 65536
#: Characters of a column whose type has no length that are looked at when texts are put together.
LONGEST_COLUMN = 4096
#: Characters of a number as text, at most.
_NUMBER_WIDTH = 64

#: Characters of a pattern of LIKE or of a regular expression, at most, and its counted repetitions together.
LONGEST_PATTERN = 256
MOST_REPETITIONS = 512
#: Digits of a number, and its exponent, at most.
_LONGEST_NUMBER, _LARGEST_EXPONENT = 40, 30

_REPETITION = re.compile(r"[*+]|\{([0-9]*),?([0-9]*)\}")


def check_number(text: str, position: int) -> None:
    """Refuse a number that is longer than anybody needs.  Raises BadCondition."""
    digits, _, exponent = text.lower().partition("e")
    if len(digits) > _LONGEST_NUMBER or (exponent and abs(int(exponent[:9])) > _LARGEST_EXPONENT):
        raise invalid("the number is too long", position)


def check_pattern(pattern: str, position: int, *, is_regular: bool) -> None:
    """Refuse a pattern that is too long, or repeats what repeats already.  Raises BadCondition."""
    if len(pattern) > LONGEST_PATTERN:
        raise invalid(f"the pattern is longer than {LONGEST_PATTERN} characters", position)
    if is_regular and _nests_repetitions(pattern):
        raise invalid("a repetition inside a repetition is not allowed in a pattern", position)
    counts = [int(count) for match in _REPETITION.finditer(pattern) for count in match.groups() if count]
    if is_regular and sum(counts) > MOST_REPETITIONS:
        raise invalid(f"the pattern repeats more than {MOST_REPETITIONS} times", position)


def _nests_repetitions(pattern: str) -> bool:
    """Tell whether a group that repeats is repeated.  Characters in brackets are no operators."""
    pattern = re.sub(r"\[\^?\]?[^\]]*\]", "x", pattern)
    repeats = [False]  # of each group that is open
    position = 0
    while position < len(pattern):
        if pattern[position] == "(":
            repeats.append(False)
        elif pattern[position] == ")" and len(repeats) > 1:
            inner = repeats.pop()
            is_repeated = _REPETITION.match(pattern, position + 1) is not None
            if inner and is_repeated:
                return True
            repeats[-1] |= inner or is_repeated
        elif repetition := _REPETITION.match(pattern, position):
            repeats[-1] = True
            if _REPETITION.match(pattern, repetition.end()):
                return True
        position += 1
    return False


def check_length(node: Node, lengths: Mapping[str, int]) -> int:
    """Return the length of the longest text that a node can make; ``lengths`` are those of the columns.

    Raises BadCondition when a part of it can be longer than LONGEST_VALUE.
    """
    parts = [check_length(child, lengths) for child in node.parts]
    length = _length(node, parts, lengths)
    if length > LONGEST_VALUE:
        raise invalid(f"it makes a text of more than {LONGEST_VALUE} characters")
    return length


def _length(node: Node, parts: list[int], lengths: Mapping[str, int]) -> int:
    match node:
        case Column(name):
            length = lengths[name]
        case Text(value):
            length = len(value)
        case Operation("||"):
            length = sum(parts)
        case Call("replace", (_, old, _)):
            replaced = len(old.value) if isinstance(old, Text) else 1
            length = parts[0] + parts[0] // max(1, replaced) * parts[2]
        case Call() | Case() | Cast():
            length = max(_NUMBER_WIDTH, *parts)
        case _:
            length = _NUMBER_WIDTH
    return length
