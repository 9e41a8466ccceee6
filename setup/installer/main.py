"""The program setup/install."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path

from . import environments
from .flavours import NAMES, install
from .target import InstallError, Target

_DESCRIPTION = """\
Puts OAR on a machine: programs, wrappers, configuration, units; the Python package in an environment of its own.

`setup/install server user node` does what `make server-install user-install node-install` do. Configuration that is
there is never overwritten. A second installation is an upgrade: the new environment is made beside the old one, which
stays until the next, so that what is running goes on. Everything obeys --destdir.
"""
_HELP = {
    "destdir": "put before all paths, to make a package",
    "prefix": "where all paths begin that have no option of their own",
    "wheels": "install the libraries from this directory, and fetch nothing",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Install what the command line names; return the exit code."""
    parser = _parser()
    options = vars(parser.parse_args(arguments))
    flavours, collect = options.pop("flavours"), options.pop("collect")
    if bool(flavours) == bool(collect):
        parser.error(f"name what to install ({', '.join(NAMES)}), or a directory with --collect")
    try:
        if collect:
            environments.collect(options["python"], Path(collect))
        else:
            install(flavours, Target(**options))
    except (InstallError, OSError) as error:
        print(f"install: {error}", file=sys.stderr)
        return 1
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
    return parser
