"""What is said of a submission in which habits of other schedulers have another meaning here."""

import os
import re
import shlex
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from oar.cli.oarsub_parts.call import OarsubCall
from oar.cli.oarsub_parts.command_line import CommandLine

#: A dependency of Slurm, whose -d is short for it.
_DEPENDENCY = re.compile(r"(after\w*|singleton|expand):\S*\Z", re.ASCII)

#: Bytes of a file that are searched for options, which stand at its head.
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
#: The name of a file that stands for itself in a shell.
_PLAIN = re.compile(r"[\w./+@:,%-]+")


def doubts(call: OarsubCall, line: CommandLine, command: str) -> Iterator[str]:
    """Tell what was probably not meant."""
    options = line.options
    if "name" in line.names and (options.name or "").isdecimal() and not options.requests:
        number = options.name
        yield f"-n gives the job the name {number}. To request {number} cores, write -l core={number}."
    if "directory" in line.names and _DEPENDENCY.match(options.directory or ""):
        yield f"-d sets the directory of the job to {options.directory}. To wait for a job, write -a JOB_ID."
    if command and not options.scan and not options.interactive:
        yield from _script_doubts(call, command)


def _script_doubts(call: OarsubCall, command: str) -> Iterator[str]:
    """Yield warnings about a script that runs without -S: unread options, no permission, not found."""
    from oar.cli.common.render import visible
    from oar.lib.submission.script_lines import unread_lines

    script = _script_in(command)
    if script is None:
        return
    path = os.path.join(call.options.directory or "", script.path)
    try:
        file = call.files.read(path)
    except OSError:
        return
    place = script.path if "/" in script.path else f"./{script.path}"
    text = file.data[:_LOOKED_INTO].decode("utf-8", "replace")
    typed = shlex.quote(shlex.join([place, *script.arguments]))
    yield from map(visible, unread_lines(script.path, text, f"oarsub -S {typed}"))
    if script.is_program and not file.is_executable:
        yield visible(
            f"{script.path}: it is not executable, the job would end with exit code 126. Run: chmod +x {place}"
        )
    elif script.is_program and "/" not in script.path:
        yield visible(
            f"{script.path}: the shell searches it in PATH, not in the current directory. Write: oarsub {typed}"
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
