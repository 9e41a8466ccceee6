"""Which jobs a command is about: ids, ids of arrays, whose, in which state, a condition."""

from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple, TypeVar

import click

from oar.cli.common.command import DIGITS, Context, Stop, option, optional_argument
from oar.cli.common.state_names import states_of
from oar.lib.facts.states import FINAL, JobState
from oar.lib.jobs import control

Function = TypeVar("Function", bound=Callable[..., object])

#: Digits of the largest id that the database can hold for sure.
MOST_DIGITS = 18


class Wanted(NamedTuple):
    """The jobs that are meant, as they were named."""

    words: tuple[str, ...] = ()
    array: bool = False
    sql: str | None = None
    users: tuple[str | None, ...] = ()  #: None: who asks
    states: str | None = None
    name: str | None = None
    everything: bool = False

    @property
    def is_nothing(self) -> bool:
        """Whether no job was named in any way."""
        return self == Wanted(array=self.array)


class JobSelection(NamedTuple):
    """The jobs that are meant, each once, and what was said that means none."""

    ids: tuple[int, ...]
    complaints: tuple[str, ...] = ()


def job_selection(function: Function) -> Function:
    """Declare the ways to name jobs; the function gets a ``Wanted`` as ``wanted``."""

    def command(*arguments: Any, **options: Any) -> Any:
        named = {name: options.pop(name) for name in Wanted._fields}
        return function(*arguments, wanted=Wanted(**named), **options)

    command.__dict__.update(function.__dict__)
    option("--all", "everything", is_flag=True, help="Act on all your jobs; administrators on those of everybody.")(
        command
    )
    option("--name", metavar="NAME", help="Act on the jobs of that name.")(command)
    option("--state", "states", metavar="STATES", help="Act on the jobs in these states: names or letters.")(command)
    optional_argument(
        "-u", "--user", "users", metavar="[LOGIN]", help="Act on the jobs of LOGIN, without it on yours."
    )(command)
    option("--sql", "sql", metavar="SQL", help="Act on the jobs that satisfy this SQL condition too.")(command)
    option("--array", is_flag=True, help="The identifiers are those of arrays: act on all their jobs.")(command)
    click.argument("words", nargs=-1, metavar="[JOB_ID]...")(command)
    return command  # type: ignore[return-value]


def is_id(word: str) -> bool:
    """Whether a word is the number of a job that can be."""
    return bool(word) and DIGITS.issuperset(word) and len(word) <= MOST_DIGITS


def select_jobs(context: Context, wanted: Wanted, suitable: Collection[JobState] = tuple(JobState)) -> JobSelection:
    """Return the jobs that are meant: those named by id, by a condition, and by whose they are.  Raises BadCondition.

    ``suitable``: the states of those that are meant by whose they are and by name, if no state is named.
    """
    ids = [int(word) for word in wanted.words if is_id(word)]
    kind = "job array" if wanted.array else "job"
    complaints = [f'[ERROR] "{word}" is not a valid {kind} identifier' for word in wanted.words if not is_id(word)]
    if wanted.array and ids:
        with context.database.snapshot() as tx:
            ids, unknown = control.jobs_of_arrays(tx, ids)
        complaints += [f'[ERROR] "{one}" is not a valid array job' for one in unknown]
    if wanted.sql is not None:
        from oar.lib.db.user_sql import Subject, evaluate

        found = evaluate(context.database, Subject.JOBS, wanted.sql, context.asker)
        if not found:
            context.warn("no job satisfies the SQL condition.")
        ids = [*ids, *found]
    if wanted.everything or wanted.users or wanted.states is not None or wanted.name is not None:
        ids += _filtered(context, wanted, suitable)
    return JobSelection(tuple(dict.fromkeys(ids)), tuple(complaints))


def _filtered(context: Context, wanted: Wanted, suitable: Collection[JobState]) -> list[int]:
    """Return the live jobs of a user, in some states, of a name; without a user those of who asks.  Raises Stop."""
    user = _whose(context, wanted)
    states = _states(wanted.states) if wanted.states is not None else suitable
    with context.database.snapshot() as tx:
        jobs = tx.jobs.live(user)
    found = [job.id for job in jobs if job.state in states and (wanted.name is None or job.name == wanted.name)]
    if not found:
        context.warn(f"no such job{f' of {user}' if user else ''}.")
    return found


def _whose(context: Context, wanted: Wanted) -> str | None:
    """Return whose jobs are meant; None: those of everybody."""
    if wanted.everything and context.user.is_admin and not wanted.users:
        return None
    return next((each for each in reversed(wanted.users) if each), context.user.name)


def _states(text: str) -> frozenset[JobState]:
    """Return the states that a list of names and letters means.  Raises Stop."""
    found: set[JobState] = set()
    for word in text.replace(",", " ").split():
        meant = states_of(word) - FINAL
        if not meant:
            raise Stop(f'Unknown state "{word}"')
        found |= meant
    if not found:
        raise Stop(f'Unknown state "{text}"')
    return frozenset(found)


def show_usage() -> int:
    """Say how the command that runs is used, since there is nothing to do; return its exit code."""
    click.echo(click.get_current_context().get_help(), err=True)
    return 1


def complain(lines: Sequence[str]) -> None:
    """Print what is wrong."""
    for line in lines:
        click.echo(line, err=True)
