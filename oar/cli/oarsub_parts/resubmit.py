"""oarsub --resubmit: jobs that have ended are submitted again, as they were."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from oar.cli.common.options import Stop
from oar.cli.oarsub_parts.call import OarsubCall, print_error
from oar.cli.oarsub_parts.submission import wait_if_asked
from oar.lib.base.errors import UserError
from oar.lib.jobs import control, job_lists
from oar.lib.jobs.job_lists import BadJobList, JobRange
from oar.lib.jobs.states import FINAL, JobState, states_of
from oar.lib.submission import resubmission
from oar.lib.submission.checks import Code

if TYPE_CHECKING:
    from oar.lib.db.transaction import Transaction
    from oar.lib.jobs.records import Job

#: Options that may be combined with --resubmit.
COMPATIBLE = frozenset(
    {"resubmit", "resubmit_sql", "resubmit_states", "array", "words", "verbosity", "wait", "parsable"}
)
#: The word of --state for jobs that did not end well.
FAILED = "failed"
#: Jobs that are copied in one transaction.
_BATCH = 100


def resubmit(call: OarsubCall, names: frozenset[str]) -> int:
    """Submit copies of jobs; return the exit code.  ``names``: of the options that are given.  Raises Stop."""
    context = call.context
    job_ids, is_one = _chosen(call)
    if ignored := names - COMPATIBLE:
        jobs = f"job {job_ids[0]} is submitted as it was" if is_one else "the jobs are submitted as they were"
        context.warn(f"{jobs}: these options are ignored: {context.command.spell(ignored)}")
    copies: list[int] = []
    for first in range(0, len(job_ids), _BATCH):
        copies += _resubmit_batch(call, job_ids[first : first + _BATCH], is_one=is_one)
    code = Code.RESUBMIT if len(copies) < len(job_ids) else 0
    return (wait_if_asked(call, copies) if copies else 0) or code


def _resubmit_batch(call: OarsubCall, job_ids: Sequence[int], *, is_one: bool) -> list[int]:
    """Submit copies of jobs in one transaction, and print the outcome of each; return the copies.

    ``is_one``: errors do not name the job, since no other one is given.
    """
    outcomes: dict[int, int | str] = {}
    with call.context.database.begin() as tx:
        for job_id in job_ids:
            try:
                outcomes[job_id] = resubmission.resubmit(tx, call.context.runtime.config, call.context.user, job_id)
            except UserError as error:
                outcomes[job_id] = str(error)
    copies = []
    for job_id, outcome in outcomes.items():
        if isinstance(outcome, str):
            named = "" if is_one or outcome.startswith(f"job {job_id} ") else f"job {job_id}: "
            print_error(f"# Error: {named}{outcome}")
            continue
        call.printer.explain(f"Resubmitting job {job_id}...# DONE")
        call.printer.ids([outcome])
        copies.append(outcome)
    return copies


# -- which jobs -------------------------------------------------------------------------------------------------------


def _chosen(call: OarsubCall) -> tuple[list[int], bool]:
    """Return the jobs that the command line selects, and whether it names exactly one.  Raises Stop, BadCondition."""
    options = call.options
    named = _named(call)
    if not named and options.resubmit_sql is None:
        raise _refused("--resubmit requires jobs: use job ids, --array ID, or --sql CONDITION.")
    if options.job.array is None and options.resubmit_sql is None and not options.resubmit_states:
        return named, len(named) == 1
    wanted = _outcome_filter(options.resubmit_states)
    satisfying = None
    if options.resubmit_sql is not None:
        from oar.lib.db.user_sql import Subject, evaluate

        context = call.context
        satisfying = frozenset(evaluate(context.database, Subject.JOBS, options.resubmit_sql, context.asker))
    with call.context.database.snapshot() as tx:
        jobs = _selected(tx, call, named, satisfying)
        copied = tx.listings.copies([job.id for job in jobs])
    chosen = [job.id for job in jobs if job.id not in copied and wanted(job)]
    if not chosen:
        raise _refused(
            "no job to resubmit: no selected job has ended in the states of --state without a copy."
            " Check --sql, --state and --array: oarstat -j JOB"
        )
    most = call.context.runtime.config.max_array_size
    if len(chosen) > most:
        raise _refused(f"{len(chosen)} jobs to resubmit: at most {most} at a time (MAX_ARRAY_SIZE).")
    return chosen, False


def _named(call: OarsubCall) -> list[int]:
    """Return the ids that are given, of arrays with --array, ascending.  Raises Stop."""
    options = call.options
    ranges: list[JobRange] = []
    for text in (*filter(None, options.resubmit), *options.words):
        try:
            ranges += job_lists.parse(text)
        except BadJobList as error:
            raise _refused(f'"{text}" is not a valid job identifier: {error.reason}') from None
    with call.context.database.snapshot() as tx:
        found = job_lists.find(tx, ranges)
    if found.complaints:
        raise _refused(found.complaints[0])
    return sorted({*found.ids, *([options.job.array.size] if options.job.array is not None else [])})


def _selected(
    tx: "Transaction", call: OarsubCall, named: Sequence[int], satisfying: frozenset[int] | None
) -> list["Job"]:
    """Return the selected jobs by id: the named ones that satisfy the condition, or all of the user that do.

    Raises Stop if an array does not exist.
    """
    if call.options.job.array is not None:
        named, unknown = control.jobs_of_arrays(tx, named)
        if unknown:
            raise _refused(f'"{unknown[0]}" is not a valid array job.')
    ids = set(named) & satisfying if named and satisfying is not None else named or satisfying or ()
    jobs = tx.jobs.select(sorted(ids))
    return list(jobs) if named else [job for job in jobs if control.owns(call.context.user, job)]


def _outcome_filter(texts: Sequence[str]) -> "Callable[[Job], bool]":
    """Return the test whether a job ended in one of the states that --state lists.  Raises Stop."""
    names = [name for text in texts for name in text.replace(",", " ").split()]
    states: set[JobState] = set(FINAL) if not names else set()
    for name in names:
        meant = states_of(name) & FINAL
        if not meant and name.lower() != FAILED:
            raise _refused(f'unknown state "{name}". Write T (Terminated), E (Error) or {FAILED}.')
        states |= meant
    is_failed_wanted = FAILED in map(str.lower, names)

    def is_wanted(job: "Job") -> bool:
        has_failed = job.state is JobState.ERROR or (job.state in FINAL and bool(job.exit_code))
        return job.state in states or (is_failed_wanted and has_failed)

    return is_wanted


def _refused(text: str) -> Stop:
    return Stop(f"# Error: {text}", Code.RESUBMIT)
