"""Messages for rejected requests on jobs: the commands and the API use the same texts."""

from collections.abc import Mapping

from oar.lib.history.event_consequences import NOT_FOR_DESKTOPS
from oar.lib.jobs.control import ControlOutcome, ControlRefusal

_UNKNOWN = "This job does not exist."
_NOT_YOURS = "You are not the right user."

_SIGNAL = {
    ControlRefusal.NOT_YOURS: _NOT_YOURS,
    ControlRefusal.NOT_RUNNING: "This job is not running.",
    ControlRefusal.ALREADY_KILLED: "This job was already killed.",
    ControlRefusal.INTERACTIVE: "The job is Interactive.",
    ControlRefusal.NOOP: "The job is of the noop type.",
    ControlRefusal.FETCHED: NOT_FOR_DESKTOPS,
    ControlRefusal.UNKNOWN_JOB: _UNKNOWN,
}
_HOLD = {
    ControlRefusal.UNKNOWN_JOB: "this job does not exist.",
    ControlRefusal.NOT_YOURS: "you are not the right user.",
    ControlRefusal.WRONG_STATE: "the job is not in the right state (try '-r' option).",
    ControlRefusal.HAS_BEGUN: "the job is not in the right state: it has begun (try '-r' option).",
    ControlRefusal.HAS_ENDED: "it has ended.",
    ControlRefusal.ADMIN_HOLD: "only oar or root users can use '-r' option.",
}
_RESUME = {
    ControlRefusal.UNKNOWN_JOB: "this job does not exist.",
    ControlRefusal.NOT_YOURS: "you are not the right user.",
    ControlRefusal.WRONG_STATE: "the job is not in the Hold or Suspended state.",
    ControlRefusal.ADMIN_RESUME: "only oar or root user can resume Suspended jobs.",
}
_UNKNOWN_REASON = "unknown reason."


def why_not_ended(outcome: ControlOutcome, verb: str = "frag") -> str:
    """Return why a job is not deleted or signalled; ``verb`` names the requested operation.

    >>> why_not_ended(ControlOutcome(42, ControlRefusal.ALREADY_KILLED))
    'Cannot frag 42 ; This job was already killed.'
    """
    return f"Cannot {verb} {outcome.job_id} ; {_reason(outcome, _SIGNAL)}"


def why_not_held(outcome: ControlOutcome) -> str:
    return f"/!\\ Cannot hold {outcome.job_id}: {_reason(outcome, _HOLD)}"


def why_not_resumed(outcome: ControlOutcome) -> str:
    return f"/!\\ Cannot resume {outcome.job_id}: {_reason(outcome, _RESUME)}"


def _only_admins(outcome: ControlOutcome) -> str:
    return "only administrators may do this." if outcome.refusal is ControlRefusal.NOT_ADMIN else ""


def why_not_forced(outcome: ControlOutcome, least: int) -> str:
    """Return why the end of a job is not forced; ``least``: required time in state Finishing, in seconds."""
    if outcome.refusal is ControlRefusal.UNKNOWN_JOB:
        return f"The job {outcome.job_id} does not exist."
    if outcome.refusal is ControlRefusal.FRAME:
        return f"Cannot force the end of {outcome.job_id} ; {outcome.text}"
    is_early = outcome.refusal is ControlRefusal.NOT_LONG_ENOUGH
    seconds = f" for more than {least}s ({outcome.seconds}s)" if is_early else ""
    return _only_admins(outcome) or f"The job {outcome.job_id} is not in the Finishing state{seconds}."


def why_not_toggled(outcome: ControlOutcome) -> str:
    """Return why the type besteffort of a job is not changed."""
    if outcome.refusal is ControlRefusal.UNKNOWN_JOB:
        return f"The job {outcome.job_id} does not exist."
    if outcome.refusal is ControlRefusal.FRAME:
        return f"Cannot toggle the type of {outcome.job_id} ; {outcome.text}"
    return _only_admins(outcome) or f"The job {outcome.job_id} is not in the Running state."


def _reason(outcome: ControlOutcome, reasons: Mapping[ControlRefusal, str]) -> str:
    return outcome.text or reasons.get(outcome.refusal or ControlRefusal.WRONG_STATE, _UNKNOWN_REASON)
