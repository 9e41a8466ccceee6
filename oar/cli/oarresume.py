"""oarresume: asks that jobs that are held or suspended go on (commands-user.md 8)."""

from collections.abc import Sequence

from oar.cli.command import Context, machine_formats, oar_command
from oar.cli.oarhold import hold_rules, request
from oar.cli.selection import Wanted, job_selection
from oar.lib import control
from oar.lib.control import Answer, No
from oar.lib.db.engine import Transaction
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

    def ask(tx: Transaction, ids: Sequence[int]) -> list[Answer]:
        return control.resume(tx, context.user, ids, hold_rules(context))

    return request(context, wanted, machine, verb="resume", states=control.RESUMABLE, reasons=REASONS, ask=ask)
