"""The options with which requests begin: files of the site and of the user, in the words of a command line.

See docs/advance-reservations.rst, "Default requests".
"""

import os
import stat
from collections.abc import Iterator, Mapping, Sequence

import click
from click.core import ParameterSource

from oar.cli.common.command import Command, Context
from oar.cli.common.options import Stop
from oar.lib.base.errors import BadRequest

#: The variable by which the shell of the user names his file: the command runs as oar, and has another home.
OF_USER = "OAR_SUBMIT_DEFAULTS"
#: What stands in several places is joined.
_JOINED = "resources"
#: Each takes the place of the others beside it.
_EXCLUSIVE = (frozenset({"pe", "allocation"}), frozenset({"window", "earliest"}))


def completed(context: Context, given: Mapping[str, object], names: Sequence[str]) -> dict[str, object]:
    """Return the values of options, those of the files where the command line says nothing.

    ``names``: the options that may stand in files.  Raises Stop.
    """
    values = dict(given)
    told = {name for name in given if _is_on_command_line(name)}
    for place in reversed(list(_places(context, names))):  # the nearest one first
        joined = (*place.get(_JOINED, ()), *values[_JOINED])  # type: ignore[misc]  # texts of -l
        for name, value in place.items():
            others = next((names for names in _EXCLUSIVE if name in names), {name})
            if told.isdisjoint(others):
                values[name] = value
        told |= place.keys()
        values[_JOINED] = joined
    return values


def _is_on_command_line(name: str) -> bool:
    return click.get_current_context().get_parameter_source(name) is ParameterSource.COMMANDLINE


def _places(context: Context, names: Sequence[str]) -> Iterator[dict[str, object]]:
    """Iterate over the values in the files, the site's first."""
    parser = _parser(context.command, names)
    path = context.runtime.config.reservation_request_file
    if os.path.exists(path):
        yield _read(parser, path, _of_site(path))
    own = context.environment.get(OF_USER)
    if own:
        try:
            data = context.files.read(own).data
        except OSError:
            raise Stop(f"error: cannot read {own}") from None
        yield _read(parser, own, data.decode("utf-8", "surrogateescape"))


def _of_site(path: str) -> str:
    """Return the text of the file of the site.  Raises Stop if others than administrators could have written it."""
    with open(path, encoding="utf-8", errors="surrogateescape") as file:
        status = os.fstat(file.fileno())
        if status.st_uid not in (0, os.geteuid()) or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise Stop(
                f"error: {path}: others than root and oar can write it. Run: chown root {path}; chmod go-w {path}"
            )
        return file.read()


def _parser(command: Command, names: Sequence[str]) -> Command:
    """Return a parser of the options that may stand in files."""
    options = [parameter for parameter in command.params if parameter.name in names]
    return Command(command.name or "", style=command.style, not_admin=command.not_admin, exit_codes={}, params=options)


def _read(parser: Command, path: str, text: str) -> dict[str, object]:
    """Return the values of the options in a file.  Raises Stop."""
    from oar.lib.base.shell_words import shell_words

    lines = [line for line in text.split("\n") if not line.lstrip().startswith("#")]
    try:
        found = parser.make_context(parser.name, shell_words("\n".join(lines)))
    except (Stop, click.UsageError, BadRequest) as error:
        raise Stop(f"error: {path}: {error}") from None
    source = found.get_parameter_source
    return {name: value for name, value in found.params.items() if source(name) is ParameterSource.COMMANDLINE}
