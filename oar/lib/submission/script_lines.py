"""Options of oarsub in the ``#OAR`` lines of a script, with the same syntax."""

import re
import shlex
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from oar.lib.base.errors import BadRequest
from oar.lib.submission.options import OPTIONS, ArraySize, Kind

_LINE = r"(?s)#OAR\s+(?P<option>--[A-Za-z][A-Za-z0-9_-]*|-[A-Za-z])(?P<value>.*)\Z"
_OLD_CHECKPOINT = r"(?a)#OAR\s+-k\s+(?=\d+(\s|\Z))"
_ESCAPED = r'\\([ "\\$])'
#: The largest number that the database can hold has so many digits.
_DIGITS = 18


Value = str | int | bool | ArraySize

#: The options that a script may set, by their spellings.
_BY_SPELLING = {
    spelling: name for name, option in OPTIONS.items() if option.in_scripts for spelling in option.spellings
}


def option_lines(text: str) -> list[str]:
    """Return the lines of a script that hold options; none if its first line is not a comment."""
    return [line for _, line in _numbered_option_lines(text)]


def _numbered_option_lines(text: str) -> list[tuple[int, str]]:
    lines = text.replace("\r\n", "\n").split("\n")
    if not lines[0].startswith("#"):
        return []
    return [(number, line.rstrip()) for number, line in enumerate(lines, 1) if re.match(r"#OAR\s", line.rstrip())]


def foreign_lines(text: str) -> str:
    r"""Return the prefix of lines with options of another scheduler; '' if there are none.

    >>> foreign_lines("#!/bin/sh\n#SBATCH -N 1\n")
    '#SBATCH'
    """
    found = re.search(r"^#(?:SBATCH|PBS|BSUB|MSUB|\$(?= ?-))", text, re.MULTILINE)
    return found[0] if found else ""


class LostLine(NamedTuple):
    """A line that looks like an option and is ignored."""

    number: int
    text: str
    reason: str
    way_out: str


def lost_line(text: str) -> LostLine | None:
    r"""Return the first line that looks like an option and is ignored; ``##OAR`` disables a line on purpose.

    >>> lost_line("#!/bin/sh\n# OAR -l core=1\n")[:2]
    (2, '# OAR -l core=1')
    >>> lost_line("#!/bin/sh\n##OAR -l core=1\n# OAR - a scheduler\n#OAR -n x\n") is None
    True
    """
    lines = text.replace("\r\n", "\n").split("\n")
    is_read = lines[0].startswith("#")
    for number, line in enumerate(lines, 1):
        if number > 1 and not is_read and re.match(r"[ \t]*#OAR\s", line):
            way_out = "Begin the script with #!, and nothing before it"
            return LostLine(number, line, _fault_in_first_line(lines[0]), way_out)
        if _LOOK.match(line) and not re.match(r"#OAR\s", line):
            way_out = f"Write: #OAR {_LOOK.sub('', line, count=1).strip()}"
            return LostLine(number, line, "a line with options begins with #OAR and a blank", way_out)
        if re.search(r"\r[ \t]*#OAR\s", line):
            return LostLine(number, line, "lines end with CR only", "Convert the script: tr '\\r' '\\n' < OLD > NEW")
    return None


#: What stands before the option in such a line.
_LOOK = re.compile(r"(?i)[ \t\ufeff]*#[ \t]*OAR[: \t]*(?=--?[A-Za-z])")


def _fault_in_first_line(first: str) -> str:
    if first.startswith("\ufeff"):
        return "the script begins with a byte order mark"
    if first.lstrip().startswith("#!"):
        return "there are blanks before #! in the first line"
    return "the first line is empty" if not first.strip() else "the first line does not begin with #"


def doubts(name: str, text: str, *, has_options: bool) -> Iterator[str]:
    r"""Yield warnings about probable mistakes in a script.  ``has_options``: some ``#OAR`` lines are used.

    >>> list(doubts("job.sh", "#!/bin/sh\n#PBS -l nodes=1\n", has_options=False))
    ['job.sh: its #PBS lines are ignored: they are for another scheduler. Write #OAR lines.']
    """
    if "\n" in text and text.partition("\n")[0].endswith("\r"):
        yield f"{name}: its lines end with CR LF, and nodes cannot run it. Convert it: dos2unix {name}"
    if (foreign := foreign_lines(text)) and not has_options:
        yield f"{name}: its {foreign} lines are ignored: they are for another scheduler. Write #OAR lines."
    if lost := lost_line(text):
        shown = lost.text.rstrip()[:_LONGEST_SHOWN]
        yield f'{name}: line {lost.number} is ignored: "{shown}": {lost.reason}. {lost.way_out}'


#: Characters of a line that a warning shows.
_LONGEST_SHOWN = 100


def unread_lines(name: str, text: str, command: str) -> Iterator[str]:
    r"""Yield a warning about ``#OAR`` lines in a script that is submitted without ``-S``.

    ``command``: the command line that uses them.

    >>> next(unread_lines("x", "#!/bin/sh\n#OAR -n x\n", "oarsub -S ./x")).partition(". ")[2]
    'To use them, delete this job (oardel) and run: oarsub -S ./x'
    """
    way_out = "To use them, delete this job (oardel) and run: "
    if option_lines(text) or lost_line(text):
        yield f"{name}: the job is submitted without its #OAR lines, which need -S. {way_out}{command}"
    elif text.startswith("#") and (foreign := foreign_lines(text)):
        effect = f"the job is submitted without its {foreign} lines, which are for another scheduler"
        yield f"{name}: {effect}. Write #OAR lines, delete this job (oardel) and run: {command}"


def with_place(command: str) -> str:
    """Return a command that runs the script in the working directory, not a program of the same name in PATH.

    >>> with_place("job.sh a b"), with_place("'my job.sh'"), with_place("./job.sh")
    ('./job.sh a b', "'./my job.sh'", './job.sh')
    """
    match = re.match(r"(\s*)([^\s\"'/]+)(?=\s|\Z)|(\s*([\"']))[^/]+?\4(?=\s|\Z)", command)
    return command[: (end := match.end(3) if match[3] else match.end(1))] + "./" + command[end:] if match else command


def is_old_checkpoint(line: str) -> bool:
    """Return whether a line begins with ``-k SECONDS``, the checkpoint delay of OAR 2.0."""
    return bool(re.match(_OLD_CHECKPOINT, line))


def words_of_several(line: str) -> list[str] | None:
    """Return the words of a line that may hold several options; None if it cannot."""
    try:
        words = shlex.split(_modern(line).removeprefix("#OAR"))
    except ValueError:
        return None
    return words if sum(word.startswith("-") for word in words) > 1 else None


def _modern(line: str) -> str:
    return re.sub(_OLD_CHECKPOINT, "#OAR --checkpoint ", line)


def single_option(line: str) -> tuple[str, str | None]:
    """Return the option of a line that holds one option, and its value or None.  Raises BadRequest."""
    match = re.match(_LINE, _modern(line))
    if not match:
        raise BadRequest("not an option")
    text = match["value"]
    return match["option"], unquoted(text.removeprefix("=").strip()) if text.strip() else None


def unquoted(value: str) -> str:
    """Return a value without surrounding quotes and shell backslashes."""
    quote = value[:1]
    if len(value) > 1 and quote in "\"'" and value.endswith(quote) and not re.search(rf"(?<!\\){quote}", value[1:-1]):
        value = value[1:-1]
        if quote == "'":
            return value
    return re.sub(_ESCAPED, r"\1", value)


def values_of(text: str) -> dict[str, list[Value]]:
    """Return the option values of a script by option name, in their order.

    Raises BadRequest for the first invalid line.
    """
    values: dict[str, list[Value]] = {}
    for number, line in _numbered_option_lines(text):
        try:
            line_values = _parse_line(line)
        except BadRequest as error:
            raise BadRequest(f"script: line {number}: {line[:_LONGEST_SHOWN]}: {error}") from None
        for name, value in line_values:
            values.setdefault(name, []).append(value)
    return values


def joined(name: str, values: Sequence[Value]) -> Value | tuple[Value, ...]:
    """Return the values of an option as one: texts as a tuple, conditions joined with AND, otherwise the last value."""
    kind = OPTIONS[name].kind
    if kind is Kind.TEXTS:
        return tuple(values)
    if kind is Kind.CONDITION and len(values) > 1:
        return " AND ".join(f"({condition})" for condition in values)
    return values[-1]


def _parse_line(line: str) -> list[tuple[str, Value]]:
    """Return names and values of the options of a line.  Raises BadRequest."""
    if "\0" in line:
        raise BadRequest("it holds the character NUL")
    if words := words_of_several(line):
        try:
            return list(_parse_words(words))
        except BadRequest:
            pass  # the line holds one option, whose value has dashes
    return [_parse_option(*single_option(line))]


def _parse_words(words: Sequence[str]) -> Iterator[tuple[str, Value]]:
    left = iter(words)
    for word in left:
        spelling, value = word, None
        if word not in _BY_SPELLING and word.startswith("--"):
            spelling, equals, attached = word.partition("=")
            value = attached if equals else None
        elif word not in _BY_SPELLING:
            spelling, value = word[:2], word[2:] or None
        if value is None and OPTIONS[_name_of(spelling)].kind is not Kind.FLAG:
            value = next(left, None)
        yield _parse_option(spelling, value)


def _name_of(spelling: str) -> str:
    if spelling not in _BY_SPELLING:
        raise BadRequest(f"{spelling} is not an option of scripts")
    return _BY_SPELLING[spelling]


def _parse_option(spelling: str, text: str | None) -> tuple[str, Value]:
    name = _name_of(spelling)
    kind = OPTIONS[name].kind
    if kind is Kind.FLAG:
        if text is not None:
            raise BadRequest(f"the option takes no value. Write: #OAR {spelling}")
        return name, True
    if text is None:
        value = {Kind.NUMBER: "NUMBER", Kind.COUNT: "NUMBER", Kind.ARRAY: "N%M"}.get(kind, "VALUE")
        raise BadRequest(f"the option requires a value. Write: #OAR {spelling} {value}")
    if kind is Kind.ARRAY:
        count, percent, limit = text.partition("%")
        size = _number(count, spelling) if count or not percent else 0
        return name, ArraySize(size, _number(limit, spelling) if percent else None)
    return name, _number(text, spelling) if kind in (Kind.NUMBER, Kind.COUNT) else text


def _number(text: str, spelling: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) <= _DIGITS):
        raise BadRequest(f"{spelling}: {text!r} is not a number")
    return int(text)
