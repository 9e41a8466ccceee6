"""Options in ``#OAR`` lines of a script and in ~/.oarsubrc.

A line is read by the same parser as the command line, so that both know the same options; what stands on the command
line wins.
"""

import sys
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import click
from click.core import ParameterSource

from oar.cli.common.command import Command, Context
from oar.cli.common.options import USER, BadOption, PlainOption, Stop
from oar.cli.oarsub_parts.call import OarsubCall, print_error
from oar.cli.oarsub_parts.options import OarsubOptions
from oar.lib.base.errors import BadRequest
from oar.lib.submission.checks import Code
from oar.lib.submission.initial_request import script_line
from oar.lib.submission.job_form import ArraySize
from oar.lib.submission.script_lines import is_old_checkpoint, option_lines, single_option, words_of_several
from oar.lib.user_files.files import UserFiles

#: Paths of standard input.
#: How scripts name standard input; a program that runs as another user could not open it by these paths.
STDIN = ("-", "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0")
#: Options that a script may not set.
NOT_IN_SCRIPTS = frozenset(
    {
        *("interactive", "connect", "scan", "estimate", "verbosity", "show_version", "debug"),
        *("resubmit", "resubmit_sql", "resubmit_states"),
        *("wait", "parsable", "wrapped", "completion", "propagate_exit", "help"),
    }
)
#: Options of a script that are added after those of the command line.
ADDED = ("requests", "types", "dependencies")
#: Options of a script that are added before those of the command line: the last value counts.
ADDED_BEFORE = ("environment",)

#: Bytes of a script on standard input that are read; fewer can be stored.
_LARGEST_SCRIPT = 16 << 20


class Script(NamedTuple):
    """A script of the user."""

    text: str
    is_executable: bool


class ScriptOptions(NamedTuple):
    """The options that a script sets."""

    options: OarsubOptions = OarsubOptions()
    names: frozenset[str] = frozenset()  #: of the options that it sets
    lines: tuple[str, ...] = ()  #: as they are stored with the job


def read_script(files: UserFiles, path: str) -> Script:
    """Return a script, ``-`` for standard input.  Raises Stop."""
    if path in STDIN:
        data = sys.stdin.buffer.read(_LARGEST_SCRIPT)
        return Script(data.decode("utf-8", "surrogateescape"), is_executable=True)
    try:
        file = files.read(path)
    except OSError:
        raise Stop(f"[ERROR] Cannot open the file {path}.", Code.FILE) from None
    return Script(file.data.decode("utf-8", "surrogateescape"), file.is_executable)


def read_defaults(call: OarsubCall, path: str) -> ScriptOptions:
    """Return the options in ~/.oarsubrc, one in each line, with or without ``#OAR``.  Raises Stop."""
    lines = [line.strip() for line in read_script(call.files, path).text.split("\n")]
    marked = [line if line.startswith("#") else f"#OAR {line}" for line in lines if line]
    return scan("\n".join(["#", *marked]), path, call.context.command.params)


def scan(text: str, path: str, parameters: Sequence[click.Parameter]) -> ScriptOptions:
    """Return the options in a script; ``parameters``: those of oarsub.  Print each line that cannot be parsed.

    Raises Stop when a line is not understood.
    """
    parser = _parser(parameters)
    options, names, stored, errors = OarsubOptions(), set[str](), [], 0
    for line in option_lines(text):
        try:
            values = _read_line(line, parser)
        except (BadOption, click.UsageError, BadRequest) as error:
            print_error(f"/!\\ Not able to scan file line: {line}.")
            print_error(_why(line, error, parameters))
            errors += 1
            continue
        if is_old_checkpoint(line):
            print_error('# Warning: "-k <seconds>" is obsolete, use --checkpoint.')
        stored.append(script_line(line))
        options = options._replace(**{name: _joined(options, names, name, values[name], parameters) for name in values})
        names.update(values)
    if errors:
        raise Stop(f"[ERROR] {errors} error(s) encountered while parsing the file {path}.", Code.FILE)
    return ScriptOptions(options, frozenset(names), tuple(stored))


def _joined(
    options: OarsubOptions, names: Collection[str], name: str, value: Any, parameters: Sequence[click.Parameter]
) -> Any:
    """Return the value of a line joined with the value of former lines, which set ``names``."""
    former, option = getattr(options, name), next(parameter for parameter in parameters if parameter.name == name)
    if name not in names:
        return value
    if option.multiple:
        return (*former, *value)
    if isinstance(option, PlainOption) and option.join is not None:
        return option.join.join(former, value)
    if former != value:
        spelling = max(option.opts, key=len)
        print_error(f"# Warning: {spelling} is given several times: the last value is used: {value}")
    return value


def _why(line: str, error: Exception, parameters: Sequence[click.Parameter]) -> str:
    """Return the errors of a line, as comments."""
    spelling = next(iter(line.removeprefix("#OAR").split("=")[0].split()), "")
    if any(spelling in parameter.opts and parameter.name in NOT_IN_SCRIPTS for parameter in parameters):
        return f"# {spelling} is allowed on the command line only."
    text = error.format_message() if isinstance(error, click.UsageError) else str(error)
    return "\n".join(line if line.startswith("#") else f"# {line}" for line in text.splitlines())


def _parser(parameters: Sequence[click.Parameter]) -> Command:
    """Return a parser of the options allowed in scripts; machine formats are not."""
    params = [
        parameter
        for parameter in parameters
        if parameter.name not in NOT_IN_SCRIPTS and not str(parameter.name).startswith("as_")
    ]
    return Command("oarsub", style=USER, not_admin=1, exit_codes={}, params=params, add_help_option=False)


def _read_line(line: str, parser: Command) -> dict[str, Any]:
    """Return the values that a line sets, by the names of the options.  Raises BadOption, BadRequest."""
    option, value = single_option(line)
    ctx = _parse_several(line, parser) or _parse_single(option, value, parser)
    return {
        name: ctx.params[name]
        for name in ctx.params
        if ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE and name != "words"
    }


def _parse_several(line: str, parser: Command) -> click.Context | None:
    """Parse a line of several options and their arguments; None for other lines."""
    words = words_of_several(line)
    if words is None:
        return None
    try:
        ctx = parser.make_context("oarsub", words)
    except (BadOption, click.UsageError, BadRequest):
        return None
    return None if ctx.args or ctx.params.get("words") else ctx


def _parse_single(option: str, value: str | None, parser: Command) -> click.Context:
    """Parse a line with one option.  Raises BadOption, BadRequest."""
    arguments = [f"{option}={value}"] if option.startswith("--") else [option, str(value)]
    ctx = parser.make_context("oarsub", [option] if value is None else arguments)
    if ctx.args or ctx.params.get("words"):
        raise BadRequest("more than an option")
    return ctx


def add_script(context: Context, options: OarsubOptions, names: frozenset[str], script: ScriptOptions) -> OarsubOptions:
    """Return the options of the command line, of which ``names`` were given, with those of a script."""
    replaces_requests = context.runtime.config.oarsub_script_resources == "replace" and bool(options.requests)
    changes: dict[str, Any] = {}
    for name in (field for field in OarsubOptions._fields if field in script.names):
        value, typed = getattr(script.options, name), getattr(options, name)
        if name in ADDED and not (name == "requests" and replaces_requests):
            changes[name] = (*typed, *value)
        elif name in ADDED_BEFORE:
            changes[name] = (*value, *typed)
        elif name not in names:
            changes[name] = value
        elif not isinstance(value, bool):
            shown = " ".join(value) if isinstance(value, tuple) and not isinstance(value, ArraySize) else value
            context.warn(
                f"ignore script value for {_long_name(context, name)} parameter: {shown};"
                " another value was given on the command line."
            )
    return options._replace(**changes)


def _long_name(context: Context, name: str) -> str:
    """Return the name of an option as messages give it."""
    option = next(parameter for parameter in context.command.params if parameter.name == name)
    return next((spelling for spelling in option.opts if spelling.startswith("--")), option.opts[0]).lstrip("-")


def add_defaults(options: OarsubOptions, names: frozenset[str], defaults: ScriptOptions) -> OarsubOptions:
    """Return the options, of which ``names`` were given, with those of ~/.oarsubrc for the others."""
    changes = {name: getattr(defaults.options, name) for name in defaults.names - names}
    if "environment" in defaults.names:
        changes["environment"] = (*defaults.options.environment, *options.environment)
    return options._replace(**changes)
