"""Checks of a submission that need no database.

They depend only on the submission and, for dates, on the current time.  Each error has the documented exit code of
oarsub.
"""

import re
import signal
from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum

from oar.lib.base.errors import BadRequest
from oar.lib.base.sizes import format_memory, parse_memory
from oar.lib.base.texts import is_storable
from oar.lib.config.files import Config
from oar.lib.jobs.records import Group, JobSpec, Memory
from oar.lib.jobs.states import JobTypeName
from oar.lib.submission.options import JobOptions
from oar.lib.submission.resource_request import JobTypes, ResourceRequest, name_nodes, parse_request

#: Networks that hold every host: no address has to be looked up if they may submit.
EVERY_HOST = frozenset({"0.0.0.0/0", "::/0"})
#: A kernel gives one argument of a command at most this many bytes.
LONGEST_COMMAND = 131071
LONGEST_NAME = 100
LONGEST_TYPE = 255
LONGEST_TEXT = 255

# Regular expressions are kept as texts: compiling one takes 0.1 ms, and most submissions need few of them.
_FILE_NAME = r"[A-Za-z0-9_./\-%\\ +=@:,~]*\Z"
_CPUSET_NAME = r"[A-Za-z0-9_-]{1,50}\Z"
_NODE = r"[A-Za-z0-9][A-Za-z0-9_.:-]*\Z"
_RESERVATION = r"([1-9][0-9]{0,6}|[A-Za-z_][A-Za-z0-9_.+-]{0,127})\Z"
#: The largest number in the columns of the checkpoint delay and of the array limit.
_LARGEST_NUMBER = 2**31 - 1
_CONTROL = r"[\x00-\x1f\x7f-\x9f]"
#: Logins that nodes take (``node_base.ACCOUNT``): paths, control groups and keys are named after them.
ACCOUNT = r"[A-Za-z0-9_][A-Za-z0-9_.-]*\$?\Z"


class Code(IntEnum):
    """Exit codes of oarsub."""

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
    """A submission is rejected.  ``str`` is the message; the attributes control how a command prints it."""

    def __init__(
        self, code: Code, text: str, *, prefix: str = "# Error: ", verify: bool | None = None, usage: bool = False
    ) -> None:
        """``verify``: a line that suggests checking the syntax follows (default: with the code of requests)."""
        super().__init__(text)
        self.code = code
        self.exit_code = int(code)
        self.prefix = prefix
        self.verify = code is Code.REQUEST if verify is None else verify
        self.usage = usage  #: the usage of the command follows
        self.is_by_rule = False  #: an admission rule set the value that is rejected


# -- modes ----------------------------------------------------------------------------------------------------------


def check_modes(options: JobOptions, spec: JobSpec) -> None:
    """Raise BadSubmission if options exclude each other."""
    is_noop = JobTypeName.NOOP in JobTypes(spec.types)
    if options.interactive:
        if options.reservation is not None:
            raise BadSubmission(Code.RESERVATION, "a reservation cannot be interactive.", usage=True)
        if is_noop:
            raise BadSubmission(Code.NOOP, "a noop job cannot be interactive.")
    elif not (spec.command.strip() or options.reservation is not None or is_noop):
        raise BadSubmission(Code.COMMAND, "a command is needed.", usage=True)
    refusal = _refusal_of_notify(spec.notify)
    if refusal and refusal.code is Code.NOTIFY_CHARACTERS:  # its other errors come later in the documented order
        raise refusal


def array_size(spec: JobSpec) -> int:
    """Return the number of jobs; a parameter file has one line for each job."""
    return spec.array_size if spec.parameters is None else len(spec.parameters)


def check_array(options: JobOptions, spec: JobSpec, largest: int) -> None:
    """Raise BadSubmission if an array is empty, has more than ``largest`` jobs, or is interactive."""
    size = array_size(spec)
    if options.interactive and spec.parameters is not None:
        raise BadSubmission(
            Code.INTERACTIVE_PARAMETERS, "a parameter file-based array job cannot be interactive.", verify=False
        )
    if size <= 0:
        raise BadSubmission(Code.ARRAY, "an array job must have a positive number of sub-jobs.", usage=True)
    if size > largest:
        raise BadSubmission(Code.ARRAY, f"an array job cannot have more than {largest} sub-jobs.")
    if spec.array_limit is not None and spec.array_limit <= 0:
        text = "at least one sub-job of an array must be allowed to run at a time."
        raise BadSubmission(Code.ARRAY, text, usage=True)
    if (spec.array_limit or 0) > _LARGEST_NUMBER:
        raise BadSubmission(Code.ARRAY, f"the limit of an array is at most {_LARGEST_NUMBER}.")
    if options.interactive and spec.array_size != 1:
        raise BadSubmission(Code.REQUEST, "an array job cannot be interactive.", verify=False)


def _refusal_of_notify(notify: str | None) -> BadSubmission | None:
    if notify is None:
        return None
    from oar.lib.notifications.notices import UnsafeCommand, parse_subscription

    try:
        parse_subscription(notify)
    except UnsafeCommand as error:
        return BadSubmission(Code.NOTIFY_CHARACTERS, str(error))
    except BadRequest as error:
        return BadSubmission(Code.NOTIFY, f"bad syntax for the notify option: {error}")
    return None


# -- texts ----------------------------------------------------------------------------------------------------------


def check_account(user: str) -> None:
    """Raise BadSubmission if nodes would reject the user name: the failure would be attributed to the nodes."""
    if not re.match(ACCOUNT, user):
        text = (
            f"the login {quote(user)} cannot have jobs: nodes take letters of ASCII, digits and _, with . and - inside."
        )
        raise BadSubmission(Code.REQUEST, text, verify=False)


def check_notify(notify: str | None) -> None:
    """Raise BadSubmission if the text is not a valid notification subscription."""
    if refusal := _refusal_of_notify(notify):
        raise refusal


def check_file_names(stdout: str | None, stderr: str | None) -> None:
    """Raise BadSubmission if the name of an output file has a character that is not allowed."""
    if stdout is not None and not re.match(_FILE_NAME, stdout):
        raise BadSubmission(Code.STDOUT, "invalid stdout file name (bad character)")
    if stderr is not None and not re.match(_FILE_NAME, stderr):
        raise BadSubmission(Code.STDERR, "invalid stderr file name (bad character)")


def check_command(command: str) -> None:
    """Raise BadSubmission if the kernel or the database would reject the command."""
    if not is_storable(command):
        raise BadSubmission(Code.COMMAND, "the command is not UTF-8 text.")
    size = len(command.encode())
    if size > LONGEST_COMMAND:
        raise BadSubmission(Code.COMMAND, f"the command is too long ({size} bytes, at most {LONGEST_COMMAND}).")


def check_text(label: str, text: str | None, longest: int = LONGEST_TEXT) -> None:
    """Raise BadSubmission if a text has more than ``longest`` characters, or control characters.

    ``label``: the name of the text in the message.
    """
    if text is None:
        return
    check_storable(label, text)
    if re.search(_CONTROL, text):
        raise BadSubmission(Code.REQUEST, f"the {label} has a control character.")
    if len(text) > longest:
        raise BadSubmission(Code.REQUEST, f"the {label} is longer than {longest} characters.")


def check_storable(label: str, text: str) -> None:
    """Raise BadSubmission if the database cannot store the text; ``label``: the name of the text in the message."""
    if not is_storable(text):
        raise BadSubmission(Code.REQUEST, f"the {label} is not UTF-8 text.")


def quote(text: str) -> str:
    """Return a user's text for error messages: in quotes, on one line, at most 60 characters."""
    return '"' + re.sub(_CONTROL, "?", text.encode(errors="replace").decode())[:60] + '"'


def parse_signal(text: str) -> int:
    """Return the number of a signal given as ``12``, ``USR2`` or ``SIGUSR2``.  Raises BadRequest."""
    name = text.strip().upper()
    if name.isascii() and name.isdigit() and len(name) < 4 and 0 < int(name) < signal.NSIG:
        return int(name)
    numbers = {member.name: int(member) for member in signal.Signals}
    number = numbers.get(name if name.startswith("SIG") else f"SIG{name}")
    if number is None:
        raise BadRequest(f"unknown signal {text}.")
    return number


def check_checkpoint(delay: int, number: int) -> None:
    """Raise BadSubmission if the delay is negative, or the number is not a signal."""
    if delay < 0:
        raise BadSubmission(Code.REQUEST, "the checkpoint delay cannot be negative.")
    if delay > _LARGEST_NUMBER:
        raise BadSubmission(Code.REQUEST, f"the checkpoint delay is longer than {_LARGEST_NUMBER} s.")
    if not 0 < number < signal.NSIG:
        raise BadSubmission(Code.REQUEST, f"unknown signal {number}.")


def check_cpuset_name(name: str | None, size: int) -> None:
    """Raise BadSubmission if the cpuset name is invalid, or the jobs of an array would share it."""
    if name is None:
        return
    if not re.match(_CPUSET_NAME, name) or name.isdigit():
        raise BadSubmission(Code.REQUEST, f'invalid cpuset name "{name}".')
    if size > 1:
        raise BadSubmission(Code.REQUEST, f'invalid cpuset name "{name}": the jobs of an array cannot share a cpuset.')


def check_advance_reservation(text: str) -> None:
    """Raise BadSubmission if the text is neither the number nor the name of an advance reservation."""
    if not re.match(_RESERVATION, text):
        raise BadSubmission(Code.REQUEST, f"invalid advance reservation {quote(text)}.")


# -- requests -------------------------------------------------------------------------------------------------------


def check_alternatives(texts: Sequence[str], most: int) -> None:
    """Raise BadSubmission if a job has too many ``-l``: each scheduling pass plans all of them."""
    if len(texts) > most:
        text = f"the job has {len(texts)} alternatives; at most {most} are allowed (MAX_ALTERNATIVES): use fewer -l."
        raise BadSubmission(Code.SYNTAX, text)


#: SQL types of properties with integers.
INTEGER_TYPES = frozenset(("smallint", "integer", "bigint"))
#: Said of memory where it is not counted.
NO_MEMORY = "this site does not count memory (MEMORY_PROPERTY is not set)"


def parse_memory_options(options: JobOptions, config: Config) -> Memory | None:
    """Return the memory of the alternatives that name none.  Raises BadSubmission."""
    if options.memory is None and options.memory_per_core is None:
        return None
    if not config.memory_property:
        raise BadSubmission(Code.REQUEST, f"{NO_MEMORY}.")
    if options.memory is not None and options.memory_per_core is not None:
        raise BadSubmission(Code.REQUEST, "--mem and --mem-per-core cannot be used together.")
    try:
        return Memory(parse_memory(options.memory or options.memory_per_core or ""), options.memory is None)
    except BadRequest as error:
        raise BadSubmission(Code.REQUEST, f"{error}.") from None


def check_memory(requests: Iterable[ResourceRequest], types: JobTypes) -> None:
    """Raise BadSubmission if a container asks for memory."""
    if JobTypeName.CONTAINER in types and any(request.memory for request in requests):
        raise BadSubmission(Code.REQUEST, "a container reserves no memory: its inner jobs ask for it.")


def is_memory_readable(columns: Mapping[str, str], config: Config) -> bool:
    """Return whether MEMORY_PROPERTY is a property with integers; ``columns``: the properties with their SQL types."""
    return columns.get(config.memory_property or "") in INTEGER_TYPES


def unreadable_memory(columns: Mapping[str, str], config: Config) -> str:
    """Return what is wrong with MEMORY_PROPERTY, and what an administrator does."""
    name = config.memory_property
    if name and name in columns:
        return f"MEMORY_PROPERTY: property {name} has the type {columns[name]}: name a property with integers (MiB)"
    return f"MEMORY_PROPERTY: resources have no property {name}: oarproperty --add {name} adds it"


def too_little_memory(request: ResourceRequest) -> BadSubmission:
    """Return the error of a request whose memory too few nodes have."""
    memory = request.memory or Memory(0)
    asked = f"{format_memory(memory.mib)} of memory{' per core' if memory.is_per_core else ''}"
    text = f"There are not enough resources for your request\n# too few nodes have {asked}: ask for less memory"
    return BadSubmission(Code.REQUEST, text, prefix="# ", verify=False)


def parse_requests(texts: Iterable[str], config: Config, memory: Memory | None = None) -> tuple[ResourceRequest, ...]:
    """Parse each ``-l``; add the default resources to a request without resources.  Raises BadSubmission.

    ``memory``: that of the requests that name none.
    """
    try:
        requests = [parse_request(text, with_memory=bool(config.memory_property)) for text in texts]
    except BadRequest as error:
        is_memory = not config.memory_property and any(re.search(r"\bmem(_per_core)?\s*=", text) for text in texts)
        raise BadSubmission(Code.SYNTAX, f"{error}\n# {NO_MEMORY}" if is_memory else str(error)) from None
    default = parse_request(config.oarsub_default_resources).groups
    return tuple(
        request._replace(groups=_with_default(request.groups, default), memory=request.memory or memory)
        for request in requests or [ResourceRequest()]
    )


def _with_default(groups: Sequence[Group], default: Sequence[Group]) -> tuple[Group, ...]:
    completed: list[Group] = []
    for group in groups or (Group("", ()),):
        if group.levels:
            completed.append(group)
        else:
            completed += [Group(_and(group.filter, other.filter), other.levels) for other in default]
    return tuple(completed)


def _and(first: str, second: str) -> str:
    return f"({first}) AND ({second})" if first and second else first or second


def named(requests: Sequence[ResourceRequest], columns: Iterable[str], config: Config) -> tuple[ResourceRequest, ...]:
    """Replace ``nodes`` and ``node`` with the node property, unless the site has a column with this name."""
    names = frozenset(columns)
    return tuple(
        request._replace(groups=name_nodes(request.groups, names, config.oarsub_nodes_resources), grows=False)
        for request in requests
    )


def condition_on_nodes(nodes: Iterable[str], excluded: Iterable[str]) -> str:
    """Return the condition that selects resources on the given nodes, or on no node at all.  Raises BadSubmission.

    >>> condition_on_nodes(["node-1"], ["node-2", "node-3"])
    "network_address IN ('', 'node-1') AND network_address NOT IN ('node-2', 'node-3')"
    """
    allowed, forbidden = list(nodes), list(excluded)
    for name in [*allowed, *forbidden]:
        if not re.match(_NODE, name):
            raise BadSubmission(Code.REQUEST, f"bad node name {quote(name)}.")
    parts = [f"network_address IN ({_quoted(['', *allowed])})"] if allowed else []
    parts += [f"network_address NOT IN ({_quoted(forbidden)})"] if forbidden else []
    return " AND ".join(parts)


def _quoted(names: Iterable[str]) -> str:
    return ", ".join(f"'{name}'" for name in names)
