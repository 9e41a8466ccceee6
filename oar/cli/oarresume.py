"""oarresume: asks that jobs that are held or suspended go on (commands-user.md 8)."""

import click

from oar.cli.command import Context, oar_command
from oar.cli.oarhold import FAILED, IMPOSSIBLE, hold_rules
from oar.cli.selection import complain, job_selection, select_jobs, show_usage
from oar.lib import control
from oar.lib.control import No

REASONS = {
    No.UNKNOWN_JOB: "this job does not exist.",
    No.NOT_YOURS: "you are not the right user.",
    No.WRONG_STATE: "the job is not in the Hold or Suspended state.",
    No.ADMIN_RESUME: "only oar or root user can resume Suspended jobs.",
}


@oar_command("oarresume", summary="Ask that jobs that are held or suspended go on.")
@job_selection
def main(context: Context, words: tuple[str, ...], array: bool, sql: str | None) -> int:
    """Resume the jobs."""
    if not words and sql is None:
        return show_usage()
    selection = select_jobs(context, words, array=array, sql=sql)
    complain(selection.complaints)
    codes = [IMPOSSIBLE] * len(selection.complaints)
    with context.database.begin() as tx:
        answers = control.resume(tx, context.user, selection.ids, hold_rules(context))
    for answer in answers:
        if answer.no is None:
            click.echo(f"[{answer.job_id}] Resume request was sent to the OAR server.")
        else:
            complain([f"/!\\ Cannot resume {answer.job_id}: {REASONS.get(answer.no, 'unknown reason.')}"])
            codes.append(FAILED)
    return max(codes, default=0)
