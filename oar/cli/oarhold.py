"""oarhold: asks that jobs are not started, or are suspended (commands-user.md 8)."""

from collections.abc import Callable, Mapping, Sequence

from oar.cli.command import Context, machine_formats, oar_command, option
from oar.cli.outcomes import Report
from oar.cli.selection import Wanted, job_selection, select_jobs, show_usage
from oar.lib import control
from oar.lib.control import Answer, HoldRules, No
from oar.lib.db.engine import Transaction
from oar.lib.formats import Format
from oar.lib.states import JobState

REASONS = {
    No.UNKNOWN_JOB: "this job does not exist.",
    No.NOT_YOURS: "you are not the right user.",
    No.WRONG_STATE: "the job is not in the right state (try '-r' option).",
    No.ADMIN_HOLD: "only oar or root users can use '-r' option.",
}
FAILED, IMPOSSIBLE = 1, 2


def hold_rules(context: Context) -> HoldRules:
    """Return what the site allows."""
    config = context.runtime.config
    return HoldRules(config.users_allowed_hold_resume, config.job_resource_manager_property_db_field is not None)


def request(
    context: Context,
    wanted: Wanted,
    machine: Format | None,
    *,
    verb: str,
    states: frozenset[JobState],
    reasons: Mapping[No, str],
    ask: Callable[[Transaction, Sequence[int]], list[Answer]],
) -> int:
    """Ask something of the jobs that are meant, and tell what came of it; return the exit code."""
    if wanted.is_nothing:
        return show_usage()
    report = Report(machine)
    selection = select_jobs(context, wanted, states)
    report.complain(IMPOSSIBLE, selection.complaints)
    with context.database.begin() as tx:
        answers = ask(tx, selection.ids)
    for answer in answers:
        if answer.no is None:
            report.good(answer.job_id, f"[{answer.job_id}] {verb.capitalize()} request was sent to the OAR server.")
        elif answer.text:
            report.bad(answer.job_id, IMPOSSIBLE, answer.text)
        else:
            reason = reasons.get(answer.no, "unknown reason.")
            report.bad(answer.job_id, FAILED, f"/!\\ Cannot {verb} {answer.job_id}: {reason}")
    report.close()
    return max(report.codes, default=0)


@oar_command("oarhold", summary="Ask that jobs are not started.")
@option("-r", "--running", is_flag=True, help="Suspend jobs that run, too.")
@job_selection
@machine_formats
def main(context: Context, running: bool, wanted: Wanted, machine: Format | None) -> int:
    """Hold the jobs."""

    def ask(tx: Transaction, ids: Sequence[int]) -> list[Answer]:
        return control.hold(tx, context.user, ids, hold_rules(context), running=running)

    states = control.HOLDABLE | (control.SUSPENDABLE if running else frozenset())
    return request(context, wanted, machine, verb="hold", states=states, reasons=REASONS, ask=ask)
