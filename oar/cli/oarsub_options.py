"""The options of oarsub as one record, and those of ``#OAR`` lines in a script (commands-user.md 3.2, 3.11).

A line of a script is read by the same parser as the command line, so that both know the same options; what stands on
the command line wins.
"""

import re
import shlex
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import click
from click.core import ParameterSource

from oar.cli.command import COUNT, NUMBER, USER, BadOption, Command, Number, Stop, option, optional_argument
from oar.lib.errors import BadRequest
from oar.lib.formats import Format
from oar.lib.submission import Submission

#: Options that a script may not set.
NOT_IN_SCRIPTS = frozenset(
    {
        *("interactive", "connect", "scan", "resubmit", "estimate", "verbosity", "show_version", "debug"),
        *("wait", "parsable", "wrapped", "completion", "propagate_exit", "help"),
    }
)
#: Options of which those of a script are added to those of the command line.
ADDED = ("requests", "types", "dependencies")
#: Options of which those of a script stand before those of the command line: the last one wins.
ADDED_BEFORE = ("environment",)

_MARK = r"(?s)#OAR\s+(?P<option>--[A-Za-z][A-Za-z0-9_-]*|-[A-Za-z])(?P<rest>.*)\Z"
_ESCAPED = r'\\([ "\\$])'
#: How the options begin whose argument is a private key.
_INLINE_KEYS = ("--import-job-key-i", "--ssh_pr", "--ssh-pr")
_HIDDEN = "[HIDDEN INLINE JOB KEY]"
_HIDDEN_VALUE = "[HIDDEN]"
_KEY_LINE = rf"(?s)((?:{'|'.join(_INLINE_KEYS)})[\w-]*(?:\s+|=)).*"
_SECRET_LINE = r"(?s)(--env?(?:\s+|=)\s*[\"']?\w+=).*"
_TYPE = r"(?s)--t(?:y(?:p(?:e)?)?)?(?:=(?P<value>.*))?\Z"
EXIT_SCRIPT = 12
MOST_VERBOSE = 2


class ArraySize(NamedTuple):
    """How many jobs an array has, and how many of them may run at a time (None: all)."""

    size: int
    limit: int | None = None

    def __str__(self) -> str:
        """Return it as it is typed."""
        return f"{self.size}" if self.limit is None else f"{self.size}%{self.limit}"


class _ArraySize(Number):
    """``N``, ``N%M``, or ``%M`` beside a parameter file, which says how many there are."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the size.  Raises BadOption."""
        if isinstance(value, ArraySize):
            return value
        count, percent, limit = str(value).partition("%")
        size = Number.convert(self, count, param, ctx) if count or not percent else 0
        return ArraySize(size or 0, Number.convert(self, limit, param, ctx) if percent else None)


ARRAY = _ArraySize()


class Options(NamedTuple):
    """What may be given to oarsub; what was not given has its empty value."""

    words: tuple[str, ...] = ()
    interactive: bool = False
    connect: tuple[int | None, ...] = ()
    requests: tuple[str, ...] = ()
    array: ArraySize | None = None
    parameter_file: str | None = None
    scan: bool = False
    queue: str | None = None
    properties: str | None = None
    nodelist: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    reservation: str | None = None
    checkpoint: int | None = None
    signal: str | None = None
    types: tuple[str, ...] = ()
    directory: str | None = None
    project: str | None = None
    name: str | None = None
    dependencies: tuple[str, ...] = ()
    notify: str | None = None
    resubmit: int | None = None
    max_restarts: int | None = None
    use_job_key: bool = False
    key_file: str | None = None
    key_inline: str | None = None
    public_key: str | None = None
    key_export: str | None = None
    stdout: str | None = None
    stderr: str | None = None
    hold: bool = False
    stagein: str | None = None
    stagein_md5sum: str | None = None
    cpuset_name: str | None = None
    wait: tuple[str | None, ...] = ()
    parsable: bool = False
    environment: tuple[str, ...] = ()
    wrapped: str | None = None
    spool: bool = False
    completion: str | None = None
    propagate_exit: bool = False
    estimate: bool = False
    verbosity: int = 0
    machine: Format | None = None


Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]

_DECLARATIONS: Sequence[Decorator] = (
    option("-I", "--interactive", is_flag=True, help="Open a shell in the job."),
    option("-l", "--resource", "requests", multiple=True, metavar="REQUEST", help="Resources and walltime."),
    option("--array", type=ARRAY, metavar="N[%M]", help="N jobs that differ in their index, M at a time."),
    option("--array-param-file", "parameter_file", metavar="FILE", help="One job for each line of FILE."),
    option("-S", "--scanscript", "--Scanscript", "scan", is_flag=True, help="Read #OAR lines of the script."),
    option("-q", "--queue", metavar="QUEUE", help="Queue of the job."),
    option("-p", "--property", "properties", metavar="SQL", help="Condition on the resources."),
    option("--nodelist", multiple=True, metavar="NODE[,NODE...]", help="Only these nodes."),
    option("--exclude", multiple=True, metavar="NODE[,NODE...]", help="None of these nodes."),
    option("-r", "--reservation", metavar="START[,END]", help="Start at this date, or refuse."),
    option("--checkpoint", type=NUMBER, metavar="SECONDS", help="Signal the job so long before its end."),
    option("--signal", metavar="SIGNAL", help="That signal: number or name."),
    option("-t", "--type", "types", multiple=True, metavar="TYPE", help="Type of the job."),
    option("-d", "--directory", metavar="DIR", help="Directory in which the command runs."),
    option("--project", metavar="TEXT", help="Project of the job."),
    option("-n", "--name", metavar="TEXT", help="Name of the job."),
    option("-a", "--anterior", "--after", "dependencies", multiple=True, metavar="ID", help="Start after that job."),
    option("--notify", metavar="[TAGS]mail:ADDRESS|exec:COMMAND", help="Whom to tell what becomes of the job."),
    option("--resubmit", type=NUMBER, metavar="ID", help="Submit a job that has ended again."),
    option("--max-restarts", type=COUNT, metavar="N", help="An idempotent job: run it again N times at most."),
    option("-k", "--use-job-key", is_flag=True, help="Give the job an SSH key of its own."),
    option("-i", "--import-job-key-from-file", "key_file", metavar="FILE", help="Take the key from FILE."),
    option(
        "--import-job-key-inline",
        "--import-job-key-inline-priv",
        "--ssh_private_key",
        "--ssh-private-key",
        "key_inline",
        metavar="KEY",
        help="Take this private key.",
    ),
    option("--ssh_public_key", "--ssh-public-key", "public_key", metavar="KEY", help="Its public key."),
    option("-e", "--export-job-key-to-file", "key_export", metavar="FILE", help="Write the key to FILE."),
    option("-O", "--stdout", metavar="FILE", help="Where the output goes."),
    option("-E", "--stderr", metavar="FILE", help="Where the error output goes."),
    option("--hold", is_flag=True, help="Do not start before oarresume."),
    option("-s", "--stagein", metavar="FILE", help="File for a desktop computing job."),
    option("--stagein-md5sum", metavar="SUM", help="Its checksum, or that of a file that is already there."),
    option("--force_cpuset_name", "--force-cpuset-name", "cpuset_name", metavar="NAME", help="Name of its cpuset."),
    optional_argument(
        "--wait",
        "wait",
        attached=True,
        metavar="[=kill]",
        help="Stay until the job has ended, and end as it did; with kill, ^C ends the job.",
    ),
    option("--parsable", is_flag=True, help="Print the id alone; the array id of an array."),
    option(
        "--env",
        "environment",
        multiple=True,
        metavar="NAME[=VALUE]|ALL|NONE",
        help="A variable for the job, on all its nodes; all that you have.",
    ),
    option("--wrap", "wrapped", metavar="COMMAND", help="The command, as an option."),
    option("--spool", is_flag=True, help="Keep the script as it is now; with -S."),
    option("--propagate-exit", is_flag=True, help="With -I and -C: end with the exit status of the shell."),
    option(
        *("--estimate", "--dry-run", "--test-only"),
        "estimate",
        is_flag=True,
        help="Tell when and where it would start; submit nothing.",
    ),
    option("--completion", metavar="bash|zsh|fish", help="Print the script by which a shell completes commands."),
    option("-v", "verbosity", count=True, help="Say what is done."),
)


def options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Declare the options of a job."""
    for declare in reversed(_DECLARATIONS):
        function = declare(function)
    return function


def parse(arguments: Sequence[str]) -> Options:
    """Return the options of a command line of oarsub that describe a job.  Raises BadOption."""

    @options
    @click.argument("words", nargs=-1)
    def job() -> None:
        """Take what oarsub takes."""

    declared = list(reversed(getattr(job, "__click_params__", [])))
    parser = Command("oarsub", style=USER, not_admin=1, exit_codes={}, params=declared, add_help_option=False)
    return Options(**parser.make_context("oarsub", list(arguments)).params)


def submission_of(options: Options, user: str, command: str) -> Submission:
    """Return what the options ask, but for what stands in files and for where the user is."""
    return Submission(
        user=user,
        command=command,
        is_interactive=options.interactive,
        requests=options.requests,
        array_size=1 if options.array is None else options.array.size,
        array_limit=None if options.array is None else options.array.limit,
        queue=options.queue,
        properties=options.properties,
        nodes=_nodes(options.nodelist),
        excluded=_nodes(options.exclude),
        reservation=options.reservation,
        checkpoint=options.checkpoint or 0,
        signal=options.signal,
        types=_types(options),
        project=options.project,
        name=options.name,
        dependencies=options.dependencies,
        notify=options.notify,
        stdout=options.stdout,
        stderr=options.stderr,
        hold=options.hold,
        cpuset_name=options.cpuset_name,
        verbosity=min(options.verbosity, MOST_VERBOSE),
    )


def _nodes(values: Iterable[str]) -> tuple[str, ...]:
    return tuple(name.strip() for value in values for name in value.strip().removesuffix(",").split(","))


def _types(options: Options) -> tuple[str, ...]:
    """Return the types of the job: how often it may be run again is a value of the type idempotent."""
    if options.max_restarts is None:
        return options.types
    return (*(each for each in options.types if each != "idempotent"), f"idempotent={options.max_restarts}")


# -- the line as it is kept -------------------------------------------------------------------------------------------


def initial_request(arguments: Iterable[str]) -> str:
    """Return the command line as it is stored: no key and no value of a variable in it, and types spelt ``-t <type>``
    as readers look for them.
    """
    words: list[str] = ["oarsub"]
    secret = ""  #: what the word before has announced: a key, a variable, or nothing
    for argument in arguments:
        name, equals, value = argument.partition("=")
        is_long = argument.startswith("--")
        kind = re.match(_TYPE, argument) if argument.startswith("--t") else None
        announced = _secret_of(name) if is_long and not secret else ""
        if secret or (announced and equals):
            shown = _hidden(secret or announced, argument if secret else value)
            words.append(shown if secret else f"{name}={shown}")
        elif kind:
            words += ["-t", *([kind["value"]] if kind["value"] is not None else [])]
        elif argument.startswith("-t") and len(argument) > 2:
            words += ["-t", argument[2:]]
        else:
            words.append(argument)
        secret = announced if announced and not equals else ""
    return " ".join(words)


def _secret_of(option: str) -> str:
    """Return what kind of secret the argument of an option is, '' if it is none."""
    if option.startswith(_INLINE_KEYS):
        return "key"
    return "variable" if len(option) > len("--e") and "--env".startswith(option) else ""


def _hidden(kind: str, text: str) -> str:
    if kind == "key":
        return _HIDDEN
    name, equals, _ = text.partition("=")
    return f"{name}={_HIDDEN_VALUE}" if equals else name


def _shown_line(line: str) -> str:
    """Return a line of a script as it is stored."""
    line = re.sub(_SECRET_LINE, lambda match: match[1] + _HIDDEN_VALUE, line)
    return re.sub(_KEY_LINE, lambda match: match[1] + _HIDDEN, line)


def command_of(words: Sequence[str], dashes: int | None) -> str:
    """Return the command that the words are; several are joined only behind ``--``.  Raises ValueError."""
    if len(words) > 1 and dashes == 0:
        return shlex.join(words)
    if len(words) > 1:
        raise ValueError('only one command is accepted, quote it or put it after "--".')
    return words[0] if words else ""


# -- scripts ----------------------------------------------------------------------------------------------------------


class Scanned(NamedTuple):
    """What a script says."""

    options: Options
    given: frozenset[str]  #: names of the options that it sets
    lines: tuple[str, ...]


def scan(text: str, path: str, parameters: Sequence[click.Parameter], complain: Callable[[str], None]) -> Scanned:
    """Read the ``#OAR`` lines of a script.  Raises Stop when one is not understood, after a complaint for each."""
    lines = text.split("\n")
    if not lines[0].startswith("#"):
        return Scanned(Options(), frozenset(), ())
    parser = Command(
        "oarsub",
        style=USER,
        not_admin=1,
        exit_codes={},
        params=[
            each for each in parameters if each.name not in NOT_IN_SCRIPTS and not str(each.name).startswith("as_")
        ],
        add_help_option=False,
    )
    found, given, marked, errors = Options(), set[str](), [], 0
    for line in (each.rstrip() for each in lines):
        if not re.match(r"#OAR\s", line):
            continue
        try:
            values = _read_line(line, parser)
        except (BadOption, click.UsageError, BadRequest):
            complain(f"/!\\ Not able to scan file line: {line}.")
            errors += 1
            continue
        marked.append(_shown_line(line))
        given.update(values)
        added = {name: (*getattr(found, name), *values[name]) for name in (*ADDED, *ADDED_BEFORE) if name in values}
        found = found._replace(**values | added)
    if errors:
        raise Stop(f"[ERROR] {errors} error(s) encountered while parsing the file {path}.", EXIT_SCRIPT)
    return Scanned(found, frozenset(given), tuple(marked))


def _read_line(line: str, parser: Command) -> dict[str, Any]:
    """Return what one line sets.  Raises BadOption, BadRequest."""
    match = re.match(_MARK, line)
    if not match:
        raise BadRequest("not an option")
    ctx = _several(line, parser) or _single(match["option"], match["rest"], parser)
    return {
        name: ctx.params[name]
        for name in ctx.params
        if ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE and name != "words"
    }


def _several(line: str, parser: Command) -> click.Context | None:
    """Return what a line says of which every word is an option or its argument; None if it says at most one."""
    try:
        words = shlex.split(line.removeprefix("#OAR"))
        if sum(word.startswith("-") for word in words) < 2:
            return None
        ctx = parser.make_context("oarsub", words)
    except (BadOption, click.UsageError, BadRequest, ValueError):
        return None
    return None if ctx.args or ctx.params.get("words") else ctx


def _single(option: str, rest: str, parser: Command) -> click.Context:
    """Return what a line says that has one option, all of whose rest is its value.  Raises BadOption, BadRequest."""
    value = _unquoted(rest.removeprefix("=").strip())
    arguments = [option, value] if not option.startswith("--") else [f"{option}={value}"]
    ctx = parser.make_context("oarsub", arguments if rest.strip() else [option])
    if ctx.args or ctx.params.get("words"):
        raise BadRequest("more than an option")
    return ctx


def _unquoted(value: str) -> str:
    """Return a value without the quotes round it, and without the backslashes of a shell."""
    quote = value[:1]
    if len(value) > 1 and quote in "\"'" and value.endswith(quote) and not re.search(rf"(?<!\\){quote}", value[1:-1]):
        value = value[1:-1]
        if quote == "'":
            return value
    return re.sub(_ESCAPED, r"\1", value)


def merge(
    typed: Options,
    given: frozenset[str],
    script: Scanned,
    warn: Callable[[str], None],
    *,
    keep_requests: bool,
    long_names: Callable[[str], str],
) -> Options:
    """Put together what was typed (of which ``given`` was) and what the script says.

    ``keep_requests``: requests that were typed are not joined by those of the script.
    """
    changes: dict[str, Any] = {}
    for name in Options._fields:
        value = getattr(script.options, name)
        if name not in script.given:
            continue
        if name in ADDED and not (name == "requests" and keep_requests and typed.requests):
            changes[name] = (*getattr(typed, name), *value)
        elif name in ADDED_BEFORE:
            changes[name] = (*value, *getattr(typed, name))
        elif name not in given:
            changes[name] = value
        elif not isinstance(value, bool):
            shown = " ".join(value) if isinstance(value, tuple) and not isinstance(value, ArraySize) else value
            warn(
                f"ignore script value for {long_names(name)} parameter: {shown};"
                " another value was given on the command line."
            )
    return typed._replace(**changes)
