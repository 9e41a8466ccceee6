"""What this node knows of jobs: their phases, from state files and locks.

See docs/design/nodes.rst, "State file".

Action ``probe``.  Data: ``oar_tmp_directory``, ``cpuset_path``, ``options``, ``jobs`` = list of {``job_id``, ``name``
(of the group), ``user``, ``challenge`` (SHA-256 in hexadecimal digits), ``attempt``, ``fence``}.  One line of JSON per
job: ``job_id``, ``answer`` (``JobAnswer``), ``boot_id``, ``frozen``, ``processes``, and from the state file
``attempt``, ``times``, ``code``, ``status``, ``usage``, ``reason``; of a job that has ended, ``ago``, the seconds since
then.  With ``fence`` a job that was never started never will be by an attempt up to the one given.

Action ``survey``.  Data: those of ``probe`` without ``jobs``.  One line of JSON for each job whose command was started
here, as its head, and whose oarexec lives: ``job_id``, ``boot_id``, and from the state file ``SURVEY_KEYS``; ``ago``,
the seconds since the start.

Action ``ping``: exit 0.
"""

import json
import os
import re
import sys
import time

import node_base
import node_cgroups
from node_base import JobFiles, NodeError
from node_protocol import JobAnswer, ManagerExit, OarexecPhase, ProgramAction

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from node_base import Data, Kinds

SHORT = True  #: may be run by a worker of the session
STATE = re.compile(r"oarexec_([0-9]+)\.state\Z")
STATE_KEYS = ("attempt", "times", "code", "status", "usage", "reason")  #: those that are answered
SURVEY_KEYS = ("user", "challenge", "attempt", "record")  #: ``record``: what the server gave oarexec to keep
JOB: "Kinds" = {"job_id": int, "name": (str,), "user": (str,), "challenge": (str,), "attempt": int}
OVER = (OarexecPhase.ENDED, OarexecPhase.ABORTED)
#: Phases in which the command was started; one that has ended is known as long as its oarexec tries to report it.
BEGUN = (OarexecPhase.STARTED, OarexecPhase.RUNNING, OarexecPhase.ENDED)
#: Phases in which nothing of the user was started.
EARLY = (OarexecPhase.INIT, OarexecPhase.READY)


def main(action: str, data: "Data") -> int:
    """Carry out one action; return its exit code."""
    if action == ProgramAction.PING:
        return ManagerExit.OK
    try:
        if action not in (ProgramAction.PROBE, ProgramAction.SURVEY):
            raise NodeError(ManagerExit.ACTION, "unknown action '%s'" % node_base.escaped(str(action)))
        node_base.require(data, {"oar_tmp_directory": (str,)})
        directory = node_base.runtime_directory(data["oar_tmp_directory"], ManagerExit.RUNTIME_DIRECTORY)
        with node_base.acting_as(node_base.oar_account()):
            for report in survey(directory) if action == ProgramAction.SURVEY else answers(directory, data):
                node_base.say(json.dumps(report))
    except NodeError as error:
        node_base.complain("[node_probe] " + str(error))
        return error.code
    return ManagerExit.OK


def is_repeatable(action: str, data: "Data") -> bool:
    """Return whether a request may run twice: all only look, or write the same."""
    return True


def survey(directory: str) -> "Iterator[Data]":
    """Return what is known of each job whose command was started here and whose oarexec lives."""
    for name in sorted(os.listdir(directory)):
        match = STATE.match(name)
        if match is None:
            continue
        files = JobFiles(directory, int(match.group(1)))
        state = node_base.read_state(files)
        if state is not None and state["phase"] in BEGUN and node_base.lock_is_held(files):
            report = {key: state[key] for key in SURVEY_KEYS if key in state}
            started = int(state["times"].get(OarexecPhase.STARTED, time.time()))
            ago = max(0, int(time.time()) - started)
            yield dict(report, job_id=files.job_id, boot_id=node_base.boot_id(), ago=ago)


def answers(directory: str, data: "Data") -> "Iterator[Data]":
    """Return what is known of each job that is asked for."""
    groups = node_cgroups.groups_of(data)
    node_base.require(data, {"jobs": list})
    for job in data["jobs"]:
        node_base.require(job, JOB)
        yield answer(directory, groups, job)


def answer(directory: str, groups: "node_cgroups.Groups | None", job: "Data") -> "Data":
    """Return what is known of one job, as it is sent."""
    files = JobFiles(directory, job["job_id"])
    phase, state = phase_of(files, job)
    if phase == JobAnswer.NEVER and job.get("fence"):
        phase, state = fence(files, job)
    report: "Data" = {"job_id": job["job_id"], "boot_id": node_base.boot_id(), "answer": phase}
    if state is not None:
        report.update({key: state[key] for key in STATE_KEYS if key in state})
    confinement = node_cgroups.Confinement(groups, job["name"], job["user"], job["job_id"])
    report["frozen"] = confinement.exists() and confinement.is_frozen()
    report["processes"] = len(confinement.payload()) if confinement.exists() else 0
    if state is not None and phase in (OarexecPhase.ENDED, JobAnswer.DIED):
        report["ago"] = seconds_since_end(phase, state)
    if phase == JobAnswer.RUNNING and confinement.exists():
        report["usage"] = confinement.usage()
    return report


def seconds_since_end(phase: str, state: "Data") -> int:
    """Return the seconds since a job ended.

    A job that died with its node ended before the boot: return the time since then; 0 if it died since the boot.
    """
    if phase == JobAnswer.DIED:
        return 0 if state.get("boot_id") == node_base.boot_id() else node_base.seconds_up()
    now = int(time.time())
    return max(0, now - int(state["times"].get(phase, now)))


def phase_of(files: JobFiles, job: "Data") -> "tuple[str, Data | None]":
    """Return the answer for a job and the state that it comes from, None if that is of another life of the job."""
    is_alive = node_base.lock_is_held(files)
    state = node_base.read_state(files)
    if state is None:
        return (JobAnswer.INIT if is_alive else JobAnswer.NEVER), None
    if state.get("challenge") != job["challenge"]:
        return JobAnswer.NEVER, None
    if state["phase"] in OVER or is_alive:
        return state["phase"], state
    state = node_base.read_state(files) or state  # it may have ended between the two looks
    if state["phase"] in OVER:
        return state["phase"], state
    return (JobAnswer.NEVER if state["phase"] in EARLY else JobAnswer.DIED), state


def fence(files: JobFiles, job: "Data") -> "tuple[str, Data | None]":
    """Forbid a start of this job by attempts up to this one; the answer and state, also if an oarexec was quicker."""
    fd = os.open(files.lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        if not node_base.try_lock(fd):
            return JobAnswer.INIT, None
        state = {
            "job_id": job["job_id"],
            "user": job["user"],
            "challenge": job["challenge"],
            "attempt": job["attempt"],
            "boot_id": node_base.boot_id(),
            "phase": OarexecPhase.ABORTED,
            "times": {OarexecPhase.ABORTED: int(time.time())},
        }
        node_base.write_state(files, state)
        return JobAnswer.NEVER, state
    finally:
        os.close(fd)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], json.load(sys.stdin)))
