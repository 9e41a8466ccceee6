"""Options in ``#OAR`` lines of a script and in ~/.oarsubrc.

A line is read by the same parser as the command line, so that both have the same options and the same error messages.
"""

import sys
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import click
from click.core import ParameterSource

from oar.cli.common.command import Command, Context
from oar.cli.common.options import USER, BadOption, PlainOption, Stop
from oar.cli.oarsub_parts.call import OarsubCall, print_error
from oar.lib.base.errors import BadRequest
from oar.lib.submission.checks import Code
from oar.lib.submission.options import OPTIONS, ArraySize, JobOptions, add_script_options, stored_script_line
from oar.lib.submission.script_lines import is_old_checkpoint, option_lines, single_option, words_of_several
from oar.lib.user_files.files import UserFiles

#: How scripts name standard input; a program that runs as another user could not open it by these paths.
STDIN = ("-", "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0")
#: Bytes of a script on standard input that are read; fewer can be stored.
_LARGEST_SCRIPT = 16 << 20


class Script(NamedTuple):
    """A script of the user."""

    text: str
    is_executable: bool


class ScriptOptions(NamedTuple):
    """The options that a script sets."""

    values: Mapping[str, Any]  #: by the names of the options
    lines: tuple[str, ...]  #: as they are stored with the job


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

    Raises Stop if there is such a line.
    """
    params = [parameter for parameter in parameters if _is_for_scripts(parameter) or parameter.name == "words"]
    parser = Command("oarsub", style=USER, not_admin=1, exit_codes={}, params=params, add_help_option=False)
    options = {parameter.name: parameter for parameter in params}
    values: dict[str, Any] = {}
    stored, errors = [], 0
    for line in option_lines(text):
        try:
            line_values = _parse_line(line, parser)
        except (BadOption, click.UsageError, BadRequest) as error:
            print_error(f"/!\\ Not able to scan file line: {line}.")
            print_error(_explain(line, error, parameters))
            errors += 1
            continue
        if is_old_checkpoint(line):
            print_error('# Warning: "-k <seconds>" is obsolete, use --checkpoint.')
        stored.append(stored_script_line(line))
        values |= {name: _joined(options[name], values.get(name), value) for name, value in line_values.items()}
    if errors:
        raise Stop(f"[ERROR] {errors} error(s) encountered while parsing the file {path}.", Code.FILE)
    return ScriptOptions(values, tuple(stored))


def _is_for_scripts(parameter: click.Parameter) -> bool:
    return parameter.name in OPTIONS and OPTIONS[parameter.name].in_scripts


def _joined(option: click.Parameter, former: Any, value: Any) -> Any:
    """Return the value of a line joined with the value of former lines, None without one."""
    if former is None:
        return value
    if option.multiple:
        return (*former, *value)
    if isinstance(option, PlainOption) and option.join is not None:
        return option.join.join(former, value)
    if former != value:
        spelling = max(option.opts, key=len)
        print_error(f"# Warning: {spelling} is given several times: the last value is used: {value}")
    return value


def _explain(line: str, error: Exception, parameters: Sequence[click.Parameter]) -> str:
    """Return the errors of a line, as comments."""
    spelling = next(iter(line.removeprefix("#OAR").split("=")[0].split()), "")
    for parameter in parameters:
        is_format = str(parameter.name).startswith("as_")  # oarsub prints in it: no option of a job either
        is_option = isinstance(parameter, click.Option) and spelling in parameter.opts
        if is_option and not is_format and not _is_for_scripts(parameter):
            return f"# {spelling} is allowed on the command line only."
    text = error.format_message() if isinstance(error, click.UsageError) else str(error)
    return "\n".join(line if line.startswith("#") else f"# {line}" for line in text.splitlines())


def _parse_line(line: str, parser: Command) -> dict[str, Any]:
    """Return the values that a line sets, by the names of the options.  Raises BadOption, BadRequest."""
    option, value = single_option(line)
    ctx = _parse_several(line, parser)
    if ctx is None:
        arguments = [f"{option}={value}"] if option.startswith("--") else [option, str(value)]
        ctx = parser.make_context("oarsub", [option] if value is None else arguments)
        if ctx.args or ctx.params.get("words"):
            raise BadRequest("more than an option")
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


def add_script(context: Context, options: JobOptions, names: frozenset[str], script: ScriptOptions) -> JobOptions:
    """Return the options of the command line, of which ``names`` were given, with those of a script."""

    def report_ignored(name: str, value: Any) -> None:
        shown = " ".join(value) if isinstance(value, tuple) and not isinstance(value, ArraySize) else value
        context.warn(
            f"ignore script value for {OPTIONS[name].long.lstrip('-')} parameter: {shown};"
            " another value was given on the command line."
        )

    return add_script_options(
        options,
        names,
        script.values,
        replace_requests=context.runtime.config.oarsub_script_resources == "replace",
        report_ignored=report_ignored,
    )


def add_defaults(options: JobOptions, names: frozenset[str], defaults: ScriptOptions) -> JobOptions:
    """Return the options, of which ``names`` were given, with those of ~/.oarsubrc for the others."""
    changes = {name: value for name, value in defaults.values.items() if name not in names}
    if "environment" in defaults.values:
        changes["environment"] = (*defaults.values["environment"], *options.environment)
    return options._replace(**changes)
