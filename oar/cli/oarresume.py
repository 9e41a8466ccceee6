"""oarresume: asks that jobs that are held or suspended go on."""

from collections.abc import Sequence

from oar.cli.common.command import Context, oar_command
from oar.cli.common.job_selection import JobCriteria, job_selection
from oar.cli.common.options import machine_formats
from oar.cli.oarhold import hold_rules, request
from oar.lib.db.transaction import Transaction
from oar.lib.facts.formats import Format
from oar.lib.jobs import control
from oar.lib.jobs.control import ControlOutcome, ControlRefusal

REASONS = {
    ControlRefusal.UNKNOWN_JOB: "this job does not exist.",
    ControlRefusal.NOT_YOURS: "you are not the right user.",
    ControlRefusal.WRONG_STATE: "the job is not in the Hold or Suspended state.",
    ControlRefusal.ADMIN_RESUME: "only oar or root user can resume Suspended jobs.",
}


@oar_command("oarresume", summary="Ask that jobs that are held or suspended go on.")
@job_selection
@machine_formats
def main(context: Context, criteria: JobCriteria, machine: Format | None) -> int:
    """Resume the jobs."""

    def ask(tx: Transaction, ids: Sequence[int]) -> list[ControlOutcome]:
        return control.resume(tx, context.user, ids, hold_rules(context))

    return request(context, criteria, machine, verb="resume", states=control.RESUMABLE, reasons=REASONS, ask=ask)
