"""oarstat: print jobs as a table, in detail or for programs; print usage and accounting."""

import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from oar.cli.common import render
from oar.cli.common.command import Context, oar_command
from oar.cli.common.options import (
    NUMBER,
    Join,
    Stop,
    machine_formats,
    option,
    optional_argument,
)
from oar.cli.common.process import Hangup
from oar.cli.oarstat_parts.filters import JobFilter, chosen_ids, filters, find_reservations, given_arrays, parse_states
from oar.lib.base.errors import BadRequest
from oar.lib.base.formats import Format
from oar.lib.base.times import parse_date
from oar.lib.db.transaction import Transaction
from oar.lib.jobs.records import Job

if TYPE_CHECKING:
    from oar.lib.jobs.sql_listings import IdRange

LAYOUTS = (1, 2, 3, 4)
LAYOUT_VARIABLE = "OAR_OARSTAT_OUTPUT_FORMAT"
NARROW_PIPE = 64 * 1024  #: bytes of any pipe
WIDE_PIPE = 512 * 1024  #: bytes of a pipe that a long document goes through; a piece of it has about 400 kB
JOBS_IN_PART = 2000  #: of a long table
TIMES = 4  #: the layout that shows when jobs start and end


@oar_command(
    "oarstat",
    summary="Show the jobs that have not ended, or the given jobs.",
    examples={
        "oarstat -u": "List your jobs that have not ended.",
        "oarstat --me": "Print your jobs, your limits, how well your jobs used their cores, and what to change.",
        "oarstat --explain 118": "Print why job 118 waits and when it is planned to start.",
        "oarstat --top": "Show the cluster, the queues and your jobs live, with keys for explain, log and delete.",
        "oarstat -J -u --since 1d": "Print your jobs of the last day as JSON, ended ones included.",
    },
    topics={
        "Choice of jobs": (
            "-j",
            "-u",
            "-a",
            "-S",
            "--states",
            "--name",
            "--queue",
            "--project",
            "--ar",
            "--frames",
            "--since",
        ),
        "What to show": (
            "-f",
            "-s",
            "-c",
            "-r",
            "-p",
            "-e",
            "--explain",
            "--change",
            "--start",
            "--usage",
            "--limits",
            "--me",
            "-A",
            "-g",
            "--ascii",
            "--density",
            "--accuracy",
        ),
        "Repeated output": ("--watch", "--follow", "--top"),
        "Format": ("--fields", "--format", "--no-header", "--color", "-D", "-X", "-Y", "-J"),
    },
    exit_codes={Hangup: 10},
)
@optional_argument(
    "-j",
    "--job",
    "jobs",
    jobs=True,
    metavar="[JOBS]",
    help="Show jobs: 118, 22-25, 120[3-7] (default: $OAR_JOB_ID).",
)
@option("-f", "--full", is_flag=True, help="Show all details.")
@option("-s", "--state", is_flag=True, help="Show the state only; with --job.")
@optional_argument("-u", "--user", "users", metavar="[LOGIN]", help="Show the jobs of LOGIN (default: yours).")
@optional_argument(
    "-a", "--array", "arrays", jobs=True, metavar="[ID]", help="Show the jobs of an array, including ended jobs."
)
@option("-c", "--compact", count=True, help="Show one line for each array; twice: count the jobs in each state.")
@option("-g", "--gantt", metavar="D1,D2", help="Show jobs and resources between two dates.")
@option("--ascii", is_flag=True, help="With --gantt: draw a text chart.")
@option("--density", is_flag=True, help="With --gantt: show which share of each node was used and could not be used.")
@option("-e", "--events", is_flag=True, help="Show the events; with --job or --array.")
@option("-p", "--properties", is_flag=True, help="Show the properties of the resources; with --job or --array.")
@option("-r", "--show-resources", "resources", is_flag=True, help="Show the table with the resources of each job.")
@optional_argument(
    "--explain",
    "explain",
    jobs=True,
    metavar="[JOBS]",
    help="Explain why these jobs wait or waited, and when they start.",
)
@option("--start", "starts", is_flag=True, help="Show when jobs are predicted to start, and what they wait for.")
@option("--accuracy", is_flag=True, help="Show how far jobs started from their predictions, by queue (see --since).")
@option("--change", is_flag=True, help="With --explain: show the change that would let the job start now.")
@optional_argument("--usage", "usage", jobs=True, metavar="[JOBS]", help="Show the CPU and memory usage of these jobs.")
@option("--limits", is_flag=True, help="Show your limits, or those of --user: quotas, waiting jobs, fair share.")
@option("--me", is_flag=True, help="Show your jobs, limits and efficiency, and what to change.")
@option("-A", "--accounting", metavar="D1,D2", help="Show the resource consumption between two dates.")
@option(
    "-S",
    "--sql",
    join=Join.CONDITION,
    metavar="CONDITION",
    help="Show the jobs, including ended jobs, that match an SQL condition.",
)
@filters
@option("--fields", "--specified-field", join=Join.LIST, metavar="NAME[:LABEL],...", help="Show these fields only.")
@option("--no-header", is_flag=True, help="Print tables without headers.")
@option("--color", metavar="auto|always|never", default="never", help="Print the letters of states in color.")
@optional_argument(
    "--watch",
    "watch",
    attached=True,
    lasts=True,
    metavar="[=SECONDS]",
    help="Repeat the output every SECONDS until interrupted (default: 2).",
)
@option(
    "--top",
    is_flag=True,
    lasts=True,
    help="Show cluster, queues and jobs live on the terminal; keys: h for help, q to quit.",
)
@option(
    "--follow",
    is_flag=True,
    lasts=True,
    help="Print events as they happen, one per line; for given jobs and arrays until they end.",
)
@option(
    "--format",
    "layout",
    type=NUMBER,
    metavar="1|2|3|4",
    help="Layout of the text; 4: start, walltime and remaining time.",
)
@machine_formats
@click.argument("arguments", nargs=-1, metavar="[JOB_ID]...")
def main(context: Context, **values: Any) -> None:
    """Check the combination of options, then print once, repeatedly, or as events happen."""
    options = OarstatOptions(**values)
    options.check()
    if options.follow:
        _follow(context, options)
        return
    if options.top:
        from oar.cli.oarstat_parts import top

        top.run(context, (options.users[-1] or context.user.name) if options.users else context.user.name)
        return
    shown = _Oarstat(context, options)
    if not options.watch:
        for piece in shown.pieces():
            if len(piece) > NARROW_PIPE:
                _widen_pipe()
            click.echo(piece, nl=False, color=True)  # the functions that add colors decide about them
        for complaint in shown.complaints:
            context.warn(complaint)
        return
    from oar.cli.oarstat_parts import follow as oarstat_follow

    oarstat_follow.repeat(context, oarstat_follow.read_seconds(options.watch[-1]), shown.text)


def _widen_pipe() -> None:
    """Enlarge the pipe of the output, so that the next piece is formatted while one is read."""
    import fcntl

    with suppress(OSError, ValueError):  # it is no pipe, or its owner has many wide ones
        if fcntl.fcntl(sys.stdout.fileno(), fcntl.F_GETPIPE_SZ) < WIDE_PIPE:
            fcntl.fcntl(sys.stdout.fileno(), fcntl.F_SETPIPE_SZ, WIDE_PIPE)


def _follow(context: Context, options: "OarstatOptions") -> None:
    from oar.cli.oarstat_parts import follow as oarstat_follow

    user = (options.users[-1] or context.user.name) if options.users else None
    ids, arrays = chosen_ids(context, options.jobs, options.arguments), given_arrays(options.arrays) or None
    followed = oarstat_follow.Followed(ids, arrays, user, options.queue)
    oarstat_follow.follow(context, followed, options.since, options.machine)


class OarstatOptions(NamedTuple):
    """The options of oarstat."""

    jobs: tuple[str | None, ...]
    full: bool
    state: bool
    users: tuple[str | None, ...]
    arrays: tuple[str | None, ...]
    compact: int
    gantt: str | None
    ascii: bool
    density: bool
    events: bool
    properties: bool
    resources: bool
    explain: tuple[str | None, ...]
    starts: bool
    accuracy: bool
    change: bool
    usage: tuple[str | None, ...]
    limits: bool
    me: bool
    accounting: str | None
    sql: str | None
    states: str | None
    name: str | None
    queue: str | None
    project: str | None
    advance_reservation: tuple[str | None, ...]
    frames: bool
    since: str | None
    fields: str | None
    no_header: bool
    color: str
    watch: tuple[str | None, ...]
    top: bool
    follow: bool
    layout: int | None
    machine: Format | None
    arguments: tuple[str, ...]

    def check(self) -> None:
        """Refuse what does not go together.  Raises BadRequest."""
        details = self.events or self.properties or self.state or self.full
        conflicts = {
            "--job and --array are exclusive": bool(self.jobs and self.arrays),
            "--compact cannot be combined with --full or a machine format": bool(
                self.compact and (self.full or self.machine)
            ),
            "--show-resources and --compact are exclusive": bool(self.resources and self.compact),
            "--show-resources can only be used with the table of jobs": bool(
                self.resources and (self.starts or self.explain or self.usage or self.fields is not None)
            ),
            "--ar without a number or a name needs --accounting": self.advance_reservation[-1:] == (None,)
            and not self.accounting,
            "--properties and --sql are exclusive": bool(self.properties and self.sql is not None),
            "--change needs --explain": bool(self.change and not self.explain),
            "--limits can only be combined with --user and a machine format": self.limits
            and (self.color != "never" or self._has_others_than("limits", "users", "machine", "watch")),
            "--me can only be combined with a machine format": self.me
            and (self.color != "never" or self._has_others_than("me", "machine", "watch")),
            "--start and --explain are exclusive": bool(self.starts and self.explain),
            "--fields cannot be combined with --full, --state, --events, --properties or --compact": bool(
                self.fields is not None and (details or self.compact)
            ),
            f'--color must be auto, always or never, not "{render.visible(self.color)}"': self.color
            not in ("auto", "always", "never"),
            "--follow can only be combined with job ids, --array, --user, --queue, --since and --json": self.follow
            and self._has_others_than(
                *("follow", "jobs", "arrays", "users", "queue", "since", "machine", "arguments"),
            ),
            "--accuracy can only be combined with --since and a machine format": self.accuracy
            and (self.color != "never" or self._has_others_than("accuracy", "since", "machine", "watch")),
            "--top can only be combined with --user": self.top and self._has_others_than("top", "users"),
            "--ascii needs --gantt, and no machine format": bool(self.ascii and (self.gantt is None or self.machine)),
            "--density needs --gantt, without --ascii": self.density and (self.gantt is None or self.ascii),
        }
        for text, is_so in conflicts.items():
            if is_so:
                raise BadRequest(text)

    def _has_others_than(self, *names: str) -> bool:
        """Return whether options other than these are given; ``color`` always has a value."""
        values = self._asdict().items()
        return any(value not in (None, False, 0, ()) for name, value in values if name not in (*names, "color"))


class _Oarstat:
    def __init__(self, context: Context, options: OarstatOptions) -> None:
        self._context = context
        self._options = options
        self._ids = chosen_ids(
            context, (*options.jobs, *options.explain, *filter(None, options.usage)), options.arguments
        )
        self._layout = _layout(context, options.layout)
        self.complaints: list[str] = []  #: about what is named and does not exist

    def text(self) -> str:
        """Return the output."""
        return "".join(self.pieces())

    def pieces(self) -> Iterable[str]:
        """Return the output in pieces; many records are formatted lazily, without further queries."""
        options, context = self._options, self._context
        user = (options.users[-1] or context.user.name) if options.users else None
        if (text := self._text_without_jobs(user)) is not None:
            return [text]
        if options.state and self._ids is None:
            raise Stop(
                "--state can only be used with an id\n# Write oarstat -s -j ID; jobs in a state: oarstat --states R"
            )
        if (options.events or options.properties) and self._ids is None and not options.arrays:
            raise Stop("No job specified\n# Write a job id: oarstat -e -j JOB_ID")
        matching = _matching(context, options.sql)
        with context.database.snapshot() as tx:
            arrays, named = given_arrays(options.arrays), next(reversed(options.advance_reservation), None)
            selection = JobFilter(
                self._ids,
                arrays,
                matching,
                user,
                frames=options.frames,
                states=None if options.states is None else parse_states(options.states),
                name=options.name,
                queue=options.queue,
                project=options.project,
                since=None if options.since is None else parse_date(options.since, tx.now, is_past=True),
                advance_reservations=None if named is None else find_reservations(tx, named),
            )
            selection.check()
            parts = selection.parts(tx, JOBS_IN_PART) if self._shows_plain_table() else []
            pieces = self._table_in_parts(selection, parts) if len(parts) > 1 else self._of_jobs(tx, selection)
            self.complaints = [] if options.machine else selection.complaints(tx)
        return pieces

    def _text_without_jobs(self, user: str | None) -> str | None:
        """Return the output of the options that show no selected jobs; None without them."""
        options, context, machine = self._options, self._context, self._options.machine
        if options.limits or options.me:
            return _of_user(context, user, machine, with_jobs=options.me)
        if options.accounting is None and options.gantt is None and not options.accuracy:
            return None
        from oar.cli.oarstat_parts import periods

        header = not options.no_header
        if options.accounting is not None:
            dates = periods.interval(context, options.accounting, "--accounting")
            if options.advance_reservation:
                named = options.advance_reservation[-1]
                return periods.bills_text(context, dates, user, named, machine, header=header)
            return periods.accounting_text(context, dates, user, machine, header=header)
        if options.gantt is None:
            return periods.accuracy_text(context, options.since, machine)
        dates = periods.interval(context, options.gantt, "--gantt")
        return (
            periods.density_text(context, dates, machine)
            if options.density
            else periods.gantt_text(context, dates, machine, as_chart=options.ascii)
        )

    def _of_jobs(self, tx: Transaction, selection: JobFilter) -> Iterable[str]:
        options, context, machine = self._options, self._context, self._options.machine
        jobs, header = [] if options.state else selection.jobs(tx), not options.no_header
        if not options.state and (options.starts or options.explain or options.usage):
            return [self._explained(tx, jobs)]
        is_detailed = options.state or options.events or options.properties or options.fields is not None
        if not (is_detailed or options.full or machine):
            return [self._table(tx, jobs, header=header)]
        from oar.cli.oarstat_parts import details

        if options.state:
            return [details.states_text(tx, self._ids or (), machine)]
        if options.events or options.properties:
            return [
                details.events_text(context, tx, jobs, machine)
                if options.events
                else details.properties_text(tx, jobs, machine)
            ]
        if options.fields is not None:
            return [details.fields_text(context, tx, jobs, options.fields, machine, header=header)]
        return details.full_texts(context, tx, jobs, machine, self._layout)

    def _shows_plain_table(self) -> bool:
        options = self._options
        others = options.starts or options.explain or options.usage or options.events or options.properties
        return not (others or options.fields is not None or options.full or options.machine or options.compact)

    def _table_in_parts(self, selection: JobFilter, parts: "Sequence[IdRange]") -> Iterator[str]:
        """Yield a long table in parts, so that this process has few jobs in memory at a time.

        Each part is read in a separate transaction: a pager that waits for its user keeps no transaction open.
        """
        header = not self._options.no_header
        for part in parts:
            with self._context.database.snapshot() as tx:
                jobs = selection.jobs(tx, part)
                text = self._table(tx, jobs, header=header)
            header = header and not text
            yield text

    def _explained(self, tx: Transaction, jobs: Sequence[Job]) -> str:
        options, machine = self._options, self._options.machine
        if options.usage and not (options.starts or options.explain):
            from oar.cli.oarstat_parts.tables import usage_table

            header = not options.no_header
            by_node = options.full
            # a program that reads a pipe expects the lines of --usage -f only, not drawings
            with_curves = bool(options.watch) or (by_node and (machine is not None or sys.stdout.isatty()))
            return usage_table(
                self._context, tx, jobs, machine, by_node=by_node, with_curves=with_curves, header=header
            )
        from oar.cli.oarstat_parts import explain as oarstat_explain

        if options.starts:
            return oarstat_explain.starts(tx, jobs, machine, header=not options.no_header)
        return oarstat_explain.explained(self._context, tx, jobs, machine, with_change=options.change)

    def _may_be_wide(self) -> bool:
        """Return whether nothing asks for one of the numbered layouts or another form of the table."""
        options = self._options
        has_layout = options.layout is not None or self._layout != LAYOUTS[0]
        is_chosen = has_layout or LAYOUT_VARIABLE in self._context.environment
        return not (is_chosen or options.compact or options.arrays or options.resources)

    def _table(self, tx: Transaction, jobs: Sequence[Job], *, header: bool) -> str:
        options = self._options
        is_terminal = sys.stdout.isatty()
        is_colored = options.color == "always" or (
            options.color == "auto" and is_terminal and not self._context.environment.get("NO_COLOR")
        )
        if is_terminal and self._may_be_wide():
            from oar.cli.oarstat_parts import wide_table

            width = wide_table.terminal_width()
            if width >= wide_table.LEAST_WIDTH:
                privacy = self._context.privacy(tx)
                return wide_table.wide_table(tx, jobs, privacy, width=width, header=header, colored=is_colored)
        times = places = None
        if jobs and (options.resources or self._layout == TIMES):
            from oar.lib.jobs.views import job_times
            from oar.lib.nodes.views import placement_texts

            times = job_times(tx, jobs) if self._layout == TIMES else None
            places = placement_texts(tx, jobs) if options.resources else None
        has_outcomes = is_terminal or options.color == "always" or self._layout == TIMES
        return render.job_table(
            jobs,
            tx.now,
            outcomes=tx.job_runs.outcomes(jobs) if is_colored or has_outcomes else {},
            layout=self._layout,
            by_array=bool(options.arrays),
            folded=options.compact,
            header=header,
            colored=is_colored,
            has_outcomes=has_outcomes,
            times=times,
            resources=places,
        )


# ------------------------------------------------------------------------------------------------------------ options


def _layout(context: Context, option: int | None) -> int:
    """Return the layout of the text: the option's, the environment's, or the site's."""
    if option is not None:
        if option not in LAYOUTS:
            raise BadRequest("--format must be 1, 2, 3 or 4")
        return option
    variable = context.environment.get(LAYOUT_VARIABLE, "")
    if variable in map(str, LAYOUTS):
        return int(variable)
    default = context.runtime.config.oarstat_default_output_format
    return default if default in LAYOUTS else LAYOUTS[0]


def _matching(context: Context, condition: str | None) -> frozenset[int] | None:
    """Return the jobs that satisfy a condition of the user's.  Raises BadCondition."""
    if condition is None:
        return None
    from oar.lib.db.user_sql import Subject, evaluate

    with suppress(BadRequest):
        parse_date(condition)
        raise Stop(f"# Error: -S takes a condition: write --since {condition}")
    return frozenset(evaluate(context.database, Subject.JOBS, condition, context.asker))


def _of_user(context: Context, user: str | None, machine: Format | None, *, with_jobs: bool) -> str:
    if with_jobs:
        from oar.cli.oarstat_parts.me import overview_text

        return overview_text(context, machine)
    from oar.cli.oarstat_parts.limits import limits_text

    return limits_text(context, user or context.user.name, machine)
