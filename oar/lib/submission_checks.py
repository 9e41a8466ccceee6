"""What is wrong with a submission before anything is asked of the database (commands-user.md 3).

Everything here is a function of what the user gave and, for dates, of the time; each complaint has the exit code that
is documented for oarsub.
"""

import re
import signal
from collections.abc import Iterable, Sequence
from enum import IntEnum
from typing import NamedTuple

from oar.lib.config import Config
from oar.lib.errors import BadRequest
from oar.lib.model import Dependency, Group
from oar.lib.notices import UnsafeCommand, parse_subscription
from oar.lib.request import Request, name_nodes, parse_request
from oar.lib.states import DependencyCondition
from oar.lib.times import format_duration, parse_date

#: A kernel gives one argument of a command at most this many bytes.
LONGEST_COMMAND = 131071
LONGEST_NAME = 100
LONGEST_TYPE = 255
LONGEST_TEXT = 255

# Texts of expressions: most submissions need few of them, and each takes a command 0.1 ms to compile.
_FILE_NAME = r"[A-Za-z0-9_./\-%\\ +=@:,~]*\Z"
_CPUSET_NAME = r"[A-Za-z0-9_-]{1,50}\Z"
_NODE = r"[A-Za-z0-9][A-Za-z0-9_.:-]*\Z"
_CONTROL = r"[\x00-\x1f\x7f-\x9f]"
_CONDITIONS = "|".join(DependencyCondition)
_SHIFT = r"[\[\]]?[+-]?[0-9]{1,9}"
_DEPENDENCY = rf"([0-9]{{1,18}})(\[\])?(?::({_CONDITIONS}))?(?:\s*,\s*({_SHIFT})?\s*(?:,\s*({_SHIFT})?)?)?\s*\Z"
_TIME = r"([0-9]{1,2})(?::([0-9]{1,2})(?::([0-9]{1,2}))?)?\Z"
_RELATIVE = r"\+([0-9]{1,6})(?::([0-9]{1,2})(?::([0-9]{1,2}))?)?\Z"
_UNITS = r"\+(?:([0-9]{1,4})d)?(?:([0-9]{1,5})h)?(?:([0-9]{1,7})m(?:in)?)?\Z"
_DAYS = ("today", "tomorrow", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_NAMED_DAY = rf"(?i)({'|'.join(_DAYS)})(?:\s+([0-9:]+))?\Z"
_DAY = 86400


class Code(IntEnum):
    """Exit codes of oarsub (commands-user.md 3.15)."""

    OPTION = 1
    RESUBMIT = 4
    COMMAND = 5
    ARRAY = 6
    RESERVATION = 7
    REQUEST = 8  #: resources, keys, dependencies, names
    INTERACTIVE_PARAMETERS = 9
    REFUSED_RESERVATION = 10
    NO_SESSION = 11
    FILE = 12
    NOTIFY_CHARACTERS = 16
    NOOP = 17
    SYNTAX = 18
    CONNECT = 20
    STDERR = 243
    STDOUT = 244
    QUEUE = 248
    NOTIFY = 250


class BadSubmission(BadRequest):
    """What is asked cannot be.  ``str`` is the sentence; the rest tells a command how to show it."""

    def __init__(
        self, code: Code, text: str, *, prefix: str = "# Error: ", verify: bool | None = None, usage: bool = False
    ) -> None:
        """``verify``: the line that asks to check the syntax follows (default: with the code of requests)."""
        super().__init__(text)
        self.code = code
        self.exit_code = int(code)
        self.prefix = prefix
        self.verify = code is Code.REQUEST if verify is None else verify
        self.usage = usage  #: the usage of the command follows


# -- modes ----------------------------------------------------------------------------------------------------------


class Modes(NamedTuple):
    """What decides whether options go together."""

    interactive: bool
    reservation: bool
    command: bool
    noop: bool
    array: bool  #: an array of more or fewer than one job is asked
    parameters: bool  #: ... by a file
    notify: str | None


def check_modes(modes: Modes) -> None:
    """Refuse options that exclude each other.  Raises BadSubmission."""
    if modes.interactive:
        if modes.reservation:
            raise BadSubmission(Code.RESERVATION, "a reservation cannot be interactive.", usage=True)
        if modes.noop:
            raise BadSubmission(Code.NOOP, "a noop job cannot be interactive.")
    elif not (modes.command or modes.reservation or modes.noop):
        raise BadSubmission(Code.COMMAND, "a command is needed.", usage=True)
    refusal = _refusal_of_notify(modes.notify)
    if refusal and refusal.code is Code.NOTIFY_CHARACTERS:  # what else is wrong with it is told in its turn
        raise refusal


def check_array(modes: Modes, size: int, most: int, limit: int | None = None) -> None:
    """Refuse an array that cannot be; ``limit``: how many of its jobs may run at a time.  Raises BadSubmission."""
    if modes.interactive and modes.parameters:
        raise BadSubmission(
            Code.INTERACTIVE_PARAMETERS, "a parameter file-based array job cannot be interactive.", verify=False
        )
    if size <= 0:
        raise BadSubmission(Code.ARRAY, "an array job must have a positive number of sub-jobs.", usage=True)
    if size > most:
        raise BadSubmission(Code.ARRAY, f"an array job cannot have more than {most} sub-jobs.")
    if limit is not None and limit <= 0:
        text = "at least one sub-job of an array must be allowed to run at a time."
        raise BadSubmission(Code.ARRAY, text, usage=True)
    if modes.interactive and modes.array:
        raise BadSubmission(Code.REQUEST, "an array job cannot be interactive.", verify=False)


def _refusal_of_notify(notify: str | None) -> BadSubmission | None:
    if notify is None:
        return None
    try:
        parse_subscription(notify)
    except UnsafeCommand as error:
        return BadSubmission(Code.NOTIFY_CHARACTERS, str(error))
    except BadRequest as error:
        return BadSubmission(Code.NOTIFY, f"bad syntax for the notify option: {error}")
    return None


# -- texts ----------------------------------------------------------------------------------------------------------


def check_notify(notify: str | None) -> None:
    """Refuse what is no notification.  Raises BadSubmission."""
    if refusal := _refusal_of_notify(notify):
        raise refusal


def check_file_names(stdout: str | None, stderr: str | None) -> None:
    """Refuse names of output files with characters that are not allowed.  Raises BadSubmission."""
    if stdout is not None and not re.match(_FILE_NAME, stdout):
        raise BadSubmission(Code.STDOUT, "invalid stdout file name (bad character)")
    if stderr is not None and not re.match(_FILE_NAME, stderr):
        raise BadSubmission(Code.STDERR, "invalid stderr file name (bad character)")


def check_command(command: str) -> None:
    """Refuse a command that no kernel would take, or no database.  Raises BadSubmission."""
    if not _is_storable(command):
        raise BadSubmission(Code.COMMAND, "the command is not UTF-8 text.")
    size = len(command.encode())
    if size > LONGEST_COMMAND:
        raise BadSubmission(Code.COMMAND, f"the command is too long ({size} bytes, at most {LONGEST_COMMAND}).")


def check_text(what: str, text: str | None, longest: int = LONGEST_TEXT) -> None:
    """Refuse a short text that is too long or has control characters.  Raises BadSubmission."""
    if text is None:
        return
    check_stored(what, text)
    if re.search(_CONTROL, text):
        raise BadSubmission(Code.REQUEST, f"the {what} has a control character.")
    if len(text) > longest:
        raise BadSubmission(Code.REQUEST, f"the {what} is longer than {longest} characters.")


def check_stored(what: str, text: str | None) -> None:
    """Refuse a text that the database cannot hold.  Raises BadSubmission."""
    if text is not None and not _is_storable(text):
        raise BadSubmission(Code.REQUEST, f"the {what} is not UTF-8 text.")


def _is_storable(text: str) -> bool:
    """Whether a text can be written as UTF-8 (bytes that are not come as lone surrogates) and has no NUL."""
    try:
        return b"\0" not in text.encode()
    except UnicodeEncodeError:
        return False


def parse_signal(text: str) -> int:
    """Return the number of a signal given as ``12``, ``USR2`` or ``SIGUSR2``.  Raises BadRequest."""
    name = text.strip().upper()
    if name.isdigit() and 0 < int(name) < signal.NSIG:
        return int(name)
    known = {each.name: int(each) for each in signal.Signals}
    number = known.get(name if name.startswith("SIG") else f"SIG{name}")
    if number is None:
        raise BadRequest(f"unknown signal {text}.")
    return number


def check_checkpoint(delay: int, number: int) -> None:
    """Refuse a delay or a signal that cannot be.  Raises BadSubmission."""
    if delay < 0:
        raise BadSubmission(Code.REQUEST, "the checkpoint delay cannot be negative.")
    if not 0 < number < signal.NSIG:
        raise BadSubmission(Code.REQUEST, f"unknown signal {number}.")


def check_cpuset_name(name: str | None, size: int) -> None:
    """Refuse a name that is none for a cpuset, or that an array's jobs would share.  Raises BadSubmission."""
    if name is not None and (not re.match(_CPUSET_NAME, name) or name.isdigit() or size > 1):
        raise BadSubmission(Code.REQUEST, f'invalid cpuset name "{name}".')


def default_file_name(name: str | None, stream: str) -> str:
    """Return the pattern of an output file for a job whose user gave none.

    >>> default_file_name("a/b", "stdout"), default_file_name(None, "stderr")
    ('OAR.a_b.%jobid%.stdout', 'OAR.%jobid%.stderr')
    """
    middle = f"{name.replace('/', '_')}." if name else ""
    return f"OAR.{middle}%jobid%.{stream}"


# -- requests -------------------------------------------------------------------------------------------------------


def parse_requests(texts: Iterable[str], config: Config) -> tuple[Request, ...]:
    """Read what all ``-l`` ask; the default resources stand where one names none.  Raises BadSubmission."""
    try:
        given = [parse_request(text) for text in texts] or [Request()]
    except BadRequest as error:
        raise BadSubmission(Code.SYNTAX, str(error)) from None
    default = parse_request(config.oarsub_default_resources).groups
    return tuple(request._replace(groups=_with_default(request.groups, default)) for request in given)


def _with_default(groups: Sequence[Group], default: Sequence[Group]) -> tuple[Group, ...]:
    completed: list[Group] = []
    for group in groups or (Group("", ()),):
        if group.levels:
            completed.append(group)
        else:
            completed += [Group(_and(group.filter, each.filter), each.levels) for each in default]
    return tuple(completed)


def _and(first: str, second: str) -> str:
    return f"({first}) AND ({second})" if first and second else first or second


def named(requests: Sequence[Request], columns: Iterable[str], config: Config) -> tuple[Request, ...]:
    """Put the property that is a node for ``nodes`` and ``node``, unless the site has a column of that name."""
    names = frozenset(columns)
    return tuple(
        Request(name_nodes(request.groups, names, config.oarsub_nodes_resources), request.walltime)
        for request in requests
    )


def condition_on_nodes(nodes: Iterable[str], excluded: Iterable[str]) -> str:
    """Return the condition that leaves certain nodes, and what is on no node at all.  Raises BadSubmission.

    >>> condition_on_nodes(["node-1"], ["node-2", "node-3"])
    "network_address IN ('', 'node-1') AND network_address NOT IN ('node-2', 'node-3')"
    """
    wanted, unwanted = list(nodes), list(excluded)
    for name in [*wanted, *unwanted]:
        if not re.match(_NODE, name):
            raise BadSubmission(Code.REQUEST, f"bad node name {_shown(name)}.")
    parts = [f"network_address IN ({_quoted(['', *wanted])})"] if wanted else []
    parts += [f"network_address NOT IN ({_quoted(unwanted)})"] if unwanted else []
    return " AND ".join(parts)


def _quoted(names: Iterable[str]) -> str:
    return ", ".join(f"'{name}'" for name in names)


# -- dependencies ---------------------------------------------------------------------------------------------------


def parse_dependencies(texts: Iterable[str]) -> tuple[Dependency, ...]:
    """Read what all ``-a`` ask, the last one for each job; ``job_id`` is 0.  Raises BadSubmission.

    >>> parse_dependencies(["12:ok,60,]600", "501[]"])
    (Dependency(job_id=0, required=12, condition='ok', min_shift='60', max_shift=']600'),)
    """
    return tuple(each for (_, by_index), each in _dependencies(texts).items() if not by_index)


def parse_array_dependencies(texts: Iterable[str]) -> tuple[Dependency, ...]:
    """Read what all ``-a ARRAY[]`` ask: each job needs the one of its index; ``required`` is the array.

    Raises BadSubmission.
    """
    return tuple(each for (_, by_index), each in _dependencies(texts).items() if by_index)


def _dependencies(texts: Iterable[str]) -> dict[tuple[int, bool], Dependency]:
    """Return dependencies by what is required, and whether that is the job of the same index."""
    found: dict[tuple[int, bool], Dependency] = {}
    for text in texts:
        match = re.match(_DEPENDENCY, text.strip())
        if not match:
            forms = "write id[:ok|notok|any|start][,min[,max]], or id[] for an array."
            raise BadSubmission(Code.REQUEST, f"bad dependency {_shown(text)}: {forms}")
        condition, least, most = (part or "" for part in match.groups()[2:])
        found[int(match[1]), bool(match[2])] = Dependency(0, int(match[1]), condition, least, most)
    return found


def _shown(text: str) -> str:
    return '"' + re.sub(_CONTROL, "?", text.encode(errors="replace").decode())[:60] + '"'


# -- reservations ---------------------------------------------------------------------------------------------------


class Window(NamedTuple):
    """The dates of a reservation; ``stop`` 0 = not given, ``late`` = how long ago it was to start."""

    start: int
    stop: int = 0
    late: int = 0

    @property
    def walltime(self) -> int | None:
        """Its length, None if it has no end."""
        return self.stop - self.start if self.stop else None

    def guess(self) -> str:
        """Return what oarsub -v says about it."""
        from oar.lib.times import format_date

        return (
            f"Guessed reservation start: {format_date(self.start)} end: {format_date(self.stop)}"
            f" (computed walltime: {format_duration(self.stop - self.start)})."
        )


def parse_window(text: str, now: int) -> Window:
    """Read ``start[,end]`` of ``-r``; a start in the past is now.  Raises BadSubmission.

    A time alone is today's; an end that is a time not after the start is the next day's.
    """
    first, comma, last = text.partition(",")
    start = _date(first, now, now, "start")
    if not comma:
        return Window(max(start, now), late=max(0, now - start))
    stop = _date(last, start, start, "end")
    if re.match(_TIME, last.strip()) and stop <= start:
        stop += _DAY
    if stop <= start:
        raise BadSubmission(Code.RESERVATION, "reservation end date must be after start date.")
    moved = max(0, now - start)
    return Window(start + moved, stop + moved, moved)


def _day_of(name: str, today: int) -> int:
    """Return a moment of the day that is called so: today, tomorrow, or the next day of the week with that name."""
    from oar.lib.times import local_midnight

    _, weekday = local_midnight(today)
    ahead = _DAYS.index(name) if name in _DAYS[:2] else (_DAYS.index(name) - 2 - weekday - 1) % 7 + 1
    return int(local_midnight(today, ahead)[0].timestamp())


def _date(text: str, day: int, origin: int, which: str) -> int:
    """Read a date, a time on a day, ``now``, or a distance from ``origin``."""
    import time

    text = text.strip()
    named = re.match(_NAMED_DAY, text)
    if named:
        day, text = _day_of(named[1].lower(), day), named[2] or "0"
    relative, hour = re.match(_RELATIVE, text), re.match(_TIME, text)
    units = re.match(_UNITS, text)
    try:
        if text == "now" and which == "start":
            return origin
        if units and any(units.groups()):
            days, hours, minutes = (int(part or 0) for part in units.groups())
            return origin + days * _DAY + hours * 3600 + minutes * 60
        if relative:
            hours, minutes, seconds = (int(part or 0) for part in relative.groups())
            return origin + hours * 3600 + minutes * 60 + seconds
        if hour:
            parts = ":".join(f"{int(part or 0):02}" for part in hour.groups())
            return parse_date(f"{time.strftime('%Y-%m-%d', time.localtime(day))} {parts}")
        return parse_date(text)
    except BadRequest:
        raise BadSubmission(
            Code.RESERVATION,
            f"syntax error in <{which} date> for the -r or --reservation option."
            ' It takes a date as argument with the format: "YYYY-MM-DD hh:mm:ss".'
            "\n# Or write: now, 18:30, tomorrow 8:00, friday 18:30, +2h, +1d, +1:30.",
        ) from None
