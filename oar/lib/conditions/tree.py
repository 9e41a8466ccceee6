"""The tree of a condition: the result of the parser, and the input of the evaluation; the functions of the language."""

from collections.abc import Mapping
from typing import NamedTuple


class Column(NamedTuple):
    """The value of a column in the current row."""

    name: str


class Numeral(NamedTuple):
    """A number as written: digits, optionally with a decimal point and an exponent."""

    text: str
    start: int = -1  #: where it stands in the text of the condition


class Text(NamedTuple):
    """A text literal."""

    value: str


class Constant(NamedTuple):
    """NULL, TRUE or FALSE."""

    name: str


class Operation(NamedTuple):
    """An operator and its operands: arithmetic, ``||``, comparisons, LIKE, regular expressions, AND, OR, NOT.

    ``operator`` is written as in SQL, in upper case (``NOT LIKE``, ``IS NULL``, ``IS NOT TRUE``); AND and OR have two
    or more operands.
    """

    operator: str
    operands: "tuple[Node, ...]"


class Between(NamedTuple):
    """``operand [NOT] BETWEEN low AND high``."""

    operand: "Node"
    low: "Node"
    high: "Node"
    is_negated: bool


class InList(NamedTuple):
    """``operand [NOT] IN (values)``."""

    operand: "Node"
    values: "tuple[Node, ...]"
    is_negated: bool


class InSelect(NamedTuple):
    """``operand [NOT] IN (SELECT column FROM the same table WHERE condition GROUP BY column HAVING count(*) ...)``."""

    operand: "Node"
    column: Column
    condition: "Node | None"
    having: "tuple[str, Numeral] | None"  #: comparison and number of ``HAVING count(*)``
    is_negated: bool


class Call(NamedTuple):
    """A function call; the function name is in lower case."""

    function: str
    arguments: "tuple[Node, ...]"


class Cast(NamedTuple):
    """A value converted to another type."""

    operand: "Node"
    type: str


class Case(NamedTuple):
    """``CASE [operand] WHEN ... THEN ... [ELSE ...] END``."""

    operand: "Node | None"
    branches: "tuple[tuple[Node, Node], ...]"
    otherwise: "Node | None"


#: Any part of a condition.
Node = Column | Numeral | Text | Constant | Operation | Between | InList | InSelect | Call | Cast | Case


def parts(node: Node) -> tuple[Node, ...]:
    """Return the child nodes."""
    children: tuple[Node | None, ...] = ()
    match node:
        case Operation(_, operands):
            children = operands
        case Between(operand, low, high):
            children = (operand, low, high)
        case InList(operand, values):
            children = (operand, *values)
        case InSelect(operand, column, condition):
            children = (operand, column, condition)
        case Call(_, arguments):
            children = arguments
        case Cast(operand):
            children = (operand,)
        case Case(operand, branches, otherwise):
            children = (operand, otherwise, *(child for branch in branches for child in branch))
    return tuple(child for child in children if child is not None)


def columns(node: Node) -> frozenset[str]:
    """Return the names of the columns in a condition."""
    names = frozenset({node.name}) if isinstance(node, Column) else frozenset()
    return names.union(*map(columns, parts(node)))


def has_subquery(node: Node) -> bool:
    """Return whether a condition contains a subquery."""
    return isinstance(node, InSelect) or any(map(has_subquery, parts(node)))


# -- functions: cheap, pure, and with results no longer than all arguments together ------------------------------------


class Function(NamedTuple):
    """The minimum and maximum number of arguments of a function."""

    least: int
    most: int


#: As many arguments as fit into a condition.
_ANY = 1000

FUNCTIONS: Mapping[str, Function] = {
    "abs": Function(1, 1),
    "ceil": Function(1, 1),
    "coalesce": Function(1, _ANY),
    "floor": Function(1, 1),
    "greatest": Function(1, _ANY),
    "least": Function(1, _ANY),
    "left": Function(2, 2),
    "length": Function(1, 1),
    "lower": Function(1, 1),
    "ltrim": Function(1, 2),
    "mod": Function(2, 2),
    "nullif": Function(2, 2),
    "position": Function(2, 2),
    "replace": Function(3, 3),
    "right": Function(2, 2),
    "round": Function(1, 2),
    "rtrim": Function(1, 2),
    "split_part": Function(3, 3),
    "strpos": Function(2, 2),
    "substr": Function(2, 3),
    "substring": Function(2, 3),
    "trim": Function(1, 2),
    "upper": Function(1, 1),
}

#: Other names of functions, as PostgreSQL has them.
ALIASES: Mapping[str, str] = {"btrim": "trim", "ceiling": "ceil", "char_length": "length"}

#: The types to which a value may be cast, by the names people write.
TYPES: Mapping[str, str] = {
    "bigint": "bigint",
    "int": "integer",
    "int4": "integer",
    "int8": "bigint",
    "integer": "integer",
    "numeric": "numeric",
    "text": "text",
    "varchar": "varchar",
}
