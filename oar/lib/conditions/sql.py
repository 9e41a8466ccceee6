"""Write the tree of a condition as SQL with bound parameters; no user text becomes part of the SQL."""

from collections.abc import Collection, Sequence
from typing import NamedTuple

from oar.lib.conditions.tree import (
    Between,
    Call,
    Case,
    Cast,
    Column,
    Constant,
    InList,
    InSelect,
    Node,
    Numeral,
    Operation,
    Text,
)

#: Characters of a column that are looked at where texts are put together.
_JOINED = "left({}::text, {})"


class Statement(NamedTuple):
    """A part of an SQL statement; ``%s`` stands for each parameter, ``%%`` for ``%``."""

    text: str
    parameters: tuple[object, ...] = ()


class Mask(NamedTuple):
    """Columns whose values are replaced with NULL in rows of other users."""

    owner: str  #: the column that names whose row it is
    asker: str
    columns: Collection[str]


def statement(tree: Node, table: str, longest_column: int, mask: Mask | None = None) -> Statement:
    """Return the SQL of a condition on a table, for a WHERE clause.

    ``longest_column``: maximum number of characters of a column that are used in concatenations.
    """
    writer = _Writer(table, longest_column, mask)
    text = writer.write(tree)
    return Statement(text, tuple(writer.parameters))


def joined(parts: Sequence[Statement], connective: str = "AND") -> Statement:
    """Return the conditions joined with AND or OR; ``true`` if there are none."""
    texts = [f"({part.text})" for part in parts]
    parameters = [parameter for part in parts for parameter in part.parameters]
    return Statement(f" {connective} ".join(texts) or "true", tuple(parameters))


def quoted(name: str) -> str:
    """Return the name of a column as an identifier, in a statement with parameters."""
    return '"' + name.replace('"', '""').replace("%", "%%") + '"'


class _Writer:
    def __init__(self, table: str, longest_column: int, mask: Mask | None) -> None:
        self._table = table
        self._longest_column = longest_column
        self._mask = mask
        self.parameters: list[object] = []

    def write(self, node: Node) -> str:
        """Return the SQL of a node; append its parameters in the order of their placeholders."""
        match node:
            case Column():
                text = self._column(node)
            case Numeral(text) | Constant(text):
                pass
            case Text(value):
                self.parameters.append(value)
                text = "%s"
            case Operation(operator, operands):
                text = self._operation(operator, operands)
            case Between(operand, low, high, is_negated):
                negation = "NOT " if is_negated else ""
                text = f"({self.write(operand)} {negation}BETWEEN {self.write(low)} AND {self.write(high)})"
            case InList(operand, values, is_negated):
                text = f"({self.write(operand)} {'NOT ' if is_negated else ''}IN ({self._list(values)}))"
            case InSelect():
                text = self._select(node)
            case Call(function, arguments):
                text = self._call(function, arguments)
            case Cast(operand, kind):
                text = f"CAST({self.write(operand)} AS {kind})"
            case Case():
                text = self._case(node)
        return text

    def _column(self, node: Column) -> str:
        name = quoted(node.name)
        if self._mask is None or node.name not in self._mask.columns:
            return name
        self.parameters.append(self._mask.asker)
        return f"(CASE WHEN {quoted(self._mask.owner)} = %s THEN {name} END)"

    def _list(self, nodes: Sequence[Node]) -> str:
        return ", ".join(map(self.write, nodes))

    def _operation(self, operator: str, operands: Sequence[Node]) -> str:
        if operator == "||":
            return f"({' || '.join(self._cut(operand) for operand in operands)})"
        if operator == "%":  # as a function, because a single % would start a placeholder
            return f"mod({self._list(operands)})"
        if operator.startswith("IS "):
            return f"({self.write(operands[0])} {operator})"
        if len(operands) == 1:
            return f"({operator} {self.write(operands[0])})"
        return "(" + f" {operator} ".join(self.write(operand) for operand in operands) + ")"

    def _call(self, function: str, arguments: Sequence[Node]) -> str:
        if function == "position":
            return f"position({self.write(arguments[0])} IN {self.write(arguments[1])})"
        if function == "replace":
            return f"replace({', '.join(self._cut(argument) for argument in arguments)})"
        if function == "substring" and not isinstance(arguments[1], Text):
            function = "substr"  # unlike substring, it never takes a pattern
        return f"{'btrim' if function == 'trim' else function}({self._list(arguments)})"

    def _cut(self, node: Node) -> str:
        """Return the SQL of an operand of a concatenation, cut to the length that the limits assume."""
        text = self.write(node)
        match node:
            case Text() | Numeral() | Operation("||") | Call("replace"):
                return text
            case _:
                return _JOINED.format(text, self._longest_column)

    def _case(self, node: Case) -> str:
        parts = ["(CASE"] if node.operand is None else ["(CASE", self.write(node.operand)]
        for when, then in node.branches:
            parts += ["WHEN", self.write(when), "THEN", self.write(then)]
        parts += ["END)"] if node.otherwise is None else ["ELSE", self.write(node.otherwise), "END)"]
        return " ".join(parts)

    def _select(self, node: InSelect) -> str:
        operand = self.write(node.operand)
        column = self._column(node.column)
        where = f" WHERE {self.write(node.condition)}" if node.condition else ""
        grouping = f" GROUP BY {column} HAVING count(*) {node.having[0]} {node.having[1].text}" if node.having else ""
        negation = "NOT " if node.is_negated else ""
        return f"({operand} {negation}IN (SELECT {column} FROM {self._table}{where}{grouping}))"
