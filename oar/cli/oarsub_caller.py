"""What oarsub knows of its caller besides his command line: his environment, and the options he always wants.

sudo passes nothing of that on.  The wrapper in BINDIR, which still is the caller, hands it over in two variables: they
are data for the caller's own job and give him no right, whatever he writes into them.
"""

import sys
from collections.abc import Mapping, Sequence
from os import geteuid
from typing import NamedTuple

import click

from oar.cli import oarsub_options
from oar.cli.as_user import UserFiles
from oar.cli.command import Context, Stop
from oar.cli.oarsub_options import EXIT_SCRIPT, Options, Scanned
from oar.lib.errors import BadRequest

#: The environment as ``env -0`` prints it, in base64; and the path of ~/.oarsubrc if there is one.
ENVIRONMENT, DEFAULTS = "OAR_SUBMIT_ENV", "OAR_SUBMIT_DEFAULTS"
#: Bytes of an environment that the wrapper hands over; one more is cut off.
LONGEST = 96_000
STDIN = "-"
#: More of a script on standard input is not read; what may be stored is less.
_LARGEST_SCRIPT = 16 << 20


class Script(NamedTuple):
    """A script of the caller."""

    text: str
    is_executable: bool


def environment(context: Context) -> Mapping[str, str]:
    """Return the caller's own environment.  Raises BadRequest."""
    handed = context.environment.get(ENVIRONMENT)
    if handed is None:
        return context.environment if context.user.uid == geteuid() else {}
    import base64

    try:
        data = base64.b64decode(handed)
    except ValueError:
        return {}
    if len(data) > LONGEST:
        raise BadRequest(f"your environment is longer than {LONGEST} bytes: name the variables, --env NAME=value.")
    pairs = (each.decode("utf-8", "surrogateescape").partition("=") for each in data.split(b"\0") if each)
    return {name: value for name, _, value in pairs if name not in (ENVIRONMENT, DEFAULTS)}


def read_script(files: UserFiles, path: str) -> Script:
    """Return a script, ``-`` for standard input.  Raises OSError."""
    if path == STDIN:
        data = sys.stdin.buffer.read(_LARGEST_SCRIPT)
        return Script(data.decode("utf-8", "surrogateescape"), is_executable=True)
    file = files.read(path)
    return Script(file.data.decode("utf-8", "surrogateescape"), file.is_executable)


def defaults(context: Context, files: UserFiles, parameters: Sequence[click.Parameter]) -> Scanned | None:
    """Return what ~/.oarsubrc says: an option in each line, as behind ``#OAR``.  Raises Stop."""
    path = context.environment.get(DEFAULTS)
    if not path:
        return None
    try:
        text = files.read(path).data.decode("utf-8", "surrogateescape")
    except OSError:
        raise Stop(f"[ERROR] Cannot open the file {path}.", EXIT_SCRIPT) from None
    lines = [_marked(line.strip()) for line in text.split("\n") if line.strip()]
    return oarsub_options.scan(
        "\n".join(["#", *lines]), path, parameters, lambda complaint: click.echo(complaint, err=True)
    )


def _marked(line: str) -> str:
    return line if line.startswith("#") else f"#OAR {line}"


def below(options: Options, given: frozenset[str], default: Scanned) -> Options:
    """Return the options with those of ~/.oarsubrc where neither the command line nor a script gives one."""
    changes = {name: getattr(default.options, name) for name in default.given - given}
    if "environment" in default.given:
        changes["environment"] = (*default.options.environment, *options.environment)
    return options._replace(**changes)
