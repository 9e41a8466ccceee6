"""The tree of a condition: the result of the parser, and the input of the evaluation."""

from typing import NamedTuple


class Column(NamedTuple):
    """The value of a column in the current row."""

    name: str

    @property
    def parts(self) -> "tuple[Node, ...]":
        """No child nodes."""
        return ()


class Numeral(NamedTuple):
    """A number as written: digits, optionally with a decimal point and an exponent."""

    text: str
    start: int = -1  #: where it stands in the text of the condition

    @property
    def parts(self) -> "tuple[Node, ...]":
        """No child nodes."""
        return ()


class Text(NamedTuple):
    """A text literal."""

    value: str

    @property
    def parts(self) -> "tuple[Node, ...]":
        """No child nodes."""
        return ()


class Constant(NamedTuple):
    """NULL, TRUE or FALSE."""

    name: str

    @property
    def parts(self) -> "tuple[Node, ...]":
        """No child nodes."""
        return ()


class Operation(NamedTuple):
    """An operator and its operands: arithmetic, ``||``, comparisons, LIKE, regular expressions, AND, OR, NOT.

    ``operator`` is written as in SQL, in upper case (``NOT LIKE``, ``IS NULL``, ``IS NOT TRUE``); AND and OR have two
    or more operands.
    """

    operator: str
    operands: "tuple[Node, ...]"

    @property
    def parts(self) -> "tuple[Node, ...]":
        """The operands."""
        return self.operands


class Between(NamedTuple):
    """``operand [NOT] BETWEEN low AND high``."""

    operand: "Node"
    low: "Node"
    high: "Node"
    is_negated: bool

    @property
    def parts(self) -> "tuple[Node, ...]":
        """The operand and the two limits."""
        return self.operand, self.low, self.high


class InList(NamedTuple):
    """``operand [NOT] IN (values)``."""

    operand: "Node"
    values: "tuple[Node, ...]"
    is_negated: bool

    @property
    def parts(self) -> "tuple[Node, ...]":
        """The operand and the values."""
        return self.operand, *self.values


class InSelect(NamedTuple):
    """``operand [NOT] IN (SELECT column FROM the same table WHERE condition GROUP BY column HAVING count(*) ...)``."""

    operand: "Node"
    column: Column
    condition: "Node | None"
    having: "tuple[str, Numeral] | None"  #: comparison and number of ``HAVING count(*)``
    is_negated: bool

    @property
    def parts(self) -> "tuple[Node, ...]":
        """The operand, the column and the condition of the subquery."""
        return (self.operand, self.column) if self.condition is None else (self.operand, self.column, self.condition)


class Call(NamedTuple):
    """A function call; the function name is in lower case."""

    function: str
    arguments: "tuple[Node, ...]"

    @property
    def parts(self) -> "tuple[Node, ...]":
        """The arguments."""
        return self.arguments


class Cast(NamedTuple):
    """A value converted to another type."""

    operand: "Node"
    type: str

    @property
    def parts(self) -> "tuple[Node, ...]":
        """The converted value."""
        return (self.operand,)


class Case(NamedTuple):
    """``CASE [operand] WHEN ... THEN ... [ELSE ...] END``."""

    operand: "Node | None"
    branches: "tuple[tuple[Node, Node], ...]"
    otherwise: "Node | None"

    @property
    def parts(self) -> "tuple[Node, ...]":
        """All child nodes, in no specific order."""
        ends = tuple(node for node in (self.operand, self.otherwise) if node is not None)
        return (*ends, *(node for branch in self.branches for node in branch))


#: Any part of a condition.
Node = Column | Numeral | Text | Constant | Operation | Between | InList | InSelect | Call | Cast | Case


def columns(node: Node) -> frozenset[str]:
    """Return the names of the columns in a condition."""
    names = frozenset({node.name}) if isinstance(node, Column) else frozenset()
    return names.union(*map(columns, node.parts))


def has_subquery(node: Node) -> bool:
    """Return whether a condition contains a subquery."""
    return isinstance(node, InSelect) or any(map(has_subquery, node.parts))
