"""Parse the text of a condition into its tree, with PostgreSQL's operator precedence.

Two common habits are accepted in addition to SQL.  A double-quoted name that is not a column is a text, and a bare
number that is compared with a text column is a text.
"""

from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum, auto
from typing import NamedTuple, NoReturn

from oar.lib.base.texts import nearest
from oar.lib.conditions import bounds
from oar.lib.conditions.tokens import Token, TokenKind, invalid, shortened, tokenise
from oar.lib.conditions.tree import (
    ALIASES,
    FUNCTIONS,
    TYPES,
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

COMPARISONS = frozenset({"=", "<>", "!=", "<", "<=", ">", ">="})
_REGULAR = frozenset({"~", "~*", "!~", "!~*"})
#: Types whose values are short as texts.
_NUMBERS = frozenset({"smallint", "integer", "bigint", "numeric", "real", "double precision", "boolean"})
#: Words that are no names of columns unless they stand in double quotes.
_RESERVED = frozenset(
    {
        *("all", "and", "any", "array", "as", "asc", "between", "both", "case", "cast", "collate", "create", "desc"),
        *("distinct", "else", "end", "except", "exists", "false", "fetch", "for", "from", "grant", "group", "having"),
        *("ilike", "in", "intersect", "into", "is", "isnull", "leading", "like", "limit", "not", "notnull", "null"),
        *("offset", "on", "or", "order", "select", "some", "table", "then", "to", "trailing", "true", "union", "user"),
        *("using", "when", "where", "with"),
    }
)


class _Power(IntEnum):
    """Operator precedence, from the lowest to the highest."""

    OR = auto()
    AND = auto()
    NOT = auto()
    IS = auto()
    COMPARISON = auto()
    MEMBERSHIP = auto()
    OTHER = auto()
    SUM = auto()
    PRODUCT = auto()
    CAST = auto()


_POWERS: Mapping[str, _Power] = {
    "or": _Power.OR,
    "and": _Power.AND,
    **dict.fromkeys(("is", "isnull", "notnull"), _Power.IS),
    **dict.fromkeys(COMPARISONS, _Power.COMPARISON),
    **dict.fromkeys(("between", "in", "like", "ilike"), _Power.MEMBERSHIP),
    **dict.fromkeys(("||", *_REGULAR), _Power.OTHER),
    **dict.fromkeys("+-", _Power.SUM),
    **dict.fromkeys("*/%", _Power.PRODUCT),
    "::": _Power.CAST,
}


class ConditionTable(NamedTuple):
    """The table of a condition."""

    name: str
    types: Mapping[str, str]  #: SQL type of each column, as PostgreSQL writes it, without its length
    lengths: Mapping[str, int] = {}  #: characters of the longest value of columns whose type says it
    may_select: bool = False  #: conditions may ask for other rows of the table

    def is_text(self, column: str) -> bool:
        return self.types[column] in ("character varying", "text")

    def length(self, column: str) -> int:
        """Return the maximum number of characters of a value that are used."""
        longest = bounds.NUMBER_WIDTH if self.types[column] in _NUMBERS else bounds.LONGEST_COLUMN
        return self.lengths.get(column, longest)


class ParsedCondition(NamedTuple):
    text: str  #: valid SQL: as it was written, with texts in single quotes
    tree: Node


def parse(text: str, table: ConditionTable) -> ParsedCondition:
    """Return the parsed condition for a table.  Raises BadCondition, which names the position."""
    return _Parser(text, table).condition()


class _Parser:
    """Parses one condition from left to right."""

    def __init__(self, text: str, table: ConditionTable) -> None:
        self._text = text
        self._table = table
        self._tokens = tokenise(text)
        self._position = 0
        self._depth = self._nodes = self._selects = 0
        self._infix: Mapping[_Power, Callable[[Node], Node]] = {
            _Power.OR: self._connected,
            _Power.AND: self._connected,
            _Power.IS: self._test,
            _Power.COMPARISON: self._comparison,
            _Power.MEMBERSHIP: self._membership,
            _Power.OTHER: self._other,
            _Power.SUM: self._arithmetic,
            _Power.PRODUCT: self._arithmetic,
            _Power.CAST: self._colon_cast,
        }
        self._texts: dict[int, tuple[Token, str]] = {}  #: tokens that are texts though they are not written so

    def condition(self) -> ParsedCondition:
        tree = self._whole()
        if self._token.kind is not TokenKind.END:
            self._unexpected()
        bounds.check_length(tree, {name: self._table.length(name) for name in self._table.types})
        text = self._text
        for token, value in sorted(self._texts.values(), reverse=True, key=lambda pair: pair[0].start):
            literal = "'" + value.replace("'", "''") + "'"
            text = text[: token.start] + literal + text[token.stop :]
        return ParsedCondition(text, tree)

    # -- tokens

    @property
    def _token(self) -> Token:
        return self._tokens[self._position]

    def _is(self, *keywords: str) -> bool:
        """Return whether these keywords or operators are next."""
        tokens = self._tokens[self._position : self._position + len(keywords)]
        return len(tokens) == len(keywords) and all(
            token.kind in (TokenKind.WORD, TokenKind.OPERATOR) and token.word == keyword
            for token, keyword in zip(tokens, keywords, strict=True)
        )

    def _take(self, *keywords: str) -> bool:
        """Skip these keywords or operators if they are next; return whether they were."""
        if not self._is(*keywords):
            return False
        self._position += len(keywords)
        return True

    def _expect(self, keyword: str) -> None:
        if not self._take(keyword):
            self._unexpected(keyword)

    def _next(self) -> Token:
        token = self._token
        self._position += 1
        return token

    def _unexpected(self, expected: str = "") -> NoReturn:
        token = self._token
        if token.kind is TokenKind.END:
            missing = f"'{expected}'" if expected else "a value"
            raise invalid(f"it ends where {missing} is expected")
        if token.text == ")" and not expected:
            raise invalid("a ')' has no '('", token.start)
        instead = f", expected '{expected}'" if expected else ""
        if token.text.lower() == "user" and "job_user" in self._table.types:
            instead = ', did you mean "job_user"?'
        raise invalid(f"unexpected {shortened(token.text)}{instead}", token.start)

    # -- operators

    def _whole(self) -> Node:
        """Parse a complete expression: the condition itself, an expression in parentheses, or an argument."""
        self._depth += 1
        if self._depth > bounds.DEEPEST:
            raise invalid(f"it is nested more than {bounds.DEEPEST} deep", self._token.start)
        node = self._expression(_Power.OR)
        self._depth -= 1
        return node

    def _expression(self, least: _Power) -> Node:
        """Parse an operand and the operators after it whose precedence is at least ``least``."""
        node = self._prefixed(least)
        while (power := self._power()) is not None and power >= least:
            node = self._infix[power](node)
        return node

    def _prefixed(self, least: _Power) -> Node:
        if least <= _Power.NOT and self._is("not"):
            return self._applied(self._repeated("not"), _Power.IS)
        signs = self._repeated("+", "-")
        return self._applied(signs, _Power.CAST) if signs else self._operand()

    def _repeated(self, *keywords: str) -> list[str]:
        """Skip the next keywords as long as they are among these; return them in upper case."""
        keywords_read = []
        while any(self._is(keyword) for keyword in keywords):
            keywords_read.append(self._next().text.upper())
        return keywords_read

    def _applied(self, operators: Sequence[str], least: _Power) -> Node:
        node = self._expression(least)
        for operator in reversed(operators):
            node = self._counted(Operation(operator, (node,)))
        return node

    def _power(self) -> _Power | None:
        token = self._token
        if token.kind not in (TokenKind.WORD, TokenKind.OPERATOR):
            return None
        operator = token.word
        if operator == "not":
            following = self._tokens[self._position + 1].word
            return _Power.MEMBERSHIP if _POWERS.get(following) is _Power.MEMBERSHIP else None
        return _POWERS.get(operator)

    def _connected(self, first_operand: Node) -> Node:
        operator = self._token.word
        parts = [first_operand]
        while self._take(operator):
            parts.append(self._expression(_Power(_POWERS[operator] + 1)))
        return self._counted(Operation(operator.upper(), tuple(parts)))

    def _test(self, operand: Node) -> Node:
        """Parse ``IS [NOT] NULL``, TRUE, FALSE or UNKNOWN."""
        operator = self._next().text.upper()
        if operator == "IS":
            negation = "NOT " if self._take("not") else ""
            if self._token.word not in ("null", "true", "false", "unknown"):
                self._unexpected("null")
            return self._counted(Operation(f"IS {negation}{self._next().text.upper()}", (operand,)))
        return self._counted(Operation("IS NULL" if operator == "ISNULL" else "IS NOT NULL", (operand,)))

    def _comparison(self, left_operand: Node) -> Node:
        operator = self._next().text
        if operator == "=" and self._take("any"):
            return self._any_of(left_operand)
        right_operand = self._expression(_Power.MEMBERSHIP)
        if self._power() is _Power.COMPARISON:
            self._unexpected()
        operands = self._text_beside(right_operand, left_operand), self._text_beside(left_operand, right_operand)
        return self._counted(Operation("<>" if operator == "!=" else operator, operands))

    def _any_of(self, operand: Node) -> Node:
        """Parse the rest of ``= ANY (ARRAY[...])`` after ANY."""
        for keyword in ("(", "array", "["):
            self._expect(keyword)
        values = self._values(operand)
        self._expect("]")
        self._expect(")")
        return self._counted(InList(operand, values, is_negated=False))

    def _membership(self, operand: Node) -> Node:
        is_negated = self._take("not")
        operator = self._next().word
        if operator == "between":
            low = self._expression(_Power.OTHER)
            self._expect("and")
            high = self._expression(_Power.OTHER)
            low, high = self._text_beside(operand, low), self._text_beside(operand, high)
            return self._counted(Between(operand, low, high, is_negated))
        if operator == "in":
            self._expect("(")
            if self._is("select"):
                node = self._select(operand, is_negated=is_negated)
            else:
                node = InList(operand, self._values(operand), is_negated)
            self._expect(")")
            return self._counted(node)
        return self._match(operand, f"{'NOT ' if is_negated else ''}{operator.upper()}")

    def _values(self, operand: Node) -> tuple[Node, ...]:
        """Parse the values of a list; literals do not count towards the number of nodes."""
        values = []
        while True:
            nodes = self._nodes
            value = self._text_beside(operand, self._literal() or self._expression(_Power.OTHER))
            if isinstance(value, Numeral | Text):
                self._nodes = nodes
            values.append(value)
            if not self._take(","):
                return tuple(values)

    def _literal(self) -> Node | None:
        """Parse a literal that is a complete value, the usual case in long lists.

        Return None if something else is next.
        """
        token, following = self._token, self._tokens[min(self._position + 1, len(self._tokens) - 1)]
        if token.kind not in (TokenKind.NUMBER, TokenKind.TEXT) or following.text not in (",", ")", "]"):
            return None
        self._position += 1
        if token.kind is TokenKind.TEXT:
            return Text(token.value)
        bounds.check_number(token.text, token.start)
        return Numeral(token.text, token.start)

    def _match(self, operand: Node, operator: str) -> Node:
        """Parse the pattern after LIKE or a regular expression operator; only a text can be checked."""
        start = self._token.start
        pattern = self._expression(_Power.SUM)
        if not isinstance(pattern, Text):
            raise invalid(f"{operator} requires a pattern in quotes", start)
        bounds.check_pattern(pattern.value, start, is_regular=operator in _REGULAR)
        return self._counted(Operation(operator, (operand, pattern)))

    def _other(self, operand: Node) -> Node:
        operator = self._next().text
        if operator in _REGULAR:
            return self._match(operand, operator)
        return self._counted(Operation("||", (operand, self._expression(_Power.SUM))))

    def _arithmetic(self, left_operand: Node) -> Node:
        operator = self._next().text
        right_operand = self._expression(_Power.PRODUCT if operator in "+-" else _Power.CAST)
        return self._counted(Operation(operator, (left_operand, right_operand)))

    def _colon_cast(self, operand: Node) -> Node:
        self._expect("::")
        return self._counted(Cast(operand, self._type()))

    def _type(self) -> str:
        token = self._next()
        type_name = TYPES.get(token.word) if token.kind is TokenKind.WORD else None
        if type_name is None:
            raise invalid(f"unknown type {shortened(token.text)}", token.start, f" (known: {', '.join(sorted(TYPES))})")
        return type_name

    # -- operands

    def _operand(self) -> Node:
        if self._take("("):
            node = self._whole()
            if self._token.kind is TokenKind.END:
                raise invalid("a '(' is not closed")
            self._expect(")")
            return node
        token = self._token
        if token.kind is TokenKind.NUMBER:
            bounds.check_number(token.text, token.start)
            return self._counted(Numeral(token.text, self._next().start))
        if token.kind is TokenKind.TEXT:
            return self._counted(Text(self._next().value))
        if token.kind is TokenKind.QUOTED:
            return self._quoted()
        if token.kind is not TokenKind.WORD:
            self._unexpected()
        return self._named()

    def _quoted(self) -> Node:
        """Parse a double-quoted name: a column, the table before its column, or a text."""
        token = self._next()
        if token.value == self._table.name and self._is("."):
            return self._qualified()
        if token.value in self._table.types:
            return self._counted(Column(token.value))
        self._texts[token.start] = token, token.value
        return self._counted(Text(token.value))

    def _named(self) -> Node:
        """Parse an operand that begins with a word: a constant, CASE, CAST, a function or a column."""
        name = self._token.word
        if name in ("true", "false", "null"):
            self._position += 1
            return self._counted(Constant(name.upper()))
        if self._take("case"):
            return self._case()
        if self._take("cast", "("):
            node = self._whole()
            self._expect("as")
            kind = self._type()
            self._expect(")")
            return self._counted(Cast(node, kind))
        if self._is(name, "("):
            return self._function()
        return self._column()

    def _column(self) -> Node:
        token = self._next()
        name = token.word
        if name == self._table.name and self._is("."):
            return self._qualified()
        if name in _RESERVED:
            self._position -= 1
            self._unexpected()
        return self._counted(self._known_column(name, token))

    def _qualified(self) -> Node:
        self._expect(".")
        token = self._next()
        name = token.value if token.kind is TokenKind.QUOTED else token.word
        return self._counted(self._known_column(name, token))

    def _known_column(self, name: str, token: Token) -> Column:
        if name not in self._table.types:
            raise invalid(f'unknown column "{shortened(name)}"', token.start, self._hint(name))
        return Column(name)

    def _hint(self, name: str) -> str:
        """Return a hint for an unknown column name, which is the last token."""
        if meant := nearest(shortened(name), self._table.types):
            return f', did you mean "{meant}"?'
        is_compared = self._position > 1 and self._tokens[self._position - 2].text in COMPARISONS
        return ", use single quotes for a text" if is_compared else ""

    def _case(self) -> Node:
        operand = None if self._is("when") else self._whole()
        branches = []
        while self._take("when"):
            when = self._whole()
            self._expect("then")
            branches.append((when, self._whole()))
        if not branches:
            self._unexpected("when")
        otherwise = self._whole() if self._take("else") else None
        self._expect("end")
        return self._counted(Case(operand, tuple(branches), otherwise))

    def _function(self) -> Node:
        token = self._next()
        name = ALIASES.get(token.word, token.word)
        function = FUNCTIONS.get(name)
        if function is None:
            raise invalid(f"unknown function {shortened(name)}", token.start, f" (known: {', '.join(FUNCTIONS)})")
        self._expect("(")
        arguments = self._arguments(name)
        if not function.least <= len(arguments) <= function.most:
            raise invalid(f"{name} does not take {len(arguments)} arguments", token.start)
        if name == "substring":
            bounds.check_substring(arguments, token.start)
        elif name == "round":
            bounds.check_digits(arguments[1:], token.start)
        return self._counted(Call(name, tuple(arguments)))

    def _arguments(self, name: str) -> Sequence[Node]:
        """Parse the arguments of a function up to the ')', separated by commas or keywords."""
        if self._take(")"):
            return []
        if name == "trim":
            self._take("both")
        if name == "position":
            part = self._expression(_Power.OTHER)
            self._expect("in")
            arguments = [part, self._whole()]
        else:
            arguments = [self._whole()]
            separators = {"substring": ("from", "for")}.get(name, ())
            while self._take(",") or any(self._take(separator) for separator in separators):
                arguments.append(self._whole())
        self._expect(")")
        return arguments

    def _select(self, operand: Node, *, is_negated: bool) -> Node:
        """Parse the only supported subquery: a column of other rows of the same table."""
        start = self._token.start
        self._selects += 1
        if not self._table.may_select:
            raise invalid("a subquery is not allowed here", start)
        if self._selects > bounds.MOST_SELECTS:
            raise invalid(f"there are more than {bounds.MOST_SELECTS} subqueries", start)
        may_select, self._table = self._table, self._table._replace(may_select=False)
        self._expect("select")
        self._take("distinct")
        column = self._selected_column()
        self._expect("from")
        self._expect(self._table.name)
        condition = self._whole() if self._take("where") else None
        having = self._having(column)
        self._table = may_select
        return InSelect(operand, column, condition, having, is_negated)

    def _selected_column(self) -> Column:
        is_enclosed = self._take("(")
        column = self._quoted() if self._token.kind is TokenKind.QUOTED else self._column()
        if not isinstance(column, Column):
            self._unexpected()
        if is_enclosed:
            self._expect(")")
        return column

    def _having(self, column: Column) -> tuple[str, Numeral] | None:
        """Parse ``GROUP BY column [HAVING count(*) > n]``."""
        if not self._take("group", "by"):
            return None
        if self._selected_column() != column:
            raise invalid("GROUP BY names another column than SELECT", self._token.start)
        if not self._take("having"):
            return None
        for keyword in ("count", "(", "*", ")"):
            self._expect(keyword)
        operator, number = self._next(), self._next()
        if operator.text not in COMPARISONS or number.kind is not TokenKind.NUMBER:
            raise invalid("count(*) must be compared with a number", operator.start)
        bounds.check_number(number.text, number.start)
        return "<>" if operator.text == "!=" else operator.text, Numeral(number.text)

    # -- nodes

    def _text_beside(self, column: Node, number: Node) -> Node:
        """Return one operand of a comparison; a bare number that is compared with a text column becomes a text."""
        if not isinstance(number, Numeral) or not isinstance(column, Column) or not self._table.is_text(column.name):
            return number
        token = Token(TokenKind.NUMBER, number.text, number.start, number.start + len(number.text))
        self._texts[number.start] = token, number.text
        return Text(number.text)

    def _counted(self, node: Node) -> Node:
        self._nodes += 1
        if self._nodes > bounds.MOST_NODES:
            raise invalid(f"it has more than {bounds.MOST_NODES} parts", self._token.start)
        return node
