"""The command line of oarsub, completed by the options of a script and of ~/.oarsubrc."""

import os
import shlex
from collections.abc import Sequence
from typing import NamedTuple

import click
from click.core import ParameterSource

from oar.cli.common.command import Context
from oar.cli.common.options import Stop
from oar.cli.oarsub_parts.call import OarsubCall
from oar.cli.oarsub_parts.caller_environment import DEFAULTS
from oar.cli.oarsub_parts.options import OarsubOptions
from oar.lib.submission.checks import BadSubmission, Code
from oar.lib.submission.initial_request import initial_request


class CommandLine(NamedTuple):
    """The options, their names, and the texts that are stored with the job."""

    options: OarsubOptions
    names: frozenset[str]  #: of the options that the command line, then also the script, gives
    initial_request: str  #: the line as it is stored with the job
    script: str | None = None  #: text of the script that is stored with the job
    command: str = ""


def read(context: Context, options: OarsubOptions) -> CommandLine:
    """Return the command line of which click has read the options."""
    ctx = click.get_current_context()
    names = frozenset(
        name for name in OarsubOptions._fields if ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE
    )
    return CommandLine(_with_old_checkpoint(context, options), names, initial_request(context.arguments))


def _with_old_checkpoint(context: Context, options: OarsubOptions) -> OarsubOptions:
    """Read ``-k <seconds> <command>`` as people wrote it when -k was the delay of the checkpoint."""
    words, arguments = options.words, context.arguments
    if len(words) == 2 and words[0].isascii() and words[0].isdigit():
        followers = [arguments[index + 1] for index, argument in enumerate(arguments[:-1]) if argument == "-k"]
        if followers == [words[0]]:
            context.warn('"-k <seconds>" is obsolete, use --checkpoint.')
            return options._replace(words=words[1:], use_job_key=False, checkpoint=int(words[0]))
    return options


def command_of(context: Context, options: OarsubOptions) -> str:
    """Return the command of the job, '' if there is none.  Raises BadSubmission."""
    try:
        command = join_words(options.words, context.dashes)
    except ValueError as error:
        raise BadSubmission(Code.COMMAND, str(error), usage=True) from None
    if options.wrapped is not None:
        if command:
            raise BadSubmission(Code.COMMAND, "give the command once: as a word or with --wrap.", usage=True)
        command = options.wrapped
    if options.interactive and command:
        context.warn(f"you asked for an Interactive job SO I will ignore arguments: {command} ; Is your syntax right?")
        return ""
    return command


def join_words(words: Sequence[str], dashes: int | None) -> str:
    """Return the command that the words are; several are joined only behind ``--``.  Raises ValueError.

    ``dashes``: number of words before ``--``, None if there was none.
    """
    if len(words) > 1 and dashes == 0:
        return shlex.join(words)
    if len(words) > 1:
        raise ValueError('only one command is accepted, quote it or put it after "--".')
    return words[0] if words else ""


def with_script(call: OarsubCall, line: CommandLine, command: str) -> CommandLine:
    """Return the command line with the options of the script, which is the first word of the command.  Raises Stop."""
    from oar.cli.common.render import visible
    from oar.cli.oarsub_parts import script_options
    from oar.lib.submission.script_lines import doubts, with_place

    try:
        words = shlex.split(command)
    except ValueError:
        words = command.split()
    if not words:
        return line._replace(command=command)
    path = words[0]
    script = script_options.read_script(call.files, path)
    scanned = script_options.scan(script.text, path, call.context.command.params)
    for doubt in doubts(path, script.text, has_options=bool(scanned.lines)):
        call.context.warn(visible(doubt))
    options = script_options.add_script(call.context, line.options, line.names, scanned)
    is_stored = path in script_options.STDIN or options.spool
    if not is_stored and not script.is_executable:
        call.context.warn(
            visible(f"{path} is not executable: the job would end with exit code 126. Type: chmod +x {path}")
        )
    elif not is_stored and _is_elsewhere(call.context, options.directory) and not path.startswith("/"):
        text = f"-S reads {path} in the current directory, the job runs it in {options.directory}."
        call.context.warn(visible(f"{text} Type the absolute path of the script."))
    return CommandLine(
        options,
        line.names | scanned.names,
        line.initial_request + "".join(f"; {stored}" for stored in scanned.lines),
        script.text if is_stored else None,
        command if is_stored else with_place(command),
    )


def _is_elsewhere(context: Context, directory: str | None) -> bool:
    """Return whether a directory is another one than the current directory."""
    try:
        current = context.place.directory or os.getcwd()
    except FileNotFoundError:
        return False
    return os.path.normpath(os.path.join(current, directory or "")) != os.path.normpath(current)


def with_defaults(call: OarsubCall, line: CommandLine) -> CommandLine:
    """Return the command line with the options of ~/.oarsubrc that nothing else gives.  Raises Stop."""
    if line.options.spool and line.script is None:
        raise Stop("# Error: --spool stores the script that -S reads: use it with -S.")
    path = call.context.environment.get(DEFAULTS)
    if not path:
        return line
    from oar.cli.oarsub_parts import script_options

    defaults = script_options.read_defaults(call, path)
    return line._replace(
        options=script_options.add_defaults(line.options, line.names, defaults),
        initial_request=line.initial_request + "".join(f"; {stored}" for stored in defaults.lines),
    )
