"""Which jobs a command is about: ids, ids of arrays, a condition (commands-user.md 7.1)."""

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

import click

from oar.cli.command import DIGITS, Context
from oar.lib import control

Function = TypeVar("Function", bound=Callable[..., object])

#: Digits of the largest id that the database can hold for sure.
MOST_DIGITS = 18


class Selection(NamedTuple):
    """The jobs that are meant, each once, and what was said that means none."""

    ids: tuple[int, ...]
    complaints: tuple[str, ...] = ()


def job_selection(function: Function) -> Function:
    """Declare the ids, ``--array`` and ``--sql``; the function gets ``words``, ``array`` and ``sql``."""
    click.option("--sql", "sql", metavar="SQL", help="Act on the jobs that satisfy this SQL condition too.")(function)
    click.option("--array", is_flag=True, help="The identifiers are those of arrays: act on all their jobs.")(function)
    return click.argument("words", nargs=-1, metavar="[JOB_ID]...")(function)


def select_jobs(context: Context, words: Sequence[str], *, array: bool, sql: str | None) -> Selection:
    """Return the jobs that are meant.  Raises BadSql."""
    good = [int(word) for word in words if word and DIGITS.issuperset(word) and len(word) <= MOST_DIGITS]
    kind = "job array" if array else "job"
    complaints = [
        f'[ERROR] "{word}" is not a valid {kind} identifier'
        for word in words
        if not word or not DIGITS.issuperset(word) or len(word) > MOST_DIGITS
    ]
    ids = good
    if array and good:
        with context.database.snapshot() as tx:
            ids, unknown = control.jobs_of_arrays(tx, good)
        complaints += [f'[ERROR] "{one}" is not a valid array job' for one in unknown]
    if sql is not None:
        from oar.lib.db.usersql import Table, evaluate

        found = evaluate(context.database, Table.JOBS, sql)
        if not found:
            context.warn("no job satisfies the SQL condition.")
        ids = [*ids, *found]
    return Selection(tuple(dict.fromkeys(ids)), tuple(complaints))


def show_usage() -> int:
    """Say how the command that runs is used, since there is nothing to do; return its exit code."""
    click.echo(click.get_current_context().get_help(), err=True)
    return 1


def complain(lines: Sequence[str]) -> None:
    """Print what is wrong."""
    for line in lines:
        click.echo(line, err=True)
