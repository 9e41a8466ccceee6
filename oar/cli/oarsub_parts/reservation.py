"""oarsub -r: submit a reservation, and wait for the scheduler's answer.

The server calls with a line, which is only a reason to look: what counts is the state in the database.  A call that
gets lost costs one period of the periodic look.

See docs/design/bus.rst, "Lines to oarsub".
"""

from typing import TYPE_CHECKING, NamedTuple

from oar.cli.common.command import Context
from oar.cli.common.end_with_caller import ending_with_caller
from oar.cli.common.options import Stop
from oar.cli.oarsub_parts.call import OarsubCall
from oar.cli.oarsub_parts.interactive import deleting_at_departure
from oar.cli.oarsub_parts.listener import Listener
from oar.cli.oarsub_parts.submission import Submitter, wait_if_asked
from oar.lib.facts.messages import OarsubLine
from oar.lib.facts.states import JobState, Reservation
from oar.lib.submission.checks import Code

if TYPE_CHECKING:
    from oar.lib.db.database import Database
    from oar.lib.facts.records import Job

#: Seconds between two looks when nobody calls.
PERIOD = 10.0


class ReservationAnswer(NamedTuple):
    """The scheduler's answer to a reservation."""

    is_granted: bool
    reason: str = ""

    def __str__(self) -> str:
        """Return the answer as users read it."""
        return "Reservation valid --> OK" if self.is_granted else f"Reservation not valid --> KO ({self.reason})"


def reserve(call: OarsubCall, submitter: Submitter) -> int:
    """Submit a reservation, wait for the answer, with --wait also for the job; return the exit code.

    Raises UserError, Stop, Hangup, DatabaseUnavailable.
    """
    context, printer = call.context, call.printer
    listener = Listener(context.runtime.config.server_hostname)
    address = f"{call.host}:{listener.port}"
    try:
        with ending_with_caller(), deleting_at_departure(context, address):
            submitted = submitter.submit(address)
            job_id = submitted.ids[0]
            submitter.tell(submitted)
            if submitter.proposal.spec.hold:
                printer.comment(f"The reservation is held until oarresume {job_id} releases it.")
            printer.comment("Advance reservation request: waiting for validation...")
            answer = wait_for_answer(context.database, job_id, listener)
    finally:
        listener.close()
    printer.comment(str(answer))
    _run_hook(context, job_id, answer)
    return wait_if_asked(call, submitted.ids) if answer.is_granted else Code.REFUSED_RESERVATION


def wait_for_answer(database: "Database", job_id: int, listener: Listener, period: float = PERIOD) -> ReservationAnswer:
    """Return the scheduler's answer to a reservation as soon as there is one."""
    line = None
    while True:
        with database.snapshot() as tx:
            job = tx.jobs.find(job_id)
        answer = _answer(job, was_called=line == OarsubLine.GOOD_RESERVATION)
        if answer is not None:
            return answer
        line = listener.next_line(period)


def _answer(job: "Job | None", *, was_called: bool) -> ReservationAnswer | None:
    """Return the answer that the state of the job means, None if there is none yet."""
    if job is None:
        return ReservationAnswer(False, "the job does not exist any more")
    if job.state in (JobState.TO_ERROR, JobState.ERROR):
        return ReservationAnswer(False, job.scheduler_info or job.message)
    if job.reservation is not Reservation.SCHEDULED:
        return None
    # The server still has to call, and ends a job whose oarsub it cannot reach.
    return ReservationAnswer(True) if was_called or job.state is not JobState.TO_ACK_RESERVATION else None


def _run_hook(context: Context, job_id: int, answer: ReservationAnswer) -> None:
    """Run the site's program for answered reservations.  Raises Stop if it fails."""
    hook = context.runtime.config.advance_reservation_validation_hook_exec_file
    if not hook:
        return
    import subprocess

    try:
        code = subprocess.run([hook, str(job_id), str(int(answer.is_granted))], check=False).returncode
    except OSError:
        code = -1
    if code:
        raise Stop("# Error: an error occured in the advance reservation validation hook")
