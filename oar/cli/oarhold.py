"""oarhold: asks that jobs are not started, or are suspended (commands-user.md 8)."""

from oar.cli.command import Context, machine_formats, oar_command, option
from oar.cli.outcomes import Report
from oar.cli.selection import Wanted, job_selection, select_jobs, show_usage
from oar.lib import control
from oar.lib.control import HoldRules, No
from oar.lib.formats import Format

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


@oar_command("oarhold", summary="Ask that jobs are not started.")
@option("-r", "--running", is_flag=True, help="Suspend jobs that run, too.")
@job_selection
@machine_formats
def main(context: Context, running: bool, wanted: Wanted, machine: Format | None) -> int:
    """Hold the jobs."""
    if wanted.is_nothing:
        return show_usage()
    report = Report(machine)
    selection = select_jobs(context, wanted, control.HOLDABLE | (control.SUSPENDABLE if running else frozenset()))
    report.complain(IMPOSSIBLE, selection.complaints)
    with context.database.begin() as tx:
        answers = control.hold(tx, context.user, selection.ids, hold_rules(context), running=running)
    for answer in answers:
        if answer.no is None:
            report.good(answer.job_id, f"[{answer.job_id}] Hold request was sent to the OAR server.")
        elif answer.text:
            report.bad(answer.job_id, IMPOSSIBLE, answer.text)
        else:
            reason = REASONS.get(answer.no, "unknown reason.")
            report.bad(answer.job_id, FAILED, f"/!\\ Cannot hold {answer.job_id}: {reason}")
    report.close()
    return max(report.codes, default=0)
