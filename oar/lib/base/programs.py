"""Programs in oar.conf: parse their command lines, and check whether this machine can start them."""

import os
import re
import shlex
import shutil
import sys
from functools import lru_cache
from pathlib import Path

#: The PATH of the programs that the server starts.
DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
#: Programs of OAR 2 and 3 that are part of this version under another name.
_BUILT_IN = {"sentinelle.pl": (sys.executable, "-I", "-m", "oar.cli.sentinelle")}
#: Programs of OAR 2 and 3 for nodes, in the place of which this version does the work itself.
_DELIVERED = re.compile(
    r"(job_resource_manager|cpuset_manager|suspend_resume_manager)(_evolving|_systemd|_cgroups(-v2)?)?(_nixos)?(\.pl|\.py)?"
)
_LONGEST_INTERPRETER_LINE = 256


def site_program(path: str | None) -> str | None:
    """Return the path of a site's own program for nodes, None if it is not set or is a program of OAR.

    >>> site_program("/etc/oar/job_resource_manager_systemd.pl")
    >>> site_program("/etc/oar/our_manager.pl")
    '/etc/oar/our_manager.pl'
    """
    return None if not path or _DELIVERED.fullmatch(Path(path).name) else path


def split_command(command: str) -> tuple[str, ...]:
    """Return the words of a command line. A missing program of an older version is replaced by the built-in one.

    >>> split_command("/no/directory/sentinelle.pl -t 30")[1:]
    ('-I', '-m', 'oar.cli.sentinelle', '-t', '30')
    """
    program, *arguments = _words(command)
    built_in = _BUILT_IN.get(Path(program).name)
    return (*built_in, *arguments) if built_in and not os.path.exists(program) else (program, *arguments)


@lru_cache(maxsize=64)
def _words(command: str) -> tuple[str, ...]:
    """Return the words of a command line. They are kept: each launch checks the same programs."""
    return tuple(shlex.split(command))


def find_fault(command: str, key: str, search_path: str = DEFAULT_PATH) -> str:
    """Return why the program of a command line cannot be started, and the remedy. Return '' if it can be started.

    ``key``: the key of oar.conf that contains the command line.
    """
    program = split_command(command)[0]
    path = program if "/" in program else shutil.which(program, path=search_path)
    if path is None or not os.path.exists(path):
        return describe_missing(program, key)
    if os.path.isdir(path):
        return f"{program}: it is a directory, not a program. Write the path of the program."
    if not os.access(path, os.X_OK):
        return f"{program}: it is not executable. Run: chmod 755 {program}"
    interpreter = _interpreter(path)
    if interpreter and shutil.which(interpreter, path=search_path) is None:
        return f"{program}: its interpreter {interpreter} is not on this machine. Install it."
    return ""


def describe_missing(program: str, key: str) -> str:
    """Return the error text about a program that is not on this machine."""
    return f"{program}: no such program on this machine. Install it, or remove {key} from oar.conf."


def _interpreter(path: str) -> str:
    """Return the interpreter in the first line of a script, '' if the file is not a script or cannot be read."""
    try:
        with open(path, "rb") as file:
            line = file.readline(_LONGEST_INTERPRETER_LINE)
    except OSError:
        return ""
    words = line[2:].decode(errors="replace").split() if line.startswith(b"#!") else []
    if len(words) > 1 and Path(words[0]).name == "env" and not words[1].startswith("-"):
        return words[1]
    return words[0] if words else ""
