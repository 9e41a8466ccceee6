"""oarresume: resume held or suspended jobs."""

from collections.abc import Sequence

from oar.cli.common.command import Context, oar_command
from oar.cli.common.job_selection import JobCriteria, job_selection
from oar.cli.common.options import machine_formats
from oar.cli.oarhold import request
from oar.lib.base.formats import Format
from oar.lib.db.transaction import Transaction
from oar.lib.jobs import control
from oar.lib.jobs.control import ControlOutcome, HoldRules


@oar_command(
    "oarresume",
    summary="Resume jobs that are held or suspended.",
    examples={
        "oarresume 118": "Release job 118, which is held or suspended.",
    },
)
@job_selection
@machine_formats
def main(context: Context, criteria: JobCriteria, machine: Format | None) -> int:
    """Resume the jobs."""

    def ask(tx: Transaction, ids: Sequence[int]) -> list[ControlOutcome]:
        rules = HoldRules.of(context.runtime.config)
        return control.resume(tx, context.user, ids, rules, managed=context.managed_projects(tx))

    return request(context, criteria, machine, verb="resume", states=control.RESUMABLE, ask=ask)
