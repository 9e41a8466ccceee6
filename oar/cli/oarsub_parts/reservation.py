"""oarsub -r: submit a reservation, and wait for the scheduler's answer.

A line of the server only makes oarsub check the state in the database.  If it is lost, oarsub checks one period later.

See docs/design/bus.rst, "Lines to oarsub".
"""

import time
from contextlib import suppress
from typing import TYPE_CHECKING

from oar.cli.common.command import Context
from oar.cli.common.options import Stop
from oar.cli.common.process import ending_with_caller
from oar.cli.oarsub_parts.call import OarsubCall
from oar.cli.oarsub_parts.interactive import CONNECTED_SECONDS, Listener, deleting_at_departure
from oar.cli.oarsub_parts.submission import report, submit_jobs, wait_if_asked
from oar.lib.base.errors import DatabaseUnavailable
from oar.lib.bus.messages import OarsubLine
from oar.lib.jobs.states import JobState
from oar.lib.submission.checks import Code
from oar.lib.submission.job_reservation import Decision, decision_on

if TYPE_CHECKING:
    from oar.lib.db.database import Database
    from oar.lib.submission.preparation import Proposal

#: Seconds between two checks without a call.
PERIOD = 10.0
#: Seconds given to the program of the site.
HOOK_SECONDS = 60.0


def reserve(call: OarsubCall, proposal: "Proposal") -> int:
    """Submit a reservation, wait for the answer, with --wait also for the job; return the exit code.

    Raises UserError, Stop, Hangup, DatabaseUnavailable.
    """
    context, printer = call.context, call.printer
    listener = Listener(context.runtime.config.server_hostnames, context.runtime.config.oarsub_callback_ports)
    address = f"{call.host}:{listener.port}"
    try:
        with ending_with_caller(), deleting_at_departure(context, address):
            submitted = submit_jobs(call, proposal, address)
            job_id = submitted.ids[0]
            report(call, submitted)
            if proposal.spec.hold:
                printer.comment(f"The reservation is held until oarresume {job_id} releases it.")
            printer.comment("Advance reservation request: waiting for validation...")
            answer = wait_for_answer(context.database, job_id, listener)
    finally:
        listener.close()
    printer.comment(str(answer))
    _run_hook(context, job_id, answer)
    return wait_if_asked(call, submitted.ids) if answer.is_granted else Code.REFUSED_RESERVATION


def wait_for_answer(database: "Database", job_id: int, listener: Listener, period: float = PERIOD) -> Decision:
    """Return the scheduler's answer to a reservation as soon as there is one, also after an outage of the database."""
    begun, was_called = time.monotonic(), False
    while True:
        answer = None
        with suppress(DatabaseUnavailable), database.snapshot() as tx:
            job = tx.jobs.find(job_id)
            # the server ends a job whose oarsub it cannot reach: wait for its call
            if job is None or job.state is not JobState.TO_ACK_RESERVATION or was_called:
                answer = decision_on(job)
        if answer is not None:
            return answer
        if time.monotonic() - begun > CONNECTED_SECONDS:
            database.close()
        was_called |= listener.next_line(period) == OarsubLine.GOOD_RESERVATION


def _run_hook(context: Context, job_id: int, answer: Decision) -> None:
    """Run the site's program for answered reservations.  Raises Stop if it fails."""
    hook = context.runtime.config.advance_reservation_validation_hook_exec_file
    if not hook:
        return
    import subprocess

    try:
        words = [hook, str(job_id), str(int(answer.is_granted))]
        code = subprocess.run(words, check=False, timeout=HOOK_SECONDS).returncode
    except (OSError, subprocess.TimeoutExpired):
        code = -1
    if code:
        raise Stop("# Error: an error occured in the advance reservation validation hook")
