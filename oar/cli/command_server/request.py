"""The request of a user to the command server, as the client writes it (``oar/cli/command_server/client.pl``).

Everything in it was written by a stranger: it is data for the command that is requested, and gives no right.
"""

import re
from collections.abc import Mapping
from typing import NamedTuple

from oar.lib.base.version import VERSION

PROTOCOL = b"OAR-COMMANDS 2"
#: Bytes of a request, at most.
LARGEST = 1 << 18
#: The commands that the server runs: those that users run by sudo.
COMMANDS = frozenset(
    {
        *("oarsub", "oarstat", "oarnodes", "oardel", "oarhold", "oarresume", "oarwalltime", "oaralter", "oarnotify"),
        *("qrsub", "qrstat", "qrdel", "qralter", "oarproject", "oaruserset", "oar-token"),
    }
)
#: Variables that are handed over whatever they hold, as by ``setup/nodes/sudoers``.
KEPT = frozenset(
    {
        *("OAR_JOB_ID", "OAR_JOBID", "OAR_JOB_KEY_FILE", "OAR_SUBMIT_ENV", "OAR_SUBMIT_DEFAULTS"),
        *("OAR_OARSTAT_OUTPUT_FORMAT", "OAR_USER_CPUSET", "OAR_USER_GPUDEVICE"),
        *("DISPLAY", "XAUTHORITY", "TERM", "NO_COLOR", "OAR_SUDO_USER"),
    }
)
#: Variables that sudo hands over if no library could be made to read a file by them.
CHECKED = frozenset({"LANG", "LANGUAGE", "LINGUAS", "COLORTERM", "TZ"})
#: What sudo adds to the umask of its caller.
UMASK = 0o022
#: Limits that nothing reaches; the CPU time that a process has used is added to its limit.
_NO_LIMIT = 1 << 62
_HEAD = 5  #: protocol, version, command, directory, numbers
_NUMBERS = 6
#: What the kernel knows as a limit; -1: none.
_NUMBER, _LARGEST_NUMBER = re.compile(rb"-1|[0-9]{1,19}"), (1 << 63) - 1


class BadRequestError(ValueError):
    """No request, or one that another version wrote."""


class CallerLimits(NamedTuple):
    """Soft limits of the caller; -1: none."""

    cpu: int
    fsize: int
    data: int
    address_space: int


class CommandRequest(NamedTuple):
    """A command as a user typed it, and from where."""

    command: str
    arguments: tuple[str, ...]
    directory: str
    umask: int
    limits: CallerLimits
    environment: Mapping[str, str]


def module_of(command: str) -> str:
    """Return the module of a command."""
    return f"oar.cli.{command.replace('-', '_')}"


def is_of_this_version(greeting: bytes) -> bool:
    """Whether a program that has connected is one whose requests we can read."""
    return greeting == b"%s\0%s" % (PROTOCOL, VERSION.encode())


def read(data: bytes) -> CommandRequest:
    """Return the request that these bytes are.  Raises BadRequestError."""
    fields = data.split(b"\0")
    if fields[:2] != [PROTOCOL, VERSION.encode()] or len(fields) < _HEAD:
        raise BadRequestError
    command, directory, numbers = _text(fields[2]), _text(fields[3]), _numbers(fields[4])
    words = list(map(_text, fields[_HEAD:]))
    umask, count, *limits = numbers
    if command not in COMMANDS or not directory.startswith("/") or not 0 <= count <= len(words):
        raise BadRequestError
    variables = (pair.partition("=") for pair in words[count:])
    environment = {name: value for name, _, value in variables if _is_handed_over(name, value)}
    return CommandRequest(
        command, tuple(words[:count]), directory, umask & 0o777 | UMASK, CallerLimits(*limits), environment
    )


def _numbers(text: bytes) -> list[int]:
    """Return umask, number of arguments, and limits.  Raises BadRequestError."""
    words = text.split(b" ")
    if len(words) != _NUMBERS or not all(map(_NUMBER.fullmatch, words)):
        raise BadRequestError
    numbers = list(map(int, words))
    if not all(number <= _LARGEST_NUMBER for number in numbers):
        raise BadRequestError
    return [*numbers[:2], *(-1 if limit >= _NO_LIMIT else limit for limit in numbers[2:])]


def _is_handed_over(name: str, value: str) -> bool:
    """Return whether sudo keeps a variable; it drops values that look like shell functions."""
    if name in KEPT:
        return not value.startswith("()")
    if name == "TZ":
        return _is_zone(value)
    is_checked = name in CHECKED or name.startswith("LC_")
    return is_checked and "/" not in value and "%" not in value


def _is_zone(value: str) -> bool:
    """Whether a value of TZ names a time zone, and no file elsewhere.

    >>> _is_zone("Europe/Paris"), _is_zone("/etc/shadow"), _is_zone("a/../../b")
    (True, False, False)
    """
    name = value.removeprefix(":")
    return not name.startswith("/") and ".." not in name and name.isprintable() and " " not in name


def _text(data: bytes) -> str:
    """Return words as UTF-8 text; bytes that are not become lone surrogates."""
    return data.decode("utf-8", "surrogateescape")
