"""oarhold: hold waiting jobs, or suspend running jobs."""

from collections.abc import Callable, Sequence

from oar.cli.common.command import Context, oar_command
from oar.cli.common.job_selection import JobCriteria, OutcomeReport, job_selection, no_job_given, select_jobs
from oar.cli.common.options import machine_formats, option
from oar.lib.base.formats import Format
from oar.lib.db.transaction import Transaction
from oar.lib.jobs import control
from oar.lib.jobs.control import ControlOutcome, ControlRefusal, HoldRules
from oar.lib.jobs.states import JobState

FAILED, IMPOSSIBLE = 1, 2


def request(
    context: Context,
    criteria: JobCriteria,
    machine: Format | None,
    *,
    verb: str,
    states: frozenset[JobState],
    ask: Callable[[Transaction, Sequence[int]], list[ControlOutcome]],
) -> int:
    """Request a change of the selected jobs and print the outcomes; return the exit code."""
    if criteria.is_nothing:
        return no_job_given(context)
    report = OutcomeReport(machine)
    selection = select_jobs(context, criteria, states)
    report.complain(IMPOSSIBLE, selection.complaints)
    with context.database.begin() as tx:
        answers = ask(tx, selection.ids)
    for answer in answers:
        if answer.refusal is None:
            report.good(answer.job_id, f"[{answer.job_id}] {verb.capitalize()} request was sent to the OAR server.")
        elif answer.text and answer.refusal is not ControlRefusal.FRAME:
            report.bad(answer.job_id, IMPOSSIBLE, answer.text)
        else:
            why_not = control.why_not_held if verb == "hold" else control.why_not_resumed
            report.bad(answer.job_id, FAILED, why_not(answer))
    report.close()
    return max(report.codes, default=0)


@oar_command(
    "oarhold",
    summary="Hold jobs: waiting jobs do not start until oarresume releases them.",
    examples={
        "oarhold 118": "Do not start waiting job 118 until oarresume releases it.",
        "oarhold --array 120": "Hold all waiting jobs of array 120.",
    },
)
@option("-r", "--running", is_flag=True, help="Also suspend running jobs.")
@job_selection
@machine_formats
def main(context: Context, running: bool, criteria: JobCriteria, machine: Format | None) -> int:
    """Hold the jobs."""

    def ask(tx: Transaction, ids: Sequence[int]) -> list[ControlOutcome]:
        rules, managed = HoldRules.of(context.runtime.config), context.managed_projects(tx)
        return control.hold(tx, context.user, ids, rules, running=running, managed=managed)

    states = control.HOLDABLE | (control.SUSPENDABLE if running else frozenset())
    return request(context, criteria, machine, verb="hold", states=states, ask=ask)
