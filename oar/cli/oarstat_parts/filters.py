"""Which jobs oarstat shows: by id, array and condition, and the filters that need no SQL."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from oar.cli.common.options import DIGITS, LARGEST_NUMBER, Join, Stop, option, optional_argument
from oar.cli.common.render import visible
from oar.lib.base.errors import BadRequest
from oar.lib.jobs import job_lists
from oar.lib.jobs.states import FINAL, STATE_LETTERS, JobState, Outcome, states_of

if TYPE_CHECKING:
    from oar.cli.common.command import Context
    from oar.lib.db.transaction import Transaction
    from oar.lib.jobs.records import Job
    from oar.lib.jobs.sql_listings import IdRange

EXIT_NO_JOB_GIVEN = 255
#: Digits of the largest number of an advance reservation.
LONGEST_NUMBER = 7

_DECLARATIONS = (
    option(
        "-t",
        "--states",
        join=Join.LIST,
        metavar="R,W,failed,...",
        help="Show the jobs in these states (letters or names), or with these outcomes (failed, timeout, ...).",
    ),
    option("--name", metavar="NAME", help="Show the jobs with this name."),
    option("--queue", metavar="QUEUE", help="Show the jobs of this queue."),
    option("--project", metavar="PROJECT", help="Show the jobs of this project."),
    optional_argument(
        "--ar",
        "advance_reservation",
        metavar="[NUMBER|NAME]",
        help="Show the jobs in this advance reservation; with --accounting its bill, or all bills.",
    ),
    option("--frames", is_flag=True, help="Also show the frame jobs of advance reservations."),
    option(
        "--since", metavar="DATE|1d|2h|30m", help="Also show jobs that ended since then; with --follow: a position."
    ),
)


def filters(function: Callable[..., Any]) -> Callable[..., Any]:
    """Declare the options of the filters."""
    for declare in reversed(_DECLARATIONS):
        function = declare(function)
    return function


def find_reservations(tx: "Transaction", text: str) -> frozenset[int]:
    """Return the ids of the advance reservations with a number or a name. Raises BadRequest."""
    is_number = text.isascii() and text.isdigit() and len(text) <= LONGEST_NUMBER
    ids = tx.reservations.ids_of(int(text) if is_number else text)
    if not ids:
        raise BadRequest(f"the advance reservation {text} does not exist.")
    return ids


def parse_states(text: str) -> frozenset[JobState | Outcome]:
    """Return the states and the outcomes of a list of names and letters. Raises Stop."""
    wanted: set[JobState | Outcome] = set()
    for name in (part.strip() for part in text.split(",")):
        named = states_of(name) or {outcome for outcome in Outcome if outcome == name.lower()}
        if not named:
            from oar.lib.base.texts import did_you_mean

            letters, names = " ".join(dict.fromkeys(STATE_LETTERS.values())), (*JobState, *Outcome)
            raise Stop(
                f'# Error: "{name}" is not a state: use one of {letters}, a name, or an outcome:'
                f" {', '.join(Outcome)}{did_you_mean(name, names)}"
            )
        wanted.update(named)
    return frozenset(wanted)


class JobFilter(NamedTuple):
    """The selected jobs; None does not restrict."""

    ids: tuple[int, ...] | None = None
    arrays: tuple[int, ...] | None = None  #: () = the live jobs, as arrays
    matching: frozenset[int] | None = None  #: those that satisfy --sql
    user: str | None = None
    advance_reservations: frozenset[int] | None = None  #: ids; the jobs are in one of them
    frames: bool = False  #: also the frames of advance reservations
    states: frozenset[JobState | Outcome] | None = None
    name: str | None = None
    queue: str | None = None
    project: str | None = None
    since: int | None = None  #: jobs that ended before that date are left out

    @property
    def names_jobs(self) -> bool:
        """Whether jobs are named, including ended ones."""
        return bool(self.ids is not None or self.arrays or self.matching is not None)

    def check(self) -> None:
        """Reject a search through all jobs that ever ran. Raises BadRequest."""
        includes_ended = self.states is not None and not self.states.isdisjoint({*FINAL, *Outcome})
        if includes_ended and self.since is None and not self.names_jobs:
            raise BadRequest("ended jobs require a start date: use --since 1d, or --since DATE")

    def parts(self, tx: "Transaction", size: int) -> "list[IdRange]":
        """Return parts of the live and ended jobs among which ``--since`` selects; none for other selections.

        ``size``: number of jobs of a part.
        """
        if self.since is None or self.names_jobs:
            return []
        return tx.listings.parts_since(self.since, self.user, size)

    def jobs(self, tx: "Transaction", part: "IdRange | None" = None) -> "list[Job]":
        """Return the jobs, by id: the live ones unless ids, arrays, a condition or a date name others.

        ``part``: one of the parts that ``parts`` returns; None: all jobs.
        """
        if part is not None and self.since is not None:
            jobs = tx.jobs.select(tx.listings.part_since(self.since, self.user, part))
        elif self.ids is not None:
            jobs = tx.jobs.select(self.ids)
        elif self.arrays:
            jobs = tx.jobs.of_arrays(self.arrays)
        elif self.matching is not None:
            jobs = tx.jobs.select(self.matching)
        elif self.since is not None:
            jobs = tx.jobs.select(tx.listings.live_or_ended_since(self.since, self.user))
        else:
            jobs = tx.jobs.live(self.user)
        if not (self.frames or self.names_jobs) or self.advance_reservations is not None:
            jobs = self._without_frames(tx, jobs)
        outcomes = self._outcomes(tx, jobs)
        exact = {"user": self.user, "name": self.name, "queue": self.queue, "project": self.project}
        exact = {field: value for field, value in exact.items() if value is not None}
        if not exact and self.matching is None and self.states is None and self.since is None:
            return jobs
        return [
            job
            for job in jobs
            if all(getattr(job, field) == value for field, value in exact.items())
            and (self.matching is None or job.id in self.matching)
            and (self.states is None or job.state in self.states or outcomes.get(job.id) in self.states)
            and (self.since is None or job.state not in FINAL or job.stop_time >= self.since)
        ]

    def _outcomes(self, tx: "Transaction", jobs: "list[Job]") -> dict[int, Outcome]:
        """Return the outcomes of the ended jobs if the filter needs them."""
        if self.states is None or self.states.isdisjoint(Outcome):
            return {}
        return tx.job_runs.outcomes(jobs)

    def _without_frames(self, tx: "Transaction", jobs: "list[Job]") -> "list[Job]":
        """Remove frame jobs of advance reservations, and jobs outside the requested reservations."""
        ids = [job.id for job in jobs]
        frames = tx.reservations.of_frames(ids)
        shown = jobs if self.frames else [job for job in jobs if job.id not in frames]
        if (wanted := self.advance_reservations) is None:
            return shown
        inside = tx.reservations.of_jobs(ids) | {frame: reservation for frame, (reservation, _) in frames.items()}
        return [job for job in shown if inside.get(job.id) in wanted]

    def complaints(self, tx: "Transaction") -> list[str]:
        """Return complaints about given jobs, users and queues that do not exist."""
        missing = set(self.ids).difference(tx.jobs.states(self.ids)) if self.ids else set()
        complaints = [f"job {job_id} does not exist." for job_id in sorted(missing)]
        if self.user is not None:
            from oar.lib.access.accounts import has_account

            if not has_account(self.user) and not tx.listings.has_jobs(self.user):
                complaints.append(f"user {visible(self.user)} does not exist.")
        if self.queue is not None:
            queues = [queue.name for queue in tx.queues.all()]
            if self.queue not in queues:
                from oar.lib.base.texts import did_you_mean

                guess = did_you_mean(self.queue, queues)
                complaints.append(f"queue {visible(self.queue)} does not exist.{guess}")
        return complaints


# -- ids on the command line -------------------------------------------------------------------------------------------


def chosen_ids(context: "Context", jobs: Sequence[str | None], arguments: Sequence[str]) -> tuple[int, ...] | None:
    """Return the given job ids; None if there is none. Raises Stop, BadRequest."""
    lists: list[str] = [text for text in jobs if text]
    others: list[str] = []
    for text in arguments:
        (lists if text[:1] in DIGITS and text.upper() == text.lower() else others).append(text)
    _check_others(context, others, EXIT_NO_JOB_GIVEN if jobs and not lists else 1)
    # A number after another option belongs to the option without one: --explain --change 12, --explain -j 12.
    if not lists:
        return (_job_of_environment(context),) if jobs else None
    if len(lists) == 1 and DIGITS.issuperset(lists[0]):
        return (min(int(lists[0][:20]), LARGEST_NUMBER),)
    ranges = [job_range for text in lists for job_range in job_lists.parse(text)]
    with context.database.snapshot() as tx:
        found = job_lists.find(tx, ranges)
    for complaint in found.complaints:
        context.warn(complaint)
    return found.ids


def _check_others(context: "Context", names: Sequence[str], exit_code: int) -> None:
    """Reject arguments that are no job ids; ignore names of queues. Raises Stop.

    Nextflow passes the requested queue, but jobs may be in another one: it is not used as a filter.
    """
    if not names:
        return
    with context.database.snapshot() as tx:
        queues = {queue.name for queue in tx.queues.all()}
    for name in names:
        shown = visible(name)
        if name not in queues:
            if name[:1] in DIGITS:
                job_lists.parse(name)  # tells what is wrong with the list
            from oar.lib.jobs.states import states_of

            way_out = f"in a state: oarstat --states {shown}" if states_of(name) else f"of a user: oarstat -u {shown}"
            raise Stop(f'# Error: "{shown}" is not a job id. The jobs {way_out}', exit_code)
        context.warn(f'the word "{shown}" is ignored. The jobs of a queue: oarstat --queue {shown}')


def _job_of_environment(context: "Context") -> int:
    for name in ("OAR_JOB_ID", "OAR_JOBID"):
        value = context.environment.get(name, "")
        if value and DIGITS.issuperset(value) and int(value[:20]) <= LARGEST_NUMBER:
            return int(value)
    raise Stop("/!\\ ERROR: No job id provided in command line or environment variables", EXIT_NO_JOB_GIVEN)


def given_arrays(arrays: Sequence[str | None]) -> tuple[int, ...] | None:
    """Return the arrays that are named; () for --array without any, None without the option."""
    if not arrays:
        return None
    ranges = [part for text in arrays if text for part in job_lists.parse(text)]
    return tuple(dict.fromkeys(number for part in ranges for number in ([part.array] if part.array else part.numbers)))
