"""Split the text of a condition into tokens; reject text that is not a token of the language."""

import re
from enum import StrEnum
from typing import NamedTuple

from oar.lib.base.errors import BadCondition

#: Characters of a condition, at most; of a word of it in a message.
LONGEST = 16384
LONGEST_SHOWN = 60

#: What is not ASCII is a letter.  Classes say what they exclude: as ranges up to the last code point they would take
#: a command 2 ms to compile.
_TOKEN = re.compile(
    r"""
    (?P<blank>   [ \t\n]+ )
  | (?P<text>    '(?:[^']|'')*+' )
  | (?P<quoted>  "(?:[^"]|"")*+" )
  | (?P<word>    [^\x00-@\[-^`{-\x9f][^\x00-/:-@\[-^`{-\x9f]* )
  | (?P<number>  (?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)? )
  | (?P<operator><= | >= | <> | != | \|\| | !~\* | !~ | ~\* | ~ | :: | [-+*/%<>=(),.\[\]] )
    """,
    re.VERBOSE,
)
_COMMENTS = ("--", "/*")
#: What begins strings with escapes, bits, or another character set.
_PREFIXES = ("e", "b", "x", "n")
_REASONS = {
    "'": "a quote is not closed",
    '"': "a quote is not closed",
    "\\": "a backslash is not allowed",
}


class TokenKind(StrEnum):
    """The kind of a token: a group of the lexer, or the end."""

    BLANK = "blank"
    TEXT = "text"  #: in single quotes
    QUOTED = "quoted"  #: in double quotes: a name
    WORD = "word"
    NUMBER = "number"
    OPERATOR = "operator"
    END = "end"  #: behind the last one


class Token(NamedTuple):
    """A piece of a condition."""

    kind: TokenKind
    text: str
    start: int  #: position of its first character
    stop: int  #: position behind its last one

    @property
    def word(self) -> str:
        """The token in lower case if it is ASCII; the lower case of other letters, as the kelvin sign, may be ASCII."""
        return self.text.lower() if self.text.isascii() else self.text

    @property
    def value(self) -> str:
        """The content of a single-quoted or double-quoted token."""
        quote = self.text[0]
        return self.text[1:-1].replace(quote + quote, quote)


_STRINGS = (TokenKind.TEXT, TokenKind.QUOTED)


def invalid(reason: str, position: int | None = None, hint: str = "") -> BadCondition:
    """Return the error for a condition, with a position in its text; ``hint``: a correction."""
    where = "" if position is None else f" at character {position + 1}"
    return BadCondition(f"invalid SQL condition: {reason}{where}{hint}")


def shortened(word: str) -> str:
    """Return a word of a condition for messages: its beginning, on one line."""
    word = word if len(word) <= LONGEST_SHOWN else word[:LONGEST_SHOWN] + "..."
    return " ".join(word.split()) or word.strip()


def tokenise(text: str) -> list[Token]:
    """Split a condition into tokens without blanks, followed by an END token.  Raises BadCondition."""
    _check_characters(text)
    tokens: list[Token] = []
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None or text.startswith(_COMMENTS, position):
            raise invalid(_refusal(text, position), position)
        token = Token(TokenKind(match.lastgroup or ""), match[0], position, match.end())
        position = match.end()
        if token.kind is not TokenKind.BLANK:
            _check_glued(tokens[-1] if tokens else None, token)
            tokens.append(token)
    if not tokens:
        raise invalid("it is empty")
    return [*tokens, Token(TokenKind.END, "", len(text), len(text))]


def check_alone(text: str) -> None:
    """Raise BadCondition if SQL inside parentheses would not remain one condition."""
    depth, quote = 0, ""
    for position, character in enumerate(text):
        if quote:
            quote = "" if character == quote else quote
        elif character in "'\"":
            quote = character
        elif character in ";$\\" or text.startswith(_COMMENTS, position):
            raise invalid(_refusal(text, position), position)
        else:
            depth += (character == "(") - (character == ")")
            if depth < 0:
                raise invalid("a ')' has no '('", position)
    if depth or quote:
        raise invalid("a '(' is not closed" if depth else "a quote is not closed")


def _refusal(text: str, position: int) -> str:
    comment = next((each for each in _COMMENTS if text.startswith(each, position)), None)
    if comment:
        return f"'{comment}' is not allowed"
    character = text[position]
    return _REASONS.get(character, f"'{character}' is not allowed")


def _check_characters(text: str) -> None:
    if len(text) > LONGEST:
        raise invalid(f"it is longer than {LONGEST} characters")
    for position, character in enumerate(text):
        code = ord(character)
        if (code < 32 and character not in "\t\n") or 127 <= code < 160:
            raise invalid(f"control character {code}", position)
        if 0xD800 <= code < 0xE000:
            raise invalid("it must be UTF-8 text", position)
    if "\\" in text:
        raise invalid(_REASONS["\\"], text.index("\\"))


def _check_glued(before: Token | None, token: Token) -> None:
    """Raise BadCondition if two servers might split tokens differently: ``1x``, ``E'x'``, two adjacent strings."""
    if before is None or before.stop != token.start:
        return
    if before.kind is TokenKind.NUMBER and token.kind in (TokenKind.WORD, TokenKind.NUMBER, *_STRINGS):
        raise invalid(f"a blank is missing after the number {shortened(before.text)}", token.start)
    if token.kind in _STRINGS and before.kind in _STRINGS:
        raise invalid("an operator is missing between two strings", token.start)
    if token.kind in _STRINGS and before.text.lower() in _PREFIXES:
        raise invalid(f"strings that begin with {before.text.upper()} are not allowed", before.start)
