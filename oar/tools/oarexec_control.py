"""Sends a signal of the server to the oarexec of a job: the action ``ctl`` of ``oarexec``."""

import os
import signal

import node_base
import oarexec_user
from node_base import JobFiles, NodeError
from node_protocol import ManagerExit, OarexecExit, OarexecPhase

TYPE_CHECKING = False
if TYPE_CHECKING:
    from node_base import Data

NO_OAREXEC = 1  #: exit code: there is no such oarexec here
TEXT = (str,)


def control(data: "Data") -> int:
    """Send a signal to the job's oarexec, if it is really the one; return the exit code."""
    node_base.require(data, {"job_id": int, "tmp_directory": TEXT, "signal": TEXT})
    if data["signal"] not in oarexec_user.CONTROL_SIGNALS:
        raise NodeError(ManagerExit.DATA, "'%s' is not a signal for oarexec" % node_base.escaped(data["signal"]))
    files = JobFiles(data["tmp_directory"], data["job_id"])
    with node_base.lives(files.directory):
        with node_base.acting_as(node_base.oar_account()):
            pid = node_base.live_oarexec(files)
            if pid is None or has_ended(files):
                return NO_OAREXEC
            if data["signal"] == "URG":
                write_user_signal(files, str(data.get("user_signal", "")))
        os.kill(pid, signal.SIGCONT)
        os.kill(pid, getattr(signal, "SIG" + data["signal"]))
    return OarexecExit.OK


def has_ended(files: JobFiles) -> bool:
    """Return whether the end of the job is written: its process takes no signals, and may be that of another job."""
    return (node_base.read_state(files) or {}).get("phase") == OarexecPhase.ENDED


def write_user_signal(files: JobFiles, user_signal: str) -> None:
    """Write down which signal oarexec is to send to the user's process."""
    if oarexec_user.signal_number(user_signal) is None:
        raise NodeError(ManagerExit.DATA, "'%s' is not a signal" % node_base.escaped(user_signal))
    node_base.write_file(files.signal, user_signal.encode("ascii"), 0o600)
