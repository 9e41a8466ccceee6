"""What is said of a submission in which habits of other schedulers have another meaning here."""

import re
import sys
from collections.abc import Iterator

from oar.cli.oarsub_parts.call import OarsubCall
from oar.cli.oarsub_parts.command_line import CommandLine

#: A dependency of Slurm, whose -d is short for it.
_DEPENDENCY = re.compile(r"(after\w*|singleton|expand):\S*\Z", re.ASCII)

#: So many bytes of a file are looked into: options stand at its head.
_LOOKED_INTO = 65536


def doubts(call: OarsubCall, line: CommandLine, command: str) -> Iterator[str]:
    """Tell what was probably not meant."""
    options = line.options
    if "name" in line.names and (options.name or "").isdecimal() and not options.requests:
        yield f"-n gives the job the name {options.name}: cores are asked for with -l core={options.name}."
    if "directory" in line.names and _DEPENDENCY.match(options.directory or ""):
        yield f"-d is the directory of the job, {options.directory}: jobs to wait for are named with -a."
    is_elsewhere = "directory" in line.names and not command.startswith("/")
    if command and not options.scan and not is_elsewhere and is_watched():
        yield from _unread_options(call, command)


def is_watched() -> bool:
    """Say whether somebody reads along, for whom it is worth the time to look into a file."""
    return sys.stderr.isatty()


def _unread_options(call: OarsubCall, command: str) -> Iterator[str]:
    """Tell of the options in a script that is run like any other program."""
    from oar.cli.common.render import visible
    from oar.lib.submission.script_lines import unread_lines

    path = command.split(maxsplit=1)[0] if command.strip() else ""
    if "/" not in path or re.search(r"[^\w./+@=:,-]", path):
        return
    try:
        text = call.files.read(path).data[:_LOOKED_INTO].decode("utf-8", "replace")
    except OSError:
        return
    yield from map(visible, unread_lines(path, text))
