"""The options of oarsub: their declarations, and the record of their values."""

from collections.abc import Callable, Sequence
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
from oar.lib.submission.job_form import VERIFICATIONS, ArraySize, JobForm

MOST_VERBOSE = 2


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


ARRAY = _ArraySize()


class OarsubOptions(NamedTuple):
    """The values of all options of oarsub; an option that was not given has its empty value."""

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
    advance_reservation: str | None = None
    verify: str | None = None
    checkpoint: int | None = None
    signal: str | None = None
    types: tuple[str, ...] = ()
    directory: str | None = None
    project: str | None = None
    name: str | None = None
    dependencies: tuple[str, ...] = ()
    notify: str | None = None
    resubmit: tuple[int | None, ...] = ()
    resubmit_sql: str | None = None
    resubmit_states: tuple[str, ...] = ()
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

    @property
    def form(self) -> JobForm:
        """The options that describe the job."""
        same = {name: getattr(self, name) for name in JobForm._fields}
        return JobForm(**same)._replace(verbosity=min(self.verbosity, MOST_VERBOSE))


Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]

_DECLARATIONS: Sequence[Decorator] = (
    option("-I", "--interactive", is_flag=True, help="Submit an interactive job and open its shell here."),
    option("-l", "--resource", "requests", multiple=True, metavar="REQUEST", help="Resources and walltime."),
    option("--array", type=ARRAY, metavar="N[%M]", help="Submit an array of N jobs; at most M run at a time."),
    option(
        "--array-param-file",
        "parameter_file",
        cls=PathOption,
        metavar="FILE",
        help="Submit one job for each line of FILE.",
    ),
    option(
        "-S",
        "--scanscript",
        "--Scanscript",
        "scan",
        is_flag=True,
        help="Read the options in the #OAR lines of the script.",
    ),
    option("-q", "--queue", metavar="QUEUE", help="Queue of the job."),
    option("-p", "--property", "properties", join=Join.CONDITION, metavar="SQL", help="Condition on the resources."),
    option("--nodelist", multiple=True, metavar="NODE[,NODE...]", help="Use these nodes only."),
    option("--exclude", multiple=True, metavar="NODE[,NODE...]", help="Use none of these nodes."),
    option("-r", "--reservation", metavar="START[,END]", help="Start at this date, or reject the job."),
    option(
        *("--ar", "-ar", "--advance-reservation"),
        "advance_reservation",
        metavar="ID|NAME",
        help="Run in this advance reservation.",
    ),
    option(
        "--verify",
        type=OneOf(VERIFICATIONS),
        metavar="e|n",
        help="With --ar: reject a job that can never run there (e), or queue it (n).",
    ),
    option(
        "--checkpoint",
        type=NUMBER,
        metavar="SECONDS",
        help="Send a signal to the job SECONDS before its walltime ends.",
    ),
    option("--signal", metavar="SIGNAL", help="Checkpoint signal (number or name)."),
    option("-t", "--type", "types", multiple=True, metavar="TYPE", help="Type of the job."),
    option("-d", "--directory", cls=PathOption, metavar="DIR", help="Directory in which the command runs."),
    option("--project", metavar="TEXT", help="Project of the job."),
    option("-n", "--name", metavar="TEXT", help="Name of the job."),
    option(
        "-a",
        "--anterior",
        "--after",
        "dependencies",
        multiple=True,
        metavar="ID",
        help="Start after job ID, or after all jobs of an array (ID[*]).",
    ),
    option(
        "--notify",
        metavar="[TAGS]mail:ADDRESS|exec:COMMAND",
        help="Send a mail or run a program when the job changes its state.",
    ),
    optional_argument("--resubmit", numeric=True, metavar="[ID]...", help="Submit copies of ended jobs."),
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
    option("--max-restarts", type=COUNT, metavar="N", help="Make the job idempotent, and resubmit it at most N times."),
    option("-k", "--use-job-key", is_flag=True, help="Use an SSH key for the job; generate it if none is imported."),
    option(
        "-i",
        "--import-job-key-from-file",
        "key_file",
        cls=PathOption,
        metavar="FILE",
        help="Import the job key from FILE.",
    ),
    option(
        "--import-job-key-inline",
        "--import-job-key-inline-priv",
        "--ssh_private_key",
        "--ssh-private-key",
        "key_inline",
        metavar="KEY",
        help="Import this private key as the job key.",
    ),
    option("--ssh_public_key", "--ssh-public-key", "public_key", metavar="KEY", help="Public key of that private key."),
    option(
        "-e",
        "--export-job-key-to-file",
        "key_export",
        cls=PathOption,
        metavar="FILE",
        help="Write the job key to FILE.",
    ),
    option("-O", "--stdout", cls=PathOption, metavar="FILE", help="File for the standard output."),
    option("-E", "--stderr", cls=PathOption, metavar="FILE", help="File for the standard error."),
    option("--hold", is_flag=True, help="Do not start the job before oarresume releases it."),
    option("-s", "--stagein", cls=PathOption, metavar="FILE", help="Input file of a desktop computing job."),
    option("--stagein-md5sum", metavar="SUM", help="MD5 sum of that file, or of a file that is already staged."),
    option(
        "--force_cpuset_name",
        "--force-cpuset-name",
        "cpuset_name",
        metavar="NAME",
        help="Name of the cpuset of the job.",
    ),
    optional_argument(
        "--wait",
        "wait",
        attached=True,
        metavar="[=kill]",
        help="Wait for the end of the job and exit with its status; with =kill, ^C deletes the job.",
    ),
    option("--parsable", is_flag=True, help="Print only the job id, or the array id of an array."),
    option(
        "--env",
        "environment",
        multiple=True,
        metavar="NAME[=VALUE]|ALL|NONE",
        help="Set an environment variable on all nodes of the job; ALL: all your variables.",
    ),
    option("--wrap", "wrapped", metavar="COMMAND", help="Command of the job, given as an option."),
    option("--spool", is_flag=True, help="With -S: store the script with the job; later edits have no effect."),
    option("--propagate-exit", is_flag=True, help="With -I and -C: exit with the status of the shell."),
    option(
        *("--estimate", "--dry-run", "--test-only"),
        "estimate",
        is_flag=True,
        help="Print when and where the job would start; submit nothing.",
    ),
    option("--completion", metavar="bash|zsh|fish", help="Print the completion script of a shell."),
    option("-v", "verbosity", count=True, help="Print more messages."),
)


def options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Declare the options of a job."""
    for declare in reversed(_DECLARATIONS):
        function = declare(function)
    return function


def parse(arguments: Sequence[str]) -> OarsubOptions:
    """Return the options of a command line of oarsub that describe a job.  Raises BadOption."""

    @options
    @click.argument("words", nargs=-1)
    def job() -> None:
        """Declare the arguments of oarsub."""

    declared = list(reversed(getattr(job, "__click_params__", [])))
    parser = Command("oarsub", style=USER, not_admin=1, exit_codes={}, params=declared, add_help_option=False)
    return OarsubOptions(**parser.make_context("oarsub", list(arguments)).params)
