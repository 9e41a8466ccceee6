"""oarstat: the jobs, as a table, in full, as a document for programs, or what they consumed (commands-user.md 5)."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import click

from oar.cli import render
from oar.cli.command import (
    DIGITS,
    LARGEST_NUMBER,
    NUMBER,
    Context,
    Hangup,
    Stop,
    machine_formats,
    oar_command,
    optional_argument,
)
from oar.lib.db.engine import Transaction
from oar.lib.errors import BadRequest
from oar.lib.formats import Format, dump
from oar.lib.model import Job
from oar.lib.times import parse_date

EXIT_NO_JOB_GIVEN = 255
LAYOUTS = (1, 2, 3)


@dataclass(frozen=True, slots=True)
class Selection:
    """Which jobs are asked for; what is None does not restrict."""

    ids: tuple[int, ...] | None = None
    arrays: tuple[int, ...] | None = None  #: () = the live jobs, as arrays
    matching: frozenset[int] | None = None  #: those that satisfy --sql
    user: str | None = None

    def jobs(self, tx: Transaction) -> list[Job]:
        """Return the jobs, by id: the live ones unless ids, arrays or a condition name others."""
        if self.ids is not None:
            found = tx.jobs.select(self.ids)
        elif self.arrays:
            found = tx.jobs.of_arrays(self.arrays)
        elif self.matching is not None:
            found = tx.jobs.select(self.matching)
        else:
            found = tx.jobs.live(self.user)
        return [job for job in found if self._takes(job)]

    def missing(self, tx: Transaction) -> list[int]:
        """Return the jobs that are asked for by id and do not exist."""
        return sorted(set(self.ids).difference(tx.jobs.states(self.ids))) if self.ids else []

    def _takes(self, job: Job) -> bool:
        is_users = self.user is None or job.user == self.user
        return is_users and (self.matching is None or job.id in self.matching)


@oar_command(
    "oarstat",
    summary="Show the jobs that have not ended, or those that are named.  WORDS that are numbers are job ids.",
    exit_codes={Hangup: 10},
)
@optional_argument("-j", "--job", "jobs", numeric=True, metavar="[ID]", help="This job; OAR_JOB_ID without ID.")
@click.option("-f", "--full", is_flag=True, help="All details.")
@click.option("-s", "--state", is_flag=True, help="The state only; with --job.")
@optional_argument("-u", "--user", "users", metavar="[LOGIN]", help="The jobs of a user; yours without LOGIN.")
@optional_argument(
    "-a", "--array", "arrays", numeric=True, metavar="[ID]", help="The jobs of an array, ended ones too."
)
@click.option("-c", "--compact", is_flag=True, help="One line for each array.")
@click.option("-g", "--gantt", metavar="D1,D2", help="Jobs and resources between two dates.")
@click.option("-e", "--events", is_flag=True, help="The events; with --job or --array.")
@click.option("-p", "--properties", is_flag=True, help="The properties of the resources; with --job or --array.")
@optional_argument(
    "--explain", "explain", numeric=True, metavar="[ID]", help="Why this job waits or waited, and when it starts."
)
@click.option("--start", "starts", is_flag=True, help="When jobs are foreseen to start, and what they wait for.")
@click.option("--change", is_flag=True, help="With --explain: what would let the job start now.")
@optional_argument(
    "--usage", "usage", numeric=True, metavar="[ID]", help="What this job used of its processors and memory."
)
@click.option("-A", "--accounting", metavar="D1,D2", help="What was consumed between two dates.")
@click.option("-S", "--sql", metavar="CONDITION", help="The jobs, ended ones too, that satisfy a condition of SQL.")
@click.option("--format", "layout", type=NUMBER, metavar="1|2|3", help="The layout of the text.")
@machine_formats
@click.argument("words", nargs=-1)
def main(
    context: Context,
    *,
    jobs: tuple[int | None, ...],
    full: bool,
    state: bool,
    users: tuple[str | None, ...],
    arrays: tuple[int | None, ...],
    compact: bool,
    gantt: str | None,
    events: bool,
    properties: bool,
    explain: tuple[int | None, ...],
    starts: bool,
    change: bool,
    usage: tuple[int | None, ...],
    accounting: str | None,
    sql: str | None,
    layout: int | None,
    machine: Format | None,
    words: tuple[str, ...],
) -> None:
    """Check what goes together, then show."""
    user = (users[-1] or context.user.name) if users else None
    if accounting is not None:
        return _show_accounting(context, _dates(accounting, "--accounting"), user, machine)
    if gantt is not None:
        return _show_gantt(context, _dates(gantt, "--gantt"), machine)
    ids = _ids(context, (*jobs, *explain, *filter(None, usage)), words)
    _check(
        {
            "--job and --array are exclusive": bool(jobs and arrays),
            "--compact cannot be combined with --full or a machine format": bool(compact and (full or machine)),
            "--properties and --sql are exclusive": bool(properties and sql is not None),
            "--change needs --explain": bool(change and not explain),
        }
    )
    if state and ids is None:
        raise Stop("--state can only be used with an id")
    if (events or properties) and ids is None and not arrays:
        raise Stop("No job specified")
    chosen_layout = _layout(context, layout)
    selection = Selection(ids, _given(arrays), _matching(context, sql), user)
    with context.database.snapshot() as tx:
        if state:
            text = _states(tx, ids or (), machine)
        elif starts or explain:
            from oar.cli import oarstat_explain

            found = selection.jobs(tx)
            text = (
                oarstat_explain.starts(tx, found, machine)
                if starts
                else oarstat_explain.explained(context, tx, found, machine, with_change=change)
            )
        elif usage:
            from oar.cli import oarstat_usage

            text = oarstat_usage.shown(context, tx, selection.jobs(tx), machine, by_node=full)
        elif events:
            text = _events(tx, selection.jobs(tx), machine)
        elif properties:
            text = _properties(tx, selection.jobs(tx), machine)
        elif full or machine:
            text = _full(context, tx, selection.jobs(tx), machine, chosen_layout)
        else:
            text = render.job_table(
                selection.jobs(tx), tx.now, layout=chosen_layout, by_array=bool(arrays), folded=compact
            )
        missing = [] if machine else selection.missing(tx)
    click.echo(text, nl=False)
    for job_id in missing:
        context.warn(f"job {job_id} does not exist.")
    return None


# ------------------------------------------------------------------------------------------------------------ options


def _ids(context: Context, jobs: Sequence[int | None], words: Sequence[str]) -> tuple[int, ...] | None:
    """Return the jobs that are named; None if none is.  Other words mean nothing: some programs give a queue."""
    named = [_job_of_environment(context) if job is None else job for job in jobs]
    named += [min(int(word[:20]), LARGEST_NUMBER) for word in words if word and DIGITS.issuperset(word)]
    return tuple(dict.fromkeys(named)) if named else None


def _job_of_environment(context: Context) -> int:
    for name in ("OAR_JOB_ID", "OAR_JOBID"):
        value = context.environment.get(name, "")
        if value and DIGITS.issuperset(value) and int(value[:20]) <= LARGEST_NUMBER:
            return int(value)
    raise Stop("/!\\ ERROR: No job id provided in command line or environment variables", EXIT_NO_JOB_GIVEN)


def _given(arrays: Sequence[int | None]) -> tuple[int, ...] | None:
    """Return the arrays that are named; () for --array without any, None without the option."""
    return tuple(array for array in arrays if array is not None) if arrays else None


def _check(conflicts: Mapping[str, bool]) -> None:
    """Refuse what does not go together.  Raises BadRequest."""
    for text, is_so in conflicts.items():
        if is_so:
            raise BadRequest(text)


def _layout(context: Context, given: int | None) -> int:
    """Return the layout of the text: the option's, the environment's, or the site's."""
    if given is not None:
        if given not in LAYOUTS:
            raise BadRequest("--format must be 1, 2 or 3")
        return given
    wish = context.environment.get("OAR_OARSTAT_OUTPUT_FORMAT", "")
    if wish in map(str, LAYOUTS):
        return int(wish)
    default = context.runtime.config.oarstat_default_output_format
    return default if default in LAYOUTS else LAYOUTS[0]


def _matching(context: Context, condition: str | None) -> frozenset[int] | None:
    """Return the jobs that satisfy a condition of the user's.  Raises BadSql."""
    if condition is None:
        return None
    from oar.lib.db.usersql import Table, evaluate

    return frozenset(evaluate(context.database, Table.JOBS, condition))


def _dates(text: str, option: str) -> tuple[int, int]:
    """Return the two dates of an interval.  Raises Stop."""
    try:
        start, stop = (parse_date(part) for part in text.split(","))
    except (ValueError, BadRequest):
        raise Stop(f"Bad syntax for {option}") from None
    if start > stop:
        raise Stop(f"Bad syntax for {option}")
    return start, stop


# -------------------------------------------------------------------------------------------------------------- texts


def _states(tx: Transaction, ids: Collection[int], machine: Format | None) -> str:
    states = tx.jobs.states(ids)
    if machine:
        return dump(states, machine)
    return "".join(f"{job_id}: {state}\n" for job_id, state in states.items())


def _events(tx: Transaction, jobs: Sequence[Job], machine: Format | None) -> str:
    found = tx.events.of_jobs([job.id for job in jobs])
    events = {job.id: found.get(job.id, []) for job in jobs}
    if not machine:
        return render.job_events(events)
    records = {
        job_id: [{"date": each.date, "type": each.type, "description": each.description} for each in some]
        for job_id, some in events.items()
    }
    return dump(records, machine)


def _properties(tx: Transaction, jobs: Sequence[Job], machine: Format | None) -> str:
    from oar.lib import views

    resources = views.resources_of_jobs(tx, [job.id for job in jobs])
    if machine:
        return dump({job_id: [each.columns for each in some] for job_id, some in resources.items()}, machine)
    return render.property_lines(each for some in resources.values() for each in some)


def _full(context: Context, tx: Transaction, jobs: Sequence[Job], machine: Format | None, layout: int) -> str:
    from oar.lib import views

    shown = views.job_views(tx, jobs, views.privacy(context.runtime.config, context.user))
    if machine:
        return dump({view.job.id: views.job_record(view) for view in shown}, machine)
    return render.full_jobs(shown, layout=layout)


def _show_gantt(context: Context, dates: tuple[int, int], machine: Format | None) -> None:
    from oar.lib import views

    privacy = views.privacy(context.runtime.config, context.user)
    with context.database.snapshot() as tx:
        record = views.gantt(tx, *dates, privacy)
    click.echo(dump(record, machine or Format.DUMPER), nl=False)


def _show_accounting(context: Context, dates: tuple[int, int], user: str | None, machine: Format | None) -> None:
    from oar.lib import views

    with context.database.snapshot() as tx:
        usages = views.usages(tx, *dates, user)
    if machine:
        text = dump({usage.user: usage.record for usage in usages}, machine)
    elif user is None:
        text = render.usage_table(usages)
    else:
        text = render.usage_summary(user, *dates, usages[0] if usages else None)
    click.echo(text, nl=False)
