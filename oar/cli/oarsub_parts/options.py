"""The options of oarsub: those of the job (``oar/lib/submission/options.py``), and those of the command."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import click

from oar.cli.common.command import Command
from oar.cli.common.options import (
    COUNT,
    NUMBER,
    USER,
    BadOption,
    Join,
    Number,
    OneOf,
    PathOption,
    option,
    optional_argument,
)
from oar.lib.base.formats import Format
from oar.lib.submission.options import OPTIONS, ArraySize, JobOptions, Kind

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


class _ArraySize(Number):
    """``N``, ``N%M``, or ``%M`` with a parameter file, whose lines are counted."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the size.  Raises BadOption."""
        if isinstance(value, ArraySize):
            return value
        count, percent, limit = str(value).partition("%")
        first, dash, last = count.partition("-")
        if dash and first.isdecimal() and last[:1].isdecimal():
            text = f'Value "{value}" invalid for option array (number expected)'
            raise BadOption(f"{text}\n# Here: --array NUMBER; OAR_ARRAY_INDEX is from 1 to NUMBER in its jobs")
        size = Number.convert(self, count, param, ctx) if count or not percent else 0
        return ArraySize(size or 0, Number.convert(self, limit, param, ctx) if percent else None)


class OarsubOptions(NamedTuple):
    """The values of all options of oarsub; an option that was not given has its empty value."""

    job: JobOptions = JobOptions()
    words: tuple[str, ...] = ()
    app: str | None = None
    connect: tuple[int | None, ...] = ()
    scan: bool = False
    resubmit: tuple[str | None, ...] = ()
    resubmit_sql: str | None = None
    resubmit_states: tuple[str, ...] = ()
    wait: tuple[str | None, ...] = ()
    parsable: bool = False
    wrapped: str | None = None
    completion: str | None = None
    propagate_exit: bool = False
    estimate: bool = False
    machine: Format | None = None

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> "OarsubOptions":
        """Return the options of parsed arguments."""
        job = JobOptions(**{name: value for name, value in values.items() if name in OPTIONS})
        return cls(job, **{name: value for name, value in values.items() if name not in OPTIONS})


#: The settings of click for each kind of option.
_SETTINGS: Mapping[Kind, Mapping[str, Any]] = {
    Kind.FLAG: {"is_flag": True},
    Kind.TEXT: {},
    Kind.TEXTS: {"multiple": True},
    Kind.CONDITION: {"join": Join.CONDITION},
    Kind.FILE: {"cls": PathOption},
    Kind.NUMBER: {"type": NUMBER},
    Kind.COUNT: {"type": COUNT},
    Kind.ARRAY: {"type": _ArraySize()},
    Kind.REPETITIONS: {"count": True},
}
#: Options of a job with which the command uses the terminal.
_LASTING = frozenset({"interactive"})
#: The options of the command, by the option of a job behind which the help shows them.
_OF_COMMAND: Mapping[str, Sequence[Decorator]] = {
    "requests": (
        option(
            "--app",
            lasts=True,
            metavar="NAME|JOB",
            help="Start a program with web pages in a job and print its address; for a JOB, print it again.",
        ),
    ),
    "parameter_file": (
        option(
            *("-S", "--scanscript", "--Scanscript"),
            "scan",
            is_flag=True,
            help="Read the options in the #OAR lines of the script.",
        ),
    ),
    "notify": (
        optional_argument("--resubmit", jobs=True, metavar="[JOBS]...", help="Submit copies of ended jobs."),
        option(
            "--sql",
            "resubmit_sql",
            join=Join.CONDITION,
            metavar="SQL",
            help="With --resubmit: jobs that match this SQL condition.",
        ),
        option(
            "--state",
            "resubmit_states",
            multiple=True,
            metavar="STATES",
            help="With --resubmit: jobs in these states; failed: in Error, or with a nonzero exit code.",
        ),
    ),
    "cpuset_name": (
        optional_argument(
            "--wait",
            "wait",
            attached=True,
            lasts=True,
            metavar="[=kill]",
            help="Wait for the end of the job and exit with its status; with =kill, ^C deletes the job.",
        ),
        option("--parsable", is_flag=True, help="Print only the job id, or the array id of an array."),
    ),
    "environment": (option("--wrap", "wrapped", metavar="COMMAND", help="Command of the job, given as an option."),),
    "spool": (
        option("--propagate-exit", is_flag=True, help="With -I and -C: exit with the status of the shell."),
        option(
            *("--estimate", "--dry-run", "--test-only"),
            "estimate",
            is_flag=True,
            help="Print when and where the job would start; submit nothing.",
        ),
        option("--completion", metavar="bash|zsh|fish", help="Print the completion script of a shell."),
    ),
}


def options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Declare the options of a job and of the command."""
    for name, declared in reversed(list(OPTIONS.items())):
        for declare in reversed(_OF_COMMAND.get(name, ())):
            function = declare(function)
        settings = {**_SETTINGS[declared.kind], **({"type": OneOf(declared.choices)} if declared.choices else {})}
        settings["lasts"] = name in _LASTING
        add = option(*declared.spellings, name, metavar=declared.metavar, help=declared.help, **settings)
        function = add(function)
    return function


def parse(arguments: Sequence[str]) -> OarsubOptions:
    """Return the options of a command line of oarsub that describe a job.  Raises BadOption."""

    @options
    @click.argument("words", nargs=-1)
    def job() -> None:
        """Declare the arguments of oarsub."""

    declared = list(reversed(getattr(job, "__click_params__", [])))
    parser = Command("oarsub", style=USER, not_admin=1, exit_codes={}, params=declared, add_help_option=False)
    return OarsubOptions.of(parser.make_context("oarsub", list(arguments)).params)
