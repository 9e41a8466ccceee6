"""The jobs that a command acts on (ids, arrays, users, states, a condition), and the outcome for each of them.

See docs/design/formats.rst, "Records".
"""

from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple, TypeVar

import click

from oar.cli.common.command import Context
from oar.cli.common.options import Join, Stop, option, optional_argument
from oar.lib.base.formats import Format
from oar.lib.jobs import control, job_lists
from oar.lib.jobs.job_lists import BadJobList, JobRange
from oar.lib.jobs.states import FINAL, JobState, states_of

Function = TypeVar("Function", bound=Callable[..., object])


class JobCriteria(NamedTuple):
    """The criteria of the command line that select jobs."""

    identifiers: tuple[str, ...] = ()
    array: bool = False
    sql: str | None = None
    users: tuple[str | None, ...] = ()  #: None: who asks
    states: str | None = None
    name: str | None = None
    everything: bool = False

    @property
    def is_nothing(self) -> bool:
        return self == JobCriteria(array=self.array)


class JobSelection(NamedTuple):
    """The selected jobs, and complaints about arguments that select none."""

    ids: tuple[int, ...]
    complaints: tuple[str, ...] = ()


def job_selection(function: Function) -> Function:
    """Declare the ways to name jobs; the function gets ``JobCriteria`` as ``criteria``."""

    def command(*arguments: Any, **options: Any) -> Any:
        named = {name: options.pop(name) for name in JobCriteria._fields}
        return function(*arguments, criteria=JobCriteria(**named), **options)

    command.__dict__.update(function.__dict__)
    option("--all", "everything", is_flag=True, help="Act on all your jobs; for administrators: on all jobs.")(command)
    option("--name", metavar="NAME", help="Act on the jobs with this name.")(command)
    option(
        "--state",
        "states",
        join=Join.LIST,
        metavar="STATES",
        help="Act on the jobs in these states (names or letters).",
    )(command)
    optional_argument("-u", "--user", "users", metavar="[LOGIN]", help="Act on the jobs of LOGIN (default: yours).")(
        command
    )
    option(
        "--sql",
        "sql",
        join=Join.CONDITION,
        metavar="SQL",
        help="Act on the jobs that match this SQL condition; with -u, only jobs of that user.",
    )(command)
    option("--array", is_flag=True, help="The ids are array ids: act on all jobs of these arrays.")(command)
    click.argument("identifiers", nargs=-1, metavar="[JOB_ID]...")(command)
    return command  # type: ignore[return-value]


def select_jobs(
    context: Context, criteria: JobCriteria, suitable: Collection[JobState] = tuple(JobState)
) -> JobSelection:
    """Return the jobs named by id, and those that match the condition, user, state and name.  Raises BadCondition.

    ``suitable``: the states of jobs selected by user and name if no state is given.
    """
    ranges, complaints = _ranges(criteria)
    ids: list[int] = []
    if ranges:
        with context.database.snapshot() as tx:
            found = job_lists.find(tx, ranges)
            ids, unknown = control.jobs_of_arrays(tx, found.ids) if criteria.array else (list(found.ids), [])
        typed = {part.first for part in ranges if part.first == part.last}
        unknown = [array_id for array_id in unknown if array_id in typed or not ids]
        complaints += [f"[ERROR] {complaint}" for complaint in found.complaints]
        complaints += [f'[ERROR] "{array_id}" is not a valid array job' for array_id in unknown]
    if complaints and criteria._replace(identifiers=(), array=False) != JobCriteria():
        return JobSelection(
            (), (*complaints, "# Nothing was done: remove these words, or the options that select jobs")
        )
    matching = None if criteria.sql is None else _satisfying(context, criteria.sql)
    if criteria.everything or criteria.users or criteria.states is not None or criteria.name is not None:
        ids += _filtered(context, criteria, suitable, matching)
    else:
        ids += matching or []
    return JobSelection(tuple(dict.fromkeys(ids)), tuple(complaints))


def _ranges(criteria: JobCriteria) -> tuple[list[JobRange], list[str]]:
    """Return the jobs that are named, and the complaints about arguments that name none."""
    ranges: list[JobRange] = []
    complaints: list[str] = []
    kind = "job array" if criteria.array else "job"
    for text in criteria.identifiers:
        try:
            parsed = job_lists.parse(text)
            if criteria.array and any(part.array for part in parsed):
                raise BadJobList(text, "with --array write ids of arrays; without it the elements 120[3]")
            ranges += parsed
        except BadJobList as error:
            reason = "All your jobs: --all" if text.lower() == "all" else f"{error.reason[0].upper()}{error.reason[1:]}"
            complaints.append(f'[ERROR] "{text}" is not a valid {kind} identifier\n# {reason}')
    return ranges, complaints


def _satisfying(context: Context, condition: str) -> list[int]:
    from oar.lib.db.user_sql import Subject, evaluate

    ids = evaluate(context.database, Subject.JOBS, condition, context.asker)
    if not ids:
        context.warn("no job satisfies the SQL condition.")
    return ids


def _filtered(
    context: Context, criteria: JobCriteria, suitable: Collection[JobState], matching: Collection[int] | None
) -> list[int]:
    """Return the live jobs of a user (default: the caller) with some states and name.  Raises Stop.

    ``matching``: the jobs that match a condition, None without one.
    """
    user = next((login for login in reversed(criteria.users) if login), context.user.name)
    is_of_all = criteria.everything and context.user.is_admin and not criteria.users
    states = suitable if criteria.states is None else _live_states(criteria.states)
    chosen = None if matching is None else frozenset(matching)
    with context.database.snapshot() as tx:
        jobs = tx.jobs.live(None if is_of_all else user)
        frames = tx.reservations.of_frames([job.id for job in jobs])
    ids = [
        job.id
        for job in jobs
        if job.state in states
        and job.id not in frames
        and criteria.name in (None, job.name)
        and (chosen is None or job.id in chosen)
    ]
    if not ids and matching != []:
        context.warn(f"no such job{'' if is_of_all else f' of {user}'}.")
    return ids


def _live_states(text: str) -> Collection[JobState]:
    """Return the states that a list of names and letters means.  Raises Stop."""
    states: set[JobState] = set()
    for name in text.replace(",", " ").split() or [text]:
        meant = states_of(name) - FINAL
        if not meant:
            raise Stop(f'Unknown state "{name}"\n# Write letters or names, as W,R,H or Waiting')
        states |= meant
    return states


def show_usage(mistake: str = "") -> int:
    """Print the help of the command, which has nothing to do, and the mistake; return the exit code."""
    click.echo(click.get_current_context().get_help(), err=True)
    if mistake:
        click.echo(f"# {mistake}", err=True)
    return 1


def no_job_given(context: Context) -> int:
    """Print the help of a command that is given options and no job; return the exit code."""
    reason = f"No job is given: {job_lists.WAY_OUT}" if context.arguments else ""
    return show_usage(reason)


class OutcomeRecord(NamedTuple):
    """The outcome of a request for one job."""

    job_id: int
    ok: bool
    message: str


class OutcomeReport:
    """Prints outcomes as they arrive; with a machine format, all of them at the end."""

    def __init__(self, machine: Format | None) -> None:
        self._machine = machine
        self._outcomes: list[OutcomeRecord] = []
        self.codes: list[int] = []  #: those of the failures

    def say(self, text: str, *, end: str = "\n") -> None:
        """Print something for people."""
        if self._machine is None:
            click.echo(text + end, nl=False)

    def good(self, job_id: int, line: str) -> None:
        """Record the success of a request."""
        self.say(line)
        self._outcomes.append(OutcomeRecord(job_id, True, line))

    def bad(self, job_id: int, code: int, line: str, *, is_error: bool = True) -> None:
        """Record a failure; what is not an error goes to standard output."""
        if self._machine is None:
            click.echo(line, err=is_error)
        self._outcomes.append(OutcomeRecord(job_id, False, line))
        self.codes.append(code)

    def complain(self, code: int, lines: Sequence[str]) -> None:
        """Print complaints about arguments that select no job."""
        for line in lines:
            click.echo(line, err=True)
            self.codes.append(code)

    def close(self) -> None:
        """Print the document of a machine format: the list of outcomes."""
        if self._machine is not None:
            from oar.lib.base.formats import dump

            click.echo(dump([outcome._asdict() for outcome in self._outcomes], self._machine), nl=False)
