"""Options of commands: how they are declared, the values that they take, and the styles of families of commands."""

from collections.abc import Callable, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click
from click.core import ParameterSource

from oar.lib.base.errors import OarError
from oar.lib.base.formats import Format
from oar.lib.base.version import CODENAME, VERSION

if TYPE_CHECKING:
    ParamType = click.ParamType[Any]
    Choice = click.Choice[str]
else:
    Choice = click.Choice
    ParamType = click.ParamType  # generic only since click 8.4

Function = TypeVar("Function", bound=Callable[..., Any])

BLANKS = " \t\r\n\f\v"
DIGITS = frozenset("0123456789")
LARGEST_NUMBER = 2**63 - 1

EXIT_BAD_OPTION = 1


class Stop(OarError):
    """End of the command: this text, as it is, on stderr, and this exit code."""

    def __init__(self, text: str, exit_code: int = 1) -> None:
        super().__init__(text)
        self.exit_code = exit_code


class BadOption(Stop):
    """An option is unknown, or its argument is missing or wrong."""


class Style(NamedTuple):
    """How a family of commands speaks."""

    error: str
    warning: str
    cannot_contact: str
    version: str
    usage_after_error: bool
    underscores: bool  #: options may be written with ``_`` for ``-``
    words: bool = False  #: an option is a word behind one dash, as in Grid Engine; nothing is bundled or cut short


USER = Style(
    error="# Error: ",
    warning="# Warning: ",
    cannot_contact="# Warning: cannot contact",
    version=f"OAR version: {VERSION} ({CODENAME})",
    usage_after_error=False,
    underscores=False,
)
ADMIN = Style(
    error="[ERROR] ",
    warning="/!\\ ",
    cannot_contact="/!\\ Cannot contact",
    version=f"OAR version: {VERSION}",
    usage_after_error=True,
    underscores=True,
)


RESERVATIONS = Style(
    error="error: ",
    warning="warning: ",
    cannot_contact="warning: cannot contact",
    version=USER.version,
    usage_after_error=False,
    underscores=False,
    words=True,
)


class Number(ParamType):
    """A whole number that the database can hold."""

    name = "number"

    def __init__(self, *, negative: bool = True, largest: int = LARGEST_NUMBER) -> None:
        self._negative = negative
        self._largest = largest

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int | None:
        """Return the number; None for an optional argument that is not there."""
        if isinstance(value, int):
            return value
        text: str = value
        if not text and isinstance(param, OptionalArgument):
            return None
        digits = (text.removeprefix("-") if self._negative else text).removeprefix("+")
        name = name_of(param).lstrip("-") if param else ""
        if not digits or not DIGITS.issuperset(digits) or len(digits) > 19 or abs(int(text)) > LARGEST_NUMBER:
            raise BadOption(f'Value "{text}" invalid for option {name} (number expected)', EXIT_BAD_OPTION)
        if abs(int(text)) > self._largest:
            raise BadOption(f'Value "{text}" invalid for option {name} (at most {self._largest})', EXIT_BAD_OPTION)
        return int(text)


class OneOf(Choice):
    """One of a few words."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the word.  Raises BadParameter."""
        text: str = value
        if text not in self.choices:
            kind = "option" if isinstance(param, click.Option) else "argument"
            name = name_of(param) if param else ""
            raise click.BadParameter(f'Value "{text}" invalid for {kind} {name} (one of: {", ".join(self.choices)})')
        return text


class OptionalText(ParamType):
    """A text, or None for an optional argument that is not there."""

    name = "text"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str | None:
        """Return the text, None if it is empty."""
        return value or None


class NameList(ParamType):
    """A name, or several separated by commas; ``kind``: of the names, for messages.

    A list without a name is rejected: an empty variable in a script does not mean all.
    """

    name = "list"

    def __init__(self, kind: str) -> None:
        self._kind = kind

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the text as it is.  Raises Stop."""
        text: str = value
        is_given = param and ctx and ctx.get_parameter_source(param.name or "") is ParameterSource.COMMANDLINE
        if param and ctx and is_given and not text.replace(",", "").strip():
            raise names_nothing(ctx.info_name or "", param.opts[0], text, self._kind)
        return text


def names_nothing(program: str, option: str, text: str, kind: str) -> Stop:
    """Return the error for a list without a name.  ``option``: '' for an argument; ``kind``: of the names."""
    from oar.cli.common.render import visible

    place = f" {option}" if option else ""
    return Stop(f'{program}:{place} "{visible(text)}" has no value\n  leave it out, or write {kind}')


NUMBER = Number()
COUNT = Number(negative=False)
#: A number that a column of four bytes holds.
SMALL_NUMBER = Number(largest=2**31 - 1)


class Join(Enum):
    """How the values of a repeated option that takes one value are joined."""

    LIST = "list"  #: with commas
    LETTERS = "letters"  #: with nothing between them
    CONDITION = "condition"  #: with AND

    def join(self, former: str, value: str) -> str:
        """Return both values as one.

        >>> Join.LIST.join("R", "W"), Join.CONDITION.join("a = 1", "b = 2 OR c")
        ('R,W', '(a = 1) AND (b = 2 OR c)')
        """
        if not former or not value:
            return former or value
        if self is Join.CONDITION:
            return f"({former}) AND ({value})"
        return f"{former}{',' if self is Join.LIST else ''}{value}"


class PlainOption(click.Option):
    """An option whose help is used unchanged: click would load ``inspect`` to remove its indentation."""

    def __init__(
        self,
        declarations: Sequence[str],
        *,
        help: str | None = None,
        join: Join | None = None,
        lasts: bool = False,
        **settings: Any,
    ) -> None:
        """``join``: None if the last value counts; ``lasts``: the command uses the terminal, or waits for hours."""
        super().__init__(declarations, **settings)
        self.help = help
        self.lasts = lasts
        self.join = Join.LIST if join is None and isinstance(self.type, NameList) else join

    def add_to_parser(self, parser: Any, ctx: click.Context) -> None:
        """Let the parser know the option also by the name that ``canonical_name`` returns."""
        written = self.opts
        self.opts = [*written, canonical_name(written)]
        super().add_to_parser(parser, ctx)
        self.opts = written


def canonical_name(names: Sequence[str]) -> str:
    """Return the name by which an option is handed to click: a long one.

    Of every option it looks for a long one first; one that has none made it search all others for likenesses and the
    catalogue of messages for a translation, before it looked for a short one.

    >>> canonical_name(["-n", "--name"]), canonical_name(["-a"])
    ('--name', '--a')
    """
    longest = max(names, key=len)
    return f"-{longest}" if len(longest) == len("-a") else longest


class PathOption(PlainOption):
    """An option whose argument names a file: blanks at its ends belong to the name."""


def option(*declarations: str, **settings: Any) -> Callable[[Function], Function]:
    """Declare an option; ``settings`` are click's."""
    return click.option(*declarations, **{"cls": PlainOption, **settings})


class OptionalArgument(PlainOption):
    """An option whose argument may be left out; always repeatable.

    Its value is ``()`` when it is not given, else a tuple with the argument, or None, of each time that it is.
    """

    def __init__(
        self,
        declarations: Sequence[str],
        *,
        numeric: bool = False,
        jobs: bool = False,
        attached: bool = False,
        is_list: bool | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(declarations, multiple=True, type=NUMBER if numeric else OptionalText(), **settings)
        self.numeric = numeric
        self.jobs = jobs
        self.attached = attached
        self.is_list = (numeric or jobs) if is_list is None else is_list


def optional_argument(
    *declarations: str,
    numeric: bool = False,
    jobs: bool = False,
    attached: bool = False,
    is_list: bool | None = None,
    lasts: bool = False,
    help: str = "",
    metavar: str | None = None,
) -> Callable[[Function], Function]:
    """Declare an option with an optional argument; ``numeric``: only digits are taken as one.

    ``jobs``: only a list of jobs is taken as one (``oar.lib.jobs.job_lists``).

    ``attached``: its argument must follow ``=``.
    ``is_list``: all values count, not only the last one; default: only for numbers and jobs.
    """
    settings = {"numeric": numeric, "jobs": jobs, "attached": attached, "is_list": is_list, "lasts": lasts}
    return option(*declarations, cls=OptionalArgument, help=help, metavar=metavar, **settings)


def machine_formats(function: Function) -> Function:
    """Declare -D, -X, -Y and -J; the function gets the chosen one as ``machine``."""

    def command(*arguments: Any, **options: Any) -> Any:
        chosen = [machine_format for machine_format in Format if options.pop(f"as_{machine_format}")]
        return function(*arguments, machine=chosen[0] if chosen else None, **options)

    command.__dict__.update(function.__dict__)
    for machine_format in reversed(Format):
        name = machine_format.value
        letter = f"-{name[0].upper()}"
        option(letter, f"--{name}", f"as_{name}", is_flag=True, help=f"Print {name.upper()}.")(command)
    return command  # type: ignore[return-value]


def name_of(parameter: click.Parameter) -> str:
    """Return the name of an option or an argument as the help shows it."""
    if isinstance(parameter, click.Option):
        return max(parameter.opts, key=len)
    return parameter.metavar or (parameter.name or "").upper()
