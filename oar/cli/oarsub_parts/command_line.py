"""The command line of oarsub: completed by a script and by ~/.oarsubrc, the environment of the user, likely mistakes.

sudo passes on no environment.  The wrapper in BINDIR, which still runs as the user, hands it over in two variables.
They are data for the user's own job and give no right, whatever they hold.
"""

import os
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from os import geteuid
from typing import NamedTuple

import click
from click.core import ParameterSource

from oar.cli.common.command import Context
from oar.cli.common.options import Stop
from oar.cli.oarsub_parts.call import OarsubCall
from oar.cli.oarsub_parts.options import OarsubOptions
from oar.lib.base.errors import BadRequest
from oar.lib.submission.checks import BadSubmission, Code
from oar.lib.submission.options import OPTIONS, initial_request

#: The environment as ``env -0`` prints it, in base64; and the path of ~/.oarsubrc if there is one.
ENVIRONMENT, DEFAULTS = "OAR_SUBMIT_ENV", "OAR_SUBMIT_DEFAULTS"
#: Maximum size of the environment in bytes; the wrapper passes one byte more of a longer one.
LONGEST = 96_000


def caller_environment(context: Context) -> Mapping[str, str]:
    """Return the environment of the user.  Raises BadRequest."""
    encoded = context.environment.get(ENVIRONMENT)
    if encoded is None:
        return context.environment if context.user.uid == geteuid() else {}
    import base64

    try:
        data = base64.b64decode(encoded)
    except ValueError:
        return {}
    if len(data) > LONGEST:
        raise BadRequest(f"your environment is longer than {LONGEST} bytes: name the variables, --env NAME=value.")
    pairs = (pair.decode("utf-8", "surrogateescape").partition("=") for pair in data.split(b"\0") if pair)
    return {name: value for name, _, value in pairs if name not in (ENVIRONMENT, DEFAULTS)}


def job_variables(context: Context, requests: Sequence[str], script: str | None) -> dict[str, str]:
    """Return the variables of the job; ``requests``: each --env, ``script``: the text that is stored with the job.

    Raises BadRequest.
    """
    if not requests and script is None:
        return {}
    from oar.lib.submission import job_environment

    variables = job_environment.chosen(requests, caller_environment(context))
    return variables if script is None else {**variables, job_environment.SCRIPT: script}


class CommandLine(NamedTuple):
    """The options, their names, and the texts that are stored with the job."""

    options: OarsubOptions
    names: frozenset[str]  #: of the options that the command line, then also the script, gives
    initial_request: str  #: the line as it is stored with the job
    script: str | None = None  #: text of the script that is stored with the job
    command: str = ""


def read(context: Context, options: OarsubOptions) -> CommandLine:
    """Return the command line whose options click has parsed."""
    ctx = click.get_current_context()
    names = frozenset(
        name
        for name in (*OPTIONS, *OarsubOptions._fields)
        if ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE
    )
    return CommandLine(_with_old_checkpoint(context, options), names, initial_request(context.arguments))


def _with_old_checkpoint(context: Context, options: OarsubOptions) -> OarsubOptions:
    """Read ``-k <seconds> <command>`` as people wrote it when -k was the delay of the checkpoint."""
    words, arguments = options.words, context.arguments
    if len(words) == 2 and words[0].isascii() and words[0].isdigit():
        followers = [arguments[index + 1] for index, argument in enumerate(arguments[:-1]) if argument == "-k"]
        if followers == [words[0]]:
            context.warn('"-k <seconds>" is obsolete, use --checkpoint.')
            job = options.job._replace(use_job_key=False, checkpoint=int(words[0]))
            return options._replace(job=job, words=words[1:])
    return options


def command_of(context: Context, options: OarsubOptions) -> str:
    """Return the command of the job, '' if there is none.  Raises BadSubmission."""
    try:
        command = join_words(options.words, context.dashes)
    except ValueError as error:
        raise BadSubmission(Code.COMMAND, str(error), usage=True) from None
    if options.wrapped is not None:
        if command:
            raise BadSubmission(
                Code.COMMAND, "the command is given twice: use either an argument or --wrap.", usage=True
            )
        command = options.wrapped
    if options.job.interactive and command:
        way_out = f"Run a command with: oarsub {shlex.quote(command)}"
        context.warn(f'the command "{command}" is ignored: interactive jobs (-I) start a shell. {way_out}')
        return ""
    return command


def join_words(words: Sequence[str], dashes: int | None) -> str:
    """Return the command; several words are joined only after ``--``.  Raises ValueError.

    ``dashes``: number of words before ``--``, None if there was none.
    """
    if len(words) > 1 and dashes == 0:
        return shlex.join(words)
    if len(words) > 1:
        raise ValueError(f'only one command is accepted, quote it or put it after "--".{_hint_on_words(words)}')
    return words[0] if words else ""


def _hint_on_words(words: Sequence[str]) -> str:
    """Return a line that corrects several words without ``--``."""
    if re.match(r"[A-Za-z_]+=", words[0]):
        return f"\n# {words[0]} is part of -l: join the parts with commas, as -l nodes=2,walltime=1:00"
    return f"\n# Write: oarsub {shlex.quote(' '.join(words))}"


def hint_on_missing(arguments: Sequence[str]) -> str:
    """Return a line if an option seems to have taken the command as its value."""
    option, value = arguments[-2:] if len(arguments) > 1 else ("", "")
    if not option.startswith("-") or value.startswith("-") or not value.strip():
        return ""
    return f"\n# {option} used {shlex.quote(value)} as its value: write {option} VALUE {shlex.quote(value)}"


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
    options = script_options.add_script(call.context, line.options.job, line.names, scanned)
    is_stored = path in script_options.STDIN or options.spool
    if not is_stored and not script.is_executable:
        call.context.warn(
            visible(f"{path} is not executable: the job would end with exit code 126. Type: chmod +x {path}")
        )
    elif not is_stored and _is_elsewhere(call.context, options.directory) and not path.startswith("/"):
        text = f"-S reads {path} in the current directory, the job runs it in {options.directory}."
        call.context.warn(visible(f"{text} Type the absolute path of the script."))
    return CommandLine(
        line.options._replace(job=options),
        line.names.union(scanned.values),
        line.initial_request + "".join(f"; {stored}" for stored in scanned.lines),
        script.text if is_stored else None,
        command if is_stored else with_place(command),
    )


def _is_elsewhere(context: Context, directory: str | None) -> bool:
    try:
        current = context.place.directory or os.getcwd()
    except FileNotFoundError:
        return False
    return os.path.normpath(os.path.join(current, directory or "")) != os.path.normpath(current)


def with_defaults(call: OarsubCall, line: CommandLine) -> CommandLine:
    """Return the command line with the options of ~/.oarsubrc that nothing else gives.  Raises Stop."""
    if line.options.job.spool and line.script is None:
        raise Stop("# Error: --spool stores the script that -S reads: use it with -S.")
    path = call.context.environment.get(DEFAULTS)
    if not path:
        return line
    from oar.cli.oarsub_parts import script_options

    defaults = script_options.read_defaults(call, path)
    return line._replace(
        options=line.options._replace(job=script_options.add_defaults(line.options.job, line.names, defaults)),
        initial_request=line.initial_request + "".join(f"; {stored}" for stored in defaults.lines),
    )


#: A dependency of Slurm, whose -d is short for it.
_DEPENDENCY = re.compile(r"(after\w*|singleton|expand):\S*\Z", re.ASCII)

#: Bytes at the beginning of a file that are searched for options.
_LOOKED_INTO = 65536
#: Programs that run a script which is their first argument.
_INTERPRETER = re.compile(r"(ba|da|k|z|c|tc)?sh|python[0-9.]*|perl|source|\.")
#: Words with which texts for a shell begin.
_SHELL_WORDS = frozenset(
    (
        *("alias", "cd", "command", "echo", "eval", "exec", "exit", "export", "for", "if", "let", "local", "module"),
        *("set", "shopt", "test", "time", "trap", "ulimit", "umask", "until", "wait", "while"),
    )
)
#: Endings of names of scripts.
_SCRIPT_ENDS = (".sh", ".bash", ".py", ".pl", ".R")
#: A longer walltime in hours without a unit was perhaps meant in minutes.
_LONGEST_PLAIN = 24
#: A file name that a shell does not expand.
_PLAIN = re.compile(r"[\w./+@:,%-]+")


def doubts(call: OarsubCall, line: CommandLine, command: str) -> Iterator[str]:
    """Yield warnings about probable mistakes."""
    options = line.options.job
    if "name" in line.names and (options.name or "").isdecimal() and not options.requests:
        number = options.name
        yield f"-n gives the job the name {number}. To request {number} cores, write -l core={number}."
    if "directory" in line.names and _DEPENDENCY.match(options.directory or ""):
        yield f"-d sets the directory of the job to {options.directory}. To wait for a job, write -a JOB_ID."
    if command and not line.options.scan and not options.interactive:
        yield from _script_doubts(call, command)
    if not line.options.estimate:  # which needs no directory
        yield from _directory_doubts(call)
    for text in options.requests:
        match = re.search(r"(?a)\bwalltime\s*=\s*(\d+)\s*\Z", text)
        if match and int(match[1]) > _LONGEST_PLAIN:
            yield f"walltime={match[1]} means {match[1]} hours. For {match[1]} minutes, write walltime={match[1]}m."


def _directory_doubts(call: OarsubCall) -> Iterator[str]:
    """Yield warnings about directories of the job and of its output files that are missing here."""
    from oar.cli.common.render import visible

    options = call.options.job
    if options.directory and not call.files.is_directory(options.directory):
        if _DEPENDENCY.match(options.directory):
            return
        yield visible(f"-d {options.directory}: this directory does not exist here, the job fails where it does not.")
        return
    for option, path in (("-O", options.stdout), ("-E", options.stderr)):
        place = os.path.dirname(path or "")
        if place and "%" not in place and not call.files.is_directory(os.path.join(options.directory or "", place)):
            yield visible(f"{option} {path}: the directory {place} does not exist here. Run: mkdir -p {place}")


def _script_doubts(call: OarsubCall, command: str) -> Iterator[str]:
    """Yield warnings about a script that runs without -S: unread options, no permission, not found."""
    from oar.cli.common.render import visible
    from oar.lib.submission.script_lines import unread_lines

    script = _script_in(command)
    if script is None:
        return
    path = os.path.join(call.options.job.directory or "", script.path)
    try:
        file = call.files.read(path)
    except FileNotFoundError:
        is_path = "/" in script.path or script.path.endswith(_SCRIPT_ENDS)
        if script.is_program and is_path and not call.options.estimate:
            yield visible(f"{script.path}: this file does not exist here, the job ends with exit code 127 without it.")
        return
    except OSError:
        return
    place = script.path if "/" in script.path else f"./{script.path}"
    text = file.data[:_LOOKED_INTO].decode("utf-8", "replace")
    typed = shlex.quote(shlex.join([place, *script.arguments]))
    yield from map(visible, unread_lines(script.path, text, f"oarsub -S {typed}"))
    denied = script.is_program and not file.is_executable
    if script.is_program and "/" not in script.path:
        searched = f"{script.path}: the shell searches it in PATH, not in the current directory"
        if denied:
            searched += f" (exit code 127), and it is not executable. Run: chmod +x {place}"
        yield visible(f"{searched}. Write: oarsub {typed}")
    elif denied:
        yield visible(
            f"{script.path}: it is not executable, the job would end with exit code 126. Run: chmod +x {place}"
        )


def _is_known(word: str) -> bool:
    """Return whether a word is a command of the shell or a program of this host."""
    return word in _SHELL_WORDS or any(os.path.exists(f"{place}/{word}") for place in os.get_exec_path())


class _Script(NamedTuple):
    """A file that a command runs."""

    path: str
    arguments: Sequence[str]
    is_program: bool  #: the shell runs it, no interpreter in the command


def _script_in(command: str) -> _Script | None:
    """Return the script that a command runs, None if it is a known program or a text for a shell.

    >>> _script_in("./job.sh 1 2")
    _Script(path='./job.sh', arguments=['1', '2'], is_program=True)
    >>> _script_in("bash job.sh").path, _script_in("sleep 10"), _script_in("cd x; ./job.sh")
    ('job.sh', None, None)
    """
    try:
        words = shlex.split(command)
    except ValueError:
        return None
    is_program = not (len(words) > 1 and _INTERPRETER.fullmatch(os.path.basename(words[0])))
    if not is_program:
        words = words[1:]
    if not words or words[0].startswith("-") or not _PLAIN.fullmatch(words[0]):
        return None
    if is_program and "/" not in words[0] and _is_known(words[0]):
        return None
    return _Script(words[0], words[1:], is_program)
