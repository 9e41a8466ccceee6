"""oarsub --resubmit: a job that has ended is submitted once more, as it was."""

from oar.cli.common.options import Stop
from oar.cli.oarsub_parts.call import OarsubCall
from oar.cli.oarsub_parts.submission import wait_if_asked
from oar.lib.facts.errors import UserError
from oar.lib.submission import resubmission
from oar.lib.submission.checks import Code

#: Options that have a meaning beside --resubmit.
COMPATIBLE = frozenset({"resubmit", "verbosity", "wait", "parsable"})


def resubmit(call: OarsubCall, job_id: int, names: frozenset[str]) -> int:
    """Submit a copy of a job; return the exit code.  ``names``: of the options that are given.  Raises Stop."""
    context, printer = call.context, call.printer
    if names - COMPATIBLE:
        context.warn(f"job {job_id} is submitted as it was: the other options are ignored.")
    printer.explain(f"Resubmitting job {job_id}...", end="")
    try:
        with context.database.begin() as tx:
            copy_id = resubmission.resubmit(tx, context.runtime.config, context.user, job_id)
    except UserError as error:
        raise Stop(f"# Error: {error}", Code.RESUBMIT) from None
    printer.explain("DONE")
    printer.ids([copy_id])
    return wait_if_asked(call, [copy_id])
