"""Options of oarsub in the ``#OAR`` lines of a script, with the same syntax."""

import re
import shlex
from collections.abc import Iterator, Sequence
from enum import Enum
from typing import NamedTuple

from oar.lib.base.errors import BadRequest
from oar.lib.submission.job_form import ArraySize

_LINE = r"(?s)#OAR\s+(?P<option>--[A-Za-z][A-Za-z0-9_-]*|-[A-Za-z])(?P<value>.*)\Z"
_OLD_CHECKPOINT = r"(?a)#OAR\s+-k\s+(?=\d+(\s|\Z))"
_ESCAPED = r'\\([ "\\$])'
#: The largest number that the database can hold has so many digits.
_DIGITS = 18


class Argument(Enum):
    """The kind of value of an option."""

    FLAG = "nothing"
    TEXT = "a text"
    TEXTS = "a text, and the option may be repeated"
    NUMBER = "a number"
    ARRAY = "N, N%M or %M"


class ScriptOption(NamedTuple):
    """An option that a script may set."""

    name: str  #: of its value, as in the record of oarsub
    spellings: tuple[str, ...]
    kind: Argument = Argument.TEXT

    @property
    def long(self) -> str:
        """The long spelling of the option for messages."""
        return next(spelling for spelling in self.spellings if spelling.startswith("--"))


Value = str | int | bool | ArraySize

#: All of them.
OPTIONS = (
    ScriptOption("requests", ("-l", "--resource"), Argument.TEXTS),
    ScriptOption("array", ("--array",), Argument.ARRAY),
    ScriptOption("parameter_file", ("--array-param-file",)),
    ScriptOption("queue", ("-q", "--queue")),
    ScriptOption("properties", ("-p", "--property")),
    ScriptOption("nodelist", ("--nodelist",), Argument.TEXTS),
    ScriptOption("exclude", ("--exclude",), Argument.TEXTS),
    ScriptOption("reservation", ("-r", "--reservation")),
    ScriptOption("advance_reservation", ("--ar", "-ar", "--advance-reservation")),
    ScriptOption("verify", ("--verify",)),
    ScriptOption("checkpoint", ("--checkpoint",), Argument.NUMBER),
    ScriptOption("signal", ("--signal",)),
    ScriptOption("types", ("-t", "--type"), Argument.TEXTS),
    ScriptOption("directory", ("-d", "--directory")),
    ScriptOption("project", ("--project",)),
    ScriptOption("name", ("-n", "--name")),
    ScriptOption("dependencies", ("-a", "--anterior", "--after"), Argument.TEXTS),
    ScriptOption("notify", ("--notify",)),
    ScriptOption("max_restarts", ("--max-restarts",), Argument.NUMBER),
    ScriptOption("use_job_key", ("-k", "--use-job-key"), Argument.FLAG),
    ScriptOption("key_file", ("-i", "--import-job-key-from-file")),
    ScriptOption(
        "key_inline",
        ("--import-job-key-inline", "--import-job-key-inline-priv", "--ssh_private_key", "--ssh-private-key"),
    ),
    ScriptOption("public_key", ("--ssh_public_key", "--ssh-public-key")),
    ScriptOption("key_export", ("-e", "--export-job-key-to-file")),
    ScriptOption("stdout", ("-O", "--stdout")),
    ScriptOption("stderr", ("-E", "--stderr")),
    ScriptOption("hold", ("--hold",), Argument.FLAG),
    ScriptOption("stagein", ("-s", "--stagein")),
    ScriptOption("stagein_md5sum", ("--stagein-md5sum",)),
    ScriptOption("cpuset_name", ("--force_cpuset_name", "--force-cpuset-name")),
    ScriptOption("environment", ("--env",), Argument.TEXTS),
    ScriptOption("spool", ("--spool",), Argument.FLAG),
)
_BY_SPELLING = {spelling: each for each in OPTIONS for spelling in each.spellings}


def option_of(name: str) -> ScriptOption:
    """Return the option that sets a value."""
    return next(each for each in OPTIONS if each.name == name)


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
            return LostLine(number, line, _why_no_line_is_read(lines[0]), way_out)
        if _LOOK.match(line) and not re.match(r"#OAR\s", line):
            way_out = f"Write: #OAR {_LOOK.sub('', line, count=1).strip()}"
            return LostLine(number, line, "a line with options begins with #OAR and a blank", way_out)
        if re.search(r"\r[ \t]*#OAR\s", line):
            return LostLine(number, line, "lines end with CR only", "Convert the script: tr '\\r' '\\n' < OLD > NEW")
    return None


#: What stands before the option in such a line.
_LOOK = re.compile(r"(?i)[ \t\ufeff]*#[ \t]*OAR[: \t]*(?=--?[A-Za-z])")


def _why_no_line_is_read(first: str) -> str:
    """Return the fault in the first line of a script."""
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
            read = _read(line)
        except BadRequest as error:
            raise BadRequest(f"script: line {number}: {line[:_LONGEST_SHOWN]}: {error}") from None
        for option, value in read:
            values.setdefault(option.name, []).append(value)
    return values


def joined(option: ScriptOption, values: Sequence[Value]) -> Value | tuple[Value, ...]:
    """Return the values of an option as one: texts as a tuple, conditions joined with AND, otherwise the last value."""
    if option.kind is Argument.TEXTS:
        return tuple(values)
    if option.name == "properties" and len(values) > 1:
        return " AND ".join(f"({condition})" for condition in values)
    return values[-1]


def _read(line: str) -> list[tuple[ScriptOption, Value]]:
    """Return the options of a line.  Raises BadRequest."""
    if "\0" in line:
        raise BadRequest("it holds the character NUL")
    if words := words_of_several(line):
        try:
            return list(_options(words))
        except BadRequest:
            pass  # the line holds one option, whose value has dashes
    spelling, value = single_option(line)
    return [_with_value(spelling, value)]


def _options(words: Sequence[str]) -> Iterator[tuple[ScriptOption, Value]]:
    left = iter(words)
    for word in left:
        spelling, value = _split(word)
        option = _named(spelling)
        if value is None and option.kind is not Argument.FLAG:
            value = next(left, None)
        yield _with_value(spelling, value)


def _split(word: str) -> tuple[str, str | None]:
    """Return an option and its attached value: ``--name=x``, ``-nx``."""
    if word in _BY_SPELLING:
        return word, None
    if word.startswith("--"):
        spelling, equals, value = word.partition("=")
        return spelling, value if equals else None
    return word[:2], word[2:] or None


def _named(spelling: str) -> ScriptOption:
    if spelling not in _BY_SPELLING:
        raise BadRequest(f"{spelling} is no option of scripts")
    return _BY_SPELLING[spelling]


def _with_value(spelling: str, text: str | None) -> tuple[ScriptOption, Value]:
    option = _named(spelling)
    if option.kind is Argument.FLAG:
        if text is not None:
            raise BadRequest(f"the option takes no value. Write: #OAR {spelling}")
        return option, True
    if text is None:
        value = {Argument.NUMBER: "NUMBER", Argument.ARRAY: "N%M"}.get(option.kind, "VALUE")
        raise BadRequest(f"the option requires a value. Write: #OAR {spelling} {value}")
    if option.kind is Argument.NUMBER:
        return option, _number(text, spelling)
    return option, _array(text, spelling) if option.kind is Argument.ARRAY else text


def _array(text: str, spelling: str) -> ArraySize:
    count, percent, limit = text.partition("%")
    size = _number(count, spelling) if count or not percent else 0
    return ArraySize(size, _number(limit, spelling) if percent else None)


def _number(text: str, spelling: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) <= _DIGITS):
        raise BadRequest(f"{spelling}: {text!r} is not a number")
    return int(text)
