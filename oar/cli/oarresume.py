"""oarresume: asks that jobs that are held or suspended go on (commands-user.md 8)."""

from oar.cli.command import Context, machine_formats, oar_command
from oar.cli.oarhold import FAILED, IMPOSSIBLE, hold_rules
from oar.cli.outcomes import Report
from oar.cli.selection import Wanted, job_selection, select_jobs, show_usage
from oar.lib import control
from oar.lib.control import No
from oar.lib.formats import Format

REASONS = {
    No.UNKNOWN_JOB: "this job does not exist.",
    No.NOT_YOURS: "you are not the right user.",
    No.WRONG_STATE: "the job is not in the Hold or Suspended state.",
    No.ADMIN_RESUME: "only oar or root user can resume Suspended jobs.",
}


@oar_command("oarresume", summary="Ask that jobs that are held or suspended go on.")
@job_selection
@machine_formats
def main(context: Context, wanted: Wanted, machine: Format | None) -> int:
    """Resume the jobs."""
    if wanted.is_nothing:
        return show_usage()
    report = Report(machine)
    selection = select_jobs(context, wanted, control.RESUMABLE)
    report.complain(IMPOSSIBLE, selection.complaints)
    with context.database.begin() as tx:
        answers = control.resume(tx, context.user, selection.ids, hold_rules(context))
    for answer in answers:
        if answer.no is None:
            report.good(answer.job_id, f"[{answer.job_id}] Resume request was sent to the OAR server.")
        else:
            reason = REASONS.get(answer.no, "unknown reason.")
            report.bad(answer.job_id, FAILED, f"/!\\ Cannot resume {answer.job_id}: {reason}")
    report.close()
    return max(report.codes, default=0)
