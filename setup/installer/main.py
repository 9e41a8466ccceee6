"""The program setup/install."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path

from . import environments
from .flavours import NAMES, install
from .removal import remove
from .target import InstallError, Target

_DESCRIPTION = """\
Puts OAR on a machine: programs, wrappers, configuration, units; the Python package in an environment of its own.

`setup/install server user node` does what `make server-install user-install node-install` do. Configuration that is
there is never overwritten. A second installation is an upgrade: the new environment is made beside the old one, which
stays until the next, so that what is running goes on. `setup/install --remove`, with the paths that were given then,
takes all of it away. Everything obeys --destdir.
"""
_REMOVED = "Removed. Kept: {0.confdir}, {0.homedir}, /var/log/oar.log, the account {0.user}, the database."
_HELP = {
    "destdir": "put before all paths, to make a package",
    "prefix": "where all paths begin that have no option of their own",
    "wheels": "install the libraries from this directory, and fetch nothing",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Install the flavours named on the command line; return the exit code."""
    parser = _parser()
    options = vars(parser.parse_args(arguments))
    flavours, collect, is_removal = (options.pop(name) for name in ("flavours", "collect", "remove"))
    if [bool(flavours), bool(collect), is_removal].count(True) != 1:
        parser.error(f"name what to install ({', '.join(NAMES)}), a directory with --collect, or --remove")
    target = Target(**options)
    try:
        if collect:
            environments.collect(target.python, Path(collect))
        elif is_removal:
            remove(target)
        else:
            install(flavours, target)
    except (InstallError, OSError) as error:
        print(f"install: {error}", file=sys.stderr)
        return 1
    if is_removal:
        print(_REMOVED.format(target))
    else:
        print(f"Collected in {collect}." if collect else f"Installed: {', '.join(flavours)}.")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="setup/install", description=_DESCRIPTION, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("flavours", nargs="*", choices=[*NAMES, []], metavar="|".join(NAMES))
    for field in fields(Target):
        parser.add_argument(f"--{field.name}", default=field.default, help=_HELP.get(field.name))
    parser.add_argument("--collect", metavar="DIR", help="fetch the libraries into a directory for --wheels")
    parser.add_argument("--remove", action="store_true", help="take away what was installed, and stop its units")
    return parser
