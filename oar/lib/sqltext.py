"""The check of SQL conditions given by users (``-p``, ``{...}``, ``--sql``), before any server sees them.

The text is cut into tokens as PostgreSQL's own lexer does; whatever could end our statement, hide a part of it or reach
a function with a memory of its own is refused (database.md 4).  What passes is still run under the read-only login only
(``oar/lib/db/usersql.py``): this is the first of several walls.
"""

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from oar.lib.errors import BadSql

LONGEST = 16384

#: Types of columns, as PostgreSQL writes them, whose values are text.
TEXT_TYPES = frozenset({"character varying", "text"})

#: Functions that change the session, count, or run SQL text of their own.
_FORBIDDEN = re.compile(
    r"""
    (?:pg_|lo_|dblink) .*
  | set_config | current_setting | nextval | setval | currval | lastval | txid_current | ts_stat | ts_rewrite
  | (?:query|cursor|table|schema|database)_to_xml (?:_and_xmlschema|schema)?
    """,
    re.VERBOSE,
)

#: What is not ASCII is a letter.  Classes say what they exclude: as ranges up to the last code point they would take
#: a command 2 ms to compile.
_TOKEN = re.compile(
    r"""
    (?P<blank>   [ \t\n]+ )
  | (?P<literal> '(?:[^']|'')*+' )
  | (?P<quoted>  "(?:[^"]|"")*+" )
  | (?P<word>    [^\x00-@\[-^`{-\x9f][^\x00-/:-@\[-^`{-\x9f]* )
  | (?P<number>  (?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)? )
  | (?P<operator>[-+*/<>=~!@\#%^&|`?]+ )
  | (?P<mark>    ::|[(),.\[\]:] )
    """,
    re.VERBOSE,
)
_REASONS = {
    "'": "a quote is not closed",
    '"': "a quote is not closed",
    ";": "';' is not allowed",
    "$": "'$' is not allowed",
    "\\": "a backslash is not allowed",
}
_COMPARISONS = frozenset({"=", "<>", "!=", "<", ">", "<=", ">="})


class Token(NamedTuple):
    """A piece of SQL text.  ``kind`` is a group of the lexer: literal, quoted, word, number, operator, mark, blank."""

    kind: str
    text: str

    def is_(self, text: str) -> bool:
        """Whether it is this word (in any case) or mark."""
        return self.text.lower() == text


def normalise(text: str, columns: Mapping[str, str]) -> str:
    """Return the condition as it may be sent, for a table whose columns have these types.

    "..." that is not the exact name of a column becomes a literal, since people write them so; a bare number compared
    with a column of text is quoted.  Raises BadSql.

    >>> normalise('switch = "sw1" and CPUSET in (0, 1)', {"switch": "character varying", "cpuset": "character varying"})
    "switch = 'sw1' and CPUSET in ('0', '1')"
    """
    tokens = [_unquoted(token, columns) for token in tokenise(text)]
    return "".join(token.text for token in _numbers_quoted(tokens, columns))


def tokenise(text: str) -> list[Token]:
    """Cut a condition into tokens.  Raises BadSql for what a condition may not hold."""
    _check_characters(text)
    tokens = []
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise _invalid(_REASONS.get(text[position], f"unexpected character '{text[position]}'"))
        token = Token(match.lastgroup or "", match[0])
        position = match.end()
        _check_token(token, text[position : position + 2])
        tokens.append(token)
    _check_parentheses(tokens)
    if all(token.kind == "blank" for token in tokens):
        raise _invalid("it is empty")
    return tokens


def _invalid(reason: str) -> BadSql:
    return BadSql(f"invalid SQL condition: {reason}")


def _check_characters(text: str) -> None:
    if len(text) > LONGEST:
        raise _invalid(f"it is longer than {LONGEST} characters")
    for character in text:
        code = ord(character)
        if (code < 32 and character not in "\t\n") or 127 <= code < 160:
            raise _invalid(f"control character {code}")
        if 0xD800 <= code < 0xE000:
            raise _invalid("it is not UTF-8 text")
    if "\\" in text:
        raise _invalid(_REASONS["\\"])


def _check_token(token: Token, following: str) -> None:
    """Refuse a token that starts a comment, a string with escapes, or names what is forbidden."""
    if token.kind == "operator":
        for comment in ("--", "/*"):
            if comment in token.text:
                raise _invalid(f"'{comment}' is not allowed")
    # Older PostgreSQL reads 1e'...' as the number 1 and a string with escapes.
    if token.kind == "number" and re.match(r"[^\x00-!#-&(-@\[-^`{-\x9f]", following):
        raise _invalid(f"something is glued to the number {token.text}")
    if token.kind in ("literal", "quoted") and following.startswith(("'", '"')):
        raise _invalid("two strings are glued together")
    if token.kind == "word":
        _check_word(token.text.lower(), following)


def _check_word(word: str, following: str) -> None:
    if (word in ("e", "b", "x", "n") and following.startswith(("'", '"'))) or (
        word == "u" and following in ("&'", '&"')
    ):
        raise _invalid(f"strings that begin with {word.upper()} are not allowed")
    if _FORBIDDEN.fullmatch(word):
        raise _invalid(f"'{word}' is not allowed")


def _check_parentheses(tokens: Sequence[Token]) -> None:
    depth = 0
    for token in tokens:
        depth += (token.text == "(") - (token.text == ")")
        if depth < 0:
            raise _invalid("a ')' has no '('")
    if depth:
        raise _invalid("a '(' is not closed")


def _unquoted(token: Token, columns: Mapping[str, str]) -> Token:
    if token.kind != "quoted":
        return token
    name = token.text[1:-1].replace('""', '"')
    return token if name in columns else Token("literal", "'" + name.replace("'", "''") + "'")


def _numbers_quoted(tokens: Sequence[Token], columns: Mapping[str, str]) -> list[Token]:
    """Quote the numbers that are compared with a column of text."""
    quoted = list(tokens)
    places = [place for place, token in enumerate(tokens) if token.kind != "blank"]
    words = [tokens[place] for place in places]
    for index, token in enumerate(words):
        if _is_text_column(token, columns):
            for number in [*_numbers_after(words, index + 1), *_number_before(words, index)]:
                place = places[number]
                quoted[place] = Token("literal", f"'{tokens[place].text}'")
    return quoted


def _is_text_column(token: Token, columns: Mapping[str, str]) -> bool:
    if token.kind == "word":
        return columns.get(token.text.lower()) in TEXT_TYPES
    return token.kind == "quoted" and columns.get(token.text[1:-1]) in TEXT_TYPES


def _numbers_after(words: Sequence[Token], start: int) -> list[int]:
    """Return the places of the numbers in ``= 3``, ``[NOT] IN (1, 2)`` or ``[NOT] BETWEEN 1 AND 3`` at ``start``."""
    if start < len(words) and words[start].is_("not"):
        start += 1
    if start + 1 >= len(words):
        return []
    first = words[start]
    if first.text in _COMPARISONS:
        return [start + 1] if words[start + 1].kind == "number" else []
    if first.is_("between"):
        return [place for place in (start + 1, start + 3) if place < len(words) and words[place].kind == "number"]
    if first.is_("in") and words[start + 1].text == "(":
        return _numbers_listed(words, start + 2)
    return []


def _numbers_listed(words: Sequence[Token], start: int) -> list[int]:
    """Return the places of the numbers that stand alone in a list, up to its end."""
    found = []
    for place in range(start, len(words)):
        if words[place].text in ("(", ")"):
            break
        if words[place].kind == "number" and words[place - 1].text in ("(", ","):
            found.append(place)
    return found


def _number_before(words: Sequence[Token], column: int) -> list[int]:
    """Return the place of the number in ``3 = column``, unless the column is cast to something else."""
    if column + 1 < len(words) and words[column + 1].text == "::":
        return []
    left = column - 1
    while left >= 1 and words[left].text == "." and words[left - 1].kind in ("word", "quoted"):  # table.column
        left -= 2
    alone = left >= 1 and words[left].text in _COMPARISONS and words[left - 1].kind == "number"
    if not alone or (left >= 2 and words[left - 2].kind == "operator"):
        return []
    return [left - 1]
